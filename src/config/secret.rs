//! What must not be shown.

use serde_json::Value;

/// What stands in the place of a secret.
pub const REDACTED: &str = "(redacted)";

/// Whether a name is one that people give to secrets: `GITHUB_TOKEN`, `apiKey`, `DB_PASSWORD`.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if name == "pwd" {
        // Where a shell is.
        return false;
    }
    let anywhere =
        ["token", "secret", "passw", "passphrase", "credential", "apikey", "api_key", "api-key"];
    anywhere.iter().any(|word| name.contains(word))
        || name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| ["key", "auth", "pwd", "pat", "cookie"].contains(&word))
}

/// Whether a value has a password in it, whatever it is called: `postgres://user:password@host`,
/// `https://token@host`, `host=…;Password=…`.
pub fn holds_password(value: &str) -> bool {
    let given = ["password=", "passwd=", "pwd="];
    let lower = value.to_ascii_lowercase();
    let is_given = |word: &&str| {
        let after = lower.split_once(*word).map(|(_, after)| after);
        after.is_some_and(|after| !after.is_empty() && !after.starts_with([';', '&', ' ']))
    };
    let mut rest = value;
    while let Some((scheme, after)) = rest.split_once("://") {
        let end = after.find(|c: char| "/?#\"'".contains(c) || c.is_whitespace());
        let authority = &after[..end.unwrap_or(after.len())];
        if let Some((user, _)) = authority.rsplit_once('@') {
            let password = user.split_once(':').map(|(_, password)| password);
            // Where nobody logs in by name, a name alone is a token.
            let by_web = ["http", "https"].iter().any(|web| scheme.ends_with(web));
            if password.is_some_and(|it| !it.is_empty()) || (by_web && !user.is_empty()) {
                return true;
            }
        }
        rest = after;
    }
    given.iter().any(is_given)
}

/// Whether a name is one of addresses that are secrets themselves: whoever knows them may post there.
pub fn names_a_secret_address(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["WEBHOOK_URL", "WEBHOOK", "DSN"].iter().any(|end| {
        name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    })
}

/// Replaces the secrets in a document of settings, for a person to look at.
pub fn redact(document: &mut Value) {
    let env = document.pointer_mut("/agent/env");
    for (name, value) in env.and_then(Value::as_object_mut).into_iter().flatten() {
        if looks_secret(name) || value.as_str().is_some_and(holds_password) {
            *value = REDACTED.into();
        }
    }
    let command = document.pointer("/agent/command").and_then(Value::as_str);
    let mut line = vec![command.unwrap_or_default().to_owned()];
    let flags = document.pointer_mut("/agent/flags").and_then(Value::as_array_mut);
    let Some(flags) = flags else { return };
    line.extend(flags.iter().map(|flag| flag.as_str().unwrap_or_default().to_owned()));
    redact_args(&mut line);
    for (flag, shown) in flags.iter_mut().zip(line.drain(1..)) {
        if flag.is_string() {
            *flag = shown.into();
        }
    }
}

/// Replaces the secrets in a command line: `--api-key X`, `--token=X`, `env API_KEY=X …`. An element
/// may also hold a flag with its value, as in the settings. Of one-letter flags only those are known
/// that an agent takes a secret by.
pub fn redact_args(line: &mut [String]) {
    let program = line.first().and_then(|program| program.rsplit('/').next());
    let short: &[&str] = if program == Some("cline") { &["-k"] } else { &[] };
    // A number of tokens is none.
    let is_secret = |name: &str| {
        short.contains(&name)
            || looks_secret(name) && !name.to_ascii_lowercase().ends_with("tokens")
    };
    let mut is_value = false;
    for arg in line {
        let is_flag = arg.starts_with("--") || arg.starts_with('-') && arg.len() <= 2;
        if std::mem::take(&mut is_value) && !is_flag {
            REDACTED.clone_into(arg);
            continue;
        }
        let end = arg.find(|c: char| c == '=' || c.is_whitespace());
        let name = &arg[..end.unwrap_or(arg.len())];
        if !is_secret(name) {
            continue;
        }
        match end {
            Some(end) if arg[end..].starts_with('=') || arg.starts_with('-') => {
                arg.replace_range(end + 1.., REDACTED);
            }
            Some(_) => {}
            None => is_value = is_flag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_a_command_line() {
        for (line, expected) in [
            ("cline -k abc --json", "cline -k (redacted) --json"),
            ("/opt/bin/cline -k=abc", "/opt/bin/cline -k=(redacted)"),
            ("claude -k abc", "claude -k abc"),
            ("x --api-key abc y", "x --api-key (redacted) y"),
            ("x --api-key=abc y", "x --api-key=(redacted) y"),
            ("x --token -abc -p", "x --token (redacted) -p"),
            ("x --no-auth --model opus", "x --no-auth --model opus"),
            ("x --auth -p opus", "x --auth -p opus"),
            ("x --max-tokens 100 --max-tokens=100", "x --max-tokens 100 --max-tokens=100"),
            ("env OPENAI_API_KEY=abc codex", "env OPENAI_API_KEY=(redacted) codex"),
            ("codex -c providers.x.api_key=abc", "codex -c providers.x.api_key=(redacted)"),
            ("x tell me the token please", "x tell me the token please"),
            ("x --api-key", "x --api-key"),
            ("", ""),
        ] {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            redact_args(&mut words);
            assert_eq!(words.join(" "), expected);
        }
        let mut elements =
            ["x", "--api-key abc def", "--token\tä", "token of thanks"].map(str::to_owned);
        redact_args(&mut elements);
        let expected = ["x", "--api-key (redacted)", "--token\t(redacted)", "token of thanks"];
        assert_eq!(elements, expected);
        let mut document = serde_json::json!({"agent": {
            "command": "cline", "flags": ["-k", "abc", "--api-key abc", 7, "--json"],
            "env": {"A_TOKEN": "abc"},
        }});
        redact(&mut document);
        assert!(!document.to_string().contains("abc"), "{document}");
        assert_eq!(document["agent"]["flags"][4], "--json");
    }

    #[test]
    fn passwords_in_values() {
        for value in [
            "postgres://user:password@db.example.com:5432/shop",
            "mongodb+srv://u:p@a.example.com,b.example.com/x?y=z",
            "redis://:password@cache:6379",
            "https://__token__:pypi-abc@pypi.example.com/simple",
            "https://abc123@git.example.com/x.git",
            "https://packages.example.com/simple https://u:p@internal.example.com/simple",
            "jdbc:postgresql://db/shop?user=u&password=p",
            "Server=db;User Id=u;Password=p;",
        ] {
            assert!(holds_password(value), "{value}");
        }
        for value in [
            "",
            "postgres://localhost/shop",
            "postgres://user@localhost/shop",
            "postgres://user:@localhost/shop",
            "ssh://git@example.com/x.git",
            "git@example.com:x/y.git",
            "https://example.com/a:b@c",
            "https://example.com/?mail=a:b@c",
            "/usr/bin:/bin",
            "Server=db;Password=;Trusted=yes",
            "user:password",
        ] {
            assert!(!holds_password(value), "{value}");
        }
        for (name, expected) in [
            ("SLACK_WEBHOOK_URL", true),
            ("SENTRY_DSN", true),
            ("DSN", true),
            ("WEBHOOK_PORT", false),
            ("SHOP_URL", false),
            ("EDSN", false),
        ] {
            assert_eq!(names_a_secret_address(name), expected, "{name}");
        }
    }

    #[test]
    fn names_of_secrets() {
        for name in [
            "GITHUB_TOKEN",
            "ANTHROPIC_API_KEY",
            "OPENAI_APIKEY",
            "DB_PASSWORD",
            "AWS_SECRET_ACCESS_KEY",
            "npm_config__auth",
            "GH_PAT",
            "PGPASSWORD",
            "DB_PWD",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["PATH", "RUST_LOG", "MONKEY", "KEYBOARD", "PATTERN", "PWD", "CI", ""] {
            assert!(!looks_secret(name), "{name}");
        }
    }
}
