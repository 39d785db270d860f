//! Output and input of children arrive complete and in order.

use super::*;

fn start_with_stdin_pipe(system: &mut System, script: &Script) -> (ChildId, u32) {
    system.start(&Launch { has_stdin_pipe: true, ..script.launch() }).unwrap()
}

cases! {
    fn output_and_exit_are_reported() {
        let mut system = System::new().unwrap();
        let (capture, ended) = run(&mut system, &sh("echo out; echo err >&2; exit 3"));
        assert_eq!(capture.stdout, b"out\n");
        assert_eq!(capture.stderr, b"err\n");
        assert_eq!(ended.exit, Some(Exit::Code(3)));
        let (_, ended) = run(&mut system, &sh("kill -9 $$"));
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
        assert!(system.is_idle());
    }

    fn fed_input_arrives_complete_and_in_order() {
        let mut system = System::new().unwrap();
        let (child, _) = start_with_stdin_pipe(&mut system, &sh("cat"));
        let mut sent = Vec::new();
        for n in 0..200_000 {
            let piece = format!("{n}\n");
            assert!(system.feed(child, piece.as_bytes()), "it fits");
            sent.extend_from_slice(piece.as_bytes());
        }
        system.close_input(child);
        let mut capture = Capture::default();
        assert_eq!(capture.await_end(&mut system, child), PLAIN);
        assert!(capture.stdout == sent, "{} of {} bytes", capture.stdout.len(), sent.len());
    }

    fn child_not_reading_input_does_not_block() {
        let mut system = System::new().unwrap();
        let (child, _) = start_with_stdin_pipe(&mut system, &sh("exec sleep 1000"));
        let piece = vec![b'x'; 1 << 20];
        let taken = (0..100).take_while(|_| system.feed(child, &piece)).count();
        assert!((2..20).contains(&taken), "{taken} MiB buffered");
        let now = system.now_ms();
        assert_eq!(system.wait(Some(now + 1), &mut Vec::new()), Occurrence::Deadline);
        system.close_input(child);
        system.terminate_child(child);
        Capture::default().await_end(&mut system, child);
        // Input for a child that closed its end is dropped.
        let (child, _) = start_with_stdin_pipe(&mut system, &sh("exec <&-; echo closed; exec sleep 1000"));
        Capture::default().until(&mut system, &["closed\n"]);
        for _ in 0..100 {
            assert!(system.feed(child, &piece));
            let now = system.now_ms();
            assert_eq!(system.wait(Some(now), &mut Vec::new()), Occurrence::Deadline);
        }
        system.terminate_child(child);
        Capture::default().await_end(&mut system, child);
        assert_eq!(children_of_this_process(), "");
    }

    fn large_prompt_is_delivered_or_ignored() {
        let mut system = System::new().unwrap();
        let prompt: Vec<u8> = (0..10_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut script = sh("echo unread");
        script.stdin = prompt.clone();
        let (capture, ended) = run(&mut system, &script);
        assert_eq!((capture.text(), ended), ("unread\n", PLAIN));
        let mut script = sh("cat; cat");
        script.stdin = prompt.clone();
        let (capture, ended) = run(&mut system, &script);
        assert_eq!(ended, PLAIN);
        assert!(capture.stdout == prompt);
        // Without a prompt, standard input is at its end.
        assert_eq!(run(&mut system, &sh("cat")).1, PLAIN);
    }

    fn merged_output_keeps_order() {
        let mut system = System::new().unwrap();
        let mut script = sh("i=0; while [ $i -lt 500 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done");
        script.merge_stderr = true;
        let (capture, _) = run(&mut system, &script);
        let expected: String = (0..500).map(|i| format!("o{i}\ne{i}\n")).collect();
        assert_eq!(capture.text(), expected);
        assert_eq!(capture.stderr, b"");
    }

    fn closed_streams_are_not_end_of_child() {
        let mut system = System::new().unwrap();
        let temp = tempfile::tempdir().unwrap();
        let go = temp.path().join("go");
        let (child, pid) = sh(&format!(
            "echo on; exec >/dev/null 2>&1; until [ -e {} ]; do sleep 0.01; done; exit 5",
            go.display()
        ))
        .start(&mut system);
        let mut capture = Capture::default();
        capture.until(&mut system, &["on\n"]);
        let soon = system.now_ms() + 100;
        let before = system.wakeups();
        assert_eq!(system.wait(Some(soon), &mut Vec::new()), Occurrence::Deadline);
        assert!(system.wakeups() - before <= 5, "a closed stream is not asked again");
        assert!(alive(pid));
        std::fs::write(go, "").unwrap();
        assert_eq!(capture.await_end(&mut system, child).exit, Some(Exit::Code(5)));
    }

    fn large_output_arrives_completely() {
        let mut system = System::new().unwrap();
        let (capture, ended) = run(
            &mut system,
            &sh("head -c 50000000 /dev/zero; head -c 3000000 /dev/zero >&2"),
        );
        assert_eq!(ended, PLAIN);
        assert_eq!((capture.stdout.len(), capture.stderr.len()), (50_000_000, 3_000_000));
    }

    fn output_flood_to_slow_reader_arrives_without_loss() {
        let mut system = System::new().unwrap();
        let (_, pid) = sh("exec seq 3000000").start(&mut system);
        let mut capture = Capture::default();
        let mut buf = Vec::new();
        let ended = loop {
            match system.wait(None, &mut buf) {
                Occurrence::Output(_, stream) => capture.take(stream, &buf),
                Occurrence::Ended(_, ended) => break ended,
                other => panic!("{other:?}"),
            }
            // A slow reader finds the pipe full.
            eventually("the pipe is full or the child is gone", || state(pid) != Some('R'));
        };
        assert_eq!(ended, PLAIN);
        let expected: String = (1..=3_000_000).map(|n| format!("{n}\n")).collect();
        assert!(capture.text() == expected, "{} bytes of {}", capture.stdout.len(), expected.len());
    }

    fn background_flood_does_not_delay_end() {
        let mut system = System::new().unwrap();
        let script = sh("trap '' HUP TERM; yes & echo tool=$!; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; done");
        let (capture, ended) = run(&mut system, &script);
        assert_eq!(ended.leftovers.len(), 1, "{ended:?}");
        let tool = capture.stdout.split(|byte| *byte == b'\n').find_map(|line| {
            std::str::from_utf8(line).ok()?.strip_prefix("tool=")?.parse().ok()
        });
        assert!(!alive(tool.unwrap()));
    }
}
