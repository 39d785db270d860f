//! The only way out of a sandbox: a proxy for HTTP that lets through what is allowed.
//!
//! It runs in this process, in a thread of its own: what an agent downloads must not hold up the loop,
//! and the loop's work must not hold up a download. One thread serves every connection, by `poll`, with
//! buffers that have a limit; it sleeps while nothing moves.
//!
//! It listens *inside* the sandbox, whose network has nothing else in it: a program of ours in there
//! makes the listeners and hands them out over a socket (`inside`). No path, no port of this machine is
//! involved, so that nobody else can use it.

mod connection;
mod dns;
mod http;
mod resolve;
mod serve;
mod upstream;

use std::io::{self, PipeReader, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

pub use resolve::Resolver;
pub(super) use serve::MAX_LISTENERS;
pub use upstream::UpstreamProxies;

use super::hosts::HostAllowList;

/// The port that the proxy has inside.
pub const PORT: u16 = 3128;

/// News that nobody has taken yet, at most.
const MAX_REFUSALS: usize = 256;

/// Something that was asked for and not given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub host: String,
    pub port: u16,
    /// It is allowed as a public host, but its address is one of this machine or its network.
    pub private: bool,
}

impl Refusal {
    /// The entry of `sandbox.allowedDomains` that would allow it.
    pub fn allow_entry(&self) -> String {
        let host = self.describe_target();
        let is_private = self.host.parse().is_ok_and(|address| !super::hosts::is_public(address));
        if self.private || is_private || ![443, 80].contains(&self.port) || self.host == "localhost"
        {
            format!("{host}:{}", self.port)
        } else {
            host
        }
    }

    /// The host as it stands before a port.
    pub fn describe_target(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    /// Why, in words.
    pub fn reason(&self) -> &'static str {
        if self.private {
            "it has an address of this machine or its network"
        } else {
            "it is not among the hosts that are allowed"
        }
    }
}

/// What may be reached, how names are looked up, and by way of which other proxy.
#[derive(Debug, Clone, Default)]
pub struct ProxyRules {
    pub allow: HostAllowList,
    pub resolver: Resolver,
    pub upstream: UpstreamProxies,
}

/// A proxy that is running, until this is dropped.
#[derive(Debug)]
pub struct Proxy {
    commands: Sender<ProxyCommand>,
    wake: io::PipeWriter,
    refusals: Receiver<Refusal>,
    wake_reader: Option<PipeReader>,
    thread: Option<JoinHandle<()>>,
    next_id: u64,
}

/// The listeners of one sandboxed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerSetId(u64);

#[derive(Debug)]
enum ProxyCommand {
    /// Take the listeners that will arrive here: the proxy's own, then one for each of these ports of
    /// this machine.
    Expect {
        id: ListenerSetId,
        from: OwnedFd,
        ports: Arc<[u16]>,
    },
    /// Take this listener of the proxy.
    Serve {
        id: ListenerSetId,
        listener: OwnedFd,
    },
    /// Close its listeners and connections.
    Release(ListenerSetId),
    Stop,
}

impl Proxy {
    /// # Errors
    /// There are no more threads or descriptors.
    pub fn start(rules: ProxyRules) -> io::Result<Proxy> {
        let (wake_reader, wake) = io::pipe()?;
        let (bell, bell_writer) = io::pipe()?;
        let (orders, their_orders) = channel();
        let (their_news, news) = sync_channel(MAX_REFUSALS);
        let server =
            serve::ProxyServer::new(rules, their_orders, wake_reader, their_news, bell_writer)?;
        let thread = std::thread::Builder::new()
            .name("proxy".into())
            .stack_size(256 * 1024)
            .spawn(move || server.run())?;
        Ok(Proxy {
            commands: orders,
            wake,
            refusals: news,
            wake_reader: Some(bell),
            thread: Some(thread),
            next_id: 0,
        })
    }

    /// Serves the listeners that arrive on `from`: that of the proxy, and one for each of `ports`.
    pub fn expect_listeners(&mut self, from: OwnedFd, ports: Arc<[u16]>) -> ListenerSetId {
        let id = self.new_id();
        self.send_command(ProxyCommand::Expect { id, from, ports });
        id
    }

    /// Serves a listener that is there already.
    pub fn serve(&mut self, listener: OwnedFd) -> ListenerSetId {
        let id = self.new_id();
        self.send_command(ProxyCommand::Serve { id, listener });
        id
    }

    /// Closes listeners with all connections that came from them. A network that nothing refers to any
    /// more is gone.
    pub fn release(&mut self, id: ListenerSetId) {
        self.send_command(ProxyCommand::Release(id));
    }

    /// What was refused since this was last asked.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.refusals.try_iter().collect()
    }

    /// Something to read is in here whenever there are news. To be given away once.
    pub fn take_wake_pipe(&mut self) -> Option<PipeReader> {
        self.wake_reader.take()
    }

    fn new_id(&mut self) -> ListenerSetId {
        self.next_id += 1;
        ListenerSetId(self.next_id)
    }

    fn send_command(&mut self, order: ProxyCommand) {
        // A thread that is gone serves nobody, which is as safe as can be.
        if self.commands.send(order).is_ok() {
            let _ = self.wake.write(&[1]);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.send_command(ProxyCommand::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
