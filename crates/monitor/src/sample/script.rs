//! Writes a journal: a run with iterations of given lengths, results and costs.

use std::path::Path;

use ralph_events::event::{
    Class, Event, FailAction, Isolation, Outcome, Purpose, RunSetup, Stamp, Usage,
};
use ralph_events::journal::LineEncoder;

use super::{NOW_MS, exit, run_id};

/// A run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) project: &'static str,
    pub(super) branch: &'static str,
    pub(super) agent: &'static str,
    pub(super) max_iterations: u32,
    pub(super) budget_usd: Option<f64>,
    /// Done at the end, and all.
    pub(super) stories: Option<(u32, u32)>,
    pub(super) checks: &'static [&'static str],
    pub(super) is_sandboxed: bool,
    /// The height of each iteration's bar, 2 to 6.
    pub(super) levels: &'static [u8],
    /// For each iteration: `+` passed, `-` failed, `*` running.
    pub(super) results: &'static str,
    /// Working time.
    pub(super) active_ms: i64,
    pub(super) cost_usd: f64,
    /// The end of the working time.
    pub(super) until_ms: i64,
    /// The end of the run, if it is later.
    pub(super) ended_ms: Option<i64>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            name: "",
            project: "",
            branch: "",
            agent: "claude",
            max_iterations: 10,
            budget_usd: None,
            stories: None,
            checks: &["make test"],
            is_sandboxed: false,
            levels: &[],
            results: "",
            active_ms: 0,
            cost_usd: 0.0,
            until_ms: NOW_MS,
            ended_ms: None,
        }
    }
}

impl Plan {
    fn started_ms(&self) -> i64 {
        self.until_ms - self.active_ms
    }

    /// Lengths whose bars have the wanted heights.
    fn durations_ms(&self) -> Vec<i64> {
        let share = |level: &u8| match level {
            6 => 100,
            level => i64::from(*level) * 25 - 38,
        };
        let total: i64 = self.levels.iter().map(share).sum();
        let mut left = self.active_ms;
        let mut lengths: Vec<i64> = self
            .levels
            .iter()
            .map(|level| {
                let length = self.active_ms * share(level) / total.max(1) / 1000 * 1000;
                left -= length;
                length
            })
            .collect();
        if let Some(last) = lengths.last_mut() {
            *last += left;
        }
        lengths
    }

    /// Equal parts in cents; the last iteration gets the rest.
    fn costs(&self) -> Vec<f64> {
        let count = self.levels.len().max(1);
        #[expect(clippy::cast_precision_loss, reason = "a handful of iterations")]
        let part = (self.cost_usd * 100.0 / count as f64).floor() / 100.0;
        let mut costs = vec![part; count];
        let before: f64 = costs[1..].iter().sum();
        if let Some(last) = costs.last_mut() {
            *last = self.cost_usd - before;
        }
        costs
    }

    pub(super) fn cost_of_last(&self) -> f64 {
        self.costs().last().copied().unwrap_or_default()
    }
}

pub(super) struct Script {
    lines: LineEncoder,
    bytes: Vec<u8>,
    id: String,
    iteration: u32,
    last_ms: i64,
    calls: u32,
    usage: Usage,
}

pub(super) fn usage(cost_usd: f64) -> Usage {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few dollars")]
    let tokens = (cost_usd * 320_000.0) as u64;
    Usage {
        cost_usd: Some(cost_usd),
        input_tokens: tokens / 20,
        output_tokens: tokens / 50,
        cache_read_tokens: tokens * 9 / 10,
        cache_write_tokens: tokens * 3 / 100,
    }
}

impl Script {
    pub(super) fn start(plan: &Plan, directory: &Path) -> Script {
        let started_ms = plan.started_ms();
        let id = run_id(started_ms);
        let mut script = Script {
            lines: LineEncoder::default(),
            bytes: Vec::new(),
            id: id.clone(),
            iteration: 0,
            last_ms: started_ms,
            calls: 0,
            usage: Usage::default(),
        };
        let isolation = match plan.is_sandboxed {
            true => Isolation::Sandbox { backend: "bwrap".into(), network: "allowlist".into() },
            false => Isolation::Hook,
        };
        let setup = RunSetup {
            checks: plan.checks.iter().map(|&check| check.to_owned()).collect(),
            max_cost_usd: plan.budget_usd,
            isolation,
            ..RunSetup::default()
        };
        let command = if plan.stories.is_some() { "work" } else { "run" };
        script.push(
            started_ms,
            Event::RunStarted {
                run: id.into(),
                version: env!("CARGO_PKG_VERSION").into(),
                command: command.into(),
                directory: directory.display().to_string().into(),
                pid: std::process::id(),
                agent: plan.agent.into(),
                prompt: "PROMPT.md".into(),
                completion: "the answer ends with DONE".into(),
                max_iterations: plan.max_iterations,
                branch: Some(plan.branch.into()),
                name: Some(plan.name.into()),
                streams_text: false,
                plain_text: false,
                setup: Some(Box::new(setup)),
            },
        );
        script
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn last_ms(&self) -> i64 {
        self.last_ms
    }

    pub(super) fn into_lines(self) -> Vec<u8> {
        self.bytes
    }

    #[expect(clippy::needless_pass_by_value, reason = "scripts read better without references")]
    pub(super) fn push(&mut self, time_ms: i64, event: Event<'_>) {
        let attempt = u32::from(self.iteration > 0);
        let at = Stamp { time_ms, iteration: self.iteration, attempt };
        self.lines.push(at, &event);
        self.bytes.extend_from_slice(self.lines.bytes());
        self.lines.clear();
        self.last_ms = self.last_ms.max(time_ms);
    }

    pub(super) fn text(&mut self, time_ms: i64, text: &str) {
        self.push(time_ms, Event::Text { text: text.into(), joined: false, subagent: false });
    }

    pub(super) fn start_iteration(&mut self, time_ms: i64, plan_max: u32) {
        self.iteration += 1;
        self.push(time_ms, Event::IterationStarted { max_iterations: plan_max });
        self.push(
            time_ms,
            Event::Prompt { bytes: 900, preview: "PROMPT.md".into(), feedback: false },
        );
        let argv = vec!["claude".to_owned()];
        self.push(time_ms, Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv });
    }

    pub(super) fn open_tool(&mut self, time_ms: i64, name: &str, summary: &str) -> String {
        self.calls += 1;
        let id = format!("call-{}", self.calls);
        self.push(
            time_ms,
            Event::ToolStarted {
                id: id.as_str().into(),
                name: name.into(),
                summary: summary.into(),
                edit: None,
                subagent: false,
            },
        );
        id
    }

    pub(super) fn end_tool(
        &mut self,
        time_ms: i64,
        id: &str,
        failed: bool,
        lines: u64,
        preview: &str,
    ) {
        self.push(
            time_ms,
            Event::ToolEnded {
                id: id.into(),
                name: "".into(),
                failed,
                denied: false,
                lines,
                chars: lines * 40,
                preview: preview.into(),
                subagent: false,
            },
        );
    }

    pub(super) fn agent_ended(&mut self, time_ms: i64, cost_usd: f64) {
        self.agent_ended_as(time_ms, cost_usd, Class::Answered, 12);
    }

    pub(super) fn agent_ended_as(&mut self, time_ms: i64, cost_usd: f64, class: Class, tools: u32) {
        let usage = usage(cost_usd);
        self.usage.add(&usage);
        self.push(
            time_ms,
            Event::AgentEnded {
                purpose: Purpose::Work,
                exit: Some(exit(class == Class::Answered)),
                ended_by: None,
                class,
                failure: None,
                duration_ms: 1_000,
                usage,
                tools,
                tool_errors: 0,
                denied: 0,
                repeats_prompt: false,
                filter_errors: 0,
                complete: Some(false),
                found: None,
                commit_message: None,
            },
        );
    }

    pub(super) fn check(
        &mut self,
        ended_ms: i64,
        index: u32,
        command: &str,
        passed: bool,
        took_ms: i64,
    ) {
        self.push(ended_ms - took_ms, Event::GuardrailStarted { index, command: command.into() });
        let log =
            format!(".ralph/guardrail_{:03}_{}.log", self.iteration, command.replace(' ', "_"));
        self.push(
            ended_ms,
            Event::GuardrailEnded {
                index,
                command: command.into(),
                exit: Some(exit(passed)),
                timed_out: false,
                cut_off: false,
                passed,
                fail_action: FailAction::Append,
                log: log.into(),
                duration_ms: u64::try_from(took_ms).unwrap_or_default(),
            },
        );
    }

    pub(super) fn end_iteration(
        &mut self,
        time_ms: i64,
        class: Class,
        passed: bool,
        took_ms: i64,
        cost_usd: f64,
    ) {
        self.push(
            time_ms,
            Event::IterationEnded {
                class,
                guardrails_passed: Some(passed),
                complete: false,
                cut_off: false,
                duration_ms: u64::try_from(took_ms).unwrap_or_default(),
                usage: usage(cost_usd),
            },
        );
    }

    /// Writes the iterations of a plan. One that runs stays open after its agent's first words.
    pub(super) fn iterations(&mut self, plan: &Plan) {
        let mut start_ms = plan.started_ms();
        let lengths = plan.durations_ms().into_iter().zip(plan.costs());
        for ((length, cost), result) in lengths.zip(plan.results.chars()) {
            let end_ms = start_ms + length;
            self.start_iteration(start_ms, plan.max_iterations);
            self.text(start_ms + 20_000, "I look at the code before I change anything.");
            if result == '*' {
                self.push(start_ms + 30_000, Event::Usage(usage(cost)));
                break;
            }
            let is_refused = plan.agent == "codex" && result == '-';
            let class = if is_refused { Class::Credentials } else { Class::Answered };
            let checks_ms = if is_refused { 0 } else { 40_000.min(length / 3) };
            self.agent_ended_as(end_ms - checks_ms, cost, class, 12);
            if !is_refused {
                for (index, command) in (0..).zip(plan.checks) {
                    self.check(end_ms, index, command, result == '+', checks_ms);
                }
            }
            self.end_iteration(end_ms, class, result == '+', length, cost);
            start_ms = end_ms;
        }
    }

    pub(super) fn run_ended(&mut self, plan: &Plan, outcome: Outcome) {
        let time_ms = plan.ended_ms.unwrap_or(plan.until_ms);
        if let Some((done, total)) = plan.stories {
            self.push(
                time_ms,
                Event::Tasks {
                    done,
                    total,
                    story: None,
                    title: None,
                    problems: Vec::new(),
                    unreadable: false,
                    marked: Vec::new(),
                },
            );
        }
        let (exit_code, message) = match outcome {
            Outcome::Complete => (0, "the agent answered DONE, and all checks passed"),
            Outcome::CredentialsRefused => (4, "the agent's credentials were refused"),
            Outcome::AgentFailed => (4, "the agent failed 3 times in a row"),
            Outcome::Interrupted => (130, "stopped by ralph kill"),
            _ => (1, "the iteration limit is reached"),
        };
        self.push(
            time_ms,
            Event::RunEnded {
                outcome,
                exit_code,
                message: message.into(),
                iterations: self.iteration,
                cut_off: false,
                duration_ms: u64::try_from(plan.active_ms).unwrap_or_default(),
                usage: self.usage,
                tools: 12 * self.iteration,
                tool_errors: 0,
                notify: false,
                branch: None,
                last_failure: None,
                used_up: None,
            },
        );
    }
}
