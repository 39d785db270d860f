//! Moving: through the fleet, a list, or the text of a pane.

use ralph_events::run_state::IterationRecord;
use ralph_report::check_view::CheckView;

use super::{Effect, Model, Screen, Selection, Tab};
use crate::data::{Data, DiffState, RunData};
use crate::keys::Command;
use crate::view::{FleetLine, Target, fleet_lines};

/// Lines that one turn of the wheel moves.
const WHEEL_LINES: isize = 3;

impl Model {
    pub(super) fn movement(&mut self, command: Command, data: &Data<'_>) -> Vec<Effect> {
        if self.search.is_some() && matches!(command, Command::Up | Command::Down) {
            return self.step_hit(command == Command::Down);
        }
        if self.screen == Screen::Fleet {
            self.move_selection(command, data);
            return Vec::new();
        }
        let Some(run) = self.shown_run().and_then(|id| data.run(id)) else { return Vec::new() };
        let page = isize::try_from(self.layout.height.saturating_sub(1)).unwrap_or(1).max(1);
        let step = step_of(command, page);
        let is_page = matches!(command, Command::PageUp | Command::PageDown);
        let pages = &mut self.pages;
        match self.tab {
            Tab::Activity => return self.scroll_activity(step, run),
            Tab::Report => self.scroll_detail(step),
            Tab::Stories if is_page => self.scroll_detail(step),
            Tab::Diff if is_page => self.scroll_detail(step),
            Tab::Checks if is_page || pages.checks.whole_output => self.scroll_detail(step),
            Tab::Stories => {
                pages.stories.choose(moved(pages.stories.at, step, run.detail.stories.len()));
            }
            Tab::Diff => pages.diff.choose(moved(pages.diff.at, step, file_count(run))),
            Tab::Checks => {
                pages.checks.choose(moved(pages.checks.at, step, run.detail.checks.len()));
            }
        }
        Vec::new()
    }

    fn last_top(&self) -> usize {
        self.layout.total.saturating_sub(self.layout.height)
    }

    /// Scrolls the pane to a line.
    pub(super) fn show_line(&mut self, line: usize) {
        let top = isize::try_from(self.layout.top).unwrap_or(0);
        self.scroll_detail(isize::try_from(line).unwrap_or(isize::MAX).saturating_sub(top));
    }

    /// Scrolls the text beside or below a list.
    fn scroll_detail(&mut self, step: isize) {
        let (top, last) = (self.layout.top, self.last_top());
        match self.tab {
            Tab::Stories => scroll(&mut self.pages.stories.scroll, step, top, last),
            Tab::Diff => scroll(&mut self.pages.diff.scroll, step, top, last),
            Tab::Checks => {
                let mut at = top;
                scroll(&mut at, step, top, last);
                self.pages.checks.scroll = Some(at);
            }
            Tab::Report => scroll(&mut self.pages.report_scroll, step, top, last),
            Tab::Activity => {}
        }
    }

    /// Scrolling up stops following; reaching the end starts it again.
    fn scroll_activity(&mut self, step: isize, run: &RunData<'_>) -> Vec<Effect> {
        if step == isize::MAX {
            self.pages.activity = super::ActivityScroll::default();
            return if run.has_newer { vec![Effect::GoToEnd] } else { Vec::new() };
        }
        if step == isize::MIN && run.has_older {
            self.pages.activity.top = Some((0, 0));
            return vec![Effect::GoToStart];
        }
        let mut top = self.layout.top;
        scroll(&mut top, step, self.layout.top, self.last_top());
        let is_at_end = top >= self.last_top() && step > 0 && !run.has_newer;
        self.pages.activity.top =
            if is_at_end { None } else { self.layout.anchors.get(top).copied() };
        if is_at_end {
            self.pages.activity.new_items = 0;
        }
        match () {
            () if step < 0 && top < self.layout.height && run.has_older => {
                vec![Effect::LoadEarlier]
            }
            () if step > 0 && top >= self.last_top() && run.has_newer => vec![Effect::LoadLater],
            () => Vec::new(),
        }
    }

    fn move_selection(&mut self, command: Command, data: &Data<'_>) {
        let lines = fleet_lines(data, self, self.layout.fleet_height, self.layout.is_spaced);
        let lines: Vec<&FleetLine<'_>> =
            lines.iter().filter(|line| line.selection().is_some()).collect();
        if lines.is_empty() {
            return;
        }
        let at =
            lines.iter().position(|line| line.selection() == self.fleet.selection).unwrap_or(0);
        let page = isize::try_from(self.layout.fleet_height / 2).unwrap_or(1).max(1);
        let step = step_of(command, page);
        self.fleet.selection = lines[moved(at, step, lines.len())].selection();
    }

    /// `[` and `]`: an iteration, or a change of the diff.
    pub(super) fn step_section(&mut self, forward: bool, data: &Data<'_>) -> Vec<Effect> {
        let Some(run) = self.shown_run().and_then(|id| data.run(id)) else { return Vec::new() };
        match self.tab {
            Tab::Activity => self.step_iteration(forward, run),
            Tab::Diff => {
                let top = self.layout.top;
                let changes = &self.layout.changes;
                let next = match forward {
                    true => changes.iter().find(|at| **at > top),
                    false => changes.iter().rfind(|at| **at < top),
                };
                match next {
                    Some(at) => self.pages.diff.scroll = *at,
                    None => self.say(if forward {
                        "This is the last change."
                    } else {
                        "This is the first change."
                    }),
                }
                Vec::new()
            }
            Tab::Checks => {
                self.step_check(forward, run);
                Vec::new()
            }
            Tab::Stories | Tab::Report => {
                self.say("[ and ] move in activity, diff and checks.");
                Vec::new()
            }
        }
    }

    fn step_iteration(&mut self, forward: bool, run: &RunData<'_>) -> Vec<Effect> {
        let numbers: Vec<u32> =
            run.state.iterations.iter().map(|record: &IterationRecord| record.number).collect();
        let top = self.layout.anchors.get(self.layout.top).map_or(0, |anchor| anchor.0);
        let item = run.items.iter().rfind(|item| item.id <= top).or(run.items.first());
        let current = item.map_or(0, |item| item.iteration);
        // At its first line, the one before is meant; below, its own beginning.
        let is_at_start = item.is_some_and(|item| {
            item.id == top
                && matches!(item.kind, ralph_report::transcript::ItemKind::Iteration { .. })
        });
        let target = match forward {
            true => numbers.iter().find(|number| **number > current),
            false if is_at_start => numbers.iter().rfind(|number| **number < current),
            false => numbers.iter().rfind(|number| **number <= current),
        };
        match target.copied() {
            Some(number) => {
                let known = run.items.iter().find(|item| {
                    item.iteration == number
                        && matches!(item.kind, ralph_report::transcript::ItemKind::Iteration { .. })
                });
                match known {
                    Some(item) => {
                        self.pages.activity.top = Some((item.id, 0));
                        Vec::new()
                    }
                    None => vec![Effect::GoToIteration(number)],
                }
            }
            None if forward => self.scroll_activity(isize::MAX, run),
            None => {
                self.say("This is the first iteration.");
                Vec::new()
            }
        }
    }

    fn step_check(&mut self, forward: bool, run: &RunData<'_>) {
        let Some(check) = run
            .detail
            .checks
            .get(self.pages.checks.at.min(run.detail.checks.len().saturating_sub(1)))
        else {
            return;
        };
        let runs = CheckView::runs_of(run.state, &check.command);
        let shown = run.detail.check_output.as_ref().map(|output| output.run.iteration);
        let at = runs.iter().position(|run| Some(run.iteration) == shown);
        let next = match (at, forward) {
            (Some(at), true) => runs.get(at + 1),
            (Some(at), false) => at.checked_sub(1).and_then(|at| runs.get(at)),
            (None, _) => runs.last(),
        };
        match next {
            Some(next) => {
                (self.pages.checks.iteration, self.pages.checks.scroll) =
                    (Some(next.iteration), None)
            }
            None => self.say(if forward {
                "There is no newer result."
            } else {
                "There is no older result."
            }),
        }
    }

    pub(super) fn wheel(
        &mut self,
        up: bool,
        pane: Option<&Target>,
        data: &Data<'_>,
    ) -> Vec<Effect> {
        let step = if up { -WHEEL_LINES } else { WHEEL_LINES };
        match pane {
            Some(Target::Fleet) => {
                self.move_selection(if up { Command::Up } else { Command::Down }, data);
                Vec::new()
            }
            Some(Target::Detail) if self.tab == Tab::Activity => {
                match self.shown_run().and_then(|id| data.run(id)) {
                    Some(run) => self.scroll_activity(step, run),
                    None => Vec::new(),
                }
            }
            Some(Target::Detail) => {
                self.scroll_detail(step);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn selected_run(&self) -> Option<&str> {
        match &self.fleet.selection {
            Some(Selection::Run(id)) => Some(id),
            _ => None,
        }
    }
}

/// How far a command moves, in lines or entries.
fn step_of(command: Command, page: isize) -> isize {
    match command {
        Command::Up => -1,
        Command::Down => 1,
        Command::PageUp => -page,
        Command::PageDown => page,
        Command::First => isize::MIN,
        _ => isize::MAX,
    }
}

pub(super) fn file_count(run: &RunData<'_>) -> usize {
    match &run.detail.diff {
        DiffState::Ready(diff) => diff.files.len(),
        _ => 0,
    }
}

fn moved(at: usize, step: isize, count: usize) -> usize {
    let last = count.saturating_sub(1);
    at.min(last).saturating_add_signed(step).min(last)
}

fn scroll(at: &mut usize, step: isize, top: usize, last: usize) {
    *at = top.saturating_add_signed(step).min(last);
}
