//! `System` against real processes.
//!
//! Waiting for children, adopting orphans and handling signals belong to a whole process, while
//! `cargo test` runs tests as threads of one. So each test here runs this program again, for that
//! test alone, and its body runs in there.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test")]

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ralph::core::event::{Exit, Stream};
use ralph::process::{
    ChildId, Ended, Launch, Occurrence, Signal, System, end_marked, find_marked, find_program,
    run_quick,
};

/// The variable that tells this program which test's body to run.
const CASE: &str = "RALPH_TEST_CASE";
/// Longer than anything here takes, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(60);

fn isolated(name: &str, body: fn()) {
    if std::env::var_os(CASE).is_some_and(|case| case == name) {
        return body();
    }
    let output = this_program(name).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
}

fn this_program(case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([case, "--exact", "--nocapture", "--include-ignored"])
        .arg("--test-threads=1")
        .env(CASE, case)
        .stdin(Stdio::null());
    command
}

macro_rules! cases {
    ($($(#[$meta:meta])* fn $name:ident() $body:block)*) => {
        $(
            #[test]
            $(#[$meta])*
            fn $name() {
                isolated(stringify!($name), || $body);
            }
        )*
    };
}

/// A shell script to be launched.
struct Script {
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    stdin: Vec<u8>,
    merge_stderr: bool,
    keep_background: bool,
}

fn sh(script: &str) -> Script {
    Script {
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        stdin: Vec::new(),
        merge_stderr: false,
        keep_background: false,
    }
}

impl Script {
    fn start(&self, system: &mut System) -> (ChildId, u32) {
        system.start(&self.launch()).unwrap()
    }

    fn launch(&self) -> Launch<'_> {
        Launch {
            program: OsStr::new("sh"),
            args: &self.args,
            directory: Path::new("/"),
            env: &self.env,
            stdin: &self.stdin,
            merge_stderr: self.merge_stderr,
            keep_background: self.keep_background,
            spare: false,
        }
    }
}

/// What came of waiting.
#[derive(Default)]
struct Heard {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Heard {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The process numbers that were printed as `name=NUMBER`.
    fn pid(&self, name: &str) -> u32 {
        self.text()
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {:?}", self.text()))
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.extend_from_slice(bytes),
            Stream::Stderr => self.stderr.extend_from_slice(bytes),
        }
    }

    /// Reads until all of `words` were printed.
    fn until(&mut self, system: &mut System, words: &[&str]) {
        let deadline = system.now_ms() + PATIENCE.as_millis() as u64;
        let mut buf = Vec::new();
        while !words.iter().all(|word| self.text().contains(word)) {
            match system.wait(Some(deadline), &mut buf) {
                Occurrence::Output(_, stream) => self.take(stream, &buf),
                other => panic!("{other:?} while waiting for {words:?}"),
            }
        }
    }

    fn await_end(&mut self, system: &mut System, child: ChildId) -> Ended {
        let deadline = system.now_ms() + PATIENCE.as_millis() as u64;
        let mut buf = Vec::new();
        loop {
            match system.wait(Some(deadline), &mut buf) {
                Occurrence::Output(id, stream) if id == child => self.take(stream, &buf),
                Occurrence::Ended(id, ended) if id == child => return ended,
                other => panic!("{other:?} while waiting for the end"),
            }
        }
    }
}

fn run(system: &mut System, script: &Script) -> (Heard, Ended) {
    let (child, _) = script.start(system);
    let mut heard = Heard::default();
    let ended = heard.await_end(system, child);
    (heard, ended)
}

fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// What a process does, in the kernel's letters.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// How many threads of this process do nothing but read.
fn pumps() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.flatten().filter_map(|task| name(task).ok()).filter(|name| name == "pump\n").count()
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// What is below this process, as the kernel tells.
fn children_of_this_process() -> String {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok())
        .collect()
}

/// A tool as agents start it: in a session of its own, deaf to TERM, holding standard output.
const STUBBORN: &str = r#"setsid sh -c 'trap "" TERM; echo tool=$$; while :; do sleep 1; done' & "#;

const PLAIN: Ended = Ended { exit: Some(Exit::Code(0)), leftovers: Vec::new() };

cases! {
    fn output_and_exit_are_told() {
        let mut system = System::new().unwrap();
        let (heard, ended) = run(&mut system, &sh("echo out; echo err >&2; exit 3"));
        assert_eq!(heard.stdout, b"out\n");
        assert_eq!(heard.stderr, b"err\n");
        assert_eq!(ended.exit, Some(Exit::Code(3)));
        let (_, ended) = run(&mut system, &sh("kill -9 $$"));
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
        assert!(system.is_idle());
    }

    fn what_a_child_is_fed_arrives_whole_and_in_order() {
        let mut system = System::new().unwrap();
        let (child, _) = system.start_fed(&sh("cat").launch()).unwrap();
        let mut sent = Vec::new();
        for n in 0..200_000 {
            let piece = format!("{n}\n");
            assert!(system.feed(child, piece.as_bytes()), "it fits");
            sent.extend_from_slice(piece.as_bytes());
        }
        system.end_of_input(child);
        let mut heard = Heard::default();
        assert_eq!(heard.await_end(&mut system, child), PLAIN);
        assert!(heard.stdout == sent, "{} of {} bytes", heard.stdout.len(), sent.len());
    }

    fn a_child_that_does_not_read_is_not_waited_for() {
        let mut system = System::new().unwrap();
        let (child, _) = system.start_fed(&sh("exec sleep 1000").launch()).unwrap();
        let piece = vec![b'x'; 1 << 20];
        let taken = (0..100).take_while(|_| system.feed(child, &piece)).count();
        assert!((2..20).contains(&taken), "{taken} MiB were kept for it");
        let now = system.now_ms();
        assert_eq!(system.wait(Some(now + 1), &mut Vec::new()), Occurrence::Deadline);
        system.end_of_input(child);
        system.end(child);
        Heard::default().await_end(&mut system, child);
        // One that reads no more needs no room.
        let (child, _) = system.start_fed(&sh("exec <&-; echo closed; exec sleep 1000").launch()).unwrap();
        Heard::default().until(&mut system, &["closed\n"]);
        for _ in 0..100 {
            assert!(system.feed(child, &piece));
            let now = system.now_ms();
            assert_eq!(system.wait(Some(now), &mut Vec::new()), Occurrence::Deadline);
        }
        system.end(child);
        Heard::default().await_end(&mut system, child);
        assert_eq!(children_of_this_process(), "");
    }

    fn a_child_has_its_own_session_default_signals_and_only_its_own_descriptors() {
        // What we were given ourselves without its being marked as ours alone is passed on.
        let passed_on: Vec<String> = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|fd| {
                std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).is_ok_and(|info| {
                    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
                    i32::from_str_radix(flags.unwrap().trim(), 8).unwrap() & 0o2_000_000 == 0
                })
            })
            .collect();
        let mut system = System::new().unwrap();
        let (_other, _) = sh("exec sleep 1000").start(&mut system);
        let (child, _) = sh("cut -d' ' -f1,6 /proc/$$/stat; grep -E 'Sig(Blk|Ign)' /proc/self/status; \
                             (exec 3</dev/tty) 2>/dev/null && echo terminal; exec ls /proc/self/fd")
            .start(&mut system);
        let mut heard = Heard::default();
        heard.await_end(&mut system, child);
        let lines: Vec<&str> = heard.text().lines().collect();
        let ids: Vec<&str> = lines[0].split(' ').collect();
        assert_eq!(ids[0], ids[1], "it leads a session");
        assert_eq!(lines[1], "SigBlk:\t0000000000000000");
        // Whatever else is ignored was so when we were started.
        let ignored = u64::from_str_radix(&lines[2]["SigIgn:\t".len()..], 16).unwrap();
        assert_eq!(ignored & (1 << 12), 0, "SIGPIPE is not ignored");
        // The directory that `ls` reads is the one more.
        let more: Vec<_> = lines[3..]
            .iter()
            .filter(|fd| !["0", "1", "2"].contains(fd) && !passed_on.iter().any(|other| other == *fd))
            .collect();
        assert_eq!(more.len(), 1, "{more:?}");
    }

    fn a_stubborn_tool_outlives_neither_an_ended_child() {
        let mut system = System::new().unwrap();
        system.grace_ms = 200;
        let (child, pid) = sh(&format!("{STUBBORN} echo main; exec sleep 1000")).start(&mut system);
        let mut heard = Heard::default();
        heard.until(&mut system, &["main\n", "tool="]);
        system.end(child);
        system.end(child);
        let ended = heard.await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(15)));
        assert_eq!(ended.leftovers, []);
        assert!(!alive(heard.pid("tool")) && !alive(pid));
        assert_eq!(children_of_this_process(), "");
    }

    fn nor_one_that_ended_by_itself_and_is_reported() {
        let mut system = System::new().unwrap();
        let (heard, ended) = run(
            &mut system,
            &sh(&format!("{STUBBORN} read line < /proc/$!/stat; sleep 0.1; exit 7")),
        );
        let tool = heard.pid("tool");
        assert_eq!(ended.exit, Some(Exit::Code(7)));
        let left = ended.leftovers.iter().find(|left| left.pid == tool).unwrap();
        assert!(left.command.starts_with("sh -c trap"), "{left:?}");
        assert!(!alive(tool));
        assert_eq!(children_of_this_process(), "");
    }

    fn a_daemon_without_a_parent_is_found() {
        let mut system = System::new().unwrap();
        // Forked twice, in a session of its own, with none of the child's descriptors.
        let (heard, ended) = run(
            &mut system,
            &sh("(setsid sh -c '(sleep 1000 >/dev/null 2>&1 </dev/null & echo daemon=$!)')"),
        );
        let daemon = heard.pid("daemon");
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        assert_eq!(ended.leftovers.len(), 1, "{:?}", ended.leftovers);
        assert_eq!(ended.leftovers[0].pid, daemon);
        assert_eq!(ended.leftovers[0].command, "sleep 1000");
        assert!(!alive(daemon));
    }

    fn processes_that_fork_and_leave_do_not_escape() {
        let temp = tempfile::tempdir().unwrap();
        let hop = temp.path().join("hop");
        // Each starts the next and leaves, so that none lives long enough to be looked at. The file
        // is the way out if this test fails.
        std::fs::write(&hop, r#"[ -e "$0" ] && sh "$0" & exit"#).unwrap();
        let mut system = System::new().unwrap();
        let hop = hop.display();
        let (child, _) =
            sh(&format!("trap '' TERM; sh {hop}; sh {hop}; setsid sh {hop}; echo on; sleep 1000"))
                .start(&mut system);
        let mut heard = Heard::default();
        heard.until(&mut system, &["on\n"]);
        system.grace_ms = 100;
        system.end(child);
        let ended = heard.await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
        assert_eq!(ended.leftovers, []);
        assert_eq!(children_of_this_process(), "");
        // Those that hop on when the child ends by itself are found too.
        let (_, ended) = run(&mut system, &sh(&format!("sh {hop}")));
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        assert_eq!(children_of_this_process(), "");
    }

    fn many_forks_while_being_killed() {
        let mut system = System::new().unwrap();
        let (child, _) = sh("trap '' TERM; echo on; i=0; \
                             while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; wait")
            .start(&mut system);
        let mut heard = Heard::default();
        heard.until(&mut system, &["on\n"]);
        system.end_now(child);
        let ended = heard.await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
        assert_eq!(children_of_this_process(), "");
    }

    fn a_stopped_child_gets_its_chance_and_can_be_killed() {
        let mut system = System::new().unwrap();
        let script = sh("trap 'echo bye; exit 9' TERM; echo on; kill -STOP $$; while :; do :; done");
        let stopped = |pid| {
            move || {
                std::fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains(") T "))
            }
        };
        let (child, pid) = script.start(&mut system);
        eventually("it stops", stopped(pid));
        system.end(child);
        let mut heard = Heard::default();
        let ended = heard.await_end(&mut system, child);
        assert_eq!(heard.text(), "on\nbye\n");
        assert_eq!(ended.exit, Some(Exit::Code(9)));

        let (child, pid) = script.start(&mut system);
        eventually("it stops", stopped(pid));
        system.end_now(child);
        let ended = Heard::default().await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
    }

    fn a_large_prompt_is_there_whether_or_not_it_is_read() {
        let mut system = System::new().unwrap();
        let prompt: Vec<u8> = (0..10_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut script = sh("echo unread");
        script.stdin = prompt.clone();
        let (heard, ended) = run(&mut system, &script);
        assert_eq!((heard.text(), ended), ("unread\n", PLAIN));
        let mut script = sh("cat; cat");
        script.stdin = prompt.clone();
        let (heard, ended) = run(&mut system, &script);
        assert_eq!(ended, PLAIN);
        assert!(heard.stdout == prompt);
        // Without a prompt standard input is at its end at once.
        assert_eq!(run(&mut system, &sh("cat")).1, PLAIN);
    }

    fn merged_output_keeps_its_order() {
        let mut system = System::new().unwrap();
        let mut script = sh("i=0; while [ $i -lt 500 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done");
        script.merge_stderr = true;
        let (heard, _) = run(&mut system, &script);
        let expected: String = (0..500).map(|i| format!("o{i}\ne{i}\n")).collect();
        assert_eq!(heard.text(), expected);
        assert_eq!(heard.stderr, b"");
    }

    fn closing_the_streams_is_not_an_end() {
        let mut system = System::new().unwrap();
        let temp = tempfile::tempdir().unwrap();
        let go = temp.path().join("go");
        let (child, pid) = sh(&format!(
            "echo on; exec >/dev/null 2>&1; until [ -e {} ]; do sleep 0.01; done; exit 5",
            go.display()
        ))
        .start(&mut system);
        let mut heard = Heard::default();
        heard.until(&mut system, &["on\n"]);
        let soon = system.now_ms() + 100;
        let before = system.wakeups();
        assert_eq!(system.wait(Some(soon), &mut Vec::new()), Occurrence::Deadline);
        assert!(system.wakeups() - before <= 5, "a closed stream is not asked again");
        assert!(alive(pid));
        std::fs::write(go, "").unwrap();
        assert_eq!(heard.await_end(&mut system, child).exit, Some(Exit::Code(5)));
    }

    fn what_is_to_be_kept_is_kept_and_not_ended_by_a_later_child() {
        let mut system = System::new().unwrap();
        let mut script = sh("yes & echo server=$! >&2; setsid sleep 1000 & echo tool=$! >&2; exit 0");
        script.keep_background = true;
        let (heard, ended) = run(&mut system, &script);
        let heard = Heard { stdout: heard.stderr, stderr: Vec::new() };
        let (server, tool) = (heard.pid("server"), heard.pid("tool"));
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        let mut left: Vec<u32> = ended.leftovers.iter().map(|left| left.pid).collect();
        left.sort_unstable();
        let mut expected = vec![server, tool];
        expected.sort_unstable();
        // `yes` meets a closed pipe and leaves soon; the other stays.
        assert_eq!(left, expected);
        let (_, ended) = run(&mut system, &sh("exit 0"));
        assert_eq!(ended, PLAIN);
        let (_, ended) = run(&mut system, &sh(&format!("{STUBBORN} sleep 0.1")));
        assert!(!ended.leftovers.is_empty());
        assert!(alive(tool));
        drop(system);
        assert!(alive(tool));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(tool as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
    }

    fn the_tail_of_a_pipeline_is_no_leftover() {
        let mut system = System::new().unwrap();
        for _ in 0..20 {
            let (heard, ended) = run(&mut system, &sh("(sleep 0.01; echo tail) & exit 0"));
            assert_eq!((heard.text(), ended), ("tail\n", PLAIN));
        }
    }

    fn several_children_at_once_have_only_their_own_ended() {
        let mut system = System::new().unwrap();
        let (first, _) = sh("sleep 1000 & setsid sleep 1000 & echo a=$!; wait").start(&mut system);
        let mut heard = Heard::default();
        heard.until(&mut system, &["a="]);
        let (second, pid) = sh("setsid sleep 1000 & echo b=$!; wait").start(&mut system);
        heard.until(&mut system, &["b="]);
        let (third, _) = sh("exit 4").start(&mut system);
        assert_eq!(heard.await_end(&mut system, third).exit, Some(Exit::Code(4)));
        system.end(first);
        let ended = heard.await_end(&mut system, first);
        assert_eq!(ended.exit, Some(Exit::Signal(15)));
        assert!(!alive(heard.pid("a")));
        assert!(alive(pid) && alive(heard.pid("b")));
        system.end(second);
        heard.await_end(&mut system, second);
        assert!(!alive(heard.pid("b")));
        assert_eq!(children_of_this_process(), "");
    }

    fn an_orphan_of_either_of_two_children_outlives_not_both() {
        let mut system = System::new().unwrap();
        let (first, _) = sh("echo on; exec sleep 1000").start(&mut system);
        let mut heard = Heard::default();
        heard.until(&mut system, &["on\n"]);
        // In a session of its own and without a parent before anyone has looked.
        let (second, _) =
            sh("(setsid sh -c '(sleep 1000 >/dev/null 2>&1 & echo orphan=$!)')").start(&mut system);
        assert_eq!(heard.await_end(&mut system, second).exit, Some(Exit::Code(0)));
        let orphan = heard.pid("orphan");
        system.end(first);
        heard.await_end(&mut system, first);
        assert!(!alive(orphan));
        assert_eq!(children_of_this_process(), "");
    }

    fn dropping_the_system_ends_everything() {
        let mut system = System::new().unwrap();
        let mut heard = Heard::default();
        let (_, pid) = sh(&format!("{STUBBORN} wait")).start(&mut system);
        heard.until(&mut system, &["tool="]);
        assert_eq!(System::new().unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(system);
        assert!(!alive(pid) && !alive(heard.pid("tool")));
        System::new().unwrap();
    }

    fn a_lot_of_output_arrives_whole() {
        let mut system = System::new().unwrap();
        let (heard, ended) = run(
            &mut system,
            &sh("head -c 50000000 /dev/zero; head -c 3000000 /dev/zero >&2"),
        );
        assert_eq!(ended, PLAIN);
        assert_eq!((heard.stdout.len(), heard.stderr.len()), (50_000_000, 3_000_000));
    }

    fn a_flood_is_read_by_a_second_thread_and_nothing_of_it_is_lost() {
        let mut system = System::new().unwrap();
        let (_, pid) = sh("exec seq 3000000").start(&mut system);
        let mut heard = Heard::default();
        let mut buf = Vec::new();
        let mut pumped = false;
        let ended = loop {
            match system.wait(None, &mut buf) {
                Occurrence::Output(_, stream) => heard.take(stream, &buf),
                Occurrence::Ended(_, ended) => break ended,
                other => panic!("{other:?}"),
            }
            pumped |= pumps() > 0;
            // Whoever reads slowly finds the pipe full.
            eventually("the pipe is full or the child is gone", || state(pid) != Some('R'));
        };
        assert_eq!(ended, PLAIN);
        assert!(pumped, "nobody helped");
        let expected: String = (1..=3_000_000).map(|n| format!("{n}\n")).collect();
        assert!(heard.text() == expected, "{} bytes of {}", heard.stdout.len(), expected.len());
        assert_eq!(pumps(), 0);
    }

    fn a_flood_from_the_background_keeps_nobody() {
        let mut system = System::new().unwrap();
        let script = sh("trap '' HUP TERM; yes & echo tool=$!; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; done");
        let (heard, ended) = run(&mut system, &script);
        assert_eq!(ended.leftovers.len(), 1, "{ended:?}");
        let tool = heard.stdout.split(|byte| *byte == b'\n').find_map(|line| {
            std::str::from_utf8(line).ok()?.strip_prefix("tool=")?.parse().ok()
        });
        assert!(!alive(tool.unwrap()));
        assert_eq!(pumps(), 0);
    }

    fn what_cannot_be_started_says_why() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        let file = |name: &str, text: &str, mode| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.into_os_string()
        };
        let plain = file("plain", "#!/bin/sh\n", 0o644);
        let orphan = file("orphan", "#!/no/such/interpreter\n", 0o755);
        let bare = file("bare", "echo \"$1\"\n", 0o755);
        let mut system = System::new().unwrap();
        let mut start = |program: &OsStr, directory: &Path| {
            system.start(&Launch {
                program,
                args: &["word".into()],
                directory,
                env: &[],
                stdin: b"prompt",
                merge_stderr: false,
                keep_background: false,
                spare: false,
            })
        };
        for (program, directory, kind, says) in [
            (OsStr::new("no-such-program"), dir, ErrorKind::NotFound, "no-such-program"),
            (OsStr::new("/no/such/program"), dir, ErrorKind::NotFound, "/no/such/program"),
            (OsStr::new("./sh"), dir, ErrorKind::NotFound, "./sh"),
            (OsStr::new(""), dir, ErrorKind::NotFound, "cannot be started"),
            (&plain, dir, ErrorKind::PermissionDenied, "plain"),
            (dir.as_os_str(), dir, ErrorKind::PermissionDenied, "cannot be started"),
            (&orphan, dir, ErrorKind::NotFound, "orphan"),
            (OsStr::new("sh"), &dir.join("gone"), ErrorKind::NotFound, "the directory"),
            (OsStr::new("sh"), Path::new("/dev/null"), ErrorKind::NotADirectory, "the directory"),
        ] {
            let err = start(program, directory).unwrap_err();
            assert_eq!(err.kind(), kind, "{program:?}: {err}");
            assert!(err.to_string().contains(says), "{program:?}: {err}");
        }
        // A script that does not say what runs it is run by the shell.
        let (child, _) = start(&bare, dir).unwrap();
        let mut heard = Heard::default();
        assert_eq!(heard.await_end(&mut system, child), PLAIN);
        assert_eq!(heard.text(), "word\n");
        assert_eq!(children_of_this_process(), "");
    }

    fn nothing_is_leaked_by_a_thousand_children() {
        let mut system = System::new().unwrap();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        run(&mut system, &sh("exit 0"));
        let before = descriptors();
        for i in 0..1000 {
            let mut script = sh("exit 0");
            script.stdin = b"prompt".to_vec();
            script.merge_stderr = i % 2 == 0;
            assert_eq!(run(&mut system, &script).1, PLAIN);
            if i % 50 == 0 {
                let missing = Launch {
                    program: OsStr::new("/no/such/program"),
                    args: &[],
                    directory: Path::new("/"),
                    env: &[],
                    stdin: b"prompt",
                    merge_stderr: false,
                    keep_background: false,
                    spare: false,
                };
                system.start(&missing).unwrap_err();
            }
        }
        assert_eq!(descriptors(), before);
    }

    fn the_environment_is_ours_with_the_changes() {
        let mut system = System::new().unwrap();
        let mut script = sh(&format!("echo \"$ADDED|${{{CASE}-gone}}|$LAST|${{HOME+home}}\""));
        script.env = vec![
            ("ADDED".into(), Some("a = b".into())),
            (CASE.into(), None),
            ("LAST".into(), Some("first".into())),
            ("LAST".into(), Some("second".into())),
        ];
        let home = if std::env::var_os("HOME").is_some() { "home" } else { "" };
        let (heard, _) = run(&mut system, &script);
        assert_eq!(heard.text(), format!("a = b|gone|second|{home}\n"));
    }

    fn deadlines_are_met_without_spinning() {
        let mut system = System::new().unwrap();
        let (child, _) = sh("echo on; exec sleep 1000").start(&mut system);
        Heard::default().until(&mut system, &["on\n"]);
        let before = system.wakeups();
        let started = Instant::now();
        let mut buf = Vec::new();
        for _ in 0..10 {
            let until = system.now_ms() + 30;
            assert_eq!(system.wait(Some(until), &mut buf), Occurrence::Deadline);
            assert!(system.now_ms() >= until);
        }
        assert!(started.elapsed() >= Duration::from_millis(290));
        assert!(system.wakeups() - before <= 20, "{}", system.wakeups() - before);
        // One that has passed is told at once.
        assert_eq!(system.wait(Some(0), &mut buf), Occurrence::Deadline);
        system.end(child);
        Heard::default().await_end(&mut system, child);
    }

    fn waiting_for_an_end_does_not_spin_either() {
        let mut system = System::new().unwrap();
        system.grace_ms = 300;
        let (child, _) = sh("trap '' TERM; echo on; while :; do sleep 1000; done").start(&mut system);
        Heard::default().until(&mut system, &["on\n"]);
        system.end(child);
        let before = system.wakeups();
        Heard::default().await_end(&mut system, child);
        assert!(system.wakeups() - before <= 30, "{}", system.wakeups() - before);
        // Who leaves by itself wakes us by that, and not by every stream that is closed on the way.
        let before = system.wakeups();
        for _ in 0..20 {
            run(&mut system, &sh("exit 0"));
        }
        assert!(system.wakeups() - before <= 30, "{}", system.wakeups() - before);
    }

    fn a_loud_child_starves_nobody() {
        let mut system = System::new().unwrap();
        let (loud, _) = sh("exec yes").start(&mut system);
        let (quiet, _) = sh("echo quiet; exec sleep 1000").start(&mut system);
        let mut buf = Vec::new();
        let until = system.now_ms() + 100;
        let mut heard_quiet = false;
        loop {
            match system.wait(Some(until), &mut buf) {
                Occurrence::Output(id, _) => heard_quiet |= id == quiet,
                Occurrence::Deadline => break,
                other => panic!("{other:?}"),
            }
            assert!(system.now_ms() < until + 5_000);
        }
        assert!(heard_quiet);
        signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
        // One wait may have been answered before the signal came.
        let told = (0..2).any(|_| {
            system.wait(None, &mut buf) == Occurrence::Signal(Signal::Terminate)
        });
        assert!(told);
        system.end(loud);
        let deadline = system.now_ms() + 30_000;
        loop {
            match system.wait(Some(deadline), &mut buf) {
                Occurrence::Ended(id, _) if id == loud => break,
                Occurrence::Deadline => panic!("it never ended"),
                _ => {}
            }
        }
    }

    fn signals_are_told_once_each_and_in_order() {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
        let mut system = System::new().unwrap();
        for signal in [SIGWINCH, SIGTERM, SIGINT, SIGINT, SIGHUP] {
            signal_hook::low_level::raise(signal).unwrap();
        }
        let mut buf = Vec::new();
        let told: Vec<Occurrence> = (0..6)
            .map(|_| system.wait(Some(system.now_ms() + 20), &mut buf))
            .collect();
        assert_eq!(
            told,
            [
                Occurrence::Signal(Signal::Resize),
                Occurrence::Signal(Signal::Terminate),
                Occurrence::Signal(Signal::Interrupt),
                Occurrence::Signal(Signal::Interrupt),
                Occurrence::Signal(Signal::HangUp),
                Occurrence::Deadline,
            ]
        );
    }

    fn output_that_is_there_comes_before_a_deadline_that_has_passed() {
        let mut system = System::new().unwrap();
        let (child, pid) = sh("echo late").start(&mut system);
        eventually("it ends", || !alive(pid));
        let mut buf = Vec::new();
        let mut told = Vec::new();
        while !matches!(told.last(), Some(Occurrence::Ended(..))) {
            told.push(system.wait(Some(0), &mut buf));
        }
        told.retain(|occurrence| *occurrence != Occurrence::Deadline);
        assert_eq!(told[0], Occurrence::Output(child, Stream::Stdout));
        assert_eq!(told.len(), 2);
    }

    fn quick_commands_answer() {
        let quick = |script: &str, timeout| {
            run_quick(
                OsStr::new("sh"),
                &["-c".into(), script.into()],
                Path::new("/"),
                &[],
                Duration::from_millis(timeout),
            )
        };
        let output = quick("pwd; echo no >&2; exit 2", 60_000).unwrap();
        assert_eq!(output.exit, Exit::Code(2));
        assert_eq!((output.stdout, output.stderr), (b"/\n".to_vec(), b"no\n".to_vec()));
        assert_eq!(quick("sleep 1000", 50).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(children_of_this_process(), "");
        // Before there is a `System`, an interrupt is none of our business.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        assert_eq!(u64::from_str_radix(caught, 16).unwrap() & (1 << 1), 0);

        let mut system = System::new().unwrap();
        signal_hook::low_level::raise(signal_hook::consts::SIGINT).unwrap();
        let interrupted = system.run_quick(
            OsStr::new("sleep"),
            &["1000".into()],
            Path::new("/"),
            &[],
            PATIENCE,
        );
        assert_eq!(interrupted.unwrap_err().kind(), ErrorKind::Interrupted);
        let told = system.wait(Some(0), &mut Vec::new());
        assert_eq!(told, Occurrence::Signal(Signal::Interrupt));
    }

    fn what_a_killed_run_left_is_found_by_its_mark() {
        let mark = format!("run-{}", std::process::id());
        let mut victim = this_program("a_run_that_is_killed")
            .env("RALPH_TEST_MARK", &mark)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut heard = Heard::default();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        while !heard.text().contains("agent=") || !heard.text().contains("tool=") {
            heard.stdout.extend(lines.next().unwrap().unwrap().bytes());
            heard.stdout.push(b'\n');
        }
        let (agent, tool) = (heard.pid("agent"), heard.pid("tool"));
        victim.kill().unwrap();
        victim.wait().unwrap();
        eventually("the agent dies with its run", || !alive(agent));
        assert!(alive(tool));
        assert_eq!(find_marked("RALPH_TEST_MARK", "another"), []);
        // We carry no such mark, but the one who does the same for its own may.
        assert_eq!(find_marked("RALPH_TEST_MARKER", &mark), []);
        let found = end_marked("RALPH_TEST_MARK", &mark, 100);
        assert!(found.iter().any(|left| left.pid == tool), "{found:?}");
        assert!(!alive(tool));
        assert_eq!(find_marked("RALPH_TEST_MARK", &mark), []);
    }

    #[ignore = "the other side of the test above"]
    fn a_run_that_is_killed() {
        let Ok(mark) = std::env::var("RALPH_TEST_MARK") else { return };
        assert_eq!(find_marked("RALPH_TEST_MARK", &mark), [], "never ourselves");
        let mut system = System::new().unwrap();
        let script = sh(&format!("{STUBBORN} echo agent=$$; wait"));
        script.start(&mut system);
        // The test harness has begun a line.
        println!();
        let mut buf = Vec::new();
        while let Occurrence::Output(..) = system.wait(None, &mut buf) {
            print!("{}", String::from_utf8_lossy(&buf));
        }
    }

    fn processes_that_leave_for_a_new_session_each_time() {
        let temp = tempfile::tempdir().unwrap();
        let hop = temp.path().join("hop");
        std::fs::write(&hop, r#"[ -e "$0" ] && setsid sh "$0" & exit"#).unwrap();
        let mut system = System::new().unwrap();
        let (_, ended) = run(&mut system, &sh(&format!("trap '' TERM; sh {}", hop.display())));
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        assert_eq!(children_of_this_process(), "");
    }

    #[ignore = "a measurement: cargo test --release --test process -- --ignored spawn_cost --nocapture"]
    fn spawn_cost() {
        fn median_us(mut once: impl FnMut()) -> u128 {
            let mut times: Vec<u128> = (0..2000)
                .map(|_| {
                    let start = Instant::now();
                    once();
                    start.elapsed().as_nanos()
                })
                .collect();
            times.sort_unstable();
            times[times.len() / 2] / 1000
        }
        let program = find_program(OsStr::new("true"), None, Path::new("/")).unwrap();
        for megabytes in [0, 20, 100] {
            let ballast = vec![1u8; megabytes << 20];
            let bare = median_us(|| {
                Command::new(&program).status().unwrap();
            });
            let piped = median_us(|| {
                Command::new(&program).output().unwrap();
            });
            let mut system = System::new().unwrap();
            let mut buf = Vec::new();
            let ours = median_us(|| {
                let launch = Launch {
                    program: program.as_os_str(),
                    args: &[],
                    directory: Path::new("/"),
                    env: &[],
                    stdin: b"prompt",
                    merge_stderr: false,
                    keep_background: false,
                    spare: false,
                };
                system.start(&launch).unwrap();
                while !matches!(system.wait(None, &mut buf), Occurrence::Ended(..)) {}
            });
            println!(
                "{} MB in use: Command::status {bare} µs, Command::output {piped} µs, System {ours} µs",
                ballast.len() >> 20
            );
        }
    }
}
