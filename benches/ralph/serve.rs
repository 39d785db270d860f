//! `ralph serve`: from the journal to many clients, memory, size of a page, and what it costs a run.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ralph_events::event::{Event, Stamp};
use ralph_events::journal::LineEncoder;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::bench_dir::{BenchDir, proc_figure};
use crate::monitor::{new_run, now_ms, write_journal, write_many};
use crate::sections::{compare, median};
use crate::table::{Table, Target, size, time};

const CLIENTS: usize = 50;
const ROUNDS: usize = 50;
const ITERATIONS: u64 = 300;
const IDLE_CLIENTS: usize = 1000;
const LONG: Duration = Duration::from_secs(30);

struct Server {
    child: Child,
    port: u16,
    token: String,
}

impl Server {
    fn start(bench_dir: &BenchDir, home: &Path) -> io::Result<Server> {
        let mut command = bench_dir.ralph();
        command.args(["serve", "--port", "0"]).env("RALPH_HOME", home).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut text = String::new();
        while !text.contains("Ctrl+C") && stdout.read_line(&mut text)? > 0 {}
        let link = text.split_once("http://127.0.0.1:").map(|(_, rest)| rest);
        let link = link.and_then(|rest| rest.lines().next()?.split_once("/?token="));
        let (port, token) = link.ok_or_else(|| io::Error::other(text.clone()))?;
        let port = port.parse().map_err(io::Error::other)?;
        Ok(Server { child, port, token: token.to_owned() })
    }

    fn request(&self, path: &str) -> io::Result<TcpStream> {
        let (port, token) = (self.port, &self.token);
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(LONG))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )?;
        Ok(stream)
    }

    /// The whole answer, with its head.
    fn get(&self, path: &str) -> io::Result<String> {
        let mut answer = Vec::new();
        self.request(path)?.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(io::Error::other(answer)) }
    }

    /// A stream that has begun.
    fn follow(&self, path: &str) -> io::Result<BufReader<TcpStream>> {
        let mut stream = BufReader::new(self.request(path)?);
        read_until(&mut stream, "text/event-stream")?;
        Ok(stream)
    }

    fn memory(&self) -> io::Result<f64> {
        proc_figure(self.child.id(), "status", "VmRSS:")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_until(stream: &mut impl BufRead, wanted: &str) -> io::Result<()> {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

pub(super) fn serve(bench_dir: &BenchDir, table: &mut Table, _: Option<u64>) -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    clients(bench_dir, table)?;
    page(bench_dir, table)?;
    run(bench_dir, table)
}

fn clients(bench_dir: &BenchDir, table: &mut Table) -> io::Result<()> {
    let home = bench_dir.path("serve-clients");
    let run = new_run(&home, &bench_dir.path("serve-project"), now_ms())?;
    write_journal(&run, 1)?;
    let mut journal = File::options().append(true).open(run.journal())?;
    // It lives as long as this process.
    journal.lock()?;
    let server = Server::start(bench_dir, &home)?;
    let events = format!("/api/runs/{}/events?from={}", run.id, journal.metadata()?.len());
    let mut streams = Vec::new();
    for _ in 0..CLIENTS {
        streams.push(server.follow(&events)?);
    }
    let (mut bare, lines) = bare_clients()?;
    let floor = deliver(&mut bare, |line| lines.send(line.to_owned()).map_err(io::Error::other))?;
    let ralph = deliver(&mut streams, |line| journal.write_all(line.as_bytes()))?;
    let slowest = ralph.iter().copied().fold(0.0, f64::max);
    let label = format!("a line of the journal to {CLIENTS} clients, compared with bare sockets");
    table.ratio(&label, (median(floor), median(ralph)), time, Target::None);
    table.value("  the slowest of 50", slowest, time, Target::AtMost(0.1));

    drop(streams);
    let before = server.memory()?;
    let run_page = format!("/runs/{}/live", run.id);
    let mut idle = Vec::new();
    for path in [&*events, "/live", &*run_page].into_iter().cycle().take(IDLE_CLIENTS) {
        idle.push(server.follow(path)?);
    }
    let label = format!("memory with {IDLE_CLIENTS} idle clients, compared with none");
    let memory = server.memory()?;
    table.ratio(&label, (before, memory), size, Target::None);
    table.value("  against the limit", memory, size, Target::AtMost(60e6));
    Ok(())
}

/// Clients of a thread that writes each line to all of them.
fn bare_clients() -> io::Result<(Vec<BufReader<TcpStream>>, mpsc::Sender<String>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        near.push(BufReader::new(TcpStream::connect(listener.local_addr()?)?));
        far.push(listener.accept()?.0);
    }
    let (sender, lines) = mpsc::channel::<String>();
    std::thread::spawn(move || {
        for line in lines {
            for stream in &mut far {
                let _ = stream.write_all(line.as_bytes());
            }
        }
    });
    Ok((near, sender))
}

/// The times from sending a line until every client has it.
fn deliver(
    streams: &mut [BufReader<TcpStream>],
    mut send: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<Vec<f64>> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let text = format!("round {round} of the benchmark");
        let mut lines = LineEncoder::default();
        let at = Stamp { time_ms: now_ms(), iteration: 1, attempt: 1 };
        lines.push(at, &Event::Text { text: (&*text).into(), joined: false, subagent: false });
        let line = String::from_utf8_lossy(lines.bytes()).into_owned();
        let sent = Instant::now();
        send(&line)?;
        for stream in &mut *streams {
            read_until(stream, &text)?;
        }
        times.push(sent.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// The overview of 200 runs, and what a browser loads with it.
fn page(bench_dir: &BenchDir, table: &mut Table) -> io::Result<()> {
    let home = bench_dir.path("serve-many");
    write_many(bench_dir, &home)?;
    let server = Server::start(bench_dir, &home)?;
    let page = server.get("/")?;
    let links = page.split(['"', ' ']).filter(|word| word.starts_with("/assets/"));
    let mut bytes = page.len();
    for link in links.collect::<BTreeSet<_>>() {
        bytes += server.get(link)?.len();
    }
    let sizes = (page.len() as f64, bytes as f64);
    table.ratio(
        "overview of 200 runs with its assets, compared with without",
        sizes,
        kilobytes,
        Target::None,
    );
    table.value("  against the limit", sizes.1, kilobytes, Target::AtMost(150e3));
    Ok(())
}

fn kilobytes(bytes: f64) -> String {
    format!("{:.0} KB", bytes / 1e3)
}

/// A run of instant agents, with a browser that shows it.
fn run(bench_dir: &BenchDir, table: &mut Table) -> io::Result<()> {
    let (alone, served) = (bench_dir.path("serve-alone"), bench_dir.path("serve-home"));
    std::fs::create_dir_all(&served)?;
    let server = Server::start(bench_dir, &served)?;
    let mut page = server.follow("/live")?;
    std::thread::spawn(move || io::copy(&mut page, &mut io::sink()));
    let new = |home: &Path| {
        let mut run = bench_dir.ralph_run("serve-run", ITERATIONS, &["true"]);
        run.command.env("RALPH_HOME", home);
        run
    };
    let (mut floor, mut ralph) = (new(&alone), new(&served));
    let times = compare(7, || floor.run(), || ralph.run())?;
    let label =
        format!("{ITERATIONS} instant iterations with `ralph serve` open, compared with without");
    table.ratio(&label, times, time, Target::AtMost(1.1));
    Ok(())
}
