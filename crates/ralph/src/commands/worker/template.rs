//! `ralph template`: prints a starter prompt.

use std::path::Path;

use super::TemplateArgs;
use ralph_events::error::Error;
use ralph_store::save::{PendingSave, save_all};

const TEMPLATE_FILE: &str = "PROMPT.md";

const TEMPLATE: &str = include_str!("../prompts/worker.md");

pub fn template(directory: &Path, args: &TemplateArgs) -> Result<u8, Error> {
    if !args.write {
        return crate::cli::print(TEMPLATE);
    }
    let path = directory.join(TEMPLATE_FILE);
    let is_there = path.symlink_metadata().is_ok();
    if is_there && !args.force {
        return Err(Error::failed(format!(
            "{TEMPLATE_FILE} already exists (use --force to overwrite)"
        )));
    }
    let bytes = TEMPLATE.as_bytes().to_vec();
    save_all(&[PendingSave { path, bytes, replace: args.force }])
        .map_err(|(path, err)| Error::failed(format!("cannot write {}: {err}", path.display())))?;
    let how = if is_there { " (overwritten)" } else { "" };
    crate::cli::print(&format!("created {TEMPLATE_FILE}{how}\n"))
}
