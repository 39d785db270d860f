//! Fork bombs and endless loops.

use super::shell::{CompoundCommand, ListItem, ShellCommand, Word};
use super::value::{Argument, is_known};

pub(super) fn is_infinite_loop(condition: &[ListItem]) -> bool {
    let [ListItem { command, .. }] = condition else { return false };
    match command {
        ShellCommand::Simple(simple) => {
            let program = simple.words.first().and_then(Word::unquoted_literal);
            matches!(program, Some("true" | ":" | "1"))
        }
        ShellCommand::Compound { command: CompoundCommand::Test(words), .. } => {
            matches!(words.as_slice(), [word] if is_known(&word.literal().unwrap_or_default()))
        }
        _ => false,
    }
}

pub(super) fn is_fork_bomb(name: &str, command: &ShellCommand, aside: bool) -> bool {
    let list = |items: &[ListItem]| {
        items.iter().any(|item| is_fork_bomb(name, &item.command, aside || item.background))
    };
    match command {
        ShellCommand::Simple(simple) => {
            aside && simple.words.first().and_then(Word::unquoted_literal) == Some(name)
        }
        ShellCommand::Pipeline(stages) => {
            stages.iter().any(|stage| is_fork_bomb(name, stage, true))
        }
        ShellCommand::Function { body, .. } => is_fork_bomb(name, body, aside),
        ShellCommand::Compound { command, .. } => match command {
            CompoundCommand::Group { body, .. } | CompoundCommand::For { body, .. } => list(body),
            CompoundCommand::If { branches, otherwise } => {
                branches.iter().any(|(condition, body)| list(condition) || list(body))
                    || list(otherwise)
            }
            CompoundCommand::While { condition, body } => list(condition) || list(body),
            CompoundCommand::Case { arms, .. } => arms.iter().any(|arm| list(arm)),
            CompoundCommand::Test(_) => false,
        },
    }
}

/// Whether output never ends, which is harmless until it goes to a file.
pub(super) fn prints_endlessly(argv: &[Argument]) -> bool {
    let endless = ["/dev/zero", "/dev/urandom", "/dev/random"];
    match argv {
        [program, ..] if program.text == "yes" => true,
        [program, args @ ..] if program.text == "cat" => {
            args.iter().any(|arg| endless.contains(&arg.text.as_str()))
        }
        _ => false,
    }
}
