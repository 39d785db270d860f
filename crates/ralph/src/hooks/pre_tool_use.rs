//! Judges a tool call by [`policy`], with paths resolved in the file system.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::HookContext;
use super::answer::HookOutput;
use super::input::HookInput;
use super::settings::HookRules;
use ralph_agents::json::{RawJson, RawText};
use ralph_events::env_names::GUARDED;
use ralph_process::trust::AgentWritable;
use ralph_shell_policy as policy;
use ralph_shell_policy::{CommandAllowList, Context, Verdict};

/// Skips the rest, which may be a whole file, for speed. `None` if it is no object.
fn relevant_input(input: RawJson<'_>) -> Option<Value> {
    let mut relevant = serde_json::Map::new();
    let mut all_read = true;
    input.for_each_member(|key, value| {
        let key = RawText::from_quoted(key).text();
        if policy::is_known_input(&key) {
            let value = match value.as_text() {
                Some(text) => Some(Value::String(text.text().into_owned())),
                None => serde_json::from_slice(value.bytes()).ok(),
            };
            all_read &= value.is_some();
            relevant.insert(key.into_owned(), value.unwrap_or_default());
        } else if policy::is_file_hint(&key) {
            relevant.insert(key.into_owned(), Value::Null);
        }
    })?;
    all_read.then_some(Value::Object(relevant))
}

/// Denies what it cannot understand.
pub(super) fn pre_tool_use(bytes: io::Result<Vec<u8>>, context: &HookContext<'_>) -> HookOutput {
    let input = match &bytes {
        Ok(bytes) => HookInput::parse(bytes),
        Err(err) => Err(err.to_string()),
    };
    let empty = HookInput::default();
    let project = context.project(input.as_ref().unwrap_or(&empty)).unwrap_or_default();
    let hooks = HookRules::load(&project, context.variable);
    if context.run().is_none() && !hooks.always {
        return hooks.error.map_or(HookOutput::None, |broken| {
            HookOutput::Warn(format!(
                "ralph's pre-tool-use hook cannot read {broken}, so it does not check tool calls \
                 outside a loop. Fix the file; `ralph settings` checks it."
            ))
        });
    }
    let call = input.and_then(|input| HookToolCall::of(&input));
    drop(bytes);
    match call.map(|call| judge(&call, &project, &hooks, context)) {
        Ok(verdict) => match (&verdict, verdict.message()) {
            (Verdict::Deny(_), Some(message)) => HookOutput::Deny(message),
            (Verdict::Warn(_), _) if is_duplicate_hook(context) => HookOutput::None,
            (Verdict::Warn(_), Some(message)) => HookOutput::Warn(message),
            _ => HookOutput::None,
        },
        Err(why) => HookOutput::Deny(format!(
            "ralph's pre-tool-use hook cannot parse this tool call, and denies what it cannot \
             check: {why}"
        )),
    }
}

/// Whether this is the plugin's hook in a run that has injected its own.
fn is_duplicate_hook(context: &HookContext<'_>) -> bool {
    let is_set = |name: &str| (context.variable)(name).is_some();
    is_set("CLAUDE_PLUGIN_ROOT") && is_set(GUARDED)
}

struct HookToolCall {
    tool: String,
    input: Value,
    cwd: PathBuf,
}

impl HookToolCall {
    fn of(input: &HookInput<'_>) -> Result<HookToolCall, String> {
        let tool = input.tool_name.as_deref().filter(|name| !name.is_empty());
        let tool = tool.ok_or("it does not name the tool")?.to_owned();
        let tool_input = input.tool_input.ok_or("it has no tool input")?;
        let tool_input =
            relevant_input(tool_input).ok_or("its \"tool_input\" is not a JSON object")?;
        let cwd = match input.cwd.as_deref().map(PathBuf::from) {
            Some(cwd) if cwd.is_absolute() => cwd,
            Some(_) => return Err("its directory is not an absolute path".to_owned()),
            None => std::env::current_dir().map_err(|err| err.to_string())?,
        };
        Ok(HookToolCall { tool, input: tool_input, cwd })
    }
}

fn judge(
    call: &HookToolCall,
    project: &Path,
    hooks: &HookRules,
    hook_context: &HookContext<'_>,
) -> Verdict {
    let project = resolve(project).unwrap_or_else(|| project.to_owned());
    // The home may be a link to another volume.
    let home = (hook_context.variable)("HOME").map(PathBuf::from);
    let home = home.map(|home| resolve(&home).unwrap_or(home));
    let (allow, _) = CommandAllowList::parse(hooks.allow.iter().map(String::as_str));
    let resolved = RefCell::new(HashMap::new());
    let context = Context {
        project: &project,
        cwd: &call.cwd,
        home: home.as_deref().filter(|home| home.is_absolute()),
        allow: &allow,
        resolve: &|path| {
            let known = resolved.borrow().get(path).cloned();
            known.unwrap_or_else(|| {
                let target = resolve(path);
                resolved.borrow_mut().insert(path.to_owned(), target.clone());
                target
            })
        },
        variable: &|name| hook_context.text(name),
    };
    policy::judge_tool(&context, &call.tool, &call.input)
}

/// Resolves all links; the path need not exist. As in the kernel, `..` applies after links. `None`
/// for link loops and unreadable directories.
fn resolve(path: &Path) -> Option<PathBuf> {
    let is_readable = Cell::new(true);
    let resolved = AgentWritable::default().resolve(path, |path| {
        path.read_link()
            .inspect_err(|err| match err.kind() {
                // Not a link, or missing.
                io::ErrorKind::InvalidInput
                | io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory => {}
                _ => is_readable.set(false),
            })
            .ok()
    })?;
    is_readable.get().then_some(resolved.target)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn hook_guard_resolves_links_like_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let outside = root.join("outside/deep");
        let project = root.join("project");
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("file"), "").unwrap();
        symlink(&outside, project.join("link")).unwrap();
        symlink("../outside/missing/x", project.join("dangling")).unwrap();
        symlink("loop", project.join("loop")).unwrap();
        symlink("link", project.join("link2")).unwrap();
        for (path, expected) in [
            ("project/file", Some("project/file")),
            ("project/new/file", Some("project/new/file")),
            ("project/./new/../file", Some("project/file")),
            ("project/link", Some("outside/deep")),
            ("project/link2/new", Some("outside/deep/new")),
            // Resolved as text, these would be inside the project.
            ("project/link/../x", Some("outside/x")),
            ("project/link2/../../x", Some("x")),
            ("project/dangling", Some("outside/missing/x")),
            ("project/dangling/../y", Some("outside/missing/y")),
            ("project/file/below", Some("project/file/below")),
            ("project/loop", None),
            ("project/loop/x", None),
        ] {
            let expected = expected.map(|path| root.join(path));
            assert_eq!(resolve(&root.join(path)), expected, "{path}");
        }
        assert_eq!(resolve(Path::new("/../..")), Some(PathBuf::from("/")));
        assert_eq!(resolve(Path::new("/none/../none2")), Some(PathBuf::from("/none2")));
    }
}
