//! The key map: one table for dispatch, footer and help.

use crate::input::Key;

/// The command behind a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    NextTab,
    PreviousTab,
    Tab(usize),
    Before,
    After,
    Search,
    Filter,
    Tell,
    Answer,
    Pause,
    Resume,
    Stop,
    New,
    Attach,
    Report,
    CopyId,
    Help,
    Suspend,
    Quit,
}

/// A place with its own footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Fleet,
    /// The fleet beside a run.
    Wide,
    NoRuns,
    Activity,
    Stories,
    Diff,
    Checks,
    Report,
}

use Place::{Activity, Checks, Diff, Fleet, NoRuns, Report, Stories, Wide};

const RUN: &[Place] = &[Activity, Stories, Diff, Checks, Report];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyGroup {
    Move,
    Find,
    Steer,
    Elsewhere,
    Leave,
}

impl KeyGroup {
    pub const ALL: [KeyGroup; 5] =
        [KeyGroup::Move, KeyGroup::Find, KeyGroup::Steer, KeyGroup::Elsewhere, KeyGroup::Leave];

    pub fn title(self) -> &'static str {
        match self {
            KeyGroup::Move => "move",
            KeyGroup::Find => "find",
            KeyGroup::Steer => "steer",
            KeyGroup::Elsewhere => "look elsewhere",
            KeyGroup::Leave => "leave",
        }
    }
}

/// Keys that belong together, as the help lists them.
#[derive(Debug)]
pub struct Binding {
    pub keys: &'static [(Key, Command)],
    pub section: KeyGroup,
    /// How the help shows the keys.
    pub label: &'static str,
    pub help: &'static str,
    pub footer: &'static [Footer],
}

/// An entry of the footer in some places.
#[derive(Debug)]
pub struct Footer {
    pub places: &'static [Place],
    pub label: &'static str,
    pub word: &'static str,
    /// The position from left to right.
    order: u8,
    /// Entries with the highest number go first when the line is too long.
    drop: u8,
}

const fn footer(
    places: &'static [Place],
    label: &'static str,
    word: &'static str,
    order: u8,
    drop: u8,
) -> Footer {
    Footer { places, label, word, order, drop }
}

pub const BINDINGS: &[Binding] = &[
    Binding {
        keys: &[
            (Key::Up, Command::Up),
            (Key::Down, Command::Down),
            (Key::Char('j'), Command::Down),
            (Key::Char('k'), Command::Up),
        ],
        section: KeyGroup::Move,
        label: "↑ ↓  j k",
        help: "select, scroll",
        footer: &[
            footer(&[Fleet, Wide], "↑↓", "move", 1, 2),
            footer(&[Activity, Report], "↑↓", "scroll", 5, 2),
            footer(&[Stories], "↑↓", "story", 5, 2),
            footer(&[Diff], "↑↓", "file", 5, 2),
            footer(&[Checks], "↑↓", "check", 5, 2),
        ],
    },
    Binding {
        keys: &[(Key::PageUp, Command::PageUp), (Key::PageDown, Command::PageDown)],
        section: KeyGroup::Move,
        label: "PgUp PgDn",
        help: "a page",
        footer: &[footer(&[Diff], "PgUp PgDn", "scroll", 6, 5)],
    },
    Binding {
        keys: &[
            (Key::Char('g'), Command::First),
            (Key::Home, Command::First),
            (Key::Char('G'), Command::Last),
            (Key::End, Command::Last),
        ],
        section: KeyGroup::Move,
        label: "g  G",
        help: "first, last (G follows the run)",
        footer: &[footer(&[Activity], "G", "follow", 8, 5)],
    },
    Binding {
        keys: &[(Key::Enter, Command::Open)],
        section: KeyGroup::Move,
        label: "Enter",
        help: "open",
        footer: &[
            footer(&[Fleet], "Enter", "open", 2, 2),
            footer(&[Wide], "Enter", "into the run", 2, 2),
            footer(&[Stories], "Enter", "diff", 8, 5),
            footer(&[Checks], "Enter", "whole output", 8, 5),
        ],
    },
    Binding {
        keys: &[(Key::Esc, Command::Back)],
        section: KeyGroup::Move,
        label: "Esc",
        help: "back",
        footer: &[footer(RUN, "Esc", "back", 40, 1)],
    },
    Binding {
        keys: &[(Key::Tab, Command::NextTab), (Key::BackTab, Command::PreviousTab)],
        section: KeyGroup::Move,
        label: "Tab  Shift-Tab",
        help: "next, previous tab",
        footer: &[footer(RUN, "Tab", "next tab", 3, 2), footer(&[Wide], "Tab", "next tab", 3, 7)],
    },
    Binding {
        keys: &[
            (Key::Char('1'), Command::Tab(0)),
            (Key::Char('2'), Command::Tab(1)),
            (Key::Char('3'), Command::Tab(2)),
            (Key::Char('4'), Command::Tab(3)),
            (Key::Char('5'), Command::Tab(4)),
        ],
        section: KeyGroup::Move,
        label: "1 … 5",
        help: "a tab by its number",
        footer: &[],
    },
    Binding {
        keys: &[(Key::Char('['), Command::Before), (Key::Char(']'), Command::After)],
        section: KeyGroup::Move,
        label: "[  ]",
        help: "previous, next iteration",
        footer: &[
            footer(&[Activity, Checks], "[ ]", "iteration", 7, 6),
            footer(&[Wide], "[ ]", "iteration", 7, 8),
            footer(&[Diff], "[ ]", "change", 7, 6),
        ],
    },
    Binding {
        keys: &[(Key::Char('/'), Command::Search)],
        section: KeyGroup::Find,
        label: "/",
        help: "search; ↓ ↑ next, previous hit",
        footer: &[
            footer(&[Fleet, Wide], "/", "search", 30, 8),
            footer(&[Activity, Diff, Checks, Report], "/", "search", 9, 4),
        ],
    },
    Binding {
        keys: &[(Key::Char('f'), Command::Filter)],
        section: KeyGroup::Find,
        label: "f",
        help: "filter runs by name, project",
        footer: &[],
    },
    Binding {
        keys: &[(Key::Char('i'), Command::Tell)],
        section: KeyGroup::Steer,
        label: "i",
        help: "tell the agent something",
        footer: &[footer(&[Fleet, Wide, Activity, Stories, Checks, Report], "i", "tell", 21, 2)],
    },
    Binding {
        keys: &[(Key::Char('a'), Command::Answer)],
        section: KeyGroup::Steer,
        label: "a",
        help: "answer its question",
        footer: &[footer(&[Fleet, Wide, Activity], "a", "answer", 20, 2)],
    },
    Binding {
        keys: &[(Key::Char('p'), Command::Pause)],
        section: KeyGroup::Steer,
        label: "p",
        help: "pause after this iteration",
        footer: &[footer(&[Fleet, Wide, Activity], "p", "pause", 22, 4)],
    },
    Binding {
        keys: &[(Key::Char('r'), Command::Resume)],
        section: KeyGroup::Steer,
        label: "r",
        help: "resume",
        footer: &[footer(&[Fleet, Wide, Activity], "r", "resume", 23, 6)],
    },
    Binding {
        keys: &[(Key::Char('x'), Command::Stop)],
        section: KeyGroup::Steer,
        label: "x",
        help: "stop (asks first)",
        footer: &[footer(&[Fleet, Wide, Activity], "x", "stop", 24, 2)],
    },
    Binding {
        keys: &[(Key::Char('n'), Command::New)],
        section: KeyGroup::Steer,
        label: "n",
        help: "new run",
        footer: &[
            footer(&[Fleet, Wide], "n", "new", 25, 5),
            footer(&[NoRuns], "n", "new run", 25, 1),
        ],
    },
    Binding {
        keys: &[(Key::Char('t'), Command::Attach)],
        section: KeyGroup::Elsewhere,
        label: "t",
        help: "attach to the tmux window",
        footer: &[footer(&[Wide], "t", "tmux", 26, 9)],
    },
    Binding {
        keys: &[(Key::Char('o'), Command::Report)],
        section: KeyGroup::Elsewhere,
        label: "o",
        help: "report in a browser",
        footer: &[
            footer(&[Fleet, Wide], "o", "report", 27, 7),
            footer(&[Report], "o", "in a browser", 27, 3),
        ],
    },
    Binding {
        keys: &[(Key::Char('y'), Command::CopyId)],
        section: KeyGroup::Elsewhere,
        label: "y",
        help: "copy the run id",
        footer: &[],
    },
    Binding {
        keys: &[(Key::Char('?'), Command::Help)],
        section: KeyGroup::Leave,
        label: "?",
        help: "this help",
        footer: &[
            footer(&[Fleet, Wide, NoRuns], "?", "help", 41, 0),
            footer(RUN, "?", "help", 41, 0),
        ],
    },
    Binding {
        keys: &[(Key::Char('q'), Command::Quit), (Key::Ctrl('c'), Command::Quit)],
        section: KeyGroup::Leave,
        label: "q  Ctrl-C",
        help: "close this screen",
        footer: &[footer(&[Fleet, Wide, NoRuns], "q", "quit", 42, 3)],
    },
    Binding {
        keys: &[(Key::Ctrl('z'), Command::Suspend)],
        section: KeyGroup::Leave,
        label: "Ctrl-Z",
        help: "suspend; fg continues",
        footer: &[],
    },
];

pub fn command_for(key: Key) -> Option<Command> {
    let keys = BINDINGS.iter().flat_map(|binding| binding.keys);
    keys.copied().find(|(bound, _)| *bound == key).map(|(_, command)| command)
}

/// A footer entry with the command that a click on it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FooterEntry {
    pub label: &'static str,
    pub word: &'static str,
    pub command: Command,
}

impl FooterEntry {
    pub fn width(&self) -> usize {
        ralph_report::width::display_width(self.label) + 1 + self.word.len()
    }
}

/// The entries of a place that work now and fit into one line.
pub fn footer_entries(
    place: Place,
    width: usize,
    works: impl Fn(Command) -> bool,
) -> Vec<FooterEntry> {
    let mut entries: Vec<(u8, u8, FooterEntry)> = BINDINGS
        .iter()
        .flat_map(|binding| {
            let command = binding.keys.first().map_or(Command::Help, |(_, command)| *command);
            binding.footer.iter().filter(|footer| footer.places.contains(&place)).map(
                move |Footer { label, word, order, drop, .. }| {
                    // `G` follows; its neighbour `g` is listed first.
                    let command = if *label == "G" { Command::Last } else { command };
                    (*order, *drop, FooterEntry { label, word, command })
                },
            )
        })
        .filter(|(_, _, entry)| works(entry.command))
        .collect();
    entries.sort_by_key(|(order, ..)| *order);
    let total = |entries: &[(u8, u8, FooterEntry)]| -> usize {
        entries.iter().map(|(_, _, entry)| entry.width() + 2).sum::<usize>().saturating_sub(2)
    };
    while total(&entries) > width && entries.len() > 1 {
        // Of those that go first, the rightmost.
        let last = entries.iter().enumerate().max_by_key(|(at, (_, drop, _))| (*drop, *at));
        let Some(at) = last.map(|(at, _)| at) else { break };
        entries.remove(at);
    }
    entries.into_iter().map(|(_, _, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(place: Place, width: usize) -> String {
        let entries = footer_entries(place, width, |_| true);
        let words: Vec<_> =
            entries.iter().map(|entry| format!("{} {}", entry.label, entry.word)).collect();
        words.join("  ")
    }

    #[test]
    fn every_key_has_one_meaning() {
        let keys: Vec<Key> =
            BINDINGS.iter().flat_map(|binding| binding.keys).map(|(key, _)| *key).collect();
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[at + 1..].contains(key), "{key:?} twice");
        }
        assert_eq!(command_for(Key::Ctrl('c')), Some(Command::Quit));
        assert_eq!(command_for(Key::Char('z')), None);
    }

    #[test]
    fn footer_drops_entries_in_order() {
        assert_eq!(
            line(Fleet, 118),
            "↑↓ move  Enter open  a answer  i tell  p pause  r resume  x stop  n new  o report  \
             / search  ? help  q quit"
        );
        assert_eq!(
            line(Fleet, 78),
            "↑↓ move  Enter open  a answer  i tell  p pause  x stop  n new  ? help  q quit"
        );
        assert_eq!(line(Fleet, 58), "↑↓ move  Enter open  a answer  i tell  x stop  ? help");
        assert_eq!(
            line(Wide, 198),
            "↑↓ move  Enter into the run  Tab next tab  [ ] iteration  a answer  i tell  p pause  \
             r resume  x stop  n new  t tmux  o report  / search  ? help  q quit"
        );
        assert_eq!(line(NoRuns, 78), "n new run  ? help  q quit");
        assert_eq!(
            line(Activity, 118),
            "Tab next tab  ↑↓ scroll  [ ] iteration  G follow  / search  a answer  i tell  \
             p pause  x stop  Esc back  ? help"
        );
        assert_eq!(
            line(Stories, 118),
            "Tab next tab  ↑↓ story  Enter diff  i tell  Esc back  ? help"
        );
        assert_eq!(
            line(Diff, 118),
            "Tab next tab  ↑↓ file  PgUp PgDn scroll  [ ] change  / search  Esc back  ? help"
        );
        assert_eq!(
            line(Checks, 118),
            "Tab next tab  ↑↓ check  [ ] iteration  Enter whole output  / search  i tell  \
             Esc back  ? help"
        );
        assert!(line(Activity, 58).ends_with("Esc back  ? help"), "{}", line(Activity, 58));
    }
}
