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

    /// Restores a journal that the running agent removed: this process may not live until the agent ends, and the
    /// next run must find it.
    pub(super) fn put_back(&mut self) -> io::Result<()> {
        self.check_project_in_place()?;
        self.project.prepare_beside_agent()?;
        let root = self.project.root();
        if self.files.put_back_beside_agent(root)? {
            self.was_put_back = true;
            // The thread holds the deleted file open.
            self.syncer = None;
        }
        self.lock.restore_beside_agent(root, &self.project.lock_path(), &self.holder)
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
        self.files.append_journal(bytes)?;
        if self.files.is_removed() {
            // A failure is retried when the agent has ended.
            let _ = self.put_back();
        }
        Ok(())
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
