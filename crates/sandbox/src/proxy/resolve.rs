//! Looking a name up without waiting for it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::dns::{self, Lookup};

/// How long a name server may take before another is asked.
const LOOKUP_TIMEOUT_MS: u64 = 2_000;
/// How long the second kind of addresses is waited for once the first is there.
const RETRY_AFTER_MS: u64 = 300;
/// How often each server is asked.
const ROUNDS: usize = 2;

/// Where names are looked up.
#[derive(Debug, Clone)]
pub struct Resolver {
    pub hosts: PathBuf,
    pub resolv_conf: PathBuf,
    /// Ask these instead of those of `resolv_conf`.
    pub servers: Vec<SocketAddr>,
}

impl Default for Resolver {
    fn default() -> Self {
        Resolver {
            hosts: "/etc/hosts".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            servers: Vec::new(),
        }
    }
}

/// A name that is being looked up.
#[derive(Debug)]
pub(super) struct PendingLookup {
    lookup: Lookup,
    servers: Vec<SocketAddr>,
    queried_servers: usize,
    socket: Option<OwnedFd>,
    deadline_ms: u64,
}

/// What is known of a name.
#[derive(Debug)]
pub(super) enum Resolution {
    Known(Vec<IpAddr>),
    Asking(PendingLookup),
}

impl Resolver {
    /// Looks `host` up, as far as that is possible at once. The files are read each time: they are
    /// small, and a laptop that changes its network changes them.
    pub(super) fn start(&self, host: &str, now_ms: u64) -> Resolution {
        if let Ok(address) = host.parse() {
            return Resolution::Known(vec![address]);
        }
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let known = dns::lookup_hosts_file(&read(&self.hosts), host);
        if !known.is_empty() {
            return Resolution::Known(known);
        }
        let servers = if self.servers.is_empty() {
            dns::name_servers(&read(&self.resolv_conf))
        } else {
            self.servers.clone()
        };
        let lookup = Lookup::new(host, random_ids());
        let mut resolving =
            PendingLookup { lookup, servers, queried_servers: 0, socket: None, deadline_ms: 0 };
        resolving.send_queries(now_ms);
        Resolution::Asking(resolving)
    }
}

impl PendingLookup {
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Takes what has arrived and asks further. The addresses, once there is nothing more to be done:
    /// none if nobody knows any.
    pub(super) fn advance(&mut self, now_ms: u64) -> Option<Vec<IpAddr>> {
        let mut reply = [0; 2 * dns::MAX_REPLY];
        let mut refused = false;
        while let Some(socket) = &self.socket {
            match rustix::net::recv(socket, &mut reply[..], RecvFlags::empty()) {
                Ok((read, _)) => self.lookup.handle_reply(&reply[..read.min(reply.len())]),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                // Nobody listens there.
                Err(_) => {
                    refused = true;
                    break;
                }
            }
        }
        if self.lookup.is_done() && !self.lookup.is_unanswered() {
            return Some(self.lookup.addresses());
        }
        if self.lookup.has_addresses() {
            if now_ms >= self.deadline_ms {
                return Some(self.lookup.addresses());
            }
            self.deadline_ms = self.deadline_ms.min(now_ms + RETRY_AFTER_MS);
            return None;
        }
        if refused || self.lookup.is_done() || now_ms >= self.deadline_ms {
            self.lookup.retry(random_ids());
            if !self.send_queries(now_ms) {
                return Some(Vec::new());
            }
        }
        None
    }

    /// Asks the next server. Each has a socket of its own, and with it a port that nobody can guess.
    fn send_queries(&mut self, now_ms: u64) -> bool {
        self.socket = None;
        while self.queried_servers < ROUNDS * self.servers.len() {
            let server = self.servers[self.queried_servers % self.servers.len()];
            self.queried_servers += 1;
            if let Ok(socket) = send(server, &self.lookup.questions()) {
                self.socket = Some(socket);
                self.deadline_ms = now_ms + LOOKUP_TIMEOUT_MS;
                return true;
            }
        }
        false
    }
}

fn send(server: SocketAddr, questions: &[Vec<u8>]) -> io::Result<OwnedFd> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    rustix::net::connect(&socket, &server)?;
    for question in questions {
        rustix::net::send(&socket, question, SendFlags::NOSIGNAL)?;
    }
    Ok(socket)
}

fn random_ids() -> [u16; 2] {
    let mut bytes = [0; 4];
    // The port is random as well; without entropy in these, a forger still has to guess that.
    let _ = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    let ids = [u16::from_ne_bytes([bytes[0], bytes[1]]), u16::from_ne_bytes([bytes[2], bytes[3]])];
    if ids[0] == ids[1] { [ids[0], ids[1].wrapping_add(1)] } else { ids }
}
