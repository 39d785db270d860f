//! Runs the fuzz targets without a fuzzer, on their seeds and on reproducible mutations.
//! `scripts/fuzz` runs the real fuzzer.
//!
//! `RALPH_FUZZ_ROUNDS=100000 cargo test --test fuzz claude` mutates more often.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its seeds has failed")]

#[path = "../fuzz/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;

use targets::{TARGETS, Target};

/// Bytes of mutations per target. Most targets take a microsecond per byte without optimization.
const BYTES: usize = 200_000;
/// Longer seeds are cut: a part of them finds the same.
const LONGEST: usize = 8 * 1024;

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    if name == "policy" {
        let corpus =
            fs::read_to_string(root.join("crates/shell-policy/tests/policy/corpus.txt")).unwrap();
        let command = |line: &str| Some(line.splitn(3, char::is_whitespace).nth(2)?.to_owned());
        let lines = corpus.lines().filter(|line| !line.starts_with('#'));
        return lines
            .filter_map(command)
            .map(|command| command.trim_start().replace('⏎', "\n").into_bytes())
            .collect();
    }
    let of_lines = ["claude", "codex"];
    let recorded: &[&str] = match name {
        "lines" | "text" => &of_lines,
        name => &[name],
    };
    let mut seeds = Vec::new();
    let recorded = recorded.iter().map(|name| root.join("tests/fixtures").join(name));
    for dir in recorded.chain([root.join("fuzz/seeds").join(name)]) {
        let Ok(files) = fs::read_dir(dir) else { continue };
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_none_or(|it| it == "ndjson" || it == "txt"));
        files.sort();
        seeds.extend(files.iter().map(|file| fs::read(file).unwrap()));
    }
    for seed in &mut seeds {
        seed.truncate(LONGEST);
    }
    seeds
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % most.max(1)
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let from = self.below(length + 1);
        let most = (length - from).min(64);
        from..from + self.below(most + 1)
    }

    fn mutate(&mut self, data: &mut Vec<u8>, others: &[Vec<u8>]) {
        const ODD: &[u8] = b"\0\n\r\"\\'{}[]()<>$`;|&,:/~#=\xff\xc3\xe2\x80\x1b 09aA-";
        let at = self.below(data.len() + 1);
        match self.below(8) {
            0 => data.insert(at, ODD[self.below(ODD.len())]),
            1 if at < data.len() => data[at] = ODD[self.below(ODD.len())],
            2 if at < data.len() => data[at] ^= 1 << self.below(8),
            3 => {
                data.drain(self.range(data.len()));
            }
            4 => {
                let piece = data[self.range(data.len())].to_vec();
                data.splice(at..at, piece);
            }
            5 => data.truncate(at),
            6 => {
                let other = &others[self.below(others.len())];
                let piece = other[self.range(other.len())].to_vec();
                data.splice(at..at, piece);
            }
            _ => {
                let word: &[u8] = match self.below(6) {
                    0 => b"null",
                    1 => b"-1",
                    2 => b"18446744073709551616",
                    3 => b"1e999",
                    4 => "\u{202e}é日😀".as_bytes(),
                    _ => b"\\ud800",
                };
                data.splice(at..at, word.iter().copied());
            }
        }
    }
}

fn fuzz(name: &str) {
    let target: Target = TARGETS.iter().find(|(known, _)| *known == name).unwrap().1;
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let run = |data: &[u8]| {
        if std::panic::catch_unwind(|| target(data)).is_err() {
            let path = std::env::temp_dir().join(format!("ralph-fuzz-{name}"));
            let save_error =
                fs::write(&path, data).map_or_else(|err| err.to_string(), |()| String::new());
            panic!("{:?} is in {} {save_error}", String::from_utf8_lossy(data), path.display());
        }
    };
    seeds.iter().for_each(|seed| run(seed));
    let rounds = std::env::var("RALPH_FUZZ_ROUNDS").ok().map(|text| text.parse::<usize>().unwrap());
    let mut dice = Dice(0x1234_5678_9ABC_DEF1);
    let (mut bytes, mut round) = (0, 0);
    while rounds.map_or(bytes < BYTES && round < 1_000, |rounds| round < rounds) {
        let mut data = seeds[dice.below(seeds.len())].clone();
        for _ in 0..=dice.below(4) {
            dice.mutate(&mut data, &seeds);
        }
        run(&data);
        bytes += data.len();
        round += 1;
    }
    targets::clean_up();
}

macro_rules! fuzzed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn every_target_and_adapter_is_fuzzed() {
            let ours = [$(stringify!($name)),*];
            assert_eq!(TARGETS.map(|(name, _)| name), ours);
            for adapter in ralph_agents::all() {
                assert!(ours.contains(&adapter.name()), "{}", adapter.name());
            }
            let fuzzers = fs::read_dir(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fuzz/fuzz_targets"));
            assert_eq!(fuzzers.unwrap().count(), ours.len());
        }
    };
}

fuzzed! {
    amp claude cline codex completion config copilot gemini hooks journal lines opencode policy qwen
    settings tasks text
}
