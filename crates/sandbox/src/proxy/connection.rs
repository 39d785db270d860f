//! One client of the proxy.

mod flow;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketType};

use self::flow::{Flow, drain_client, write};
use super::http::{self, ProxyRequest, RequestHead, UpstreamReply};
use super::resolve::{PendingLookup, Resolution, Resolver};
use super::{ListenerSetId, ProxyRules, Refusal};
use crate::hosts::{self, HostDecision};
use crate::platform;

/// For the whole request: single bytes do not extend it.
const REQUEST_TIMEOUT_MS: u64 = 15_000;
/// For each address.
const CONNECT_TIMEOUT_MS: u64 = 10_000;
const UPSTREAM_TIMEOUT_MS: u64 = 60_000;
const CLOSE_TIMEOUT_MS: u64 = 5_000;
/// Without traffic, once one side has closed.
const HALF_CLOSED_TIMEOUT_MS: u64 = 600_000;

const HOST_UNREACHABLE: &str = "the host does not answer";

pub(super) struct Connection {
    pub(super) listener_set: ListenerSetId,
    pub(super) last_activity_ms: u64,
    client: OwnedFd,
    stage: ConnectionState,
}

enum ConnectionState {
    Head {
        received: Vec<u8>,
        until_ms: u64,
    },
    Resolving {
        request: ProxyRequest,
        private: bool,
        resolving: PendingLookup,
    },
    Connecting {
        upstream: OwnedFd,
        until_ms: u64,
        rest: VecDeque<SocketAddr>,
        handshake: Handshake,
    },
    /// Another proxy was asked for a tunnel.
    UpstreamHandshake {
        upstream: OwnedFd,
        received: Vec<u8>,
        until_ms: u64,
        handshake: Handshake,
    },
    Relaying {
        upstream: OwnedFd,
        up: Flow,
        down: Flow,
    },
    Closing {
        reply: Flow,
        until_ms: u64,
    },
    Closed,
}

#[derive(Default)]
struct Handshake {
    to_host: Vec<u8>,
    to_client: Vec<u8>,
    /// Sent to another proxy first.
    upstream_request: Option<Vec<u8>>,
    more: Option<u64>,
    /// The client does not speak HTTP.
    no_error_reply: bool,
}

pub(super) enum NextStep {
    Keep,
    Close,
}

impl Connection {
    pub(super) fn new(of: ListenerSetId, client: OwnedFd, now_ms: u64) -> Connection {
        let stage =
            ConnectionState::Head { received: Vec::new(), until_ms: now_ms + REQUEST_TIMEOUT_MS };
        Connection { listener_set: of, last_activity_ms: now_ms, client, stage }
    }

    /// Forwards a client to a local port. `None` if nothing listens.
    pub(super) fn forward_to_local_port(
        of: ListenerSetId,
        client: OwnedFd,
        port: u16,
        now_ms: u64,
    ) -> Option<Connection> {
        let rest: VecDeque<SocketAddr> = [
            SocketAddr::from(([127, 0, 0, 1], port)),
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
        ]
        .into();
        let handshake = Handshake { no_error_reply: true, ..Handshake::default() };
        let stage = connect_next(rest, handshake, now_ms).ok()?;
        Some(Connection { listener_set: of, last_activity_ms: now_ms, client, stage })
    }

    pub(super) fn poll_interest<'c>(&'c self, mut add: impl FnMut(BorrowedFd<'c>, PollFlags)) {
        let client = self.client.as_fd();
        match &self.stage {
            ConnectionState::Head { .. } => add(client, PollFlags::IN),
            ConnectionState::Resolving { resolving, .. } => {
                if let Some(socket) = resolving.socket() {
                    add(socket, PollFlags::IN);
                }
            }
            ConnectionState::Connecting { upstream, .. } => add(upstream.as_fd(), PollFlags::OUT),
            ConnectionState::UpstreamHandshake { upstream, .. } => {
                add(upstream.as_fd(), PollFlags::IN)
            }
            ConnectionState::Relaying { upstream, up, down } => {
                // Idle descriptors are not polled: their hangup would wake us endlessly.
                for (fd, reads, writes) in [(client, up, down), (upstream.as_fd(), down, up)] {
                    let mut flags = PollFlags::empty();
                    flags.set(PollFlags::IN, reads.wants_more());
                    flags.set(PollFlags::OUT, !writes.pending.is_empty());
                    if !flags.is_empty() {
                        add(fd, flags);
                    }
                }
            }
            ConnectionState::Closing { reply, .. } => {
                let is_sent = reply.pending.is_empty();
                add(client, if is_sent { PollFlags::IN } else { PollFlags::OUT });
            }
            ConnectionState::Closed => {}
        }
    }

    pub(super) fn deadline_ms(&self) -> Option<u64> {
        match &self.stage {
            ConnectionState::Head { until_ms, .. }
            | ConnectionState::Connecting { until_ms, .. }
            | ConnectionState::UpstreamHandshake { until_ms, .. }
            | ConnectionState::Closing { until_ms, .. } => Some(*until_ms),
            ConnectionState::Resolving { resolving, .. } => Some(resolving.deadline_ms()),
            ConnectionState::Relaying { up, down, .. } => {
                (up.ended || down.ended).then(|| self.last_activity_ms + HALF_CLOSED_TIMEOUT_MS)
            }
            ConnectionState::Closed => Some(0),
        }
    }

    /// Advances as far as possible without blocking.
    pub(super) fn advance(
        &mut self,
        now_ms: u64,
        rules: &ProxyRules,
        scratch: &mut [u8],
        on_refusal: &mut dyn FnMut(Refusal),
    ) -> NextStep {
        loop {
            let next = match &mut self.stage {
                ConnectionState::Head { received, until_ms } => {
                    match read_head(&self.client, received, scratch) {
                        HeadRead::Next(request) => {
                            check_request(request, rules, now_ms, on_refusal)
                        }
                        HeadRead::Wait if now_ms < *until_ms => return NextStep::Keep,
                        HeadRead::Wait => close_gracefully(
                            "408 Request Timeout",
                            "the request was not sent in time",
                            now_ms,
                        ),
                        HeadRead::Bad(status, why) => close_gracefully(status, why, now_ms),
                        HeadRead::Closed => return NextStep::Close,
                    }
                }
                ConnectionState::Resolving { request, private, resolving } => {
                    let Some(found) = resolving.advance(now_ms) else { return NextStep::Keep };
                    let (request, private) = (std::mem::take(request), *private);
                    connect(request, private, found, now_ms, on_refusal)
                }
                ConnectionState::Connecting { upstream, until_ms, .. } => {
                    let outcome = connected(upstream);
                    if outcome.is_none() && now_ms < *until_ms {
                        return NextStep::Keep;
                    }
                    let stage = std::mem::replace(&mut self.stage, ConnectionState::Closed);
                    let ConnectionState::Connecting { upstream, rest, handshake, .. } = stage
                    else {
                        return NextStep::Close;
                    };
                    match outcome {
                        Some(Ok(())) => open(upstream, handshake, now_ms),
                        _ => match connect_next(rest, handshake, now_ms) {
                            Ok(stage) => stage,
                            Err(handshake) if handshake.no_error_reply => return NextStep::Close,
                            Err(_) => close_gracefully("502 Bad Gateway", HOST_UNREACHABLE, now_ms),
                        },
                    }
                }
                ConnectionState::UpstreamHandshake { upstream, received, until_ms, .. } => {
                    let answer = match read_reply(upstream, received, scratch) {
                        UpstreamReply::Partial if now_ms < *until_ms => return NextStep::Keep,
                        answer => answer,
                    };
                    let stage = std::mem::replace(&mut self.stage, ConnectionState::Closed);
                    let ConnectionState::UpstreamHandshake {
                        upstream,
                        received,
                        mut handshake,
                        ..
                    } = stage
                    else {
                        return NextStep::Close;
                    };
                    match answer {
                        UpstreamReply::Open(length) => {
                            handshake.to_client.extend(received.get(length..).unwrap_or_default());
                            relay(upstream, handshake)
                        }
                        UpstreamReply::Refused(code) => close_gracefully(
                            "502 Bad Gateway",
                            &format!("the proxy in HTTPS_PROXY refused it ({code})"),
                            now_ms,
                        ),
                        UpstreamReply::Partial | UpstreamReply::Bad => close_gracefully(
                            "502 Bad Gateway",
                            "HTTPS_PROXY does not point to a proxy",
                            now_ms,
                        ),
                    }
                }
                ConnectionState::Relaying { upstream, up, down } => {
                    let sent = up.run(&self.client, upstream, scratch);
                    let received = down.run(upstream, &self.client, scratch);
                    let (Ok(sent), Ok(received)) = (sent, received) else { return NextStep::Close };
                    if sent || received {
                        self.last_activity_ms = now_ms;
                    }
                    let over = up.is_closed() && down.shut;
                    let stuck = (up.ended || down.ended)
                        && now_ms >= self.last_activity_ms.saturating_add(HALF_CLOSED_TIMEOUT_MS);
                    return if over || stuck { NextStep::Close } else { NextStep::Keep };
                }
                ConnectionState::Closing { reply, until_ms } => {
                    let flushed = reply.flush(&self.client).is_ok();
                    // Unread input would make the kernel discard our reply.
                    let gone = reply.shut && drain_client(&self.client, scratch);
                    return if !flushed || gone || now_ms >= *until_ms {
                        NextStep::Close
                    } else {
                        NextStep::Keep
                    };
                }
                ConnectionState::Closed => return NextStep::Close,
            };
            self.last_activity_ms = now_ms;
            self.stage = next;
        }
    }
}

enum HeadRead {
    Next(ProxyRequest),
    Wait,
    Bad(&'static str, &'static str),
    Closed,
}

fn read_head(client: &OwnedFd, received: &mut Vec<u8>, scratch: &mut [u8]) -> HeadRead {
    loop {
        let room = http::MAX_HEAD.saturating_sub(received.len()).min(scratch.len());
        if room == 0 {
            return HeadRead::Bad(
                "431 Request Header Fields Too Large",
                "the request's headers are too long",
            );
        }
        match rustix::net::recv(client, &mut scratch[..room], RecvFlags::empty()) {
            Ok((0, _)) => return HeadRead::Closed,
            Ok((read, _)) => {
                received.extend_from_slice(&scratch[..read.min(room)]);
                match http::parse_request(received) {
                    RequestHead::Complete(request) => return HeadRead::Next(request),
                    RequestHead::Partial => {}
                    RequestHead::Bad(why) => return HeadRead::Bad("400 Bad Request", why),
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return HeadRead::Wait,
            Err(_) => return HeadRead::Closed,
        }
    }
}

/// Checks a request before any lookup: a DNS query leaves the machine, too.
fn check_request(
    request: ProxyRequest,
    rules: &ProxyRules,
    now_ms: u64,
    on_refusal: &mut dyn FnMut(Refusal),
) -> ConnectionState {
    match rules.allow.check(&request.host, request.port) {
        HostDecision::Refused => refuse(&request, false, now_ms, on_refusal),
        HostDecision::Allowed { private } => match rules.upstream.server_for(&request) {
            // Only an address can be checked here: that proxy resolves names.
            Some(_) if !private && request.host.parse().is_ok_and(|ip| !hosts::is_public(ip)) => {
                refuse(&request, true, now_ms, on_refusal)
            }
            // It serves any host, so the end of this request must be known.
            Some(_) if !request.tunnel && request.more.is_none() => {
                close_gracefully("411 Length Required", "the request has no length", now_ms)
            }
            // The user named it: it may be private.
            Some(server) => start_lookup(
                server.connect_request(request),
                true,
                &rules.resolver,
                now_ms,
                on_refusal,
            ),
            None => start_lookup(request, private, &rules.resolver, now_ms, on_refusal),
        },
    }
}

fn start_lookup(
    request: ProxyRequest,
    private: bool,
    resolver: &Resolver,
    now_ms: u64,
    on_refusal: &mut dyn FnMut(Refusal),
) -> ConnectionState {
    match resolver.start(&request.host, now_ms) {
        Resolution::Known(found) => connect(request, private, found, now_ms, on_refusal),
        Resolution::Asking(resolving) => ConnectionState::Resolving { request, private, resolving },
    }
}

fn refuse(
    request: &ProxyRequest,
    private: bool,
    now_ms: u64,
    on_refusal: &mut dyn FnMut(Refusal),
) -> ConnectionState {
    let refusal = Refusal { host: request.host.clone(), port: request.port, private };
    let text = format!(
        "ralph's sandbox refused {}:{}: {}.\nTo allow it, a user can add {:?} to \
         sandbox.allowedDomains in .ralph/settings.json.",
        refusal.describe_target(),
        refusal.port,
        refusal.reason(),
        refusal.allow_entry()
    );
    on_refusal(refusal);
    close_gracefully("403 Forbidden", &text, now_ms)
}

fn connect(
    request: ProxyRequest,
    private: bool,
    found: Vec<IpAddr>,
    now_ms: u64,
    on_refusal: &mut dyn FnMut(Refusal),
) -> ConnectionState {
    if found.is_empty() {
        let why = format!("no address found for {}", request.host);
        return close_gracefully("502 Bad Gateway", &why, now_ms);
    }
    let usable = found.into_iter().filter(|address| private || hosts::is_public(*address));
    let addresses: VecDeque<_> = usable.map(|ip| SocketAddr::new(ip, request.port)).collect();
    if addresses.is_empty() {
        return refuse(&request, true, now_ms, on_refusal);
    }
    let to_client = if request.tunnel { http::TUNNEL_OPEN.to_vec() } else { Vec::new() };
    let handshake = Handshake {
        to_host: request.first,
        to_client,
        upstream_request: request.through,
        more: request.more,
        no_error_reply: false,
    };
    connect_next(addresses, handshake, now_ms)
        .unwrap_or_else(|_| close_gracefully("502 Bad Gateway", HOST_UNREACHABLE, now_ms))
}

fn connect_next(
    mut rest: VecDeque<SocketAddr>,
    handshake: Handshake,
    now_ms: u64,
) -> Result<ConnectionState, Handshake> {
    while let Some(address) = rest.pop_front() {
        if let Ok(upstream) = connecting(address) {
            let until_ms = now_ms + CONNECT_TIMEOUT_MS;
            return Ok(ConnectionState::Connecting { upstream, until_ms, rest, handshake });
        }
    }
    Err(handshake)
}

fn connecting(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = platform::new_socket(family, SocketType::STREAM)?;
    let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(err) => Err(err.into()),
    }
}

/// `None` while undecided.
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

fn open(upstream: OwnedFd, mut handshake: Handshake, now_ms: u64) -> ConnectionState {
    let Some(request) = handshake.upstream_request.take() else {
        return relay(upstream, handshake);
    };
    // A new connection takes a few hundred bytes at once.
    match write(&upstream, &request) {
        Ok(sent) if sent == request.len() => {
            let until_ms = now_ms + UPSTREAM_TIMEOUT_MS;
            ConnectionState::UpstreamHandshake {
                upstream,
                received: Vec::new(),
                until_ms,
                handshake,
            }
        }
        _ => close_gracefully("502 Bad Gateway", HOST_UNREACHABLE, now_ms),
    }
}

fn read_reply(upstream: &OwnedFd, received: &mut Vec<u8>, scratch: &mut [u8]) -> UpstreamReply {
    loop {
        match rustix::net::recv(upstream, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return UpstreamReply::Bad,
            Ok((read, _)) => {
                received.extend_from_slice(&scratch[..read.min(scratch.len())]);
                match http::parse_upstream_reply(received) {
                    UpstreamReply::Partial => {}
                    answer => return answer,
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return UpstreamReply::Partial,
            Err(_) => return UpstreamReply::Bad,
        }
    }
}

fn relay(upstream: OwnedFd, handshake: Handshake) -> ConnectionState {
    let up = Flow { pending: handshake.to_host, bytes_left: handshake.more, ..Flow::default() };
    let down = Flow { pending: handshake.to_client, ..Flow::default() };
    ConnectionState::Relaying { upstream, up, down }
}

fn close_gracefully(status: &str, text: &str, now_ms: u64) -> ConnectionState {
    let reply =
        Flow { pending: http::error_response(status, text), ended: true, ..Flow::default() };
    ConnectionState::Closing { reply, until_ms: now_ms + CLOSE_TIMEOUT_MS }
}

#[cfg(test)]
mod tests;
