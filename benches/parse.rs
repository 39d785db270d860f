//! How fast lines become events, against how fast bytes become lines.
//!
//! `cargo bench --bench parse`. The floor is reading and splitting alone; the stream is made of the
//! recorded one of a tool call, with outputs of the sizes that a day of work has.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use ralph::agent;
use ralph::core::event::Event;
use ralph::core::lines::LineSplitter;

const TOTAL: usize = 200 * 1024 * 1024;
const CHUNK: usize = 64 * 1024;

fn main() {
    let streams = [
        ("small outputs", stream(&[0, 3, 40])),
        ("mixed outputs", stream(&[0, 3, 40, 400, 2000])),
        ("large outputs", stream(&[2000, 20_000])),
    ];
    let mut out = std::io::stdout().lock();
    for (name, bytes) in streams {
        let (floor, lines) = best(&bytes, split);
        let (full, events) = best(&bytes, parse);
        let result = writeln!(
            out,
            "{name}: {lines} lines, {events} events; split {floor:.0} MB/s, split and parse {full:.0} MB/s, ratio {:.2}",
            full / floor
        );
        if result.is_err() {
            return;
        }
    }
}

/// The fastest of a few rounds, in MB/s, and what was counted.
fn best(bytes: &[u8], run: fn(&[u8]) -> u64) -> (f64, u64) {
    let mut seconds = f64::INFINITY;
    let mut counted = 0;
    for _ in 0..3 {
        let start = Instant::now();
        counted = run(black_box(bytes));
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    (bytes.len() as f64 / 1e6 / seconds, counted)
}

fn split(bytes: &[u8]) -> u64 {
    let mut lines = 0;
    let mut splitter = LineSplitter::new(64 * 1024 * 1024);
    for chunk in bytes.chunks(CHUNK) {
        splitter.push(chunk, |line| {
            black_box(line);
            lines += 1;
        });
    }
    lines
}

fn parse(bytes: &[u8]) -> u64 {
    let mut events = 0;
    let mut reader = agent::for_command("claude").reader(true);
    let mut splitter = LineSplitter::new(reader.max_line());
    let mut emit = |event: Event<'_>| {
        black_box(event);
        events += 1;
    };
    for chunk in bytes.chunks(CHUNK) {
        splitter.push(chunk, |line| reader.stdout(line, &mut emit));
    }
    events
}

/// Tool calls with outputs of so many lines, in turn.
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
