//! The measurements.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ralph_agents as agents;
use ralph_driver::driver;
use ralph_driver::run_spec::{AgentSpec, PromptSource, RunSpec};
use ralph_engine::completion::CompletionRule;
use ralph_engine::prompt::OutputLimits;
use ralph_engine::rules::{Budget, QuestionMode, RateLimit, Retry, RetryScope, Rules};
use ralph_engine::stall::StallRule;
use ralph_events::event::{Event, Isolation};
use ralph_events::line_splitter::LineSplitter;
use ralph_report::Reporter;
use ralph_report::json::JsonReporter;
use ralph_report::output::OutputStream;
use ralph_store::runs;

use crate::bench_dir::{BenchDir, cpu_seconds, proc_figure, silent};
use crate::hooks;
use crate::null_world::NullWorld;
use crate::table::{Table, Target, count, size, speed, time};
use crate::{monitor, sandbox, serve, soak, ui, workers, writer};

/// A section, with the number from the command line.
type Section = fn(&BenchDir, &mut Table, Option<u64>) -> io::Result<()>;

const SECTIONS: [(&str, Section); 13] = [
    ("start", start),
    ("hooks", hooks::hooks),
    ("iteration", iteration),
    ("sandbox", sandbox::sandbox),
    ("stream", stream),
    ("memory", memory),
    ("silent", silence),
    ("loops", loops),
    ("workers", workers::workers),
    ("monitor", monitor::monitor),
    ("ui", ui::ui),
    ("serve", serve::serve),
    (SOAK, soak::soak),
];

/// Takes minutes, so it runs only on request.
const SOAK: &str = "soak";

pub(super) fn main() -> io::Result<()> {
    // Cargo adds flags for a test harness.
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let bench_dir = BenchDir::new()?;
    let mut table = Table::default();
    let mut out = io::stdout();
    for (name, section) in SECTIONS {
        let choice = chosen.iter().find(|arg| arg.split('=').next() == Some(name));
        if choice.is_some() || (chosen.is_empty() && name != SOAK) {
            write!(out, "{name} ")?;
            out.flush()?;
            let number = choice.and_then(|arg| arg.split_once('=')?.1.parse().ok());
            section(&bench_dir, &mut table, number)?;
        }
    }
    table.print(&mut out)
}

/// The medians of two operations, run in turn so that both meet the same disturbances.
pub(super) fn compare(
    rounds: usize,
    mut floor: impl FnMut() -> io::Result<()>,
    mut ralph: impl FnMut() -> io::Result<()>,
) -> io::Result<(f64, f64)> {
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        times.0.push(timed(&mut floor)?);
        times.1.push(timed(&mut ralph)?);
    }
    Ok((median(times.0), median(times.1)))
}

pub(super) fn timed(task: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    task()?;
    Ok(start.elapsed().as_secs_f64())
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn start(bench_dir: &BenchDir, table: &mut Table, _: Option<u64>) -> io::Result<()> {
    let mut floor = silent(Command::new(bench_dir.path("true")));
    let mut version = bench_dir.ralph();
    version.arg("--version");
    let times = compare(400, || floor.status().map(drop), || version.status().map(drop))?;
    table.ratio("ralph --version, compared with a static `true`", times, time, Target::AtMost(1.6));

    let mut run = bench_dir.ralph_run("start", 1, &["true"]);
    let mut firsts = Vec::new();
    for _ in 0..50 {
        let began = jiff::Timestamp::now();
        run.run()?;
        let first = runs::read_journal(&run.journal()?)?
            .find(|entry| matches!(entry.event, Event::AgentStarted { .. }));
        let first = first.map_or(i64::MAX, |entry| entry.at.time_ms);
        // The journal has whole milliseconds.
        firsts.push((first as f64 + 0.5) / 1e3 - began.as_nanosecond() as f64 / 1e9);
    }
    table.value("ralph run, until its first agent starts", median(firsts), time, Target::None);
    Ok(())
}

fn iteration(bench_dir: &BenchDir, table: &mut Table, _: Option<u64>) -> io::Result<()> {
    const ITERATIONS: u64 = 500;
    const MANY: usize = 10_000;
    let mut bare = silent(Command::new(bench_dir.path("true")));
    let mut run = bench_dir.ralph_run("iteration", ITERATIONS, &["true"]);
    let (floor, ralph) = compare(
        7,
        || {
            for _ in 0..ITERATIONS {
                bare.status()?;
            }
            Ok(())
        },
        || run.run(),
    )?;
    let each = (floor / ITERATIONS as f64, ralph / ITERATIONS as f64);
    table.ratio(
        "iteration of an instant agent, compared with spawn and wait",
        each,
        time,
        Target::AtMost(1.6),
    );

    let mut run = bench_dir.ralph_run("many", MANY as u64, &["true"]);
    run.run()?;
    let starts: Vec<f64> = runs::read_journal(&run.journal()?)?
        .filter(|entry| matches!(entry.event, Event::AgentStarted { .. }))
        .map(|entry| entry.at.time_ms as f64 / 1e3)
        .collect();
    if starts.len() != MANY {
        return Err(io::Error::other(format!("{} iterations of {MANY}", starts.len())));
    }
    // Medians, so that a disturbance does not count.
    let stretch = |from: usize| {
        let steps = starts[from..from + 1000].chunks(100);
        median(steps.map(|step| (step[99] - step[0]) / 99.0).collect())
    };
    let ends = (stretch(0), stretch(MANY - 1000));
    table.ratio(
        "10,000 iterations: the last 1000 compared with the first 1000",
        ends,
        time,
        Target::AtMost(1.1),
    );
    Ok(())
}

fn stream(bench_dir: &BenchDir, table: &mut Table, megabytes: Option<u64>) -> io::Result<()> {
    let bytes = megabytes.unwrap_or(500) * 1_000_000;
    let claude = bench_dir.path("claude");
    let quiet = || driven(&claude, bytes, Vec::new());
    let (floor, ralph) = compare(9, || split_only(&claude, bytes), quiet)?;
    let speeds = (bytes as f64 / floor, bytes as f64 / ralph);
    table.ratio(
        "claude stream to events, compared with read and split",
        speeds,
        speed,
        Target::None,
    );
    table.value("  speed", speeds.1, speed, Target::AtLeast(200e6));
    let json = || -> io::Result<()> {
        let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
        driven(&claude, bytes, vec![Box::new(JsonReporter::new(OutputStream::new(nowhere)))])
    };
    let json = timed(json)?;
    table.value("the same with --output json", bytes as f64 / json, speed, Target::None);
    Ok(())
}

/// The minimum: reading and splitting lines.
fn split_only(claude: &Path, bytes: u64) -> io::Result<()> {
    let mut child = silent(Command::new(claude))
        .env(writer::SIZE_VARIABLE, bytes.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    // A pipe as large as ralph's, and the fastest buffer size.
    rustix::pipe::fcntl_setpipe_size(&stdout, 256 * 1024)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut lines = 0_u64;
    loop {
        match stdout.read(&mut buffer)? {
            0 => break,
            length => lines += memchr::memchr_iter(b'\n', &buffer[..length]).count() as u64,
        }
    }
    std::hint::black_box(lines);
    child.wait().map(drop)
}

/// The whole engine with the writer as agent, without a disk.
fn driven(claude: &Path, bytes: u64, reporters: Vec<Box<dyn Reporter>>) -> io::Result<()> {
    let spec = RunSpec {
        command: "run",
        run_id: "bench".to_owned(),
        name: None,
        directory: std::env::temp_dir(),
        ralph_dir: std::env::temp_dir(),
        agent: AgentSpec {
            adapter: agents::for_command("claude"),
            program: claude.to_string_lossy().into_owned(),
            version: None,
            flags: Vec::new(),
            model: None,
            autonomous: true,
            sandboxed: false,
            git_directories: Vec::new(),
            has_hook: false,
            files: Vec::new(),
            stream: true,
            prompt_via: None,
            keep_background: false,
            env: vec![(writer::SIZE_VARIABLE.into(), Some(bytes.to_string().into()))],
            args: None,
            response_filter: None,
            stderr_counts_as_output: false,
            interactive: false,
        },
        isolation: Isolation::default(),
        prompt: PromptSource::Text("Do it.".to_owned()),
        variables: None,
        empty_prompt: false,
        required: Vec::new(),
        required_outputs: Vec::new(),
        settings_files: Vec::new(),
        show_iteration_in_prompt: true,
        completion: CompletionRule::Response("DONE".to_owned()),
        guardrails: Vec::new(),
        missing_signal: None,
        guardrail_output: OutputLimits { head: 5000, tail: 2000 },
        scm: None,
        tasks: None,
        rules: rules(),
        notify: None,
        questions_dir: None,
        display_filter: None,
        completion_is_final: false,
        resumed: None,
        journal_bytes: u64::MAX,
    };
    let finish = driver::run(&spec, &mut NullWorld::new()?, reporters, &[]);
    if finish.exit_code == 1 { Ok(()) } else { Err(io::Error::other(format!("{finish:?}"))) }
}

fn rules() -> Rules {
    Rules {
        max_iterations: 1,
        exit_at_limit: 1,
        exit_without_prompt: 2,
        retry: Retry {
            scope: RetryScope::SameIteration { retries: 0 },
            backoff_ms: 0,
            backoff_cap_ms: 0,
            exit_code: 4,
        },
        retry_empty: false,
        inactivity_ms: None,
        inactivity_fails: true,
        silent_model_ms: None,
        iteration_timeout_ms: None,
        result_grace_ms: None,
        rate_limit: RateLimit { wait: false, max_wait_ms: 0 },
        budget: Budget::default(),
        iteration_budget: Budget::default(),
        guardrails: Vec::new(),
        scm: Vec::new(),
        scm_timeout_ms: None,
        gates: false,
        stall: StallRule::default(),
        term_pauses: false,
        max_refusals: Rules::MAX_REFUSALS,
        check_done_ms: Some(Rules::CHECK_DONE_MS),
        notify: false,
        questions: QuestionMode::Continue,
    }
}

fn memory(bench_dir: &BenchDir, table: &mut Table, megabytes: Option<u64>) -> io::Result<()> {
    for megabytes in [50, megabytes.unwrap_or(500)] {
        let bytes = megabytes * 1_000_000;
        let mut run = bench_dir.ralph_run("memory", 1, &["claude"]);
        run.command.env(writer::SIZE_VARIABLE, bytes.to_string());
        // No journal limit: `soak` checks that one.
        run.command.env("RALPH_RUNS__MAX_JOURNAL_MEGABYTES", u32::MAX.to_string());
        let began = Instant::now();
        let mut child = run.spawn()?;
        let mut peak = 0.0;
        while child.try_wait()?.is_none() {
            // The last value stays if the process is gone.
            peak = proc_figure(child.id(), "status", "VmHWM:").unwrap_or(peak);
            std::thread::sleep(Duration::from_millis(5));
        }
        let seconds = began.elapsed().as_secs_f64();
        table.value(
            &format!("peak memory at {megabytes} MB of output"),
            peak,
            size,
            Target::AtMost(16e6),
        );
        table.value(
            "  speed, with journal and raw log on this disk",
            bytes as f64 / seconds,
            speed,
            Target::None,
        );
        table.value("  disk usage", run.on_disk()? as f64, size, Target::None);
        let arrived =
            runs::read_journal(&run.journal()?)?.filter(|entry| of_agent(&entry.event)).count();
        table.ratio(
            "  events in the journal, compared with the stream",
            (events_in(bytes)? as f64, arrived as f64),
            count,
            Target::AtLeast(1.0),
        );
    }
    Ok(())
}

fn of_agent(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::Session { .. }
            | Event::Text { .. }
            | Event::Thinking { .. }
            | Event::ToolStarted { .. }
            | Event::ToolEnded { .. }
            | Event::Todo { .. }
            | Event::Usage(_)
            | Event::Notice { .. }
            | Event::BackgroundTasks { .. }
            | Event::Result { .. }
            | Event::Output { .. }
    )
}

/// The expected events, without a process or a pipe.
fn events_in(bytes: u64) -> io::Result<u64> {
    let mut reader = agents::for_command("claude").reader(true);
    let mut splitter = LineSplitter::new(reader.max_line());
    let mut events = 0;
    writer::stream(bytes, |piece| {
        splitter.push(piece, |line| reader.stdout(line, &mut |_| events += 1));
        Ok(())
    })?;
    Ok(events)
}

fn silence(bench_dir: &BenchDir, table: &mut Table, _: Option<u64>) -> io::Result<()> {
    const SECONDS: u64 = 5;
    let mut child = bench_dir.ralph_run("silent", 1, &["ticker", "silent"]).spawn()?;
    std::thread::sleep(Duration::from_secs(1));
    let wakes = || proc_figure(child.id(), "status", "voluntary_ctxt_switches:");
    let before = wakes()?;
    std::thread::sleep(Duration::from_secs(SECONDS));
    let wakes = wakes()? - before;
    end(vec![&mut child])?;
    table.value(
        &format!("wake-ups in {SECONDS} s with a silent agent"),
        wakes,
        count,
        Target::AtMost(0.0),
    );
    Ok(())
}

/// Many loops, each with an agent that prints a line per second.
fn loops(bench_dir: &BenchDir, table: &mut Table, number: Option<u64>) -> io::Result<()> {
    let number = number.unwrap_or(50);
    let (floor, _) = watch(number, |nth| {
        silent(Command::new(bench_dir.path("reader")))
            .args([bench_dir.path("ticker"), bench_dir.path(&format!("reader-{nth}.log"))])
            .spawn()
    })?;
    let (ralph, memory) =
        watch(number, |nth| bench_dir.ralph_run(&format!("loop-{nth}"), 1, &["ticker"]).spawn())?;
    table.value(
        &format!("memory per loop, with {number} loops (PSS)"),
        memory,
        size,
        Target::AtMost(1.5e6),
    );
    table.ratio(
        "CPU time of a loop per line, compared with poll, read, write in C",
        (floor, ralph),
        time,
        Target::AtMost(4.0),
    );
    Ok(())
}

/// Processor time per second and process, and memory per process.
fn watch(number: u64, spawn: impl FnMut(u64) -> io::Result<Child>) -> io::Result<(f64, f64)> {
    const SECONDS: u64 = 10;
    let mut children = (0..number).map(spawn).collect::<io::Result<Vec<_>>>()?;
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    std::thread::sleep(Duration::from_secs(2));
    let all_busy = || pids.iter().map(|&pid| cpu_seconds(pid)).sum::<io::Result<f64>>();
    let before = all_busy()?;
    std::thread::sleep(Duration::from_secs(SECONDS));
    let used = all_busy()? - before;
    let memory = pids
        .iter()
        .map(|&pid| proc_figure(pid, "smaps_rollup", "Pss:"))
        .sum::<io::Result<f64>>()?;
    end(children.iter_mut().collect())?;
    Ok((used / (SECONDS * number) as f64, memory / number as f64))
}

/// Ends processes, which end their agents themselves.
fn end(children: Vec<&mut Child>) -> io::Result<()> {
    for child in &children {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::HUP)?;
        }
    }
    for child in children {
        child.wait()?;
    }
    Ok(())
}
