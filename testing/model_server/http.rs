//! The part of HTTP/1.1 that agents use.
//!
//! Written by hand: a library prevents the failures that tests need, such as a reset in the middle
//! of a chunk.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const MAX_BODY: u64 = 256 * 1024 * 1024;
const MAX_LINE: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query, in which Gemini's clients may put a key.
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// `name` is in lower case.
    fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(super) fn keeps_connection(&self) -> bool {
        !self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[derive(Debug)]
pub(super) struct Connection<'s> {
    reader: BufReader<&'s TcpStream>,
    stream: &'s TcpStream,
}

impl<'s> Connection<'s> {
    pub(super) fn new(stream: &'s TcpStream) -> Connection<'s> {
        Connection { reader: BufReader::new(stream), stream }
    }

    pub(super) fn request(&mut self) -> io::Result<Option<Request>> {
        let first = self.line()?;
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return if first.is_empty() { Ok(None) } else { Err(invalid("no request line")) };
        };
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("no header"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if header(&headers, "expect").is_some() {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = self.body(&headers)?;
        let path = target.split('?').next().unwrap_or_default().to_owned();
        Ok(Some(Request { method: method.to_owned(), path, headers, body }))
    }

    fn body(&mut self, headers: &[(String, String)]) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if header(headers, "transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            loop {
                let line = self.line()?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(size, 16).map_err(|_| invalid("no chunk size"))?;
                self.take(size, &mut body)?;
                self.line()?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        if let Some(length) = header(headers, "content-length") {
            let length = length.parse().map_err(|_| invalid("no content length"))?;
            self.take(length, &mut body)?;
        }
        Ok(body)
    }

    fn take(&mut self, bytes: u64, into: &mut Vec<u8>) -> io::Result<()> {
        if into.len() as u64 + bytes > MAX_BODY {
            return Err(invalid("body too long"));
        }
        let taken = self.reader.by_ref().take(bytes).read_to_end(into)?;
        if taken as u64 == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.by_ref().take(MAX_LINE).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub(super) fn respond(
        &self,
        status: u16,
        headers: &[(String, String)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut out = head(status, "application/json", headers);
        out.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let mut out = out.into_bytes();
        out.extend_from_slice(body);
        (&mut &*self.stream).write_all(&out)
    }

    pub(super) fn begin_events(&self, headers: &[(String, String)]) -> io::Result<Events<'s>> {
        let mut out = head(200, "text/event-stream; charset=utf-8", headers);
        out.push_str("cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
        (&mut &*self.stream).write_all(out.as_bytes())?;
        Ok(Events { stream: self.stream })
    }

    /// Stays silent until the client gives up.
    pub(super) fn wait_for_end(&mut self) {
        let _ = io::copy(&mut self.reader, &mut io::sink());
    }

    /// Makes closing reset the connection.
    pub(super) fn reset_on_close(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(self.stream, Some(Duration::ZERO));
    }
}

#[derive(Debug)]
pub(super) struct Events<'s> {
    stream: &'s TcpStream,
}

impl Events<'_> {
    pub(super) fn send(&mut self, text: &str) -> io::Result<()> {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.stream.write_all(chunk.as_bytes())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.stream.write_all(b"0\r\n\r\n")
    }
}

fn head(status: u16, content_type: &str, headers: &[(String, String)]) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "",
    };
    let mut head = format!("HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
