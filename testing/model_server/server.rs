//! Listens, and answers each request with the script's next turn.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::answer::{Answer, Ids};
use super::gemini;
use super::http::{Connection, Request};
use super::protocol::{Protocol, Wanted};
use super::script::{Fail, Midway, Position, Script, Turn};

/// Time for a client to read before a reset discards what it has not read.
const READING_TIME: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    script: Arc<Script>,
    position: Position,
    main: u64,
    side: u64,
    log: Option<File>,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Keep,
    Close,
    Break,
}

impl Server {
    pub(crate) fn bind(
        address: SocketAddr,
        script: Script,
        log: Option<&Path>,
    ) -> io::Result<Server> {
        if !address.ip().is_loopback() {
            let message = format!("{address} is not a loopback address; only loopback is served");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        let log = log.map(open).transpose()?;
        let script = Arc::new(script);
        let state = State { script, position: Position::default(), main: 0, side: 0, log };
        Ok(Server { listener: TcpListener::bind(address)?, state: Arc::new(Mutex::new(state)) })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn serve(self) -> io::Result<()> {
        loop {
            let (stream, _) = self.listener.accept()?;
            let state = Arc::clone(&self.state);
            thread::spawn(move || serve_client(&stream, &state));
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve_client(stream: &TcpStream, state: &Mutex<State>) {
    // Events are small and must arrive one by one.
    let _ = stream.set_nodelay(true);
    let mut connection = Connection::new(stream);
    loop {
        let request = match connection.request() {
            Ok(Some(request)) => request,
            Ok(None) | Err(_) => return,
        };
        let keeps = request.keeps_connection();
        match answer(&request, &mut connection, state) {
            Ok(Next::Keep) if keeps => {}
            Ok(Next::Keep | Next::Close) | Err(_) => return,
            Ok(Next::Break) => {
                connection.reset_on_close();
                return;
            }
        }
    }
}

fn answer(
    request: &Request,
    connection: &mut Connection<'_>,
    state: &Mutex<State>,
) -> io::Result<Next> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_else(|_| {
        if request.body.is_empty() {
            Value::Null
        } else {
            String::from_utf8_lossy(&request.body).into_owned().into()
        }
    });
    let respond = |status: u16, value: &Value| {
        connection.respond(status, &[], value.to_string().as_bytes()).map(|()| Next::Keep)
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("HEAD", _) => return connection.respond(200, &[], b"").map(|()| Next::Keep),
        ("GET", "/__state") => return respond(200, &lock(state).describe()),
        ("POST", "/__reset") => {
            lock(state).reset(None)?;
            return respond(200, &json!({}));
        }
        ("POST", "/__script") => {
            return match Script::from_value(body) {
                Ok(script) => {
                    lock(state).reset(Some(script))?;
                    respond(200, &json!({}))
                }
                Err(error) => respond(400, &json!({"error": {"message": error.to_string()}})),
            };
        }
        _ => {}
    }
    let wanted = if request.method == "POST" { Wanted::at(&request.path) } else { None };
    let protocol = match wanted {
        Some(Wanted::Answer(protocol)) => protocol,
        Some(Wanted::Count(protocol)) => {
            lock(state).log(request, body, json!({"kind": "count"}))?;
            return respond(200, &protocol.count(request.body.len()));
        }
        None => {
            lock(state).log(request, body, json!({"kind": "other"}))?;
            return if request.method == "GET" && request.path.ends_with("/models") {
                respond(200, &models())
            } else {
                let message = format!("not found: {}", request.path);
                respond(404, &json!({"error": {"type": "not_found_error", "message": message}}))
            };
        }
    };

    let offered = protocol.offered(&body);
    let (mut turn, number, is_side) = lock(state).take_turn(protocol, request, &body)?;
    if let (true, Some(schema)) = (is_side, protocol.answer_schema(&body)) {
        turn.text = Some(gemini::example(schema).to_string());
    }
    let created = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let model = protocol.model(&request.path, &body);
    let answer = Answer::new(&turn, &offered, model, Ids { request: number }, created);
    let streams = protocol.streams(&request.path, &body);
    send(protocol, &turn, &answer, streams, connection)
}

fn send(
    protocol: Protocol,
    turn: &Turn,
    answer: &Answer<'_>,
    streams: bool,
    connection: &mut Connection<'_>,
) -> io::Result<Next> {
    thread::sleep(Duration::try_from_secs_f64(turn.delay_s).unwrap_or_default());
    let mut headers = turn.headers.clone();
    headers.push(("request-id".to_owned(), answer.ids.of_answer("req_")));
    let respond = |status: u16, headers: &[(String, String)], body: &Value| {
        connection.respond(status, headers, body.to_string().as_bytes()).map(|()| Next::Keep)
    };
    match &turn.fail {
        Some(Fail::Unanswered) => return Ok(Next::Break),
        Some(Fail::Silence) => {
            connection.wait_for_end();
            return Ok(Next::Close);
        }
        Some(Fail::Status { status, failure_text, retry_after, body }) => {
            if let Some(seconds) = retry_after {
                headers.push(("retry-after".to_owned(), seconds.to_string()));
            }
            let usual = || protocol.failure(*status, failure_text, *retry_after);
            return respond(*status, &headers, &body.clone().unwrap_or_else(usual));
        }
        Some(Fail::Midway { how, .. }) if !streams => match how {
            Midway::Cut | Midway::Garbage => return Ok(Next::Break),
            Midway::Close => return Ok(Next::Close),
            Midway::Hang => {
                connection.wait_for_end();
                return Ok(Next::Close);
            }
            Midway::Error(failure_text) => {
                return respond(529, &headers, &protocol.failure(529, failure_text, None));
            }
        },
        Some(Fail::Midway { .. }) | None => {}
    }
    if !streams {
        return respond(200, &headers, &protocol.complete_response(answer));
    }

    let mut events = connection.begin_events(&headers)?;
    let pause = Duration::from_millis(turn.chunk_ms);
    for (sent, frame) in protocol.frames(answer).iter().enumerate() {
        if let Some(Fail::Midway { after, how }) = &turn.fail
            && sent == *after
        {
            return match how {
                Midway::Cut => {
                    thread::sleep(READING_TIME);
                    Ok(Next::Break)
                }
                Midway::Close => Ok(Next::Close),
                Midway::Hang => {
                    connection.wait_for_end();
                    Ok(Next::Close)
                }
                Midway::Garbage => {
                    events.send("event: what\ndata: {no JSON\n\n")?;
                    thread::sleep(READING_TIME);
                    Ok(Next::Break)
                }
                Midway::Error(failure_text) => {
                    events.send(&protocol.failure_frame(answer, failure_text).text())?;
                    events.end().map(|()| Next::Close)
                }
            };
        }
        events.send(&frame.text())?;
        if frame.piece && !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    events.end().map(|()| Next::Keep)
}

impl State {
    /// Logs the request and returns its turn, its number, and whether it is a side request.
    fn take_turn(
        &mut self,
        protocol: Protocol,
        request: &Request,
        body: &Value,
    ) -> io::Result<(Turn, u64, bool)> {
        let script = Arc::clone(&self.script);
        let fresh = protocol.is_fresh(body);
        let is_side = protocol.offered(body).is_empty() && !script.side_is_main;
        let (turn, about) = if is_side {
            self.side += 1;
            (&script.side, json!({"kind": "side", "fresh": fresh}))
        } else {
            self.main += 1;
            let turn = self.position.advance(&script, fresh);
            let Position { session, turn: nth, .. } = self.position;
            (turn, json!({"kind": "main", "fresh": fresh, "session": session, "turn": nth}))
        };
        self.log(request, body.clone(), about)?;
        Ok((turn.clone(), self.main + self.side, is_side))
    }

    fn describe(&self) -> Value {
        json!({
            "session": self.position.session,
            "turn": self.position.turn,
            "main": self.main,
            "side": self.side,
        })
    }

    fn reset(&mut self, script: Option<Script>) -> io::Result<()> {
        if let Some(script) = script {
            self.script = Arc::new(script);
        }
        self.position = Position::default();
        self.main = 0;
        self.side = 0;
        self.log.as_ref().map_or(Ok(()), |log| log.set_len(0))
    }

    /// Logs a request in one write, so that a reader never sees half of it.
    fn log(&mut self, request: &Request, body: Value, about: Value) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let mut entry = json!({"method": request.method, "path": request.path});
        if let (Value::Object(entry), Value::Object(about)) = (&mut entry, about) {
            entry.extend(about);
        }
        entry["headers"] = Value::Object(without_secrets(&request.headers));
        entry["body"] = body;
        log.write_all(format!("{entry}\n").as_bytes())
    }
}

/// Tests use no real keys, but a mistake must not put one into a file.
fn without_secrets(headers: &[(String, String)]) -> Map<String, Value> {
    let is_secret = |name: &str| {
        ["auth", "key", "token", "cookie", "secret"].iter().any(|part| name.contains(part))
    };
    headers
        .iter()
        .map(|(name, value)| {
            let value = if is_secret(name) { "[removed]" } else { value };
            (name.clone(), value.into())
        })
        .collect()
}

fn models() -> Value {
    let names = ["some-model", "claude-opus-5-5", "claude-sonnet-4-5", "gpt-5", "gemini-3-pro"];
    let data: Vec<Value> = names
        .iter()
        .map(|name| {
            json!({"id": name, "object": "model", "type": "model", "created": 1_700_000_000,
                   "display_name": name, "owned_by": "nobody"})
        })
        .collect();
    json!({"object": "list", "has_more": false, "data": data, "models": []})
}
