//! The scripted model server, over the wire.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is a failed test")]

#[path = "../testing/model_server/mod.rs"]
mod model_server;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use model_server::{Script, Server};
use serde_json::{Value, json};

struct Service {
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Service {
    fn new(script: &Value) -> Service {
        let directory = tempfile::tempdir().unwrap();
        let script = Script::parse(&script.to_string()).unwrap();
        let log = directory.path().join("log");
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), script, Some(&log)).unwrap();
        let address = server.address().unwrap();
        thread::spawn(|| server.serve());
        Service { address, directory }
    }

    fn log(&self) -> Vec<Value> {
        let path: PathBuf = self.directory.path().join("log");
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn post(&self, path: &str, body: &Value) -> (String, String) {
        let mut answer = String::new();
        self.send(&request(path, body)).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body =
            if head.contains("transfer-encoding: chunked") { dechunk(body) } else { body.into() };
        (head.to_owned(), body)
    }

    fn ask(&self, body: &Value) -> String {
        let (_, answer) = self.post("/v1/messages", body);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

fn request(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path}?key=secret HTTP/1.1\r\nHost: x\r\nX-Api-Key: secret\r\nUser-Agent: test\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn dechunk(mut body: &str) -> String {
    let mut decoded = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        decoded.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            assert_eq!(body, "");
            return decoded;
        }
    }
}

fn asking(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}],
           "tools": [{"name": "Bash", "input_schema": {"properties": {"command": {}}}}]})
}

fn data(stream: &str) -> Vec<&str> {
    stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}

#[test]
fn every_protocol_is_served_plain_and_streamed() {
    let turn = json!({"text": "It is done.", "sh": "ls", "chunk": 4});
    let tool =
        |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {}}});
    for (path, body) in [
        ("/v1/messages", json!({"tools": [{"name": "Bash", "input_schema": {}}]})),
        ("/v1/responses", json!({"tools": [{"type": "function", "name": "shell_command"}]})),
        ("/v1/chat/completions", json!({"tools": [tool("bash")]})),
        (
            "/v1beta/models/g:generateContent",
            json!({"tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}]}),
        ),
    ] {
        let service = Service::new(&json!([turn]));
        let (head, complete) = service.post(path, &body);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(complete.contains("It is done.") && complete.contains("ls"), "{path}: {complete}");

        let mut body = body;
        body["stream"] = json!(true);
        let (head, stream) = service.post(&path.replace(":generate", ":streamGenerate"), &body);
        assert!(head.contains("text/event-stream"), "{path}: {head}");
        let events = data(&stream);
        assert!(events.len() > 3, "{path}: {stream}");
        assert!(
            !events
                .iter()
                .any(|event| event.contains("It is done") && !event.contains("response."))
        );
    }
}

#[test]
fn conversation_follows_script_despite_side_requests() {
    let service =
        Service::new(&json!({"sessions": [["one", "two"], ["three"]], "side": "a title"}));
    let mut going_on = asking(false);
    going_on["messages"] = json!([{"role": "user"}, {"role": "assistant"}, {"role": "user"}]);
    let mut title = asking(false);
    title["tools"] = json!([]);
    assert_eq!(service.ask(&asking(false)), "one");
    assert_eq!(service.ask(&title), "a title");
    assert_eq!(service.ask(&going_on), "two");
    assert_eq!(service.ask(&asking(false)), "three");
    let (_, state) = service.post("/__state", &Value::Null);
    assert!(state.contains("not found"), "the state is not for POST: {state}");

    let log = service.log();
    let kinds: Vec<&str> = log.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["main", "side", "main", "main", "other"]);
    assert_eq!((&log[3]["session"], &log[3]["turn"]), (&json!(1), &json!(0)));
    assert_eq!(log[2]["fresh"], false);
    assert_eq!(log[0]["body"]["messages"][0]["content"], "hi");
    assert_eq!(log[0]["headers"]["user-agent"], "test");
    assert!(!format!("{log:?}").contains("secret"), "{log:?}");

    service.post("/__reset", &Value::Null);
    assert_eq!(service.log(), [json!(null); 0]);
    assert_eq!(service.ask(&asking(false)), "one");
    service.post("/__script", &json!(["another"]));
    assert_eq!(service.ask(&asking(false)), "another");
    let mut answer = String::new();
    let get = "GET /__state HTTP/1.1\r\nConnection: close\r\n\r\n";
    service.send(get).read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#"{"session":0,"turn":0,"main":1,"side":0}"#), "{answer}");
}

#[test]
fn connection_is_reused_and_chunked_body_is_read() {
    let service = Service::new(&json!(["one", "two"]));
    let body = asking(false).to_string();
    let (left, right) = body.split_at(10);
    let chunked = format!(
        "POST /messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{left}\r\n{:x};extension\r\n{right}\r\n0\r\n\r\n",
        left.len(),
        right.len()
    );
    let mut stream = service.send(&chunked);
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let mut going_on = asking(false);
    going_on["messages"] = json!([{"role": "assistant"}]);
    stream.write_all(request("/messages", &going_on).as_bytes()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("one") && rest.contains("two"), "{rest}");
}

#[test]
fn status_failures_carry_scripted_details() {
    let reset = json!({"anthropic-ratelimit-unified-status": "rejected"});
    let service = Service::new(&json!([
        {"fail": 429, "retry_after": 7, "headers": reset, "message": "No more."},
        {"fail": 529}, {"fail": 500}, {"fail": 401}, {"fail": 400, "body": {"mine": 1}},
        "fine",
    ]));
    let (head, body) = service.post("/v1/messages", &asking(true));
    for wanted in
        ["429 Too Many Requests", "retry-after: 7", "anthropic-ratelimit-unified-status: rejected"]
    {
        assert!(head.contains(wanted), "{head}");
    }
    assert!(body.contains("rate_limit_error") && body.contains("No more."), "{body}");
    for (status, words) in [
        ("529", "overloaded_error"),
        ("500", "api_error"),
        ("401", "authentication_error"),
        ("400", r#"{"mine":1}"#),
    ] {
        let (head, body) = service.post("/v1/messages", &asking(true));
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        assert!(!head.contains("retry-after"), "{head}");
        assert!(body.contains(words), "{body}");
    }
    assert_eq!(service.ask(&asking(false)), "fine");
}

#[test]
fn connections_are_reset_as_scripted() {
    let service = Service::new(&json!([
        {"fail": "cut0"}, {"fail": "cut", "text": "It is a long text."}, {"fail": "garbage"},
    ]));
    let broken = |stream: bool| {
        let mut stream = service.send(&request("/v1/messages", &asking(stream)));
        let mut bytes = Vec::new();
        let error = stream.read_to_end(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(broken(true), "");
    let begun = broken(true);
    assert!(begun.contains("It is a ") && !begun.contains("message_stop"), "{begun}");
    let garbage = broken(true);
    assert!(garbage.contains("{no JSON") && !garbage.contains("message_stop"), "{garbage}");
}

#[test]
fn connections_close_early_as_scripted() {
    let turn = json!({"fail": "close", "text": "It is a long text.", "times": -1});
    let service = Service::new(&json!([turn]));
    let ended = |stream: bool| {
        let mut answer = String::new();
        let mut stream = service.send(&request("/v1/messages", &asking(stream)));
        // A reset would be an error here.
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let begun = ended(true);
    assert!(begun.contains("It is a ") && !begun.contains("message_stop"), "{begun}");
    assert!(!begun.ends_with("\r\n0\r\n\r\n"), "the body is whole: {begun}");
    assert_eq!(ended(false), "");
}

#[test]
fn stream_ends_with_scripted_error() {
    let fail = json!({"fail": "sse_error", "text": "abc", "after": 2, "message": "Too much."});
    let service = Service::new(&json!([fail]));
    let (_, stream) = service.post("/v1/messages", &asking(true));
    let events = data(&stream);
    assert_eq!(events.len(), 3, "{stream}");
    assert!(stream.contains("event: error\n") && events[2].contains("Too much."), "{stream}");
}

#[test]
fn hanging_service_stays_silent() {
    let service =
        Service::new(&json!([{"fail": "hang"}, {"fail": "hang_mid", "after": 1}, "fine"]));
    let silent = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut bytes = Vec::new();
        let error = stream.read_to_end(&mut bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        String::from_utf8(bytes).unwrap()
    };
    let mut never = service.send(&request("/v1/messages", &asking(true)));
    assert_eq!(silent(&mut never), "");
    let mut midway = service.send(&request("/v1/messages", &asking(true)));
    let begun = silent(&mut midway);
    assert!(begun.contains("message_start") && !begun.contains("message_stop"), "{begun}");
    assert_eq!(service.ask(&asking(false)), "fine", "while the others still hang");
}

#[test]
fn tokens_are_counted_and_models_listed() {
    let service = Service::new(&json!(["x"]));
    let (_, count) = service.post("/v1/messages/count_tokens", &asking(false));
    assert!(count.contains("input_tokens"), "{count}");
    let (_, count) = service.post("/v1beta/models/g:countTokens", &asking(false));
    assert!(count.contains("totalTokens"), "{count}");
    let mut answer = String::new();
    let get = "GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n";
    service.send(get).read_to_string(&mut answer).unwrap();
    assert!(answer.contains("claude-"), "{answer}");
}

#[test]
fn server_binds_only_to_loopback() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let script = Script::parse(r#"["x"]"#).unwrap();
        let error = Server::bind(address.parse().unwrap(), script, None).unwrap_err();
        assert!(error.to_string().contains("only loopback"), "{error}");
    }
}

/// A recording that cannot be repeated says nothing about an agent's next version.
#[test]
fn every_recording_can_be_repeated() {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures");
    let cases = std::fs::read_to_string(fixtures.join("cases.json")).unwrap();
    let cases: Value = serde_json::from_str(&cases).unwrap();
    let names = |directory: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for agent in names(&fixtures).iter().filter(|name| fixtures.join(name).is_dir()) {
        // amp talks only to its own service.
        if agent == "amp" {
            continue;
        }
        let cases = cases[agent].as_object().unwrap();
        for (name, case) in cases {
            let script = Script::parse(&case["script"].to_string());
            script.unwrap_or_else(|error| panic!("{agent}/{name}: {error}"));
        }
        let files = names(&fixtures.join(agent));
        let recorded: Vec<&str> =
            files.iter().filter_map(|name| name.strip_suffix(".ndjson")).collect();
        let mut named: Vec<&str> = cases.keys().map(String::as_str).collect();
        named.sort_unstable();
        assert_eq!(recorded, named, "{agent}");
    }
}
