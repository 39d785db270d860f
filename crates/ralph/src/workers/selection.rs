//! The workers that a command applies to.

use clap::Args;

use crate::workers::registry::Workers;
use crate::workers::store::Worker;
use ralph_events::error::Error;

#[derive(Debug, Args)]
pub struct WorkerSelection {
    /// Runs, each by name, id, beginning of the id, or last four characters of it.
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub names: Vec<String>,

    /// Every run to which the command applies.
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

    /// The named workers, or with `--all` those that `applies` accepts. One missing worker does not
    /// stop the rest.
    pub fn select(
        &self,
        workers: &Workers,
        applies: impl Fn(&Worker) -> bool,
    ) -> Result<Vec<Result<Worker, Error>>, Error> {
        if self.all {
            return Ok(workers.all()?.into_iter().filter(applies).map(Ok).collect());
        }
        let mut names: Vec<&String> = Vec::new();
        for name in &self.names {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names.into_iter().map(|name| workers.find(name)).collect())
    }
}

/// One failure does not stop the rest.
pub fn for_each_worker(
    selected: Vec<Result<Worker, Error>>,
    act: impl Fn(&Worker) -> Result<(), Error>,
) -> Result<u8, Error> {
    let mut failed: Option<Error> = None;
    for worker in selected {
        if let Err(error) = worker.and_then(|worker| act(&worker))
            && let Some(previous) = failed.replace(error)
        {
            crate::cli::print_error(&previous);
        }
    }
    failed.map_or(Ok(0), Err)
}
