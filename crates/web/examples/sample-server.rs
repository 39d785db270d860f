//! Serves the sample evening, for pictures and browser tests: `sample-server DIRECTORY`.
//!
//! Prints the links. Ends with a signal.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ralph_events::error::Error;
use ralph_monitor::{Launcher, NewRun, StartedRun, sample};
use ralph_web::{ServeOptions, Server};

struct NoLauncher;

impl Launcher for NoLauncher {
    fn start(&self, _run: &NewRun) -> Result<StartedRun, Error> {
        Err(Error::failed("the sample starts nothing"))
    }

    fn resume(&self, _run_id: &str) -> Result<(), Error> {
        Err(Error::failed("the sample resumes nothing").hint("try `ralph demo --serve`"))
    }

    fn attach_command(&self, _run_id: &str) -> Result<Vec<std::ffi::OsString>, Error> {
        Err(Error::failed("the sample has no windows"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: sample-server DIRECTORY")?);
    let home = dir.join("home");
    let evening = sample::write(&home, &dir.join("projects"))?;
    let signals = ralph_process::EndSignals::install()?;
    let server = Server::bind(ServeOptions {
        home,
        listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        url: None,
        is_read_only: false,
        renew_tokens: false,
        is_demo: false,
        zone: jiff::tz::TimeZone::UTC,
        clock: || sample::NOW_MS,
    })?;
    writeln!(std::io::stdout(), "{}run {}", server.welcome(), evening.reset_mail)?;
    server.run(Arc::new(NoLauncher), &signals)?;
    drop(evening);
    Ok(())
}
