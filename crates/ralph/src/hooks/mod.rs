//! Answers Claude Code's hooks.
//!
//! The tool hooks run at every tool call: they start no programs and read little. Hooks fail open,
//! except `pre-tool-use`, which fails closed.

mod answer;
mod context;
mod input;
mod memory;
mod pre_tool_use;
mod settings;
mod stop;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

pub use answer::HookOutput;
use context::Audience;
use input::HookInput;
use memory::SessionStore;

use ralph_events::env_names::{RUN_ID, STOP_CHECK};
use ralph_process as process;
use ralph_store::home::ralph_home;
use ralph_tasks::documents::{Documents, TASKS};

pub const HOOK_NAMES: [&str; 4] = ["session-start", "pre-tool-use", "post-tool-use", "stop"];

/// Below our hook timeout of 10 s: Claude Code takes a timeout for consent.
const VERDICT_TIMEOUT_SECONDS: u32 = 7;

/// Exits with 0: Claude Code takes 2 for a denial and reports other codes as errors.
pub fn main(args: &[OsString]) {
    let name = args.first().map(OsString::as_os_str).unwrap_or_default();
    let variable = |name: &str| std::env::var_os(name);
    if name == "pre-tool-use" && (HookContext { variable: &variable }).run().is_some() {
        arm_deny_on_timeout();
    }
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let (answer, message) = match stdin {
        Ok(stdin) => handle(name, stdin, &variable),
        Err(_) => handle(name, io::empty(), &variable),
    };
    process::disarm();
    if let Some(message) = message {
        let _ = writeln!(io::stderr(), "ralph hook: {message}");
    }
    if let Some(json) = answer.json() {
        let written = writeln!(io::stdout(), "{json}");
        if let (Err(err), HookOutput::Deny(reason)) = (written, &answer) {
            // Exit code 2 is a denial, with its reason on standard error.
            let _ = writeln!(io::stderr(), "{reason} (cannot write to standard output: {err})");
            std::process::exit(2);
        }
    }
}

/// Makes a panic or a timeout answer "deny".
fn arm_deny_on_timeout() {
    let denial = |why: &str| {
        let reason = format!(
            "ralph's pre-tool-use hook {why} on this tool call, and denies what it cannot check"
        );
        let json = HookOutput::Deny(reason).json().unwrap_or_default();
        format!("{json}\n")
    };
    std::panic::set_hook(Box::new(move |_| {
        process::disarm();
        let _ = io::stdout().write_all(denial("failed").as_bytes());
        std::process::exit(0)
    }));
    process::arm(VERDICT_TIMEOUT_SECONDS, denial("took too long").into());
}

/// Also returns a message for standard error.
pub fn handle(
    name: &OsStr,
    stdin: impl Read,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> (HookOutput, Option<String>) {
    let context = &HookContext { variable };
    let read_input = || input::read(stdin);
    let hook: fn(&[u8], &HookContext<'_>) -> io::Result<HookOutput> = match name.to_str() {
        // Answers even unreadable input.
        Some("pre-tool-use") => {
            return (pre_tool_use::pre_tool_use(read_input(), context), None);
        }
        Some("session-start") => session_start,
        Some("post-tool-use") => post_tool_use,
        Some("stop") => stop::stop,
        _ => {
            let names = HOOK_NAMES.join(", ");
            let message = format!("unknown hook {:?}; use one of {names}", name.to_string_lossy());
            return (HookOutput::None, Some(message));
        }
    };
    match read_input().and_then(|bytes| hook(&bytes, context)) {
        Ok(answer) => (answer, None),
        Err(err) => (HookOutput::None, Some(err.to_string())),
    }
}

struct HookContext<'e> {
    variable: &'e dyn Fn(&str) -> Option<OsString>,
}

impl HookContext<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).and_then(|value| value.into_string().ok())
    }

    fn run(&self) -> Option<String> {
        self.text(RUN_ID).filter(|run| !run.is_empty())
    }

    fn memory(&self) -> io::Result<SessionStore> {
        let home = ralph_home(self.variable).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "neither RALPH_HOME nor HOME is set")
        })?;
        Ok(SessionStore::new(&home))
    }

    /// The directory where the session started. Without Claude Code's variable, the repository of
    /// the tools' current directory.
    fn project(&self, input: &HookInput<'_>) -> Option<PathBuf> {
        let project_dir = (self.variable)("CLAUDE_PROJECT_DIR").map(PathBuf::from);
        project_dir.filter(|path| path.is_absolute()).or_else(|| {
            let cwd = input.cwd.as_deref().map(PathBuf::from);
            let cwd = cwd.or_else(|| std::env::current_dir().ok())?;
            Some(self.repository(&cwd).map_or_else(|| cwd.clone(), Path::to_path_buf))
        })
    }

    /// A repository in the home directory itself is usually for dotfiles.
    fn repository<'p>(&self, directory: &'p Path) -> Option<&'p Path> {
        let home = (self.variable)("HOME").map(PathBuf::from);
        directory
            .ancestors()
            .take_while(|dir| home.as_deref() != Some(dir))
            .find(|dir| dir.join(".git").exists())
    }
}

fn session_start(bytes: &[u8], context: &HookContext<'_>) -> io::Result<HookOutput> {
    let Ok(input) = HookInput::parse(bytes) else { return Ok(HookOutput::None) };
    let memory = context.memory()?;
    memory.remove_session(&input.session_id);
    if let Some((run, start)) = context.run().zip(context.text(STOP_CHECK))
        && !start.is_empty()
    {
        memory.claim_session(&run, &start, &input.session_id)?;
    }
    Ok(HookOutput::None)
}

fn post_tool_use(bytes: &[u8], hook_context: &HookContext<'_>) -> io::Result<HookOutput> {
    let Ok(input) = HookInput::parse(bytes) else { return Ok(HookOutput::None) };
    // A subagent's context is not in this transcript.
    let transcript = input.transcript_path.as_deref().filter(|_| input.agent_id.is_none());
    let window = hook_context.text("CLAUDE_CONTEXT_WINDOW").and_then(|size| size.parse().ok());
    let window = window.filter(|size| *size > 0);
    let usage = transcript.and_then(|path| context::context_usage(Path::new(path), window).ok());
    let Some(usage) = usage.filter(|usage| usage.newly_crossed(0).is_some()) else {
        return Ok(HookOutput::None);
    };
    let memory = hook_context.memory()?;
    if usage.newly_crossed(memory.session(&input.session_id).fired).is_none() {
        return Ok(HookOutput::None);
    }
    // Saved first, or it would repeat at every call.
    let crossed = memory.update_session(&input.session_id, |session| {
        usage.newly_crossed(session.fired).inspect(|threshold| session.fired = *threshold)
    })?;
    Ok(crossed.map_or(HookOutput::None, |threshold| {
        let audience = audience(&input, hook_context);
        HookOutput::Context(context::alert(threshold, usage, audience))
    }))
}

fn audience(input: &HookInput<'_>, context: &HookContext<'_>) -> Audience {
    let has_task_list = || {
        context.project(input).is_some_and(|dir| Documents::new(&dir, None).path(TASKS).exists())
    };
    match context.run() {
        None => Audience::Person,
        Some(_) if has_task_list() => Audience::TaskList,
        Some(_) => Audience::Loop,
    }
}
