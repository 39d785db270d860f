//! The guarantees that depend on the system, and how each is known to hold on a platform.
//!
//! `ralph doctor`, `docs/src/platforms.md` and the README show this table.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The test suite ran there.
    Tested,
    /// The tests passed in an emulator of the processor.
    Emulated,
    /// The code compiles for it and was never run.
    TypeChecked,
    /// The platform does not have it.
    Missing,
}

use Evidence::{Emulated, Missing, Tested, TypeChecked};

#[derive(Debug)]
pub struct Platform {
    pub name: &'static str,
    /// As in [`std::env::consts`].
    os: &'static str,
    arch: &'static str,
}

pub const PLATFORMS: [Platform; 4] = [
    Platform { name: "Linux x86-64", os: "linux", arch: "x86_64" },
    Platform { name: "Linux arm64", os: "linux", arch: "aarch64" },
    Platform { name: "macOS arm64", os: "macos", arch: "aarch64" },
    Platform { name: "macOS x86-64", os: "macos", arch: "x86_64" },
];

#[derive(Debug)]
pub struct Guarantee {
    pub text: &'static str,
    /// One for each of [`PLATFORMS`].
    pub evidence: [Evidence; PLATFORMS.len()],
    /// What it does not cover on macOS.
    macos_exception: &'static str,
}

const fn guarantee(text: &'static str, evidence: [Evidence; PLATFORMS.len()]) -> Guarantee {
    Guarantee { text, evidence, macos_exception: "" }
}

const PORTABLE: [Evidence; PLATFORMS.len()] = [Tested, TypeChecked, TypeChecked, TypeChecked];
/// By `scripts/test-arm64`.
const LOOP: [Evidence; PLATFORMS.len()] = [Tested, Emulated, TypeChecked, TypeChecked];
const LINUX_ONLY: [Evidence; PLATFORMS.len()] = [Tested, TypeChecked, Missing, Missing];

/// They hide their environment, and nothing else marks an orphan whose parent was never seen.
const HIDDEN_PROCESSES: &str = "except some daemons of Apple's own programs";

pub const GUARANTEES: &[Guarantee] = &[
    guarantee("runs loops, checks and SCM tasks; resumes them", LOOP),
    Guarantee {
        macos_exception: HIDDEN_PROCESSES,
        ..guarantee("kills every process that an agent started", PORTABLE)
    },
    guarantee("stops the agent at once if ralph itself is killed", LINUX_ONLY),
    Guarantee {
        macos_exception: HIDDEN_PROCESSES,
        ..guarantee("finds orphaned processes after `kill -9`", PORTABLE)
    },
    guarantee("removes git locks that a killed git left behind", LINUX_ONLY),
    guarantee("waits for processes and files without polling", PORTABLE),
    guarantee("sandbox with a list of allowed hosts", PORTABLE),
    guarantee("sandbox without other programs", PORTABLE),
    guarantee("system call filter in the sandbox", LINUX_ONLY),
    guarantee("background loops in tmux", PORTABLE),
    guarantee("terminal UI and web page, updated without polling", PORTABLE),
    guarantee("hooks and blocklist for Claude Code", PORTABLE),
];

impl Platform {
    pub fn find(os: &str, arch: &str) -> Option<&'static Platform> {
        PLATFORMS.iter().find(|platform| platform.os == os && platform.arch == arch)
    }

    pub fn evidence(&self, guarantee: &Guarantee) -> Evidence {
        let mut pairs = PLATFORMS.iter().zip(guarantee.evidence);
        pairs.find(|(platform, _)| platform.name == self.name).map_or(Missing, |(_, it)| it)
    }

    /// What the guarantee does not cover here.
    pub fn exception(&self, guarantee: &Guarantee) -> Option<&'static str> {
        let exception = guarantee.macos_exception;
        (self.os == "macos" && !exception.is_empty()).then_some(exception)
    }

    /// The weakest evidence for what the platform has.
    fn overall(&self) -> Evidence {
        let all_tested = GUARANTEES.iter().all(|guarantee| self.evidence(guarantee) != TypeChecked);
        if all_tested { Tested } else { TypeChecked }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tested => "tested",
            Emulated => "emulated",
            TypeChecked => "type-checked only",
            Missing => "not there",
        })
    }
}

/// One sentence on all platforms, for the README.
pub fn summary() -> String {
    let names = |evidence: Evidence| {
        let platforms = PLATFORMS.iter().filter(|platform| platform.overall() == evidence);
        platforms.map(|platform| platform.name).collect::<Vec<_>>().join(", ")
    };
    format!("Tested on {}; type-checked only for {}.", names(Tested), names(TypeChecked))
}
