//! Which workers a command is about.

use clap::Args;

use crate::workers::store::{Worker, Workers};
use ralph_events::error::Error;

#[derive(Debug, Args)]
pub struct WorkerSelection {
    /// The workers.
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub names: Vec<String>,

    /// All workers to which this applies.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
}

impl WorkerSelection {
    pub(crate) fn single(name: &str) -> WorkerSelection {
        WorkerSelection { names: vec![name.to_owned()], all: false }
    }

    pub(crate) fn all() -> WorkerSelection {
        WorkerSelection { names: Vec::new(), all: true }
    }

    /// Those that were named, or all that are `meant` if all are. One that is not there keeps nobody from
    /// asking the others.
    pub fn select(
        &self,
        workers: &Workers,
        meant: impl Fn(&Worker) -> bool,
    ) -> Result<Vec<Result<Worker, Error>>, Error> {
        if self.all {
            return Ok(workers.all()?.into_iter().filter(meant).map(Ok).collect());
        }
        // One that is named twice is meant once.
        let mut names: Vec<&String> = Vec::new();
        for name in &self.names {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names.into_iter().map(|name| workers.find(name)).collect())
    }
}

/// Does something to each of them. What cannot be done to one is said, and keeps nobody from the others.
pub fn for_each_worker(
    chosen: Vec<Result<Worker, Error>>,
    act: impl Fn(&Worker) -> Result<(), Error>,
) -> Result<u8, Error> {
    let mut failed: Option<Error> = None;
    for worker in chosen {
        if let Err(error) = worker.and_then(|worker| act(&worker))
            && let Some(before) = failed.replace(error)
        {
            crate::cli::print_error(&before);
        }
    }
    failed.map_or(Ok(0), Err)
}
