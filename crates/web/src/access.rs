//! Checks every request, and adds security headers to every answer.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};

use ralph_store::requests::MAX_TEXT;
use serde_json::json;

use crate::app::App;
use crate::new_run::MAX_PROMPT;
use crate::pages::layout;
use crate::pages::signs::capitalize;
use crate::tokens::Access;

/// Nothing is loaded from another place, and nothing is inline.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; \
     base-uri 'none'; manifest-src 'self'";

const COOKIE_SECONDS: u32 = 365 * 24 * 3600;

/// Checks host, origin and token, and adds the access to the request.
pub(crate) async fn check(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let is_asset = request.uri().path().starts_with("/assets/");
    let mut response = match admit(&app, &request) {
        Ok(Admission::Known(access)) => {
            request.extensions_mut().insert(access);
            let wants_html = wants_html(request.headers());
            let is_start = ["/new", "/api/runs"].contains(&request.uri().path());
            match next.run(request).await {
                large if large.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                    let most = if is_start { MAX_PROMPT } else { MAX_TEXT };
                    too_large(&app, access, wants_html, most)
                }
                response => response,
            }
        }
        Ok(Admission::Open) => next.run(request).await,
        Ok(Admission::Link { token, to }) => enter(&app, &request, &token, &to),
        Err(refusal) => refusal.response(request.headers()),
    };
    add_headers(response.headers_mut(), is_asset);
    response
}

enum Admission {
    Known(Access),
    /// `/healthz` and the style need no token.
    Open,
    /// A valid token in the query.
    Link {
        token: String,
        to: String,
    },
}

#[derive(Debug, Clone, Copy)]
enum Refusal {
    ForeignHost,
    ForeignOrigin,
    NoToken,
    ReadOnly,
}

fn admit(app: &App, request: &Request) -> Result<Admission, Refusal> {
    let headers = request.headers();
    let host = header_text(headers, &header::HOST)
        .or_else(|| request.uri().authority().map(axum::http::uri::Authority::as_str))
        .unwrap_or_default();
    if !app.address.is_own_host(host) {
        return Err(Refusal::ForeignHost);
    }
    let is_write = request.method() != Method::GET && request.method() != Method::HEAD;
    let bearer = header_text(headers, &header::AUTHORIZATION)
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    check_origin(app, headers, host, is_write && bearer.is_none())?;
    let path = request.uri().path();
    if path == "/healthz" {
        return Ok(Admission::Open);
    }
    if let Some((token, to)) = token_in_query(request.uri()) {
        let is_valid = app.tokens.access_of(&token).is_some();
        return match is_valid && !is_write {
            true => Ok(Admission::Link { token, to: format!("{}{to}", app.address.prefix()) }),
            false => Err(Refusal::NoToken),
        };
    }
    let token = bearer.or_else(|| cookie(headers, &app.address.cookie_name()));
    let access = token.and_then(|token| app.tokens.access_of(token)).ok_or(Refusal::NoToken)?;
    let access = if app.is_read_only { Access::ReadOnly } else { access };
    match is_write && access == Access::ReadOnly {
        true => Err(Refusal::ReadOnly),
        false => Ok(Admission::Known(access)),
    }
}

/// A page of another site must not act with the user's cookie.
fn check_origin(
    app: &App,
    headers: &HeaderMap,
    host: &str,
    is_required: bool,
) -> Result<(), Refusal> {
    let is_same_origin =
        header_text(headers, &HeaderName::from_static("sec-fetch-site")) == Some("same-origin");
    let is_own = match header_text(headers, &header::ORIGIN) {
        // Browsers hide the origin of a form because of our referrer policy, but not this.
        Some("null") => is_same_origin,
        Some(origin) => app.address.is_own_origin(origin, host),
        None => !is_required || is_same_origin,
    };
    is_own.then_some(()).ok_or(Refusal::ForeignOrigin)
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|it| it.to_str().ok());
    let mut pairs =
        cookies.flat_map(|line| line.split(';')).filter_map(|it| it.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The token, and the path and query without it.
fn token_in_query(uri: &axum::http::Uri) -> Option<(String, String)> {
    let (tokens, rest): (Vec<&str>, Vec<&str>) =
        uri.query()?.split('&').partition(|pair| pair.starts_with("token="));
    let token = tokens.first()?.strip_prefix("token=")?.to_owned();
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    // Two slashes would name another host. Browsers read a backslash as a slash.
    Some((token, format!("/{}{query}", uri.path().trim_start_matches(['/', '\\']))))
}

/// Turns the link into a cookie, so that the token leaves the address bar.
fn enter(app: &App, request: &Request, token: &str, to: &str) -> Response {
    let prefix = app.address.prefix();
    let path = if prefix.is_empty() { "/" } else { prefix };
    let secure = if app.address.is_https() { "; Secure" } else { "" };
    let cookie = format!(
        "{}={token}; Path={path}; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict{secure}",
        app.address.cookie_name()
    );
    let site = header_text(request.headers(), &HeaderName::from_static("sec-fetch-site"));
    let mut response = match site {
        // After a click on another site, browsers do not send a strict cookie to a redirect's target.
        Some("cross-site" | "same-site") => Html(layout::moved_page(to)).into_response(),
        _ => (StatusCode::SEE_OTHER, [(header::LOCATION, to.to_owned())]).into_response(),
    };
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

fn too_large(app: &App, access: Access, wants_html: bool, most: usize) -> Response {
    let title = format!("The text is too long: at most {} KB", most / 1024);
    let hint = "Shorten it, or put it into a file of the project and name that file.";
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    match wants_html {
        true => (status, Html(layout::message_page(app, access, &title, hint))).into_response(),
        false => (status, Json(json!({"error": title, "hint": hint}))).into_response(),
    }
}

impl Refusal {
    fn response(self, headers: &HeaderMap) -> Response {
        let (status, title, hint) = match self {
            Refusal::ForeignHost => (
                StatusCode::FORBIDDEN,
                "this server does not answer to that host name",
                "Start it with --url to allow the name.",
            ),
            Refusal::ForeignOrigin => (
                StatusCode::FORBIDDEN,
                "the request comes from another site",
                "Open the link that ralph serve printed.",
            ),
            Refusal::NoToken => (
                StatusCode::UNAUTHORIZED,
                "no valid token",
                "Open the link that ralph serve printed.",
            ),
            Refusal::ReadOnly => (
                StatusCode::FORBIDDEN,
                "this link is read-only",
                "Open the link with full access that ralph serve printed.",
            ),
        };
        if wants_html(headers) {
            return (status, Html(layout::refusal_page(&capitalize(title), hint))).into_response();
        }
        (status, Json(json!({"error": title, "hint": hint}))).into_response()
    }
}

pub(crate) fn wants_html(headers: &HeaderMap) -> bool {
    header_text(headers, &header::ACCEPT).is_some_and(|accept| accept.contains("text/html"))
}

fn add_headers(headers: &mut HeaderMap, is_asset: bool) {
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    if !is_asset {
        set(header::CACHE_CONTROL, "no-store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_without_token_stays_on_this_server() {
        for (link, expected) in [
            ("/?token=x", "/"),
            ("/runs/a?token=x&from=2", "/runs/a?from=2"),
            ("//evil.example/?token=x", "/evil.example/"),
            ("/\\evil.example/?token=x", "/evil.example/"),
        ] {
            let (token, to) = token_in_query(&link.parse().unwrap()).unwrap();
            assert_eq!((&*token, &*to), ("x", expected), "{link}");
        }
    }
}
