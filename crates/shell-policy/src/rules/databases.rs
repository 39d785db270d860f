//! Dropping and emptying databases, by SQL and by tools.

use super::{CommandInvocation, Hit, finding, rules_of};
use crate::Family::Databases;
use crate::Tier;
use crate::data::DATA;
use crate::value::Argument;

/// Runners of project programs: `yarn prisma`, `npm run typeorm -- schema:drop`.
const RUNNERS: &[&str] = &["npm", "pnpm", "yarn", "bun", "sail"];

fn inner_program<'a>(command: &CommandInvocation<'a>) -> Option<(&'a str, Vec<Argument>)> {
    let words = command.args.iter().filter(|arg| arg.text != "--");
    let mut words = words.skip_while(|arg| arg.text.starts_with('-') || arg.text == "run");
    let name = words.next().map(|arg| arg.text.as_str())?;
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let known = rules_of(Databases).any(|rule| rule.programs().any(|program| program == name));
    known.then(|| (name, words.cloned().collect()))
}

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    if command.is(RUNNERS)
        && let Some((name, args)) = inner_program(command)
    {
        let inner = CommandInvocation { name, args: &args, context: command.context };
        hits.extend(rules_of(Databases).filter_map(|rule| rule.check(&inner)));
    }
    if command.is(&["redis-cli", "valkey-cli", "keydb-cli"])
        && command.operands().is_empty()
        && let Some(input) = command.context.stdin
    {
        let first_words = input.text.lines().filter_map(|line| line.split_whitespace().next());
        let mut empties = first_words
            .filter(|word| ["flushall", "flushdb"].iter().any(|it| word.eq_ignore_ascii_case(it)));
        if empties.next().is_some() {
            hits.push(finding("store_emptied"));
        }
    }
    if command.is(&["mongosh", "mongo"]) {
        let destroys = |text: &str| {
            ["dropDatabase(", ".drop(", "deleteMany({})", "remove({})", "dropIndexes(", "dropUser("]
                .iter()
                .any(|call| text.replace(' ', "").contains(call))
        };
        if statements_text(command, &["--eval"]).iter().any(|arg| destroys(&arg.text)) {
            hits.push(finding("collection_dropped"));
        }
        return;
    }
    let Some(flags) = DATA.sql_clients.get(command.name) else {
        return;
    };
    for text in statements_text(command, flags) {
        if let Some((tier, loss)) = data_loss(&text.text) {
            hits.push(Hit { tier, ..finding(loss) });
        }
    }
}

pub(super) fn is_for_tests(command: &CommandInvocation<'_>) -> bool {
    let mut names = command.values(&["-d", "--dbname", "-D", "--database", "--env"]);
    names.extend(command.operands().first().map(|arg| (*arg).clone()));
    names.iter().any(|name| {
        let name = name.text.rsplit('/').next().unwrap_or_default();
        name == ":memory:" || (!name.contains(char::is_whitespace) && has_test_word(name))
    }) || is_spare_redis_database(command)
}

/// `redis-cli -n 15 flushdb`: a local database that is not the default.
fn is_spare_redis_database(command: &CommandInvocation<'_>) -> bool {
    command.is(&["redis-cli", "valkey-cli", "keydb-cli"])
        && command.operands().iter().any(|arg| arg.text.eq_ignore_ascii_case("flushdb"))
        && command.values(&["-n"]).iter().any(|arg| arg.text.parse::<u16>().is_ok_and(|n| n > 0))
        && command.values(&["-u", "-s"]).is_empty()
        && command
            .values(&["-h"])
            .iter()
            .all(|host| ["localhost", "127.0.0.1", "::1"].contains(&host.text.as_str()))
}

fn has_test_word(name: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| ["test", "tests", "testing"].iter().any(|test| word.eq_ignore_ascii_case(test)))
}

fn statements_text(command: &CommandInvocation<'_>, flags: &[&str]) -> Vec<Argument> {
    let mut texts = command.values(flags);
    texts.extend(command.operands().into_iter().cloned());
    texts.extend(command.context.stdin.map(|input| Argument::known(input.text.as_str())));
    texts
}

fn data_loss(sql: &str) -> Option<(Tier, &'static str)> {
    let losses = statements(sql).into_iter().filter_map(|words| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let tier = match words.as_slice() {
            ["DROP", "DATABASE" | "SCHEMA", "IF", "EXISTS", name, ..]
            | ["DROP", "DATABASE" | "SCHEMA", name, ..]
                if has_test_word(name) =>
            {
                Tier::Warn
            }
            _ => Tier::Deny,
        };
        let loss = match words.as_slice() {
            ["DROP", object, ..]
                if ["TABLE", "DATABASE", "SCHEMA", "USER", "ROLE", "KEYSPACE", "OWNED"]
                    .contains(object) =>
            {
                Some("table_dropped")
            }
            ["ALTER", "TABLE", .., "DROP", "COLUMN" | "PARTITION", _]
            | ["ALTER", "TABLE", .., "DROP", _] => Some("table_part_dropped"),
            ["TRUNCATE", ..] => Some("table_emptied"),
            ["DELETE", "FROM", rest @ ..] if !rest.contains(&"WHERE") => Some("rows_deleted"),
            ["UPDATE", rest @ ..] if rest.contains(&"SET") && !rest.contains(&"WHERE") => {
                Some("rows_changed")
            }
            _ => None,
        };
        loss.map(|loss| (tier, loss))
    });
    losses.max_by_key(|(tier, _)| *tier)
}

/// The words of each statement, in capitals, without comments. Quoted text, which may be a name,
/// starts with `?`.
fn statements(sql: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut word = String::new();
    let mut rest = sql.chars().peekable();
    let end_word = |word: &mut String, all: &mut Vec<Vec<String>>| {
        if !word.is_empty()
            && let Some(statement) = all.last_mut()
        {
            statement.push(std::mem::take(word));
        }
    };
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' | '`' => {
                end_word(&mut word, &mut all);
                word.push('?');
                for inner in rest.by_ref() {
                    if inner == c {
                        break;
                    }
                    word.push(inner.to_ascii_uppercase());
                }
                end_word(&mut word, &mut all);
            }
            '-' if rest.peek() == Some(&'-') => {
                end_word(&mut word, &mut all);
                for inner in rest.by_ref() {
                    if inner == '\n' {
                        break;
                    }
                }
            }
            '/' if rest.peek() == Some(&'*') => {
                end_word(&mut word, &mut all);
                rest.next();
                let mut last = ' ';
                for inner in rest.by_ref() {
                    if last == '*' && inner == '/' {
                        break;
                    }
                    last = inner;
                }
            }
            ';' => {
                end_word(&mut word, &mut all);
                all.push(Vec::new());
            }
            c if c.is_alphanumeric() || c == '_' || c == '.' => word.push(c.to_ascii_uppercase()),
            _ => end_word(&mut word, &mut all),
        }
    }
    end_word(&mut word, &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::{Tier, data_loss};

    #[test]
    fn destructive_sql_is_found_by_statement() {
        for (sql, denied) in [
            ("DROP TABLE users", true),
            ("select 1; drop  table users", true),
            ("dr/**/op table users", false),
            ("DROP/**/TABLE users", true),
            ("drop -- what?\n table x", true),
            ("SELECT 'DROP TABLE users'", false),
            ("SELECT 1 -- drop table x", false),
            ("DELETE FROM users", true),
            ("DELETE FROM users WHERE id = 1", false),
            ("UPDATE users SET a = 1", true),
            ("UPDATE users SET a = 1 WHERE b", false),
            ("TRUNCATE users", true),
            ("DROP INDEX i", false),
            ("INSERT INTO x VALUES ('truncate')", false),
        ] {
            assert_eq!(data_loss(sql).is_some_and(|(tier, _)| tier == Tier::Deny), denied, "{sql}");
        }
        assert_eq!(
            data_loss("DROP DATABASE IF EXISTS `a_test`").map(|found| found.0),
            Some(Tier::Warn)
        );
    }
}
