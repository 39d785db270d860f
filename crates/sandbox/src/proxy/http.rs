//! Parses the head of a client's request.

use crate::hosts;

/// Browsers send at most 8 KiB.
pub(super) const MAX_HEAD: usize = 32 * 1024;

const MAX_HEADERS: usize = 128;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProxyRequest {
    pub(super) host: String,
    pub(super) port: u16,
    /// Empty for a tunnel.
    pub(super) first: Vec<u8>,
    pub(super) tunnel: bool,
    /// For a proxy that has to open a tunnel.
    pub(super) through: Option<Vec<u8>>,
    /// `None` for a tunnel or a chunked body.
    pub(super) more: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestHead {
    Partial,
    Complete(ProxyRequest),
    Bad(&'static str),
}

/// What follows the head belongs to the host.
pub(super) fn parse_request(bytes: &[u8]) -> RequestHead {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return RequestHead::Partial,
        Err(_) => return RequestHead::Bad("not an HTTP request"),
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return RequestHead::Bad("not an HTTP request");
    };
    let rest = bytes.get(length..).unwrap_or_default();
    if method.eq_ignore_ascii_case("CONNECT") {
        return match authority(target, None) {
            Some((host, port)) => {
                let (first, tunnel) = (rest.to_vec(), true);
                let (through, more) = (None, None);
                RequestHead::Complete(ProxyRequest { host, port, first, tunnel, through, more })
            }
            None => RequestHead::Bad("CONNECT needs HOST:PORT"),
        };
    }
    let Some(after) = strip_scheme(target) else {
        return RequestHead::Bad("a proxy needs the full address, http://HOST/…");
    };
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    let (named, path) = after.split_at(end);
    let Some((host, port)) = authority(named, Some(80)) else {
        return RequestHead::Bad("the address has no host");
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut first = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {named}\r\n").into_bytes();
    for header in request.headers.iter() {
        if !is_hop_by_hop(header.name) {
            first.extend_from_slice(header.name.as_bytes());
            first.extend_from_slice(b": ");
            first.extend_from_slice(header.value);
            first.extend_from_slice(b"\r\n");
        }
    }
    // One request per connection: a second one could be for another host.
    first.extend_from_slice(b"Connection: close\r\n\r\n");
    let more = match length_of_body(request.headers) {
        Ok(None) => {
            first.extend_from_slice(rest);
            None
        }
        Ok(Some(length)) => {
            let available = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
            first.extend_from_slice(&rest[..available]);
            Some(length - available as u64)
        }
        Err(why) => return RequestHead::Bad(why),
    };
    RequestHead::Complete(ProxyRequest { host, port, first, tunnel: false, through: None, more })
}

/// `None` if chunked. Ambiguous requests are refused: another parser could read two (request
/// smuggling).
fn length_of_body(headers: &[httparse::Header<'_>]) -> Result<Option<u64>, &'static str> {
    let named = |name: &'static str| {
        headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name))
    };
    let mut lengths = named("content-length");
    let is_chunked = named("transfer-encoding").next().is_some();
    match (lengths.next(), lengths.next(), is_chunked) {
        (None, _, true) => Ok(None),
        (None, _, false) => Ok(Some(0)),
        (Some(length), None, false) => std::str::from_utf8(length.value)
            .ok()
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .map(Some)
            .ok_or("the request's length is not a number"),
        _ => Err("the request has several lengths"),
    }
}

/// `Host` is rewritten: the host that was checked is the host that is asked.
fn is_hop_by_hop(name: &str) -> bool {
    ["host", "connection", "keep-alive", "upgrade", "te"]
        .iter()
        .any(|hop| name.eq_ignore_ascii_case(hop))
        || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("proxy-"))
}

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    scheme.eq_ignore_ascii_case("http").then_some(rest)
}

fn authority(text: &str, default: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = hosts::split_port(text).ok()?;
    // Only and all IPv6 addresses have brackets.
    let is_bracketed = text.starts_with('[');
    if is_bracketed != host.parse::<std::net::Ipv6Addr>().is_ok() {
        return None;
    }
    Some((hosts::normalize_host(host)?, port.or(default)?))
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum UpstreamReply {
    Partial,
    /// The length of the head; the host's data follows.
    Open(usize),
    Refused(u16),
    Bad,
}

pub(super) fn parse_upstream_reply(bytes: &[u8]) -> UpstreamReply {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match (response.parse(bytes), response.code) {
        (Ok(httparse::Status::Complete(length)), Some(200..=299)) => UpstreamReply::Open(length),
        (Ok(httparse::Status::Complete(_)), Some(code)) => UpstreamReply::Refused(code),
        (Ok(httparse::Status::Partial), _) if bytes.len() < MAX_HEAD => UpstreamReply::Partial,
        _ => UpstreamReply::Bad,
    }
}

pub(super) fn error_response(status: &str, text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}\n",
        text.len() + 1
    )
    .into_bytes()
}

pub(super) const TUNNEL_OPEN: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn complete(text: &str) -> ProxyRequest {
        match parse_request(text.as_bytes()) {
            RequestHead::Complete(request) => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn connect_request_is_parsed() {
        let request =
            complete("CONNECT API.example.com:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n\x16\x03");
        assert_eq!(request.host, "api.example.com");
        assert_eq!(request.port, 443);
        assert_eq!(request.first, b"\x16\x03", "early data is kept");
        assert!(request.tunnel);
        assert_eq!(complete("CONNECT [::1]:80 HTTP/1.1\r\n\r\n").host, "::1");
    }

    #[test]
    fn plain_request_is_rewritten_for_target_host() {
        let request = complete(
            "POST http://example.com:8080/a?b=c HTTP/1.1\r\nHost: evil.test\r\nAccept: */*\r\n\
             Proxy-Authorization: Basic x\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
        );
        assert_eq!(
            (request.host.as_str(), request.port, request.tunnel),
            ("example.com", 8080, false)
        );
        assert_eq!(
            String::from_utf8(request.first).unwrap(),
            "POST /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nAccept: */*\r\n\
             Content-Length: 2\r\nConnection: close\r\n\r\nhi"
        );
        let request = complete("GET HTTP://example.com?x HTTP/1.1\r\n\r\n");
        assert!(request.first.starts_with(b"GET /?x HTTP/1.1\r\nHost: example.com\r\n"));
        assert_eq!(request.port, 80);
    }

    #[test]
    fn request_body_length_is_enforced() {
        let head = |headers: &str| format!("POST http://a.test/ HTTP/1.1\r\n{headers}\r\n");
        for (headers, rest, kept, more) in [
            ("", "GET http://evil.test/", "", Some(0)),
            ("Content-Length: 2\r\n", "hiGET http://evil.test/", "hi", Some(0)),
            ("content-length: 9\r\n", "hi", "hi", Some(7)),
            ("Transfer-Encoding: chunked\r\n", "2\r\nhi", "2\r\nhi", None),
        ] {
            let request = complete(&format!("{}{rest}", head(headers)));
            assert_eq!(request.more, more, "{headers:?}");
            let first = String::from_utf8(request.first).unwrap();
            assert_eq!(first.split_once("\r\n\r\n").unwrap().1, kept, "{headers:?}");
        }
        for two_ways in [
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 2\r\nContent-Length: 3\r\n",
            "Content-Length: +2\r\n",
            "Content-Length: \r\n",
        ] {
            assert!(
                matches!(parse_request(head(two_ways).as_bytes()), RequestHead::Bad(_)),
                "{two_ways:?}"
            );
        }
    }

    #[test]
    fn invalid_request_heads_are_rejected() {
        for bad in [
            "GET /path HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "GET https://example.com/ HTTP/1.1\r\n\r\n",
            "GET http:///path HTTP/1.1\r\n\r\n",
            "GET http://user@example.com/ HTTP/1.1\r\n\r\n",
            "CONNECT example.com HTTP/1.1\r\n\r\n",
            "CONNECT example.com:0 HTTP/1.1\r\n\r\n",
            "CONNECT [example.com]:443 HTTP/1.1\r\n\r\n",
            "CONNECT 0x7f.1:443 HTTP/1.1\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01\x00",
            "SSH-2.0-OpenSSH_9.9\r\n",
        ] {
            assert!(matches!(parse_request(bad.as_bytes()), RequestHead::Bad(_)), "{bad:?}");
        }
        assert_eq!(
            parse_request(b"CONNECT example.com:443 HTTP/1.1\r\nX: y\r\n"),
            RequestHead::Partial
        );
        assert_eq!(parse_request(b""), RequestHead::Partial);
    }

    #[test]
    fn upstream_proxy_reply_is_parsed() {
        for (text, expected) in [
            ("HTTP/1.1 200 Connection established\r\n\r\nrest", UpstreamReply::Open(39)),
            ("HTTP/1.0 200 OK\r\nX: y\r\n", UpstreamReply::Partial),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", UpstreamReply::Refused(407)),
            ("SSH-2.0-x\r\n", UpstreamReply::Bad),
        ] {
            assert_eq!(parse_upstream_reply(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(parse_upstream_reply(&vec![b'H'; MAX_HEAD]), UpstreamReply::Bad);
    }

    proptest! {
        #[test]
        fn http_parser_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_upstream_reply(&bytes);
            let _ = parse_request(&bytes);
        }

        #[test]
        fn parsed_request_host_is_always_valid(host in "[ -~]{0,40}", port in any::<u16>()) {
            for head in [
                format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n"),
                format!("GET http://{host}:{port}/ HTTP/1.1\r\n\r\n"),
            ] {
                if let RequestHead::Complete(request) = parse_request(head.as_bytes()) {
                    prop_assert_eq!(hosts::normalize_host(&request.host), Some(request.host));
                    prop_assert!(request.port > 0);
                }
            }
        }
    }
}
