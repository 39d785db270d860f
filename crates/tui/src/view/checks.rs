//! The checks of a run: results by iteration, and the output of one of them.

use ratatui_core::layout::Rect;

use ralph_events::event::Exit;
use ralph_events::text::format_duration;
use ralph_report::check_view::{CheckMark, CheckView};

use super::stories::mark_role;
use super::{Target, View};
use crate::canvas::{Row, cut, span};
use crate::data::{CheckOutput, RunData};
use crate::theme::Role;

/// The width of the history, with the spaces between its marks.
const HISTORY: usize = 30;

const NO_CHECKS: &str = "This run has no checks: nothing proves it. Add guardrails to \
                         .ralph/settings.json.";

impl View<'_, '_> {
    pub(super) fn checks(&mut self, area: Rect, run: &RunData<'_>) {
        if run.detail.checks.is_empty() {
            self.sentence(area, NO_CHECKS);
            return;
        }
        let selected = self.model.pages.checks.at.min(run.detail.checks.len() - 1);
        let rows = u16::try_from(run.detail.checks.len()).unwrap_or(u16::MAX);
        let shown = rows.min(area.height / 3).max(1);
        self.check_heads(Rect { height: 1, ..area }, run);
        let first = (selected + 1).saturating_sub(usize::from(shown));
        let top = area.y + 1;
        for ((at, check), y) in
            run.detail.checks.iter().enumerate().skip(first).zip(top..top + shown)
        {
            let line = Rect { y, height: 1, ..area };
            self.check_line(line, check);
            if at == selected {
                self.select_row(line);
            }
            self.layout.hits.push((line, Target::Check(at)));
        }
        let mut y = top + shown;
        let ascii = self.canvas.theme.ascii;
        if area.height > 14 {
            let marks =
                [CheckMark::Passed, CheckMark::Failed, CheckMark::Interrupted, CheckMark::NotRun];
            let sign = |mark: CheckMark| if ascii { mark.ascii_sign() } else { mark.sign() };
            let legend: Vec<String> =
                marks.iter().map(|mark| format!("{} {}", sign(*mark), mark.as_str())).collect();
            self.canvas.put(area.x + 3, y, area.width - 4, &legend.join("  "), Role::Muted);
            y += 2;
        }
        let detail = Rect { y, height: area.bottom().saturating_sub(y), ..area };
        if detail.height > 2 {
            self.check_detail(
                detail,
                &run.detail.checks[selected],
                run.detail.check_output.as_ref(),
            );
        }
    }

    fn check_heads(&mut self, line: Rect, run: &RunData<'_>) {
        let columns = Columns::for_width(line.width);
        let mut head =
            |x: u16, text: &str| self.canvas.put(line.x + x, line.y, 20, text, Role::Muted);
        head(3, "check");
        if let Some(x) = columns.history {
            let count = run.state.iterations.len();
            let last = run.state.iterations.last().map_or(0, |record| record.number);
            let from = count.saturating_sub(HISTORY / 2) + 1;
            head(x, &format!("iteration {from} to {last}"));
        }
        head(columns.passed, "passed");
        head(columns.took_end - 4, "took");
        if let Some(x) = columns.latest {
            head(x, "latest");
        }
    }

    fn check_line(&mut self, line: Rect, check: &CheckView) {
        let columns = Columns::for_width(line.width);
        let ascii = self.canvas.theme.ascii;
        let sign =
            |mark: CheckMark| if ascii { mark.ascii_sign() } else { mark.sign() }.to_string();
        let Rect { x, y, .. } = line;
        let mark = check.latest.as_ref().map_or(CheckMark::NotRun, |latest| latest.mark);
        match check.running_since_ms {
            Some(_) => self.canvas.put(x + 1, y, 1, "●", Role::Working),
            None => self.canvas.put(x + 1, y, 1, &sign(mark), mark_role(mark)),
        };
        self.canvas.put(x + 3, y, columns.name, &check.command, Role::Ink);
        if let Some(start) = columns.history {
            let first = check.history.len().saturating_sub(HISTORY / 2);
            for (mark, x) in check.history[first..].iter().zip((x + start..).step_by(2)) {
                self.canvas.put(x, y, 1, &sign(*mark), mark_role(*mark));
            }
        }
        let passed = format!("{} of {}", check.passed, check.runs);
        self.canvas.put(x + columns.passed, y, 10, &passed, Role::Ink);
        let Some(latest) = &check.latest else { return };
        let took = format_duration(latest.duration_ms);
        self.canvas.put_right(x + columns.took_end, y, &took, Role::Ink);
        if let Some(start) = columns.latest {
            let text = match check.running_since_ms {
                Some(since) => format!("running since {}", self.data.clock(since)),
                None => format!(
                    "{} in iteration {}, {}",
                    latest.mark.as_str(),
                    latest.iteration,
                    self.data.clock(latest.ended_ms)
                ),
            };
            self.canvas.put(x + start, y, line.width - start - 1, &text, Role::Muted);
        }
    }

    fn check_detail(&mut self, area: Rect, check: &CheckView, output: Option<&CheckOutput>) {
        let rule = Rect { height: 1, ..area };
        let title = cut(&check.command, usize::from(area.width / 2), self.canvas.theme.ellipsis());
        let Some(CheckOutput { run, log }) = output else {
            self.canvas.titled_rule(rule, &[span(title, Role::Strong)], &[]);
            let text = "It has not run yet.";
            self.canvas.put(area.x + 1, area.y + 1, area.width - 2, text, Role::Muted);
            return;
        };
        let is_last_failure = check.last_failure.as_ref() == Some(run);
        let remark = match run.mark {
            CheckMark::Failed if is_last_failure => {
                format!("last failure: iteration {}", run.iteration)
            }
            _ => format!("iteration {}", run.iteration),
        };
        self.canvas.titled_rule(rule, &[span(title, Role::Strong)], &[span(remark, Role::Muted)]);
        let sign = if self.canvas.theme.ascii { run.mark.ascii_sign() } else { run.mark.sign() };
        let mut facts: Vec<String> =
            run.exit.filter(|_| run.mark != CheckMark::Passed).map(exit_text).into_iter().collect();
        facts.push(format_duration(run.duration_ms));
        facts.push(self.data.clock(run.ended_ms));
        let mut text = format!("{}.", facts.join(", "));
        if run.mark == CheckMark::Failed {
            text.push_str(&format!(" Fed back to iteration {}", run.iteration + 1));
            let passes = is_last_failure && check.passes_since_failure();
            text.push_str(if passes { "; passes since." } else { "." });
        }
        let left = vec![
            span(format!("{sign} {}  ", run.mark.as_str()), mark_role(run.mark)),
            span(text, Role::Ink),
        ];
        let right = vec![
            span("[", Role::Strong),
            span(" older  ", Role::Muted),
            span("]", Role::Strong),
            span(" newer", Role::Muted),
        ];
        let line = Rect { x: area.x + 1, y: area.y + 1, width: area.width - 2, height: 1 };
        self.canvas.row(line, &Row::new(left).with_right(right));
        let rows: Vec<Row> = match log {
            Ok(log) => {
                log.lines.iter().map(|line| Row::of(format!("  {line}"), Role::Ink)).collect()
            }
            Err(error) => vec![Row::of(format!("  {error}"), Role::Muted)],
        };
        let gap = u16::from(area.height > 8);
        let text =
            Rect { y: area.y + 2 + gap, height: area.height.saturating_sub(3 + 3 * gap), ..area };
        // The end says what failed.
        let top = rows.len().saturating_sub(usize::from(text.height));
        let top = self.model.pages.checks.scroll.map_or(top, |scroll| scroll.min(top));
        self.scrolled(text, &rows, top);
        let (total, shown) =
            (log.as_ref().map_or(0, |log| log.total), rows.len().min(usize::from(text.height)));
        let text = match total > shown {
            true => format!("{total} lines in all, the last {shown} shown. Log: {}", run.log),
            false => format!("Log: {}", run.log),
        };
        self.canvas.put(area.x + 3, area.bottom() - 1 - gap, area.width - 4, &text, Role::Muted);
    }
}

struct Columns {
    name: u16,
    history: Option<u16>,
    passed: u16,
    took_end: u16,
    latest: Option<u16>,
}

impl Columns {
    fn for_width(width: u16) -> Columns {
        match width {
            96.. => {
                Columns { name: 24, history: Some(28), passed: 60, took_end: 78, latest: Some(82) }
            }
            80.. => Columns { name: 24, history: Some(28), passed: 60, took_end: 78, latest: None },
            _ => Columns { name: 30, history: None, passed: 36, took_end: 53, latest: None },
        }
    }
}

fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}
