//! State that all handlers share.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;
use ralph_monitor::Launcher;
use tokio::sync::Mutex;

use crate::address::Address;
use crate::hub::Hub;
use crate::live::Registry;
use crate::server::ServeOptions;
use crate::tokens::Tokens;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub address: Address,
    pub tokens: Tokens,
    pub is_read_only: bool,
    pub home: PathBuf,
    /// Agents that can be chosen for a new run.
    pub agents: Vec<&'static str>,
    pub zone: TimeZone,
    clock: fn() -> i64,
    pub hub: Hub,
    pub feeds: Registry,
    /// Programs run one at a time: the process has one place that waits for children.
    programs: Arc<Mutex<()>>,
    pub launcher: Arc<dyn Launcher>,
}

impl App {
    pub(crate) fn new(
        address: Address,
        tokens: Tokens,
        options: &ServeOptions,
        hub: Hub,
        launcher: Arc<dyn Launcher>,
    ) -> App {
        App(Arc::new(Shared {
            address,
            tokens,
            is_read_only: options.is_read_only,
            home: options.home.clone(),
            agents: options.agents.clone(),
            zone: options.zone.clone(),
            clock: options.clock,
            hub,
            feeds: Registry::default(),
            programs: Arc::default(),
            launcher,
        }))
    }

    /// Runs work that starts programs on another thread.
    pub(crate) async fn run_program<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // Held by the work: a client that leaves does not end it. One that waits holds no thread.
        let turn = Arc::clone(&self.programs).lock_owned().await;
        let run = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(run).await.ok()
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.clock)()
    }

    /// A link within this server.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.address.prefix())
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Runs work that reads files on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
