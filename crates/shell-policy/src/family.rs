//! Rule families and tiers.

use std::fmt;

use serde::Deserialize;

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $title:literal;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        pub enum Family {
            $($(#[$doc])* #[serde(rename = $slug)] $name,)+
        }

        impl Family {
            pub const ALL: &'static [Family] = &[$(Family::$name,)+];

            pub fn slug(self) -> &'static str {
                match self { $(Family::$name => $slug,)+ }
            }

            pub fn title(self) -> &'static str {
                match self { $(Family::$name => $title,)+ }
            }
        }
    };
}

families! {
    Files = "files", "destructive file operations";
    Disks = "disks", "disks and boot";
    Resources = "resources", "resource exhaustion";
    Exfiltration = "exfiltration", "exfiltration";
    Remote = "remote", "reverse shells and remote access";
    Secrets = "secrets", "secrets";
    Privilege = "privilege", "privilege";
    Containers = "containers", "container escape";
    Publishing = "publishing", "publishing and supply chain";
    Git = "git", "destructive git";
    System = "system", "system configuration";
    /// Includes commands that cannot be parsed.
    Obfuscation = "obfuscation", "obfuscation";
    Environment = "environment", "environment hijack";
    Processes = "processes", "processes and kernel";
    Persistence = "persistence", "persistence";
    Databases = "databases", "databases";
    Cloud = "cloud", "cloud and infrastructure";
    Paths = "paths", "protected paths";
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The command runs, and the agent gets a note.
    Warn,
    Deny,
}
