//! The JSON interface and its streams.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::Server;
use crate::support::{LONG, Project, wait_until};
use crate::{is_output, let_it_end, start_waiting_run};

#[test]
fn openapi_describes_every_route() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let description = server.get("/api/openapi.json").code(200).json();
    let paths = description["paths"].as_object().expect("paths");
    for (path, method) in [
        ("/api/runs", "get"),
        ("/api/runs", "post"),
        ("/api/runs/{id}", "get"),
        ("/api/runs/{id}/events", "get"),
        ("/api/runs/{id}/tell", "post"),
        ("/api/runs/{id}/pause", "post"),
        ("/api/runs/{id}/resume", "post"),
        ("/api/runs/{id}/stop", "post"),
        ("/api/questions", "get"),
        ("/api/questions/{id}/answer", "post"),
        ("/api/events", "get"),
    ] {
        assert!(paths[path][method].is_object(), "{path}");
    }
    let events = &paths["/api/runs/{id}/events"]["get"]["parameters"];
    let named = |name| events.as_array().is_some_and(|all| all.iter().any(|it| it["name"] == name));
    assert!(named("from") && named("Last-Event-ID"), "{events}");
    let run = &description["components"]["schemas"]["Run"]["properties"];
    assert_eq!(run["iteration"]["type"], "integer");
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn events_continue_without_loss_or_repetition_after_restart() {
    let project = Project::new();
    let run = start_waiting_run(&project);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/runs/{id}/events");
    let mut seen: Vec<(u64, Value)> = Vec::new();
    let mut stream = server.events(&path, None);
    while !seen.iter().any(|(_, event)| is_output(event, "hello")) {
        seen.push(stream.next_json());
    }
    let port = server.port;
    server.stop().code(0);
    let_it_end(&project);
    run.wait().code(0);
    let server = Server::on_port(&project, port, &[]);
    let last = seen.last().map(|(id, _)| *id);
    let mut stream = server.events(&path, last);
    while !seen.iter().any(|(_, event)| event["event"] == "run_ended") {
        seen.push(stream.next_json());
    }
    let journal =
        std::fs::read_to_string(project.newest_run().join("events.jsonl")).expect("the journal");
    let expected: Vec<Value> =
        journal.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let events: Vec<Value> = seen.iter().map(|(_, event)| event.clone()).collect();
    assert_eq!(events, expected[..events.len()]);
    assert!(expected.len() - events.len() <= 1, "{}", expected.len());
    // Ids are positions: each is where its line ends.
    let mut end = 0;
    for ((id, _), line) in seen.iter().zip(journal.lines()) {
        end += line.len() as u64 + 1;
        assert_eq!(*id, end);
    }
}

#[test]
fn from_skips_earlier_events_and_iterations() {
    let project = Project::new();
    let session = |nth: u32| json!([{"print": format!("words of session {nth}")}]);
    let sessions: Vec<Value> = (1..=4).map(session).collect();
    let agent = project.fake_agent(&json!({ "sessions": sessions }));
    project.ralph(["run", "-n", "4", "-p", "do it", "--"]).args(agent).run().code(1);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();

    let path = format!("/api/runs/{id}/events");
    let mut whole = server.events(&path, None);
    let (first, _) = whole.next_json();
    let second = whole.next_json();
    assert_eq!(server.events(&format!("{path}?from={first}"), None).next_json(), second);
    // Inside a line, the next one is meant. The header wins, because browsers send it when they reconnect.
    let inside = format!("{path}?from={}", first - 1);
    assert_eq!(server.events(&inside, None).next_json(), second);
    assert_eq!(server.events(&format!("{path}?from=0"), Some(first)).next_json(), second);
    server.get(&format!("{path}?from=x")).code(400);

    let shown = |query: &str| {
        let page = server.get(&format!("/runs/{id}{query}")).code(200).text;
        let has = |nth: &u32| page.contains(&format!("words of session {nth}"));
        (1..=4).filter(has).collect::<Vec<_>>()
    };
    assert_eq!(shown(""), [3, 4]);
    assert_eq!(shown("?from=1"), [1, 2, 3, 4]);
    assert_eq!(shown("?from=2"), [2, 3, 4]);
    assert_eq!(shown("?from=9"), [0; 0]);
    server.get(&format!("/runs/{id}?from=-1")).code(400);
}

#[test]
fn live_event_arrives_and_run_stream_names_it() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let mut all = server.events("/api/events", None);
    let run = start_waiting_run(&project);
    let mut card = json!(null);
    while card["name"] != "waiting" || card["iteration"] != 1 {
        let event = all.next();
        assert_eq!(event.name, "run");
        card = serde_json::from_str(&event.data).expect("JSON");
    }
    let_it_end(&project);
    run.wait().code(0);
    while card["state"] != "complete" {
        card = serde_json::from_str(&all.next().data).expect("JSON");
    }
}

#[test]
fn actions_reach_the_run() {
    let project = Project::new();
    let run = start_waiting_run(&project);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let path = |action: &str| format!("/api/runs/{id}/{action}");
    let told = server.post(&path("tell"), &json!({"text": "use tabs"})).code(200).json();
    assert_eq!(told["requested"], "sent, waits for the next iteration");
    project.wait_for_event("guidance_received");
    server.post(&path("pause"), &json!({})).code(200);
    project.wait_for_event("pause_requested");
    server.post(&path("resume"), &json!({})).code(200);
    server.post(&path("stop"), &json!({"now": true})).code(200);
    run.wait().code(130);
    server.wait_for_run(|run| run["state"] == "ended");
    // It has ended: nothing can steer it any more.
    let late = server.post(&path("pause"), &json!({})).code(409).json();
    assert_eq!(late["error"], "the run has ended");
    assert!(late["hint"].as_str().is_some_and(|hint| hint.contains("ralph resume")), "{late}");
}

#[test]
fn killed_run_of_a_terminal_is_resumed_with_the_keys_of_the_server() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([
        project.record_step(),
        {"wait_for": project.sibling("go")},
        {"print": "<response>DONE</response>"},
    ]));
    let run = project.ralph(["run", "-n", "3", "-p", "do it", "--"]).args(agent).start();
    wait_until(LONG, || project.agent_starts().len() == 1);
    run.signal(Signal::KILL);
    run.wait();
    wait_until(LONG, || project.processes().is_empty());
    let_it_end(&project);
    let server = Server::start(&project, &[]);
    let card = server.wait_for_run(|run| run["state"] == "interrupted");
    let id = card["id"].as_str().expect("an id");
    let gone = server.post(&format!("/api/runs/{id}/pause"), &json!({})).code(409).json();
    assert_eq!(gone["error"], "the run's process is gone");
    server.post(&format!("/api/runs/{id}/resume"), &json!({})).code(200);
    server.wait_for_run(|run| run["state"] == "complete");
    assert_eq!(project.agent_starts()[1]["env"]["KEY_OF_THE_SERVER"], "sesame");
}

#[test]
fn bad_bodies_are_refused_with_a_reason() {
    let project = Project::new();
    let run = start_waiting_run(&project);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let tell = |body: &str| {
        let path = format!("/api/runs/{id}/tell");
        server.request("POST", &path).bearer(&server.full).body(body.to_owned()).send()
    };
    for body in ["", "{}", "[]", "nonsense", r#"{"text": 1}"#, r#"{"text": "a", "no": 1}"#] {
        assert!(tell(body).code(400).json()["error"].is_string(), "{body}");
    }
    for text in ["", " \n\t ", "\u{1b}[2J"] {
        let refused = tell(&json!({ "text": text }).to_string()).code(400).json();
        assert_eq!(refused["error"], "the text is empty");
    }
    tell(r#"{"text": "a", "now": true, "every": true}"#).code(400);
    tell(&json!({"text": "x".repeat(1 << 20)}).to_string()).code(413);
    let unknown = server.post("/api/runs/none/pause", &json!({})).code(404).json();
    assert_eq!(unknown["error"], "there is no such run");
    server.post("/api/questions/none/answer", &json!({"text": "a"})).code(404);
    drop(run);
}

#[test]
fn question_is_listed_and_answered() {
    let project = Project::new();
    // Asks in its first iteration, and waits in the second.
    let (go, again) = (project.sibling("go"), project.sibling("again"));
    let wait = format!(
        "if [ -e {again} ]; then until [ -e {go} ]; do sleep 0.02; done; fi; touch {again}",
        again = again.display(),
        go = go.display()
    );
    let agent = project.fake_agent(&json!([
        {"print": "<question>Tabs or spaces?\nThe style guide is silent.</question>"},
        {"shell": wait},
    ]));
    let run = project.ralph(["run", "-n", "2", "-p", "do it", "--"]).args(agent).start();
    let server = Server::start(&project, &[]);
    let mut open = json!([]);
    wait_until(LONG, || {
        open = server.get("/api/questions").json();
        open[0].is_object()
    });
    assert_eq!(open[0]["text"], "Tabs or spaces?\nThe style guide is silent.");
    let page = server.get("/").code(200).text;
    assert!(page.contains("needs you 1") && page.contains("Tabs or spaces?"));
    let id = open[0]["id"].as_str().expect("an id");
    server.post(&format!("/api/questions/{id}/answer"), &json!({"text": "Tabs."})).code(200);
    wait_until(LONG, || server.get("/api/questions").json() == json!([]));
    let again = server.post(&format!("/api/questions/{id}/answer"), &json!({"text": "No."}));
    assert!(again.code(409).json()["error"].as_str().is_some_and(|it| it.contains("answered")));
    let_it_end(&project);
    run.wait();
}

#[test]
fn question_says_whether_the_run_waits() {
    let project = Project::new();
    project.settings(&json!({"questions": "wait"}));
    let agent = project.fake_agent(&json!([{"print": "<question>Tabs or spaces?</question>"}]));
    let run = project.ralph(["run", "-n", "2", "-p", "do it", "--"]).args(agent).start();
    let server = Server::start(&project, &[]);
    project.wait_for_event("parked");
    wait_until(LONG, || server.get("/").text.contains("The run waits for it."));
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    server.post(&format!("/api/runs/{id}/stop"), &json!({"now": true})).code(200);
    run.wait();
}

#[test]
fn metrics_count_runs_and_figures() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
    project
        .ralph(["run", "--name", "one", "-p", "do it", "--check", "true", "--"])
        .args(agent)
        .run()
        .code(0);
    let server = Server::start(&project, &[]);
    let metrics = server.get("/metrics").code(200);
    assert!(metrics.headers["content-type"].starts_with("text/plain; version=0.0.4"));
    let line = |start: &str| {
        let found = metrics.text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start} in {}", metrics.text)).to_owned()
    };
    assert_eq!(line("ralph_runs{state=\"complete\"}"), "ralph_runs{state=\"complete\"} 1");
    assert_eq!(line("ralph_runs{state=\"working\"}"), "ralph_runs{state=\"working\"} 0");
    for name in ["cost_usd", "tokens", "iterations", "guardrail_failures", "waited_seconds"] {
        line(&format!("ralph_run_{name}{{run="));
    }
    assert!(line("ralph_run_iterations").ends_with(" 1"));
}

#[test]
fn pages_claim_nothing_about_checks_and_costs_that_are_unknown() {
    let pages = |checks: &[&str]| {
        let project = Project::new();
        let agent = project.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
        let run = project.ralph(["run", "-p", "do it"]).args(checks).args(["--"]).args(agent);
        run.run().code(0);
        let server = Server::start(&project, &[]);
        let id = server.only_run()["id"].as_str().expect("an id").to_owned();
        let pages = ["/".to_owned(), format!("/runs/{id}"), format!("/runs/{id}/costs")];
        pages.map(|path| server.get(&path).code(200).text)
    };
    let [overview, run, costs] = pages(&[]);
    for page in [&overview, &run, &costs] {
        assert!(page.contains("no checks"), "{page}");
        assert!(!page.contains("checks pass") && !page.contains("none failed"), "{page}");
    }
    assert!(!overview.contains("$0.00"), "{overview}");
    for page in &pages(&["--check", "true"])[1..] {
        assert!(page.contains("all checks passed") && !page.contains("no checks"), "{page}");
    }
}

#[test]
fn forms_are_refused_with_a_page_in_plain_words() {
    let project = Project::new();
    let run = start_waiting_run(&project);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let post = |action: &str, body: String| {
        let request = server.request("POST", &format!("/runs/{id}/{action}")).bearer(&server.full);
        let form = "application/x-www-form-urlencoded";
        request.header("Accept", "text/html").header("Content-Type", form).body(body).send()
    };
    let long = |length: usize| format!("text={}", "x".repeat(length));
    let too_long = post("tell", long(1 << 20)).code(413).text;
    assert!(too_long.contains("The text is too long: at most 64 KB"), "{too_long}");
    assert!(too_long.contains("style.css"), "{too_long}");
    post("tell", long((64 << 10) + 1)).code(400);
    post("tell", "text=hi&when=bogus".to_owned()).code(400);
    // As long as `ralph tell` allows, and each character in three bytes.
    post("tell", format!("text={}", "%2E".repeat(64 << 10))).code(303);
    let_it_end(&project);
    run.wait().code(0);
    server.wait_for_run(|run| run["state"] == "complete");
    let resumed = post("resume", String::new()).code(409).text;
    assert!(resumed.contains(&format!("Run {id} is done: ")), "{resumed}");
    let page = server.get(&format!("/runs/{id}")).code(200).text;
    assert!(page.contains("not delivered: the run ended first"), "{page}");
    assert!(!page.contains("waits for the next iteration"));
}
