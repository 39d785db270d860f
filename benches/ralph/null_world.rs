//! The real world without a disk for records.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ralph_driver::world::{
    Control, Files, Journal, Part, PathKind, Processes, Repository, RunStep, Started, Uncommitted,
};
use ralph_engine::machine::Now;
use ralph_events::run_state::RunState;
use ralph_git::branch::DetachedReason;
use ralph_git::head_log::NewCommits;
use ralph_git::lock_files::LockStatus;
use ralph_process::{ChildId, Launch, Occurrence, System, TerminalSize};
use ralph_report::summary::Summary;
use ralph_sandbox::proxy::Refusal;
use ralph_store::requests::Request;

pub(super) struct NullWorld {
    system: System,
    nowhere: File,
}

impl NullWorld {
    pub(super) fn new() -> io::Result<Self> {
        let nowhere = File::options().write(true).open("/dev/null")?;
        Ok(NullWorld { system: System::new()?, nowhere })
    }
}

impl Processes for NullWorld {
    fn now(&self) -> Now {
        let wall_ms = jiff::Timestamp::now().as_millisecond();
        Now { mono_ms: self.system.now_ms(), wall_ms }
    }

    fn start(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<Started> {
        let started = match part {
            Part::InteractiveAgent => return Err(io::ErrorKind::Unsupported.into()),
            Part::Filter => self.system.start(&Launch { has_stdin_pipe: true, ..launch.clone() }),
            Part::Agent | Part::Check | Part::Scm | Part::Notify => self.system.start(launch),
        };
        started.map(Started::new)
    }

    fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool {
        self.system.feed(child, bytes)
    }

    fn ask(&mut self, _child: ChildId, _question: &[u8], _patience_ms: u64) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn close_input(&mut self, child: ChildId) {
        self.system.close_input(child);
    }

    fn end(&mut self, child: ChildId, _at_once: bool) {
        self.system.kill_child(child);
    }

    fn resize(&mut self, _child: ChildId) -> TerminalSize {
        TerminalSize::DEFAULT
    }

    fn reads_keys(&mut self, _child: ChildId) -> bool {
        true
    }

    fn rest(&mut self) {}

    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        self.system.wait(until_mono_ms, buf)
    }
}

impl Files for NullWorld {
    fn kind(&mut self, path: &Path) -> PathKind {
        if path.exists() { PathKind::File } else { PathKind::Missing }
    }

    fn read(&mut self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_tasks(&mut self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write(&mut self, _path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.nowhere.write_all(bytes)
    }

    fn save(&mut self, _path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.nowhere.write_all(bytes)
    }

    fn remove(&mut self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open_log(&mut self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn append_log(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.nowhere.write_all(bytes)
    }

    fn file_fingerprint(&mut self, _path: &Path, _budget: u64) -> (u64, u64) {
        (0, 0)
    }

    fn tree_fingerprint(&mut self, _path: &Path, _most: usize) -> Option<u64> {
        None
    }
}

impl Journal for NullWorld {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.nowhere.write_all(bytes)
    }

    fn append_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.nowhere.write_all(bytes)
    }

    fn make_room(&mut self) -> bool {
        false
    }

    fn sync(&mut self) {}

    fn run_state(&mut self) -> RunState {
        RunState::default()
    }
}

impl Repository for NullWorld {
    fn new_commits(&mut self, _thorough: bool) -> Option<NewCommits> {
        None
    }

    fn abandoned(&mut self, _lock: &Path) -> LockStatus {
        LockStatus::InUse
    }

    fn replaced(&mut self) -> Option<PathBuf> {
        None
    }

    fn branch(&mut self) -> Option<String> {
        None
    }

    fn uncommitted(&mut self) -> Uncommitted {
        Uncommitted::default()
    }

    fn no_branch(&mut self) -> Option<DetachedReason> {
        None
    }

    fn read_only_git_args(&mut self) -> Vec<OsString> {
        Vec::new()
    }

    fn look_up(&mut self, _facts: &mut Summary) {}
}

impl Control for NullWorld {
    fn questions(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn requests(&mut self) -> Vec<(u64, Request)> {
        Vec::new()
    }

    fn acknowledge_requests(&mut self) {}

    fn refusals(&mut self) -> Vec<Refusal> {
        Vec::new()
    }

    fn cleanup(&mut self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn obstacle(&mut self, _next: RunStep) -> Option<String> {
        None
    }
}
