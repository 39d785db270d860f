//! What must not be shown.

use serde_json::Value;

/// What stands in the place of a secret.
pub const REDACTED: &str = "(redacted)";

/// Whether a name is one that people give to secrets: `GITHUB_TOKEN`, `apiKey`, `DB_PASSWORD`.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let anywhere =
        ["token", "secret", "passw", "passphrase", "credential", "apikey", "api_key", "api-key"];
    anywhere.iter().any(|word| name.contains(word))
        || name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| ["key", "auth", "pwd", "pat", "cookie"].contains(&word))
}

/// Replaces the secrets in a document of settings, for a person to look at.
pub fn redact(document: &mut Value) {
    let env = document.pointer_mut("/agent/env");
    for (name, value) in env.and_then(Value::as_object_mut).into_iter().flatten() {
        if looks_secret(name) {
            *value = REDACTED.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["PATH", "RUST_LOG", "MONKEY", "KEYBOARD", "PATTERN", "CI", ""] {
            assert!(!looks_secret(name), "{name}");
        }
    }
}
