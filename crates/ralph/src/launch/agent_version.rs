//! The version of an installed agent, found without running it.
//!
//! Running `claude --version` takes longer than everything else before the first agent.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Directories above a program in which its `package.json` may be.
const MAX_DEPTH: usize = 4;

/// Reads the version from the program's file name (`versions/2.1.325`) or from the npm package that it
/// belongs to.
pub(super) fn installed_version(program: &Path) -> Option<String> {
    let program = program.canonicalize().ok()?;
    let name = program.file_name()?.to_str()?;
    if is_version(name) {
        return Some(name.to_owned());
    }
    let dirs = program.ancestors().skip(1).take(MAX_DEPTH);
    let package = dirs.map(|dir| dir.join("package.json")).find(|path| path.is_file())?;
    let package: Value = serde_json::from_slice(&fs::read(package).ok()?).ok()?;
    // Without a program, the package is the project's own, above `node_modules/.bin` for example.
    let has_program = match &package["bin"] {
        Value::String(_) => true,
        Value::Object(programs) => !programs.is_empty(),
        _ => false,
    };
    package["version"].as_str().filter(|it| has_program && is_version(it)).map(str::to_owned)
}

fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.contains('.')
        && text.len() <= 40
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn installed_version_is_read_from_name_or_package() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let native = write("share/claude/versions/2.1.325", "");
        symlink(&native, dir.path().join("claude")).unwrap();
        assert_eq!(installed_version(&dir.path().join("claude")).as_deref(), Some("2.1.325"));

        let script = write("lib/node_modules/@openai/codex/bin/codex.js", "");
        let package = r#"{"version": "0.166.0", "bin": {"codex": "bin/codex.js"}}"#;
        write("lib/node_modules/@openai/codex/package.json", package);
        symlink(&script, dir.path().join("codex")).unwrap();
        assert_eq!(installed_version(&dir.path().join("codex")).as_deref(), Some("0.166.0"));

        let script = write("app/tools/agent.sh", "");
        write("app/package.json", r#"{"version": "1.0.0"}"#);
        assert_eq!(installed_version(&script), None);
        assert_eq!(installed_version(&dir.path().join("none")), None);
    }
}
