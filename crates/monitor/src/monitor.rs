//! Finds the runs of all projects and follows them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::run_state::RunState;
use ralph_process::WatchId;
use ralph_report::overview::{Overview, UnreadableProject};
use ralph_report::run_card::{CardContext, RunCard};
use ralph_report::state_word::ATTENTION_MS;
use ralph_store::private_files;
use ralph_store::project_record::{self, StoredProject};
use ralph_store::runs::{self, RunDir};
use rustix::event::{PollFd, PollFlags};

use crate::followed_run::{BackgroundReader, FollowedRun, MAX_JOURNAL_AT_ONCE};
use crate::watch_thread::WatchThread;

/// Read before the first overview: of journals of active and of finished runs. A thread reads the rest.
const MAX_ACTIVE_AT_ONCE: u64 = 2 << 20;
const MAX_FINISHED_AT_ONCE: u64 = 1 << 20;

/// Watched journals of finished runs: on macOS each takes an open file. A resumed run writes there.
const MAX_IDLE_WATCHES: usize = 64;

/// Every run on this machine.
#[derive(Debug)]
pub struct Monitor {
    home: PathBuf,
    zone: TimeZone,
    projects: BTreeMap<PathBuf, FollowedProject>,
    /// By id, oldest first.
    runs: BTreeMap<String, FollowedRun>,
    /// Why projects cannot be listed.
    problem: Option<String>,
    reader: BackgroundReader,
    watched: HashMap<WatchId, Watched>,
    watches: WatchThread,
    /// The first overview is there: every run that appears now is read.
    is_following: bool,
}

#[derive(Debug, Default)]
struct FollowedProject {
    /// The name of its directory.
    name: String,
    root: Option<PathBuf>,
    /// Why its record cannot be read.
    problem: Option<String>,
    /// Why its runs cannot be listed.
    runs_problem: Option<String>,
    watch: Option<WatchId>,
    runs_watch: Option<WatchId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Watched {
    Projects,
    Project(PathBuf),
    Run(String),
}

/// What [`Monitor::update`] has noticed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Runs whose state may have changed.
    pub runs: BTreeSet<String>,
    /// Runs or projects appeared or were removed.
    pub list: bool,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && !self.list
    }
}

impl Monitor {
    /// Finds all runs. Reads the journals of those that are active, or were within a day.
    ///
    /// # Errors
    /// The system has no descriptors or threads left.
    pub fn open(home: &Path, zone: TimeZone, now_ms: i64) -> io::Result<Monitor> {
        let watches = WatchThread::start()?;
        let mut monitor = Monitor {
            home: home.to_owned(),
            zone,
            projects: BTreeMap::new(),
            runs: BTreeMap::new(),
            problem: None,
            reader: BackgroundReader::new(watches.notifier()),
            watched: HashMap::new(),
            watches,
            is_following: false,
        };
        // Runs that start later create their directories here.
        let projects = project_record::projects_dir(home);
        let _ = private_files::create_dir_all(&projects);
        if let Some(watch) = monitor.watches.watch_entries(&projects) {
            monitor.watched.insert(watch, Watched::Projects);
        }
        monitor.find_projects();
        monitor.read_recent(now_ms);
        monitor.is_following = true;
        Ok(monitor)
    }

    /// Readable if something has changed: call [`Monitor::update`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watches.fd()
    }

    /// Waits for a change, at most this long. Returns whether there is one.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.and_then(|it| rustix::time::Timespec::try_from(it).ok());
        let mut polled = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Takes in what has changed. Never waits.
    pub fn update(&mut self) -> Changes {
        let mut changes = Changes::default();
        let seen = self.watches.take_changes();
        let mut runs: BTreeSet<String> = BTreeSet::new();
        let mut projects: BTreeSet<PathBuf> = BTreeSet::new();
        let mut is_list_changed = false;
        for id in &seen.files {
            match self.watched.get(id) {
                Some(Watched::Projects) => is_list_changed = true,
                Some(Watched::Project(dir)) => drop(projects.insert(dir.clone())),
                Some(Watched::Run(run)) => drop(runs.insert(run.clone())),
                None => {}
            }
        }
        for (id, run) in &mut self.runs {
            if run.watched_pid.is_some_and(|pid| seen.ended.contains(&pid)) {
                run.watched_pid = None;
                runs.insert(id.clone());
            }
        }
        for (id, fold) in self.reader.take_results() {
            if let Some(run) = self.runs.get_mut(&id) {
                run.finish_reading(fold);
                self.watch_process(&id);
                changes.runs.insert(id);
            }
        }
        let reading = self.runs.iter().filter(|(_, run)| run.progress.is_some());
        changes.runs.extend(reading.map(|(id, _)| id.clone()));
        if is_list_changed {
            changes.list |= self.find_projects();
        }
        for dir in projects {
            changes.list |= self.find_runs(&dir);
        }
        for id in runs {
            changes.list |= self.refresh(&id);
            changes.runs.insert(id);
        }
        changes
    }

    /// Returns whether there are new or removed projects or runs.
    fn find_projects(&mut self) -> bool {
        let stored = match project_record::stored_projects(&self.home) {
            Ok(stored) => {
                self.problem = None;
                stored
            }
            Err(err) => {
                self.problem = Some(err.to_string());
                return true;
            }
        };
        let mut is_changed = false;
        for StoredProject { dir, root } in stored {
            if !self.projects.contains_key(&dir) {
                self.projects.insert(dir.clone(), FollowedProject::default());
                is_changed = true;
            }
            let Some(project) = self.projects.get_mut(&dir) else { continue };
            project.problem = root.as_ref().err().map(ToString::to_string);
            project.root = root.ok().flatten();
            project.name = project_name(project.root.as_deref(), &dir);
            is_changed |= self.find_runs(&dir);
        }
        is_changed
    }

    /// Looks for runs of a project that are new or were removed. Returns whether there are any.
    fn find_runs(&mut self, dir: &Path) -> bool {
        let Some(project) = self.projects.get_mut(dir) else { return false };
        let runs_dir = StoredProject { dir: dir.to_owned(), root: Ok(None) }.runs_dir();
        // Watches come first: what appears afterwards is seen. A directory may have been made anew.
        for (watch, path) in [(&mut project.watch, dir), (&mut project.runs_watch, &*runs_dir)] {
            let old = std::mem::replace(watch, self.watches.watch_entries(path));
            if let Some(old) = old.filter(|old| Some(*old) != *watch) {
                self.watched.remove(&old);
                self.watches.unwatch(old);
            }
            self.watched.extend(watch.map(|id| (id, Watched::Project(dir.to_owned()))));
        }
        if project.root.is_none()
            && let Ok(stored) = project_record::stored_projects(&self.home)
            && let Some(stored) = stored.into_iter().find(|stored| stored.dir == dir)
        {
            project.problem = stored.root.as_ref().err().map(ToString::to_string);
            project.root = stored.root.ok().flatten();
            project.name = project_name(project.root.as_deref(), dir);
        }
        let listed = match runs::list(&runs_dir) {
            Ok(listed) => listed,
            Err(err) => {
                let shown = Some(format!("{}: {err}", runs_dir.display()));
                let is_new = project.runs_problem != shown;
                project.runs_problem = shown;
                return is_new;
            }
        };
        let mut is_changed = project.runs_problem.take().is_some();
        let present: BTreeSet<&str> = listed.iter().map(|run| run.id.as_str()).collect();
        for run in self.runs.values_mut().filter(|run| run.project == dir) {
            let is_removed = !present.contains(run.dir.id.as_str());
            is_changed |= is_removed != run.is_removed;
            run.is_removed = is_removed;
        }
        // A moved project takes its runs along.
        let is_elsewhere =
            |run: &RunDir| self.runs.get(&run.id).is_none_or(|known| known.dir.path != run.path);
        let new: Vec<RunDir> = listed.iter().filter(|run| is_elsewhere(run)).cloned().collect();
        for run in new {
            let id = run.id.clone();
            self.runs.insert(id.clone(), FollowedRun::new(run, dir.to_owned()));
            if self.is_following {
                self.refresh(&id);
            }
            is_changed = true;
        }
        if self.is_following {
            is_changed |= self.find_resumed(dir);
        }
        is_changed
    }

    /// Looks for old runs of a project, which are not watched, that work again. Returns whether there are any.
    fn find_resumed(&mut self, dir: &Path) -> bool {
        let unwatched =
            self.runs.iter().filter(|(_, run)| run.project == dir && run.watch.is_none());
        let resumed: Vec<String> =
            unwatched.filter(|(_, run)| run.dir.is_running()).map(|(id, _)| id.clone()).collect();
        for id in &resumed {
            self.refresh(id);
        }
        !resumed.is_empty()
    }

    /// Takes in what a run has written. Returns whether it has just started.
    fn refresh(&mut self, id: &str) -> bool {
        self.watch_journal(id);
        let Some(run) = self.runs.get_mut(id) else { return false };
        let had_started = run.has_started();
        run.look();
        self.read(id);
        self.watch_process(id);
        self.runs.get(id).is_some_and(|run| run.has_started() != had_started)
    }

    fn read(&mut self, id: &str) {
        let Some(run) = self.runs.get_mut(id).filter(|run| run.has_started()) else { return };
        let is_slow = run.size > MAX_JOURNAL_AT_ONCE || run.progress.is_some();
        match &run.fold {
            None if is_slow => run.read_in_background(&mut self.reader),
            Some(fold) if fold.is_glimpse() => run.read_in_background(&mut self.reader),
            _ => run.read_more(),
        }
    }

    /// Watches the journal, or the run directory until there is one. Comes before reading: what is written
    /// afterwards is seen.
    fn watch_journal(&mut self, id: &str) {
        let Some(run) = self.runs.get_mut(id).filter(|run| !run.is_journal_watched) else { return };
        let watched = Watched::Run(id.to_owned());
        if run.watch.is_none() {
            run.watch = self.watches.watch_entries(&run.dir.path);
            self.watched.extend(run.watch.map(|watch| (watch, watched.clone())));
        }
        // The directory is watched: a journal that is missing now is seen when it appears.
        let Some(journal) = self.watches.watch_file(&run.dir.journal()) else { return };
        if let Some(dir) = run.watch.replace(journal) {
            self.watched.remove(&dir);
            self.watches.unwatch(dir);
        }
        run.is_journal_watched = true;
        self.watched.insert(journal, watched);
    }

    /// Watches the process that the journal names.
    fn watch_process(&mut self, id: &str) {
        let Some(run) = self.runs.get_mut(id) else { return };
        let pid = run.fold.as_ref().map_or(0, |fold| fold.state.info.pid);
        if run.is_alive && pid != 0 && run.watched_pid != Some(pid) {
            run.watched_pid = self.watches.watch_exit(pid).then_some(pid);
            // It may have ended before it was watched.
            run.is_alive = run.dir.is_running();
        }
    }

    /// Reads the journals that the first overview needs: of active runs, then the newest.
    fn read_recent(&mut self, now_ms: i64) {
        let since_ms = midnight_ms(now_ms, &self.zone).min(now_ms.saturating_sub(ATTENTION_MS));
        // A run that has not written anything yet may be about to.
        let is_recent =
            |run: &FollowedRun| !run.has_started() || run.is_alive || run.modified_ms >= since_ms;
        let runs = self.runs.iter().rev();
        let mut recent: Vec<(bool, String)> = runs
            .filter(|(_, run)| is_recent(run))
            .map(|(id, run)| (run.is_alive, id.clone()))
            .collect();
        recent.sort_by_key(|(is_alive, _)| !is_alive);
        let (mut active_room, mut finished_room) = (MAX_ACTIVE_AT_ONCE, MAX_FINISHED_AT_ONCE);
        for (nth, (is_alive, id)) in recent.iter().enumerate() {
            if nth < MAX_IDLE_WATCHES || *is_alive {
                self.watch_journal(id);
            }
            let Some(run) = self.runs.get_mut(id) else { continue };
            run.look();
            if !run.has_started() {
                continue;
            }
            let room = if *is_alive { &mut active_room } else { &mut finished_room };
            match room.checked_sub(run.size) {
                Some(left) => {
                    *room = left;
                    run.read_more();
                }
                None => run.read_in_background(&mut self.reader),
            }
            self.watch_process(id);
        }
    }

    /// Reads finished runs that were active since a time, in a thread. Cards follow with later updates.
    pub fn load_since(&mut self, since_ms: i64) {
        for run in self.runs.values_mut().rev() {
            if run.fold.is_none() && run.has_started() && run.modified_ms >= since_ms {
                match run.size > MAX_JOURNAL_AT_ONCE {
                    true => run.read_in_background(&mut self.reader),
                    // There may be hundreds.
                    false => run.read_unseen(&mut self.reader),
                }
            }
        }
    }

    /// Shows every run: the beginning and the end of its journal, until a thread has read it.
    pub fn show_all(&mut self) {
        for run in self.runs.values_mut().rev() {
            if run.fold.is_none() && run.has_started() {
                run.read_in_background(&mut self.reader);
            }
        }
    }

    /// A thread reads journals.
    pub fn is_reading(&self) -> bool {
        self.runs.values().any(|run| run.progress.is_some())
    }

    /// The whole state of a run. Reads the journal if that has not happened yet.
    pub fn run(&mut self, id: &str) -> Option<&RunState> {
        if self.runs.get(id)?.fold.is_none() {
            self.read(id);
        }
        self.state(id)
    }

    /// The state of a run, if its journal was read.
    pub fn state(&self, id: &str) -> Option<&RunState> {
        Some(&self.runs.get(id)?.fold.as_ref()?.state)
    }

    pub fn run_dir(&self, id: &str) -> Option<&RunDir> {
        self.runs.get(id).map(|run| &run.dir)
    }

    pub fn is_alive(&self, id: &str) -> bool {
        self.runs.get(id).is_some_and(|run| run.is_alive)
    }

    /// The ids of all runs that have started, oldest first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.runs.iter().filter(|(_, run)| run.has_started()).map(|(id, _)| id.as_str())
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// `None` for runs that are unknown or were not read.
    pub fn card(&self, id: &str, now_ms: i64) -> Option<RunCard> {
        let run = self.runs.get(id)?;
        let state = &run.fold.as_ref()?.state;
        let project = self.projects.get(&run.project);
        Some(RunCard::of(
            state,
            &CardContext {
                id,
                project: project.map_or("", |project| &project.name),
                fallback_name: run.fallback_name.as_deref(),
                is_alive: run.is_alive && !run.is_removed,
                is_removed: run.is_removed,
                reading: run.reading(),
                now_ms,
                zone: &self.zone,
            },
        ))
    }

    pub fn cards(&self, now_ms: i64) -> Vec<RunCard> {
        self.runs.keys().filter_map(|id| self.card(id, now_ms)).collect()
    }

    pub fn overview(&self, now_ms: i64) -> Overview {
        let unread = self.runs.values().filter(|run| run.fold.is_none() && run.has_started());
        let mut overview = Overview::of(self.cards(now_ms), unread.count(), now_ms, &self.zone);
        overview.unreadable = self.unreadable();
        overview
    }

    fn unreadable(&self) -> Vec<UnreadableProject> {
        let shown = |path: &Path, reason: &str| UnreadableProject {
            path: strip_control_chars(&path.display().to_string()),
            reason: strip_control_chars(reason),
        };
        let home = self.problem.iter().map(|why| shown(&self.home, why));
        let projects = self.projects.iter().filter_map(|(dir, project)| {
            let path = project.root.as_deref().unwrap_or(dir);
            let why = project.problem.as_ref().or(project.runs_problem.as_ref());
            why.map(|why| shown(path, why))
        });
        let unwatched = self
            .watches
            .problem()
            .map(|why| shown(&self.home, &format!("may miss changes: {why}")));
        home.chain(projects).chain(unwatched).collect()
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// The last component of a project's path, or else of its state directory, without the hash.
fn project_name(root: Option<&Path>, dir: &Path) -> String {
    if let Some(name) = root.and_then(Path::file_name) {
        return name.to_string_lossy().into_owned();
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(&*name, |(label, _)| label).to_owned()
}

/// The start of the day.
fn midnight_ms(now_ms: i64, zone: &TimeZone) -> i64 {
    let now = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let start = now.to_zoned(zone.clone()).start_of_day();
    start.map_or(now_ms, |start| start.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ralph_store::project::Project;

    use super::*;
    use crate::followed_run::AFTER_READING;

    const LINE: &str = r#"{"time":"2026-11-15T20:27:52.123Z","iteration":7,"attempt":1,"event":"iteration_started","max_iterations":9}"#;

    /// Appends a line as soon as the journal was read for the first time.
    fn append_after_reading(run: &RunDir) {
        let journal = run.journal();
        AFTER_READING.set(Some(Box::new(move || {
            let mut file = std::fs::File::options().append(true).open(journal).unwrap();
            writeln!(file, "{LINE}").unwrap();
        })));
    }

    fn wait_for_last_line(monitor: &mut Monitor, id: &str) {
        while monitor.state(id).is_none_or(|run| run.iterations.is_empty()) {
            assert!(monitor.wait(Some(Duration::from_secs(10))), "the last line is never seen");
            monitor.update();
        }
    }

    #[test]
    fn line_that_is_written_right_after_reading_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let project = Project::new(dir.path(), &home);
        project.prepare_state().unwrap();
        let new_run = |id: &str| {
            let run = project.run_dir(id);
            run.create().unwrap();
            std::fs::write(run.journal(), "{}\n").unwrap();
            append_after_reading(&run);
            run.id
        };
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let first = new_run("20261116-000000-0001");
        let mut monitor = Monitor::open(&home, TimeZone::UTC, now_ms).unwrap();
        wait_for_last_line(&mut monitor, &first);
        let second = new_run("20261116-000000-0002");
        wait_for_last_line(&mut monitor, &second);
    }
}
