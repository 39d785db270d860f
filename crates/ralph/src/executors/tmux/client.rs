//! All calls of tmux. They touch only the session `ralph`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_events::env_names;
use ralph_events::error::{Error, ErrorKind};
use ralph_process::trust::OutsideCommand;

pub const SESSION_NAME: &str = "ralph";

/// Includes starting the server.
const TMUX_TIMEOUT: Duration = Duration::from_secs(20);

const BEFORE_ENTER: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
pub struct Tmux {
    socket: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmuxWindow {
    /// `@3`: unique while the server lives.
    pub id: String,
    pub name: String,
}

impl Tmux {
    /// The user's default server. Not the one that this terminal is attached to: workers must be
    /// found from everywhere.
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
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(Error::failed(format!("tmux: {}", stderr.trim())))
        }
    }

    fn query_tmux(&self, args: &[&str]) -> Result<String, Error> {
        self.run_tmux(&args.iter().map(Into::into).collect::<Vec<_>>())
    }

    /// Opens a window that runs a command, without a shell, and closes with it. The command must
    /// change its directory itself: tmux would expand `#(…)` in a directory argument.
    pub fn open(&self, name: &str, command: &[OsString]) -> Result<TmuxWindow, Error> {
        // The user's configuration may destroy unattached sessions: set this in the same call.
        let session = format!("={SESSION_NAME}:");
        let keep_session = [";", "set-option", "-t", &session, "destroy-unattached", "off"];
        let full_command = |words: &[&str]| {
            let words = words.iter().map(OsString::from);
            let words = words.chain(["--".into()]).chain(command.iter().cloned());
            words.chain(keep_session.iter().map(OsString::from)).collect::<Vec<_>>()
        };
        let output_options = ["-d", "-P", "-F", "#{window_id}", "-n", name];
        let window = [&["new-window", "-t", &session][..], &output_options].concat();
        let new_session =
            [&["new-session", "-s", SESSION_NAME, "-x", "200", "-y", "50"][..], &output_options]
                .concat();
        // Another process may create the session in between.
        let retry = |error: Error, words: &[&str]| match error.kind {
            ErrorKind::Interrupted => Err(error),
            _ => self.run_tmux(&full_command(words)),
        };
        let id = self
            .run_tmux(&full_command(&window))
            .or_else(|error| retry(error, &new_session))
            .or_else(|error| retry(error, &window))?;
        let id = id.trim().to_owned();
        for option in ["automatic-rename", "allow-rename", "remain-on-exit"] {
            // The user's configuration may differ.
            let _ = self.query_tmux(&["set-option", "-w", "-t", &id, option, "off"]);
        }
        Ok(TmuxWindow { id, name: name.to_owned() })
    }

    /// Whether the user's configuration ends the server, with all workers, when no client is
    /// attached.
    pub fn exits_when_unattached(&self) -> bool {
        let query = ["start-server", ";", "show-options", "-s", "-v", "exit-unattached"];
        self.query_tmux(&query).is_ok_and(|answer| answer.trim() == "on")
    }

    /// Empty without a server or a session.
    pub fn windows(&self) -> Vec<TmuxWindow> {
        let target = format!("={SESSION_NAME}");
        let list = ["list-windows", "-t", &target, "-F", "#{window_id} #{window_name}"];
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

    pub fn close(&self, window: &TmuxWindow) {
        let _ = self.query_tmux(&["kill-window", "-t", &window.id]);
    }

    pub fn type_line(&self, window: &TmuxWindow, text: &str) -> Result<(), Error> {
        self.query_tmux(&["send-keys", "-t", &window.id, "-l", "--", text])?;
        // Some programs take an immediate Enter for part of a paste.
        std::thread::sleep(BEFORE_ENTER);
        self.query_tmux(&["send-keys", "-t", &window.id, "Enter"]).map(|_| ())
    }

    /// The command that shows a window in the current terminal. `inside` is `$TMUX`: a client of
    /// this server only switches to the window.
    pub fn attach_command(
        &self,
        window: &TmuxWindow,
        inside: Option<&OsStr>,
    ) -> Result<Vec<OsString>, Error> {
        let socket =
            self.query_tmux(&["display-message", "-p", "#{socket_path}"]).unwrap_or_default();
        let socket = socket.trim();
        let is_same_server = inside
            .and_then(OsStr::to_str)
            .is_some_and(|inside| !socket.is_empty() && inside.split(',').next() == Some(socket));
        let verb = if is_same_server { "switch-client" } else { "attach-session" };
        let target = format!("={SESSION_NAME}:{}", window.id);
        let words = self.base_args(&[verb.into(), "-t".into(), target.into()]);
        Ok(std::iter::once(program(&[])?.program().to_owned()).chain(words).collect())
    }
}

fn program(env: &[(OsString, Option<OsString>)]) -> Result<OutsideCommand, Error> {
    OutsideCommand::find(OsStr::new("tmux"), env).map_err(|err| {
        let error = err.error("background runs need tmux; install version 3.2 or later");
        Error { kind: ErrorKind::Failed, ..error }
    })
}
