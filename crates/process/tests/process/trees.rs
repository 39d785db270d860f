//! A child's processes are found and ended with it, and no others.

use std::io::{BufRead, BufReader, ErrorKind};

use ralph_process::{find_by_env, kill_by_env};

use super::*;

/// A tool in its own session that ignores TERM and holds standard output.
const STUBBORN: &str = r#"setsid sh -c 'trap "" TERM; echo tool=$$; while :; do sleep 1; done' & "#;

cases! {
    fn stubborn_tool_is_ended_with_ended_child() {
        let mut system = System::new().unwrap();
        system.grace_ms = 200;
        let (child, pid) = sh(&format!("{STUBBORN} echo main; exec sleep 1000")).start(&mut system);
        let mut capture = Capture::default();
        capture.until(&mut system, &["main\n", "tool="]);
        system.terminate_child(child);
        system.terminate_child(child);
        let ended = capture.await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(15)));
        assert_eq!(ended.leftovers, []);
        assert!(!alive(capture.pid("tool")) && !alive(pid));
        assert_eq!(children_of_this_process(), "");
    }

    fn stubborn_tool_is_ended_and_reported_after_child_exit() {
        let mut system = System::new().unwrap();
        // The child exits once the tool is ready.
        let (capture, ended) = run(
            &mut system,
            &sh(r#"trap 'exit 7' USR1
                setsid sh -c 'trap "" TERM; echo tool=$$; kill -USR1 $1; while :; do sleep 1; done' sh $$ &
                while :; do sleep 0.01; done"#),
        );
        let tool = capture.pid("tool");
        assert_eq!(ended.exit, Some(Exit::Code(7)));
        let leftover = ended.leftovers.iter().find(|leftover| leftover.pid == tool).unwrap();
        assert!(leftover.command.starts_with("sh -c trap"), "{leftover:?}");
        assert!(!alive(tool));
        assert_eq!(children_of_this_process(), "");
    }

    fn orphaned_daemon_is_found_and_ended() {
        let mut system = System::new().unwrap();
        // A daemon: forked twice, own session, no inherited descriptors.
        let (capture, ended) = run(
            &mut system,
            &sh(r#"(setsid sh -c '(sleep 1000 >/dev/null 2>&1 </dev/null &
                until read name </proc/$!/comm && [ "$name" = sleep ]; do :; done; echo daemon=$!)')"#),
        );
        let daemon = capture.pid("daemon");
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        assert_eq!(ended.leftovers.len(), 1, "{:?}", ended.leftovers);
        assert_eq!(ended.leftovers[0].pid, daemon);
        assert_eq!(ended.leftovers[0].command, "sleep 1000");
        assert!(!alive(daemon));
    }

    fn marked_orphans_are_found_without_subreaper() {
        let mut system = System::without_reaper().unwrap();
        let mut script = sh(r#"(setsid sh -c '(sleep 1000 >/dev/null 2>&1 </dev/null &
            until read name </proc/$!/comm && [ "$name" = sleep ]; do :; done; echo daemon=$!)')"#);
        let mark = format!("run-{}", std::process::id());
        script.env.push(("RALPH_RUN_ID".into(), Some(mark.into())));
        let (capture, ended) = run(&mut system, &script);
        let daemon = capture.pid("daemon");
        assert_eq!(ended.leftovers.len(), 1, "{:?}", ended.leftovers);
        assert_eq!(ended.leftovers[0].pid, daemon);
        assert!(!alive(daemon));
        script.args = sh(&format!("{STUBBORN} echo main; exec sleep 1000")).args;
        system.grace_ms = 100;
        let (child, pid) = script.start(&mut system);
        let mut capture = Capture::default();
        capture.until(&mut system, &["main\n", "tool="]);
        system.terminate_child(child);
        capture.await_end(&mut system, child);
        assert!(!alive(capture.pid("tool")) && !alive(pid));
    }

    fn forking_processes_do_not_escape() {
        let temp = tempfile::tempdir().unwrap();
        let hop = temp.path().join("hop");
        // Each process starts the next and exits too fast to be seen. Removing the file ends the
        // chain if the test fails.
        std::fs::write(&hop, r#"[ -e "$0" ] && sh "$0" & exit"#).unwrap();
        let mut system = System::new().unwrap();
        let hop = hop.display();
        let (child, _) =
            sh(&format!("trap '' TERM; sh {hop}; sh {hop}; setsid sh {hop}; echo on; sleep 1000"))
                .start(&mut system);
        let mut capture = Capture::default();
        capture.until(&mut system, &["on\n"]);
        system.grace_ms = 100;
        system.terminate_child(child);
        let ended = capture.await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
        assert_eq!(ended.leftovers, []);
        assert_eq!(children_of_this_process(), "");
        // The chain is also found when the child exits by itself.
        let (_, ended) = run(&mut system, &sh(&format!("sh {hop}")));
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        assert_eq!(children_of_this_process(), "");
    }

    fn processes_changing_session_do_not_escape() {
        let temp = tempfile::tempdir().unwrap();
        let hop = temp.path().join("hop");
        std::fs::write(&hop, r#"[ -e "$0" ] && setsid sh "$0" & exit"#).unwrap();
        let mut system = System::new().unwrap();
        let (_, ended) = run(&mut system, &sh(&format!("trap '' TERM; sh {}", hop.display())));
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        assert_eq!(children_of_this_process(), "");
    }

    fn forks_during_kill_do_not_escape() {
        let mut system = System::new().unwrap();
        let (child, _) = sh("trap '' TERM; echo on; i=0; \
                             while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; wait")
            .start(&mut system);
        let mut capture = Capture::default();
        capture.until(&mut system, &["on\n"]);
        system.kill_child(child);
        let ended = capture.await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
        assert_eq!(children_of_this_process(), "");
    }

    fn stopped_child_gets_sigterm_and_can_be_killed() {
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
        system.terminate_child(child);
        let mut capture = Capture::default();
        let ended = capture.await_end(&mut system, child);
        assert_eq!(capture.text(), "on\nbye\n");
        assert_eq!(ended.exit, Some(Exit::Code(9)));

        let (child, pid) = script.start(&mut system);
        eventually("it stops", stopped(pid));
        system.kill_child(child);
        let ended = Capture::default().await_end(&mut system, child);
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
    }

    fn kept_background_processes_survive_later_children() {
        let mut system = System::new().unwrap();
        let mut script = sh("yes & echo server=$! >&2; setsid sleep 1000 & echo tool=$! >&2; exit 0");
        script.keep_background = true;
        let (capture, ended) = run(&mut system, &script);
        let capture = Capture { stdout: capture.stderr, stderr: Vec::new() };
        let (server, tool) = (capture.pid("server"), capture.pid("tool"));
        assert_eq!(ended.exit, Some(Exit::Code(0)));
        let mut pids: Vec<u32> = ended.leftovers.iter().map(|pids| pids.pid).collect();
        pids.sort_unstable();
        let mut expected = vec![server, tool];
        expected.sort_unstable();
        // `yes` exits at a closed pipe; the other stays.
        assert_eq!(pids, expected);
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

    fn pipeline_tail_is_no_leftover() {
        let mut system = System::new().unwrap();
        for _ in 0..20 {
            let (capture, ended) = run(&mut system, &sh("(sleep 0.01; echo tail) & exit 0"));
            assert_eq!((capture.text(), ended), ("tail\n", PLAIN));
        }
    }

    fn ending_one_of_several_children_spares_others() {
        let mut system = System::new().unwrap();
        let (first, _) = sh("sleep 1000 & setsid sleep 1000 & echo a=$!; wait").start(&mut system);
        let mut capture = Capture::default();
        capture.until(&mut system, &["a="]);
        let (second, pid) = sh("setsid sleep 1000 & echo b=$!; wait").start(&mut system);
        capture.until(&mut system, &["b="]);
        let (third, _) = sh("exit 4").start(&mut system);
        assert_eq!(capture.await_end(&mut system, third).exit, Some(Exit::Code(4)));
        system.terminate_child(first);
        let ended = capture.await_end(&mut system, first);
        assert_eq!(ended.exit, Some(Exit::Signal(15)));
        assert!(!alive(capture.pid("a")));
        assert!(alive(pid) && alive(capture.pid("b")));
        system.terminate_child(second);
        capture.await_end(&mut system, second);
        assert!(!alive(capture.pid("b")));
        assert_eq!(children_of_this_process(), "");
    }

    fn orphan_of_one_of_two_children_is_ended_with_last() {
        let mut system = System::new().unwrap();
        let (first, _) = sh("echo on; exec sleep 1000").start(&mut system);
        let mut capture = Capture::default();
        capture.until(&mut system, &["on\n"]);
        // Orphaned in its own session before the first scan.
        let (second, _) =
            sh("(setsid sh -c '(sleep 1000 >/dev/null 2>&1 & echo orphan=$!)')").start(&mut system);
        assert_eq!(capture.await_end(&mut system, second).exit, Some(Exit::Code(0)));
        let orphan = capture.pid("orphan");
        system.terminate_child(first);
        capture.await_end(&mut system, first);
        assert!(!alive(orphan));
        assert_eq!(children_of_this_process(), "");
    }

    fn dropping_system_ends_all_processes() {
        let mut system = System::new().unwrap();
        let mut capture = Capture::default();
        let (_, pid) = sh(&format!("{STUBBORN} wait")).start(&mut system);
        capture.until(&mut system, &["tool="]);
        assert_eq!(System::new().unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(system);
        assert!(!alive(pid) && !alive(capture.pid("tool")));
        System::new().unwrap();
    }

    fn processes_of_killed_run_are_found_by_mark() {
        let mark = format!("run-{}", std::process::id());
        let mut victim = this_program("trees::helper_run_to_be_killed")
            .env("RALPH_TEST_MARK", &mark)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut capture = Capture::default();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        while !capture.text().contains("agent=") || !capture.text().contains("tool=") {
            capture.stdout.extend(lines.next().unwrap().unwrap().bytes());
            capture.stdout.push(b'\n');
        }
        let (agent, tool) = (capture.pid("agent"), capture.pid("tool"));
        victim.kill().unwrap();
        victim.wait().unwrap();
        eventually("the agent dies with its run", || !alive(agent));
        assert!(alive(tool));
        assert_eq!(find_by_env("RALPH_TEST_MARK", "another"), []);
        // This process lacks the mark, but its parent may carry one.
        assert_eq!(find_by_env("RALPH_TEST_MARKER", &mark), []);
        let found = kill_by_env("RALPH_TEST_MARK", &mark, 100, || false);
        assert!(found.iter().any(|leftover| leftover.pid == tool), "{found:?}");
        assert!(!alive(tool));
        assert_eq!(find_by_env("RALPH_TEST_MARK", &mark), []);
    }

    #[ignore = "the other side of the test above"]
    fn helper_run_to_be_killed() {
        let Ok(mark) = std::env::var("RALPH_TEST_MARK") else { return };
        assert_eq!(find_by_env("RALPH_TEST_MARK", &mark), [], "never ourselves");
        let mut system = System::new().unwrap();
        let script = sh(&format!("{STUBBORN} echo agent=$$; wait"));
        script.start(&mut system);
        // End the line that the test harness has begun.
        println!();
        let mut buf = Vec::new();
        while let Occurrence::Output(..) = system.wait(None, &mut buf) {
            print!("{}", String::from_utf8_lossy(&buf));
        }
    }
}
