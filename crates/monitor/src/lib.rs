//! Every run on this machine, followed live.
//!
//! A [`Monitor`] finds the runs of all projects, folds their journals and watches them: new runs, appended lines,
//! ends and killed processes wake it without polling. [`TranscriptWindow`] and [`EventReader`] read one journal.
//! [`actions`] put requests into a run's queue. The crate prints nothing and writes no journal.

#![forbid(unsafe_code)]

pub mod actions;
mod agent_command;
mod check_log;
pub mod diff;
mod event_reader;
mod followed_run;
mod journal_reader;
mod launcher;
mod monitor;
mod report;
#[cfg(feature = "sample")]
pub mod sample;
mod stories;
mod transcript_window;
mod watch_thread;

pub use agent_command::agent_command;
pub use check_log::{CheckLog, read_check_log};
pub use event_reader::{EventReader, JournalLine};
pub use launcher::{Launcher, NewRun, StartedRun};
pub use monitor::{Changes, Monitor};
pub use report::{read_summary, read_summary_in};
pub use stories::{StoriesError, read_stories, run_stories};
pub use transcript_window::{Hit, Search, TranscriptWindow, WindowUpdate};
