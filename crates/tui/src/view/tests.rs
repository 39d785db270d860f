//! Whole screens of the invented evening, compared with files.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use ralph_monitor::Monitor;
use ralph_monitor::diff::{DiffFile, DiffLine, FileDiff, FileStatus, Hunk, LineKind, RunDiff};
use ralph_monitor::sample::{self, NOW_MS, SampleEvening};

use crate::input::Key;
use crate::model::{Effect, Message, Model};
use crate::source::{ReadResult, Source};
use crate::theme::{Capabilities, Theme};
use crate::view;

const UNICODE: Capabilities = Capabilities { color: true, true_color: true, unicode: true };

/// The evening on a screen that is not a terminal.
pub(crate) struct Evening {
    pub(crate) source: Source,
    pub(crate) model: Model,
    pub(crate) effects: Vec<Effect>,
    capabilities: Capabilities,
    size: (u16, u16),
    now_ms: i64,
    files: (SampleEvening, tempfile::TempDir),
}

impl Evening {
    pub(crate) fn new(width: u16, height: u16) -> Evening {
        Evening::written(|home, projects| sample::write(home, projects).unwrap(), width, height)
    }

    /// With the work tree of the first run, which takes git some time.
    pub(crate) fn with_repository(width: u16, height: u16) -> Evening {
        let write =
            |home: &Path, projects: &Path| sample::write_with_repository(home, projects).unwrap();
        Evening::written(write, width, height)
    }

    /// Before older runs are read.
    pub(crate) fn unread(width: u16, height: u16) -> Evening {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let files = sample::write(&home, &dir.path().join("projects")).unwrap();
        Evening::open(&home, width, height, (files, dir))
    }

    fn written(
        write: impl FnOnce(&Path, &Path) -> SampleEvening,
        width: u16,
        height: u16,
    ) -> Evening {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let files = write(&home, &dir.path().join("projects"));
        let mut evening = Evening::open(&home, width, height, (files, dir));
        // Older runs are read by a thread.
        evening.source.monitor.load_since(NOW_MS - 14 * 24 * 3600 * 1000);
        while evening.source.monitor.is_reading() {
            evening.source.monitor.wait(None);
            evening.source.update(NOW_MS);
        }
        evening.send(Message::DataChanged);
        evening
    }

    fn open(
        home: &Path,
        width: u16,
        height: u16,
        files: (SampleEvening, tempfile::TempDir),
    ) -> Evening {
        let monitor = Monitor::open(home, TimeZone::UTC, NOW_MS).unwrap();
        let source = Source::new(monitor, NOW_MS);
        let model = Model::new(PathBuf::from("/work"), None);
        let mut evening = Evening {
            source,
            model,
            effects: Vec::new(),
            capabilities: UNICODE,
            size: (width, height),
            now_ms: NOW_MS,
            files,
        };
        evening.send(Message::DataChanged);
        evening
    }

    pub(crate) fn send(&mut self, message: Message) {
        let effects = self.model.update(message, &self.source.data());
        for effect in &effects {
            if let Some(window) = self.source.window() {
                match effect {
                    Effect::LoadEarlier => drop(window.load_earlier().unwrap()),
                    Effect::LoadLater => drop(window.load_later().unwrap()),
                    Effect::GoToStart => window.go_to_start().unwrap(),
                    Effect::GoToEnd => window.go_to_end().unwrap(),
                    Effect::GoToItem(id) => window.go_to(*id).unwrap(),
                    _ => {}
                }
            }
        }
        self.effects.extend(effects);
        self.screen();
        if let Some(hits) = self.model.take_page_hits() {
            self.send(Message::Hits { hits, is_running: false });
        }
    }

    pub(crate) fn keys(&mut self, keys: &[Key]) {
        for key in keys {
            self.send(Message::Key(*key));
        }
    }

    pub(crate) fn press(&mut self, text: &str) {
        for c in text.chars() {
            self.send(Message::Key(Key::Char(c)));
        }
    }

    pub(crate) fn wait_ms(&mut self, ms: i64) {
        self.now_ms += ms;
        self.source.set_time(self.now_ms);
        self.send(Message::DataChanged);
    }

    /// The processes of all runs are gone.
    pub(crate) fn release_locks(&mut self) {
        self.files.0.release_locks();
        let home = self.files.1.path().join("home");
        // A child that another test has just forked may hold them for a moment.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let monitor = Monitor::open(&home, TimeZone::UTC, NOW_MS).unwrap();
            self.source = Source::new(monitor, NOW_MS);
            let is_alive = self.source.data().overview.cards().any(|card| card.is_alive);
            if !is_alive || std::time::Instant::now() > deadline {
                break;
            }
        }
        self.send(Message::DataChanged);
    }

    /// The work tree of the first run.
    pub(crate) fn repository(&self) -> PathBuf {
        self.files.1.path().join("projects/shop-api")
    }

    pub(crate) fn resize(&mut self, width: u16, height: u16) {
        self.size = (width, height);
        self.screen();
    }

    /// The screen as text, without blanks at the ends of lines.
    pub(crate) fn screen(&mut self) -> String {
        while let Some(job) = self.source.prepare(&self.model) {
            self.source.take_read(job.run());
        }
        let theme = Theme::new(self.capabilities, Some([0x0f, 0x14, 0x13]));
        let backend = TestBackend::new(self.size.0, self.size.1);
        let mut terminal = Terminal::new(backend).unwrap();
        let (model, data) = (&self.model, self.source.data());
        let mut layout = None;
        terminal
            .draw(|frame| layout = Some(view::draw(model, &data, theme, frame.buffer_mut()).0))
            .unwrap();
        self.model.layout = layout.unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(self.size.0));
        rows.map(|row| {
            let mut text = String::new();
            let mut skip = 0;
            for cell in row {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                text.push_str(cell.symbol());
                skip = ralph_report::width::display_width(cell.symbol()).saturating_sub(1);
            }
            format!("{}\n", text.trim_end())
        })
        .collect()
    }
}

impl Evening {
    fn buffer(&mut self, background: [u8; 3]) -> ratatui_core::buffer::Buffer {
        self.screen();
        let theme = Theme::new(self.capabilities, Some(background));
        let area = ratatui_core::layout::Rect::new(0, 0, self.size.0, self.size.1);
        let mut buffer = ratatui_core::buffer::Buffer::empty(area);
        view::draw(&self.model, &self.source.data(), theme, &mut buffer);
        buffer
    }
}

/// A page for each screen, on a dark and a light background, to take pictures of.
#[test]
#[ignore = "writes files for pictures"]
fn write_screens_as_html() {
    let target = std::env::var_os("SCREENS_DIR").map(PathBuf::from).unwrap();
    let mut evening = Evening::with_repository(120, 36);
    let save = |evening: &mut Evening, name: &str| {
        for (theme, background) in [("dark", [0x0f, 0x14, 0x13]), ("light", [0xf7, 0xf9, 0xf8])] {
            let page = html_page(&evening.buffer(background), background);
            std::fs::write(target.join(format!("ui-{name}-{theme}.html")), page).unwrap();
        }
    };
    save(&mut evening, "fleet");
    evening.press("x");
    save(&mut evening, "stop");
    evening.keys(&[Key::Esc, Key::Enter]);
    let tabs =
        [("1", "activity"), ("2jjj", "stories"), ("3", "diff"), ("4jj", "checks"), ("5", "report")];
    for (tab, name) in tabs {
        evening.press(tab);
        save(&mut evening, name);
    }
    evening.press("1iUse the words of the style guide for error pages.");
    save(&mut evening, "tell");
    evening.keys(&[Key::Esc, Key::Esc]);
    evening.resize(200, 60);
    save(&mut evening, "wide");
}

fn html_page(buffer: &ratatui_core::buffer::Buffer, [r, g, b]: [u8; 3]) -> String {
    use ratatui_core::style::{Color, Modifier};
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><body style='margin:12px;background:rgb({r},{g},{b})'>\
         <pre style='font:16px/20px \"DejaVu Sans Mono\",monospace;margin:0'>"
    );
    for row in buffer.content().chunks(usize::from(buffer.area.width)) {
        for cell in row {
            let color = |color: Color| match color {
                Color::Rgb(r, g, b) => format!("rgb({r},{g},{b})"),
                _ => "inherit".to_owned(),
            };
            let weight = if cell.modifier.contains(Modifier::BOLD) { "bold" } else { "normal" };
            let symbol = cell.symbol().replace('&', "&amp;").replace('<', "&lt;");
            page.push_str(&format!(
                "<span style='color:{};background:{};font-weight:{weight}'>{symbol}</span>",
                color(cell.fg),
                color(cell.bg)
            ));
        }
        page.push('\n');
    }
    page
}

fn golden(name: &str, screen: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, screen).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(screen == expected, "{name} differs (UPDATE_GOLDEN=1 writes it):\n{screen}");
}

#[test]
fn golden_fleet_in_every_size() {
    let mut evening = Evening::new(60, 20);
    for (width, height) in [(60, 20), (80, 24), (120, 36), (200, 60), (40, 8), (10, 3)] {
        evening.resize(width, height);
        golden(&format!("fleet-{width}x{height}"), &evening.screen());
    }
}

#[test]
fn golden_fleet_ascii() {
    let mut evening = Evening::new(80, 24);
    evening.capabilities.unicode = false;
    golden("fleet-ascii-80x24", &evening.screen());
}

#[test]
fn golden_run_tabs() {
    let mut evening = Evening::new(120, 36);
    evening.keys(&[Key::Enter]);
    golden("run-activity-120x36", &evening.screen());
    evening.press("2jjj");
    golden("run-stories-120x36", &evening.screen());
    evening.press("4jj");
    golden("run-checks-120x36", &evening.screen());
    evening.press("5");
    golden("run-report-120x36", &evening.screen());
    evening.resize(60, 20);
    for (tab, name) in [("1", "activity"), ("2", "stories"), ("4", "checks")] {
        evening.press(tab);
        golden(&format!("run-{name}-60x20"), &evening.screen());
    }
}

/// Characters that are hard to draw; the sample has none.
fn sample_diff() -> (RunDiff, FileDiff) {
    let rows = "M src/reset/link.rs 14 3,A templates/expired.html 22 0,A tests/reset/link.rs 57 0,\
                A src/reset/mail.rs 121 0,M src/reset/mod.rs 38 11,A src/reset/set.rs 96 0,\
                A src/reset/token.rs 88 0,M src/routes.rs 12 4,A templates/reset.html 41 0,\
                M templates/mail/base.txt 6 9,M tests/reset/mod.rs 31 2,A e2e/reset.spec.ts 74 0,\
                M Cargo.toml 2 0,M Cargo.lock 10 58";
    let file = |(at, row): (usize, &str)| {
        let words: Vec<&str> = row.split(' ').collect();
        let status = if words[0] == "A" { FileStatus::Added } else { FileStatus::Modified };
        let (added, removed) = (words[2].parse().unwrap(), words[3].parse().unwrap());
        let path = words[1].to_owned();
        DiffFile { path, status, added, removed, is_committed: at > 2, ..DiffFile::default() }
    };
    let files: Vec<DiffFile> = rows.split(',').enumerate().map(file).collect();
    let diff = RunDiff { files, added: 612, removed: 87, commits: 4, ..RunDiff::default() };
    let line = |kind, old, new, text: &str| DiffLine { kind, old, new, text: text.to_owned() };
    let lines = vec![
        line(LineKind::Context, Some(59), Some(59), "        let token = self.token()?;"),
        line(LineKind::Removed, Some(60), None, "        if token.age(now) > DAY {"),
        line(LineKind::Added, None, Some(60), "        let age = token.age(now);"),
        line(LineKind::Added, None, Some(61), "\tif age > DAY { // \u{65e5}\u{672c}"),
        line(LineKind::Context, Some(61), Some(62), "        token.owner()"),
    ];
    let section = "impl Link".to_owned();
    let hunk = Hunk { old_start: 58, new_start: 58, new_lines: 12, section, lines };
    (diff, FileDiff { hunks: vec![hunk], omitted: 3 })
}

#[test]
fn golden_diff() {
    let mut evening = Evening::with_repository(120, 36);
    evening.press("3");
    golden("run-diff-120x36", &evening.screen());
    evening.resize(60, 20);
    golden("run-diff-60x20", &evening.screen());
}

#[test]
fn every_size_can_be_drawn() {
    let mut evening = Evening::new(120, 36);
    evening.press("3");
    let id = evening.model.shown_run().unwrap().to_owned();
    let (diff, file) = sample_diff();
    let path = diff.files[0].path.clone();
    evening.source.take_read(ReadResult::Run { id: id.clone(), result: Ok(diff) });
    evening.screen();
    evening.source.take_read(ReadResult::File { id, path, result: Ok(file) });
    assert!(evening.screen().contains("if age > DAY { // \u{65e5}\u{672c}"));
    evening.press("]");
    assert_eq!(evening.model.note.as_ref().unwrap().text, "This is the last change.");
    for keys in ["", "1", "2", "3", "4", "5", "1i", "1a", "x", "n", "?", "/a", "fa"] {
        evening.model.dialog = None;
        (evening.model.search, evening.model.fleet.filter) = (None, None);
        evening.keys(&[Key::Esc]);
        evening.resize(80, 24);
        evening.press(keys);
        for width in (1..=240).step_by(29).chain([60, 63, 64, 79, 80, 95, 96, 118, 159, 160]) {
            for height in [1, 2, 3, 7, 19, 20, 21, 24, 36, 49, 50, 70] {
                evening.resize(width, height);
            }
        }
    }
}

#[test]
fn golden_dialogs() {
    let mut evening = Evening::new(120, 36);
    evening.press("?");
    golden("help-120x36", &evening.screen());
    evening.keys(&[Key::Esc]);
    evening.press("x");
    golden("stop-120x36", &evening.screen());
    evening.keys(&[Key::Esc, Key::Enter]);
    evening.press("a410, with the page. Change the three tests.");
    golden("question-120x36", &evening.screen());
    evening.keys(&[Key::Esc]);
    evening.press(
        "iUse the words of the style guide for error pages: say what happened, then what to do. \
         No exclamation marks.",
    );
    golden("tell-120x36", &evening.screen());
    evening.keys(&[Key::Esc]);
    evening.press("n");
    // The directory of the sample is another one each time.
    evening.keys(&[Key::BackTab, Key::BackTab, Key::Ctrl('u')]);
    evening.press("/home/ada/shop-api");
    evening.keys(&[Key::Tab, Key::Tab]);
    golden("new-run-120x36", &evening.screen());
    evening.resize(60, 20);
    golden("new-run-60x20", &evening.screen());
    for (key, name) in [("x", "stop"), ("i", "tell"), ("a", "question"), ("?", "help")] {
        evening.keys(&[Key::Esc]);
        evening.press(key);
        golden(&format!("{name}-60x20"), &evening.screen());
    }
}

#[test]
fn golden_no_runs() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    let files = sample::write(&dir.path().join("home"), &dir.path().join("projects")).unwrap();
    let mut evening = Evening::open(&empty, 80, 24, (files, dir));
    golden("no-runs-80x24", &evening.screen());
}
