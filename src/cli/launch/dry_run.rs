//! `--dry-run`: what would be run, and nothing of it is.

use std::path::Path;

use crate::agent::{PromptVia, Request};
use crate::config::{self, Loaded};
use crate::core::event::Purpose;
use crate::core::tasks::ledger::Progress;
use crate::core::text;
use crate::error::Error;
use crate::run::spec::{PromptSource, RunSpec};
use crate::sandbox::choice::Choice;

/// Tells what would be run.
pub(super) fn dry_run(spec: &RunSpec, choice: &Choice, loaded: &Loaded) -> Result<u8, Error> {
    let agent = &spec.agent;
    let (prompt, source) = match &spec.prompt {
        PromptSource::Text(prompt) => (prompt.clone(), "--prompt".to_owned()),
        PromptSource::File(path) => {
            let bytes = std::fs::read(path)
                .map_err(|err| Error::input(format!("cannot read {}: {err}", path.display())))?;
            (String::from_utf8_lossy(&bytes).into_owned(), config::display_name(path))
        }
    };
    let invocation = agent.adapter.invocation(&Request {
        program: &agent.program,
        flags: &agent.flags,
        model: agent.model.as_deref(),
        purpose: Purpose::Work,
        stream: agent.stream,
        autonomous: agent.autonomous,
        sandboxed: spec.sandboxed,
        prompt_via: agent.prompt_via,
        prompt: "<prompt>",
        prompt_file: Path::new(".ralph/prompt_001.txt"),
        side_file: Path::new(".ralph/side_001.txt"),
    });
    let mut argv: Vec<String> = std::iter::once(&invocation.program)
        .chain(&invocation.args)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    config::secret::redact_args(&mut argv);
    let via = match invocation.prompt_via {
        PromptVia::Stdin => "on its standard input",
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
        ("Limit", format!("{} iterations", spec.rules.max_iterations)),
    ];
    let sandbox = match choice {
        Choice::None => "none".to_owned(),
        Choice::Found(sandbox) => format!("{}, tried out just now", sandbox.backend().name()),
        Choice::Without(_) => "none, because none works here".to_owned(),
    };
    rows.push(("Sandbox", sandbox));
    if let Some(tasks) = &spec.tasks {
        let progress = Progress::of(&tasks.list);
        let next =
            progress.next.map_or_else(String::new, |(id, title)| format!(", next {id} {title}"));
        let Progress { done, total, .. } = progress;
        rows.push(("Tasks", format!("{}: {done} of {total} stories pass{next}", tasks.name)));
    }
    for guardrail in &spec.guardrails {
        let action = guardrail.fail_action.as_str();
        rows.push(("Guardrail", format!("{} (if it fails: {action})", guardrail.command)));
    }
    if let Some(scm) = &spec.scm {
        let tasks: Vec<String> =
            scm.tasks.iter().map(|task| format!("{} {}", scm.program, task.join(" "))).collect();
        rows.push(("SCM", tasks.join(", ")));
    }
    let mut text = String::new();
    for (name, value) in rows {
        text.push_str(&format!("{:<11} {value}\n", format!("{name}:")));
    }
    text.push_str("\nNothing was run.\n");
    crate::cli::print(&text)
}
