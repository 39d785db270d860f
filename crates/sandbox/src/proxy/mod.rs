//! The only way out of a sandbox: an HTTP proxy with an allow list.
//!
//! It has its own thread: downloads and the loop must not delay each other.
//!
//! It listens *inside* the sandbox, whose network contains nothing else: `init_process` creates the
//! listeners and passes them out. No other process can use it.

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

/// The most local ports that a sandbox can have.
pub(super) const MAX_LOCAL_PORTS: usize = MAX_LISTENERS - 1;

/// Inside the sandbox.
pub const PORT: u16 = 3128;

const MAX_REFUSALS: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub host: String,
    pub port: u16,
    /// It resolves to an address of this machine or its network.
    pub private: bool,
}

impl Refusal {
    /// The entry for `sandbox.allowedDomains` that would allow it.
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

    /// With brackets around an IPv6 address.
    pub fn describe_target(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    pub fn reason(&self) -> &'static str {
        if self.private {
            "it is an address of this machine or its network"
        } else {
            "it is not an allowed host"
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct ProxyRules {
    pub allow: HostAllowList,
    pub resolver: Resolver,
    pub upstream: UpstreamProxies,
}

/// Stops on drop.
#[derive(Debug)]
pub struct Proxy {
    commands: Sender<ProxyCommand>,
    wake: io::PipeWriter,
    refusals: Receiver<Refusal>,
    wake_reader: Option<PipeReader>,
    thread: Option<JoinHandle<()>>,
    next_id: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerSetId(u64);

#[derive(Debug)]
enum ProxyCommand {
    /// The proxy's own, then one per local port.
    Expect {
        id: ListenerSetId,
        from: OwnedFd,
        ports: Arc<[u16]>,
    },
    Serve {
        id: ListenerSetId,
        listener: OwnedFd,
    },
    Release(ListenerSetId),
    Stop,
}

impl Proxy {
    pub fn start(rules: ProxyRules) -> io::Result<Proxy> {
        let (wake_reader, wake) = io::pipe()?;
        let (refusal_reader, refusal_writer) = io::pipe()?;
        let (commands, command_receiver) = channel();
        let (refusal_sender, refusals) = sync_channel(MAX_REFUSALS);
        let server = serve::ProxyServer::new(
            rules,
            command_receiver,
            wake_reader,
            refusal_sender,
            refusal_writer,
        )?;
        let thread = std::thread::Builder::new()
            .name("proxy".into())
            .stack_size(256 * 1024)
            .spawn(move || server.run())?;
        Ok(Proxy {
            commands,
            wake,
            refusals,
            wake_reader: Some(refusal_reader),
            thread: Some(thread),
            next_id: 0,
        })
    }

    pub fn expect_listeners(&mut self, from: OwnedFd, ports: Arc<[u16]>) -> ListenerSetId {
        let id = self.new_id();
        self.send_command(ProxyCommand::Expect { id, from, ports });
        id
    }

    pub fn serve(&mut self, listener: OwnedFd) -> ListenerSetId {
        let id = self.new_id();
        self.send_command(ProxyCommand::Serve { id, listener });
        id
    }

    /// Closes listeners and their connections, which frees the network namespace.
    pub fn release(&mut self, id: ListenerSetId) {
        self.send_command(ProxyCommand::Release(id));
    }

    pub fn refusals(&self) -> Vec<Refusal> {
        self.refusals.try_iter().collect()
    }

    /// Readable when there are refusals.
    pub fn take_wake_pipe(&mut self) -> Option<PipeReader> {
        self.wake_reader.take()
    }

    fn new_id(&mut self) -> ListenerSetId {
        self.next_id += 1;
        ListenerSetId(self.next_id)
    }

    fn send_command(&mut self, command: ProxyCommand) {
        // Without the thread nothing gets out, which is safe.
        if self.commands.send(command).is_ok() {
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
