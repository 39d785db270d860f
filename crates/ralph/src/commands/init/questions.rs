//! The questions of `ralph init`, and the settings made from the answers.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::commands::mode::{BUILD_PROMPT, PLAN_PROMPT, PROMPTS_DIR};
use crate::config;
use ralph_sandbox::Backend;
use ralph_store::project::Project;

use super::SCHEMA_FILE;
use super::ask::{
    Abort, Prompter, is_yes, optional, or_default, parse_list, required, until_valid,
};

pub(super) fn ask_settings(ask: &mut dyn Prompter) -> Result<Value, Abort> {
    let command = required(
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

    let mut document = json!({
        "$schema": format!("./{SCHEMA_FILE}"),
        "maximumIterations": maximum_iterations,
        "completionResponse": completion_response,
        "outputTruncateChars": 5000,
        "streamAgentOutput": true,
        "includeIterationCountInPrompt": false,
        "agent": {"command": command, "flags": flags},
        "guardrails": guardrails,
    });
    if let Some(scm) = scm {
        document["scm"] = scm;
    }
    Ok(document)
}

fn ask_guardrails(ask: &mut dyn Prompter) -> Result<Vec<Value>, Abort> {
    let mut guardrails = Vec::new();
    loop {
        let command = ask.prompt_line("Add guardrail command (leave blank to finish): ")?;
        let command = command.trim();
        if command.is_empty() {
            return Ok(guardrails);
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
    let command = required(ask, "  SCM command (e.g., git): ", "  An SCM command is needed.")?;
    let question = "  SCM tasks (comma-separated, e.g., commit,push): ";
    let tasks = until_valid(ask, question, |answer| {
        let tasks = Some(parse_list(answer)).filter(|tasks| !tasks.is_empty());
        tasks.ok_or_else(|| "  At least one task is needed.".to_owned())
    })?;
    Ok(Some(json!({"command": command, "tasks": tasks})))
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
