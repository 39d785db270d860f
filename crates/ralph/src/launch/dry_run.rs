//! `--dry-run`: shows what would be run.

use std::path::Path;

use crate::commands::stories;
use crate::config::{self, LoadedSettings};
use ralph_agents::PromptVia;
use ralph_driver::run_spec::{AgentLaunch, RunSpec};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::event::Purpose;
use ralph_events::redact;
use ralph_events::text;
use ralph_sandbox::selection::Selection;
use ralph_tasks::ledger::ListProgress;

use super::prompt;

fn describe_budget(spec: &RunSpec) -> String {
    let (run, each) = (spec.rules.budget.describe(), spec.rules.iteration_budget.describe());
    match (run, each.map(|each| format!("{each} per iteration"))) {
        (Some(run), Some(each)) => format!("{run}; {each}"),
        (run, each) => run.or(each).unwrap_or_else(|| "none".to_owned()),
    }
}

pub(super) fn dry_run(
    spec: &RunSpec,
    selection: &Selection,
    loaded: &LoadedSettings,
) -> Result<u8, Error> {
    let agent = &spec.agent;
    let (mut prompt, source) = prompt::read_prompt(&spec.prompt)?;
    if let Some(variables) = &spec.variables {
        prompt = variables.expand(&prompt, 1, spec.rules.max_iterations).0;
    }
    let invocation = agent.invocation(AgentLaunch {
        purpose: Purpose::Work,
        prompt: "<prompt>",
        prompt_file: Path::new(".ralph/prompt_001.txt"),
        side_file: Path::new(".ralph/side_001.txt"),
    });
    let mut argv: Vec<String> = std::iter::once(&invocation.program)
        .chain(&invocation.args)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    redact::redact_args(&mut argv);
    let via = match invocation.prompt_via {
        PromptVia::Stdin => "on standard input",
        PromptVia::Argument => "as an argument",
        PromptVia::File => "in a file",
    };
    let files: Vec<String> = loaded.files.iter().map(|path| config::display_name(path)).collect();
    let mut rows = vec![
        ("Directory", spec.directory.display().to_string()),
        ("Settings", if files.is_empty() { "defaults".to_owned() } else { files.join(", ") }),
        ("Agent", format!("{} (adapter {})", shell_words::join(argv), agent.adapter.name())),
        (
            "Prompt",
            format!("{} bytes from {source}, {via}: {}", prompt.len(), {
                let first = text::first_line(&prompt).unwrap_or("");
                text::truncate(first, 100, "…").into_owned()
            }),
        ),
        ("Complete", format!("when {}", spec.describe_completion())),
        ("Limit", {
            let limit = spec.rules.max_iterations;
            format!("{limit} iteration{}", if limit == 1 { "" } else { "s" })
        }),
        ("Budget", describe_budget(spec)),
    ];
    let sandbox = match selection {
        Selection::None => "none".to_owned(),
        Selection::Found { sandbox, .. } => {
            format!("{} (tested)", sandbox.info().backend.name())
        }
        Selection::Unavailable(_) => "none (none works here)".to_owned(),
    };
    rows.push(("Sandbox", sandbox));
    if let Some(tasks) = &spec.tasks {
        let review = tasks.ledger.clone().review(&Ok(tasks.list.clone()));
        let progress = review.progress.unwrap_or_else(|| ListProgress::of(&tasks.list));
        let next =
            progress.next.map_or_else(String::new, |(id, title)| format!(", next {id} {title}"));
        let ListProgress { done, total, .. } = progress;
        rows.push((
            "Tasks",
            format!("{}: {}{next}", tasks.name, stories::progress_text(done, total)),
        ));
    }
    if let Some(filter) = &agent.response_filter {
        rows.push(("Said", format!("selected by {}", filter.expression())));
    }
    if let Some(filter) = &spec.display_filter {
        rows.push(("Shown", format!("by {}", redact::redact_command(filter))));
    }
    for guardrail in &spec.guardrails {
        let action = guardrail.fail_action.as_str();
        let command = guardrail.shown_command();
        rows.push(("Checks", format!("{command} (if it fails: {action})")));
    }
    if spec.guardrails.is_empty() {
        rows.push(("Checks", "none".to_owned()));
    }
    if let Some(scm) = &spec.scm {
        let tasks: Vec<String> =
            scm.tasks.iter().map(|task| format!("{} {}", scm.program, task.join(" "))).collect();
        rows.push(("SCM", redact::redact_command(&tasks.join(", ")).into_owned()));
    }
    let mut text = String::new();
    for (name, value) in rows {
        text.push_str(&format!("{:<11} {value}\n", format!("{name}:")));
    }
    text.push_str("\nNothing was run.\n");
    crate::cli::print(&strip_control_chars(&text))
}
