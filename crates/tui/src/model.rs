//! The state of the screen: selection, open pages and typed text. Only messages change it.

mod actions;
mod dialog;
mod mouse;
mod movement;
mod new_run;
mod requests;
mod search;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;

use ratatui_core::layout::Position;

use ralph_monitor::actions::Delivery;
use ralph_monitor::{NewRun, StartedRun};
use ralph_report::run_card::RunCard;

pub(crate) use dialog::can_tell;
pub use dialog::{AnswerDialog, Dialog, StopDialog, TellDialog};
pub use new_run::{NewRunDialog, NewRunField};
pub use requests::{PendingRequest, RequestKind};
pub use search::{Filter, Search};

use crate::data::Data;
use crate::input::{Key, MouseAction};
use crate::keys::{self, Command, Place};
use crate::view::{FleetLine, Layout, Target, fleet_lines};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Fleet,
    Run,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Activity,
    Stories,
    Diff,
    Checks,
    Report,
}

impl Tab {
    pub const ALL: [Tab; 5] = [Tab::Activity, Tab::Stories, Tab::Diff, Tab::Checks, Tab::Report];

    pub fn title(self) -> &'static str {
        match self {
            Tab::Activity => "activity",
            Tab::Stories => "stories",
            Tab::Diff => "diff",
            Tab::Checks => "checks",
            Tab::Report => "report",
        }
    }

    pub fn place(self) -> Place {
        match self {
            Tab::Activity => Place::Activity,
            Tab::Stories => Place::Stories,
            Tab::Diff => Place::Diff,
            Tab::Checks => Place::Checks,
            Tab::Report => Place::Report,
        }
    }

    fn step(self, by: usize) -> Tab {
        let at = Tab::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Tab::ALL[(at + by) % Tab::ALL.len()]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    Run(String),
    /// The line that opens older runs.
    Older,
}

/// The position in a transcript. Without a top line, the end is shown and followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActivityScroll {
    pub top: Option<(u64, u16)>,
    /// Items that came since following stopped.
    pub new_items: usize,
}

impl ActivityScroll {
    pub fn is_following(&self) -> bool {
        self.top.is_none()
    }
}

/// A remark in the footer until the next key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub text: String,
    pub is_failure: bool,
}

/// The list of runs: what is selected and shown of it.
#[derive(Debug, Default)]
pub struct Fleet {
    pub selection: Option<Selection>,
    pub older_open: bool,
    pub filter: Option<Filter>,
}

/// A list with the text of its chosen entry.
#[derive(Debug, Default)]
pub struct ListPage {
    pub at: usize,
    pub scroll: usize,
}

#[derive(Debug, Default)]
pub struct ChecksPage {
    pub at: usize,
    /// The iteration whose output is shown; `None` for the current or else the last failure.
    pub iteration: Option<u32>,
    /// `None` shows the end of the output.
    pub scroll: Option<usize>,
    pub whole_output: bool,
}

impl ListPage {
    fn choose(&mut self, at: usize) {
        *self = ListPage { at, scroll: 0 };
    }
}

impl ChecksPage {
    fn choose(&mut self, at: usize) {
        (self.at, self.iteration, self.scroll) = (at, None, None);
    }
}

/// Positions in the tabs of a run. Another run starts anew.
#[derive(Debug, Default)]
pub struct Pages {
    pub activity: ActivityScroll,
    pub stories: ListPage,
    pub diff: ListPage,
    pub checks: ChecksPage,
    pub report_scroll: usize,
}

#[derive(Debug, Default)]
pub struct Model {
    pub screen: Screen,
    pub fleet: Fleet,
    pub tab: Tab,
    pub pages: Pages,
    pub search: Option<Search>,
    pub dialog: Option<Dialog>,
    pub note: Option<Note>,
    pub requests: Vec<PendingRequest>,
    /// Texts that were not sent, by run and dialog.
    drafts: HashMap<(String, &'static str), String>,
    /// Where the last click was, for double clicks.
    last_click: Option<(i64, Target)>,
    /// For new runs.
    pub directory: PathBuf,
    /// As drawn last.
    pub layout: Layout,
}

#[derive(Debug)]
pub enum Message {
    Key(Key),
    Paste(String),
    Mouse {
        action: MouseAction,
        at: Position,
    },
    /// The monitor noticed something, or a second has passed.
    DataChanged,
    /// Items that were added at the end of the transcript.
    NewItems(usize),
    /// An effect has ended. `Err` is the message for a person.
    Done {
        request: RequestKind,
        run: String,
        result: Result<(), String>,
    },
    Started(Result<StartedRun, String>),
    /// The launcher has ended; `Ok` says whether the run works now.
    Resumed {
        run: String,
        result: Result<bool, String>,
    },
    /// The text from `$EDITOR`.
    Edited(Result<String, String>),
    Hits {
        hits: Vec<u64>,
        is_running: bool,
    },
    /// Something else went wrong, or right.
    Note(Note),
}

/// An order to [`app`](crate::app).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Quit,
    /// Ctrl+Z.
    Suspend,
    Tell {
        run: String,
        text: String,
        delivery: Delivery,
    },
    Answer {
        run: String,
        question: String,
        text: String,
    },
    Pause(String),
    Resume(String),
    Stop {
        run: String,
        now: bool,
    },
    Start(NewRun),
    Attach(String),
    OpenReport(String),
    Copy(String),
    Edit(String),
    /// Reads runs from before yesterday.
    LoadOlderRuns,
    LoadEarlier,
    LoadLater,
    GoToEnd,
    GoToStart,
    GoToItem(u64),
    GoToIteration(u32),
    Search(String),
}

impl Model {
    pub fn new(directory: PathBuf, run: Option<String>) -> Model {
        let screen = if run.is_some() { Screen::Run } else { Screen::Fleet };
        let selection = run.map(Selection::Run);
        let fleet = Fleet { selection, ..Fleet::default() };
        Model { directory, screen, fleet, ..Model::default() }
    }

    /// The run of the preview or the run page.
    pub fn shown_run(&self) -> Option<&str> {
        match &self.fleet.selection {
            Some(Selection::Run(id)) => Some(id),
            _ => None,
        }
    }

    pub fn matches(&self, card: &RunCard) -> bool {
        let Some(filter) = &self.fleet.filter else { return true };
        let wanted = filter.field.text().to_lowercase();
        [&card.name, &card.project].iter().any(|text| text.to_lowercase().contains(&wanted))
    }

    pub(crate) fn selected_line(&self, lines: &[FleetLine<'_>]) -> Option<usize> {
        let selection = self.fleet.selection.as_ref()?;
        lines.iter().position(|line| line.selection().as_ref() == Some(selection))
    }

    pub fn update(&mut self, message: Message, data: &Data<'_>) -> Vec<Effect> {
        let shown = self.shown_run().map(ToOwned::to_owned);
        let effects = match message {
            Message::Key(key) => self.press(key, data),
            Message::Paste(text) => {
                self.paste(&text);
                Vec::new()
            }
            Message::Mouse { action, at } => self.mouse(action, at, data),
            Message::DataChanged => Vec::new(),
            Message::NewItems(count) => {
                if !self.pages.activity.is_following() {
                    self.pages.activity.new_items += count;
                }
                Vec::new()
            }
            Message::Done { request, run, result } => {
                self.action_done(request, &run, result, data);
                Vec::new()
            }
            Message::Started(result) => {
                self.run_started(result, data);
                Vec::new()
            }
            Message::Resumed { run, result } => {
                self.resumed(&run, result, data);
                Vec::new()
            }
            Message::Edited(result) => {
                self.text_edited(result);
                Vec::new()
            }
            Message::Hits { hits, is_running } => self.found(hits, is_running),
            Message::Note(note) => {
                self.note = Some(note);
                Vec::new()
            }
        };
        self.settle_requests(data);
        self.close_orphaned_dialog(data);
        self.keep_selection(data);
        if self.shown_run() != shown.as_deref() {
            self.pages = Pages::default();
            self.search = None;
        }
        effects
    }

    fn press(&mut self, key: Key, data: &Data<'_>) -> Vec<Effect> {
        self.note = None;
        // These two also work in dialogs.
        match key {
            Key::Ctrl('c') => return vec![Effect::Quit],
            Key::Ctrl('z') => return vec![Effect::Suspend],
            _ => {}
        }
        if self.layout.is_too_small {
            return match key {
                Key::Char('q') => vec![Effect::Quit],
                _ => Vec::new(),
            };
        }
        if self.dialog.is_some() {
            return self.press_in_dialog(key, data);
        }
        if self.search.as_ref().is_some_and(|search| search.is_typing) {
            return self.type_search(key);
        }
        if self.fleet.filter.as_ref().is_some_and(|filter| filter.is_typing) {
            self.type_filter(key);
            return Vec::new();
        }
        match keys::command_for(key) {
            Some(command) => self.command(command, data),
            None => Vec::new(),
        }
    }

    pub(crate) fn command(&mut self, command: Command, data: &Data<'_>) -> Vec<Effect> {
        match command {
            Command::Quit => return vec![Effect::Quit],
            Command::Suspend => return vec![Effect::Suspend],
            Command::Help => self.dialog = Some(Dialog::Help { scroll: 0 }),
            Command::New => self.open_new_run(data),
            Command::Filter => self.open_filter(),
            _ if !data.has_runs() => self.say("There are no runs yet. Press n to start one."),
            Command::Search => self.open_search(),
            Command::Open => return self.open(data),
            Command::Back => self.back(),
            Command::NextTab => self.show_tab(self.tab.step(1)),
            Command::PreviousTab => self.show_tab(self.tab.step(Tab::ALL.len() - 1)),
            Command::Tab(at) => self.show_tab(Tab::ALL[at.min(Tab::ALL.len() - 1)]),
            Command::Up
            | Command::Down
            | Command::PageUp
            | Command::PageDown
            | Command::First
            | Command::Last => {
                return self.movement(command, data);
            }
            Command::Before => return self.step_section(false, data),
            Command::After => return self.step_section(true, data),
            Command::Tell => self.open_tell(data),
            Command::Answer => self.open_answer(data),
            Command::Pause => return self.pause(data),
            Command::Resume => return self.resume(data),
            Command::Stop => self.open_stop(data),
            Command::Attach | Command::Report | Command::CopyId => {
                return self.look_elsewhere(command, data);
            }
        }
        Vec::new()
    }

    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.note = Some(Note { text: text.into(), is_failure: false });
    }

    fn show_tab(&mut self, tab: Tab) {
        if self.screen == Screen::Fleet && !self.layout.is_wide {
            self.screen = Screen::Run;
        }
        self.tab = tab;
        self.search = None;
    }

    fn open(&mut self, data: &Data<'_>) -> Vec<Effect> {
        match (&self.fleet.selection, self.screen, self.tab) {
            (Some(Selection::Older), Screen::Fleet, _) => {
                self.open_older(data);
                return vec![Effect::LoadOlderRuns];
            }
            (Some(Selection::Run(_)), Screen::Fleet, _) => self.screen = Screen::Run,
            (_, Screen::Run, Tab::Stories) => {
                // Which files belong to a story is not known: it is the diff of the run.
                self.show_tab(Tab::Diff);
            }
            (_, Screen::Run, Tab::Checks) => {
                self.pages.checks.whole_output = !self.pages.checks.whole_output;
                self.pages.checks.scroll = None;
            }
            _ => {}
        }
        Vec::new()
    }

    /// Shows older runs, and selects the first of them.
    fn open_older(&mut self, data: &Data<'_>) {
        let lines = fleet_lines(data, self, self.layout.fleet_height, self.layout.is_spaced);
        let last = lines.iter().rev().find_map(|line| match line {
            FleetLine::Card(card) => Some(&card.id),
            _ => None,
        });
        let mut cards = data.overview.cards().skip_while(|card| Some(&card.id) != last);
        let next = cards.nth(1).map(|card| &card.id).or(last);
        self.fleet.selection = next.map(|id| Selection::Run(id.clone()));
        self.fleet.older_open = true;
    }

    fn back(&mut self) {
        match () {
            () if self.search.is_some() => self.search = None,
            () if self.screen == Screen::Run && self.pages.checks.whole_output => {
                self.pages.checks.whole_output = false
            }
            () if self.screen == Screen::Run => self.screen = Screen::Fleet,
            () if self.fleet.filter.is_some() => self.fleet.filter = None,
            () if self.fleet.older_open => self.fleet.older_open = false,
            () => self.say("Press q to leave. Runs continue."),
        }
    }

    /// Selects the first run if nothing is selected, or if the selected one is gone.
    fn keep_selection(&mut self, data: &Data<'_>) {
        let exists = match &self.fleet.selection {
            Some(Selection::Run(id)) => {
                data.card(id).is_some_and(|card| self.matches(card) || self.screen == Screen::Run)
            }
            Some(Selection::Older) => !self.fleet.older_open && self.fleet.filter.is_none(),
            None => false,
        };
        if !exists {
            let first = data.overview.cards().find(|card| self.matches(card));
            self.fleet.selection = match first {
                Some(card) => Some(Selection::Run(card.id.clone())),
                None => {
                    let is_listed = !self.fleet.older_open && self.fleet.filter.is_none();
                    (data.overview.older > 0 && is_listed).then_some(Selection::Older)
                }
            };
            if self.fleet.selection.is_none() {
                self.screen = Screen::Fleet;
            }
        }
    }
}
