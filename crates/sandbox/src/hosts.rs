//! The hosts that a sandbox may reach.
//!
//! An entry without a port allows only public addresses, or the owner of a name could point it at
//! services of this machine or its network. One with a host *and* a port may be private: the user chose it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::places::PLACES;
use ralph_agents::profile_of;

const WEB_PORTS: [u16; 2] = [443, 80];

/// The names that `sandbox.allowedDomains` has for groups of hosts.
pub fn group_names() -> Vec<&'static str> {
    PLACES.host_groups.iter().map(|group| group.name).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HostEntry {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// One name or address, in lower case.
    Exact(String),
    /// `*.example.com`, stored as `.example.com`.
    Subdomains(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostAllowList {
    entries: Vec<HostEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidHostEntry {
    pub entry: String,
    pub reason: &'static str,
}

impl fmt::Display for InvalidHostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.entry, self.reason)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostDecision {
    /// `private` includes addresses of this machine and its network.
    Allowed {
        private: bool,
    },
    Refused,
}

impl HostAllowList {
    /// Package registries and the agent's own services.
    pub fn for_agent(adapter: &str) -> HostAllowList {
        let mut list = HostAllowList::default();
        let registries = PLACES.host_groups.iter().filter(|group| !group.optional);
        let hosts = registries.flat_map(|group| &group.hosts).chain(profile_of(adapter).hosts);
        for host in hosts {
            // A test parses all of these.
            let _ = list.add(host);
        }
        list
    }

    /// Adds a host, `*.host`, `host:port`, or a group.
    ///
    /// # Errors
    /// The entry is none of these.
    pub fn add(&mut self, text: &str) -> Result<(), InvalidHostEntry> {
        let entry = text.trim();
        if let Some(group) = PLACES.host_groups.iter().find(|group| group.name == entry) {
            return group.hosts.iter().try_for_each(|host| self.add(host));
        }
        let invalid = |reason| InvalidHostEntry { entry: text.to_owned(), reason };
        if entry.contains("://") || entry.contains('/') {
            return Err(invalid("use a host name, without https:// and path"));
        }
        let (host, port) = split_port(entry).map_err(invalid)?;
        let host = match host.strip_prefix('*') {
            Some(rest) if rest.len() > 1 && rest.starts_with('.') => {
                let below = normalize_host(&rest[1..]).ok_or_else(|| invalid("not a host name"))?;
                if !below.contains('.') {
                    return Err(invalid("this would allow a whole top-level domain"));
                }
                HostPattern::Subdomains(format!(".{below}"))
            }
            Some(_) => return Err(invalid("use a star only at the start: *.host")),
            None => {
                HostPattern::Exact(normalize_host(host).ok_or_else(|| invalid("not a host name"))?)
            }
        };
        let entry = HostEntry { host, port };
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
        Ok(())
    }

    /// Adds the host and port of a URL, as in `ANTHROPIC_BASE_URL`.
    pub fn add_url(&mut self, url: &str) {
        let (rest, default) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (rest, 443),
            (None, Some(rest)) => (rest, 80),
            (None, None) => return,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit('@').next().unwrap_or_default();
        if let Ok((host, port)) = split_port(authority) {
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            let _ = self.add(&format!("{host}:{}", port.unwrap_or(default)));
        }
    }

    pub fn check(&self, host: &str, port: u16) -> HostDecision {
        let Some(host) = normalize_host(host) else { return HostDecision::Refused };
        let mut decision = HostDecision::Refused;
        for entry in &self.entries {
            let host_fits = match &entry.host {
                HostPattern::Exact(name) => *name == host || (is_local(name) && is_local(&host)),
                HostPattern::Subdomains(end) => {
                    host.len() > end.len() && host.ends_with(end.as_str())
                }
            };
            let port_fits = entry.port.map_or(WEB_PORTS.contains(&port), |only| only == port);
            if host_fits && port_fits {
                let private = entry.port.is_some() && matches!(entry.host, HostPattern::Exact(_));
                if private {
                    return HostDecision::Allowed { private };
                }
                decision = HostDecision::Allowed { private };
            }
        }
        decision
    }

    /// Allowed ports of this machine, for programs that ignore the proxy.
    pub fn local_ports(&self) -> Vec<u16> {
        let local = self.entries.iter().filter(|entry| match &entry.host {
            HostPattern::Exact(name) => is_local(name),
            HostPattern::Subdomains(_) => false,
        });
        let mut ports: Vec<u16> = local.filter_map(|entry| entry.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

pub(super) fn is_local(host: &str) -> bool {
    host == "localhost" || host == "127.0.0.1" || host == "::1"
}

/// Splits `host`, `host:port`, `[::1]:port` or a bare `::1`.
pub(super) fn split_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let port = |digits: &str| match digits.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err("the port is not a number from 1 to 65535"),
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("missing bracket")?;
        return match rest.strip_prefix(':') {
            Some(digits) => Ok((host, port(digits)?)),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("use a colon before the port"),
        };
    }
    match text.split_once(':') {
        Some((host, digits)) if !digits.contains(':') => Ok((host, port(digits)?)),
        _ => Ok((text, None)),
    }
}

/// Returns a valid host in lower case without a trailing dot.
pub(super) fn normalize_host(host: &str) -> Option<String> {
    if host.parse::<IpAddr>().is_ok() {
        return Some(host.to_ascii_lowercase());
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // Some programs read `127.1` or `0x7f.1` as an address, others as a name.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    let is_name = host.len() <= 253 && host.split('.').all(is_label) && !is_number;
    is_name.then(|| host.to_ascii_lowercase())
}

pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0
        || a == 10
        || (a == 100 && (64..128).contains(&b))
        || a == 127
        || (a == 169 && b == 254)
        || (a == 172 && (16..32).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 168)
        || (a == 198 && (18..20).contains(&b))
        || a >= 224)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Embedded IPv4 addresses: mapped, compatible, NAT64, 6to4.
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // The other NAT64 prefixes are for local use.
        [0x64, 0xff9b, ..] => false,
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, obsolete.
        [0x2001, 0, ..] => false,
        // All public addresses are in 2000::/3 today.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> HostAllowList {
        let mut list = HostAllowList::default();
        for entry in entries {
            list.add(entry).unwrap();
        }
        list
    }

    #[test]
    fn host_entry_allows_only_matching_host_and_port() {
        const NO: HostDecision = HostDecision::Refused;
        const YES: HostDecision = HostDecision::Allowed { private: false };
        const PRIVATE: HostDecision = HostDecision::Allowed { private: true };
        for (entry, host, port, expected) in [
            ("api.example.com", "api.example.com", 443, YES),
            ("api.example.com", "API.Example.COM.", 80, YES),
            ("api.example.com", "api.example.com", 22, NO),
            ("api.example.com", "xapi.example.com", 443, NO),
            ("api.example.com", "api.example.com.evil.test", 443, NO),
            ("*.example.com", "a.b.example.com", 443, YES),
            ("*.example.com", "example.com", 443, NO),
            ("*.example.com", "notexample.com", 443, NO),
            ("*.example.com", ".example.com", 443, NO),
            ("*.example.com:8443", "a.example.com", 8443, YES),
            ("*.example.com:8443", "a.example.com", 443, NO),
            ("db.example.com:5432", "db.example.com", 5432, PRIVATE),
            ("db.example.com:5432", "db.example.com", 443, NO),
            ("localhost:8080", "localhost", 8080, PRIVATE),
            ("localhost:8080", "127.0.0.1", 8080, PRIVATE),
            ("localhost:8080", "::1", 8080, PRIVATE),
            ("localhost:8080", "localhost", 8081, NO),
            ("localhost:8080", "127.0.0.2", 8080, NO),
            ("localhost", "localhost", 80, YES),
            ("10.1.2.3:80", "10.1.2.3", 80, PRIVATE),
            ("[fe80::1]:80", "fe80::1", 80, PRIVATE),
            ("npm", "registry.npmjs.org", 443, YES),
            ("github", "codeload.github.com", 443, YES),
            ("example.com", "127.1", 443, NO),
            ("example.com", "0x7f000001", 443, NO),
            ("example.com", "2130706433", 443, NO),
            ("example.com", "example.com\0.evil.test", 443, NO),
            ("example.com", "", 443, NO),
        ] {
            assert_eq!(list(&[entry]).check(host, port), expected, "{entry}: {host}:{port}");
        }
    }

    #[test]
    fn invalid_host_entries_are_rejected() {
        for entry in [
            "https://example.com",
            "example.com/path",
            "*",
            "*.com",
            "*example.com",
            "a.*.com",
            "example.com:0",
            "example.com:http",
            "example.com:99999",
            "[::1",
            "[::1]80",
            "two words",
            "",
            "127.1",
        ] {
            assert!(HostAllowList::default().add(entry).is_err(), "{entry}");
        }
    }

    #[test]
    fn service_url_allows_exactly_its_host_and_port() {
        for (url, host, port) in [
            ("http://127.0.0.1:4123", "127.0.0.1", 4123),
            ("https://user:pass@llm.example.com/v1?x", "llm.example.com", 443),
            ("http://llm.internal/v1", "llm.internal", 80),
            ("http://[::1]:8080/", "::1", 8080),
        ] {
            let mut list = HostAllowList::default();
            list.add_url(url);
            assert_eq!(list.check(host, port), HostDecision::Allowed { private: true }, "{url}");
            assert_eq!(list.check(host, port + 1), HostDecision::Refused, "{url}");
        }
        let mut list = HostAllowList::default();
        for nonsense in ["", "ftp://x", "http://", "http://a b", "https://*"] {
            list.add_url(nonsense);
        }
        assert_eq!(list, HostAllowList::default());
    }

    #[test]
    fn agent_host_lists_are_valid_and_minimal() {
        for adapter in ralph_agents::all() {
            let list = HostAllowList::for_agent(adapter.name());
            for host in adapter.profile().hosts {
                assert!(HostAllowList::default().add(host).is_ok(), "{host}");
                let one = host.replace('*', "some");
                assert_eq!(
                    list.check(&one, 443),
                    HostDecision::Allowed { private: false },
                    "{host}"
                );
            }
            assert_eq!(list.check("github.com", 443), HostDecision::Refused, "{}", adapter.name());
            assert_eq!(list.check("example.com", 443), HostDecision::Refused, "{}", adapter.name());
            assert!(list.local_ports().is_empty(), "{}", adapter.name());
        }
        for group in &PLACES.host_groups {
            assert!(group.hosts.iter().all(|host| HostAllowList::default().add(host).is_ok()));
        }
        assert_eq!(list(&["localhost:2", "127.0.0.1:1", "[::1]:1", "a.b:3"]).local_ports(), [1, 2]);
    }

    #[test]
    fn public_addresses_are_recognized() {
        for (address, expected) in [
            ("1.1.1.1", true),
            ("104.16.0.1", true),
            ("0.0.0.0", false),
            ("10.255.255.53", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("192.0.0.8", false),
            ("198.18.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700::1111", true),
            ("::", false),
            ("::1", false),
            ("::ffff:10.0.0.1", false),
            ("::ffff:1.1.1.1", true),
            ("64:ff9b::a00:1", false),
            ("64:ff9b::101:101", true),
            ("64:ff9b:1::101:101", false),
            ("2002:a00:1::", false),
            ("2001::1", false),
            ("fc00::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        }
    }
}
