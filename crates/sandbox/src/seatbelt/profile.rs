//! Renders a plan as a profile for `sandbox-exec`.
//!
//! Of several rules that match, the last one holds. So the rules follow the mounts of the plan,
//! in which later ones cover earlier ones, too. Paths are parameters: pasted into the text, a quote
//! or a parenthesis would become a rule.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::plan::{ExpectedEntry, Mount, NetworkMode, SandboxPlan};

/// The same for every plan. Which names programs need was learned from the profiles of codex,
/// gemini and Anthropic's sandbox-runtime.
const BASE: &str = include_str!("base.sbpl");

/// Name services and network configuration, for an open network.
const OPEN_NETWORK: &str = r#"(allow system-socket)
(allow network-outbound file-read-metadata (literal "/private/var/run/mDNSResponder"))
(allow mach-lookup
  (global-name "com.apple.networkd")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration"))
"#;

const READ: &str = "file-read* process-exec";
const WRITE: &str = "file-write*";
const READ_WRITE: &str = "file-read* file-write* process-exec";
/// Also part of every renaming.
const UNLINK: &str = "file-write-unlink";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltProfile {
    pub text: String,
    /// The values of `P0`, `P1`, …
    pub params: Vec<PathBuf>,
}

impl SeatbeltProfile {
    /// The arguments of `sandbox-exec` before the command.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["-p".into(), self.text.clone().into()];
        for (nth, path) in self.params.iter().enumerate() {
            let mut definition = OsString::from(format!("P{nth}="));
            definition.push(path);
            args.extend(["-D".into(), definition]);
        }
        args
    }

    fn param(&mut self, path: &Path) -> usize {
        let path = without_system_links(path);
        self.params.iter().position(|known| *known == path).unwrap_or_else(|| {
            self.params.push(path);
            self.params.len() - 1
        })
    }

    fn rule(&mut self, action: &str, operations: &str, filter: &str, path: &Path) {
        let nth = self.param(path);
        self.text.push_str(&format!("({action} {operations} ({filter} (param \"P{nth}\")))\n"));
    }

    fn deny_link(&mut self, path: &Path) {
        let nth = self.param(path);
        self.text.push_str(&format!(
            "(deny file-write-create (require-all (literal (param \"P{nth}\")) (vnode-type SYMLINK)))\n"
        ));
    }

    fn section(&mut self, title: &str) {
        self.text.push_str(&format!("\n; {title}\n"));
    }
}

/// `/etc`, `/tmp` and `/var` are links on every Mac, and Seatbelt compares paths without links.
fn without_system_links(path: &Path) -> PathBuf {
    let is_linked = ["/etc", "/tmp", "/var"].iter().any(|link| path.starts_with(link));
    match path.strip_prefix("/") {
        Ok(below) if is_linked => Path::new("/private").join(below),
        _ => path.to_owned(),
    }
}

/// `tools` is a directory in `scratch` that can be read; `proxy` is the port of our proxy.
pub fn render(
    plan: &SandboxPlan,
    scratch: &Path,
    tools: &Path,
    proxy: Option<u16>,
) -> SeatbeltProfile {
    let mut profile = SeatbeltProfile { text: BASE.to_owned(), params: Vec::new() };
    let is_scratch = |path: &Path| path.starts_with(scratch);
    let (mut hidden, mut shown) = (Vec::new(), Vec::new());
    profile.section("Hidden, shown and protected, in the order of the plan.");
    for mount in &plan.mounts {
        match mount {
            Mount::EmptyDir { at } | Mount::EmptyFile { at } => {
                profile.rule("deny", READ_WRITE, "subpath", at);
                hidden.push(without_system_links(at));
            }
            // Nothing can be shown elsewhere than it is. What replaces a place comes below.
            Mount::Writable { from, at } if is_scratch(from) && from != at => {
                profile.rule("deny", READ_WRITE, "subpath", at);
                hidden.push(without_system_links(at));
            }
            Mount::ReadOnly { from, .. } if is_scratch(from) => {}
            Mount::ReadOnly { from, .. } => {
                profile.rule("allow", READ, "subpath", from);
                profile.rule("deny", WRITE, "subpath", from);
                shown.push(from.as_path());
            }
            Mount::Writable { from, .. } => {
                profile.rule("allow", READ_WRITE, "subpath", from);
                shown.push(from.as_path());
            }
        }
    }
    profile.section("In place of the home and of temporary directories.");
    profile.rule("allow", READ, "subpath", tools);
    shown.push(tools);
    for dir in &plan.dirs {
        profile.rule("allow", READ_WRITE, "subpath", dir);
        shown.push(dir);
    }
    profile.section("The way to what is shown.");
    let above = shown.iter().flat_map(|path| path.ancestors().skip(1));
    let is_hidden = |path: &&Path| hidden.iter().any(|dir| path.starts_with(dir));
    for dir in above.filter(is_hidden).collect::<BTreeSet<&Path>>() {
        profile.rule("allow", "file-read-metadata", "literal", dir);
    }
    profile.section("Renaming one of these would take what is protected in it along.");
    for mount in &plan.mounts {
        if let Mount::Writable { from, at } = mount
            && from == at
        {
            profile.rule("deny", UNLINK, "literal", at);
        }
    }
    profile.section("Not there, and not to be made.");
    for guard in &plan.guards {
        match guard.was {
            ExpectedEntry::Nothing => profile.rule("deny", WRITE, "subpath", &guard.path),
            ExpectedEntry::Link(_) => profile.rule("deny", WRITE, "literal", &guard.path),
            // It may be created with `mkdir`. A link would lead around the rules for its content.
            ExpectedEntry::Directory => profile.deny_link(&guard.path),
            ExpectedEntry::File => {}
        }
    }
    profile.text.push_str("(deny file-write-setugid)\n");
    profile.section("The network, and sockets of programs inside.");
    match &plan.network {
        NetworkMode::None => {}
        NetworkMode::Proxy { ports } => {
            let listen = "(allow network-bind network-inbound (local ip \"localhost:*\"))\n";
            profile.text.push_str(listen);
            for port in proxy.iter().chain(ports) {
                let rule = format!("(allow network-outbound (remote ip \"localhost:{port}\"))\n");
                profile.text.push_str(&rule);
            }
        }
        NetworkMode::Full => {
            profile.text.push_str("(allow network*)\n");
            // Sockets of Docker, of SSH agents and the like.
            for dir in &hidden {
                profile.rule("deny", "network*", "subpath", dir);
            }
            profile.text.push_str(OPEN_NETWORK);
        }
    }
    for dir in &plan.dirs {
        profile.rule("allow", "network*", "subpath", dir);
    }
    profile
}

#[cfg(test)]
mod tests;
