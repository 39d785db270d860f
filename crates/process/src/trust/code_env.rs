//! Environment variables that make programs load code.
//!
//! `LD_LIBRARY_PATH=$PWD/lib` makes git and bubblewrap load an agent's libraries. Programs outside
//! the sandbox get such a variable only if nothing in its value is agent-writable.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::AgentWritable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodeVariableKind {
    /// Separated by colons or semicolons.
    Paths,
    /// Separated by spaces, too.
    Libraries,
    /// A word may be a module of the project.
    Options,
    /// Its program is found by the `PATH`.
    Command,
}

fn code_variable_kind(name: &OsStr) -> Option<CodeVariableKind> {
    Some(match name.to_str()? {
        name if name.starts_with("LD_") || name.starts_with("DYLD_") => CodeVariableKind::Libraries,
        "BASH_ENV" | "CLASSPATH" | "DOCKER_CONFIG" | "ENV" | "GCONV_PATH" | "GEM_HOME"
        | "GEM_PATH" | "GIO_EXTRA_MODULES" | "GIO_MODULE_DIR" | "GIT_CONFIG_GLOBAL"
        | "GIT_CONFIG_SYSTEM" | "GIT_EXEC_PATH" | "GIT_TEMPLATE_DIR" | "GNUPGHOME" | "LOCPATH"
        | "NODE_PATH" | "OPENSSL_CONF" | "OPENSSL_ENGINES" | "OPENSSL_MODULES" | "PERL5LIB"
        | "PERLLIB" | "PYTHONHOME" | "PYTHONPATH" | "PYTHONSTARTUP" | "PYTHONUSERBASE"
        | "RUBYLIB" | "SHELL" | "XDG_CONFIG_DIRS" | "XDG_CONFIG_HOME" | "XDG_DATA_DIRS"
        | "XDG_DATA_HOME" | "ZDOTDIR" => CodeVariableKind::Paths,
        "JAVA_TOOL_OPTIONS" | "JDK_JAVA_OPTIONS" | "NODE_OPTIONS" | "PERL5OPT" | "RUBYOPT"
        | "_JAVA_OPTIONS" => CodeVariableKind::Options,
        "BROWSER"
        | "EDITOR"
        | "GIT_ASKPASS"
        | "GIT_EDITOR"
        | "GIT_EXTERNAL_DIFF"
        | "GIT_PAGER"
        | "GIT_PROXY_COMMAND"
        | "GIT_SSH"
        | "GIT_SSH_COMMAND"
        | "LESSCLOSE"
        | "LESSOPEN"
        | "GIT_SEQUENCE_EDITOR"
        | "MANPAGER"
        | "PAGER"
        | "SSH_ASKPASS"
        | "VISUAL" => CodeVariableKind::Command,
        _ => return None,
    })
}

impl AgentWritable {
    /// Relative paths and empty list entries lead to the project.
    pub(super) fn trusts_variable(&self, name: &OsStr, value: &OsStr, home: Option<&Path>) -> bool {
        let Some(kind) = code_variable_kind(name) else { return true };
        let is_trusted = |path: &[u8]| self.is_trusted(Path::new(OsStr::from_bytes(path)));
        let bytes = value.as_bytes();
        match kind {
            CodeVariableKind::Paths => bytes.split(|byte| b":;".contains(byte)).all(is_trusted),
            CodeVariableKind::Libraries => {
                bytes.split(|byte| b":; \t\n".contains(byte)).all(is_trusted)
            }
            CodeVariableKind::Options | CodeVariableKind::Command => {
                value.to_str().is_some_and(|text| {
                    let mut words =
                        text.split(|c: char| c.is_whitespace() || "\"'`=:,;|&<>()".contains(c));
                    words.all(|word| self.trusts_word(word, kind, home))
                })
            }
        }
    }

    fn trusts_word(&self, word: &str, kind: CodeVariableKind, home: Option<&Path>) -> bool {
        if let Some((before, below)) = word.split_once('/') {
            let is_short_option = before.len() == 2 && before.starts_with('-');
            let path = match (before, home) {
                ("~" | "$HOME" | "${HOME}", Some(home)) => home.join(below),
                _ if before.is_empty() || is_short_option => Path::new("/").join(below),
                _ => return false,
            };
            return self.is_trusted(&path);
        }
        // `-Idir` is relative.
        let is_include = word.starts_with("-I") && word.len() > 2;
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        match kind {
            _ if is_include => false,
            _ if is_number || word.starts_with('-') => true,
            CodeVariableKind::Command => {
                !self.dirs.iter().any(|dir| dir.join(word).symlink_metadata().is_ok())
            }
            CodeVariableKind::Options | CodeVariableKind::Paths | CodeVariableKind::Libraries => {
                false
            }
        }
    }

    pub(super) fn untrusted_variables(
        &self,
        changes: &[(OsString, Option<OsString>)],
        home: Option<&Path>,
    ) -> Vec<(OsString, OsString)> {
        let is_untrusted =
            |(name, value): &(OsString, OsString)| !self.trusts_variable(name, value, home);
        changed_env(changes).filter(is_untrusted).collect()
    }
}

/// The environment of this process with `changes`. Of two to one variable, the later wins.
pub fn changed_env(
    changes: &[(OsString, Option<OsString>)],
) -> impl Iterator<Item = (OsString, OsString)> {
    let changed = |name: &OsString| changes.iter().any(|(other, _)| other == name);
    let inherited = std::env::vars_os().filter(move |(name, _)| !changed(name));
    let set = changes.iter().enumerate().filter_map(|(index, (name, value))| {
        let is_last = changes[index + 1..].iter().all(|(later, _)| later != name);
        Some((name.clone(), value.clone().filter(|_| is_last)?))
    });
    inherited.chain(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_naming_agent_writable_code_is_untrusted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("p/lib")).unwrap();
        std::fs::write(root.join("p/pager.sh"), "").unwrap();
        std::os::unix::fs::symlink(root.join("p/lib"), root.join("linked")).unwrap();
        let mut writable = AgentWritable::default();
        writable.add(&root.join("p"));
        for (name, value, expected) in [
            ("LD_LIBRARY_PATH", "/usr/lib:/opt/lib", true),
            ("LD_LIBRARY_PATH", "/usr/lib:{root}/p/lib", false),
            ("LD_LIBRARY_PATH", "/usr/lib;{root}/p/lib", false),
            ("LD_LIBRARY_PATH", "{root}/linked", false),
            ("LD_LIBRARY_PATH", "{root}/other/../p/lib", false),
            ("LD_LIBRARY_PATH", "/usr/lib:", false),
            ("LD_LIBRARY_PATH", "lib", false),
            ("LD_PRELOAD", "/usr/lib/a.so {root}/p/x.so", false),
            ("LD_PRELOAD", "/usr/lib/a.so /usr/lib/b.so", true),
            ("LD_AUDIT", "{root}/p/x.so", false),
            ("DYLD_INSERT_LIBRARIES", "{root}/p/x.dylib", false),
            ("PYTHONPATH", "/opt/my libs", true),
            ("PYTHONPATH", "src", false),
            ("BASH_ENV", "{root}/p/env", false),
            ("BASH_ENV", "/h/me/.bash_env", true),
            ("GIT_EXEC_PATH", "{root}/p/lib", false),
            ("GIT_CONFIG_GLOBAL", "/dev/null", true),
            ("NODE_OPTIONS", "--max-old-space-size=4096 --enable-source-maps", true),
            ("NODE_OPTIONS", "--require {root}/p/.pnp.cjs", false),
            ("NODE_OPTIONS", "--require=./x.cjs", false),
            ("NODE_OPTIONS", "--import tsx", false),
            ("NODE_OPTIONS", "--require \"/opt/a.cjs\"", true),
            ("PERL5OPT", "-I{root}/p/lib", false),
            ("PERL5OPT", "-I/opt/lib -w", true),
            ("PERL5OPT", "-Ilib", false),
            ("RUBYOPT", "-r./x", false),
            ("JAVA_TOOL_OPTIONS", "-javaagent:{root}/p/x.jar", false),
            ("JAVA_TOOL_OPTIONS", "-javaagent:/opt/x.jar -Xmx1g", true),
            ("GIT_SSH_COMMAND", "ssh -i ~/.ssh/key -o BatchMode=yes", true),
            ("GIT_SSH_COMMAND", "ssh -F {root}/p/config", false),
            ("GIT_SSH_COMMAND", "./ssh", false),
            ("PAGER", "less -R", true),
            ("PAGER", "sh pager.sh", false),
            ("LESSOPEN", "| /usr/bin/lesspipe %s", true),
            ("EDITOR", "code --wait", true),
            ("GIT_DIR", "{root}/p/.git", true),
            ("PWD", "{root}/p", true),
        ] {
            let value = value.replace("{root}", root.to_str().unwrap());
            let home = Some(Path::new("/h/me"));
            let trusted = writable.trusts_variable(name.as_ref(), value.as_ref(), home);
            assert_eq!(trusted, expected, "{name}={value}");
        }
        let bytes = OsStr::from_bytes(b"--require /\xff");
        assert!(!writable.trusts_variable("NODE_OPTIONS".as_ref(), bytes, None));
    }

    #[test]
    fn untrusted_variables_come_from_changed_environment() {
        let change = |name: &str, value: Option<&str>| (name.into(), value.map(OsString::from));
        let changes = [
            change("LD_PRELOAD", Some("x.so")),
            change("LD_AUDIT", Some("x.so")),
            change("LD_AUDIT", Some("/usr/lib/x.so")),
            change("PYTHONPATH", Some("x")),
            change("PYTHONPATH", None),
        ];
        let found = AgentWritable::default().untrusted_variables(&changes, None);
        let found: Vec<_> = found
            .iter()
            .filter(|(name, _)| changes.iter().any(|(changed, _)| changed == name))
            .collect();
        assert_eq!(found, [&("LD_PRELOAD".into(), "x.so".into())]);
    }
}
