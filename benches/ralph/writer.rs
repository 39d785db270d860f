//! An agent that prints a given amount as fast as possible.

use std::fmt::Write as _;
use std::io::{self, Write as _};

/// The amount in bytes.
pub(super) const SIZE_VARIABLE: &str = "BENCH_STREAM_BYTES";
const PIECE: usize = 60 * 1024;

/// Recorded lines, mostly short.
const RECORDED: [&str; 5] = [
    include_str!("../../tests/fixtures/claude/text.ndjson"),
    include_str!("../../tests/fixtures/claude/thinking.ndjson"),
    include_str!("../../tests/fixtures/claude/tool_multi.ndjson"),
    include_str!("../../tests/fixtures/claude/tool_error.ndjson"),
    include_str!("../../tests/fixtures/claude/subagent.ndjson"),
];
/// A recorded tool call, repeated with longer outputs.
const TOOL_CALL: &str = include_str!("../../tests/fixtures/claude/tool_ok.ndjson");
/// In lines.
const OUTPUTS: [usize; 4] = [3, 10, 40, 400];

/// Produces a stream of about this size: a start, repeated rounds of work, a result. Pieces end
/// inside a character where possible. Nothing completes a run.
pub(super) fn stream(bytes: u64, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let round = round().into_bytes();
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut rest = round.as_slice();
    while rest.len() > PIECE {
        let inside = rest[..PIECE].iter().rposition(|byte| byte & 0b1100_0000 == 0b1000_0000);
        let (piece, after) = rest.split_at(inside.unwrap_or(PIECE));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    for line in TOOL_CALL.lines().filter(|line| is_init(line)) {
        each(format!("{line}\n").as_bytes())?;
    }
    for _ in 0..bytes.div_ceil(round.len() as u64) {
        for piece in &pieces {
            each(piece)?;
        }
    }
    for line in TOOL_CALL.lines().filter(|line| is_result(line)) {
        each(without_signal(line).as_bytes())?;
    }
    Ok(())
}

fn round() -> String {
    let mut round = RECORDED.concat();
    for lines in OUTPUTS {
        let mut output = String::new();
        for nth in 0..lines {
            let _ = write!(output, "src/größe_{nth}.rs:{nth}: let gruß = \\\"wörld – 日本\\\";\\n");
        }
        let call = TOOL_CALL
            .replace("\"content\":\"hi\"", &format!("\"content\":\"{output}\""))
            .replace("\"stdout\":\"hi\"", &format!("\"stdout\":\"{output}\""))
            .replace("I will run a command.", "Schritt für Schritt: “größer”, 日本語.\\nNext.");
        round.push_str(&call);
    }
    round.lines().filter(|line| !is_init(line) && !is_result(line)).map(without_signal).collect()
}

/// Removes the completion signal. Adapters read the result's text as well.
fn without_signal(line: &str) -> String {
    line.replace("<response>", "") + "\n"
}

fn is_init(line: &str) -> bool {
    line.contains(r#""subtype":"init""#)
}

fn is_result(line: &str) -> bool {
    line.contains(r#""type":"result""#)
}

pub(super) fn main() -> io::Result<()> {
    let bytes = std::env::var(SIZE_VARIABLE).ok().and_then(|size| size.parse().ok()).unwrap_or(0);
    let mut out = std::fs::File::from(rustix::io::dup(io::stdout())?);
    stream(bytes, |piece| out.write_all(piece))
}
