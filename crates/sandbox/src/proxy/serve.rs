//! The proxy's thread: one `poll` over everything.

use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage};

use super::connection::{Connection, NextStep};
use super::{ListenerSetId, ProxyCommand, ProxyRules, Refusal};
use crate::platform;

/// A new connection then replaces the one idle for longest: a client that leaks connections harms
/// only itself.
const MAX_CONNECTIONS: usize = 512;
/// Also the most that one direction buffers.
const SCRATCH_BYTES: usize = 32 * 1024;
/// Per sandbox.
pub(crate) const MAX_LISTENERS: usize = 32;

pub(super) struct ProxyServer {
    rules: ProxyRules,
    commands: Receiver<ProxyCommand>,
    wake: PipeReader,
    refusals: SyncSender<Refusal>,
    wake_writer: PipeWriter,
    sources: Vec<ListenerSource>,
    connections: Vec<Connection>,
}

enum ListenerSource {
    /// Listeners will arrive here.
    Pending { id: ListenerSetId, from: OwnedFd, ports: Arc<[u16]> },
    /// `port`: the local port to forward to.
    Listening { id: ListenerSetId, listener: OwnedFd, port: Option<u16> },
}

impl ListenerSource {
    fn id(&self) -> ListenerSetId {
        match self {
            ListenerSource::Pending { id, .. } | ListenerSource::Listening { id, .. } => *id,
        }
    }

    fn fd(&self) -> &OwnedFd {
        match self {
            ListenerSource::Pending { from: fd, .. }
            | ListenerSource::Listening { listener: fd, .. } => fd,
        }
    }
}

impl ProxyServer {
    pub(super) fn new(
        rules: ProxyRules,
        orders: Receiver<ProxyCommand>,
        wake: PipeReader,
        news: SyncSender<Refusal>,
        bell: PipeWriter,
    ) -> io::Result<ProxyServer> {
        for fd in [wake.as_fd(), bell.as_fd()] {
            set_nonblocking(fd)?;
        }
        let (sources, connections) = (Vec::new(), Vec::new());
        Ok(ProxyServer {
            rules,
            commands: orders,
            wake,
            refusals: news,
            wake_writer: bell,
            sources,
            connections,
        })
    }

    pub(super) fn run(mut self) {
        let mut scratch = vec![0; SCRATCH_BYTES];
        loop {
            let ready = self.wait();
            if ready.woken && !self.handle_commands() {
                return;
            }
            let now_ms = now_ms();
            let ProxyServer { rules, refusals, wake_writer, connections, .. } = &mut self;
            let mut on_refusal = |refusal| {
                // A full queue already holds hundreds.
                if refusals.try_send(refusal).is_ok() {
                    let _ = rustix::io::write(&*wake_writer, &[1]);
                }
            };
            let mut nth = 0;
            connections.retain_mut(|connection| {
                let due = connection.deadline_ms().is_some_and(|until| now_ms >= until);
                let moves = due || ready.connections.get(nth).copied().unwrap_or(false);
                nth += 1;
                !moves
                    || matches!(
                        connection.advance(now_ms, rules, &mut scratch, &mut on_refusal),
                        NextStep::Keep
                    )
            });
            self.accept(&ready.sources, now_ms, &mut scratch);
        }
    }

    fn wait(&self) -> ReadySet {
        let mut polled = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        for source in &self.sources {
            polled.push(PollFd::from_borrowed_fd(source.fd().as_fd(), PollFlags::IN));
        }
        let mut owners = Vec::with_capacity(2 * self.connections.len());
        for (nth, connection) in self.connections.iter().enumerate() {
            connection.poll_interest(|fd, flags| {
                polled.push(PollFd::from_borrowed_fd(fd, flags));
                owners.push(nth);
            });
        }
        let until = self.connections.iter().filter_map(Connection::deadline_ms).min();
        let timeout = until.map(|until| {
            let remaining = until.saturating_sub(now_ms());
            Timespec {
                tv_sec: i64::try_from(remaining / 1000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(remaining % 1000 * 1_000_000).unwrap_or(0),
            }
        });
        let result = rustix::event::poll(&mut polled, timeout.as_ref());
        let is_ready = |fd: &PollFd<'_>| result.is_ok() && !fd.revents().is_empty();
        let (head, tail) = polled.split_at(1 + self.sources.len());
        let mut connections = vec![false; self.connections.len()];
        for (fd, owner) in tail.iter().zip(owners) {
            connections[owner] |= is_ready(fd);
        }
        ReadySet {
            woken: head.first().is_some_and(is_ready),
            sources: head.iter().skip(1).map(is_ready).collect(),
            connections,
        }
    }

    /// Returns `false` to stop.
    fn handle_commands(&mut self) -> bool {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.wake, &mut bytes).is_ok_and(|read| read > 0) {}
        loop {
            match self.commands.try_recv() {
                Ok(ProxyCommand::Expect { id, from, ports }) => {
                    if set_nonblocking(from.as_fd()).is_ok() {
                        self.sources.push(ListenerSource::Pending { id, from, ports });
                    }
                }
                Ok(ProxyCommand::Serve { id, listener }) => self.listen(id, listener, None),
                Ok(ProxyCommand::Release(released)) => {
                    self.sources.retain(|source| source.id() != released);
                    self.connections.retain(|connection| connection.listener_set != released);
                }
                Ok(ProxyCommand::Stop) | Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    return false;
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
            }
        }
    }

    fn listen(&mut self, id: ListenerSetId, listener: OwnedFd, port: Option<u16>) {
        // A blocking listener would stop all clients.
        if set_nonblocking(listener.as_fd()).is_ok() {
            self.sources.push(ListenerSource::Listening { id, listener, port });
        }
    }

    /// Accepts listeners and clients.
    fn accept(&mut self, ready: &[bool], now_ms: u64, scratch: &mut [u8]) {
        let mut arrived = Vec::new();
        let mut done = Vec::new();
        let mut clients = Vec::new();
        for (nth, source) in self.sources.iter().enumerate() {
            if !ready.get(nth).copied().unwrap_or(false) {
                continue;
            }
            match source {
                ListenerSource::Pending { id, from, ports } => match receive(from, scratch) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    // The sandbox failed to start.
                    Err(_) => done.push(*id),
                    Ok(listeners) => {
                        done.push(*id);
                        let ports = std::iter::once(None).chain(ports.iter().copied().map(Some));
                        arrived.extend(listeners.into_iter().zip(ports).map(|(l, p)| (*id, l, p)));
                    }
                },
                ListenerSource::Listening { id, listener, port } => {
                    for _ in 0..MAX_CONNECTIONS {
                        match platform::accept(listener) {
                            Ok(client) => clients.push((*id, client, *port)),
                            Err(Errno::INTR | Errno::CONNABORTED) => {}
                            Err(_) => break,
                        }
                    }
                }
            }
        }
        self.sources.retain(|source| {
            !(matches!(source, ListenerSource::Pending { .. }) && done.contains(&source.id()))
        });
        for (id, listener, port) in arrived {
            self.listen(id, listener, port);
        }
        for (id, client, port) in clients {
            self.add_connection(id, client, port, now_ms);
        }
    }

    fn add_connection(
        &mut self,
        id: ListenerSetId,
        client: OwnedFd,
        port: Option<u16>,
        now_ms: u64,
    ) {
        if self.connections.len() >= MAX_CONNECTIONS {
            let idle = self.connections.iter().enumerate().min_by_key(|(_, c)| c.last_activity_ms);
            if let Some((nth, _)) = idle {
                self.connections.swap_remove(nth);
            }
        }
        let _ = rustix::net::sockopt::set_tcp_nodelay(&client, true);
        let connection = match port {
            None => Some(Connection::new(id, client, now_ms)),
            Some(port) => Connection::forward_to_local_port(id, client, port, now_ms),
        };
        self.connections.extend(connection);
    }
}

struct ReadySet {
    woken: bool,
    sources: Vec<bool>,
    connections: Vec<bool>,
}

fn receive(from: &OwnedFd, scratch: &mut [u8]) -> Result<Vec<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(
        from,
        &mut [io::IoSliceMut::new(scratch)],
        &mut control,
        platform::RECEIVE_FLAGS,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if message.bytes == 0 && descriptors.is_empty() {
        return Err(Errno::PIPE);
    }
    Ok(descriptors)
}

fn set_nonblocking(fd: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let ms = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}
