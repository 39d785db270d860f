//! Destructive git: losing commits or uncommitted work, rewriting shared history.

use super::places::DeleteScope;
use super::{CommandInvocation, Hit, finding};
use crate::data::DATA;
use crate::value::Argument;

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    if command.name != "git" {
        return;
    }
    for setting in command.values(&["-c", "--config-env"]) {
        let lower = setting.text.to_ascii_lowercase();
        if lower.split_once('=').is_some_and(|(key, value)| skips_certificate_check(key, value)) {
            hits.push(finding("unchecked_certificate"));
        }
        if let Some((key, _)) = setting.text.split_once('=')
            && runs_command(key)
            && !is_noninteractive_value(&setting.text)
        {
            hits.push(finding("git_runs_program"));
        }
    }
    let operands = command.operands();
    let Some((sub, rest)) = operands.split_first() else { return };
    let first = rest.first().map(|arg| arg.text.as_str()).unwrap_or_default();
    match sub.text.as_str() {
        "push" if first.contains("://") || first.contains('@') => {
            hits.push(finding("pushed_elsewhere"));
        }
        "fetch" | "pull" => {
            let forced = command.has(&["-f", "--force"]);
            // Remote-tracking refs and tags may move; local branches may not.
            let moves = |arg: &&Argument| {
                let target = arg.text.split_once(':').map(|(_, target)| target);
                (forced || arg.text.starts_with('+'))
                    && target.is_some_and(|target| {
                        !target.is_empty()
                            && !target.starts_with("refs/remotes/")
                            && !target.starts_with("refs/tags/")
                    })
            };
            if rest.iter().skip(1).any(moves) && !command.has(&["--dry-run"]) {
                hits.push(finding("branch_moved"));
            }
        }
        "checkout" | "restore" => {
            let is_everything = |text: &str| {
                // `:/…` and `:(top)…` start at the top; `:!…` is everything else.
                let below = match text.strip_prefix(":(").and_then(|rest| rest.split_once(')')) {
                    Some((_, below)) => below,
                    None => text.strip_prefix(":/").unwrap_or(text),
                };
                (below != text && ["", ".", "./", "*", "**", "./*"].contains(&below))
                    || text.starts_with([':'])
                        && text.get(1..).is_some_and(|rest| rest.starts_with(['!', '^']))
                    || [".", "./", "*", ":", "./*"].contains(&text)
                    || command.context.cwd.is_some_and(|cwd| cwd.to_string_lossy() == text)
                    || command.context.context.project.to_string_lossy() == text
            };
            let staged = command.has(&["-S", "--staged"]) && !command.has(&["-W", "--worktree"]);
            if rest.iter().any(|arg| is_everything(&arg.text)) && !staged {
                hits.push(finding("work_lost"));
            }
        }
        // Untracked files are in no commit.
        "clean" if !command.has(&["-n", "--dry-run"]) => {
            let cwd = Argument::known(".");
            if !matches!(
                command.context.delete_scope(&cwd),
                DeleteScope::Inside | DeleteScope::Project | DeleteScope::New
            ) {
                hits.extend(command.context.check_delete(&cwd));
            }
        }
        "rm" if command.has(&["-r"]) && !command.has(&["--cached"]) => {
            for path in rest {
                hits.extend(command.context.check_delete(path));
            }
        }
        "config" => {
            let words: Vec<&str> = rest.iter().map(|arg| arg.text.as_str()).collect();
            let reads = ["--get", "--get-all", "--list", "-l", "--get-regexp"];
            if !command.has(&reads) {
                for file in command.values(&["-f", "--file"]) {
                    hits.extend(command.context.check_write(&file));
                }
            }
            let pairs =
                || words.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)));
            if pairs().any(|(key, value)| skips_certificate_check(key, value)) {
                hits.push(finding("unchecked_certificate"));
            }
            let is_forced = |key: &str, value: &str| {
                let key = key.to_ascii_lowercase();
                key.starts_with("remote.") && key.ends_with(".push") && value.starts_with('+')
            };
            if pairs().any(|(key, value)| is_forced(key, value)) {
                hits.push(finding("forced_pushes_later"));
            }
            let pair = words.windows(2).find_map(|pair| match pair {
                [key, value] if runs_command(key) => Some((*key, *value)),
                _ => None,
            });
            let Some((key, value)) = pair else { return };
            if !is_noninteractive_value(&format!("{key}={value}")) {
                hits.push(finding(match key.eq_ignore_ascii_case("core.hooksPath") {
                    true => "git_hooks_replaced",
                    false => "git_runs_program_later",
                }));
            }
        }
        _ => {}
    }
}

fn skips_certificate_check(key: &str, value: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.starts_with("http.")
        && key.ends_with(".sslverify")
        && ["false", "0", "no", "off"].contains(&value.to_ascii_lowercase().as_str())
}

pub(super) fn runs_command(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    DATA.git_command_settings.contains(&key.as_str())
        || key.starts_with("alias.")
        || key.starts_with("filter.")
        || key.starts_with("url.")
        || (key.starts_with("diff.") && key.ends_with(".textconv"))
        || (key.starts_with("merge.") && key.ends_with(".driver"))
        || (key.starts_with("credential.") && key.ends_with(".helper"))
}

/// Values that make git noninteractive, and aliases for its own commands.
fn is_noninteractive_value(setting: &str) -> bool {
    let Some((key, value)) = setting.split_once('=') else { return false };
    DATA.git_noninteractive_values.contains(&value)
        || (key.to_ascii_lowercase().starts_with("alias.") && !value.starts_with('!'))
}
