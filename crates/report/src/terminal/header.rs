//! The first lines of a run: agent, checks, limits, sandbox, prompt.

use super::pen::StyledLine;
use super::words::plural;
use super::{MAX_PROMPT, Paragraph, TerminalReporter};
use crate::style::TextRole;
use crate::width;
use ralph_events::event::{Event, Isolation, RunSetup, Stamp};
use ralph_events::text;

/// Columns before the words of a row.
const LABEL_COLUMNS: usize = 11;

impl TerminalReporter {
    pub(super) fn run_started(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::RunStarted { run, version, agent, setup, plain_text, .. } = event else {
            return;
        };
        if self.style.quiet {
            let risk = setup.as_ref().and_then(|setup| isolation_risk(agent, &setup.isolation));
            if let Some(risk) = risk.filter(|_| !plain_text) {
                self.warn(at, &format!("no sandbox: {risk}"));
            }
            return;
        }
        let separator = self.marks.separator;
        let mut pen = self.line(at, Paragraph::Run);
        pen.start_style(TextRole::Heading).text("ralph ").untrusted(version).plain();
        pen.text(separator).text("run ").untrusted(short_id(run));
        pen.text(separator).untrusted(agent);
        if let Some(version) = setup.as_ref().and_then(|setup| setup.agent_version.as_ref()) {
            pen.text(" ").untrusted(version);
        }
        pen.end();
        for (label, words) in rows(event) {
            let mut pen = self.line(at, Paragraph::Run);
            pen.text("  ").paint(TextRole::Faint, &format!("{label:<8}")).text(" ");
            let words = width::one_line(&words, MAX_PROMPT, pen.ellipsis);
            pen.wrapped(&StyledLine::new(&words), LABEL_COLUMNS).end();
        }
    }
}

/// The last four characters of a run's id, which commands accept.
pub fn short_id(run: &str) -> &str {
    text::suffix(run, 4)
}

fn rows(event: &Event<'_>) -> Vec<(&'static str, String)> {
    let Event::RunStarted { command, agent, prompt, max_iterations, setup, .. } = event else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    let iterations = format!("{max_iterations} iteration{}", plural(u64::from(*max_iterations)));
    match setup {
        None => rows.push(("limit", iterations)),
        Some(setup) => rows.extend([
            ("checks", describe_checks(&setup.checks, command)),
            ("limit", [vec![iterations], describe_budget(setup)].concat().join(", ")),
            ("sandbox", describe_isolation(agent, &setup.isolation)),
        ]),
    }
    if !prompt.is_empty() {
        let rereads = setup.as_ref().is_some_and(|setup| setup.rereads_prompt);
        let note = if rereads { " (reread before each iteration)" } else { "" };
        rows.push(("prompt", format!("{prompt}{note}")));
    }
    rows
}

fn describe_checks(checks: &[String], command: &str) -> String {
    match checks {
        [] if command == "run" => {
            "none: nothing verifies the agent's claim. Add --check \"make test\".".to_owned()
        }
        [] => "none".to_owned(),
        checks => checks.join(", "),
    }
}

fn describe_budget(setup: &RunSetup) -> Vec<String> {
    let limits = [
        setup.max_cost_usd.map(text::format_dollars),
        setup.max_tokens.map(|tokens| format!("{} tokens", text::format_count(tokens))),
        setup.max_duration_ms.map(text::format_duration),
    ];
    limits.into_iter().flatten().collect()
}

fn describe_isolation(agent: &str, isolation: &Isolation) -> String {
    match isolation {
        Isolation::Sandbox { backend, network } => match network.as_str() {
            "allowlist" => format!("{backend}, network: allowed hosts only"),
            network => format!("{backend}, network: {network}"),
        },
        Isolation::OwnSandbox => format!("{agent}'s own"),
        Isolation::Approval => format!("none: {agent} asks before it runs commands"),
        none => format!("none: {}", isolation_risk(agent, none).unwrap_or_default()),
    }
}

/// The danger of running the agent without a sandbox.
fn isolation_risk(agent: &str, isolation: &Isolation) -> Option<String> {
    let rest = match isolation {
        Isolation::None => "can run any command as you. Add --sandbox to isolate it.",
        Isolation::Hook => {
            "can run any command as you; only known-dangerous ones are blocked. \
             Add --sandbox to isolate it."
        }
        Isolation::Approval | Isolation::OwnSandbox | Isolation::Sandbox { .. } => return None,
    };
    Some(format!("{agent} {rest}"))
}
