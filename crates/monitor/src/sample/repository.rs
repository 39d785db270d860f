//! The work tree of `reset-mail`: four commits, and three files that are not committed.

use std::path::Path;

use ralph_events::error::Error;
use ralph_git::{run_git, run_git_slow};
use ralph_store::private_files;

pub(super) struct Repository {
    /// The commit before the run.
    pub(super) base: String,
}

/// A changed file: lines added and removed.
type Change = (&'static str, usize, usize);

const COMMITS: [(&str, &[Change]); 4] = [
    ("Ask for a reset", &[("src/routes.rs", 12, 4), ("templates/reset.html", 41, 0)]),
    ("Store the token hashed", &[("src/reset/token.rs", 88, 0), ("Cargo.toml", 2, 0)]),
    (
        "Send the mail",
        &[
            ("src/reset/mail.rs", 121, 0),
            ("src/reset/mod.rs", 38, 11),
            ("templates/mail/base.txt", 6, 9),
        ],
    ),
    (
        "Set a new password with the link",
        &[
            ("src/reset/set.rs", 96, 0),
            ("tests/reset/mod.rs", 31, 2),
            ("e2e/reset.spec.ts", 74, 0),
            ("Cargo.lock", 10, 58),
        ],
    ),
];

const OPEN: [Change; 2] = [("templates/expired.html", 22, 0), ("tests/reset/link.rs", 57, 0)];

const LINK: &str = "src/reset/link.rs";

pub(super) fn create(root: &Path) -> Result<Repository, Error> {
    run_git(&["init", "--quiet", "--initial-branch=ralph/password-reset"], root)?;
    write(root, LINK, &link(false))?;
    write(root, ".gitignore", "ralph/\n.ralph/\n")?;
    let committed = COMMITS.iter().flat_map(|(_, changes)| changes.iter());
    for (path, _, removed) in committed.filter(|(_, _, removed)| *removed > 0) {
        write(root, path, &lines("old", *removed))?;
    }
    write(root, "Cargo.toml", "[package]\nname = \"shop-api\"\n")?;
    commit(root, "Start")?;
    let base = run_git(&["rev-parse", "HEAD"], root)?.trim().to_owned();
    for (subject, changes) in COMMITS {
        for (path, added, _) in changes {
            let before =
                if *path == "Cargo.toml" { "[package]\nname = \"shop-api\"\n" } else { "" };
            write(root, path, &(before.to_owned() + &lines("new", *added)))?;
        }
        commit(root, subject)?;
    }
    write(root, LINK, &link(true))?;
    for (path, added, _) in OPEN {
        write(root, path, &lines("new", added))?;
    }
    Ok(Repository { base })
}

fn commit(root: &Path, subject: &str) -> Result<(), Error> {
    run_git(&["add", "--all"], root)?;
    let who = ["-c", "user.name=ralph", "-c", "user.email=ralph@example.com"];
    let words = [&who[..], &["commit", "--quiet", "--message", subject]].concat();
    run_git_slow(&words, root).map(drop)
}

fn write(root: &Path, path: &str, text: &str) -> Result<(), Error> {
    let path = root.join(path);
    let dir = path.parent().unwrap_or(root);
    let written = private_files::create_dir_all(dir).and_then(|()| std::fs::write(&path, text));
    written.map_err(|err| Error::failed(format!("{}: {err}", path.display())))
}

fn lines(word: &str, count: usize) -> String {
    (1..=count).map(|number| format!("{word} line {number}\n")).collect()
}

/// The file that the diff shows first.
fn link(is_new: bool) -> String {
    let filler = |from: usize, to: usize| -> String {
        (from..=to).map(|line| format!("// line {line}\n")).collect()
    };
    let check = match is_new {
        false => {
            "        if token.age(now) > DAY {\n            return Err(LinkError::Refused);\n        } // and say why\n"
        }
        true => {
            "        let age = token.age(now);\n        if age > DAY {\n            return \
             Err(LinkError::Expired { age });\n        }\n"
        }
    };
    let variant = match is_new {
        false => "",
        true => {
            "    /// The token was ours and is older than a day.\n    Expired {\n        /// Shown on \
             the page, so that the owner understands what happened.\n        age: Duration,\n    },\n"
        }
    };
    let answer = match is_new {
        false => "",
        true => {
            "            LinkError::Expired { age } => {\n                let page = \
             expired_page(age);\n                (StatusCode::GONE, Html(page))\n                    \
             .into_response()\n            }\n"
        }
    };
    [
        &filler(1, 56),
        "impl Link {\n    pub fn verify(&self, now: Timestamp) -> Result<Owner, LinkError> {\n        let \
         token = self.token()?;\n",
        check,
        "        token.owner()\n    }\n}\n",
        &filler(66, 89),
        "enum LinkError {\n    /// The token is not one of ours.\n    Refused,\n",
        variant,
        "    Used,\n}\n",
        &filler(95, 118),
        "impl IntoResponse for LinkError {\n    fn into_response(self) -> Response {\n        match self \
         {\n",
        answer,
        "            _ => StatusCode::NOT_FOUND.into_response(),\n        }\n    }\n}\n",
    ]
    .concat()
}
