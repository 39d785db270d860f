//! The secrets in the two links.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ralph_events::error::Error;
use ralph_store::{private_files, safe_fs, save};
use serde::{Deserialize, Serialize};

/// The rights of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Full,
    ReadOnly,
}

/// One secret for each kind of access, kept so that a browser survives a restart of the server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tokens {
    pub full: String,
    pub read_only: String,
}

const FILE: &str = "web-tokens.json";
const MAX_FILE_BYTES: u64 = 4096;
/// Each has six random bits, 258 in all.
const TOKEN_CHARS: usize = 43;

impl Tokens {
    /// Reads the tokens from ralph's directory, or creates them. `renew` replaces old ones.
    pub(crate) fn load_or_create(home: &Path, renew: bool) -> Result<Tokens, Error> {
        let path = home.join(FILE);
        let failed = |err: std::io::Error| {
            Error::failed(format!("cannot save the access tokens: {}: {err}", path.display()))
                .hint("check that RALPH_HOME is a writable directory")
        };
        if !renew && let Some(tokens) = Tokens::load(&path) {
            return Ok(tokens);
        }
        let random = || {
            random_token().map_err(|err| Error::failed(format!("cannot get random bytes: {err}")))
        };
        let tokens = Tokens { full: random()?, read_only: random()? };
        private_files::create_dir_all(home).map_err(failed)?;
        let text = serde_json::to_string(&tokens).map_err(|err| failed(err.into()))?;
        save::save_privately(&path, text.as_bytes()).map_err(failed)?;
        Ok(tokens)
    }

    fn load(path: &Path) -> Option<Tokens> {
        let bytes = safe_fs::read_own(path, MAX_FILE_BYTES).ok()?;
        private_files::restrict_access(path);
        let tokens: Tokens = serde_json::from_slice(&bytes).ok()?;
        let is_token = |token: &str| token.len() == TOKEN_CHARS;
        (is_token(&tokens.full) && is_token(&tokens.read_only)).then_some(tokens)
    }

    /// Compares with both tokens in a time that does not depend on how much of them matches.
    pub(crate) fn access_of(&self, token: &str) -> Option<Access> {
        let full = is_equal(token.as_bytes(), self.full.as_bytes());
        let read_only = is_equal(token.as_bytes(), self.read_only.as_bytes());
        match (full, read_only) {
            (true, _) => Some(Access::Full),
            (_, true) => Some(Access::ReadOnly),
            _ => None,
        }
    }
}

/// Never shows the secrets.
impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

/// Takes the same time for every pair of equally long inputs. The length is no secret.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    // Keeps the compiler from leaving the loop early.
    std::hint::black_box(difference) == 0
}

/// Four of the 256 bytes stand for each character, so that all are equally likely.
fn random_token() -> std::io::Result<String> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0; TOKEN_CHARS];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte & 63)])).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn tokens_are_private_and_survive_restart_until_renewed() {
        let home = tempfile::tempdir().unwrap();
        let first = Tokens::load_or_create(home.path(), false).unwrap();
        assert_eq!(first.full.len(), TOKEN_CHARS);
        assert_ne!(first.full, first.read_only);
        let path = home.path().join(FILE);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Tokens::load_or_create(home.path(), false).unwrap(), first);
        let renewed = Tokens::load_or_create(home.path(), true).unwrap();
        assert_ne!(renewed.full, first.full);
        assert_eq!(renewed.access_of(&first.full), None);
    }

    #[test]
    fn broken_token_file_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        for broken in ["", "{}", r#"{"full": "", "read_only": ""}"#] {
            std::fs::write(home.path().join(FILE), broken).unwrap();
            let tokens = Tokens::load_or_create(home.path(), false).unwrap();
            assert_eq!(tokens.full.len(), TOKEN_CHARS, "{broken}");
            assert_eq!(tokens.access_of(""), None);
        }
    }

    #[test]
    fn token_decides_access() {
        let tokens = Tokens { full: "f".repeat(43), read_only: "r".repeat(43) };
        assert_eq!(tokens.access_of(&"f".repeat(43)), Some(Access::Full));
        assert_eq!(tokens.access_of(&"r".repeat(43)), Some(Access::ReadOnly));
        for wrong in ["", "f", &"f".repeat(42), &"f".repeat(44), &("f".repeat(42) + "g")] {
            assert_eq!(tokens.access_of(wrong), None, "{wrong}");
        }
    }
}
