//! Output of an agent that attacks the reader.

use serde_json::json;

use crate::http::Server;
use crate::support::Project;

#[test]
fn agent_output_is_escaped_and_clean() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([
        {"print": "<script>alert(1)</script><img src=x onerror=alert(2)>"},
        {"print": "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7} \u{202e}reversed\u{2066}"},
        {"print": "[click](javascript:alert(3)) \"quoted\" 'single' `<b>code</b>`"},
        {"print": "<question><b onclick=alert(4)>Bold?</b></question>"},
        {"long_line_megabytes": 10},
        {"print": "<response>DONE</response>"},
    ]));
    let name = "<i>name</i>";
    let args = ["run", "-n", "1", "-p", "</textarea><script>alert(5)</script>", "--check"];
    let check = "echo '<script>alert(6)</script>'; false";
    project.ralph(args).arg(check).arg("--").args(agent).run();
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let tabs = ["", "/stories", "/diff", "/checks", "/costs", "/report"];
    let mut pages: Vec<String> = tabs.iter().map(|tab| format!("/runs/{id}{tab}")).collect();
    pages.push("/".to_owned());
    for path in pages {
        let page = server.get(&path).code(200);
        let text = &page.text;
        for bad in
            ["<script>alert", "<img src=x", "<b onclick", "<b>code", "href=\"javascript", name]
        {
            assert!(!text.contains(bad), "{path} has {bad}");
        }
        for bad in ['\u{1b}', '\u{7}', '\u{202e}', '\u{2066}'] {
            assert!(!text.contains(bad), "{path} has {bad:?}");
        }
        for tag in text.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
            assert!(!tag.contains(" style=") && !tag.contains(" on"), "{path}: <{tag}>");
        }
        assert!(text.len() < 400_000, "{path}: {} bytes", text.len());
    }
    // The long line fills the end of the journal; the page leads to what was before.
    let activity = server.get(&format!("/runs/{id}")).text;
    assert!(activity.contains("?from=1\""));
    let activity = server.get(&format!("/runs/{id}?from=1")).text;
    assert!(activity.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(activity.contains("red") && activity.contains("reversed"));
}

#[test]
fn removed_and_broken_runs_are_shown_as_such() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
    project.ralph(["run", "-p", "do it", "--"]).args(&agent).run().code(0);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let run = project.newest_run();
    // A line that is not finished yet is not shown.
    let journal = run.join("events.jsonl");
    let mut text = std::fs::read(&journal).expect("the journal");
    text.extend_from_slice(br#"{"event":"output","text":"cut mid-li"#);
    std::fs::write(&journal, text).expect("the journal");
    let page = server.get(&format!("/runs/{id}")).code(200).text;
    assert!(!page.contains("cut mid-li"));
    std::fs::remove_dir_all(&run).expect("the run directory");
    server.wait_for_run(|run| run["id"] == id.as_str());
    crate::support::wait_until(crate::support::LONG, || {
        server.get("/").text.contains("files removed")
    });
    let page = server.get(&format!("/runs/{id}")).code(200).text;
    assert!(!page.contains("b-pause"));
    for action in ["tell", "resume", "pause", "stop"] {
        let body = if action == "tell" { json!({"text": "hello"}) } else { json!({}) };
        server.post(&format!("/api/runs/{id}/{action}"), &body).code(409);
    }
    assert!(!run.exists(), "a request makes no directory");
    server.get("/runs/20000101-000000-0000").code(404);
    server.get("/runs/..%2f..%2fetc").code(404);
    server.get(&format!("/runs/{id}/log?name=../../../etc/passwd")).code(404);
}

#[test]
fn machine_without_runs_says_how_to_start_one() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let page = server.get("/").code(200).text;
    assert!(page.contains("No runs on this machine yet") && page.contains("ralph demo --serve"));
    assert_eq!(server.get("/api/runs").json(), json!([]));
}
