//! DNS messages, `/etc/hosts` and `/etc/resolv.conf`.
//!
//! The static binary cannot use `getaddrinfo`: it loads parts of the C library it was built with,
//! and fails or crashes on other systems. It also blocks. Lost are names of its plugins (mDNS,
//! LDAP); local stubs such as systemd-resolved work.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

/// Fits any network unfragmented.
pub(super) const MAX_REPLY: usize = 1232;

const MAX_ADDRESSES: usize = 16;

/// Falls back to this machine, like the C library.
pub(super) fn name_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    let mut servers: Vec<SocketAddr> = resolv_conf
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("nameserver")).then(|| words.next()).flatten()
        })
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .take(3)
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
    }
    servers
}

/// `localhost` is always this machine.
pub(super) fn lookup_hosts_file(hosts: &str, name: &str) -> Vec<IpAddr> {
    if name == "localhost" || name.ends_with(".localhost") {
        return vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    let mut found = Vec::new();
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && found.len() < MAX_ADDRESSES {
            found.push(address);
        }
    }
    found
}

#[derive(Debug)]
pub(super) struct Lookup {
    name: String,
    ids: [u16; 2],
    answered: [bool; 2],
    found: [Vec<IpAddr>; 2],
    /// The server failed, which is not the same as no address.
    failed: bool,
}

impl Lookup {
    /// `ids` must be unpredictable: they detect forged replies.
    pub(super) fn new(name: &str, ids: [u16; 2]) -> Lookup {
        let (name, found) = (name.to_owned(), [Vec::new(), Vec::new()]);
        Lookup { name, ids, answered: [false; 2], found, failed: false }
    }

    pub(super) fn questions(&self) -> Vec<Vec<u8>> {
        let kinds = [TYPE_A, TYPE_AAAA];
        (0..2)
            .filter(|nth| !self.answered[*nth])
            .map(|nth| encode_query(self.ids[nth], &self.name, kinds[nth]))
            .collect()
    }

    pub(super) fn handle_reply(&mut self, reply: &[u8]) {
        for (nth, kind) in [TYPE_A, TYPE_AAAA].into_iter().enumerate() {
            if self.answered[nth] {
                continue;
            }
            if let Some(answer) = read(reply, self.ids[nth], &self.name, kind) {
                match answer {
                    Ok(addresses) => self.found[nth] = addresses,
                    Err(ServerFailure) => self.failed = true,
                }
                self.answered[nth] = true;
            }
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.answered == [true; 2]
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.addresses().is_empty() && (self.failed || !self.is_done())
    }

    pub(super) fn retry(&mut self, ids: [u16; 2]) {
        *self = Lookup::new(&self.name, ids);
    }

    pub(super) fn has_addresses(&self) -> bool {
        self.found.iter().any(|found| !found.is_empty())
    }

    /// IPv4 first: a broken IPv6 route costs a timeout.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.found.concat()
    }
}

fn encode_query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len() + 32);
    bytes.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question, one additional record.
    bytes.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.') {
        // `hosts::clean` has checked the length.
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
    // EDNS: our maximum reply size.
    bytes.push(0);
    bytes.extend_from_slice(&TYPE_OPT.to_be_bytes());
    bytes.extend_from_slice(&(MAX_REPLY as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
struct ServerFailure;

/// `None` if it does not answer this query.
fn read(
    reply: &[u8],
    id: u16,
    name: &str,
    kind: u16,
) -> Option<Result<Vec<IpAddr>, ServerFailure>> {
    let mut reader = ReplyReader { data: reply, position: 0 };
    let (their_id, flags) = (reader.u16()?, reader.u16()?);
    if their_id != id || flags & 0x8000 == 0 {
        return None;
    }
    let (questions, answers) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    if questions != 1 || !reader.name()?.eq_ignore_ascii_case(name) || reader.u16()? != kind {
        return None;
    }
    reader.skip(2)?;
    match flags & 0x000f {
        0 => {}
        // NXDOMAIN.
        3 => return Some(Ok(Vec::new())),
        _ => return Some(Err(ServerFailure)),
    }
    let mut found = Vec::new();
    // Replies include the targets of aliases, so only addresses matter.
    for _ in 0..answers {
        let Some(address) = reader.record(kind) else { break };
        if let Some(address) = address
            && found.len() < MAX_ADDRESSES
        {
            found.push(address);
        }
    }
    let cut_off = flags & 0x0200 != 0;
    Some(if cut_off && found.is_empty() { Err(ServerFailure) } else { Ok(found) })
}

struct ReplyReader<'a> {
    data: &'a [u8],
    position: usize,
}

impl<'a> ReplyReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(count)?;
        let taken = self.data.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// Follows compression pointers, only backwards: this terminates.
    fn name(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut reader = ReplyReader { data: self.data, position: self.position };
        let mut limit = self.position;
        let mut jumped = false;
        loop {
            let length = *reader.take(1)?.first()?;
            match length {
                0 => break,
                1..=63 => {
                    let label = reader.take(usize::from(length))?;
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(&String::from_utf8_lossy(label));
                    if text.len() > 1024 {
                        return None;
                    }
                }
                192..=255 => {
                    let low = *reader.take(1)?.first()?;
                    let target = usize::from(length & 0x3f) << 8 | usize::from(low);
                    if !jumped {
                        self.position = reader.position;
                    }
                    if target >= limit {
                        return None;
                    }
                    (jumped, limit, reader.position) = (true, target, target);
                }
                _ => return None,
            }
        }
        if !jumped {
            self.position = reader.position;
        }
        Some(text)
    }

    /// `None` if truncated, `Some(None)` if of another type.
    fn record(&mut self, expected: u16) -> Option<Option<IpAddr>> {
        self.name()?;
        let (kind, class) = (self.u16()?, self.u16()?);
        self.skip(4)?;
        let length = self.u16()?;
        let data = self.take(usize::from(length))?;
        if kind != expected || class != CLASS_IN {
            return Some(None);
        }
        Some(match kind {
            TYPE_A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn name_servers_are_parsed_from_resolv_conf() {
        let text =
            "# mine\nsearch lan\nnameserver 10.0.0.1\n nameserver  ::1 \nnameserver x\noptions a";
        let expected: Vec<SocketAddr> =
            vec!["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()];
        assert_eq!(name_servers(text), expected);
        assert_eq!(name_servers(""), ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn hosts_file_is_parsed_and_localhost_stays_loopback() {
        let text =
            "127.0.0.1 localhost\n10.0.0.7\tbox Box.lan # the box\nfe80::1%eth0 zone\n::2 box\n";
        let expected: Vec<IpAddr> = vec!["10.0.0.7".parse().unwrap(), "::2".parse().unwrap()];
        assert_eq!(lookup_hosts_file(text, "box"), expected);
        assert_eq!(lookup_hosts_file(text, "box.lan"), expected[..1]);
        assert!(lookup_hosts_file(text, "other").is_empty());
        // A hosts file cannot redirect `localhost`.
        assert!(
            lookup_hosts_file("8.8.8.8 localhost", "localhost").iter().all(IpAddr::is_loopback)
        );
    }

    fn reply(question: &[u8], flags: u16, records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = question[..2].to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        bytes.extend_from_slice(&question[12..question.len() - 11]);
        for (kind, data) in records {
            bytes.extend_from_slice(&[0xc0, 12]);
            bytes.extend_from_slice(&kind.to_be_bytes());
            bytes.extend_from_slice(&[0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
            bytes.extend_from_slice(data);
        }
        bytes
    }

    #[test]
    fn dns_lookup_asks_for_both_address_families() {
        let mut lookup = Lookup::new("Example.com", [7, 8]);
        let questions = lookup.questions();
        assert_eq!(questions.len(), 2);
        lookup.handle_reply(&reply(
            &questions[0],
            0x8180,
            &[(5, b"\x01a\xc0\x0c"), (1, &[1, 2, 3, 4])],
        ));
        assert!(!lookup.is_done() && lookup.has_addresses());
        assert_eq!(lookup.questions(), questions[1..]);
        let v6: Ipv6Addr = "2606::1".parse().unwrap();
        lookup.handle_reply(&reply(&questions[1], 0x8180, &[(28, &v6.octets())]));
        assert!(lookup.is_done());
        assert_eq!(lookup.addresses(), [IpAddr::from([1, 2, 3, 4]), v6.into()]);
    }

    #[test]
    fn dns_lookup_ignores_mismatched_replies() {
        let asked = encode_query(7, "example.com", TYPE_A);
        let good = reply(&asked, 0x8180, &[(1, &[1, 2, 3, 4])]);
        let take = |bytes: &[u8]| {
            let mut lookup = Lookup::new("example.com", [7, 8]);
            lookup.handle_reply(bytes);
            (lookup.answered[0], lookup.failed, lookup.addresses().len())
        };
        assert_eq!(take(&good), (true, false, 1));
        let other_id =
            reply(&encode_query(9, "example.com", TYPE_A), 0x8180, &[(1, &[1, 2, 3, 4])]);
        assert_eq!(take(&other_id), (false, false, 0));
        let other_name =
            reply(&encode_query(7, "evil.test", TYPE_A), 0x8180, &[(1, &[1, 2, 3, 4])]);
        assert_eq!(take(&other_name), (false, false, 0));
        assert_eq!(take(&asked), (false, false, 0), "a question is no reply");
        // NXDOMAIN, SERVFAIL, truncated.
        assert_eq!(take(&reply(&asked, 0x8183, &[])), (true, false, 0));
        assert_eq!(take(&reply(&asked, 0x8182, &[])), (true, true, 0));
        assert_eq!(take(&reply(&asked, 0x8380, &[])), (true, true, 0));
        for end in 0..good.len() {
            take(&good[..end]);
        }
    }

    #[test]
    fn dns_name_pointing_to_itself_is_rejected() {
        for bytes in [&[0xc0, 0][..], &[1, b'a', 0xc0, 0], &[0xc0, 2, 0xc0, 0]] {
            let mut reader = ReplyReader { data: bytes, position: 0 };
            assert_eq!(reader.name(), None);
        }
    }

    proptest! {
        #[test]
        fn dns_lookup_never_panics_on_any_reply(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            flips in proptest::collection::vec((0..80usize, any::<u8>()), 0..4),
        ) {
            let mut lookup = Lookup::new("example.com", [7, 8]);
            let asked = encode_query(7, "example.com", TYPE_A);
            let mut damaged = reply(&asked, 0x8180, &[(1, &[1, 2, 3, 4]), (5, b"\x01a\xc0\x0c")]);
            for (at, byte) in flips {
                if let Some(place) = damaged.get_mut(at) {
                    *place = byte;
                }
            }
            lookup.handle_reply(&bytes);
            lookup.handle_reply(&damaged);
        }
    }
}
