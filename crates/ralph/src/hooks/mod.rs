//! The answers to Claude Code's hooks: what it asks before and after it uses a tool, when a session
//! begins, and when it wants to stop.
//!
//! This runs at every tool call, so it starts nothing, and reads no more than it needs. A hook that
//! cannot do its work lets things go their way, but for the one that guards: that one fails closed.

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

/// The hooks, by the names that people and `hooks.json` call them.
pub const HOOK_NAMES: [&str; 4] = ["session-start", "pre-tool-use", "post-tool-use", "stop"];

/// How long a verdict may take. Claude Code takes a hook that runs into its time limit (10 s in ours) for one
/// that has no objection.
const VERDICT_TIMEOUT_SECONDS: u32 = 7;

/// Answers the question on standard input. Whatever happens, the exit code is 0, since Claude Code takes 2 for
/// a verdict and anything else for a nuisance; only a no that cannot be written is that verdict.
pub fn main(args: &[OsString]) {
    let name = args.first().map(OsString::as_os_str).unwrap_or_default();
    let variable = |name: &str| std::env::var_os(name);
    if name == "pre-tool-use" && (HookContext { variable: &variable }).run().is_some() {
        arm_deny_on_timeout();
    }
    // Past the buffer that standard input has, which only means to read more often.
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let (answer, word) = match stdin {
        Ok(stdin) => handle(name, stdin, &variable),
        Err(_) => handle(name, io::empty(), &variable),
    };
    process::disarm();
    // Nobody is left to tell if this fails.
    if let Some(word) = word {
        let _ = writeln!(io::stderr(), "ralph hook: {word}");
    }
    if let Some(json) = answer.json() {
        let written = writeln!(io::stdout(), "{json}");
        if let (Err(err), HookOutput::Deny(reason)) = (written, &answer) {
            // A no that cannot be written in the usual way is this code, with the reason beside it.
            let _ = writeln!(io::stderr(), "{reason} (cannot write to standard output: {err})");
            std::process::exit(2);
        }
    }
}

/// From here on the answer is no, unless there is another one in time: a mistake of ours must not open
/// the door.
fn arm_deny_on_timeout() {
    let denial = |why: &str| {
        let reason = format!(
            "ralph's pre-tool-use hook {why} over this tool call, and lets nothing pass that it cannot judge"
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

/// The answer of a hook to the question on its standard input, and a word for people. `variable` is the
/// environment.
pub fn handle(
    name: &OsStr,
    stdin: impl Read,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> (HookOutput, Option<String>) {
    let surroundings = &HookContext { variable };
    let question = || input::read(stdin);
    let hook: fn(&[u8], &HookContext<'_>) -> io::Result<HookOutput> = match name.to_str() {
        // The only one that has something to say to what it cannot read.
        Some("pre-tool-use") => {
            return (pre_tool_use::pre_tool_use(question(), surroundings), None);
        }
        Some("session-start") => session_start,
        Some("post-tool-use") => post_tool_use,
        Some("stop") => stop::stop,
        _ => {
            let names = HOOK_NAMES.join(", ");
            let word = format!("no hook is called {:?}; there are {names}", name.to_string_lossy());
            return (HookOutput::None, Some(word));
        }
    };
    match question().and_then(|bytes| hook(&bytes, surroundings)) {
        Ok(answer) => (answer, None),
        Err(err) => (HookOutput::None, Some(err.to_string())),
    }
}

/// What a hook knows beside the question.
struct HookContext<'e> {
    variable: &'e dyn Fn(&str) -> Option<OsString>,
}

impl HookContext<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).and_then(|value| value.into_string().ok())
    }

    /// The run that the agent belongs to, if a loop started it.
    fn run(&self) -> Option<String> {
        self.text(RUN_ID).filter(|run| !run.is_empty())
    }

    fn memory(&self) -> io::Result<SessionStore> {
        let home = ralph_home(self.variable).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "neither RALPH_HOME nor HOME is set")
        })?;
        Ok(SessionStore::new(&home))
    }

    /// Where the session was started, which is where a loop runs. Its tools may be somewhere else by now, so
    /// that without Claude Code's word it is the repository that they are in, and not where they are.
    fn project(&self, input: &HookInput<'_>) -> Option<PathBuf> {
        let told = (self.variable)("CLAUDE_PROJECT_DIR").map(PathBuf::from);
        told.filter(|path| path.is_absolute()).or_else(|| {
            let cwd = input.cwd.as_deref().map(PathBuf::from);
            let cwd = cwd.or_else(|| std::env::current_dir().ok())?;
            Some(self.repository(&cwd).map_or_else(|| cwd.clone(), Path::to_path_buf))
        })
    }

    /// The repository that a directory is in. A home that is one, for the sake of its dotfiles, is nobody's
    /// project because of that.
    fn repository<'p>(&self, directory: &'p Path) -> Option<&'p Path> {
        let home = (self.variable)("HOME").map(PathBuf::from);
        directory
            .ancestors()
            .take_while(|place| home.as_deref() != Some(place))
            .find(|place| place.join(".git").exists())
    }
}

/// A new session: its thresholds are armed again.
fn session_start(bytes: &[u8], surroundings: &HookContext<'_>) -> io::Result<HookOutput> {
    let Ok(input) = HookInput::parse(bytes) else { return Ok(HookOutput::None) };
    let memory = surroundings.memory()?;
    memory.remove_session(&input.session_id);
    if let Some((run, start)) = surroundings.run().zip(surroundings.text(STOP_CHECK))
        && !start.is_empty()
    {
        memory.claim_session(&run, &start, &input.session_id)?;
    }
    Ok(HookOutput::None)
}

/// A tool was used: is the context getting full?
fn post_tool_use(bytes: &[u8], surroundings: &HookContext<'_>) -> io::Result<HookOutput> {
    let Ok(input) = HookInput::parse(bytes) else { return Ok(HookOutput::None) };
    // A subagent has a context of its own, which is not the one that the transcript tells of.
    let (None, Some(transcript)) = (&input.agent_id, &input.transcript_path) else {
        return Ok(HookOutput::None);
    };
    let window = surroundings.text("CLAUDE_CONTEXT_WINDOW").and_then(|size| size.parse().ok());
    let window = window.filter(|size| *size > 0);
    // A transcript that is not there tells nothing.
    let Ok(fill) = context::context_usage(Path::new(transcript.as_ref()), window) else {
        return Ok(HookOutput::None);
    };
    if fill.newly_crossed(0).is_none() {
        return Ok(HookOutput::None);
    }
    let memory = surroundings.memory()?;
    if fill.newly_crossed(memory.session(&input.session_id).fired).is_none() {
        return Ok(HookOutput::None);
    }
    // What cannot be remembered is not said, or it would be said at every call from now on.
    let crossed = memory.update_session(&input.session_id, |session| {
        fill.newly_crossed(session.fired).inspect(|threshold| session.fired = *threshold)
    })?;
    Ok(crossed.map_or(HookOutput::None, |threshold| {
        let audience = audience(&input, surroundings);
        HookOutput::Context(context::alert(threshold, fill, audience))
    }))
}

fn audience(input: &HookInput<'_>, surroundings: &HookContext<'_>) -> Audience {
    let has_task_list = || {
        surroundings
            .project(input)
            .is_some_and(|dir| Documents::new(&dir, None).path(TASKS).exists())
    };
    match surroundings.run() {
        None => Audience::Person,
        Some(_) if has_task_list() => Audience::TaskList,
        Some(_) => Audience::Loop,
    }
}
