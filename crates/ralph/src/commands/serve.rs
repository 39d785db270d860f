//! `ralph serve`: shows every run in a browser.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use jiff::tz::TimeZone;
use ralph_events::error::Error;
use ralph_process::EndSignals;
use ralph_store::home;
use ralph_web::{PublicUrl, ServeOptions, Server, check_bind};

use crate::launch::installed_agents;
use crate::launcher::RunLauncher;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The port to listen on; 0 for any free one.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PORT)]
    pub port: u16,

    /// The address to listen on. Any but a loopback address needs `--expose`.
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,

    /// Allow other machines to connect. Anyone who has a link can then read your runs; with the full link, they can
    /// also steer agents on this machine. The connection is not encrypted.
    #[arg(long)]
    pub expose: bool,

    /// The address that browsers use behind a proxy: `https://HOST/PREFIX`.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,

    /// Print only the read-only link, and allow no actions.
    #[arg(long)]
    pub read_only: bool,

    /// Replace the links: old ones, and browsers that used them, lose access.
    #[arg(long)]
    pub new_tokens: bool,
}

impl ServeArgs {
    /// On this machine, on a port that is free.
    pub(crate) fn on_any_port() -> ServeArgs {
        ServeArgs {
            port: 0,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            expose: false,
            url: None,
            read_only: false,
            new_tokens: false,
        }
    }
}

const DEFAULT_PORT: u16 = 4747;

pub fn serve(args: &ServeArgs) -> Result<u8, Error> {
    let home = home::require_ralph_home(|name| std::env::var_os(name))?;
    serve_home(args, home, false)
}

/// Serves the runs of one `$RALPH_HOME` until a signal arrives.
pub(crate) fn serve_home(
    args: &ServeArgs,
    home: std::path::PathBuf,
    is_demo: bool,
) -> Result<u8, Error> {
    check_bind(args.bind, args.expose)?;
    let url = args.url.as_deref().map(PublicUrl::parse).transpose()?;
    // Before the port is open: a signal then ends the server in order.
    let signals = EndSignals::install()
        .map_err(|err| Error::failed(format!("cannot handle signals: {err}")))?;
    let server = Server::bind(ServeOptions {
        home,
        listen: SocketAddr::new(args.bind, args.port),
        url,
        is_read_only: args.read_only,
        agents: installed_agents(),
        renew_tokens: args.new_tokens,
        is_demo,
        zone: TimeZone::system(),
        clock: || jiff::Timestamp::now().as_millisecond(),
    })?;
    if !args.bind.is_loopback() {
        crate::cli::warn(
            "other machines can connect, and the connection is not encrypted: share a link only \
             on a network that you trust",
        );
    }
    crate::cli::print(&server.welcome())?;
    server.run(Arc::new(RunLauncher), &signals)?;
    Ok(0)
}
