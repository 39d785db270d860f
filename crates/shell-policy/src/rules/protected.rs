//! The paths that are not for an agent: to write, or even to read.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Component, Path};

use super::places::{PartialPath, WILDCARDS, matches_name};
use crate::value::glob_match;
use crate::{Context, Family, Tier};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    Read,
    Write,
}

pub(super) struct ProtectedPath {
    /// `~/…` below the home, `./…` below the project, `/…` anywhere else, `**/…` everywhere. An entry
    /// means what is below it, too.
    paths: &'static [&'static str],
    /// Exceptions, by the last component.
    except: &'static [&'static str],
    reads: bool,
    pub(super) tier: Tier,
    pub(super) family: Family,
    pub(super) reason: &'static str,
    pub(super) suggestion: &'static str,
}

const SECRET: ProtectedPath = ProtectedPath {
    paths: &[],
    except: &[],
    reads: true,
    tier: Tier::Deny,
    family: Family::Secrets,
    reason: "it holds secrets",
    suggestion: "work without it, or ask for what you need to know of it",
};

/// The first entry that fits decides.
const PROTECTED: &[ProtectedPath] = &[
    ProtectedPath {
        paths: &["~/.ssh/authorized_keys", "~/.ssh/config", "~/.ssh/rc"],
        family: Family::Persistence,
        reason: "it decides who may log in, or what happens then",
        suggestion: "leave it",
        ..SECRET
    },
    ProtectedPath {
        paths: &[
            "~/.ssh",
            "~/.aws",
            "~/.gnupg",
            "~/.kube",
            "~/.azure",
            "~/.config/gcloud",
            "~/.config/gh",
            "~/.docker/config.json",
            "~/.netrc",
            "~/_netrc",
            "~/.npmrc",
            "~/.pypirc",
            "~/.pgpass",
            "~/.my.cnf",
            "~/.git-credentials",
            "~/.config/git/credentials",
            "~/.cargo/credentials",
            "~/.cargo/credentials.toml",
            "~/.gem/credentials",
            "~/.vault-token",
            "~/.password-store",
            "~/.local/share/keyrings",
            "~/Library/Keychains",
            "~/.terraform.d/credentials.tfrc.json",
            "~/.config/op",
            "~/.config/rclone",
            "~/.config/doctl",
            "~/.config/hub",
            "~/.config/heroku",
            "~/.claude/.credentials.json",
            "~/.claude.json",
            "~/.codex/auth.json",
            "~/.gemini/oauth_creds.json",
            "~/.config/google-chrome",
            "~/.config/chromium",
            "~/.mozilla",
            "~/Library/Cookies",
            "~/Library/Application Support/Google/Chrome",
            "~/Library/Application Support/Firefox",
            "~/.bash_history",
            "~/.zsh_history",
            "~/.python_history",
            "~/.psql_history",
            "~/.mysql_history",
            "~/.node_repl_history",
            "~/.local/share/fish/fish_history",
            "~/.bitcoin",
            "~/.ethereum",
            "~/.electrum",
            "~/.config/sops",
            "~/.age",
            "~/.boto",
            "~/.s3cfg",
            "~/.oci",
            "~/.fly",
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/sudoers.d",
            "/etc/ssl/private",
            "/etc/krb5.keytab",
            "/proc/*/environ",
            "/proc/*/mem",
            "/proc/kcore",
            "/dev/mem",
            "/dev/kmem",
            "/root/.ssh",
            "/root/.aws",
            "/var/run/secrets",
            "/run/secrets",
        ],
        except: &["*.pub", "known_hosts", "known_hosts.old"],
        ..SECRET
    },
    ProtectedPath {
        paths: &[
            "**/id_rsa",
            "**/id_dsa",
            "**/id_ecdsa",
            "**/id_ed25519",
            "**/*.p12",
            "**/*.pfx",
            "**/*.kdbx",
            "**/*.keystore",
            "**/*.jks",
            "**/*private*.pem",
            "**/*key.pem",
            "**/*.key",
            "**/.htpasswd",
            "**/.vault_pass",
            "**/credentials.json",
            "**/service-account*.json",
            "**/.netrc",
            "**/.git-credentials",
            "**/secrets.yml",
            "**/secrets.yaml",
            "**/master.key",
        ],
        except: &["*public*", "*.pub", "*example*"],
        ..SECRET
    },
    ProtectedPath {
        paths: &["/dev/sd*", "/dev/nvme*", "/dev/disk*", "/dev/rdisk*", "/dev/vd*", "/dev/mapper"],
        family: Family::Disks,
        reason: "it is a whole disk",
        suggestion: "work on files in the project",
        ..SECRET
    },
    // Made from an example when a project is set up, so that writing is only noted.
    ProtectedPath {
        paths: &["**/.env", "**/.env.*", "**/.envrc"],
        except: &[
            "*.example",
            "*.sample",
            "*.template",
            "*.dist",
            "*.defaults",
            "*.schema",
            "*.ts",
            "*.js",
            "*.mjs",
            "*.cjs",
            "*.py",
            "*.rb",
            "*.go",
            "*.rs",
            "*.md",
        ],
        ..SECRET
    },
    ProtectedPath {
        paths: &["**/.git/hooks", "./.husky/_"],
        reads: false,
        family: Family::Persistence,
        reason: "git hooks run by themselves, later, outside of any sandbox",
        suggestion: "run the check yourself, or ask for the hook",
        ..SECRET
    },
    ProtectedPath {
        paths: &["**/.hg/hgrc", "**/.jj/repo/config.toml"],
        reads: false,
        family: Family::Paths,
        reason: "the repository's configuration decides which programs run",
        suggestion: "leave it; say in your answer what should change",
        ..SECRET
    },
    ProtectedPath {
        paths: &["**/.git"],
        reads: false,
        family: Family::Paths,
        reason: "git's own files decide what git runs and what the history is",
        suggestion: "use git's commands",
        ..SECRET
    },
    ProtectedPath {
        paths: &[
            "./.ralph/settings.json",
            "./.ralph/settings.local.json",
            "./.ralph/config*",
            "./.ralph/prompts",
            "./.ralph/runs",
            "./.ralph/*.lock",
            "./.ralph/lock",
            "./.ralph/locks",
            "./.ralph/logs",
            "./.ralph/guardrail_*.log",
            "./.ralph/prompt_*.txt",
            "./.ralph/side_*.txt",
            "./.ralph/.gitignore",
            "./.ralph-active",
            "~/.ralph",
        ],
        reads: false,
        family: Family::Paths,
        reason: "it decides how the loop that runs you works, or is its record",
        suggestion: "leave it; say in your answer what should change",
        ..SECRET
    },
    ProtectedPath {
        paths: &[
            "**/.claude/settings*.json",
            "**/.claude/hooks",
            "~/.claude/plugins",
            "~/.claude/commands",
            "**/.mcp.json",
            "**/.codex/config.toml",
            "**/.gemini/settings.json",
            "**/opencode.json",
            "**/opencode.jsonc",
            "~/.config/opencode",
        ],
        reads: false,
        family: Family::Paths,
        reason: "it decides what an agent may do, and what runs around it",
        suggestion: "leave it; say in your answer what should change",
        ..SECRET
    },
    ProtectedPath {
        paths: &[
            "~/.bashrc",
            "~/.bash_profile",
            "~/.bash_login",
            "~/.bash_logout",
            "~/.bash_aliases",
            "~/.profile",
            "~/.zshrc",
            "~/.zshenv",
            "~/.zprofile",
            "~/.zlogin",
            "~/.zlogout",
            "~/.kshrc",
            "~/.cshrc",
            "~/.config/fish",
            "~/.config/autostart",
            "~/.config/systemd",
            "~/.local/share/systemd",
            "~/Library/LaunchAgents",
            "~/Library/LaunchDaemons",
            "~/.xinitrc",
            "~/.xprofile",
            "~/.xsession",
            "~/.pam_environment",
            "~/.inputrc",
            "~/.tmux.conf",
            "~/.vimrc",
            "~/.config/nvim",
            "~/.emacs",
            "~/.gitconfig",
            "~/.config/git",
            "~/.npmrc",
            "~/.pip/pip.conf",
            "~/.config/pip",
            "~/.cargo/config.toml",
            "~/.cargo/bin",
            "~/.local/bin",
            "~/bin",
            "~/.ssh",
            "~/.yarnrc",
            "~/.bunfig.toml",
            "~/.condarc",
            "/etc/cron.d",
            "/etc/cron.daily",
            "/etc/cron.hourly",
            "/etc/cron.weekly",
            "/etc/cron.monthly",
            "/etc/crontab",
            "/var/spool/cron",
            "/var/spool/at",
            "/etc/systemd",
            "/lib/systemd",
            "/usr/lib/systemd",
            "/etc/init.d",
            "/etc/rc.local",
            "/etc/profile",
            "/etc/profile.d",
            "/etc/bash.bashrc",
            "/etc/zsh",
            "/etc/environment",
            "/etc/ld.so.preload",
            "/etc/ld.so.conf",
            "/etc/pam.d",
            "/etc/gitconfig",
            "/Library/LaunchAgents",
            "/Library/LaunchDaemons",
            "/etc/xdg/autostart",
            "/etc/update-motd.d",
        ],
        reads: false,
        family: Family::Persistence,
        reason: "what stands there runs again later, without being asked for",
        suggestion: "do it in the project, for the time of this work",
        ..SECRET
    },
    ProtectedPath {
        paths: &["/dev/shm", "/dev/pts", "/dev/null"],
        reads: false,
        tier: Tier::Warn,
        family: Family::Paths,
        reason: "it writes outside of the project",
        suggestion: "keep what you write inside of the project",
        ..SECRET
    },
    ProtectedPath {
        paths: &["/dev", "/boot", "/efi"],
        reads: false,
        family: Family::Disks,
        reason: "it is a device, or what the machine starts from",
        suggestion: "write to a file in the project",
        ..SECRET
    },
    ProtectedPath {
        paths: &["/proc", "/sys"],
        reads: false,
        family: Family::Processes,
        reason: "it changes the running kernel, or a process",
        suggestion: "leave it",
        ..SECRET
    },
    ProtectedPath {
        paths: &[
            "/etc",
            "/bin",
            "/sbin",
            "/lib",
            "/lib32",
            "/lib64",
            "/usr",
            "/opt",
            "/root",
            "/run",
            "/snap",
            "/var/lib",
            "/var/log",
            "/var/www",
            "/var/run",
            "/System",
            "/Library",
            "/Applications",
            "/private/etc",
            "/nix",
        ],
        reads: false,
        family: Family::System,
        reason: "it belongs to the system, not to the project",
        suggestion: "keep what you write inside of the project",
        ..SECRET
    },
];

/// The entry that a path falls under.
pub(super) fn find(
    context: &Context<'_>,
    place: &PartialPath,
    access: FileAccess,
) -> Option<&'static ProtectedPath> {
    let path = PathComponents::new(context, place);
    PROTECTED
        .iter()
        .find(|entry| {
            if access == FileAccess::Read && !entry.reads {
                return false;
            }
            entry
                .paths
                .iter()
                .any(|pattern| path.matches(pattern) && !path.is_inside_project_or_home(pattern))
                && !is_exempt(entry, place)
                && !(entry.paths.contains(&"**/*.key") && is_for_tests(context, place))
        })
        .map(|entry| {
            let env = entry.paths.contains(&"**/.env");
            if env && access == FileAccess::Write { &ENV_WRITTEN } else { entry }
        })
}

const ENV_WRITTEN: ProtectedPath = ProtectedPath {
    tier: Tier::Warn,
    reason: "a file of secrets is written",
    suggestion: "put no secret into it that was not there before, and do not commit it",
    ..SECRET
};

/// Keys and certificates that stand among a project's tests are made up.
fn is_for_tests(context: &Context<'_>, place: &PartialPath) -> bool {
    const TESTS: &[&str] =
        &["test", "tests", "testing", "testdata", "fixtures", "__tests__", "spec"];
    let Ok(inside) = place.base.strip_prefix(context.project) else { return false };
    let known = inside.parent().into_iter().flat_map(Path::components);
    !place.is_uncertain
        && known
            .map(|component| component.as_os_str().to_string_lossy().to_ascii_lowercase())
            .any(|name| TESTS.contains(&name.as_str()))
}

fn is_exempt(entry: &ProtectedPath, place: &PartialPath) -> bool {
    let last = match place.rest.last() {
        Some(last) => last.clone(),
        None => match place.base.file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => return false,
        },
    };
    entry.except.iter().any(|pattern| glob_match(pattern, &last.to_ascii_lowercase()))
}

/// A path, taken apart once for the hundreds of entries that it is compared with.
struct PathComponents<'a> {
    /// All of its components.
    names: Vec<PathComponent<'a>>,
    /// How many of them are the home's, or the project's, if it is in there.
    home: Option<usize>,
    project: Option<usize>,
    context: &'a Context<'a>,
}

struct PathComponent<'a> {
    text: Cow<'a, str>,
    lower: String,
    /// Whether it is a pattern, or may be anything.
    is_wild: bool,
}

impl<'a> PathComponents<'a> {
    fn new(context: &'a Context<'a>, place: &'a PartialPath) -> Self {
        let names = normal_components(&place.base)
            .map(OsStr::to_string_lossy)
            .chain(place.rest.iter().map(|name| Cow::Borrowed(name.as_str())));
        let depth_of =
            |root: &Path| place.base.starts_with(root).then(|| normal_components(root).count());
        PathComponents {
            names: names.map(PathComponent::new).collect(),
            home: context.home.and_then(depth_of),
            project: depth_of(context.project),
            context,
        }
    }

    fn matches(&self, pattern: &str) -> bool {
        if let Some(names) = pattern.strip_prefix("**/") {
            // `*.json` means all of a kind, not the one of them that may hold secrets.
            let meant =
                |name: &PathComponent<'_>| !name.matches_any_name() || names.starts_with('.');
            return self
                .names
                .iter()
                .enumerate()
                .any(|(at, name)| meant(name) && self.matches_from(at, names));
        }
        let (from, names) = match pattern.split_once('/') {
            Some(("~", names)) => (self.home, names),
            Some((".", names)) => (self.project, names),
            Some((_, names)) => (Some(0), names),
            None => (Some(0), pattern),
        };
        from.is_some_and(|from| self.matches_from(from, names))
    }

    fn matches_from(&self, from: usize, names: &str) -> bool {
        let mut ours = self.names.iter().skip(from);
        names.split('/').all(|name| ours.next().is_some_and(|component| component.matches(name)))
    }

    /// A project may well live below /opt, and root's home is /root: what is in them belongs to them.
    fn is_inside_project_or_home(&self, pattern: &str) -> bool {
        let Context { home, project, .. } = self.context;
        match pattern.as_bytes().first() {
            Some(b'/') => {
                self.project.is_some()
                    || self.home.is_some() && home.is_some_and(|home| home.starts_with(pattern))
            }
            Some(b'~') => self.project.is_some() && *home != Some(project),
            _ => false,
        }
    }
}

impl<'a> PathComponent<'a> {
    fn new(text: Cow<'a, str>) -> Self {
        PathComponent { lower: text.to_ascii_lowercase(), is_wild: text.contains(WILDCARDS), text }
    }

    /// `*.json`: nothing is said but how it ends.
    fn matches_any_name(&self) -> bool {
        self.is_wild
            && self.text.rsplit_once('.').is_some_and(|(stem, _)| stem.chars().all(|c| c == '*'))
    }

    fn matches(&self, name: &str) -> bool {
        if name.contains('*') {
            return glob_match(name, &self.lower) && !self.text.contains(['*', '?', '[']);
        }
        match self.is_wild {
            true => matches_name(&self.text, name),
            false => self.text.eq_ignore_ascii_case(name),
        }
    }
}

fn normal_components(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}
