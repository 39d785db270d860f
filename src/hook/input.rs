//! What Claude Code tells a hook on its standard input.

use std::borrow::Cow;
use std::io::{self, Read};

use serde::Deserialize;
use serde_json::value::RawValue;

/// More than any tool call; what is larger is not looked at.
const LARGEST: u64 = 128 << 20;

/// One question. Unknown fields are passed over, since each version of Claude Code has new ones. Those
/// that are missing are empty, and whoever needs one has to look.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Input<'a> {
    #[serde(borrow)]
    pub(super) session_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) transcript_path: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) cwd: Option<Cow<'a, str>>,
    /// Set for what a subagent does.
    #[serde(borrow)]
    pub(super) agent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) tool_name: Option<Cow<'a, str>>,
    /// Not looked into unless somebody asks: it may hold a whole file.
    #[serde(borrow)]
    pub(super) tool_input: Option<&'a RawValue>,
    /// A stop hook has kept it from stopping already, and it goes on because of that.
    pub(super) stop_hook_active: bool,
}

/// Reads all of standard input.
pub(super) fn read(stdin: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stdin.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
    }
    Ok(bytes)
}

impl<'a> Input<'a> {
    /// # Errors
    /// It is no JSON object, or a field in it is not what it has to be.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Input<'a>, serde_json::Error> {
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(serde::de::Error::custom("it is no JSON object"));
        }
        serde_json::from_slice(bytes)
    }
}
