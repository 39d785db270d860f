//! The user's own proxy, such as a company's, from environment variables.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};

use super::http::ProxyRequest;
use crate::hosts;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamProxies {
    https: Option<UpstreamProxy>,
    http: Option<UpstreamProxy>,
    /// The entries of `NO_PROXY`.
    direct: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpstreamProxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

impl UpstreamProxies {
    /// Also returns a message about an unusable variable.
    pub fn from_env(env: &[(OsString, OsString)]) -> (UpstreamProxies, Option<String>) {
        let get = |name: &str| {
            // The lower case name wins.
            [name.to_ascii_lowercase(), name.to_owned()].iter().find_map(|name| {
                let (_, value) = env.iter().find(|(other, _)| other == name.as_str())?;
                value.to_str().map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
            })
        };
        let mut problem = None;
        let mut server = |name: &str| {
            let (name, value) = match get(name) {
                Some(value) => (name, value),
                None => ("ALL_PROXY", get("ALL_PROXY")?),
            };
            let server = UpstreamProxy::read(&value);
            if server.is_none() {
                problem = Some(format!(
                    "{name} is not a usable proxy (only http://HOST:PORT is supported); \
                     connecting directly"
                ));
            }
            server
        };
        let (https, http) = (server("HTTPS_PROXY"), server("HTTP_PROXY"));
        let direct = get("NO_PROXY").unwrap_or_default();
        let direct = direct.split(',').map(|entry| entry.trim().to_ascii_lowercase());
        let direct = direct.filter(|entry| !entry.is_empty()).collect();
        (UpstreamProxies { https, http, direct }, problem)
    }

    /// `None` to connect directly.
    pub(super) fn server_for(&self, request: &ProxyRequest) -> Option<&UpstreamProxy> {
        let server = if request.tunnel { &self.https } else { &self.http };
        let server = server.as_ref()?;
        let is_direct = hosts::is_local(&request.host)
            || self.direct.iter().any(|entry| matches_no_proxy(entry, &request.host, request.port));
        (!is_direct).then_some(server)
    }
}

/// Matches `*`, a domain with its subdomains, an address or a network, each with an optional port.
fn matches_no_proxy(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/') {
        let (Ok(network), Ok(bits)) = (network.parse::<Ipv4Addr>(), bits.parse::<u32>()) else {
            return false;
        };
        let shift = 32u32.saturating_sub(bits);
        let head = |address: Ipv4Addr| u32::from(address).checked_shr(shift).unwrap_or(0);
        return host.parse::<Ipv4Addr>().is_ok_and(|host| head(host) == head(network));
    }
    let (name, only) = match entry.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') => (name, digits.parse().ok()),
        _ => (entry, None),
    };
    if only.is_some_and(|only: u16| only != port) {
        return false;
    }
    let name = name.trim_start_matches('*').trim_start_matches('.');
    let is_below = || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    !name.is_empty() && (host == name || (host.parse::<IpAddr>().is_err() && is_below()))
}

impl UpstreamProxy {
    /// Parses `http://user:password@host:port/`; only the host is required.
    fn read(url: &str) -> Option<UpstreamProxy> {
        let rest = match url.split_once("://") {
            Some((scheme, rest)) => scheme.eq_ignore_ascii_case("http").then_some(rest)?,
            None => url,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let (host, port) = hosts::split_port(host).ok()?;
        Some(UpstreamProxy {
            host: hosts::normalize_host(host)?,
            port: port.unwrap_or(80),
            authorization: user.map(|user| base64(&percent_decode(user))),
        })
    }

    fn header(&self) -> String {
        match &self.authorization {
            Some(word) => format!("Proxy-Authorization: Basic {word}\r\n"),
            None => String::new(),
        }
    }

    /// Turns a request to a host into one to this proxy.
    pub(super) fn connect_request(&self, request: ProxyRequest) -> ProxyRequest {
        let ProxyRequest { host, port, first, tunnel, more, .. } = request;
        let named = if host.contains(':') { format!("[{host}]") } else { host };
        let header = self.header();
        let (first, through) = if tunnel {
            let connect =
                format!("CONNECT {named}:{port} HTTP/1.1\r\nHost: {named}:{port}\r\n{header}\r\n");
            (first, Some(connect.into_bytes()))
        } else {
            // `GET /path` becomes `GET http://host:port/path`.
            let space = first.iter().position(|byte| *byte == b' ').map_or(0, |at| at + 1);
            let end = first.windows(2).position(|two| two == b"\r\n").map_or(0, |at| at + 2);
            let mut rewritten = first.get(..space).unwrap_or_default().to_vec();
            rewritten.extend_from_slice(format!("http://{named}:{port}").as_bytes());
            rewritten.extend_from_slice(first.get(space..end).unwrap_or_default());
            rewritten.extend_from_slice(header.as_bytes());
            rewritten.extend_from_slice(first.get(end..).unwrap_or_default());
            (rewritten, None)
        };
        ProxyRequest { host: self.host.clone(), port: self.port, first, tunnel, through, more }
    }
}

fn percent_decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = match (first, after) {
            (b'%', [high, low, ..]) => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    bytes
}

fn base64(bytes: &[u8]) -> String {
    const BASE64_ALPHABET: &[u8; 64] =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let value = (0..3).fold(0u32, |sum, nth| {
            sum << 8 | u32::from(chunk.get(nth).copied().unwrap_or_default())
        });
        for nth in 0..4 {
            let digit = (value >> (18 - 6 * nth)) & 63;
            let digit = BASE64_ALPHABET.get(digit as usize).copied().unwrap_or(b'=');
            text.push(char::from(if nth > chunk.len() { b'=' } else { digit }));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(env: &[(&str, &str)]) -> (UpstreamProxies, Option<String>) {
        let env: Vec<_> = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        UpstreamProxies::from_env(&env)
    }

    fn connect_request(host: &str, port: u16, tunnel: bool) -> ProxyRequest {
        let first =
            if tunnel { b"x".to_vec() } else { b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n".to_vec() };
        ProxyRequest { host: host.to_owned(), port, first, tunnel, through: None, more: None }
    }

    #[test]
    fn upstream_proxy_is_selected_by_environment() {
        let env = [
            ("HTTPS_PROXY", "http://user:p%40ss@proxy.corp:8080/"),
            ("http_proxy", "web.corp:3128"),
            ("NO_PROXY", ".corp, 10.0.0.0/8,exact.test:8443,*.star.test, [::1]"),
        ];
        let (upstream, problem) = read(&env);
        assert_eq!(problem, None);
        for (host, port, tunnel, expected) in [
            ("api.example.com", 443, true, Some("proxy.corp")),
            ("api.example.com", 80, false, Some("web.corp")),
            ("git.corp", 443, true, None),
            ("corp", 443, true, None),
            ("notcorp", 443, true, Some("proxy.corp")),
            ("10.1.2.3", 443, true, None),
            ("11.1.2.3", 443, true, Some("proxy.corp")),
            ("exact.test", 8443, true, None),
            ("exact.test", 443, true, Some("proxy.corp")),
            ("a.star.test", 443, true, None),
            ("localhost", 8080, false, None),
        ] {
            let found = upstream.server_for(&connect_request(host, port, tunnel));
            assert_eq!(found.map(|server| server.host.as_str()), expected, "{host}:{port}");
        }
        let server = upstream.server_for(&connect_request("a.test", 443, true)).unwrap();
        let ProxyRequest { host, port, first, through, .. } =
            server.connect_request(connect_request("a.test", 443, true));
        assert_eq!((host.as_str(), port, first.as_slice()), ("proxy.corp", 8080, &b"x"[..]));
        assert_eq!(
            String::from_utf8(through.unwrap()).unwrap(),
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\
             Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
        );
        let server = upstream.server_for(&connect_request("a.test", 80, false)).unwrap();
        let asked = server.connect_request(connect_request("a.test", 80, false));
        assert_eq!(asked.first, b"GET http://a.test:80/a HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!((asked.port, asked.through), (3128, None));
    }

    #[test]
    fn unsupported_upstream_proxy_is_reported() {
        for (value, usable) in [
            ("socks5://proxy:1080", false),
            ("https://proxy:443", false),
            ("http://", false),
            ("http://proxy:port", false),
            ("HTTP://proxy", true),
        ] {
            let (upstream, problem) = read(&[("ALL_PROXY", value)]);
            assert_eq!(upstream.https.is_some(), usable, "{value}");
            assert_eq!(problem.is_none(), usable, "{value}");
        }
        assert_eq!(read(&[("HTTPS_PROXY", " ")]), (UpstreamProxies::default(), None));
        assert!(
            read(&[("NO_PROXY", "*"), ("HTTPS_PROXY", "p")])
                .0
                .server_for(&connect_request("a", 443, true))
                .is_none()
        );
        for (text, expected) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(percent_decode("%4"), b"%4");
    }
}
