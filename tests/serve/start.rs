//! Runs that a browser or a program starts.

use serde_json::{Value, json};

use crate::http::{Response, Server};
use crate::support::Project;

/// A project with one finished run, and a server. `claude` answers at once.
fn project_with_run() -> Project {
    let project = Project::new();
    let done = json!({"print": r#"{"type":"result","subtype":"success","result":"<response>DONE</response>"}"#});
    project.install_agent("claude", &json!([project.record_step(), done]));
    project.ralph(["run", "-p", "do it", "-n", "1", "--", "claude"]).run().code(0);
    project
}

fn body(project: &Project) -> Value {
    let prompt = "Do the next thing, then answer <response>DONE</response>.";
    json!({
        "directory": project.path(), "agent": "claude", "prompt": prompt, "max_iterations": 1,
        "check": "echo checked > check.txt", "sandbox": false,
    })
}

fn post_form(server: &Server, text: &str) -> Response {
    let form = server.request("POST", "/new").bearer(&server.full).header("Accept", "text/html");
    form.header("Content-Type", "application/x-www-form-urlencoded").body(text).send()
}

#[test]
fn program_starts_run_with_prompt_of_a_megabyte() {
    let project = project_with_run();
    let server = Server::start(&project, &[]);
    let mut body = body(&project);
    let prompt =
        format!("{}{}", body["prompt"].as_str().expect("text"), "x".repeat((1 << 20) - 100));
    body["prompt"] = json!(prompt);
    let started = server.post("/api/runs", &body).code(201).json();
    assert_eq!(started["name"], "project");
    let id = started["run"].as_str().expect("an id");
    // The page is there at once.
    server.get(&format!("/runs/{id}")).code(200);
    server.wait_for_run(|run| run["id"] == id && run["state"] == "complete");
    let starts = project.agent_starts();
    assert!(starts[1]["prompt"].as_str().is_some_and(|it| it.contains(&prompt)));
    assert_eq!(project.read("check.txt"), "checked\n");
    body["prompt"] = json!("x".repeat(4 << 20));
    let refused = server.post("/api/runs", &body).code(413).json();
    assert_eq!(refused["error"], "The text is too long: at most 1024 KB");
}

#[test]
fn form_starts_run_without_script() {
    let project = project_with_run();
    let server = Server::start(&project, &[]);
    assert!(server.get("/").text.contains("href=\"/new\""));
    let page = server.get("/new").code(200).text;
    let directory = project.path().display().to_string();
    assert!(page.contains(&format!("<option value=\"{directory}\">")), "{page}");
    assert!(page.contains("<option value=\"claude\">"), "{page}");
    let fields = format!("directory={directory}&agent=claude&max_iterations=1&check=true");
    // The text is kept when the run does not start.
    let refused = post_form(&server, &fields).code(400).text;
    assert!(refused.contains("The prompt is empty"), "{refused}");
    let refused = format!("{}&prompt=Fix+%3Cit%3E", fields.replace("=1&", "=none&"));
    let refused = post_form(&server, &refused).code(400).text;
    assert!(refused.contains("The limit has to be at least 1"), "{refused}");
    assert!(refused.contains("Fix &lt;it&gt;</textarea>") && refused.contains("value=\"true\""));
    let started = post_form(&server, &format!("{fields}&prompt=one%0D%0Atwo")).code(303);
    server.get(&started.headers["location"]).code(200);
    server.wait_for_run(|run| run["state"] == "complete" && run["checks"]["total"] == 1);
    let prompts = project.agent_starts();
    assert!(prompts[1]["prompt"].as_str().is_some_and(|it| it.contains("one\ntwo")));
}

#[test]
fn only_full_access_chooses_known_projects_and_installed_agents() {
    let project = project_with_run();
    let server = Server::start(&project, &[]);
    let start = |change: &Value| {
        let mut body = body(&project);
        let change = change.as_object().expect("fields").clone();
        body.as_object_mut().expect("fields").extend(change);
        server.post("/api/runs", &body)
    };
    for change in [
        json!({"directory": "/"}),
        json!({"directory": project.home()}),
        json!({"directory": project.path().join("..")}),
        json!({"agent": "sh"}),
        json!({"agent": "claude --version"}),
        json!({"prompt": " "}),
        json!({"max_iterations": 0}),
        json!({"max_iterations": -1}),
        json!({"command": "date"}),
    ] {
        assert!(start(&change).code(400).json()["error"].is_string(), "{change}");
    }
    let read_only = |method: &str, path: &str| {
        let request = server.request(method, path).bearer(&server.read_only);
        request.body(body(&project).to_string()).send()
    };
    read_only("POST", "/api/runs").code(403);
    read_only("POST", "/new").code(403);
    read_only("GET", "/new").code(404);
    assert!(!read_only("GET", "/").code(200).text.contains("/new"));
    // A page of another site has the cookie, but not the origin.
    let cookie = format!("ralph-{}={}", server.port, server.full);
    for path in ["/new", "/api/runs"] {
        let foreign = server.request("POST", path).header("Cookie", &cookie);
        foreign.header("Origin", "https://evil.example").send().code(403);
    }
    assert_eq!(server.get("/api/runs").json().as_array().map(Vec::len), Some(1));
}

#[test]
fn start_without_tmux_says_so() {
    let project = project_with_run();
    let server = Server::with_env(&project, &[("PATH", project.sibling("bin"))]);
    let refused = server.post("/api/runs", &body(&project)).code(409).json();
    assert!(refused["error"].as_str().is_some_and(|it| it.contains("tmux")), "{refused}");
    assert!(refused["hint"].as_str().is_some_and(|it| it.contains("tmux")), "{refused}");
    assert_eq!(server.get("/api/runs").json().as_array().map(Vec::len), Some(1));
}
