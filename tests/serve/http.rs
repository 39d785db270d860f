//! A small HTTP client, and `ralph serve` as a test runs it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{LONG, Project, Ralph, Running, wait_until};

/// A server on a free port.
pub(crate) struct Server {
    running: Running,
    pub(crate) port: u16,
    /// The tokens of the two links.
    pub(crate) full: String,
    pub(crate) read_only: String,
}

impl Server {
    pub(crate) fn start(project: &Project, args: &[&str]) -> Server {
        Server::on_port(project, 0, args)
    }

    pub(crate) fn on_port(project: &Project, port: u16, args: &[&str]) -> Server {
        let port = port.to_string();
        Server::wait_for(Server::command(project).args(["--port", &port]).args(args).start())
    }

    pub(crate) fn with_env(project: &Project, env: &[(&str, PathBuf)]) -> Server {
        let command = Server::command(project).args(["--port", "0"]);
        let add = |command: Ralph, (name, value): &(&str, PathBuf)| command.env(name, value);
        Server::wait_for(env.iter().fold(command, add).start())
    }

    fn command(project: &Project) -> Ralph {
        let command = project.ralph(["serve"]);
        let command = command.env("RALPH_TMUX_SOCKET", project.sibling("tmux.sock"));
        command.env("KEY_OF_THE_SERVER", "sesame")
    }

    fn wait_for(running: Running) -> Server {
        wait_until(LONG, || {
            running.stdout().contains("Ctrl+C") || running.stderr().contains("error:")
        });
        let text = running.stdout();
        let token = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name));
            line.and_then(|line| line.split_once("token=")).map(|(_, token)| token.to_owned())
        };
        // The port that the system chose is in the links, unless `--url` names another one.
        let port = listening_port(&running).unwrap_or_else(|| panic!("{text}{}", running.stderr()));
        let (full, read_only) = (token("full"), token("read-only").expect("a link"));
        Server { running, port, full: full.unwrap_or_default(), read_only }
    }

    pub(crate) fn stop(self) -> crate::support::Output {
        self.running.signal(rustix::process::Signal::INT);
        self.running.wait()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.running.pid()
    }

    pub(crate) fn stdout(&self) -> String {
        self.running.stdout()
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        let host = format!("127.0.0.1:{}", self.port);
        Request {
            port: self.port,
            line: format!("{method} {path} HTTP/1.1"),
            headers: vec![("Host".to_owned(), host), ("Connection".to_owned(), "close".to_owned())],
            body: Vec::new(),
        }
    }

    /// With full access, as a program.
    pub(crate) fn get(&self, path: &str) -> Response {
        self.request("GET", path).bearer(&self.full).send()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.request("POST", path).bearer(&self.full).body(body.to_string()).send()
    }

    /// The JSON of the only run, once there is one.
    pub(crate) fn only_run(&self) -> Value {
        let mut found = Value::Null;
        wait_until(LONG, || {
            found = self.get("/api/runs").json()[0].clone();
            !found.is_null()
        });
        found
    }

    pub(crate) fn wait_for_run(&self, what: impl Fn(&Value) -> bool) -> Value {
        let mut run = Value::Null;
        wait_until(LONG, || {
            run = self.get("/api/runs").json()[0].clone();
            what(&run)
        });
        run
    }

    /// Follows a stream of server-sent events.
    pub(crate) fn events(&self, path: &str, last: Option<u64>) -> EventStream {
        let mut request = self.request("GET", path).bearer(&self.full);
        if let Some(last) = last {
            request = request.header("Last-Event-ID", &last.to_string());
        }
        EventStream::open(&request)
    }
}

/// From the files of the process, because `--url` hides it.
fn listening_port(running: &Running) -> Option<u16> {
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", running.pid())).ok()?;
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", running.pid()))
        .ok()?
        .flatten()
        .filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        let is_ours = *state == "0A" && sockets.iter().any(|socket| socket == inode);
        let port = local.rsplit(':').next()?;
        is_ours.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    })
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    port: u16,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// Replaces a header of the same name.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Request {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Request {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        stream.set_write_timeout(Some(LONG)).expect("a timeout");
        let mut text = format!("{}\r\n", self.line);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        text += "\r\n";
        (&stream).write_all(text.as_bytes()).expect("a request");
        // A server that refuses a large body closes the connection.
        let _ = (&stream).write_all(&self.body);
        stream
    }

    pub(crate) fn send(&self) -> Response {
        let mut reader = BufReader::new(self.connect());
        let (status, headers) = read_head(&mut reader);
        let mut bytes = Vec::new();
        // The connection may be reset after the answer.
        let _ = reader.read_to_end(&mut bytes);
        if headers.get("transfer-encoding").is_some_and(|value| value == "chunked") {
            bytes = unchunk(&bytes);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Response { status, headers, text }
    }
}

fn read_head(reader: &mut impl BufRead) -> (u16, HashMap<String, String>) {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    (status, headers)
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..end]);
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        whole.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[(end + 2 + size + 2).min(bytes.len())..];
    }
    whole
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) text: String,
}

impl Response {
    #[track_caller]
    pub(crate) fn code(self, status: u16) -> Response {
        let start: String = self.text.chars().take(300).collect();
        assert_eq!(self.status, status, "{start}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|err| panic!("{err}: {}", self.text))
    }
}

/// Server-sent events as they arrive.
pub(crate) struct EventStream {
    reader: BufReader<TcpStream>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    pub(crate) id: Option<u64>,
    pub(crate) name: String,
    pub(crate) data: String,
}

impl EventStream {
    fn open(request: &Request) -> EventStream {
        let mut reader = BufReader::new(request.connect());
        let (status, headers) = read_head(&mut reader);
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "text/event-stream");
        EventStream { reader }
    }

    /// The next event. Chunk sizes and comments are not fields, so they are skipped as any client does.
    pub(crate) fn next(&mut self) -> ServerEvent {
        let mut event = ServerEvent { id: None, name: String::new(), data: String::new() };
        loop {
            let mut line = String::new();
            let count = self.reader.read_line(&mut line).expect("a line of the stream");
            assert!(count > 0, "the stream ended");
            let line = line.trim_end();
            match line.split_once(": ") {
                Some(("id", id)) => event.id = id.parse().ok(),
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("data", data)) => event.data += data,
                _ if line.is_empty() && !event.data.is_empty() => return event,
                _ => {}
            }
        }
    }

    pub(crate) fn next_json(&mut self) -> (u64, Value) {
        let event = self.next();
        let json = serde_json::from_str(&event.data).expect("JSON");
        (event.id.expect("an id"), json)
    }
}
