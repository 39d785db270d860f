//! What Claude Code tells a hook on its standard input.

use std::borrow::Cow;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;

/// More than any tool call; what is larger is not looked at.
const LARGEST: u64 = 128 << 20;

/// One question. Unknown fields are passed over, since each version of Claude Code has new ones. Those
/// that are missing are empty, and whoever needs one has to look.
#[derive(Debug, Deserialize)]
#[serde(default, bound = "T: Deserialize<'de>")]
pub(super) struct Input<'a, T> {
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
    /// Passed over unless somebody asks for it: it may hold a whole file.
    pub(super) tool_input: Option<T>,
    /// A stop hook has kept it from stopping already, and it goes on because of that.
    pub(super) stop_hook_active: bool,
}

/// A question without what the tool is to do.
pub(super) type Outline<'a> = Input<'a, IgnoredAny>;

impl<T> Default for Input<'_, T> {
    fn default() -> Self {
        Input {
            session_id: Cow::default(),
            transcript_path: None,
            cwd: None,
            agent_id: None,
            tool_name: None,
            tool_input: None,
            stop_hook_active: false,
        }
    }
}

/// Reads all of standard input.
pub(super) fn read(stdin: impl Read) -> io::Result<Vec<u8>> {
    // Most questions fit, and what is not used costs nothing.
    let mut bytes = Vec::with_capacity(128 << 10);
    stdin.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
    }
    Ok(bytes)
}

impl<'a, T: Deserialize<'a>> Input<'a, T> {
    /// # Errors
    /// It is no JSON object, or a field in it is not what it has to be.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(serde::de::Error::custom("it is no JSON object"));
        }
        serde_json::from_slice(bytes)
    }
}
