//! Deadlines and signals, with silent and loud children.

use ralph_process::Signal;

use super::*;

cases! {
    fn deadlines_are_met_without_spinning() {
        let mut system = System::new().unwrap();
        let (child, _) = sh("echo on; exec sleep 1000").start(&mut system);
        Capture::default().until(&mut system, &["on\n"]);
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
        // A passed deadline is reported at once.
        assert_eq!(system.wait(Some(0), &mut buf), Occurrence::Deadline);
        system.terminate_child(child);
        Capture::default().await_end(&mut system, child);
    }

    fn waiting_for_end_does_not_spin() {
        let mut system = System::new().unwrap();
        system.grace_ms = 300;
        let (child, _) = sh("trap '' TERM; echo on; while :; do sleep 1000; done").start(&mut system);
        Capture::default().until(&mut system, &["on\n"]);
        system.terminate_child(child);
        let before = system.wakeups();
        Capture::default().await_end(&mut system, child);
        assert!(system.wakeups() - before <= 30, "{}", system.wakeups() - before);
        // An exit wakes once, not once per closed stream.
        let before = system.wakeups();
        for _ in 0..20 {
            run(&mut system, &sh("exit 0"));
        }
        assert!(system.wakeups() - before <= 40, "{}", system.wakeups() - before);
    }

    fn loud_child_does_not_starve_others() {
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
        // One wait may have returned before the signal came.
        let reported = (0..2).any(|_| {
            system.wait(None, &mut buf) == Occurrence::Signal(Signal::Terminate)
        });
        assert!(reported);
        system.terminate_child(loud);
        let deadline = system.now_ms() + 30_000;
        loop {
            match system.wait(Some(deadline), &mut buf) {
                Occurrence::Ended(id, _) if id == loud => break,
                Occurrence::Deadline => panic!("it never ended"),
                _ => {}
            }
        }
    }

    fn signals_are_reported_once_each_in_order() {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
        let mut system = System::new().unwrap();
        for signal in [SIGWINCH, SIGTERM, SIGINT, SIGINT, SIGHUP] {
            signal_hook::low_level::raise(signal).unwrap();
        }
        let mut buf = Vec::new();
        let occurrences: Vec<Occurrence> = (0..6)
            .map(|_| system.wait(Some(system.now_ms() + 20), &mut buf))
            .collect();
        assert_eq!(
            occurrences,
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

    fn pending_output_precedes_passed_deadline() {
        let mut system = System::new().unwrap();
        let (child, pid) = sh("echo late").start(&mut system);
        eventually("it ends", || !alive(pid));
        let mut buf = Vec::new();
        let mut occurrences = Vec::new();
        while !matches!(occurrences.last(), Some(Occurrence::Ended(..))) {
            occurrences.push(system.wait(Some(0), &mut buf));
        }
        occurrences.retain(|occurrence| *occurrence != Occurrence::Deadline);
        assert_eq!(occurrences[0], Occurrence::Output(child, Stream::Stdout));
        assert_eq!(occurrences.len(), 2);
    }
}
