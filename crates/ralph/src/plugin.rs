//! The plugin for Claude Code, embedded: its version always matches.

use std::fs;
use std::io;
use std::path::Path;

use ralph_events::error::Error;
use ralph_events::text;
use ralph_store::save::{PendingSave, save_all};

#[derive(Debug)]
pub struct PluginFile {
    pub path: &'static str,
    pub text: &'static str,
}

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(PluginFile { path: $path, text: include_str!(concat!("../../../plugin/", $path)) }),+]
    };
}

/// A test compares this with the directory.
pub const FILES: &[PluginFile] = files! {
    ".claude-plugin/plugin.json",
    "README.md",
    "hooks/hooks.json",
    "hooks/ralph-hook.sh",
    "sandbox/setup.sh",
    "scripts/ralph-archive.sh",
    "scripts/ralph-init.sh",
    "scripts/ralph.sh",
    "skills/ralph-plan/SKILL.md",
    "templates/prd-template.md",
    "templates/progress-template.md",
    "templates/prompt.md",
    "templates/tasks-template.json",
};

/// All files or none.
pub fn export(directory: &Path, force: bool) -> Result<(), Error> {
    if directory.exists() && !directory.is_dir() {
        return Err(Error::input(format!("not a directory: {}", directory.display())));
    }
    let saving = |file: &PluginFile| PendingSave {
        path: directory.join(file.path),
        bytes: file.text.into(),
        replace: force,
    };
    let files: Vec<PendingSave> = FILES.iter().map(saving).collect();
    // Dangling links exist, too.
    let exists = |path: &&Path| path.symlink_metadata().is_ok();
    let existing: Vec<&Path> = files.iter().map(|file| &*file.path).filter(exists).collect();
    if !force && !existing.is_empty() {
        let names: Vec<String> = existing.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::input(format!("already exists: {}", text::first_few(&names, 1)))
            .hint("use --force to overwrite the plugin's own files"));
    }
    save_all(&files).map_err(|(path, err)| write_error(&path, &err))?;
    for (file, PendingSave { path, .. }) in FILES.iter().zip(&files) {
        if file.path.ends_with(".sh") {
            make_executable(path).map_err(|err| write_error(path, &err))?;
        }
    }
    Ok(())
}

fn write_error(path: &Path, err: &io::Error) -> Error {
    Error::input(format!("cannot write {}: {err}", path.display()))
}

fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut permissions = fs::metadata(path)?.permissions();
    let mode = permissions.mode();
    permissions.set_mode(mode | (mode & 0o444) >> 2);
    fs::set_permissions(path, permissions)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::Value;

    use super::*;
    use ralph_tasks::documents::TEMPLATES;

    fn below(directory: &Path) -> BTreeMap<String, (String, bool)> {
        let mut found = BTreeMap::new();
        let mut pending = vec![directory.to_owned()];
        while let Some(next) = pending.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                    continue;
                }
                let mode = path.metadata().unwrap().permissions().mode();
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                found.insert(name, (fs::read_to_string(&path).unwrap(), mode & 0o100 != 0));
            }
        }
        found
    }

    #[test]
    fn exported_plugin_matches_repository() {
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugin"));
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("deep/ralph");
        export(&target, false).unwrap();
        assert_eq!(below(&target), below(source));
    }

    #[test]
    fn plugin_templates_match_program() {
        let in_plugin = FILES
            .iter()
            .filter_map(|file| file.path.strip_prefix("templates/").map(|name| (name, file.text)));
        assert_eq!(in_plugin.collect::<BTreeMap<_, _>>(), BTreeMap::from(TEMPLATES));
    }

    #[test]
    fn plugin_manifest_is_as_claude_code_expects() {
        let manifest: Value = serde_json::from_str(FILES[0].text).unwrap();
        assert_eq!(manifest["version"], "0.1.0", "the plugin has versions of its own");
        // Claude Code finds the hooks itself and refuses a manifest that names them.
        assert_eq!(manifest.get("hooks"), None);
    }

    #[test]
    fn plugin_export_overwrites_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("scripts/own.sh");
        let theirs = dir.path().join("scripts/ralph.sh");
        fs::create_dir(dir.path().join("scripts")).unwrap();
        fs::write(&own, "own").unwrap();
        fs::write(&theirs, "theirs").unwrap();
        let before = below(dir.path());
        let error = export(dir.path(), false).unwrap_err();
        assert!(error.message.ends_with("scripts/ralph.sh"), "{error}");
        assert_eq!(below(dir.path()), before, "all or nothing");
        export(dir.path(), true).unwrap();
        let after = below(dir.path());
        assert_eq!(after.len(), FILES.len() + 1);
        assert_eq!(after["scripts/own.sh"].0, "own");
        assert!(after["scripts/ralph.sh"].1, "executable, though what was there was not");
    }

    #[test]
    fn failed_plugin_export_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("templates/prompt.md/x")).unwrap();
        assert!(export(dir.path(), true).is_err());
        assert_eq!(below(dir.path()), BTreeMap::new());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(export(&file, true).unwrap_err().message.starts_with("not a directory"));
    }
}
