//! The questions of `ralph init`, and the settings made from the answers.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::commands::mode::{BUILD_PROMPT, PLAN_PROMPT, PROMPTS_DIR};
use crate::config;
use ralph_sandbox::Backend;
use ralph_store::project::Project;

use super::SCHEMA_FILE;
use super::ask::{
    Abort, Prompter, is_yes, is_yes_or_no, optional, or_default, parse_list, until_valid,
};

pub(super) fn ask_settings(ask: &mut dyn Prompter) -> Result<Value, Abort> {
    let command = ask_command(
        ask,
        "Agent command (e.g., claude, codex, amp, or other LLM CLI): ",
        "An agent command is needed.",
    )?;
    let flags = until_valid(ask, "Agent flags (comma-separated, optional): ", |answer| {
        let flags = parse_list(answer);
        config::agent_args(&flags).map(|_| flags)
    })?;
    let maximum_iterations = until_valid(ask, "Maximum iterations [10]: ", |answer| {
        let number = or_default(answer, "10").parse::<u32>().ok().filter(|number| *number > 0);
        number.ok_or_else(|| "Please enter a positive integer.".to_owned())
    })?;
    let completion_response = or_default(&ask.prompt_line("Completion response [DONE]: ")?, "DONE");
    let guardrails = ask_guardrails(ask)?;
    let scm = ask_scm(ask)?;
    let budget = ask_budget(ask)?;

    let mut document = base_settings();
    document["maximumIterations"] = json!(maximum_iterations);
    document["completionResponse"] = json!(completion_response);
    document["agent"] = json!({"command": command, "flags": flags});
    document["guardrails"] = json!(guardrails);
    if let Some(scm) = scm {
        document["scm"] = scm;
    }
    if let Some(dollars) = budget {
        document["budget"] = json!({"costUsd": dollars});
    }
    Ok(document)
}

/// The settings before any answer, in the order of the file.
pub(super) fn base_settings() -> Value {
    json!({
        "$schema": format!("./{SCHEMA_FILE}"),
        "maximumIterations": 10,
        "completionResponse": "DONE",
        "outputTruncateChars": 5000,
        "streamAgentOutput": true,
        "includeIterationCountInPrompt": false,
        "agent": {},
        "guardrails": [],
    })
}

/// End of input means no budget.
fn ask_budget(ask: &mut dyn Prompter) -> Result<Option<f64>, Abort> {
    let question = "Budget per run in US dollars (optional): ";
    loop {
        let Some(answer) = optional(ask, question)? else { return Ok(None) };
        let number = answer.trim().trim_start_matches('$');
        match number.parse::<f64>() {
            _ if number.is_empty() => return Ok(None),
            Ok(dollars) if dollars.is_finite() && dollars > 0.0 => return Ok(Some(dollars)),
            _ => ask.print("Please enter an amount such as 5 or 2.50.\n")?,
        }
    }
}

fn ask_guardrails(ask: &mut dyn Prompter) -> Result<Vec<Value>, Abort> {
    let mut guardrails = Vec::new();
    loop {
        let command = ask.prompt_line("Add guardrail command (leave blank to finish): ")?;
        let command = command.trim();
        if command.is_empty() {
            return Ok(guardrails);
        }
        if is_yes_or_no(command) {
            ask.print(&not_a_command(command))?;
            continue;
        }
        let question = "  Fail action (APPEND|PREPEND|REPLACE): ";
        let action = until_valid(ask, question, |answer| {
            config::fail_action(&or_default(answer, "APPEND"))
                .ok_or_else(|| "  Please answer APPEND, PREPEND or REPLACE.".to_owned())
        })?;
        let hint = ask.prompt_line("  Hint (optional, guidance for agent on failure): ")?;
        let mut guardrail = json!({"command": command, "failAction": action.as_str()});
        if !hint.trim().is_empty() {
            guardrail["hint"] = json!(hint.trim());
        }
        guardrails.push(guardrail);
    }
}

fn ask_scm(ask: &mut dyn Prompter) -> Result<Option<Value>, Abort> {
    if !is_yes(&ask.prompt_line("Configure SCM? (y/N): ")?) {
        return Ok(None);
    }
    let command = ask_command(ask, "  SCM command (e.g., git): ", "  An SCM command is needed.")?;
    let question = "  SCM tasks (comma-separated, e.g., commit,push): ";
    let tasks = until_valid(ask, question, |answer| {
        let tasks = Some(parse_list(answer)).filter(|tasks| !tasks.is_empty());
        let tasks = tasks.filter(|_| !is_yes_or_no(answer));
        tasks.ok_or_else(|| "  At least one task is needed.".to_owned())
    })?;
    Ok(Some(json!({"command": command, "tasks": tasks})))
}

/// Asks for a program. People who expect a yes-or-no question type `y`.
fn ask_command(ask: &mut dyn Prompter, question: &str, if_blank: &str) -> Result<String, Abort> {
    until_valid(ask, question, |answer| match answer {
        "" => Err(if_blank.to_owned()),
        answer if is_yes_or_no(answer) => Err(not_a_command(answer).trim_end().to_owned()),
        answer => Ok(answer.to_owned()),
    })
}

fn not_a_command(answer: &str) -> String {
    format!("  `{answer}` is not a command. Please enter the name of a program.\n")
}

pub(super) fn offer_starter_prompts(
    project: &Project,
    ask: &mut dyn Prompter,
) -> Result<Vec<(PathBuf, &'static str)>, Abort> {
    let directory = project.root().join(PROMPTS_DIR);
    let mut missing = vec![("plan.md", PLAN_PROMPT), ("build.md", BUILD_PROMPT)];
    missing.retain(|(name, _)| directory.join(name).symlink_metadata().is_err());
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let question = "Write starter prompts for `ralph plan` and `ralph build`? (y/N): ";
    let wanted = optional(ask, question)?.is_some_and(|answer| is_yes(&answer));
    missing.retain(|_| wanted);
    Ok(missing.into_iter().map(|(name, text)| (directory.join(name), text)).collect())
}

/// Writes the answer either way, because some commands use a sandbox by default.
pub(super) fn ask_sandbox(backend: Backend, ask: &mut dyn Prompter) -> Result<Value, Abort> {
    let question = format!("Run agents in a sandbox? {} works here. (Y/n): ", backend.name());
    let refused = optional(ask, &question)?
        .is_some_and(|answer| matches!(answer.trim().to_ascii_lowercase().as_str(), "n" | "no"));
    Ok(json!({"backend": if refused { "none" } else { "auto" }}))
}
