//! The real world without a disk for records.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use ralph_driver::world::{ControlRequest, Record, World};
use ralph_engine::machine::Now;
use ralph_process::{ChildId, Launch, Occurrence, System};

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

impl World for NullWorld {
    fn now(&self) -> Now {
        let wall_ms = jiff::Timestamp::now().as_millisecond();
        Now { mono_ms: self.system.now_ms(), wall_ms }
    }

    fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        self.system.start(launch)
    }

    fn start_fed(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        self.system.start_with_stdin_pipe(launch)
    }

    fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool {
        self.system.feed(child, bytes)
    }

    fn close_input(&mut self, child: ChildId) {
        self.system.close_input(child);
    }

    fn end(&mut self, child: ChildId, _at_once: bool) {
        self.system.kill_child(child);
    }

    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        self.system.wait(until_mono_ms, buf)
    }

    fn exists(&mut self, path: &Path) -> bool {
        path.exists()
    }

    fn read(&mut self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_tasks(&mut self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file_fingerprint(&mut self, _path: &Path, _budget: u64) -> (u64, u64) {
        (0, 0)
    }

    fn tree_fingerprint(&mut self, _path: &Path, _most: usize) -> Option<u64> {
        None
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

    fn append(&mut self, _record: Record, bytes: &[u8]) -> io::Result<()> {
        self.nowhere.write_all(bytes)
    }

    fn cleanup(&mut self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn sync(&mut self) {}

    fn requests(&mut self) -> Vec<ControlRequest> {
        Vec::new()
    }
}
