//! Parsing speed of agent streams, compared with splitting lines only (`cargo bench --bench
//! parse`).
//!
//! The stream repeats a recorded tool call with outputs of typical sizes.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::thread;

use ralph_agents as agents;
use ralph_events::event::Event;
use ralph_events::line_splitter::LineSplitter;

const TOTAL: usize = 200 * 1024 * 1024;

fn main() -> io::Result<()> {
    let streams = [
        ("small outputs", stream(&[0, 3, 40])),
        ("mixed outputs", stream(&[0, 3, 40, 400, 2000])),
        ("large outputs", stream(&[2000, 20_000])),
    ];
    let only = std::env::args().nth(1).unwrap_or_default();
    for (name, bytes) in streams {
        if !only.starts_with('-') && !name.starts_with(&only) {
            continue;
        }
        let (floor, lines) = best(&bytes, split)?;
        let (full, events) = best(&bytes, parse)?;
        writeln!(
            io::stdout(),
            "{name}: {lines} lines, {events} events; read and split {floor:.0} MB/s, \
             with parsing {full:.0} MB/s, ratio {:.2}",
            full / floor
        )?;
    }
    Ok(())
}

/// The best of a few rounds, in MB per second of thread time, and the count.
fn best(bytes: &[u8], run: fn(&mut dyn Read) -> io::Result<u64>) -> io::Result<(f64, u64)> {
    let mut seconds = f64::INFINITY;
    let mut counted = 0;
    for _ in 0..5 {
        let (mut from, mut to) = io::pipe()?;
        counted = thread::scope(|scope| {
            scope.spawn(move || to.write_all(bytes));
            let start = busy();
            let counted = run(&mut from);
            seconds = seconds.min(busy() - start);
            counted
        })?;
    }
    Ok((bytes.len() as f64 / 1e6 / seconds, counted))
}

/// Thread time leaves out the writer and other programs.
fn busy() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn split(from: &mut dyn Read) -> io::Result<u64> {
    let mut lines = 0;
    let mut splitter = LineSplitter::new(64 * 1024 * 1024);
    each_chunk(from, |chunk| {
        splitter.push(chunk, |line| {
            black_box(line);
            lines += 1;
        });
    })?;
    Ok(lines)
}

fn parse(from: &mut dyn Read) -> io::Result<u64> {
    let mut events = 0;
    let mut reader = agents::for_command("claude").reader(true);
    let mut splitter = LineSplitter::new(reader.max_line());
    let mut emit = |event: Event<'_>| {
        black_box(event);
        events += 1;
    };
    each_chunk(from, |chunk| {
        splitter.push(chunk, |line| reader.stdout(line, &mut emit));
    })?;
    Ok(events)
}

fn each_chunk(from: &mut dyn Read, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => each(&buffer[..length]),
        }
    }
}

fn stream(output_lines: &[usize]) -> Vec<u8> {
    let recorded = include_str!("../tests/fixtures/claude/tool_ok.ndjson");
    let block: Vec<String> = output_lines
        .iter()
        .map(|lines| {
            let mut output = String::new();
            for nth in 0..*lines {
                let _ = write!(
                    output,
                    "src/größe_{nth}.rs:{nth}:    let gruß = \\\"wörld – 日本\\\";\\t// {nth}\\n"
                );
            }
            let text = format!("Schritt {lines}: größer, “quoted”, 日本語.\\nNext.");
            recorded
                .lines()
                .filter(|line| {
                    !line.contains("\"subtype\":\"init\"") && !line.contains("\"result_index\"")
                })
                .map(|line| {
                    line.replace("\"content\":\"hi\"", &format!("\"content\":\"{output}\""))
                        .replace("\"stdout\":\"hi\"", &format!("\"stdout\":\"{output}\""))
                        .replace("I will run a command.", &text)
                        + "\n"
                })
                .collect()
        })
        .collect();
    let block = block.concat();
    block.repeat(TOTAL / block.len() + 1).into_bytes()
}
