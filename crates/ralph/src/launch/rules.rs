//! Settings and flags as rules of a run.

use std::path::Path;

use crate::cli::args::CompletionArgs;
use crate::config::{Duration, Settings};
use ralph_driver::run_spec::GuardrailSpec;
use ralph_engine::completion::CompletionRule;
use ralph_engine::rules::{Budget, RateLimit, Retry, RetryScope, Rules};
use ralph_engine::stall::StallRule;
use ralph_events::error::Error;
use ralph_events::exit_code;
use ralph_git::ScmSpec;

use super::{Defaults, LoopCommand};

/// The rule of the flags, or the command's own. Refuses rules that silence satisfies.
pub(super) fn completion_rule(
    command: LoopCommand,
    args: &CompletionArgs,
    settings: &Settings,
) -> Result<CompletionRule, Error> {
    let says_nothing = |flag: &str| {
        Error::usage(format!("{flag} matches an empty answer"))
            .hint("choose text that the agent prints only when it is done")
    };
    if let Some(text) = &args.completion_promise {
        return match text.trim() {
            "" => Err(says_nothing("--completion-promise")),
            _ => Ok(CompletionRule::Promise(text.clone())),
        };
    }
    if let Some(pattern) = &args.done_pattern {
        let regex = fancy_regex::Regex::new(pattern).map_err(|err| {
            Error::usage(format!("--done-pattern: {err}")).hint(format!("in {pattern:?}"))
        })?;
        if regex.is_match("").unwrap_or(false) {
            return Err(says_nothing("--done-pattern"));
        }
        return Ok(CompletionRule::Pattern(regex));
    }
    if let Some(text) = &args.completion_response {
        return match text.trim() {
            "" => Err(says_nothing("--completion-response")),
            _ => Ok(CompletionRule::Response(text.clone())),
        };
    }
    match command {
        LoopCommand::Run => configured_response(settings),
        LoopCommand::Spawn => Ok(CompletionRule::Never),
        _ => Ok(CompletionRule::Promise("COMPLETE".to_owned())),
    }
}

fn configured_response(settings: &Settings) -> Result<CompletionRule, Error> {
    if settings.completion_response.trim().is_empty() {
        return Err(Error::config("completionResponse is empty")
            .hint("choose a word that the agent answers when it is done"));
    }
    Ok(CompletionRule::Response(settings.completion_response.clone()))
}

pub(crate) fn guardrail_specs(settings: &Settings) -> Vec<GuardrailSpec> {
    settings
        .guardrails
        .iter()
        .map(|guardrail| GuardrailSpec {
            command: guardrail.command.clone(),
            fail_action: guardrail.fail_action,
            hint: guardrail.hint.clone(),
            timeout_ms: guardrail.timeout_seconds.and_then(Duration::limit).map(millis),
        })
        .collect()
}

pub(super) fn scm_spec(settings: &Settings, project: &Path) -> Result<Option<ScmSpec>, Error> {
    let Some(scm) = &settings.scm else { return Ok(None) };
    let tasks = scm
        .tasks
        .iter()
        .map(|task| {
            shell_words::split(task)
                .map_err(|err| Error::config(format!("scm.tasks: {task:?}: {err}")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let tasks: Vec<Vec<String>> = tasks.into_iter().filter(|words| !words.is_empty()).collect();
    if tasks.is_empty() {
        Ok(None)
    } else {
        // In the repository's root, `.` means everything.
        let is_everything = scm.paths == ["."] && project.join(".git").exists();
        let paths = if is_everything { Vec::new() } else { scm.paths.clone() };
        Ok(Some(ScmSpec { program: scm.command.clone(), tasks, paths }))
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "settings keep it above 0, and what is too large is the largest number"
)]
fn minutes(minutes: f64) -> u64 {
    (minutes * 60_000.0) as u64
}

pub(super) fn loop_rules(settings: &Settings, defaults: &Defaults) -> Rules {
    let retries = settings.retry.max.unwrap_or(defaults.retries);
    let limit = |limit: Duration| limit.limit().map(millis);
    let budget = &settings.budget;
    let per_iteration = &budget.per_iteration;
    let is_worker = defaults.is_worker;
    Rules {
        max_iterations: settings.maximum_iterations.unwrap_or(defaults.max_iterations),
        exit_at_limit: defaults.exit_at_limit,
        exit_without_prompt: if is_worker { exit_code::INCOMPLETE } else { exit_code::USAGE },
        retry: Retry {
            scope: if is_worker {
                RetryScope::NextIteration { failures: retries.saturating_add(1) }
            } else {
                RetryScope::SameIteration { retries }
            },
            backoff_ms: millis(settings.retry.backoff_seconds.get()),
            backoff_cap_ms: millis(settings.retry.backoff_cap_seconds.get()),
            exit_code: if is_worker { exit_code::INCOMPLETE } else { exit_code::AGENT_FAILED },
        },
        retry_empty: defaults.retry_empty,
        inactivity_ms: match settings.inactivity_timeout_seconds {
            Some(timeout) => limit(timeout),
            None => defaults.inactivity_ms,
        },
        inactivity_fails: !is_worker,
        silent_model_ms: Some(minutes(settings.silent_model_minutes)).filter(|limit| *limit > 0),
        iteration_timeout_ms: limit(settings.iteration_timeout_seconds),
        result_grace_ms: Some(millis(settings.result_grace_seconds.get())),
        rate_limit: RateLimit {
            wait: settings.rate_limit.wait,
            max_wait_ms: millis(settings.rate_limit.max_wait.get()),
        },
        budget: Budget {
            cost_usd: budget.cost_usd,
            tokens: budget.tokens,
            duration_ms: budget.duration.and_then(limit),
        },
        iteration_budget: Budget {
            cost_usd: per_iteration.cost_usd,
            tokens: per_iteration.tokens,
            duration_ms: per_iteration.duration.and_then(limit),
        },
        guardrails: Vec::new(),
        scm: Vec::new(),
        scm_timeout_ms: settings.scm.as_ref().and_then(|scm| limit(scm.timeout_seconds)),
        gates: defaults.gates,
        stall: StallRule::stop_after(settings.stall.iterations),
        term_pauses: is_worker,
        max_refusals: Rules::MAX_REFUSALS,
        check_done_ms: Some(Rules::CHECK_DONE_MS),
        notify: false,
        questions: settings.questions.into(),
    }
}
