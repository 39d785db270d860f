//! Tests a new sandbox from inside: what must work and what must not.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::BackendError;
use super::inner_exec::carry_env;
use super::preparation::failed;
use ralph_events::event::Exit;
use ralph_process as process;

/// The internal subcommand.
pub const COMMAND: &str = "__probe";

/// Normally milliseconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// TEST-NET-1. A UDP `connect` sends nothing.
const UNROUTABLE_ADDRESS: &str = "192.0.2.1:9";

/// Name, expected result, and message.
const CHECKS: [(&str, bool, &str); 5] = [
    ("write-project", true, "the project is not writable"),
    ("read-canary", false, "a file outside is readable"),
    ("connect", false, "the network is reachable without the proxy"),
    ("order", false, "kernel settings are writable"),
    ("write-protected", false, "protected files are writable"),
];

/// Between the protected paths and those outside.
const SEPARATOR: &str = "--";

/// Controls the whole machine. Opened, never written.
const KERNEL_CONTROL_FILE: &str = "/proc/sys/kernel/core_pattern";

#[derive(Debug)]
pub(super) struct SandboxProbe {
    inside_file: PathBuf,
    canary: PathBuf,
    protected: Vec<PathBuf>,
    /// Those of `protected` that a failing sandbox would create.
    missing: Vec<PathBuf>,
    outside: Vec<PathBuf>,
    listener: TcpListener,
    network: bool,
    proxy: Option<u16>,
}

impl SandboxProbe {
    /// `hidden` must not be visible inside. With `network`, network access is not checked.
    pub(super) fn prepare(
        project: &Path,
        hidden: &Path,
        network: bool,
    ) -> Result<SandboxProbe, BackendError> {
        SandboxProbe::set_up(project, hidden, network)
            .map_err(|err| failed("cannot set up the probe", &err))
    }

    fn set_up(project: &Path, hidden: &Path, network: bool) -> io::Result<SandboxProbe> {
        // Unpredictable for an agent.
        let mark = format!(".ralph-probe-{:016x}", RandomState::new().build_hasher().finish());
        let canary = hidden.join(format!("{mark}-canary"));
        std::fs::write(&canary, "sing")?;
        let parent = project.parent().unwrap_or(project);
        let outside = [Path::new("/usr"), Path::new("/etc"), parent, hidden];
        Ok(SandboxProbe {
            inside_file: project.join(&mark),
            canary,
            protected: Vec::new(),
            missing: Vec::new(),
            outside: outside.map(|dir| dir.join(&mark)).to_vec(),
            listener: TcpListener::bind("127.0.0.1:0")?,
            network,
            proxy: None,
        })
    }

    /// These files of the project, existing or not, must not be writable.
    pub(super) fn with_protected(mut self, protected: Vec<PathBuf>) -> SandboxProbe {
        self.missing = protected.iter().filter(|path| !path.exists()).cloned().collect();
        self.protected = protected;
        self
    }

    /// The proxy at this port must be within reach.
    pub(super) fn with_proxy(mut self, proxy: Option<u16>) -> SandboxProbe {
        self.proxy = proxy;
        self
    }

    /// Runs the probe by the command that `wrap` makes of its arguments. `explain` judges a failure by
    /// what it printed.
    pub(super) fn run(
        &self,
        env: &[(OsString, Option<OsString>)],
        wrap: impl FnOnce(&[OsString]) -> (OsString, Vec<OsString>),
        explain: impl FnOnce(&str, Exit) -> BackendError,
    ) -> Result<(), BackendError> {
        let args = self.args().map_err(|err| failed("cannot set up the probe", &err))?;
        let (program, args) = wrap(&args);
        let directory = self.inside_file.parent().unwrap_or(Path::new("/"));
        let output =
            process::run_to_end(&program, &args, directory, &carry_env(env), PROBE_TIMEOUT)
                .map_err(|err| BackendError::new(format!("cannot run the probe: {err}")))?;
        if !output.exit.success() {
            return Err(explain(String::from_utf8_lossy(&output.stderr).trim(), output.exit));
        }
        self.evaluate(&output.stdout).map_err(BackendError::new)
    }

    pub(super) fn args(&self) -> io::Result<Vec<OsString>> {
        let mut address = self.listener.local_addr()?.to_string();
        if let Some(port) = self.proxy {
            address.push_str(&format!(",127.0.0.1:{port}"));
        }
        let mut args: Vec<OsString> = vec![COMMAND.into(), address.into()];
        args.extend([self.inside_file.clone().into(), self.canary.clone().into()]);
        args.extend(self.protected.iter().map(|path| path.clone().into()));
        args.push(SEPARATOR.into());
        args.extend(self.outside.iter().map(|path| path.clone().into()));
        Ok(args)
    }

    /// Returns why the sandbox is not one.
    pub(super) fn evaluate(&self, stdout: &[u8]) -> Result<(), String> {
        let stdout = String::from_utf8_lossy(stdout);
        let mut words = stdout.split_whitespace();
        for (trial, expected, failure) in CHECKS {
            let outcome = match (words.next(), words.next()) {
                (Some(name), Some("yes")) if name == trial => true,
                (Some(name), Some("no")) if name == trial => false,
                _ => return Err("the probe did not finish".to_owned()),
            };
            let matters = trial != "connect" || !self.network;
            if matters && outcome != expected {
                return Err(failure.to_owned());
            }
        }
        if self.proxy.is_some() && (words.next(), words.next()) != (Some("proxy"), Some("yes")) {
            return Err("the proxy is not reachable".to_owned());
        }
        // Success of a write means nothing: another file may be visible at that path.
        if self.outside.iter().any(|path| path.exists()) {
            return Err("files outside are writable".to_owned());
        }
        if !self.inside_file.exists() {
            return Err("files written to the project do not appear there".to_owned());
        }
        Ok(())
    }
}

impl Drop for SandboxProbe {
    fn drop(&mut self) {
        let linked = canary_link(self.inside_file.as_os_str());
        for path in self.outside.iter().chain([&self.inside_file, &self.canary, &linked]) {
            let _ = std::fs::remove_file(path);
        }
        let is_probe =
            |path: &&PathBuf| path.metadata().is_ok_and(|it| it.is_file() && it.len() == 0);
        for path in self.missing.iter().filter(is_probe) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The inner process, with the arguments of `SandboxProbe::args`.
pub fn main(args: &[OsString]) -> u8 {
    let [address, project, canary, others @ ..] = args else { return 2 };
    let mut others = others.split(|path| path == SEPARATOR);
    let (Some(protected), Some(outside)) = (others.next(), others.next()) else { return 2 };
    let writes = |path: &OsString| std::fs::write(path, "probe").is_ok();
    let orders = || OpenOptions::new().write(true).open(KERNEL_CONTROL_FILE).is_ok();
    // Changes nothing in a file.
    let opens = |path: &OsString| OpenOptions::new().append(true).create(true).open(path).is_ok();
    let (address, proxy) = match address.to_str().and_then(|address| address.split_once(',')) {
        Some((address, proxy)) => (OsStr::new(address), Some(proxy)),
        None => (address.as_os_str(), None),
    };
    // A second name is as good as the file.
    let reads =
        std::fs::read(canary).is_ok() || std::fs::hard_link(canary, canary_link(project)).is_ok();
    let outcomes =
        [writes(project), reads, can_connect(address), orders(), protected.iter().any(opens)];
    outside.iter().for_each(|path| {
        writes(path);
    });
    let mut text = String::new();
    for ((trial, ..), outcome) in CHECKS.iter().zip(outcomes) {
        text.push_str(&format!("{trial} {}\n", if outcome { "yes" } else { "no" }));
    }
    if let Some(proxy) = proxy {
        let reached = connects(OsStr::new(proxy));
        text.push_str(&format!("proxy {}\n", if reached { "yes" } else { "no" }));
    }
    u8::from(io::stdout().write_all(text.as_bytes()).is_err())
}

/// Whether a local port or a remote address is reachable without the proxy.
fn can_connect(address: &OsStr) -> bool {
    let remote =
        UdpSocket::bind("0.0.0.0:0").is_ok_and(|socket| socket.connect(UNROUTABLE_ADDRESS).is_ok());
    connects(address) || remote
}

fn connects(address: &OsStr) -> bool {
    let address = address.to_str().and_then(|address| address.parse::<SocketAddr>().ok());
    address
        .is_some_and(|address| TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
}

fn canary_link(inside_file: &OsStr) -> PathBuf {
    let mut link = inside_file.to_owned();
    link.push("-link");
    link.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_judges_sandbox_by_what_was_possible() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let report = |trials: [&str; 5]| {
            let names = CHECKS.iter().map(|(name, ..)| *name);
            names.zip(trials).map(|(name, word)| format!("{name} {word}\n")).collect::<String>()
        };
        for (trials, network, expected) in [
            (["yes", "no", "no", "no", "no"], false, Ok(())),
            (["yes", "no", "yes", "no", "no"], true, Ok(())),
            (["yes", "no", "yes", "no", "no"], false, Err(CHECKS[2].2)),
            (["no", "no", "no", "no", "no"], false, Err(CHECKS[0].2)),
            (["yes", "yes", "no", "no", "no"], false, Err(CHECKS[1].2)),
            (["yes", "no", "no", "yes", "no"], false, Err(CHECKS[3].2)),
            (["yes", "no", "no", "no", "yes"], false, Err(CHECKS[4].2)),
            (["yes", "no", "", "no", "no"], false, Err("the probe did not finish")),
        ] {
            let probe = SandboxProbe::set_up(&project, dir.path(), network).unwrap();
            std::fs::write(&probe.inside_file, "").unwrap();
            let judged = probe.evaluate(report(trials).as_bytes());
            assert_eq!(judged, expected.map_err(str::to_owned), "{trials:?}");
        }
        let probe = SandboxProbe::set_up(&project, dir.path(), false).unwrap();
        let good = report(["yes", "no", "no", "no", "no"]);
        assert!(probe.evaluate(good.as_bytes()).is_err(), "no file appeared in the project");
        std::fs::write(&probe.inside_file, "").unwrap();
        assert!(probe.evaluate(good.as_bytes()).is_ok());
        // Beside the project, and in the home.
        for file in &probe.outside[2..] {
            std::fs::write(file, "").unwrap();
            assert!(probe.evaluate(good.as_bytes()).is_err(), "{}", file.display());
            std::fs::remove_file(file).unwrap();
        }
        drop(probe);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "files are left");
    }
}
