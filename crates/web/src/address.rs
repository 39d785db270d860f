//! Where the server listens, and by which names it may be called.

use std::net::{IpAddr, SocketAddr};

use axum::http::{Request, Uri};
use ralph_events::error::Error;

/// An address that a browser uses, as in `https://HOST/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    is_https: bool,
    /// `HOST` or `HOST:PORT`, in lower case.
    authority: String,
    /// Empty, or a path that starts with a slash and does not end with one.
    prefix: String,
}

impl PublicUrl {
    pub fn parse(text: &str) -> Result<PublicUrl, Error> {
        let wrong = |why: &str| {
            Error::usage(format!("--url {text}: {why}"))
                .hint("give it as https://HOST/PREFIX, the prefix is optional")
        };
        let (is_https, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(wrong("it has to start with https:// or http://")),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let is_host_char = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if authority.is_empty() || !authority.chars().all(is_host_char) {
            return Err(wrong("the host is not valid"));
        }
        let prefix = path.trim_end_matches('/');
        let is_path_char = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        let has_dots = prefix.split('/').any(|part| part == "." || part == "..");
        if !prefix.chars().all(is_path_char) || prefix.contains("//") || has_dots {
            return Err(wrong(
                "the prefix may have letters, digits, -, ., _, ~ and single slashes",
            ));
        }
        let authority = without_default_port(&authority.to_ascii_lowercase(), is_https).to_owned();
        Ok(PublicUrl { is_https, authority, prefix: prefix.to_owned() })
    }
}

fn without_default_port(authority: &str, is_https: bool) -> &str {
    authority.strip_suffix(if is_https { ":443" } else { ":80" }).unwrap_or(authority)
}

/// Decides which `Host` and `Origin` belong to this server.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    listen: SocketAddr,
    url: Option<PublicUrl>,
}

impl Address {
    pub(crate) fn new(listen: SocketAddr, url: Option<PublicUrl>) -> Address {
        Address { listen, url }
    }

    /// The path before every link: empty, or `/PREFIX`.
    pub(crate) fn prefix(&self) -> &str {
        self.url.as_ref().map_or("", |url| &url.prefix)
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.as_ref().is_some_and(|url| url.is_https)
    }

    /// Removes the prefix from a request, for proxies that keep it.
    pub(crate) fn strip_prefix<B>(&self, request: &mut Request<B>) {
        let prefix = self.prefix();
        let uri = request.uri();
        let rest = uri.path_and_query().and_then(|it| it.as_str().strip_prefix(prefix));
        let Some(rest) = rest.filter(|_| !prefix.is_empty()) else { return };
        let rest = match rest.as_bytes().first() {
            None | Some(b'?') => format!("/{rest}"),
            Some(b'/') => rest.to_owned(),
            // Another name that starts with the prefix.
            _ => return,
        };
        if let Ok(uri) = rest.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }

    /// Unique on this machine: cookies do not tell ports apart.
    pub(crate) fn cookie_name(&self) -> String {
        format!("ralph-{}", self.listen.port())
    }

    /// Other machines can use the links. `0.0.0.0` means every address, and is none.
    pub(crate) fn is_reachable(&self) -> bool {
        let ip = self.listen.ip();
        self.url.is_some() || !(ip.is_loopback() || ip.is_unspecified())
    }

    /// The links need another host name.
    pub(crate) fn is_unspecified(&self) -> bool {
        self.url.is_none() && self.listen.ip().is_unspecified()
    }

    /// The address for people, without a slash at the end.
    pub(crate) fn base(&self) -> String {
        match &self.url {
            Some(PublicUrl { is_https, authority, prefix }) => {
                format!("{}://{authority}{prefix}", if *is_https { "https" } else { "http" })
            }
            None => format!("http://{}", self.listen),
        }
    }

    /// A page on another site can give its own name our address (DNS rebinding), but then the
    /// browser sends that name. An address in digits cannot be taken over like that.
    pub(crate) fn is_own_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let is_url = |url: &PublicUrl| without_default_port(&host, url.is_https) == url.authority;
        if self.url.as_ref().is_some_and(is_url) {
            return true;
        }
        let name = host_name(&host);
        match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || !self.listen.ip().is_loopback(),
            Err(_) => name == "localhost",
        }
    }

    /// Whether a page with this `Origin` was served as `host`.
    pub(crate) fn is_own_origin(&self, origin: &str, host: &str) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        let is_https = match scheme {
            "http" => false,
            "https" => true,
            _ => return false,
        };
        let (authority, host) = (authority.to_ascii_lowercase(), host.to_ascii_lowercase());
        let own = |known: &str| {
            without_default_port(&authority, is_https) == without_default_port(known, is_https)
        };
        // A proxy may replace the host by the address it connects to.
        let is_url = |url: &PublicUrl| url.is_https == is_https && own(&url.authority);
        own(&host) || self.url.as_ref().is_some_and(is_url)
    }
}

/// Removes the port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(listen: &str, url: Option<&str>) -> Address {
        Address::new(listen.parse().unwrap(), url.map(|url| PublicUrl::parse(url).unwrap()))
    }

    #[test]
    fn foreign_hosts_are_refused() {
        let local = address("127.0.0.1:4747", None);
        let proxied = address("127.0.0.1:4747", Some("https://box.example.ts.net/ralph/"));
        let exposed = address("0.0.0.0:4747", None);
        for (address, host, expected) in [
            (&local, "127.0.0.1:4747", true),
            (&local, "localhost:8080", true),
            (&local, "LOCALHOST", true),
            (&local, "[::1]:4747", true),
            (&local, "evil.example:4747", false),
            (&local, "localhost.evil.example", false),
            (&local, "127.0.0.1.evil.example", false),
            (&local, "192.168.1.5:4747", false),
            (&local, "", false),
            (&proxied, "box.example.ts.net", true),
            (&proxied, "Box.Example.ts.net:443", true),
            (&proxied, "box.example.ts.net:444", false),
            (&proxied, "other.example.ts.net", false),
            (&exposed, "192.168.1.5:4747", true),
            (&exposed, "[fe80::1]:4747", true),
            (&exposed, "evil.example", false),
        ] {
            assert_eq!(address.is_own_host(host), expected, "{host}");
        }
    }

    #[test]
    fn origin_has_to_match_host() {
        let local = address("127.0.0.1:4747", None);
        let proxied = address("127.0.0.1:4747", Some("https://box.example"));
        for (address, origin, host, expected) in [
            (&local, "http://localhost:4747", "localhost:4747", true),
            (&local, "http://localhost", "localhost:80", true),
            (&local, "http://localhost:3000", "localhost:4747", false),
            (&local, "https://evil.example", "localhost:4747", false),
            (&local, "null", "localhost:4747", false),
            (&local, "file://localhost:4747", "localhost:4747", false),
            (&proxied, "https://box.example", "box.example", true),
            (&proxied, "https://box.example", "127.0.0.1:4747", true),
            (&proxied, "http://box.example", "127.0.0.1:4747", false),
        ] {
            assert_eq!(address.is_own_origin(origin, host), expected, "{origin} {host}");
        }
    }

    #[test]
    fn prefix_is_stripped_whole() {
        let address = address("127.0.0.1:4747", Some("https://box.example/ralph"));
        for (from, to) in [
            ("/ralph", "/"),
            ("/ralph?token=x", "/?token=x"),
            ("/ralph/runs/a?b=c", "/runs/a?b=c"),
            ("/runs/a", "/runs/a"),
            ("/ralphs", "/ralphs"),
        ] {
            let mut request = Request::builder().uri(from).body(()).unwrap();
            address.strip_prefix(&mut request);
            assert_eq!(request.uri().to_string(), to);
        }
    }

    #[test]
    fn url_has_scheme_host_and_plain_prefix() {
        let url = PublicUrl::parse("https://Box.example:443/a/b/").unwrap();
        assert_eq!(url.authority, "box.example");
        let address = Address::new("127.0.0.1:1".parse().unwrap(), Some(url));
        assert_eq!(address.base(), "https://box.example/a/b");
        for wrong in [
            "",
            "box",
            "ftp://box",
            "https://",
            "https://b x",
            "https://a@b",
            "http://b/../x",
            "http://b//x",
            "http://b/?q",
        ] {
            assert!(PublicUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
