//! The input of a hook.

use std::borrow::Cow;
use std::io::{self, Read};

use ralph_agents::json::{RawJson, RawText};

const MAX_BYTES: u64 = 128 << 20;

/// Unknown fields are ignored: new versions of Claude Code add some.
#[derive(Debug, Default)]
pub(super) struct HookInput<'a> {
    pub(super) session_id: Cow<'a, str>,
    pub(super) transcript_path: Option<Cow<'a, str>>,
    pub(super) cwd: Option<Cow<'a, str>>,
    /// Set for subagents.
    pub(super) agent_id: Option<Cow<'a, str>>,
    pub(super) tool_name: Option<Cow<'a, str>>,
    /// Unparsed: it may contain a whole file.
    pub(super) tool_input: Option<RawJson<'a>>,
    /// A stop hook has already blocked it once.
    pub(super) stop_hook_active: bool,
}

pub(super) fn read(stdin: impl Read) -> io::Result<Vec<u8>> {
    // Fits most inputs. From 128 KB on, the C library maps fresh memory for each allocation.
    let mut bytes = Vec::with_capacity(120 << 10);
    stdin.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
    }
    Ok(bytes)
}

impl<'a> HookInput<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let mut input = HookInput::default();
        let mut invalid = None;
        let document = RawJson::from_document(bytes);
        let members = document.for_each_member(|key, value| {
            let key = RawText::from_quoted(key).text();
            if input.read_field(&key, value).is_none() {
                invalid.get_or_insert(key);
            }
        });
        members.ok_or("it is not a JSON object")?;
        match invalid {
            Some(field) => Err(format!("its {field:?} has the wrong type")),
            None => Ok(input),
        }
    }

    /// `None` for the wrong type, or a repeated field, which is ambiguous.
    fn read_field(&mut self, field: &str, value: RawJson<'a>) -> Option<()> {
        match field {
            "session_id" => self.session_id = value.as_text()?.text(),
            "stop_hook_active" => self.stop_hook_active = value.as_bool()?,
            _ if value.is_null() => {}
            "transcript_path" => set_once(&mut self.transcript_path, value.as_text()?.text())?,
            "cwd" => set_once(&mut self.cwd, value.as_text()?.text())?,
            "agent_id" => set_once(&mut self.agent_id, value.as_text()?.text())?,
            "tool_name" => set_once(&mut self.tool_name, value.as_text()?.text())?,
            "tool_input" => set_once(&mut self.tool_input, value)?,
            _ => {}
        }
        Some(())
    }
}

fn set_once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    let is_first = field.is_none();
    *field = Some(value);
    is_first.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_input_is_parsed() {
        let input =
            br#" {"session_id":"s","transcript_path":null,"cwd":"/a b","tool\u005fname":"Bash",
            "tool_input":{"command":"echo \"hi\""},"new":[{"cwd":"no"}],"stop_hook_active":true}
        "#;
        let input = HookInput::parse(input).unwrap();
        assert_eq!(input.session_id, "s");
        assert_eq!(input.transcript_path, None);
        assert_eq!(input.cwd.as_deref(), Some("/a b"));
        assert_eq!(input.tool_name.as_deref(), Some("Bash"));
        assert_eq!(input.tool_input.unwrap().bytes(), br#"{"command":"echo \"hi\""}"#);
        assert!(input.stop_hook_active);
    }

    #[test]
    fn invalid_hook_input_is_reported() {
        for (bytes, expected) in [
            ("", "it is not a JSON object"),
            ("[]", "it is not a JSON object"),
            ("[\"s\"]", "it is not a JSON object"),
            ("{\"tool_name\":\"Bash\"", "it is not a JSON object"),
            ("{\"tool_name\":\"Bash\"} {}", "it is not a JSON object"),
            ("{\"tool_name\":7}", "its \"tool_name\" has the wrong type"),
            ("{\"session_id\":null}", "its \"session_id\" has the wrong type"),
            ("{\"stop_hook_active\":1}", "its \"stop_hook_active\" has the wrong type"),
            ("{\"cwd\":\"/a\",\"cwd\":\"/b\"}", "its \"cwd\" has the wrong type"),
            ("{\"tool_input\":{},\"tool_input\":{}}", "its \"tool_input\" has the wrong type"),
        ] {
            assert_eq!(
                HookInput::parse(bytes.as_bytes()).err().as_deref(),
                Some(expected),
                "{bytes}"
            );
        }
    }
}
