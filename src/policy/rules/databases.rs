//! Databases: dropping and emptying them, by SQL and by tools.

use super::table::{deny, warn};
use super::{Hit, Invocation, Rule};
use crate::policy::Family::Databases;
use crate::policy::value::Arg;

const COPY: &str = "work on a copy or on a test database, and leave dropping to a person";

pub(super) const RULES: &[Rule] = &[
    deny(Databases, &["dropdb", "dropuser", "mongo-drop"]).because("it drops a database", COPY),
    deny(Databases, &["mysqladmin"])
        .sub(&["drop", "* drop", "flush-*"])
        .because("it drops a database", COPY),
    deny(Databases, &["redis-cli", "valkey-cli", "keydb-cli"])
        .sub(&[
            "flushall",
            "FLUSHALL",
            "flushdb",
            "FLUSHDB",
            "FlushAll",
            "FlushDB",
            "shutdown",
            "SHUTDOWN",
            "config set",
            "CONFIG SET",
            "debug *",
            "eval *flushall*",
        ])
        .because("it empties the store", COPY),
    deny(Databases, &["prisma"]).sub(&["migrate reset"]).because("it drops all data", COPY),
    deny(Databases, &["prisma"])
        .sub(&["db push"])
        .with(&["--force-reset", "--accept-data-loss"])
        .because("it drops all data", COPY),
    deny(Databases, &["rails", "rake"])
        .sub(&[
            "db:drop*",
            "db:reset",
            "db:purge",
            "db:migrate:reset",
            "db:schema:load",
            "db:truncate_all",
        ])
        .because("it drops all data", COPY),
    deny(Databases, &["artisan", "php"])
        .sub(&[
            "migrate:fresh",
            "migrate:reset",
            "db:wipe",
            "artisan migrate:fresh",
            "artisan migrate:reset",
            "artisan db:wipe",
            "artisan migrate:refresh",
        ])
        .because("it drops all data", COPY),
    deny(Databases, &["manage.py", "django-admin", "python"])
        .sub(&[
            "flush",
            "reset_db",
            "sqlflush",
            "manage.py flush",
            "manage.py reset_db",
            "./manage.py flush",
        ])
        .because("it empties the database", COPY),
    deny(Databases, &["sequelize", "sequelize-cli", "typeorm", "knex", "mikro-orm", "drizzle-kit"])
        .sub(&[
            "db:drop",
            "db:migrate:undo:all",
            "schema:drop",
            "migrate:rollback",
            "schema:fresh",
            "drop",
        ])
        .because("it drops tables", COPY),
    deny(Databases, &["alembic", "flyway", "liquibase"])
        .sub(&["downgrade base", "clean", "drop-all", "dropAll"])
        .because("it drops tables", COPY),
    deny(Databases, &["supabase"]).sub(&["db reset"]).because("it drops all data", COPY),
    deny(Databases, &["mix"])
        .sub(&["ecto.drop", "ecto.reset"])
        .because("it drops the database", COPY),
    deny(Databases, &["dbmate", "goose", "migrate"])
        .sub(&["drop", "reset", "down-to 0"])
        .because("it drops tables", COPY),
    deny(Databases, &["influx", "cqlsh", "clickhouse-client", "etcdctl"])
        .sub(&["bucket delete", "del", "delete"])
        .because("it deletes data", COPY),
    warn(Databases, &["pg_restore", "mysqlimport", "mongorestore"])
        .with(&["--clean", "-c", "--drop", "--delete"])
        .because("it drops what is there before it restores", COPY),
];

/// Programs that take SQL, with the flags that it stands behind.
const CLIENTS: &[(&str, &[&str])] = &[
    ("psql", &["-c", "--command"]),
    ("mysql", &["-e", "--execute"]),
    ("mariadb", &["-e", "--execute"]),
    ("sqlite3", &["-cmd"]),
    ("sqlite", &["-cmd"]),
    ("duckdb", &["-c", "-cmd"]),
    ("sqlcmd", &["-q", "-Q"]),
    ("cockroach", &["-e", "--execute"]),
    ("clickhouse-client", &["-q", "--query"]),
    ("bq", &[]),
    ("cqlsh", &["-e", "--execute"]),
    ("usql", &["-c", "--command"]),
    ("pgcli", &[]),
    ("mycli", &["-e"]),
    ("snowsql", &["-q", "--query"]),
    ("wrangler", &["--command"]),
    ("turso", &[]),
];

pub(super) fn look(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    if command.is(&["mongosh", "mongo"]) {
        let destroys = |text: &str| {
            ["dropDatabase(", ".drop(", "deleteMany({})", "remove({})", "dropIndexes(", "dropUser("]
                .iter()
                .any(|call| text.replace(' ', "").contains(call))
        };
        if texts(command, &["--eval"]).iter().any(|arg| destroys(&arg.text)) {
            hits.push(Hit::deny(Databases, "it drops or empties a collection", COPY));
        }
        return;
    }
    let Some((_, flags)) = CLIENTS.iter().find(|(client, _)| *client == command.name) else {
        return;
    };
    for text in texts(command, flags) {
        if let Some(reason) = destroys(&text.text) {
            hits.push(Hit::deny(Databases, reason, COPY));
        }
    }
}

/// Whether the database is by its name one for tests, which are there to be dropped.
pub(super) fn is_for_tests(command: &Invocation<'_>) -> bool {
    let mut names = command.values(&["-d", "--dbname", "-D", "--database"]);
    names.extend(command.operands().first().map(|arg| (*arg).clone()));
    names.iter().any(|name| {
        let name = name.text.rsplit('/').next().unwrap_or_default();
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
        name == ":memory:"
            || (!name.contains(char::is_whitespace)
                && words.any(|word| ["test", "tests", "testing"].contains(&word)))
    })
}

/// What a client is told to do: by its flags, its operands, its standard input.
fn texts(command: &Invocation<'_>, flags: &[&str]) -> Vec<Arg> {
    let mut texts = command.values(flags);
    texts.extend(command.operands().into_iter().cloned());
    texts.extend(command.scene.stdin.map(|input| Arg::known(input.text.clone())));
    texts
}

/// Why SQL would lose data, if it would.
fn destroys(sql: &str) -> Option<&'static str> {
    statements(sql).into_iter().find_map(|words| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["DROP", what, ..]
                if ["TABLE", "DATABASE", "SCHEMA", "USER", "ROLE", "KEYSPACE", "OWNED"]
                    .contains(what) =>
            {
                Some("it drops a table or a database")
            }
            ["ALTER", "TABLE", .., "DROP", "COLUMN" | "PARTITION", _]
            | ["ALTER", "TABLE", .., "DROP", _] => Some("it drops a part of a table"),
            ["TRUNCATE", ..] => Some("it empties a table"),
            ["DELETE", "FROM", rest @ ..] if !rest.contains(&"WHERE") => {
                Some("it deletes every row of a table")
            }
            ["UPDATE", rest @ ..] if rest.contains(&"SET") && !rest.contains(&"WHERE") => {
                Some("it changes every row of a table")
            }
            _ => None,
        }
    })
}

/// The words of each statement, in capitals, without comments and without what stands in quotes.
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
                for inner in rest.by_ref() {
                    if inner == c {
                        break;
                    }
                }
                if let Some(statement) = all.last_mut() {
                    statement.push("?".to_owned());
                }
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
    use super::destroys;

    #[test]
    fn sql_is_read_by_statements() {
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
            assert_eq!(destroys(sql).is_some(), denied, "{sql}");
        }
    }
}
