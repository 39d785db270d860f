//! `ralph ui` on a terminal of its own: first frame, key to frame, memory, wake-ups.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::termios::{Winsize, tcsetwinsize};

use crate::bench_dir::{BenchDir, proc_figure};
use crate::monitor::{new_run, write_journal, write_many};
use crate::table::{Table, Target, size, time};

/// The end of a frame.
const FRAME_END: &[u8] = b"\x1b[?2026l";
const IDLE: Duration = Duration::from_secs(3);

struct Screen {
    child: Child,
    terminal: File,
    started: Instant,
}

impl Screen {
    fn open(bench_dir: &BenchDir, home: &Path, args: &[&str]) -> io::Result<Screen> {
        let (terminal, program) = ralph_process::open_pty()?;
        let size = Winsize { ws_row: 60, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&program, size)?;
        let mut command = bench_dir.ralph();
        command.arg("ui").args(args).env("RALPH_HOME", home);
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8").env_remove("COLORTERM");
        command.stdin(program.try_clone()?).stdout(program);
        let started = Instant::now();
        Ok(Screen { child: command.spawn()?, terminal: terminal.into(), started })
    }

    fn read_frame(&mut self) -> io::Result<Vec<u8>> {
        let mut frame = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        while !frame.ends_with(FRAME_END) {
            let count = self.terminal.read(&mut bytes)?;
            frame.extend_from_slice(&bytes[..count]);
        }
        Ok(frame)
    }

    /// Reads frames until one has this text.
    fn wait_for(&mut self, text: &[u8]) -> io::Result<()> {
        while memchr::memmem::find(&self.read_frame()?, text).is_none() {}
        Ok(())
    }

    /// Of all threads.
    fn wake_ups(&self) -> io::Result<u64> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = fs::read_to_string(task?.path().join("status"))?;
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum)
    }

    fn close(mut self) -> io::Result<()> {
        self.terminal.write_all(b"q")?;
        // It cannot leave before its last frames are read. Reading fails once the program has left.
        let mut bytes = vec![0; 1 << 16];
        while self.terminal.read(&mut bytes).is_ok_and(|count| count > 0) {}
        let code = self.child.wait()?;
        code.success().then_some(()).ok_or_else(|| io::Error::other(format!("{code}")))
    }
}

pub(super) fn ui(
    bench_dir: &BenchDir,
    table: &mut Table,
    megabytes: Option<u64>,
) -> io::Result<()> {
    let home = bench_dir.path("ui-many");
    write_many(bench_dir, &home)?;
    let mut first = Vec::new();
    for _ in 0..10 {
        let mut screen = Screen::open(bench_dir, &home, &[])?;
        screen.read_frame()?;
        first.push(screen.started.elapsed().as_secs_f64());
        screen.close()?;
    }
    first.sort_by(f64::total_cmp);
    let median = first[first.len() / 2];
    table.value("first frame with 200 runs", median, time, Target::AtMost(0.06));

    let mut screen = Screen::open(bench_dir, &home, &[])?;
    screen.read_frame()?;
    let mut slowest: f64 = 0.0;
    for key in [b"j", b"j", b"k", b"2", b"1", b"?", b"?", b"G", b"g"].iter().cycle().take(90) {
        let pressed = Instant::now();
        screen.terminal.write_all(*key)?;
        screen.read_frame()?;
        slowest = slowest.max(pressed.elapsed().as_secs_f64());
    }
    table.value("slowest of 90 keys to its frame", slowest, time, Target::AtMost(0.016));
    // One thread does the work that keys started, in order. This is the last of it.
    screen.terminal.write_all(b"3")?;
    screen.wait_for(b"repository")?;
    let before = screen.wake_ups()?;
    std::thread::sleep(IDLE);
    let woken = screen.wake_ups()? - before;
    table.value(
        "wake-ups in 3 idle seconds",
        woken as f64,
        |count| format!("{count}"),
        Target::AtMost(0.0),
    );
    let memory = proc_figure(screen.child.id(), "status", "VmHWM:")?;
    table.value("most memory", memory, size, Target::AtMost(40e6));
    screen.close()?;
    large(bench_dir, table, megabytes.unwrap_or(200))
}

fn large(bench_dir: &BenchDir, table: &mut Table, megabytes: u64) -> io::Result<()> {
    let home = bench_dir.path("ui-large");
    let run =
        new_run(&home, &bench_dir.path("ui-project"), jiff::Timestamp::now().as_millisecond())?;
    write_journal(&run, megabytes << 20)?;
    let mut screen = Screen::open(bench_dir, &home, &[&run.id])?;
    screen.read_frame()?;
    let first = screen.started.elapsed().as_secs_f64();
    let label = format!("first frame with a {megabytes} MB journal");
    table.value(&label, first, time, Target::AtMost(0.15));
    let memory = proc_figure(screen.child.id(), "status", "VmHWM:")?;
    table.value("memory then", memory, size, Target::AtMost(40e6));
    screen.close()
}
