//! Loops and functions that start processes without end.

use super::shell::{Command, Item, Word};
use super::value::{Arg, is_known};

/// Whether the condition of a loop is always true.
pub(super) fn is_endless(condition: &[Item]) -> bool {
    match condition {
        [Item { command: Command::Simple(simple), .. }] => {
            matches!(simple.words.first().and_then(Word::bare), Some("true" | ":" | "1"))
        }
        [Item { command: Command::Test(words, _), .. }] => {
            matches!(words.as_slice(), [word] if is_known(&word.literal().unwrap_or_default()))
        }
        _ => false,
    }
}

/// Whether a function's body runs the function itself in a pipeline or in the background.
pub(super) fn is_bomb(name: &str, command: &Command, aside: bool) -> bool {
    let list = |items: &[Item]| {
        items.iter().any(|item| is_bomb(name, &item.command, aside || item.background))
    };
    match command {
        Command::Simple(simple) => aside && simple.words.first().and_then(Word::bare) == Some(name),
        Command::Pipeline(stages) => stages.iter().any(|stage| is_bomb(name, stage, true)),
        Command::Group { body, .. } | Command::For { body, .. } => list(body),
        Command::If { branches, otherwise, .. } => {
            branches.iter().any(|(condition, body)| list(condition) || list(body))
                || list(otherwise)
        }
        Command::While { condition, body, .. } => list(condition) || list(body),
        Command::Case { arms, .. } => arms.iter().any(|arm| list(arm)),
        Command::Function { body, .. } => is_bomb(name, body, aside),
        Command::Test(..) => false,
    }
}

/// Whether a command prints without end, which is no harm until it goes to a file.
pub(super) fn prints_for_ever(argv: &[Arg]) -> bool {
    let endless = ["/dev/zero", "/dev/urandom", "/dev/random"];
    match argv {
        [program, ..] if program.text == "yes" => true,
        [program, args @ ..] if program.text == "cat" => {
            args.iter().any(|arg| endless.contains(&arg.text.as_str()))
        }
        _ => false,
    }
}
