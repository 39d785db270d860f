//! A program on a real terminal, in a private tmux server.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::wait_until;

/// Runs the program and saves its exit code, which tmux 3.3 loses for a quarter of the programs.
/// Leaves the keys that send signals to the program.
const KEEP_EXIT_CODE: &str = r#"trap : INT QUIT; "$@"; echo $? >"$0.new"; mv "$0.new" "$0""#;

/// A terminal of 120 by 40 characters that runs one program. The screen outlives the program; the
/// server is killed on drop.
#[derive(Debug)]
pub(crate) struct Tmux {
    directory: PathBuf,
}

impl Tmux {
    #[track_caller]
    pub(crate) fn start(command: &Command, directory: &Path) -> Tmux {
        let tmux = Tmux { directory: directory.to_owned() };
        let mut start = tmux.command();
        // The first client's environment becomes that of every program in the server.
        start
            .env_clear()
            .envs(command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
        start.env("TMUX_TMPDIR", directory).env("LC_ALL", "C.UTF-8");
        start.args(["start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";"]);
        start.args(["new-session", "-d", "-x", "120", "-y", "40", "-s", "main"]);
        if let Some(directory) = command.get_current_dir() {
            start.arg("-c").arg(directory);
        }
        start.args(["--", "sh", "-c", KEEP_EXIT_CODE]);
        start.arg(tmux.exit_code_file());
        start.arg(command.get_program()).args(command.get_args());
        run(&mut start);
        tmux
    }

    /// Types keys as tmux names them: `C-c`, `Enter`, or text.
    #[track_caller]
    pub(crate) fn send_keys<S: AsRef<OsStr>>(&self, keys: impl IntoIterator<Item = S>) {
        run(self.command().args(["send-keys", "-t", "main", "--"]).args(keys));
    }

    #[track_caller]
    pub(crate) fn capture(&self) -> String {
        run(self.command().args(["capture-pane", "-p", "-t", "main"]))
    }

    #[track_caller]
    pub(crate) fn capture_with_colors(&self) -> String {
        run(self.command().args(["capture-pane", "-p", "-e", "-t", "main"]))
    }

    /// The screen and everything above it, with wrapped lines joined.
    #[track_caller]
    pub(crate) fn scrollback(&self) -> String {
        run(self.command().args(["capture-pane", "-p", "-J", "-S", "-", "-t", "main"]))
    }

    #[track_caller]
    pub(crate) fn wait_for_text(&self, deadline: Duration, text: &str) -> String {
        let mut screen = String::new();
        let end = std::time::Instant::now() + deadline;
        while !screen.contains(text) {
            assert!(std::time::Instant::now() < end, "{text:?} did not appear on\n{screen}");
            super::pause();
            screen = self.capture();
        }
        screen
    }

    /// Returns the exit code as a shell does: 128 plus the signal number.
    #[track_caller]
    pub(crate) fn wait_for_exit(&self, deadline: Duration) -> i32 {
        let file = self.exit_code_file();
        wait_until(deadline, || file.exists());
        let code = std::fs::read_to_string(file).expect("the exit code");
        code.trim().parse().expect("a number")
    }

    #[track_caller]
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        run(self.command().args(["resize-window", "-t", "main", "-x", &columns, "-y", &rows]));
    }

    /// What tmux knows about the terminal: `#{alternate_on}`.
    #[track_caller]
    pub(crate) fn format(&self, format: &str) -> String {
        run(self.command().args(["display-message", "-p", "-t", "main", format]))
    }

    /// Pastes text as a terminal does, in brackets if the program asked for them.
    #[track_caller]
    pub(crate) fn paste(&self, text: &str) {
        run(self.command().args(["set-buffer", "--", text]));
        run(self.command().args(["paste-buffer", "-p", "-t", "main"]));
    }

    fn exit_code_file(&self) -> PathBuf {
        self.directory.join("exit-code")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-u", "-L", "test", "-f", "/dev/null"]);
        // The tester may be inside another tmux server.
        command.env_remove("TMUX").env("TMUX_TMPDIR", &self.directory);
        command
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("tmux, which this test needs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
