//! Who may do what.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::http::Server;
use crate::start_waiting_run;
use crate::support::Project;

const PAGES: [&str; 10] = [
    "/",
    "/live",
    "/runs/x",
    "/api/runs",
    "/api/events",
    "/api/questions",
    "/api/openapi.json",
    "/metrics",
    "/assets/app.js",
    "/nothing",
];

#[test]
fn requests_without_token_get_401_except_healthz() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    for path in PAGES {
        server.request("GET", path).send().code(401);
        server.request("GET", path).bearer("x").send().code(401);
        server.request("GET", path).header("Cookie", "ralph=x").send().code(401);
    }
    server.request("GET", "/?token=wrong").send().code(401);
    server.request("POST", "/api/runs/x/pause").bearer("x").send().code(401);
    let healthy = server.request("GET", "/healthz").send().code(200);
    assert_eq!(healthy.text, "ok\n");
    // The page says how to get in, and nothing about runs.
    let page = server.request("GET", "/").header("Accept", "text/html").send().code(401);
    assert!(page.text.contains("Open the link") && !page.text.contains('`'));
    server.request("GET", "/assets/style.css").send().code(401);
}

#[test]
fn link_becomes_cookie_and_leaves_the_address() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let link = format!("/runs/x?token={}&from=3", server.full);
    let response = server.request("GET", &link).send().code(303);
    assert_eq!(response.headers["location"], "/runs/x?from=3");
    let cookie = &response.headers["set-cookie"];
    for part in ["HttpOnly", "SameSite=Strict", "Path=/;"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let pair = cookie.split(';').next().expect("a pair");
    server.request("GET", "/").header("Cookie", &format!("other=1; {pair}")).send().code(200);
    // A click on another site: the redirect must start here, or the cookie is not sent.
    let clicked = server.request("GET", &link).header("Sec-Fetch-Site", "cross-site").send();
    assert!(clicked.code(200).text.contains("http-equiv=\"refresh\""));
    // Two slashes at the start name another host.
    let evil = server.request("GET", &format!("//evil.example/?token={}", server.full)).send();
    assert!(!evil.headers["location"].starts_with("//"), "{:?}", evil.headers);
}

#[test]
fn read_only_access_sees_everything_and_changes_nothing() {
    let project = Project::new();
    let run = start_waiting_run(&project);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    for path in ["/", &format!("/runs/{id}"), "/api/runs"] {
        let page = server.request("GET", path).bearer(&server.read_only).send().code(200);
        assert!(!page.text.contains("<form"), "{path}");
    }
    for path in [format!("/api/runs/{id}/pause"), format!("/runs/{id}/stop")] {
        server.request("POST", &path).bearer(&server.read_only).send().code(403);
    }
    server.stop().code(0);
    let server = Server::start(&project, &["--read-only"]);
    assert!(server.full.is_empty(), "{}", server.stdout());
    server.request("GET", "/").bearer(&server.read_only).send().code(200);
    drop(run);
}

#[test]
fn foreign_host_and_origin_are_refused() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let get = || server.request("GET", "/api/runs").bearer(&server.full);
    for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1"] {
        get().header("Host", host).send().code(403);
        server.request("GET", "/healthz").header("Host", host).send().code(403);
    }
    get().without("Host").send().code(403);
    get().header("Host", "localhost:9999").send().code(200);
    get().header("Origin", "https://evil.example").send().code(403);
    get().header("Origin", "null").send().code(403);
    get().header("Origin", &format!("http://127.0.0.1:{}", server.port)).send().code(200);

    // With a cookie, a page of ours has to be the origin.
    let cookie = format!("ralph-{}={}", server.port, server.full);
    let post = || server.request("POST", "/api/runs/x/pause").header("Cookie", &cookie);
    post().send().code(403);
    post().header("Origin", "null").send().code(403);
    post().header("Origin", &format!("http://localhost:{}", server.port)).send().code(403);
    post().header("Sec-Fetch-Site", "cross-site").send().code(403);
    post().header("Sec-Fetch-Site", "same-origin").header("Origin", "null").send().code(404);
    post().header("Origin", &format!("http://127.0.0.1:{}", server.port)).send().code(404);
    // A program has no origin, and no cookie that a page could use.
    server.request("POST", "/api/runs/x/pause").bearer(&server.full).send().code(404);
}

#[test]
fn url_names_allowed_host_and_prefix() {
    let project = Project::new();
    let server = Server::start(&project, &["--url", "https://box.example.ts.net/ralph/"]);
    assert!(server.stdout().contains("https://box.example.ts.net/ralph/?token="));
    let get = |path: &str| {
        server.request("GET", path).bearer(&server.full).header("Host", "box.example.ts.net")
    };
    for path in ["/ralph", "/ralph/", "/"] {
        let page = get(path).send().code(200);
        assert!(page.text.contains("href=\"/ralph/assets/style.css"));
    }
    get("/ralph/assets/app.js").send().code(200);
    get("/ralphs").send().code(404);
    get("/ralph/healthz").without("Authorization").send().code(200);
    let origin = "https://box.example.ts.net";
    get("/ralph/api/runs").header("Origin", origin).send().code(200);
    get("/").header("Host", "other.example").send().code(403);
    let entered = get(&format!("/ralph/?token={}", server.full)).send().code(303);
    assert_eq!(entered.headers["location"], "/ralph/");
    let cookie = &entered.headers["set-cookie"];
    assert!(cookie.contains("Path=/ralph;") && cookie.contains("; Secure"), "{cookie}");
}

#[test]
fn tokens_survive_restart_until_they_are_replaced() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let (old, port) = (server.full.clone(), server.port);
    let file = project.home().join(".ralph/web-tokens.json");
    assert_eq!(file.metadata().expect("the tokens").permissions().mode() & 0o777, 0o600);
    server.stop().code(0);
    let server = Server::on_port(&project, port, &[]);
    assert_eq!(server.full, old);
    server.stop().code(0);
    let server = Server::start(&project, &["--new-tokens"]);
    assert_ne!(server.full, old);
    server.request("GET", "/").bearer(&old).send().code(401);
    server.get("/").code(200);
}

#[test]
fn port_in_use_and_open_address_are_usage_errors() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let port = server.port.to_string();
    let busy = project.ralph(["serve", "--port", &port]).run();
    busy.code(2).stderr_has(&format!("port {port} is already in use")).stderr_has("--port");
    for bind in ["0.0.0.0", "::", "192.168.1.1"] {
        let exposed = project.ralph(["serve", "--port", "0", "--bind", bind]).run();
        exposed.code(2).stderr_has("can be reached from other machines").stderr_has("--expose");
    }
    project.ralph(["serve", "--bind", "nowhere"]).run().code(2);
    project.ralph(["serve", "--url", "box"]).run().code(2).stderr_has("https://HOST/PREFIX");
    let open = Server::start(&project, &["--bind", "0.0.0.0", "--expose"]);
    open.request("GET", "/").bearer(&open.full).header("Host", "192.168.1.5").send().code(200);
}

#[test]
fn every_answer_has_security_headers() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    for (path, status) in [("/", 200), ("/nothing", 404), ("/api/runs", 200), ("/healthz", 200)] {
        let headers = server.get(path).code(status).headers;
        let policy = &headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"));
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["cache-control"], "no-store");
    }
    let refused = server.request("GET", "/").send().code(401);
    assert!(refused.headers.contains_key("content-security-policy"));
}

#[test]
fn interrupt_ends_the_server_and_no_run() {
    let project = Project::new();
    let run = start_waiting_run(&project);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].clone();
    server.stop().code(0).stderr_is("");
    let server = Server::start(&project, &[]);
    assert_eq!(server.only_run()["alive"], true);
    assert_eq!(server.only_run()["id"], id);
    crate::let_it_end(&project);
    run.wait().code(0);
    server.wait_for_run(|run| run["state"] == json!("complete"));
}
