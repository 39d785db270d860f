//! Secrets with a known shape.

use std::borrow::Cow;
use std::ops::Range;

use super::{REDACTED, looks_secret};

/// Token prefixes, by the minimum length of the rest.
const TOKEN_PREFIXES: &[(usize, &[&str])] = &[
    (8, &["xapp-", "xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxp-", "xoxr-", "xoxs-"]),
    (16, &["AKIA", "ASIA", "ATATT", "PMAK-", "dckr_pat_", "dop_v1_", "gho_", "ghp_", "ghr_"]),
    (16, &["ghs_", "ghu_", "github_pat_", "gldt-", "glpat-", "glrt-", "glsa_", "lin_api_"]),
    (16, &["pypi-Ag", "rk_live_", "rubygems_", "shpat_", "sk_live_", "sk_test_", "tskey-"]),
    (16, &["AGE-SECRET-KEY-", "whsec_"]),
    (20, &["gsk_", "r8_", "xai-"]),
    (24, &["hf_", "npm_"]),
    (30, &["AIza"]),
    (32, &["dapi"]),
];

/// Keys of secrets in connection strings and queries.
const SECRET_KEYS: &[&str] = &[
    "password=",
    "passwd=",
    "pwd=",
    "accountkey=",
    "accesskey=",
    "access_token=",
    "apikey=",
    "api_key=",
    "client_secret=",
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
    private_keys(text, &mut found);
    passwords_in_urls(text, &mut found);
    header_secrets(text, &mut found);
    bearer_tokens(text, &mut found);
    assigned_secrets(text, &mut found);
    query_secrets(text, &mut found);
    json_secrets(text, &mut found);
    dotted_tokens(text, &mut found);
    basic_credentials(text, &mut found);
    go_dsn_passwords(text, &mut found);
    tokens(text, &mut found);
    found.retain(|secret| text[secret.clone()] != *REDACTED);
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

/// `-----BEGIN … PRIVATE KEY-----` up to its end.
fn private_keys(text: &str, found: &mut Vec<Range<usize>>) {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    let mut from = 0;
    while let Some(at) = text[from..].find(BEGIN).map(|at| from + at) {
        from = at + BEGIN.len();
        let Some(length) = text[from..].find("-----") else { return };
        if !text[from..from + length].contains("PRIVATE KEY") {
            continue;
        }
        let end = text[from..].find(END).map(|at| from + at + END.len());
        let end = end.and_then(|end| Some(end + text[end..].find("-----")? + "-----".len()));
        found.push(at..end.unwrap_or(text.len()));
        from = end.unwrap_or(text.len());
    }
}

/// `postgres://user:password@host`, `https://token@host`.
fn passwords_in_urls(text: &str, found: &mut Vec<Range<usize>>) {
    let mut from = 0;
    while let Some(at) = text[from..].find("://").map(|at| from + at) {
        let start = at + "://".len();
        let authority = &text[start..];
        let end = authority.find(|c: char| "/?#\"'".contains(c) || c.is_whitespace());
        let authority = &authority[..end.unwrap_or(authority.len())];
        if let Some(user) = authority.rfind('@').map(|at| &authority[..at]) {
            let scheme = &text[from..at];
            // In web addresses, a user name without a password is a token.
            let by_web = ["http", "https"].iter().any(|web| scheme.ends_with(web));
            let secret = match user.find(':') {
                Some(colon) => start + colon + 1..start + user.len(),
                None if by_web => start..start + user.len(),
                None => start..start,
            };
            let secret = match by_web && secret.is_empty() {
                true => start..start + user.trim_end_matches(':').len(),
                false => secret,
            };
            let is_example = authority.starts_with("postgres:postgres@localhost")
                || authority.starts_with("postgres:postgres@127.0.0.1");
            if !is_example {
                push_secret(text, secret, found);
            }
        }
        from = start;
    }
}

/// `Authorization: …`, `X-Api-Key: …`, `Cookie: …`, up to the end of the line or the quote.
fn header_secrets(text: &str, found: &mut Vec<Range<usize>>) {
    for (colon, _) in text.match_indices(':') {
        let before = &text[..colon];
        let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let start =
            start.map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let name = before[start..].to_ascii_lowercase();
        let is_known = ["authorization", "proxy-authorization", "cookie", "set-cookie"]
            .contains(&name.as_str())
            || name.starts_with("x-") && looks_secret(&name)
            || ["private-token", "apikey"].contains(&name.as_str());
        let after = &text[colon + 1..];
        let is_spaced = after.starts_with([' ', '\t']) && !name.starts_with('-');
        // Lists of paths contain colons, too.
        let is_header = is_known
            || is_spaced && name.contains('-') && looks_secret(&name)
            || is_spaced && ["password", "passwd", "passphrase"].contains(&name.as_str());
        if !is_header || before[..start].ends_with('/') {
            continue;
        }
        let length = after.find(['"', '\'', '\r', '\n']).unwrap_or(after.len());
        let value = after[..length].trim();
        let at = colon + 1 + after.len() - after.trim_start().len();
        let credentials = value.split_once(' ').map_or(value, |(_, credentials)| credentials);
        if !value.is_empty() && !is_reference(credentials) {
            found.push(at..at + value.len());
        }
    }
}

/// `Bearer …`
fn bearer_tokens(text: &str, found: &mut Vec<Range<usize>>) {
    const WORD: &str = "bearer";
    let lower = text.to_ascii_lowercase();
    for (at, _) in lower.match_indices(WORD) {
        let after = &text[at + WORD.len()..];
        let value = after.trim_start();
        let space = after.len() - value.len();
        let is_value = |c: char| c.is_ascii_alphanumeric() || "._~+/=-".contains(c);
        let length = value.find(|c| !is_value(c)).unwrap_or(value.len());
        let value = &value[..length];
        let is_alone = at == 0 && WORD.len() + space + length == text.trim_end().len();
        let is_token = value.len() >= 6 && value.bytes().any(|byte| byte.is_ascii_digit())
            || value.len() >= 20
            || is_alone && !value.is_empty();
        let start = at + WORD.len() + space;
        if space > 0 && is_token && !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
            found.push(start..start + length);
        }
    }
}

/// `Server=db;Password=…`, `?access_token=…`
fn assigned_secrets(text: &str, found: &mut Vec<Range<usize>>) {
    let lower = text.to_ascii_lowercase();
    for name in SECRET_KEYS {
        for (at, _) in lower.match_indices(name) {
            // Shell directories: `PWD=/work`, `OLDPWD=/`.
            if *name == "pwd=" && (text[at..].starts_with("PWD=/") || text[..at].ends_with("OLD")) {
                continue;
            }
            push_value(text, at + name.len(), ";&\"'", found);
        }
    }
}

/// Query parameters of an address, unlike `token=…` elsewhere.
fn query_secrets(text: &str, found: &mut Vec<Range<usize>>) {
    for (at, _) in text.match_indices(['?', '&']) {
        let Some((name, _)) = text[at + 1..].split_once('=') else { return };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !name.chars().all(is_name)
            || !looks_secret(name) && !["sig", "signature"].contains(&name)
        {
            continue;
        }
        // The same word must start with an address.
        let word = text[..at].rfind(|c: char| c.is_whitespace()).map_or(0, |space| space + 1);
        if !text.get(word..at).is_some_and(|word| word.contains("://")) {
            continue;
        }
        push_value(text, at + 1 + name.len() + 1, ";&#\"'", found);
    }
}

/// `"apiKey": "…"`, `"GITHUB_TOKEN":"…"`: a member of a JSON object.
fn json_secrets(text: &str, found: &mut Vec<Range<usize>>) {
    for (colon, _) in text.match_indices(':') {
        let Some(name) = text[..colon].trim_end().strip_suffix('"') else { continue };
        let name = &name[name.rfind('"').map_or(0, |at| at + 1)..];
        let after = &text[colon + 1..];
        let Some(value) = after.trim_start().strip_prefix('"') else { continue };
        if looks_secret(name) {
            let start = text.len() - value.len();
            let mut escaped = false;
            let end = value.find(|c| {
                let is_end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                is_end
            });
            push_secret(text, start..start + end.unwrap_or(value.len()), found);
        }
    }
}

/// `SG.….…`, `ya29.…`, `hvs.…`: tokens with dots.
fn dotted_tokens(text: &str, found: &mut Vec<Range<usize>>) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    for prefix in ["SG.", "ya29.", "hvs."] {
        for (at, _) in text.match_indices(prefix) {
            let token = &text[at..];
            let token = &token[..token.find(|c| !is_token(c)).unwrap_or(token.len())];
            let is_start = !text[..at].ends_with(|c: char| is_token(c) || c == '/');
            if is_start && token.len() >= prefix.len() + 16 {
                found.push(at..at + token.len());
            }
        }
    }
}

/// `Basic dXNlcjpwYXNzd29yZA==`
fn basic_credentials(text: &str, found: &mut Vec<Range<usize>>) {
    const WORD: &str = "Basic ";
    for (at, _) in text.match_indices(WORD) {
        let value = &text[at + WORD.len()..];
        let is_value = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        let value = &value[..value.find(|c| !is_value(c)).unwrap_or(value.len())];
        let is_encoded = value.ends_with('=')
            || value.bytes().any(|byte| byte.is_ascii_digit())
                && value.bytes().any(|byte| byte.is_ascii_uppercase());
        if value.len() >= 8 && is_encoded {
            found.push(at + WORD.len()..at + WORD.len() + value.len());
        }
    }
}

/// `user:password@tcp(host:3306)/name`, as Go's drivers take it.
fn go_dsn_passwords(text: &str, found: &mut Vec<Range<usize>>) {
    for network in ["@tcp(", "@unix("] {
        for (at, _) in text.match_indices(network) {
            let before = &text[..at];
            let start = before.rfind(|c: char| c.is_whitespace() || "\"'=".contains(c));
            let start = start.map_or(0, |at| at + 1);
            if let Some(colon) = before.get(start..).and_then(|user| user.find(':')) {
                push_secret(text, start + colon + 1..at, found);
            }
        }
    }
}

/// The value ends at white space or one of `ends`.
fn push_value(text: &str, start: usize, ends: &str, found: &mut Vec<Range<usize>>) {
    let value = &text[start..];
    let length = value.find(|c: char| ends.contains(c) || c.is_whitespace());
    push_secret(text, start..start + length.unwrap_or(value.len()), found);
}

fn push_secret(text: &str, secret: Range<usize>, found: &mut Vec<Range<usize>>) {
    if !secret.is_empty() && !is_reference(&text[secret.clone()]) {
        found.push(secret);
    }
}

/// `ghp_…`, `sk-…`, `AKIA…`, `eyJ….….…`
fn tokens(text: &str, found: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let run = |from: usize| bytes[from..].iter().take_while(|byte| is_word(**byte)).count();
    let mut at = 0;
    while at < bytes.len() {
        let length = run(at);
        let word = &text[at..at + length];
        let in_path = at > 0 && bytes[at - 1] == b'/';
        if is_token(word) || is_model_key(word) && !in_path {
            found.push(at..at + length);
        } else if word.starts_with("eyJ") && length > 8 {
            // Three parts; the last may be empty.
            let second = at + length;
            let middle =
                bytes.get(second).filter(|byte| **byte == b'.').map_or(0, |_| run(second + 1));
            let third = second + 1 + middle;
            if middle > 1 && bytes.get(third) == Some(&b'.') {
                found.push(at..third + 1 + run(third + 1));
            }
        }
        at += length.max(1);
        while at < bytes.len() && !text.is_char_boundary(at) {
            at += 1;
        }
    }
}

fn is_token(word: &str) -> bool {
    let is_token_of = |prefix: &str, least: usize| {
        let Some(rest) = word.strip_prefix(prefix) else { return false };
        let alphanumeric = rest.bytes().filter(u8::is_ascii_alphanumeric).count();
        // npm, Amazon and others use one word, unlike `npm_config_…`.
        let is_one_word = alphanumeric == rest.len();
        let needs_one_word =
            ["npm_", "hf_", "AKIA", "ASIA", "dapi", "gsk_", "r8_", "xai-"].contains(&prefix);
        alphanumeric >= least && (is_one_word || !needs_one_word)
    };
    let mut groups = TOKEN_PREFIXES.iter();
    groups.any(|(least, prefixes)| prefixes.iter().any(|prefix| is_token_of(prefix, *least)))
}

/// Keys of OpenAI, Anthropic and others, but not names of several words: `sk-learn-environment`.
fn is_model_key(word: &str) -> bool {
    let Some(rest) = word.strip_prefix("sk-") else { return false };
    let longest = rest.split('-').map(str::len).max().unwrap_or(0);
    let has_digit = rest.bytes().any(|byte| byte.is_ascii_digit());
    longest >= 20 || rest.len() >= 16 && has_digit && longest >= 10
}

/// Returns whether a value only names its source: `$TOKEN`, `$(pass show x)`, `<token>`, `(redacted)`.
fn is_reference(value: &str) -> bool {
    let after = value.strip_prefix('$');
    after.is_some_and(|it| {
        it.starts_with(|c: char| c == '{' || c == '(' || c == '_' || c.is_ascii_uppercase())
    }) || value.starts_with('<') && value.ends_with('>')
        || value == REDACTED
}
