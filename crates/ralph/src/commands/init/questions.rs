//! The questions of `ralph init`, and the settings made from the answers.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::commands::build::BUILD_PROMPT;
use crate::commands::mode::PROMPTS_DIR;
use crate::commands::plan::PLAN_PROMPT;
use crate::config;
use ralph_sandbox::Backend;
use ralph_store::project::Project;

use super::SCHEMA_FILE;
use super::ask::{
    Abort, Prompter, is_yes, optional, or_default, parse_list, positive_integer, required,
};

pub(super) fn ask_settings(ask: &mut dyn Prompter) -> Result<Value, Abort> {
    let command = required(
        ask,
        "Agent command (e.g., claude, codex, amp, or other LLM CLI): ",
        "An agent command is needed.\n",
    )?;
    let flags = loop {
        let flags = parse_list(&ask.prompt_line("Agent flags (comma-separated, optional): ")?);
        match config::agent_args(&flags) {
            Ok(_) => break flags,
            Err(problem) => ask.print(&format!("{problem}\n"))?,
        }
    };
    let maximum_iterations = positive_integer(ask, "Maximum iterations [10]: ", 10)?;
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
        let action = loop {
            let answer = ask.prompt_line("  Fail action (APPEND|PREPEND|REPLACE): ")?;
            match config::fail_action(&or_default(&answer, "APPEND")) {
                Some(action) => break action,
                None => ask.print("  Please answer APPEND, PREPEND or REPLACE.\n")?,
            }
        };
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
    let command = required(ask, "  SCM command (e.g., git): ", "  An SCM command is needed.\n")?;
    let tasks = loop {
        let tasks =
            parse_list(&ask.prompt_line("  SCM tasks (comma-separated, e.g., commit,push): ")?);
        if !tasks.is_empty() {
            break tasks;
        }
        ask.print("  At least one task is needed.\n")?;
    };
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
