//! The real agents that tests run: which version of each, and how it is made to talk to the model
//! service. `agents.json` is the table; an agent is added there.
//!
//! Other tests work in `/tmp` at the same time, so that no agent may leave anything there. codex would protect a
//! `.git` in every place that its sandbox may write to, by making one for as long as a tool runs: with `/tmp/.git`,
//! whatever is below is no longer outside of a repository.
//!
//! | key | |
//! |---|---|
//! | `package`, `version` | what `scripts/install-agents` installs from npm |
//! | `args` | what makes it run without a person, for recordings (ralph has its own idea of that) |
//! | `flags` | what people who use it with ralph and this service would have to add |
//! | `env` | the only variables that it gets, besides `PATH` and `HOME` |
//! | `files` | files in its home, as lists of lines |
//!
//! `{server}` stands for the address of the model service, `{home}` for the agent's home.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

const TABLE: &str = include_str!("agents.json");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    #[serde(skip)]
    pub(crate) name: String,
    #[expect(dead_code, reason = "it is for the script that installs agents")]
    package: String,
    version: String,
    #[allow(dead_code, reason = "programs that do not record include this module too")]
    pub(crate) args: Vec<String>,
    #[allow(dead_code, reason = "programs that do not start ralph include this module too")]
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    files: BTreeMap<String, Vec<String>>,
}

impl Agent {
    pub(crate) fn named(name: &str) -> Option<Agent> {
        let table = serde_json::from_str::<BTreeMap<String, Agent>>(TABLE);
        let mut table = table.unwrap_or_else(|error| panic!("testing/agents.json: {error}"));
        Some(Agent { name: name.to_owned(), ..table.remove(name)? })
    }

    /// Where its program is, if it is installed.
    pub(crate) fn program(&self) -> PathBuf {
        let place = format!("{}-{}/node_modules/.bin", self.name, self.version);
        cache().join(place).join(&self.name)
    }

    /// Writes its files into a home, and gives its environment.
    pub(crate) fn set_up(
        &self,
        home: &Path,
        server: &str,
    ) -> std::io::Result<BTreeMap<String, String>> {
        for (name, lines) in &self.files {
            let path = home.join(name);
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            std::fs::write(path, fill(&lines.join("\n"), home, server) + "\n")?;
        }
        let env = self.env.iter();
        Ok(env.map(|(name, value)| (name.clone(), fill(value, home, server))).collect())
    }
}

/// Where `scripts/install-agents` puts agents.
pub(crate) fn cache() -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join(std::env::var_os("RALPH_AGENT_CACHE").unwrap_or_else(|| "target/agents".into()))
}

fn fill(text: &str, home: &Path, server: &str) -> String {
    text.replace("{server}", server).replace("{home}", &home.to_string_lossy())
}
