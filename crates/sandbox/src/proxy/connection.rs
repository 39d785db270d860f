//! One client of the proxy, from its request to the end of what it was connected to.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use super::http::{self, Ask, Head, Reply};
use super::resolve::{Resolved, Resolver, Resolving};
use super::{ListenersId, Refusal, Rules};
use crate::hosts::{self, Verdict};

/// How long a client may take to say what it wants. One that sends a byte now and then is not given
/// more.
const HEAD_MS: u64 = 15_000;
/// How long an address may take to answer.
const CONNECT_MS: u64 = 10_000;
/// How long another proxy may take to reach the host.
const THROUGH_MS: u64 = 60_000;
/// How long a client may take to read that it gets nothing.
const FAREWELL_MS: u64 = 5_000;
/// How long nothing may move once one side has said its last word.
const HALF_CLOSED_MS: u64 = 600_000;
/// How much is moved for one client before the others have their turn.
const TURN_READS: usize = 8;

const NO_ANSWER: &str = "the host does not answer";

pub(super) struct Connection {
    /// The sandbox that it came from.
    pub(super) of: ListenersId,
    pub(super) moved_ms: u64,
    client: OwnedFd,
    stage: Stage,
}

enum Stage {
    Head {
        received: Vec<u8>,
        until_ms: u64,
    },
    Resolving {
        ask: Ask,
        private: bool,
        resolving: Resolving,
    },
    Connecting {
        upstream: OwnedFd,
        until_ms: u64,
        rest: VecDeque<SocketAddr>,
        opening: Opening,
    },
    /// Another proxy was asked to open the tunnel.
    Through {
        upstream: OwnedFd,
        received: Vec<u8>,
        until_ms: u64,
        opening: Opening,
    },
    Relaying {
        upstream: OwnedFd,
        up: Flow,
        down: Flow,
    },
    Farewell {
        words: Flow,
        until_ms: u64,
    },
    Over,
}

/// What each side is sent once there is a connection.
#[derive(Default)]
struct Opening {
    to_host: Vec<u8>,
    to_client: Vec<u8>,
    /// What another proxy is asked before that.
    through: Option<Vec<u8>>,
    /// How much more the client may send.
    more: Option<u64>,
    /// Nobody would understand an answer of ours.
    mute: bool,
}

/// Bytes on their way in one direction. What could not be written yet is all that is held.
#[derive(Default)]
struct Flow {
    pending: Vec<u8>,
    written: usize,
    ended: bool,
    shut: bool,
    /// How much may still come; any number without one. What is beyond it is not read.
    left: Option<u64>,
}

/// What became of a connection.
pub(super) enum Then {
    Stays,
    Closes,
}

impl Connection {
    /// A client of the proxy.
    pub(super) fn new(of: ListenersId, client: OwnedFd, now_ms: u64) -> Connection {
        let stage = Stage::Head { received: Vec::new(), until_ms: now_ms + HEAD_MS };
        Connection { of, moved_ms: now_ms, client, stage }
    }

    /// A client that is passed on to a port of this machine. `None` if nobody is there.
    pub(super) fn forwarded(
        of: ListenersId,
        client: OwnedFd,
        port: u16,
        now_ms: u64,
    ) -> Option<Connection> {
        let rest: VecDeque<SocketAddr> = [
            SocketAddr::from(([127, 0, 0, 1], port)),
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
        ]
        .into();
        let opening = Opening { mute: true, ..Opening::default() };
        let stage = connect_next(rest, opening, now_ms).ok()?;
        Some(Connection { of, moved_ms: now_ms, client, stage })
    }

    /// What it waits for.
    pub(super) fn waits<'c>(&'c self, mut add: impl FnMut(BorrowedFd<'c>, PollFlags)) {
        let client = self.client.as_fd();
        match &self.stage {
            Stage::Head { .. } => add(client, PollFlags::IN),
            Stage::Resolving { resolving, .. } => {
                if let Some(socket) = resolving.socket() {
                    add(socket, PollFlags::IN);
                }
            }
            Stage::Connecting { upstream, .. } => add(upstream.as_fd(), PollFlags::OUT),
            Stage::Through { upstream, .. } => add(upstream.as_fd(), PollFlags::IN),
            Stage::Relaying { upstream, up, down } => {
                // What nothing is wanted of is not polled, or its end would wake us without a pause.
                for (fd, reads, writes) in [(client, up, down), (upstream.as_fd(), down, up)] {
                    let mut flags = PollFlags::empty();
                    flags.set(PollFlags::IN, reads.wants_more());
                    flags.set(PollFlags::OUT, !writes.pending.is_empty());
                    if !flags.is_empty() {
                        add(fd, flags);
                    }
                }
            }
            Stage::Farewell { words, .. } => {
                let all_said = words.pending.is_empty();
                add(client, if all_said { PollFlags::IN } else { PollFlags::OUT });
            }
            Stage::Over => {}
        }
    }

    /// When it has to be looked at, whatever happens.
    pub(super) fn until_ms(&self) -> Option<u64> {
        match &self.stage {
            Stage::Head { until_ms, .. }
            | Stage::Connecting { until_ms, .. }
            | Stage::Through { until_ms, .. }
            | Stage::Farewell { until_ms, .. } => Some(*until_ms),
            Stage::Resolving { resolving, .. } => Some(resolving.until_ms()),
            Stage::Relaying { up, down, .. } => {
                (up.ended || down.ended).then(|| self.moved_ms + HALF_CLOSED_MS)
            }
            Stage::Over => Some(0),
        }
    }

    /// Goes on as far as is possible without waiting.
    pub(super) fn advance(
        &mut self,
        now_ms: u64,
        rules: &Rules,
        scratch: &mut [u8],
        tell: &mut dyn FnMut(Refusal),
    ) -> Then {
        loop {
            let next = match &mut self.stage {
                Stage::Head { received, until_ms } => {
                    match read_head(&self.client, received, scratch) {
                        Step::Next(ask) => begin(ask, rules, now_ms, tell),
                        Step::Wait if now_ms < *until_ms => return Then::Stays,
                        Step::Wait => farewell(
                            "408 Request Timeout",
                            "the request was not sent in time",
                            now_ms,
                        ),
                        Step::Bad(status, why) => farewell(status, why, now_ms),
                        Step::Gone => return Then::Closes,
                    }
                }
                Stage::Resolving { ask, private, resolving } => {
                    let Some(found) = resolving.advance(now_ms) else { return Then::Stays };
                    let (ask, private) = (take_ask(ask), *private);
                    connect(ask, private, found, now_ms, tell)
                }
                Stage::Connecting { upstream, until_ms, .. } => {
                    let outcome = connected(upstream);
                    if outcome.is_none() && now_ms < *until_ms {
                        return Then::Stays;
                    }
                    let stage = std::mem::replace(&mut self.stage, Stage::Over);
                    let Stage::Connecting { upstream, rest, opening, .. } = stage else {
                        return Then::Closes;
                    };
                    match outcome {
                        Some(Ok(())) => open(upstream, opening, now_ms),
                        _ => match connect_next(rest, opening, now_ms) {
                            Ok(stage) => stage,
                            Err(opening) if opening.mute => return Then::Closes,
                            Err(_) => farewell("502 Bad Gateway", NO_ANSWER, now_ms),
                        },
                    }
                }
                Stage::Through { upstream, received, until_ms, .. } => {
                    let answer = match read_reply(upstream, received, scratch) {
                        Reply::Partial if now_ms < *until_ms => return Then::Stays,
                        answer => answer,
                    };
                    let stage = std::mem::replace(&mut self.stage, Stage::Over);
                    let Stage::Through { upstream, received, mut opening, .. } = stage else {
                        return Then::Closes;
                    };
                    match answer {
                        Reply::Open(length) => {
                            opening.to_client.extend(received.get(length..).unwrap_or_default());
                            relay(upstream, opening)
                        }
                        Reply::Refused(code) => farewell(
                            "502 Bad Gateway",
                            &format!("the proxy that HTTPS_PROXY names refused it ({code})"),
                            now_ms,
                        ),
                        Reply::Partial | Reply::Bad => farewell(
                            "502 Bad Gateway",
                            "the proxy that HTTPS_PROXY names does not answer as one",
                            now_ms,
                        ),
                    }
                }
                Stage::Relaying { upstream, up, down } => {
                    let sent = up.run(&self.client, upstream, scratch);
                    let came = down.run(upstream, &self.client, scratch);
                    let (Ok(sent), Ok(came)) = (sent, came) else { return Then::Closes };
                    if sent || came {
                        self.moved_ms = now_ms;
                    }
                    let over = up.is_over() && down.shut;
                    let stuck = (up.ended || down.ended)
                        && now_ms >= self.moved_ms.saturating_add(HALF_CLOSED_MS);
                    return if over || stuck { Then::Closes } else { Then::Stays };
                }
                Stage::Farewell { words, until_ms } => {
                    let told = words.flush(&self.client).is_ok();
                    // Reading what it still sends keeps our words from being thrown away with it.
                    let gone = words.shut && drained(&self.client, scratch);
                    return if !told || gone || now_ms >= *until_ms {
                        Then::Closes
                    } else {
                        Then::Stays
                    };
                }
                Stage::Over => return Then::Closes,
            };
            self.moved_ms = now_ms;
            self.stage = next;
        }
    }
}

fn take_ask(ask: &mut Ask) -> Ask {
    let Ask { port, tunnel, more, .. } = *ask;
    let (host, first) = (std::mem::take(&mut ask.host), std::mem::take(&mut ask.first));
    Ask { host, port, first, tunnel, through: ask.through.take(), more }
}

/// What came of reading a head.
enum Step {
    Next(Ask),
    Wait,
    Bad(&'static str, &'static str),
    Gone,
}

fn read_head(client: &OwnedFd, received: &mut Vec<u8>, scratch: &mut [u8]) -> Step {
    loop {
        let room = http::MAX_HEAD.saturating_sub(received.len()).min(scratch.len());
        if room == 0 {
            return Step::Bad(
                "431 Request Header Fields Too Large",
                "the request's head is too long",
            );
        }
        match rustix::net::recv(client, &mut scratch[..room], RecvFlags::empty()) {
            Ok((0, _)) => return Step::Gone,
            Ok((read, _)) => {
                received.extend_from_slice(&scratch[..read.min(room)]);
                match http::read(received) {
                    Head::Whole(ask) => return Step::Next(ask),
                    Head::Partial => {}
                    Head::Bad(why) => return Step::Bad("400 Bad Request", why),
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Step::Wait,
            Err(_) => return Step::Gone,
        }
    }
}

/// Judges what was asked for, before anything is looked up: a question to a name server leaves the
/// machine, too.
fn begin(ask: Ask, rules: &Rules, now_ms: u64, tell: &mut dyn FnMut(Refusal)) -> Stage {
    match rules.allow.judge(&ask.host, ask.port) {
        Verdict::Refused => refuse(&ask, false, now_ms, tell),
        Verdict::Allowed { private } => match rules.upstream.server_for(&ask) {
            // An address says itself whether it is private. A name is looked up by that proxy, not here.
            Some(_) if !private && ask.host.parse().is_ok_and(|ip| !hosts::is_public(ip)) => {
                refuse(&ask, true, now_ms, tell)
            }
            // It takes requests for any host, so that it must be known where this one ends.
            Some(_) if !ask.tunnel && ask.more.is_none() => {
                farewell("411 Length Required", "the request has to say how long it is", now_ms)
            }
            // The user has named it: it may be anywhere.
            Some(server) => look_up(server.ask(ask), true, &rules.resolver, now_ms, tell),
            None => look_up(ask, private, &rules.resolver, now_ms, tell),
        },
    }
}

fn look_up(
    ask: Ask,
    private: bool,
    resolver: &Resolver,
    now_ms: u64,
    tell: &mut dyn FnMut(Refusal),
) -> Stage {
    match resolver.begin(&ask.host, now_ms) {
        Resolved::Known(found) => connect(ask, private, found, now_ms, tell),
        Resolved::Asking(resolving) => Stage::Resolving { ask, private, resolving },
    }
}

fn refuse(ask: &Ask, private: bool, now_ms: u64, tell: &mut dyn FnMut(Refusal)) -> Stage {
    let refusal = Refusal { host: ask.host.clone(), port: ask.port, private };
    let text = format!(
        "ralph's sandbox refused {}:{}, because {}.\nTo allow it, the user of ralph has to add {:?} to \
         sandbox.allowedDomains in .ralph/settings.json.",
        refusal.named(),
        refusal.port,
        refusal.why(),
        refusal.entry()
    );
    tell(refusal);
    farewell("403 Forbidden", &text, now_ms)
}

/// Connects to one of the addresses that were found, if any of them may be used.
fn connect(
    ask: Ask,
    private: bool,
    found: Vec<IpAddr>,
    now_ms: u64,
    tell: &mut dyn FnMut(Refusal),
) -> Stage {
    if found.is_empty() {
        let why = format!("there is no address for {}", ask.host);
        return farewell("502 Bad Gateway", &why, now_ms);
    }
    let usable = found.into_iter().filter(|address| private || hosts::is_public(*address));
    let addresses: VecDeque<_> = usable.map(|ip| SocketAddr::new(ip, ask.port)).collect();
    if addresses.is_empty() {
        return refuse(&ask, true, now_ms, tell);
    }
    let to_client = if ask.tunnel { http::TUNNEL_OPEN.to_vec() } else { Vec::new() };
    let opening = Opening {
        to_host: ask.first,
        to_client,
        through: ask.through,
        more: ask.more,
        mute: false,
    };
    connect_next(addresses, opening, now_ms)
        .unwrap_or_else(|_| farewell("502 Bad Gateway", NO_ANSWER, now_ms))
}

/// Begins to connect to the first address that does not refuse at once.
fn connect_next(
    mut rest: VecDeque<SocketAddr>,
    opening: Opening,
    now_ms: u64,
) -> Result<Stage, Opening> {
    while let Some(address) = rest.pop_front() {
        if let Ok(upstream) = connecting(address) {
            let until_ms = now_ms + CONNECT_MS;
            return Ok(Stage::Connecting { upstream, until_ms, rest, opening });
        }
    }
    Err(opening)
}

fn connecting(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(err) => Err(err.into()),
    }
}

/// Whether a connection has come about; `None` while that is open.
fn connected(socket: &OwnedFd) -> Option<io::Result<()>> {
    match rustix::net::sockopt::socket_error(socket) {
        Ok(Ok(())) => {}
        Ok(Err(err)) | Err(err) => return Some(Err(err.into())),
    }
    match rustix::net::getpeername(socket) {
        Ok(Some(_)) => Some(Ok(())),
        Ok(None) | Err(Errno::NOTCONN) => None,
        Err(err) => Some(Err(err.into())),
    }
}

/// Goes on with a connection that has come about.
fn open(upstream: OwnedFd, mut opening: Opening, now_ms: u64) -> Stage {
    let Some(request) = opening.through.take() else { return relay(upstream, opening) };
    // A fresh connection takes a few hundred bytes at once.
    match write(&upstream, &request) {
        Ok(sent) if sent == request.len() => {
            let until_ms = now_ms + THROUGH_MS;
            Stage::Through { upstream, received: Vec::new(), until_ms, opening }
        }
        _ => farewell("502 Bad Gateway", NO_ANSWER, now_ms),
    }
}

/// Reads what another proxy answers.
fn read_reply(upstream: &OwnedFd, received: &mut Vec<u8>, scratch: &mut [u8]) -> Reply {
    loop {
        match rustix::net::recv(upstream, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Reply::Bad,
            Ok((read, _)) => {
                received.extend_from_slice(&scratch[..read.min(scratch.len())]);
                match http::reply(received) {
                    Reply::Partial => {}
                    answer => return answer,
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Reply::Partial,
            Err(_) => return Reply::Bad,
        }
    }
}

fn relay(upstream: OwnedFd, opening: Opening) -> Stage {
    let up = Flow { pending: opening.to_host, left: opening.more, ..Flow::default() };
    let down = Flow { pending: opening.to_client, ..Flow::default() };
    Stage::Relaying { upstream, up, down }
}

fn farewell(status: &str, text: &str, now_ms: u64) -> Stage {
    let words = Flow { pending: http::answer(status, text), ended: true, ..Flow::default() };
    Stage::Farewell { words, until_ms: now_ms + FAREWELL_MS }
}

/// Reads what is there and forgets it. Whether the other side has gone.
fn drained(from: &OwnedFd, scratch: &mut [u8]) -> bool {
    for _ in 0..TURN_READS {
        match rustix::net::recv(from, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}

impl Flow {
    fn wants_more(&self) -> bool {
        self.pending.is_empty() && !self.ended && self.left != Some(0)
    }

    /// Nothing will come of it any more.
    fn is_over(&self) -> bool {
        self.shut || self.left == Some(0) && self.pending.is_empty()
    }

    /// Moves what can be moved now, within a turn. Whether anything was.
    fn run(&mut self, from: &OwnedFd, to: &OwnedFd, scratch: &mut [u8]) -> io::Result<bool> {
        let mut moved = self.flush(to)?;
        for _ in 0..TURN_READS {
            if !self.wants_more() {
                break;
            }
            let room =
                self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
            let room = room.min(scratch.len());
            match rustix::net::recv(from, &mut scratch[..room], RecvFlags::empty()) {
                Ok((0, _)) => self.ended = true,
                Ok((read, _)) => {
                    let bytes = &scratch[..read.min(room)];
                    self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
                    let sent = write(to, bytes)?;
                    self.pending = bytes[sent..].to_vec();
                    self.written = 0;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(err) => return Err(err.into()),
            }
            moved = true;
        }
        Ok(self.flush(to)? || moved)
    }

    /// Writes what is pending, and passes on the end after it.
    fn flush(&mut self, to: &OwnedFd) -> io::Result<bool> {
        let mut moved = false;
        if !self.pending.is_empty() {
            let sent = write(to, &self.pending[self.written..])?;
            self.written += sent;
            moved = sent > 0;
            if self.written >= self.pending.len() {
                (self.pending, self.written) = (Vec::new(), 0);
            }
        }
        if self.ended && self.pending.is_empty() && !self.shut {
            let _ = rustix::net::shutdown(to, Shutdown::Write);
            self.shut = true;
            moved = true;
        }
        Ok(moved)
    }
}

/// Writes as much as is taken at once.
fn write(to: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(to, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(more) => sent += more,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(err) => return Err(err.into()),
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests;
