//! The one place that talks to tmux. Nothing here touches anything beyond the session `ralph`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_events::env_names;
use ralph_events::error::{Error, ErrorKind};
use ralph_process::trust::OutsideCommand;

/// The session that all workers have a window of.
pub const SESSION_NAME: &str = "ralph";

/// How long tmux may take for an answer: it may have to start its server first.
const TMUX_TIMEOUT: Duration = Duration::from_secs(20);

/// Between a text that is typed and Enter.
const BEFORE_ENTER: Duration = Duration::from_millis(300);

/// A tmux server, whether or not it runs.
#[derive(Debug, Clone)]
pub struct Tmux {
    socket: Option<PathBuf>,
}

/// A window of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmuxWindow {
    /// `@3`: its name in the server for as long as that lives.
    pub id: String,
    pub name: String,
}

impl Tmux {
    /// The user's server; `variable` looks a variable of the environment up. Which server somebody is
    /// attached to right now does not matter, or workers would be found from some places only.
    pub fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let socket =
            variable(env_names::TMUX_SOCKET).filter(|path| !path.is_empty()).map(PathBuf::from);
        Tmux { socket }
    }

    fn base_args(&self, args: &[OsString]) -> Vec<OsString> {
        let socket = self.socket.iter().flat_map(|path| ["-S".into(), path.into()]);
        socket.chain(args.iter().cloned()).collect()
    }

    fn run_tmux(&self, args: &[OsString]) -> Result<String, Error> {
        let tmux = program(&[("TMUX".into(), None)])?;
        let output = tmux.run(&self.base_args(args), Path::new("/"), TMUX_TIMEOUT).map_err(
            |err| match err.kind() {
                std::io::ErrorKind::Interrupted => {
                    Error::new(ErrorKind::Interrupted, "tmux: interrupted")
                }
                _ => Error::failed(format!("tmux: {err}")),
            },
        )?;
        if output.exit.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Error::failed(format!("tmux: {}", said.trim())))
        }
    }

    fn query_tmux(&self, args: &[&str]) -> Result<String, Error> {
        self.run_tmux(&args.iter().map(Into::into).collect::<Vec<_>>())
    }

    /// Opens a window in which a command runs, and closes with it. No shell is involved. The command has to change to
    /// its directory itself: tmux would expand `#(…)` in a directory that it is given.
    ///
    /// # Errors
    /// tmux is not there, or what it said.
    pub fn open(&self, name: &str, command: &[OsString]) -> Result<TmuxWindow, Error> {
        // The user's own configuration may destroy sessions without an attached client. In the same call: a moment
        // later it would be too late.
        let session = format!("={SESSION_NAME}:");
        let stays = [";", "set-option", "-t", &session, "destroy-unattached", "off"];
        let with = |words: &[&str]| {
            let words = words.iter().map(OsString::from);
            let words = words.chain(["--".into()]).chain(command.iter().cloned());
            words.chain(stays.iter().map(OsString::from)).collect::<Vec<_>>()
        };
        let told = ["-d", "-P", "-F", "#{window_id}", "-n", name];
        let window = [&["new-window", "-t", &session][..], &told].concat();
        let new_session =
            [&["new-session", "-s", SESSION_NAME, "-x", "200", "-y", "50"][..], &told].concat();
        // The session may be made by another while we find out that there is none.
        let unless_stopped = |error: Error, words: &[&str]| match error.kind {
            ErrorKind::Interrupted => Err(error),
            _ => self.run_tmux(&with(words)),
        };
        let id = self
            .run_tmux(&with(&window))
            .or_else(|error| unless_stopped(error, &new_session))
            .or_else(|error| unless_stopped(error, &window))?;
        let id = id.trim().to_owned();
        for option in ["automatic-rename", "allow-rename", "remain-on-exit"] {
            // The user's own configuration may say otherwise. A window that is gone needs none.
            let _ = self.query_tmux(&["set-option", "-w", "-t", &id, option, "off"]);
        }
        Ok(TmuxWindow { id, name: name.to_owned() })
    }

    /// Whether the user's own configuration ends the server, and all workers with it, while no client is attached.
    pub fn exits_when_unattached(&self) -> bool {
        let ask = ["start-server", ";", "show-options", "-s", "-v", "exit-unattached"];
        self.query_tmux(&ask).is_ok_and(|answer| answer.trim() == "on")
    }

    /// The session's windows. Without a server or a session there are none.
    pub fn windows(&self) -> Vec<TmuxWindow> {
        let within = format!("={SESSION_NAME}");
        let list = ["list-windows", "-t", &within, "-F", "#{window_id} #{window_name}"];
        let answer = self.query_tmux(&list).unwrap_or_default();
        answer
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(id, name)| TmuxWindow { id: id.to_owned(), name: name.to_owned() })
            .collect()
    }

    pub fn find(&self, name: &str) -> Option<TmuxWindow> {
        self.windows().into_iter().find(|window| window.name == name)
    }

    /// Closes a window with all that runs in it. One that is not there is closed already.
    pub fn close(&self, window: &TmuxWindow) {
        let _ = self.query_tmux(&["kill-window", "-t", &window.id]);
    }

    /// Types a text into a window, then presses Enter.
    ///
    /// # Errors
    /// What tmux said.
    pub fn type_line(&self, window: &TmuxWindow, text: &str) -> Result<(), Error> {
        self.query_tmux(&["send-keys", "-t", &window.id, "-l", "--", text])?;
        // What comes at once would be taken for a part of it by programs that are made for pasting.
        std::thread::sleep(BEFORE_ENTER);
        self.query_tmux(&["send-keys", "-t", &window.id, "Enter"]).map(|_| ())
    }

    /// The command that shows a window to whoever runs it in a terminal. `inside` is `$TMUX`: whoever is
    /// in this server already is only taken to the window.
    ///
    /// # Errors
    /// There is no tmux.
    pub fn attach_command(
        &self,
        window: &TmuxWindow,
        inside: Option<&OsStr>,
    ) -> Result<Vec<OsString>, Error> {
        let socket =
            self.query_tmux(&["display-message", "-p", "#{socket_path}"]).unwrap_or_default();
        let socket = socket.trim();
        let here = inside
            .and_then(OsStr::to_str)
            .is_some_and(|inside| !socket.is_empty() && inside.split(',').next() == Some(socket));
        let verb = if here { "switch-client" } else { "attach-session" };
        let target = format!("={SESSION_NAME}:{}", window.id);
        let words = self.base_args(&[verb.into(), "-t".into(), target.into()]);
        Ok(std::iter::once(program(&[])?.program().to_owned()).chain(words).collect())
    }
}

/// The user's tmux, with this environment.
fn program(env: &[(OsString, Option<OsString>)]) -> Result<OutsideCommand, Error> {
    OutsideCommand::find(OsStr::new("tmux"), env).map_err(|err| {
        let error = err.error("workers run in it; install tmux 3.2 or later");
        Error { kind: ErrorKind::Failed, ..error }
    })
}
