//! Listens, and serves each connection within limits.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::tz::TimeZone;
use ralph_events::error::Error;
use ralph_monitor::{Launcher, Monitor};
use ralph_process::EndSignals;
use tokio::sync::Semaphore;

use crate::address::{Address, PublicUrl};
use crate::app::App;
use crate::hub;
use crate::tokens::Tokens;
use crate::{routes, welcome};

/// More than a person has browsers, fewer than a process can have files.
const MAX_CONNECTIONS: usize = 4096;
const MAX_FILES: u64 = 65_536;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Also the memory that a client who does not read can hold.
const MAX_BUFFER: usize = 16 * 1024;
const COST_CHART_MS: i64 = 14 * 24 * 3_600_000;
/// Diffs and long journals are read by these.
const BLOCKING_THREADS: usize = 4;

#[derive(Debug)]
pub struct ServeOptions {
    pub home: PathBuf,
    pub listen: SocketAddr,
    pub url: Option<PublicUrl>,
    pub is_read_only: bool,
    /// Agents that can be chosen for a new run.
    pub agents: Vec<&'static str>,
    pub renew_tokens: bool,
    /// The runs are of a demo, and end with it.
    pub is_demo: bool,
    pub zone: TimeZone,
    /// Milliseconds since 1970. Pictures are made at a fixed time.
    pub clock: fn() -> i64,
}

/// Refuses an address that other machines reach, unless that is wanted.
pub fn check_bind(ip: IpAddr, expose: bool) -> Result<(), Error> {
    if ip.is_loopback() || expose {
        return Ok(());
    }
    Err(Error::usage(format!("{ip} can be reached from other machines"))
        .hint(
            "add --expose if you want that: anyone who has the link can then read your runs and \
             steer agents on this machine, and the link travels unencrypted",
        )
        .hint("safer: keep the default, and use `ssh -L`, Tailscale or a TLS proxy with --url"))
}

/// A server that listens, but does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: Address,
    tokens: Tokens,
    options: ServeOptions,
    monitor: Monitor,
}

impl Server {
    pub fn bind(options: ServeOptions) -> Result<Server, Error> {
        let listener =
            TcpListener::bind(options.listen).map_err(|err| bind_error(&options, &err))?;
        let failed = |err: io::Error| Error::failed(format!("cannot listen: {err}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let tokens = Tokens::load_or_create(&options.home, options.renew_tokens)?;
        // Port 0 means any.
        let listen = listener.local_addr().map_err(failed)?;
        let address = Address::new(listen, options.url.clone());
        let now_ms = (options.clock)();
        let mut monitor =
            Monitor::open(&options.home, options.zone.clone(), now_ms).map_err(|err| {
                Error::failed(format!("cannot follow the runs: {err}")).hint(
                    "other programs may use up your file watchers: close some, or raise \
                     fs.inotify.max_user_instances on Linux",
                )
            })?;
        // The chart of costs needs two weeks.
        monitor.load_since(now_ms - COST_CHART_MS);
        Ok(Server { listener, address, tokens, options, monitor })
    }

    /// The links, and a QR code if a phone can open them.
    pub fn welcome(&self) -> String {
        welcome::text(&self.address, &self.tokens, &self.options)
    }

    /// Serves until a signal arrives. Ends no run.
    pub fn run(self, launcher: Arc<dyn Launcher>, signals: &EndSignals) -> Result<(), Error> {
        // A thousand clients need more files than the usual soft limit.
        ralph_process::raise_file_limit(MAX_FILES);
        let failed = |err: io::Error| Error::failed(format!("cannot start the server: {err}"));
        let (hub, monitor_loop) = hub::new().map_err(failed)?;
        let app = App::new(self.address, self.tokens, &self.options, hub.clone(), launcher);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_keep_alive(Duration::from_secs(2))
            .build()
            .map_err(failed)?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).map_err(failed)?
        };
        std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || runtime.block_on(accept(listener, &app)))
            .map_err(failed)?;
        monitor_loop.run(self.monitor, &hub, signals)
    }
}

fn bind_error(options: &ServeOptions, err: &io::Error) -> Error {
    let ServeOptions { listen, .. } = options;
    if err.kind() == io::ErrorKind::AddrInUse {
        return Error::input(format!("port {} is already in use", listen.port()))
            .hint("another `ralph serve` may be running; choose another port with --port");
    }
    Error::input(format!("cannot listen on {listen}: {err}"))
}

async fn accept(listener: tokio::net::TcpListener, app: &App) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let service = TowerToHyperService::new(routes::router(app.clone()));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(err) if err.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(_) => {
                // Out of files or memory. Nothing tells when there is some again.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Dropping the stream closes it.
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        // Small events must not wait for a full packet.
        let _ = stream.set_nodelay(true);
        let (service, app) = (service.clone(), app.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let strip = service_fn(move |mut request| {
                app.address.strip_prefix(&mut request);
                service.call(request)
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_BUFFER)
                .serve_connection(TokioIo::new(stream), strip);
            // A client that leaves is no error.
            let _ = connection.await;
        });
    }
}
