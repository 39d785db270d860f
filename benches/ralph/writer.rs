//! An agent that prints as much as it is told to, as fast as it can.

use std::fmt::Write as _;
use std::io::{self, Write as _};

/// How much the writer writes, in bytes.
pub(super) const SIZE_VARIABLE: &str = "BENCH_STREAM_BYTES";
/// About what is written at once.
const PIECE: usize = 60 * 1024;

/// Recorded lines as they are, for the many short lines of a stream.
const RECORDED: [&str; 5] = [
    include_str!("../../tests/fixtures/claude/text.ndjson"),
    include_str!("../../tests/fixtures/claude/thinking.ndjson"),
    include_str!("../../tests/fixtures/claude/tool_multi.ndjson"),
    include_str!("../../tests/fixtures/claude/tool_error.ndjson"),
    include_str!("../../tests/fixtures/claude/subagent.ndjson"),
];
/// The recorded tool call whose output is replaced by longer ones.
const TOOL_CALL: &str = include_str!("../../tests/fixtures/claude/tool_ok.ndjson");
/// The lengths of those outputs, in lines.
const OUTPUTS: [usize; 4] = [3, 10, 40, 400];

/// A stream of about so many bytes, in pieces: a beginning, the same round of work again and again,
/// and a result. Every piece but the last of a round ends inside of a character if there is any near
/// its end. Nothing in it completes a run.
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

/// The line with its newline, but without the tag that would complete the run. Adapters also read the text of a
/// result, so the result needs this as much as the messages do.
fn without_signal(line: &str) -> String {
    line.replace("<response>", "") + "\n"
}

fn is_init(line: &str) -> bool {
    line.contains(r#""subtype":"init""#)
}

fn is_result(line: &str) -> bool {
    line.contains(r#""type":"result""#)
}

/// The agent: a write for each piece.
pub(super) fn main() -> io::Result<()> {
    let bytes = std::env::var(SIZE_VARIABLE).ok().and_then(|size| size.parse().ok()).unwrap_or(0);
    let mut out = std::fs::File::from(rustix::io::dup(io::stdout())?);
    stream(bytes, |piece| out.write_all(piece))
}
