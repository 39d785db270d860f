use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;

fn client() -> (UnixStream, Connection) {
    let (client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    (client, Connection::new(ListenerSetId(1), server.into(), 0))
}

fn advance(connection: &mut Connection, now_ms: u64) -> bool {
    let mut scratch = vec![0; 1024];
    let then = connection.advance(now_ms, &ProxyRules::default(), &mut scratch, &mut |_| {});
    matches!(then, NextStep::Keep)
}

fn answer(mut stream: UnixStream, connection: Connection) -> String {
    drop(connection);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn proxy_head_timeout_is_not_extended_by_trickling_client() {
    let (mut stream, mut connection) = client();
    stream.write_all(b"CONNECT a.test:443 HTTP/1.1\r\nX: ").unwrap();
    for now_ms in (0..REQUEST_TIMEOUT_MS).step_by(1000) {
        stream.write_all(b"y").unwrap();
        assert!(advance(&mut connection, now_ms), "{now_ms}");
        assert_eq!(connection.deadline_ms(), Some(REQUEST_TIMEOUT_MS), "{now_ms}");
    }
    stream.write_all(b"y").unwrap();
    advance(&mut connection, REQUEST_TIMEOUT_MS);
    // Closed even if the client does not read.
    assert!(!advance(&mut connection, REQUEST_TIMEOUT_MS + CLOSE_TIMEOUT_MS));
    let reply = answer(stream, connection);
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
}

#[test]
fn proxy_rejects_oversized_request_head() {
    let (mut stream, mut connection) = client();
    stream.write_all(b"CONNECT a.test:443 HTTP/1.1\r\nX: ").unwrap();
    let mut sent = 0;
    while let ConnectionState::Head { received, .. } = &connection.stage {
        assert!(received.len() <= http::MAX_HEAD && sent <= http::MAX_HEAD + 4096, "{sent}");
        stream.write_all(&[b'y'; 1024]).unwrap();
        sent += 1024;
        advance(&mut connection, 0);
    }
    let reply = answer(stream, connection);
    assert!(reply.starts_with("HTTP/1.1 431 "), "{reply}");
}
