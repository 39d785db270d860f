//! The families of what is blocked, and the two tiers.

use std::fmt;

use serde::Deserialize;

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $title:literal;)+) => {
        /// A group of commands that do the same sort of harm.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        pub enum Family {
            $($(#[$doc])* #[serde(rename = $slug)] $name,)+
        }

        impl Family {
            pub const ALL: &'static [Family] = &[$(Family::$name,)+];

            /// The short name, as in messages, tests and documentation.
            pub fn slug(self) -> &'static str {
                match self { $(Family::$name => $slug,)+ }
            }

            /// The name in words.
            pub fn title(self) -> &'static str {
                match self { $(Family::$name => $title,)+ }
            }
        }
    };
}

families! {
    /// Deleting, emptying and overwriting what was not asked for.
    Files = "files", "destructive file operations";
    /// Formatting, partitioning, raw writes, boot loaders.
    Disks = "disks", "disks and boot";
    /// Fork bombs, endless output, filling memory or disk.
    Resources = "resources", "resource exhaustion";
    /// Sending local data to elsewhere.
    Exfiltration = "exfiltration", "exfiltration";
    /// Reverse shells, tunnels, listeners.
    Remote = "remote", "reverse shells and remote access";
    /// Reading keys, tokens, passwords.
    Secrets = "secrets", "secrets";
    /// Becoming root, and making that possible.
    Privilege = "privilege", "privilege";
    /// Ways out of a container.
    Containers = "containers", "container escape";
    /// Publishing packages, and running what was just downloaded.
    Publishing = "publishing", "publishing and supply chain";
    /// Losing commits or uncommitted work, rewriting what others have.
    Git = "git", "destructive git";
    /// Changing the machine: users, services, network, packages.
    System = "system", "system configuration";
    /// Hiding what runs. Also what cannot be read at all.
    Obfuscation = "obfuscation", "obfuscation";
    /// Changing what other programs load and run.
    Environment = "environment", "environment hijack";
    /// Ending strangers' processes, kernel modules and settings.
    Processes = "processes", "processes and kernel";
    /// Running again later: cron, services, start-up files, git hooks.
    Persistence = "persistence", "persistence";
    /// Dropping and emptying databases.
    Databases = "databases", "databases";
    /// Destroying what runs in a cloud.
    Cloud = "cloud", "cloud and infrastructure";
    /// Paths that no tool may write, or read.
    Paths = "paths", "protected paths";
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// How much a rule minds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// It may go on, and is told that this was noticed.
    Warn,
    /// It must not run.
    Deny,
}
