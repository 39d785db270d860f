//! Keeps an agent from stopping with an invalid task list or uncommitted work.

use std::io;
use std::path::Path;

use super::HookContext;
use super::answer::HookOutput;
use super::input::HookInput;
use ralph_events::env_names::STOP_CHECK;
use ralph_git as git;
use ralph_store::active_marker;
use ralph_store::home::ralph_home;
use ralph_store::project::Project;
use ralph_store::runs;
use ralph_tasks as tasks;
use ralph_tasks::documents::{DIRECTORY, Documents, PROGRESS, TASKS};
use ralph_tasks::ledger::Ledger;
use ralph_tasks::ledger_store::LedgerPaths;

const MAX_NAMED: usize = 10;

pub(super) fn stop(bytes: &[u8], context: &HookContext<'_>) -> io::Result<HookOutput> {
    let Ok(input) = HookInput::parse(bytes) else { return Ok(HookOutput::None) };
    let Some(run) = context.run() else { return Ok(HookOutput::None) };
    // Block only once, to avoid an endless loop.
    if input.stop_hook_active || input.agent_id.is_some() {
        return Ok(HookOutput::None);
    }
    if let Some(start) = context.text(STOP_CHECK) {
        // Ignore sessions that the agent started itself. If unknown, assume the loop's.
        let is_ours = || {
            let memory = context.memory()?;
            memory.claim_session(&run, &start, &input.session_id)
        };
        if start.is_empty() || !is_ours().unwrap_or(true) {
            return Ok(HookOutput::None);
        }
    }
    let Some(project) = context.project(&input) else { return Ok(HookOutput::None) };
    let reasons = [task_list_objection(&run, &project, context), uncommitted_work(&project)];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    Ok(if reasons.is_empty() { HookOutput::None } else { HookOutput::Block(reasons.join("\n\n")) })
}

fn ledger(
    run: &str,
    project: &Path,
    documents: &Documents,
    context: &HookContext<'_>,
) -> Option<Ledger> {
    let home = ralph_home(context.variable).filter(|_| runs::is_id(run))?;
    let project = Project::new(&project.canonicalize().ok()?, &home);
    LedgerPaths::new(&project, &documents.path(TASKS)).read(run).ok()
}

fn task_list_objection(run: &str, project: &Path, context: &HookContext<'_>) -> Option<String> {
    if !project.join(active_marker::MARKER_FILE).exists() {
        return None;
    }
    let documents = Documents::new(project, active_marker::ralph_dir(project).as_deref());
    let problems = match documents.read_tasks() {
        Ok(bytes) => match (tasks::parse(&bytes), ledger(run, project, &documents, context)) {
            (list @ Ok(_), Some(mut ledger)) => first_few(ledger.review(&list).findings.iter()),
            (Ok(list), None) => tasks::first_problems(&list.problems()),
            (Err(broken), _) => tasks::first_problems(&broken.problems),
        },
        // The list may be in a directory that the marker does not name.
        Err(_) if !documents.dir().is_dir() => return None,
        Err(err) => vec![format!("cannot be read: {err}")],
    };
    let shown = documents.display_path(TASKS);
    let lines: Vec<String> =
        problems.iter().map(|problem| format!("- {shown}: {problem}")).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "The task list is invalid, and the next iteration needs it. Before you stop, fix:\n{}",
            lines.join("\n")
        )
    })
}

fn first_few(items: impl ExactSizeIterator<Item: ToString>) -> Vec<String> {
    let more = items.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("and {more} more"));
    items.take(MAX_NAMED).map(|item| item.to_string()).chain(more).collect()
}

fn uncommitted_work(project: &Path) -> Option<String> {
    let files = git::list_uncommitted(project).unwrap_or_default();
    if files.is_empty() {
        return None;
    }
    let keeps_progress = project.join(DIRECTORY).join(PROGRESS).exists();
    let steps = if keeps_progress {
        "1. Update ralph/progress.txt with what was accomplished and what was learned.\n2. \
         Consider whether any lasting pattern belongs in CLAUDE.md or .claude/rules/.\n3. Commit \
         ALL changes, including progress.txt and tasks.json."
    } else {
        "1. Consider whether any lasting pattern belongs in CLAUDE.md or .claude/rules/.\n2. \
         Commit ALL changes."
    };
    let files = first_few(files.iter()).join(", ");
    Some(format!(
        "There are uncommitted changes: {files}. The next iteration starts with a fresh context. \
         Before you stop:\n{steps}"
    ))
}
