//! Nonblocking name resolution.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};

use super::dns::{self, Lookup};
use crate::platform;

const LOOKUP_TIMEOUT_MS: u64 = 2_000;
/// The wait for the second address family after the first.
const SECOND_FAMILY_WAIT_MS: u64 = 300;
/// Queries per server.
const ROUNDS: usize = 2;

#[derive(Debug, Clone)]
pub struct Resolver {
    pub hosts: PathBuf,
    pub resolv_conf: PathBuf,
    /// Replaces the servers of `resolv_conf`.
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

#[derive(Debug)]
pub(super) struct PendingLookup {
    lookup: Lookup,
    servers: Vec<SocketAddr>,
    queried_servers: usize,
    socket: Option<OwnedFd>,
    deadline_ms: u64,
}

#[derive(Debug)]
pub(super) enum Resolution {
    Known(Vec<IpAddr>),
    Asking(PendingLookup),
}

impl Resolver {
    /// Starts a lookup. The files are read each time: they change with a laptop's network.
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

    /// Handles replies and queries further. Returns the addresses when done, possibly none.
    pub(super) fn advance(&mut self, now_ms: u64) -> Option<Vec<IpAddr>> {
        let mut reply = [0; 2 * dns::MAX_REPLY];
        let mut refused = false;
        while let Some(socket) = &self.socket {
            match rustix::net::recv(socket, &mut reply[..], RecvFlags::empty()) {
                Ok((read, _)) => self.lookup.handle_reply(&reply[..read.min(reply.len())]),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                // The port is closed.
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
            self.deadline_ms = self.deadline_ms.min(now_ms + SECOND_FAMILY_WAIT_MS);
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

    /// Queries the next server from a new socket, whose port is unpredictable.
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
    let socket = platform::new_socket(family, SocketType::DGRAM)?;
    rustix::net::connect(&socket, &server)?;
    for question in questions {
        rustix::net::send(&socket, question, SendFlags::empty())?;
    }
    Ok(socket)
}

fn random_ids() -> [u16; 2] {
    // Its keys are random.
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    let ids = [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])];
    if ids[0] == ids[1] { [ids[0], ids[1].wrapping_add(1)] } else { ids }
}
