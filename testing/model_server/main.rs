//! The model server as a program; see `mod.rs`.

#[path = "mod.rs"]
mod model_server;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use model_server::{Script, Server};

/// Scripted model server. Prints its address.
#[derive(Parser)]
struct Args {
    /// Local address; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Script (JSON)
    #[arg(long)]
    script: PathBuf,
    /// Log of requests (JSON lines)
    #[arg(long)]
    log: Option<PathBuf>,
    /// File for the port number
    #[arg(long)]
    port_file: Option<PathBuf>,
    /// Exit when standard input closes
    #[arg(long)]
    until_stdin_closes: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "model-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let at = |error: &dyn Error| format!("{}: {error}", args.script.display());
    let script = std::fs::read_to_string(&args.script).map_err(|error| at(&error))?;
    let script = Script::parse(&script).map_err(|error| at(&error))?;
    let server = Server::bind(args.listen, script, args.log.as_deref())?;
    let address = server.address()?;
    if let Some(path) = &args.port_file {
        write_atomically(path, &address.port().to_string())?;
    }
    writeln!(io::stdout(), "http://{address}")?;
    if args.until_stdin_closes {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
    }
    Ok(server.serve()?)
}

fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_added_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(new, path)
}
