//! The commands and files that a project lets through: `hooks.allow`.

/// An entry of `hooks.allow` that cannot be used, and why. It lets nothing through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadEntry {
    pub entry: String,
    pub reason: &'static str,
}

/// The parsed entries of `hooks.allow`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {}

impl AllowList {
    /// Reads the entries. Those that cannot be used let nothing through and are handed back.
    pub fn parse<'a>(_entries: impl IntoIterator<Item = &'a str>) -> (AllowList, Vec<BadEntry>) {
        (AllowList::default(), Vec::new())
    }
}
