//! Secrets: files that hold them, and programs that print them.

use super::table::{deny, warn};
use super::{CommandInvocation, CommandRule, Hit};
use crate::Family::Secrets;
use crate::value::Argument;
use crate::wrappers::split_string;

const WORK_WITHOUT_SECRET: &str = "work without the secret, or ask for what you need to know of it";

pub(super) const RULES: &[CommandRule] = &[
    deny(Secrets, &["security"])
        .subcommands(&["find-*-password", "dump-keychain", "export", "unlock-keychain"])
        .reason("it reads the keychain", WORK_WITHOUT_SECRET),
    deny(Secrets, &["secret-tool", "kwallet-query", "keyctl", "lpass", "bw", "keepassxc-cli"])
        .reason("it reads a store of secrets", WORK_WITHOUT_SECRET),
    deny(Secrets, &["pass", "gopass"])
        .subcommands(&["show", "ls", "find", "grep", "*"])
        .reason("it reads a store of secrets", WORK_WITHOUT_SECRET),
    deny(Secrets, &["op"])
        .subcommands(&["read", "item", "document", "inject"])
        .reason("it reads a store of secrets", WORK_WITHOUT_SECRET),
    deny(Secrets, &["vault"])
        .subcommands(&["kv get", "read", "token", "login", "print"])
        .reason("it reads a store of secrets", WORK_WITHOUT_SECRET),
    deny(Secrets, &["gh"])
        .subcommands(&["auth token"])
        .reason("it prints a token", WORK_WITHOUT_SECRET),
    deny(Secrets, &["gh"])
        .subcommands(&["auth status"])
        .flags(&["-t", "--show-token"])
        .reason("it prints a token", WORK_WITHOUT_SECRET),
    deny(Secrets, &["gcloud"])
        .subcommands(&[
            "auth print-*",
            "auth application-default print-*",
            "secrets versions access",
        ])
        .reason("it prints a token or a secret", WORK_WITHOUT_SECRET),
    deny(Secrets, &["aws"])
        .subcommands(&[
            "configure get",
            "configure export-credentials",
            "sts get-session-token",
            "secretsmanager get-secret-value",
            "sts assume-role",
            "ecr get-login-password",
        ])
        .reason("it prints a secret", WORK_WITHOUT_SECRET),
    deny(Secrets, &["aws"])
        .subcommands(&["ssm get-parameter*"])
        .flags(&["--with-decryption"])
        .reason("it prints a secret", WORK_WITHOUT_SECRET),
    deny(Secrets, &["az"])
        .subcommands(&[
            "account get-access-token",
            "keyvault secret show",
            "keyvault secret download",
        ])
        .reason("it prints a secret", WORK_WITHOUT_SECRET),
    deny(Secrets, &["kubectl", "oc", "k"])
        .subcommands(&[
            "get secret",
            "get secrets",
            "describe secret",
            "get secret/*",
            "config view",
            "create token",
        ])
        .flags(&["-o", "--output", "--raw", "--template", "-ojson", "-oyaml"])
        .reason("it prints a cluster's secrets", WORK_WITHOUT_SECRET),
    deny(Secrets, &["git"])
        .subcommands(&["credential fill", "credential-store get", "credential-osxkeychain get"])
        .reason("it prints a password", WORK_WITHOUT_SECRET),
    deny(Secrets, &["gpg", "gpg2"])
        .flags(&["--export-secret-keys", "--export-secret-subkeys"])
        .reason("it exports a private key", WORK_WITHOUT_SECRET),
    deny(Secrets, &["heroku"])
        .subcommands(&["config", "config:get", "auth:token"])
        .reason("it prints secrets", WORK_WITHOUT_SECRET),
    deny(Secrets, &["npm"])
        .subcommands(&["token *", "config get *_authToken"])
        .reason("it prints a token", WORK_WITHOUT_SECRET),
    deny(Secrets, &["mimikatz", "lazagne", "trufflehog", "linpeas", "pspy"])
        .reason("it looks for secrets", WORK_WITHOUT_SECRET),
    warn(Secrets, &["history", "fc"]).reason("a shell's history may hold secrets", "leave it"),
];

/// Programs that print, copy or send what is in the files that they are given.
const READERS: &[&str] = &[
    "cat",
    "tac",
    "nl",
    "less",
    "more",
    "most",
    "head",
    "tail",
    "bat",
    "batcat",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "ag",
    "ack",
    "zgrep",
    "sed",
    "gsed",
    "awk",
    "gawk",
    "mawk",
    "cut",
    "sort",
    "uniq",
    "xxd",
    "od",
    "hexdump",
    "hd",
    "strings",
    "base64",
    "base32",
    "cp",
    "mv",
    "scp",
    "rsync",
    "tar",
    "bsdtar",
    "gtar",
    "pax",
    "zip",
    "gzip",
    "bzip2",
    "xz",
    "7z",
    "7za",
    "7zz",
    "rar",
    "ditto",
    "zstd",
    "vim",
    "vi",
    "nvim",
    "nano",
    "emacs",
    "view",
    "ed",
    "code",
    "diff",
    "cmp",
    "comm",
    "paste",
    "join",
    "source",
    ".",
    "jq",
    "yq",
    "openssl",
    "gpg",
    "age",
    "rev",
    "fold",
    "fmt",
    "split",
    "iconv",
    "install",
    "ln",
    "dd",
    "python",
    "node",
    "ruby",
    "perl",
    "php",
    "bash",
    "sh",
    "zsh",
    "xargs",
    "envsubst",
    "pr",
    "column",
    "tr",
    "expand",
    "pandoc",
    "csplit",
    "shuf",
    "look",
    "sum",
    "md5sum",
    "busybox",
    "open",
    "xdg-open",
    "pbcopy",
    "xclip",
    "git",
    "curl",
    "wget",
    "nc",
    "ssh-keygen",
    "ssh-add",
    "mapfile",
    "readarray",
    "docker",
    "podman",
    "kubectl",
];

/// Programs whose first operand is a pattern or a script, not a file.
const SCRIPT_FIRST_PROGRAMS: &[&str] = &[
    "grep", "egrep", "fgrep", "rg", "ag", "ack", "zgrep", "awk", "gawk", "mawk", "jq", "yq", "tr",
];

/// Programs that take whole directories along.
const DIRECTORY_READERS: &[&str] = &[
    "tar", "bsdtar", "gtar", "pax", "zip", "7z", "7za", "7zz", "rar", "ditto", "cp", "rsync", "scp",
];

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let named = command.name == "printenv" && !command.operands().is_empty();
    let declared = command.is(&["declare", "typeset", "local", "export", "readonly"])
        && command.has(&["-p"])
        && command.operands().iter().any(|arg| is_secret_name(&arg.text));
    if declared {
        hits.push(printed_secret_hit());
    }
    if named && command.operands().iter().any(|arg| is_secret_name(&arg.text)) {
        hits.push(printed_secret_hit());
    }
    // Alone it prints everything; with arguments it runs a program.
    if (command.name == "printenv" && !named)
        || command.name == "env"
            && command
                .args
                .iter()
                .all(|arg| arg.text.starts_with('-') && split_string(&arg.text).is_none())
        || (command.is(&["set", "export", "declare"]) && command.args.is_empty())
        || (command.is(&["export", "declare", "typeset"])
            && command
                .args
                .iter()
                .all(|arg| ["-p", "-x", "-px", "-xp"].contains(&arg.text.as_str())))
        || (command.name == "compgen" && command.has(&["-e"]))
    {
        hits.push(Hit::warn(
            Secrets,
            "the environment may hold secrets, which then stand in the transcript",
            "ask for the one variable that you need",
        ));
    }
    if !command.is(READERS) {
        return;
    }
    if command.is(&["docker", "podman", "kubectl"])
        && command.operands().first().is_none_or(|sub| sub.text != "cp")
    {
        return;
    }
    if command.name == "git" && !is_git_read(command) {
        let operands = command.operands();
        let adds = operands
            .first()
            .is_some_and(|sub| ["add", "commit", "stage"].contains(&sub.text.as_str()));
        if adds && operands.iter().skip(1).any(|path| command.context.check_read(path).is_some()) {
            hits.push(Hit::warn(
                Secrets,
                "a file of secrets would be committed",
                "leave it out, and add it to .gitignore",
            ));
        }
        return;
    }
    let files = match command.is(&["sed", "gsed", "perl"]) {
        true => super::files::files_after_script(command),
        false => Vec::new(),
    };
    let mut operands = match command.is(&["sed", "gsed", "perl"]) {
        true => files.iter().collect(),
        false => command.operands(),
    };
    // `tar -C DIR NAME` takes DIR/NAME.
    let below: Vec<Argument> = match command.is(&["tar", "bsdtar", "gtar"]) {
        true => below_directories(command, &operands),
        false => Vec::new(),
    };
    operands.extend(&below);
    let scripted = command.has(&["-e", "-f", "--regexp", "--file", "--expression"]);
    if command.is(SCRIPT_FIRST_PROGRAMS) && !scripted && !operands.is_empty() {
        operands.remove(0);
    }
    for operand in operands {
        if is_destination(command, operand) {
            continue;
        }
        // `src:dst`, `HEAD:.env`, `if=file`
        let path = operand.text.rsplit([':', '=']).next().unwrap_or_default();
        let found = command.context.check_read(operand).or_else(|| {
            (path != operand.text)
                .then(|| {
                    command
                        .context
                        .check_read(&Argument { text: path.to_owned(), ..operand.clone() })
                })
                .flatten()
        });
        // A volume is `host:container`.
        hits.extend(found);
        let searches = (command.is(&["grep", "egrep", "fgrep"])
            && command.has(&["-r", "-R", "--recursive"]))
            || (command.name == "rg" && command.has(&["-u", "-.", "--hidden", "--unrestricted"]));
        let hidden = operand.text.contains("/.*/");
        if (command.is(DIRECTORY_READERS) || searches || hidden)
            && let (Some(place), Some(home)) =
                (command.context.locate(operand), command.context.context.home)
            && home.starts_with(&place.base)
            && (place.rest.is_empty() || place.rest.first().is_some_and(|name| name == ".*"))
        {
            hits.push(Hit::deny(
                Secrets,
                "it takes the home directory with all secrets in it",
                "take the files that the task needs",
            ));
        }
    }
    for value in command.values(&["-f", "--file", "--from-file", "--key"]) {
        hits.extend(command.context.check_read(&value));
    }
}

/// Whether a variable of this name holds a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    const SECRET_WORDS: &[&str] = &[
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "APIKEY",
        "API_KEY",
        "ACCESS_KEY",
        "PRIVATE_KEY",
        "SECRET_KEY",
        "SIGNING_KEY",
        "ENCRYPTION_KEY",
    ];
    // What is said of a secret is none: how long it must be, what it is called.
    const METADATA_WORDS: &[&str] = &[
        "FILE", "PATH", "DIR", "NAME", "NAMES", "LIMIT", "LIMITS", "LENGTH", "LEN", "SIZE",
        "COUNT", "MIN", "MAX", "TYPE", "URL", "URI", "ENDPOINT", "TTL", "EXPIRY", "EXPIRES",
        "LIFETIME", "TIMEOUT", "POLICY", "HEADER", "FIELD", "ENABLED", "BUDGET", "USAGE",
    ];
    let given = name.as_bytes();
    let name = name.to_ascii_uppercase();
    if name.rsplit('_').next().is_some_and(|last| METADATA_WORDS.contains(&last)) {
        return false;
    }
    // Language models count tokens; these are no secrets, and several secrets are rarely in one variable.
    let several = ["API", "AUTH", "ACCESS"].iter().any(|word| name.contains(word));
    SECRET_WORDS.iter().any(|word| {
        name.match_indices(word).any(|(at, _)| {
            let mut end = at + word.len();
            if given.get(end).is_some_and(|c| c.eq_ignore_ascii_case(&b'S'))
                && (several || *word != "TOKEN")
            {
                end += 1;
            }
            // It ends there: SECRET_KEY and secretKey are about a secret, SECRETARY is not.
            match (end.checked_sub(1).and_then(|last| given.get(last)), given.get(end)) {
                (Some(last), Some(next)) => {
                    !next.is_ascii_alphabetic()
                        || (last.is_ascii_lowercase() && next.is_ascii_uppercase())
                }
                _ => true,
            }
        })
    })
}

/// What there is to say of printing a secret.
pub(crate) fn printed_secret_hit() -> Hit {
    Hit::deny(
        Secrets,
        "the secret then stands in the transcript",
        "check that it is set, as by `test -n`, without printing it",
    )
}

/// Relative operands, as they are meant below the directories that the program goes to first.
fn below_directories(command: &CommandInvocation<'_>, operands: &[&Argument]) -> Vec<Argument> {
    let directories = command.values(&["-C", "--directory", "--cd"]);
    let relative = operands.iter().filter(|operand| !operand.text.starts_with('/'));
    relative
        .flat_map(|operand| {
            directories.iter().map(|directory| Argument {
                text: format!("{}/{}", directory.text.trim_end_matches('/'), operand.text),
                ..(*operand).clone()
            })
        })
        .collect()
}

/// Where things go is not what is read.
fn is_destination(command: &CommandInvocation<'_>, operand: &Argument) -> bool {
    command.is(&["cp", "mv", "install", "ln", "rsync", "scp"])
        && command.operands().last().is_some_and(|last| *last == operand)
}

fn is_git_read(command: &CommandInvocation<'_>) -> bool {
    command.operands().first().is_some_and(|sub| {
        ["show", "diff", "cat-file", "grep", "blame", "hash-object"].contains(&sub.text.as_str())
    })
}
