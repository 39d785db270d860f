//! The real agents for tests: versions and configuration, from `agents.json` (`testing/README.md`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

const TABLE: &str = include_str!("agents.json");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    #[serde(skip)]
    pub(crate) name: String,
    #[expect(dead_code, reason = "used by the script that installs agents")]
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

    pub(crate) fn program(&self) -> PathBuf {
        let place = format!("{}-{}/node_modules/.bin", self.name, self.version);
        cache().join(place).join(&self.name)
    }

    /// Writes its files into a home and returns its environment.
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

pub(crate) fn cache() -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join(std::env::var_os("RALPH_AGENT_CACHE").unwrap_or_else(|| "target/agents".into()))
}

fn fill(text: &str, home: &Path, server: &str) -> String {
    text.replace("{server}", server).replace("{home}", &home.to_string_lossy())
}
