//! Children of the real world, inside and outside the sandbox.

use std::io;

use ralph_engine::machine::Now;
use ralph_process::trust::{self, OutsideCommand};
use ralph_process::{ChildId, Launch, Occurrence, TerminalSize};
use ralph_sandbox as sandbox;
use ralph_sandbox::Sandbox;
use ralph_sandbox::proxy::Proxy;

use super::{ActiveSandbox, Part, Processes, RealWorld, Started};

impl RealWorld {
    /// Reports keys typed into our terminal from now on.
    ///
    /// # Errors There is no standard input.
    pub fn watch_keys(&mut self) -> io::Result<()> {
        self.system.set_key_input(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
        Ok(())
    }

    /// Starts agents inside this sandbox from now on; with `checks`, guardrails and SCM tasks too.
    pub fn set_sandbox(&mut self, mut sandbox: Box<dyn Sandbox>, checks: bool) {
        self.system.set_wake_pipe(sandbox.proxy().and_then(Proxy::take_wake_pipe));
        self.sandbox =
            Some(ActiveSandbox { sandbox, checks, child: None, pending_traces: Vec::new() });
    }

    fn start_on_terminal(&mut self, launch: &Launch<'_>) -> io::Result<Started> {
        let size = terminal_size();
        let system = &mut self.system;
        let (child, pid) = match &mut self.sandbox {
            Some(cell) => {
                let sandbox = cell.sandbox.as_mut();
                let started = sandbox::start_on_terminal(sandbox, system, launch, size)?;
                cell.child = Some(started.0);
                started
            }
            None => system.start(&Launch { terminal: Some(size), ..launch.clone() })?,
        };
        Ok(Started { child, pid, terminal: Some(size) })
    }
}

impl Processes for RealWorld {
    fn now(&self) -> Now {
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let wall_ms = wall.tv_sec.saturating_mul(1000).saturating_add(wall.tv_nsec / 1_000_000);
        Now { mono_ms: self.system.now_ms(), wall_ms }
    }

    fn start(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<Started> {
        if let Some(cell) = &mut self.sandbox
            && (part == Part::Agent || cell.checks && matches!(part, Part::Check | Part::Scm))
        {
            let started = sandbox::start(cell.sandbox.as_mut(), &mut self.system, launch, None)?;
            cell.child = Some(started.0);
            return Ok(Started::new(started));
        }
        let started = match part {
            Part::Agent => self.system.start(launch),
            Part::InteractiveAgent => return self.start_on_terminal(launch),
            // The shell is ours, the command the user's.
            Part::Check => {
                let shell = trust::outside_program(launch.program)?;
                self.system.start(&Launch { program: shell.as_os_str(), ..launch.clone() })
            }
            Part::Scm => {
                self.check_links_before_write()?;
                let args = self.scm_args_without_agent_hooks(launch)?;
                let command = OutsideCommand::find(launch.program, launch.env)?;
                self.system.start(&command.launch(&Launch { args: &args, ..launch.clone() }))
            }
            Part::Notify => {
                let command = OutsideCommand::find(launch.program, launch.env)?;
                self.system.start(&command.launch(launch))
            }
            Part::Filter => {
                let command = OutsideCommand::find(launch.program, launch.env)?;
                let launch = Launch { has_stdin_pipe: true, ..launch.clone() };
                self.system.start(&command.launch(&launch))
            }
        };
        started.map(Started::new)
    }

    fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool {
        self.system.feed(child, bytes)
    }

    fn ask(&mut self, child: ChildId, question: &[u8], patience_ms: u64) -> io::Result<Vec<u8>> {
        self.system.ask(child, question, patience_ms)
    }

    fn close_input(&mut self, child: ChildId) {
        self.system.close_input(child);
    }

    fn end(&mut self, child: ChildId, at_once: bool) {
        if at_once {
            self.system.kill_child(child);
        } else {
            self.system.terminate_child(child);
        }
    }

    fn resize(&mut self, child: ChildId) -> TerminalSize {
        let size = terminal_size();
        self.system.resize(child, size);
        size
    }

    fn reads_keys(&mut self, child: ChildId) -> bool {
        self.system.reads_keys(child)
    }

    fn rest(&mut self) {
        if let Some(cell) = &mut self.sandbox {
            cell.sandbox.rest(&mut self.system);
        }
    }

    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        self.is_repository_checked = false;
        self.links_checked = false;
        let happened = self.system.wait(until_mono_ms, buf);
        if let (Occurrence::Ended(child, _), Some(cell)) = (&happened, &mut self.sandbox)
            && cell.child == Some(*child)
        {
            cell.child = None;
            cell.pending_traces.extend(cell.sandbox.cleanup());
        }
        happened
    }
}

fn terminal_size() -> TerminalSize {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row, columns: size.ws_col }
        }
        _ => TerminalSize::DEFAULT,
    }
}
