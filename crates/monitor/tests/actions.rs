//! Actions become requests in the queue of a run.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is a failed test")]
use std::ffi::OsString;
use std::sync::Mutex;

use ralph_events::error::Error;
use ralph_events::run_state::{Answer, Question};
use ralph_monitor::actions::{self, Delivery, Done};
use ralph_monitor::{Launcher, NewRun, StartedRun};
use ralph_store::requests::{MAX_TEXT, Request, RequestQueue};
use ralph_store::run_files::RunFiles;
use ralph_store::runs::RunDir;

#[derive(Default)]
struct FakeLauncher(Mutex<Vec<String>>);

impl Launcher for FakeLauncher {
    fn start(&self, _: &NewRun) -> Result<StartedRun, Error> {
        Err(Error::failed("not in this test"))
    }

    fn resume(&self, run_id: &str) -> Result<(), Error> {
        self.0.lock().unwrap().push(run_id.to_owned());
        Ok(())
    }

    fn attach_command(&self, _: &str) -> Result<Vec<OsString>, Error> {
        Err(Error::failed("not in this test"))
    }
}

fn question(answer: Option<&str>) -> Question {
    let answer = answer.map(|text| Answer {
        text: text.to_owned(),
        answered_ms: 1,
        delivered_in: None,
        is_used: false,
    });
    let text = "410 or 303?".to_owned();
    Question { id: "q1".to_owned(), text, story: None, iteration: 1, asked_ms: 0, answer }
}

#[test]
fn actions_queue_requests_and_refuse_bad_text() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDir { id: "r".to_owned(), path: dir.path().join("r") };
    let files = RunFiles::create(run.clone(), 0).unwrap();
    let launcher = FakeLauncher::default();
    assert_eq!(
        actions::tell(&run, " Use 410.\x1b[0m ", Delivery::Now).unwrap(),
        Done::Requested(1)
    );
    actions::tell(&run, "Small commits.", Delivery::Every).unwrap();
    actions::answer(&run, &question(None), "410").unwrap();
    actions::pause(&run).unwrap();
    actions::resume(&run, &launcher).unwrap();
    actions::stop(&run, false).unwrap();
    let tell = |text: &str, now, every| Request::Tell { text: text.to_owned(), now, every };
    let pending = RequestQueue::of(&run).pending(0).unwrap();
    let pending: Vec<Request> = pending.into_iter().map(|(_, request)| request.unwrap()).collect();
    assert_eq!(
        pending,
        [
            tell("Use 410.", true, false),
            tell("Small commits.", false, true),
            Request::Answer { question: "q1".to_owned(), text: "410".to_owned() },
            Request::Pause,
            Request::Resume { max_iterations: None },
            Request::Stop { now: false },
        ]
    );
    for bad in [" \n", &"x".repeat(MAX_TEXT + 1), &"x".repeat(1 << 20)] {
        assert!(actions::tell(&run, bad, Delivery::Next).is_err());
    }
    let twice = actions::answer(&run, &question(Some("303")), "410").unwrap_err();
    assert!(twice.message.contains("answered already: 303"), "{twice}");
    drop(files);
    assert_eq!(actions::resume(&run, &launcher).unwrap(), Done::Resumed);
    assert_eq!(*launcher.0.lock().unwrap(), ["r"]);
}
