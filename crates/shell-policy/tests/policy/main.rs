//! Tests of the policy: corpus, properties, comparison with bash.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]

mod bash;
mod corpus;
mod properties;
#[path = "../../../../tests/support/skipped.rs"]
mod skipped;

use std::path::{Path, PathBuf};

use ralph_shell_policy::{CommandAllowList, Context, ToolCall, Verdict, judge, normalize_path};

/// A world with one link, one variable and no files.
fn resolve(path: &Path) -> Option<PathBuf> {
    let path = normalize_path(path)?;
    Some(match path.strip_prefix("/home/u/proj/out") {
        Ok(rest) => Path::new("/home/u").join(rest),
        Err(_) => path,
    })
}

fn variable(name: &str) -> Option<String> {
    (name == "KNOWN").then(|| "build".to_owned())
}

fn judge_with(allow: &[&str], call: &ToolCall<'_>) -> Verdict {
    let (allow, bad) = CommandAllowList::parse(allow.iter().copied());
    assert_eq!(bad, []);
    judge(&context(&allow), call)
}

fn context(allow: &CommandAllowList) -> Context<'_> {
    Context {
        project: Path::new("/home/u/proj"),
        cwd: Path::new("/home/u/proj"),
        home: Some(Path::new("/home/u")),
        allow,
        resolve: &resolve,
        variable: &variable,
    }
}

fn trace(command: &str) -> Option<Vec<Vec<String>>> {
    ralph_shell_policy::trace(&context(&CommandAllowList::default()), command)
}

fn shell(command: &str) -> Verdict {
    judge_with(&[], &ToolCall::Shell(command.into()))
}
