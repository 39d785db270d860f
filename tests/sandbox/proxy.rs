//! The proxy with real sockets: allowed hosts, and abuse by clients.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ralph_sandbox::hosts::HostAllowList;
use ralph_sandbox::proxy::{Proxy, ProxyRules, Refusal, Resolver, UpstreamProxies};

const LONG: Duration = Duration::from_secs(60);

struct TestProxy {
    proxy: Proxy,
    address: SocketAddr,
    _files: tempfile::TempDir,
}

impl TestProxy {
    fn new(allowed: &[&str]) -> TestProxy {
        TestProxy::with(allowed, "", &[])
    }

    fn with(allowed: &[&str], hosts: &str, servers: &[SocketAddr]) -> TestProxy {
        TestProxy::behind(UpstreamProxies::default(), allowed, hosts, servers)
    }

    fn behind(
        upstream: UpstreamProxies,
        allowed: &[&str],
        hosts: &str,
        servers: &[SocketAddr],
    ) -> TestProxy {
        let files = tempfile::tempdir().unwrap();
        let hosts_file = files.path().join("hosts");
        std::fs::write(&hosts_file, hosts).unwrap();
        let mut allow = HostAllowList::default();
        for entry in allowed {
            allow.add(entry).unwrap();
        }
        // No server there: a test never asks a real name server.
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let servers = if servers.is_empty() { vec![nobody] } else { servers.to_vec() };
        let resolver = Resolver { hosts: hosts_file, servers, ..Resolver::default() };
        let mut proxy = Proxy::start(ProxyRules { allow, resolver, upstream }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        proxy.serve(listener.into());
        TestProxy { proxy, address, _files: files }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn tunnel(&self, host: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(stream, "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let granted = b"HTTP/1.1 200 Connection established\r\n\r\n";
        let mut answer = vec![0; granted.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, granted);
        stream
    }

    fn refusals(&self) -> Vec<Refusal> {
        self.proxy.refusals()
    }
}

/// Serializes tests, because some measure the memory of this process.
fn serialize() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refusal(host: &str, port: u16, private: bool) -> Refusal {
    Refusal { host: host.to_owned(), port, private }
}

fn service(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    port
}

fn echo() -> u16 {
    service(|mut stream| {
        let mut writer = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut writer);
        let _ = stream.shutdown(Shutdown::Write);
    })
}

fn mirror() -> u16 {
    service(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while reader.read_line(&mut head).unwrap() > 2 {}
        write!(stream, "HTTP/1.1 200 OK\r\n\r\n{head}").unwrap();
    })
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn proxy_passes_tunnels_and_requests_to_allowed_hosts() {
    let _alone = serialize();
    let (echo, mirror) = (echo(), mirror());
    let allowed = [format!("localhost:{echo}"), format!("web.test:{mirror}")];
    let bench =
        TestProxy::with(&allowed.each_ref().map(String::as_str), "127.0.0.1 web.test\n", &[]);
    let mut tunnel = bench.tunnel(&format!("127.0.0.1:{echo}"));
    tunnel.write_all(b"hello").unwrap();
    tunnel.shutdown(Shutdown::Write).unwrap();
    let mut back = String::new();
    tunnel.read_to_string(&mut back).unwrap();
    assert_eq!(back, "hello", "the end of one direction leaves the other open");

    let answer = bench.ask(&format!(
        "GET http://web.test:{mirror}/path?q HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: x\r\n\r\n"
    ));
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("GET /path?q HTTP/1.1\r\n"), "{answer}");
    assert!(answer.contains(&format!("Host: web.test:{mirror}\r\n")), "{answer}");
    assert!(!answer.contains("evil") && !answer.contains("Proxy-"), "{answer}");
    assert_eq!(bench.refusals(), []);
}

#[test]
fn proxy_refuses_unlisted_host_and_names_setting() {
    let _alone = serialize();
    let echo = echo();
    let bench = TestProxy::with(&["*.example.com", "inside.test"], "127.0.0.1 inside.test\n", &[]);
    let answer = bench.ask("CONNECT evil.test:443 HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert!(answer.contains("add \"evil.test\" to sandbox.allowedDomains"), "{answer}");
    assert!(bench.ask("GET http://evil.test/ HTTP/1.1\r\n\r\n").contains("403 Forbidden"));
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let answer = bench.ask(&format!("CONNECT {host}:{echo} HTTP/1.1\r\n\r\n"));
        assert!(answer.contains(" 403 ") || answer.contains(" 400 "), "{host}: {answer}");
    }
    let answer = bench.ask("CONNECT inside.test:443 HTTP/1.1\r\n\r\n");
    assert!(answer.contains("add \"inside.test:443\" to sandbox.allowedDomains"), "{answer}");

    let refusals = bench.refusals();
    assert_eq!(refusals[0], refusal("evil.test", 443, false));
    assert_eq!(refusals[1], refusal("evil.test", 80, false));
    assert_eq!(refusals[2], refusal("127.0.0.1", echo, false));
    assert_eq!(refusals.last().unwrap(), &refusal("inside.test", 443, true));
}

#[test]
fn proxy_uses_upstream_proxy_of_user() {
    let _alone = serialize();
    let (echo, mirror) = (echo(), mirror());
    // Only the upstream proxy can resolve these names.
    let hosts = "127.0.0.1 far.test\n127.0.0.1 direct.test\n";
    let far = [format!("far.test:{echo}"), format!("far.test:{mirror}")];
    let other = TestProxy::with(&far.each_ref().map(String::as_str), hosts, &[]);
    let env = |name: &str, value: String| (name.into(), value.into());
    let upstream = UpstreamProxies::from_env(&[
        env("ALL_PROXY", format!("http://user:secret@{}", other.address)),
        env("NO_PROXY", "direct.test".to_owned()),
    ]);
    let direct = format!("direct.test:{echo}");
    let allowed = [far[0].as_str(), &far[1], &direct, "other.test", "10.0.0.1"];
    let bench = TestProxy::behind(upstream.0, &allowed, "127.0.0.1 direct.test\n", &[]);
    for host in [&far[0], &direct] {
        let mut tunnel = bench.tunnel(host);
        tunnel.write_all(b"hello").unwrap();
        tunnel.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        tunnel.read_to_string(&mut back).unwrap();
        assert_eq!(back, "hello", "{host}");
    }
    let answer = bench.ask(&format!("GET http://far.test:{mirror}/path HTTP/1.1\r\n\r\n"));
    assert!(answer.contains("GET /path HTTP/1.1\r\n"), "{answer}");
    // A pipelined second request would bypass the check.
    let (near, evil) = (format!("http://far.test:{mirror}/path"), "http://evil.test/");
    let two = format!("GET {near} HTTP/1.1\r\n\r\nGET {evil} HTTP/1.1\r\n\r\n");
    assert!(bench.ask(&two).contains("GET /path HTTP/1.1\r\n"));
    let open = format!("POST {near} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert!(bench.ask(&open).contains("411 Length Required"));
    assert_eq!(other.refusals(), []);
    let answer = bench.ask("CONNECT other.test:443 HTTP/1.1\r\n\r\n");
    assert!(answer.contains("HTTPS_PROXY refused it (403)"), "{answer}");
    assert_eq!(other.refusals(), [refusal("other.test", 443, false)]);
    for host in ["evil.test", "10.0.0.1"] {
        let answer = bench.ask(&format!("CONNECT {host}:443 HTTP/1.1\r\n\r\n"));
        assert!(answer.contains("403 Forbidden"), "{answer}");
    }
    assert_eq!(bench.refusals().len(), 2);
    assert_eq!(other.refusals(), []);
}

fn name_server(address: [u8; 4]) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name_server = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((read, client)) = socket.recv_from(&mut buffer) {
            let question = &buffer[..read];
            let is_v4 = question[read - 15..read - 13] == [0, 1];
            let mut reply = question[..2].to_vec();
            reply.extend([0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
            reply.extend(&question[12..read - 11]);
            if is_v4 {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
                reply.extend(address);
            }
            socket.send_to(&reply, client).unwrap();
        }
    });
    name_server
}

#[test]
fn proxy_judges_addresses_from_name_server() {
    let _alone = serialize();
    let echo = echo();
    let allowed = [format!("named.test:{echo}"), "rebound.test".to_owned()];
    let servers = [name_server([127, 0, 0, 1])];
    let bench = TestProxy::with(&allowed.each_ref().map(String::as_str), "", &servers);
    let mut tunnel = bench.tunnel(&format!("named.test:{echo}"));
    tunnel.write_all(b"x").unwrap();
    tunnel.read_exact(&mut [0]).unwrap();
    // The owner of an allowed name must not redirect it to this machine.
    assert!(bench.ask("CONNECT rebound.test:80 HTTP/1.1\r\n\r\n").contains("403 Forbidden"));
    assert_eq!(bench.refusals(), [refusal("rebound.test", 80, true)]);
}

#[test]
fn proxy_skips_unreachable_name_server() {
    let _alone = serialize();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let echo = echo();
    let entry = format!("named.test:{echo}");
    let bench = TestProxy::with(&[&entry], "", &[nobody, name_server([127, 0, 0, 1])]);
    bench.tunnel(&entry);
    let bench = TestProxy::with(&[&entry], "", &[nobody]);
    let answer = bench.ask(&format!("CONNECT {entry} HTTP/1.1\r\n\r\n"));
    assert!(answer.contains("502 Bad Gateway"), "{answer}");
    assert!(answer.contains("no address found for named.test"), "{answer}");
}

#[test]
fn proxy_reports_unreachable_host() {
    let _alone = serialize();
    let port = {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        closed.local_addr().unwrap().port()
    };
    let bench = TestProxy::new(&[&format!("localhost:{port}")]);
    let answer = bench.ask(&format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"));
    assert!(answer.contains("502 Bad Gateway"), "{answer}");
}

#[test]
fn proxy_answers_malformed_requests() {
    let _alone = serialize();
    let bench = TestProxy::new(&[]);
    for nonsense in ["\x16\x03\x01", "GET / HTTP/1.1\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        assert!(bench.ask(nonsense).starts_with("HTTP/1.1 400"), "{nonsense:?}");
    }
    let endless = format!("GET http://a.test/ HTTP/1.1\r\nX: {}", "y".repeat(100_000));
    let mut stream = bench.connect();
    // The proxy may hang up early.
    let _ = stream.write_all(endless.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
    assert!(bench.ask("CONNECT evil.test:443 HTTP/1.1\r\n\r\n").contains("403"));
}

#[test]
fn proxy_serves_many_connections_beside_stuck_ones() {
    let _alone = serialize();
    let echo = echo();
    let entry = format!("localhost:{echo}");
    let bench = TestProxy::new(&[&entry]);
    let before = resident_kib();
    let mut stuck = Vec::new();
    for nth in 0..100 {
        let mut stream = bench.connect();
        stream.write_all(&b"CONNECT localhost:1 HTTP/1.1\r\nX: "[..10 + nth % 20]).unwrap();
        stuck.push(stream);
        stuck.push(bench.tunnel(&entry));
    }
    let started = Instant::now();
    let mut streams: Vec<TcpStream> = (0..200).map(|_| bench.tunnel(&entry)).collect();
    for round in 0..20u8 {
        for stream in &mut stuck {
            let _ = stream.write(b"y");
        }
        for (nth, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&[round; 1000][..1 + nth * 4]).unwrap();
        }
        for (nth, stream) in streams.iter_mut().enumerate() {
            let mut back = vec![0; 1 + nth * 4];
            stream.read_exact(&mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == round));
        }
    }
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
    // Includes both ends and the services.
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB for 400 connections");
}

#[test]
fn proxy_drops_idle_connections_when_full() {
    let _alone = serialize();
    let echo = echo();
    let entry = format!("localhost:{echo}");
    let bench = TestProxy::new(&[&entry]);
    let mut first = bench.tunnel(&entry);
    let _idle: Vec<TcpStream> = (0..600).map(|_| bench.connect()).collect();
    let mut last = bench.tunnel(&entry);
    last.write_all(b"x").unwrap();
    last.read_exact(&mut [0]).unwrap();
    let end = first.read(&mut [0]).map_err(|err| err.kind());
    let is_gone = matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset));
    assert!(is_gone, "the oldest had to go: {end:?}");
}

#[test]
fn proxy_streams_gigabyte_beside_sleeping_readers() {
    let _alone = serialize();
    const BYTES: u64 = 1 << 30;
    let source = service(|mut stream| {
        // Shared, because memory is measured.
        static BLOCK: [u8; 1 << 16] = [7; 1 << 16];
        while stream.write_all(&BLOCK).is_ok() {}
    });
    let entry = format!("localhost:{source}");
    let bench = TestProxy::new(&[&entry]);
    // Never read, so all buffers fill up.
    let _sleepers: Vec<TcpStream> = (0..20).map(|_| bench.tunnel(&entry)).collect();
    let before = resident_kib();
    let started = Instant::now();
    let mut stream = bench.tunnel(&entry);
    let mut buffer = vec![0; 1 << 20];
    let mut read = 0;
    while read < BYTES {
        let more = stream.read(&mut buffer).unwrap();
        assert!(more > 0);
        read += more as u64;
    }
    let (took, grown) = (started.elapsed(), resident_kib().saturating_sub(before));
    assert!(took < LONG, "{took:?}");
    assert!(grown < 16 * 1024, "{grown} KiB more for a gigabyte");
}

#[test]
fn released_proxy_listener_is_closed() {
    let _alone = serialize();
    let echo = echo();
    let entry = format!("localhost:{echo}");
    let mut bench = TestProxy::new(&[&entry]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.local_addr().unwrap();
    let id = bench.proxy.serve(listener.into());
    let mut stream = TcpStream::connect(other).unwrap();
    write!(stream, "CONNECT {entry} HTTP/1.1\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    bench.proxy.release(id);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let closed = Instant::now() + LONG;
    while TcpStream::connect(other).is_ok() {
        assert!(Instant::now() < closed, "the listener is still open");
    }
    bench.tunnel(&entry);
}
