//! `ralph man`.

use std::path::PathBuf;

use clap::Args;

use ralph_events::error::Error;

use crate::cli::definition;

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory to write them to.
    pub directory: PathBuf,
}

pub fn man(args: &ManArgs) -> Result<u8, Error> {
    let directory = args.directory.display();
    std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(definition(), &args.directory))
        .map_err(|err| Error::input(format!("cannot write to {directory}: {err}")))?;
    crate::cli::print(&format!("man pages written to {directory}\n"))
}
