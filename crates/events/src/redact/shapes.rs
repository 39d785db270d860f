//! Secrets with a known shape: a table of patterns.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use regex::Regex;

use super::{REDACTED, looks_secret};

/// Decides by the groups `name` and `secret` of a match.
type Check = fn(name: &str, secret: &str) -> bool;

const ANY: Check = |_, secret| !is_reference(secret);

struct Shape {
    /// In lower case. A pattern is compiled when a text contains it: most runs need few of them.
    needle: &'static str,
    /// The secret is the group `secret`, or else the whole match.
    pattern: &'static str,
    is_secret: Check,
    compiled: OnceLock<Regex>,
}

const fn shape(needle: &'static str, pattern: &'static str, is_secret: Check) -> Shape {
    Shape { needle, pattern, is_secret, compiled: OnceLock::new() }
}

/// `Authorization: …`, `X-Api-Key: …`, up to the end of the line or the quote.
macro_rules! header {
    ($name:literal) => {
        concat!("(?ix) (?:^|[^/a-z0-9-])", $name, r#"\s*(?<secret>[^\s"'] [^"'\r\n]*)"#)
    };
}

static SHAPES: [Shape; 30] = [
    shape("private key", r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:-----END .*?-----|\z)", ANY),
    // `postgres://user:password@host`
    shape(
        "://",
        r#"://[^/?#"'\s:]*:(?<secret>[^/?#"'\s]+)@(?<name>[^/?#"'\s@:]*)"#,
        is_url_password,
    ),
    // `https://token@host`
    shape("http", r#"https?://(?<secret>[^/?#"'\s:]+):*@"#, ANY),
    // `user:password@tcp(host:3306)/name`, as Go's drivers take it.
    shape("@", r#":(?<secret>[^\s"'=]+)@(?:tcp|unix)\("#, ANY),
    shape("authorization:", header!("(?:proxy-)?authorization:"), is_header_value),
    shape("cookie:", header!("(?:set-)?cookie:"), is_header_value),
    shape("private-token:", header!("private-token:"), is_header_value),
    shape("apikey:", header!("apikey:"), is_header_value),
    shape(
        "x-",
        header!(
            r"x-[a-z0-9-]*(?:token|secret|passw(?:or)?d|credential|cookie|jwt|key|auth)s?
            (?:-[a-z0-9-]*)?:"
        ),
        is_header_value,
    ),
    // Lists of paths contain colons, too, but no space after them.
    shape("pass", header!(r"(?:passw(?:or)?d|passphrase)(?:-[a-z0-9-]+)?:[\ \t]"), is_header_value),
    shape(
        ": ",
        header!(
            r"(?: (?:token|secret|credentials?|apikey|key|auth|cookie)-[a-z0-9-]+
              | (?:[a-z0-9]+-)+
                (?: [a-z0-9]*(?:token|secret|passw|passphrase|credential|apikey)[a-z0-9]*
                  | key|auth|pat|cookie|jwt|bearer|oauth2?|pass|pwd? )
                (?:-[a-z0-9]+)* ):\ "
        ),
        is_header_value,
    ),
    shape(
        "bearer",
        r"(?i)(?:^|[^a-z0-9])(?:bearer\s+)+(?<secret>[a-z0-9._~+/=-]+)",
        is_bearer_token,
    ),
    shape("bearer", r"(?i)^bearer\s+(?<secret>[a-z0-9._~+/=-]+)\s*$", ANY),
    shape("basic", r"Basic (?<secret>[A-Za-z0-9+/]{6,}={0,2})(?:[^(A-Za-z0-9+/=]|$)", is_base64),
    // `Server=db;Password=…`, `?access_token=…`
    shape(
        "=",
        r#"(?ix) (?:passw(?:or)?d|accountkey|accesskey|access_token|api_?key|client_secret)
        = (?<secret>[^;&"'\s]+)"#,
        ANY,
    ),
    shape("pwd=", r#"(?i)(?<name>pwd)=(?<secret>[^;&"'\s]+)"#, |name, value| {
        (name != "PWD" || !value.starts_with('/')) && !is_reference(value)
    }),
    // Parameters of an address.
    shape("=", r#"[?&](?<name>[A-Za-z0-9_.-]+)=(?<secret>[^;&#"'\s]+)"#, |name, value| {
        (looks_secret(name) || ["sig", "signature"].contains(&name)) && !is_reference(value)
    }),
    // `"apiKey": "…"`
    shape("\"", r#"(?s)"(?<name>[^"]*)"\s*:\s*"(?<secret>(?:[^"\\]|\\.)+)"#, |name, value| {
        looks_secret(name) && !is_reference(value)
    }),
    // Prefixes of Slack, GitHub, GitLab and others, with a minimum of letters and digits.
    shape("xox", r"(?-u)\bxox[abcdeprs]-(?:[_-]*[A-Za-z0-9]){8}[\w-]*", ANY),
    shape(
        "-",
        r"(?x-u) \b (?: AGE-SECRET-KEY- | PMAK- | gldt- | glpat- | glrt- | pypi-Ag | tskey- | xapp- )
        (?:[_-]*[A-Za-z0-9]){16} [\w-]*",
        ANY,
    ),
    shape(
        "_",
        r"(?x-u) \b (?: dckr_pat_ | dop_v1_ | gh[oprsu]_ | github_pat_ | glsa_ | lin_api_ | rk_live_
          | rubygems_ | shpat_ | sk_live_ | sk_test_ | whsec_ )
        (?:[_-]*[A-Za-z0-9]){16} [\w-]*",
        ANY,
    ),
    shape("atatt", r"(?-u)\bATATT(?:[_-]*[A-Za-z0-9]){16}[\w-]*", ANY),
    shape("aiza", r"(?-u)\bAIza(?:[_-]*[A-Za-z0-9]){30}[\w-]*", ANY),
    // One word, unlike `npm_config_…`.
    shape("_", r"(?-u)\b(?:(?:gsk|r8)_[A-Za-z0-9]{20,}|(?:hf|npm)_[A-Za-z0-9]{24,})\b", ANY),
    shape("xai-", r"(?-u)\bxai-[A-Za-z0-9]{20,}\b", ANY),
    shape("ia", r"(?-u)\bA[KS]IA[A-Za-z0-9]{16,}\b", ANY),
    shape("dapi", r"(?-u)\bdapi[A-Za-z0-9]{32,}\b", ANY),
    shape(".", r"(?:^|[^A-Za-z0-9_./-])(?<secret>(?:SG|ya29|hvs)\.[A-Za-z0-9_.-]{16,})", ANY),
    // A JSON web token has three parts; the last may be empty.
    shape("eyj", r"(?-u)\beyJ[\w-]{6,}\.[\w-]{2,}\.[\w-]*", ANY),
    shape("sk-", r"(?:^|[^A-Za-z0-9_/-])(?<secret>sk-[A-Za-z0-9_-]{16,})", is_model_key),
];

pub(super) fn redact(text: &str) -> Cow<'_, str> {
    let found = find_secrets(text);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for secret in found {
        shown.push_str(&text[from..secret.start]);
        shown.push_str(REDACTED);
        from = secret.end;
    }
    shown.push_str(&text[from..]);
    Cow::Owned(shown)
}

/// Positions of secrets, in order, without overlap.
pub(super) fn find_secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let lower = text.to_ascii_lowercase();
    for shape in SHAPES.iter().filter(|shape| lower.contains(shape.needle)) {
        let compile = || Regex::new(shape.pattern).expect("a test compiles the patterns");
        for groups in shape.compiled.get_or_init(compile).captures_iter(text) {
            let secret = groups.name("secret").unwrap_or(groups.get_match());
            let name = groups.name("name").map_or("", |name| name.as_str());
            if (shape.is_secret)(name, secret.as_str()) {
                found.push(secret.range());
            }
        }
    }
    found.sort_by_key(|secret| secret.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for secret in found {
        match merged.last_mut() {
            Some(last) if secret.start <= last.end => last.end = last.end.max(secret.end),
            _ => merged.push(secret),
        }
    }
    merged
}

/// The well-known example password is not a secret.
fn is_url_password(host: &str, password: &str) -> bool {
    let is_example = password == "postgres" && ["localhost", "127.0.0.1"].contains(&host);
    !is_example && !is_reference(password)
}

/// `Bearer $TOKEN` shows no secret.
fn is_header_value(_: &str, value: &str) -> bool {
    value.rsplit(' ').next().is_some_and(|credentials| !is_reference(credentials))
}

fn is_bearer_token(_: &str, token: &str) -> bool {
    token.len() >= 20 || token.len() >= 6 && token.bytes().any(|byte| byte.is_ascii_digit())
}

/// Tells credentials from a word.
fn is_base64(_: &str, value: &str) -> bool {
    value.ends_with('=')
        || value.bytes().any(|byte| byte.is_ascii_digit())
            && value.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Keys of OpenAI, Anthropic and others, but not names of several words: `sk-learn-environment`.
fn is_model_key(_: &str, key: &str) -> bool {
    let longest = key.split('-').map(str::len).max().unwrap_or(0);
    longest >= 20 || longest >= 10 && key.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns whether a value only names its source: `$TOKEN`, `$(pass show x)`, `<token>`, `(redacted)`.
fn is_reference(value: &str) -> bool {
    let after = value.strip_prefix('$');
    after.is_some_and(|it| {
        it.starts_with(|c: char| c == '{' || c == '(' || c == '_' || c.is_ascii_uppercase())
    }) || value.starts_with('<') && value.ends_with('>')
        || value.starts_with(REDACTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_patterns_compile() {
        for shape in &SHAPES {
            assert_eq!(shape.needle, shape.needle.to_ascii_lowercase());
            Regex::new(shape.pattern).unwrap();
        }
    }
}
