//! What all handlers share.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::tz::TimeZone;
use ralph_monitor::Launcher;

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
    pub zone: TimeZone,
    clock: fn() -> i64,
    pub hub: Hub,
    pub feeds: Registry,
    /// Programs run one at a time: the process has one place that waits for children.
    pub programs: Mutex<()>,
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
            zone: options.zone.clone(),
            clock: options.clock,
            hub,
            feeds: Registry::default(),
            programs: Mutex::default(),
            launcher,
        }))
    }

    /// Runs work that starts programs on another thread.
    pub(crate) async fn run_program<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let app = self.clone();
        let run = move || {
            let _one = app.programs.lock().unwrap_or_else(PoisonError::into_inner);
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
