//! What a child inherits, failed starts, and the cost of a start.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use ralph_process::{Signal, find_program, run_to_end};

use super::*;

cases! {
    fn child_has_own_session_default_signals_and_descriptors() {
        // Inherited descriptors without CLOEXEC are passed on.
        let inherited: Vec<String> = std::fs::read_dir("/proc/self/fd")
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
        let mut capture = Capture::default();
        capture.await_end(&mut system, child);
        let lines: Vec<&str> = capture.text().lines().collect();
        let ids: Vec<&str> = lines[0].split(' ').collect();
        assert_eq!(ids[0], ids[1], "it leads a session");
        assert_eq!(lines[1], "SigBlk:\t0000000000000000");
        // Other ignored signals were ignored when we started.
        let ignored = u64::from_str_radix(&lines[2]["SigIgn:\t".len()..], 16).unwrap();
        assert_eq!(ignored & (1 << 12), 0, "SIGPIPE is not ignored");
        // `ls` itself opens the directory.
        let more: Vec<_> = lines[3..]
            .iter()
            .filter(|fd| !["0", "1", "2"].contains(fd) && !inherited.iter().any(|other| other == *fd))
            .collect();
        assert_eq!(more.len(), 1, "{more:?}");
    }

    fn start_failure_says_why() {
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
            let args = ["word".into()];
            let launch = Launch::plain(directory, program, &args, &[]);
            system.start(&Launch { stdin: b"prompt", merge_stderr: false, ..launch })
        };
        for (program, directory, kind, message) in [
            (OsStr::new("no-such-program"), dir, ErrorKind::NotFound, "no-such-program"),
            (OsStr::new("/no/such/program"), dir, ErrorKind::NotFound, "/no/such/program"),
            (OsStr::new("./sh"), dir, ErrorKind::NotFound, "./sh"),
            (OsStr::new(""), dir, ErrorKind::NotFound, "cannot start"),
            (&plain, dir, ErrorKind::PermissionDenied, "plain"),
            (dir.as_os_str(), dir, ErrorKind::PermissionDenied, "cannot start"),
            (&orphan, dir, ErrorKind::NotFound, "orphan"),
            (OsStr::new("sh"), &dir.join("gone"), ErrorKind::NotFound, "cannot enter directory"),
            (OsStr::new("sh"), Path::new("/dev/null"), ErrorKind::NotADirectory, "cannot enter directory"),
        ] {
            let err = start(program, directory).unwrap_err();
            assert_eq!(err.kind(), kind, "{program:?}: {err}");
            assert!(err.to_string().contains(message), "{program:?}: {err}");
        }
        // A script without `#!` is run by the shell.
        let (child, _) = start(&bare, dir).unwrap();
        let mut capture = Capture::default();
        assert_eq!(capture.await_end(&mut system, child), PLAIN);
        assert_eq!(capture.text(), "word\n");
        assert_eq!(children_of_this_process(), "");
    }

    fn thousand_children_leak_no_descriptors() {
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
                let program = OsStr::new("/no/such/program");
                let missing = Launch::plain(Path::new("/"), program, &[], &[]);
                let missing = Launch { stdin: b"prompt", merge_stderr: false, ..missing };
                system.start(&missing).unwrap_err();
            }
        }
        assert_eq!(descriptors(), before);
    }

    fn child_environment_is_inherited_with_changes() {
        let mut system = System::new().unwrap();
        let mut script = sh(&format!("echo \"$ADDED|${{{CASE}-gone}}|$LAST|${{HOME+home}}\""));
        script.env = vec![
            ("ADDED".into(), Some("a = b".into())),
            (CASE.into(), None),
            ("LAST".into(), Some("first".into())),
            ("LAST".into(), Some("second".into())),
        ];
        let home = if std::env::var_os("HOME").is_some() { "home" } else { "" };
        let (capture, _) = run(&mut system, &script);
        assert_eq!(capture.text(), format!("a = b|gone|second|{home}\n"));
    }

    fn quick_command_returns_output_or_times_out() {
        let quick = |script: &str, timeout| {
            run_to_end(
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
        // Without a `System`, SIGINT is not handled.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        assert_eq!(u64::from_str_radix(caught, 16).unwrap() & (1 << 1), 0);

        let mut system = System::new().unwrap();
        signal_hook::low_level::raise(signal_hook::consts::SIGINT).unwrap();
        let interrupted = system.run_to_end(
            OsStr::new("sleep"),
            &["1000".into()],
            Path::new("/"),
            &[],
            PATIENCE,
        );
        assert_eq!(interrupted.unwrap_err().kind(), ErrorKind::Interrupted);
        let occurrence = system.wait(Some(0), &mut Vec::new());
        assert_eq!(occurrence, Occurrence::Signal(Signal::Interrupt));
    }

    #[ignore = "a measurement: cargo test --release --test process -- --ignored spawn_cost_is_printed --nocapture"]
    fn spawn_cost_is_printed() {
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
                let launch = Launch::plain(Path::new("/"), program.as_os_str(), &[], &[]);
                let launch = Launch { stdin: b"prompt", merge_stderr: false, ..launch };
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
