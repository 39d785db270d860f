//! The real journal.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use ralph_events::journal;
use ralph_events::run_state::RunState;
use ralph_store::runs::RunDir;

use super::{Journal, RealWorld};

impl RealWorld {
    pub fn run_dir(&self) -> &RunDir {
        &self.files.dir
    }

    /// Bytes in the journal.
    pub fn journal_size(&self) -> u64 {
        self.files.journal_size()
    }

    /// An fsync takes milliseconds, an instant agent less than one. A second thread waits for the disk.
    fn start_syncer(&self) -> io::Result<SyncSender<()>> {
        let journal = self.files.journal_handle()?;
        let (sender, receiver) = sync_channel::<()>(1);
        std::thread::Builder::new().name("sync".into()).stack_size(64 * 1024).spawn(move || {
            while receiver.recv().is_ok() {
                // The next write reports a failed disk.
                let _ = journal.sync_data();
            }
        })?;
        Ok(sender)
    }
}

impl Journal for RealWorld {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.files.append_journal(bytes)
    }

    fn append_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.files.append_raw(bytes)
    }

    fn make_room(&mut self) -> bool {
        self.files.release_reserve()
    }

    fn sync(&mut self) {
        if self.syncer.is_none() {
            // Without a thread the journal is as safe as any other file.
            self.syncer = self.start_syncer().ok();
        }
        if let Some(syncer) = &self.syncer {
            // A pending fsync covers later requests.
            let _ = syncer.try_send(());
        }
    }

    fn run_state(&mut self) -> RunState {
        let journal = self.files.read_journal().map(journal::entries);
        journal.map_or_else(|_| RunState::default(), RunState::read)
    }
}
