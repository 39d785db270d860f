//! Clients that are slow, many or rude.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;

use crate::http::Server;
use crate::support::{LONG, Project};
use crate::{is_output, let_it_end, start_waiting_run};

/// Resident memory in KB.
fn memory_kb(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}

#[test]
fn client_that_never_reads_holds_little_and_slows_nobody() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([
        {"lines_megabytes": 5},
        {"print": "<response>DONE</response>"},
    ]));
    project.ralph(["run", "-p", "do it", "--"]).args(agent).run().code(0);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let before = memory_kb(server.pid());
    let slow: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("the server");
            let token = &server.full;
            let head = format!(
                "GET /api/runs/{id}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).expect("a request");
            // The answer has begun: the rest waits for us.
            stream.read_exact(&mut [0; 64]).expect("an answer");
            stream
        })
        .collect();
    let mut stream = server.events(&format!("/api/runs/{id}/events"), None);
    while stream.next_json().1["event"] != "run_ended" {}
    server.get("/api/runs").code(200);
    let grown = memory_kb(server.pid()).saturating_sub(before);
    assert!(grown < 40 * 1024, "{grown} KB for {} clients", slow.len());
}

#[test]
fn idle_clients_are_cheap_and_get_the_next_event() {
    const CLIENTS: usize = 200;
    let project = Project::new();
    let run = start_waiting_run(&project);
    let server = Server::start(&project, &[]);
    let id = server.only_run()["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/runs/{id}/events");
    let mut streams: Vec<_> = (0..CLIENTS).map(|_| server.events(&path, None)).collect();
    for stream in &mut streams {
        while !is_output(&stream.next_json().1, "hello") {}
    }
    let used = memory_kb(server.pid());
    assert!(used < 60 * 1024, "{used} KB with {CLIENTS} clients");
    let_it_end(&project);
    let start = Instant::now();
    for stream in &mut streams {
        while !is_output(&stream.next_json().1, "DONE") {}
    }
    assert!(start.elapsed() < LONG);
    run.wait().code(0);
}

#[test]
fn unfinished_requests_do_not_block_others() {
    let project = Project::new();
    let server = Server::start(&project, &[]);
    let rude: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("the server");
            stream.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("half a request");
            stream
        })
        .collect();
    server.get("/").code(200);
    let mut large = server.request("GET", "/").bearer(&server.full);
    large = large.header("X-Large", &"x".repeat(100_000));
    assert!([400, 431].contains(&large.send().status));
    let body = vec![b'x'; 2 << 20];
    let posted = server.request("POST", "/api/runs/x/tell").bearer(&server.full).body(body).send();
    assert_eq!(posted.status, 413);
    drop(rude);
}
