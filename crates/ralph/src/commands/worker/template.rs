//! `ralph template`: prints a starter prompt.

use std::path::Path;

use super::TemplateArgs;
use ralph_events::error::Error;
use ralph_store::save::{PendingSave, save_all};

const TEMPLATE_FILE: &str = "PROMPT.md";

const TEMPLATE: &str = "\
study specs/README.md
study CLAUDE.md and pick the most important incomplete task

IMPORTANT:

- do not assume anything is implemented - verify by reading code
- update IMPLEMENTATION_PLAN.md when the task is done
- if tests are missing, add them (choose unit/integration/property as appropriate, follow existing patterns)
- run tests after changes
- commit and push when you are done
";

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
