//! Decides which paths and programs may be used outside the sandbox.
//!
//! Agents can write to the project and a few other directories (package caches,
//! `sandbox.writable`). What lies there may be the agent's: a program on the `PATH`, a link to
//! `~/.ssh`. ralph asks here before it executes, mounts or follows anything.
//!
//! Programs that ralph runs for itself (git, tmux, `docker`) are an [`OutsideCommand`]. Agents and
//! guardrails without a sandbox get the user's own environment.

mod code_env;

pub use code_env::changed_env;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Once, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::file_names::NameRule;
use crate::{CommandOutput, Launch};
use ralph_events::error::Error;

/// Searched last if a directory was left out.
const SYSTEM_DIRS: [&str; 2] = ["/usr/bin", "/bin"];

/// As in the kernel.
const MAX_LINKS: usize = 40;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentWritable {
    dirs: BTreeSet<PathBuf>,
    names: NameRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    /// Without links. Its last parts need not exist.
    pub target: PathBuf,
    /// The agent-writable directories that the path, a link or the target is in.
    pub visited: Vec<PathBuf>,
}

impl ResolvedPath {
    /// Whether no agent can change it.
    pub fn is_trusted(&self) -> bool {
        self.visited.is_empty()
    }

    /// The agent-writable directory that a link leads out of. Heeds case: names that differ in it
    /// may be different directories.
    pub fn escaped_dir(&self) -> Option<&Path> {
        self.visited.iter().find(|dir| !self.target.starts_with(dir)).map(PathBuf::as_path)
    }
}

impl AgentWritable {
    /// `dirs` are absolute and without links.
    pub fn new(dirs: impl IntoIterator<Item = PathBuf>) -> Self {
        AgentWritable { dirs: dirs.into_iter().collect(), names: NameRule::NATIVE }
    }

    #[must_use]
    pub fn with_names(self, names: NameRule) -> Self {
        AgentWritable { names, ..self }
    }

    pub fn names(&self) -> NameRule {
        self.names
    }

    /// Resolves links; ignores relative paths.
    pub fn add(&mut self, dir: &Path) {
        if dir.is_absolute() {
            self.dirs.insert(dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
        }
    }

    /// `dirs` are absolute and without links.
    #[must_use]
    pub fn union(&self, dirs: impl IntoIterator<Item = PathBuf>) -> AgentWritable {
        AgentWritable { dirs: self.dirs.iter().cloned().chain(dirs).collect(), names: self.names }
    }

    /// `None` for a relative path or a link cycle.
    pub fn resolve(
        &self,
        path: &Path,
        mut read_link: impl FnMut(&Path) -> Option<PathBuf>,
    ) -> Option<ResolvedPath> {
        if !path.is_absolute() {
            return None;
        }
        let parts = |path: &Path| {
            path.components().map(|part| part.as_os_str().to_owned()).rev().collect::<Vec<_>>()
        };
        let (mut rest, mut target, mut links) = (parts(path), PathBuf::from("/"), 0);
        let mut visited = BTreeSet::new();
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => target.push(name),
                Some(Component::ParentDir) => {
                    target.pop();
                }
                Some(Component::RootDir) => target = PathBuf::from("/"),
                Some(Component::CurDir | Component::Prefix(_)) | None => {}
            }
            let holds = |dir: &&PathBuf| self.names.starts_with(&target, dir);
            visited.extend(self.dirs.iter().filter(holds).cloned());
            if let Some(link) = read_link(&target) {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                rest.extend(parts(&link));
                target.pop();
            }
        }
        Some(ResolvedPath { target, visited: visited.into_iter().collect() })
    }

    /// Finds a link that leads out of an agent-writable directory. Directories that contain the
    /// home directory or the system do not count: their links are the user's.
    pub fn find_escaping_link(&self, path: &Path, home: Option<&Path>) -> Option<EscapingLink> {
        let mut links = Vec::new();
        let resolved = self.resolve(path, |path| {
            let link = fs::read_link(path).ok()?;
            links.push(path.to_owned());
            Some(link)
        })?;
        let target = resolved.target;
        links.into_iter().find_map(|link| {
            let is_escaped =
                |dir: &&PathBuf| self.names.starts_with(&link, dir) && !target.starts_with(dir);
            let mut escaped = self.dirs.iter().filter(is_escaped);
            let dir = escaped.find(|dir| !contains_home_or_system(dir, home))?.clone();
            Some(EscapingLink { link, dir, target: target.clone() })
        })
    }

    /// Whether no agent can change an absolute path or its target.
    pub fn is_trusted(&self, path: &Path) -> bool {
        let resolved = self.resolve(path, |path| std::fs::read_link(path).ok());
        resolved.is_some_and(|resolved| resolved.is_trusted())
    }

    fn trust(&self, path: &Path, home: Option<&Path>) -> Trust {
        let Some(resolved) = self.resolve(path, |path| std::fs::read_link(path).ok()) else {
            return Trust::Never;
        };
        match resolved.visited.as_slice() {
            [] => Trust::Full,
            visited if visited.iter().all(|dir| contains_home_or_system(dir, home)) => {
                Trust::LastResort
            }
            _ => Trust::Never,
        }
    }

    /// The trusted directories of a `PATH`. Links inside them are not checked. Those in a project
    /// that contains the home directory or the system come last: without them there may be no
    /// programs, and an agent there could change the user's shell anyway.
    pub fn trusted_path(&self, path: Option<&OsStr>, home: Option<&Path>) -> OsString {
        let dirs: Vec<PathBuf> = path.map(std::env::split_paths).into_iter().flatten().collect();
        let with = |trust| dirs.iter().filter(move |dir| self.trust(dir, home) == trust).cloned();
        let mut trusted: Vec<PathBuf> = with(Trust::Full).chain(with(Trust::LastResort)).collect();
        if trusted.len() < dirs.len() || dirs.is_empty() {
            let missing = SYSTEM_DIRS.map(PathBuf::from);
            trusted.extend(missing.into_iter().filter(|dir| !dirs.contains(dir)));
        }
        std::env::join_paths(&trusted).unwrap_or_else(|_| SYSTEM_DIRS.join(":").into())
    }

    /// Finds a program in trusted directories. The file must be trusted, too: a link from `~/bin`
    /// into the project is not.
    ///
    /// # Errors
    /// There is none, or only an agent-writable one.
    pub fn find_program(
        &self,
        name: &OsStr,
        path: Option<&OsStr>,
        home: Option<&Path>,
    ) -> Result<PathBuf, ProgramNotFound> {
        let trusted = self.trusted_path(path, home);
        let found = std::env::split_paths(&trusted).find_map(|dir| {
            let found = crate::find_program(name, Some(dir.as_os_str()), Path::new("/"))?;
            (self.trust(&found, home) != Trust::Never).then_some(found)
        });
        found.ok_or_else(|| {
            let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
            let untrusted = crate::find_program(name, path, &cwd);
            ProgramNotFound { name: name.to_owned(), untrusted }
        })
    }
}

fn contains_home_or_system(dir: &Path, home: Option<&Path>) -> bool {
    home.is_some_and(|home| home.starts_with(dir))
        || SYSTEM_DIRS.iter().any(|system| Path::new(system).starts_with(dir))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscapingLink {
    pub link: PathBuf,
    /// Agent-writable.
    pub dir: PathBuf,
    /// Where the whole path leads.
    pub target: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Full,
    /// In a project that contains the home directory or the system.
    LastResort,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramNotFound {
    pub name: OsString,
    /// Found in the user's `PATH`, but agent-writable.
    pub untrusted: Option<PathBuf>,
}

impl ProgramNotFound {
    pub fn error(&self, install: &str) -> Error {
        let error = Error::input(self.to_string());
        match self.untrusted {
            Some(_) => error.hint(INSTALL_OUTSIDE),
            None => error.hint(install),
        }
    }

    pub fn hint(&self) -> Option<&'static str> {
        self.untrusted.is_some().then_some(INSTALL_OUTSIDE)
    }
}

const INSTALL_OUTSIDE: &str = "install it outside the project, in a directory on the PATH";

impl fmt::Display for ProgramNotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.display();
        match self.untrusted.as_deref().and_then(Path::parent) {
            Some(dir) => {
                write!(f, "{name} was found only in {}, which agents can write to", dir.display())
            }
            None => write!(f, "{name} was not found"),
        }
    }
}

impl std::error::Error for ProgramNotFound {}

impl From<ProgramNotFound> for io::Error {
    fn from(error: ProgramNotFound) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, error)
    }
}

static AGENT_WRITABLE: RwLock<AgentWritable> =
    RwLock::new(AgentWritable { dirs: BTreeSet::new(), names: NameRule::NATIVE });
static LAZY_DIRS_FN: OnceLock<fn() -> Vec<PathBuf>> = OnceLock::new();
static LAZY_DIRS_LOADED: Once = Once::new();

/// Holds for the rest of this process.
pub fn declare_agent_writable(dir: &Path) {
    AGENT_WRITABLE.write().unwrap_or_else(PoisonError::into_inner).add(dir);
}

/// `load` lists more directories, at the first lookup.
pub fn declare_lazily(load: fn() -> Vec<PathBuf>) {
    // A second function is ignored.
    let _ = LAZY_DIRS_FN.set(load);
}

/// The directories declared so far.
pub fn agent_writable() -> AgentWritable {
    LAZY_DIRS_LOADED.call_once(|| {
        let dirs = LAZY_DIRS_FN.get().map(|load| load()).unwrap_or_default();
        dirs.iter().for_each(|dir| declare_agent_writable(dir));
    });
    AGENT_WRITABLE.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The user's `PATH`, for agents and guardrails only.
pub fn user_path() -> Option<OsString> {
    std::env::var_os("PATH")
}

fn home() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    home.canonicalize().ok().filter(|home| home != Path::new("/"))
}

/// Finds a program that ralph runs outside the sandbox.
///
/// # Errors
/// As [`AgentWritable::find_program`].
pub fn outside_program(name: &OsStr) -> Result<PathBuf, ProgramNotFound> {
    agent_writable().find_program(name, user_path().as_deref(), home().as_deref())
}

/// [`AgentWritable::find_escaping_link`] for all declared directories.
pub fn find_escaping_link(path: &Path) -> Option<EscapingLink> {
    agent_writable().find_escaping_link(path, home().as_deref())
}

/// Whether ralph may run this file outside the sandbox.
pub fn may_run_outside(program: &Path) -> bool {
    agent_writable().trust(program, home().as_deref()) != Trust::Never
}

/// The `PATH` of programs that ralph runs outside the sandbox.
pub fn outside_path() -> OsString {
    agent_writable().trusted_path(user_path().as_deref(), home().as_deref())
}

/// Variables to set or remove.
pub type EnvChanges = Vec<(OsString, Option<OsString>)>;

/// Returns `changes`, a trusted `PATH`, and the removal of variables that load code of an agent.
pub fn outside_env(changes: &[(OsString, Option<OsString>)]) -> EnvChanges {
    let untrusted = untrusted_env(changes).into_iter().map(|(name, _)| (name, None));
    let path = ("PATH".into(), Some(outside_path()));
    changes.iter().cloned().chain(untrusted).chain([path]).collect()
}

/// Variables that make a program load or run something agent-writable. `changes` apply to the
/// environment of this process.
pub fn untrusted_env(changes: &[(OsString, Option<OsString>)]) -> Vec<(OsString, OsString)> {
    agent_writable().untrusted_variables(changes, home().as_deref())
}

/// A program that ralph runs outside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideCommand {
    /// The resolved file, to prevent another search.
    program: OsString,
    /// See [`outside_env`].
    env: EnvChanges,
}

impl OutsideCommand {
    /// Finds `program` in a trusted directory. A path (with a slash) comes from the user and is
    /// used as it is.
    ///
    /// # Errors
    /// As [`outside_program`].
    pub fn find(
        program: &OsStr,
        env: &[(OsString, Option<OsString>)],
    ) -> Result<OutsideCommand, ProgramNotFound> {
        let is_path = program.as_bytes().contains(&b'/');
        let program =
            if is_path { program.to_owned() } else { outside_program(program)?.into_os_string() };
        Ok(OutsideCommand { program, env: outside_env(env) })
    }

    /// `original` with this program and environment.
    pub fn launch<'a>(&'a self, original: &Launch<'a>) -> Launch<'a> {
        Launch { program: &self.program, env: &self.env, ..original.clone() }
    }

    /// Runs it to its end; see [`crate::run_to_end()`].
    ///
    /// # Errors
    /// It cannot be started, times out, or is interrupted.
    pub fn run(
        &self,
        args: &[OsString],
        directory: &Path,
        timeout: Duration,
    ) -> io::Result<CommandOutput> {
        crate::run_to_end(&self.program, args, directory, &self.env, timeout)
    }

    pub fn program(&self) -> &OsStr {
        &self.program
    }

    pub fn env(&self) -> &[(OsString, Option<OsString>)] {
        &self.env
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn name_in_other_case_or_composition_is_agent_writable() {
        let dirs = ["/Users/me/shop", "/Users/me/caf\u{e9}"].map(PathBuf::from);
        let exact = AgentWritable::new(dirs).with_names(NameRule::Exact);
        let folded = exact.clone().with_names(NameRule::Folded);
        let link =
            |path: &Path| (path == Path::new("/opt/bin")).then(|| "/Users/me/SHOP/bin".into());
        for (path, dir) in [
            ("/Users/me/SHOP/.venv/bin/git", "/Users/me/shop"),
            ("/opt/bin/git", "/Users/me/shop"),
            ("/users/me/cafe\u{301}/bin/git", "/Users/me/caf\u{e9}"),
        ] {
            let visited =
                |rule: &AgentWritable| rule.resolve(Path::new(path), link).unwrap().visited;
            assert_eq!(visited(&folded), [Path::new(dir)], "{path}");
            assert!(visited(&exact).is_empty(), "{path}");
        }
        // It may be another directory, on a case-sensitive volume.
        let resolved = folded.resolve(Path::new("/Users/me/SHOP/x"), |_| None).unwrap();
        assert_eq!(resolved.escaped_dir(), Some(Path::new("/Users/me/shop")));
    }

    #[test]
    fn resolve_reports_every_writable_directory_on_path() {
        let links: BTreeMap<&str, &str> = [
            ("/p/.venv", "/home/me/.ssh"),
            ("/p/bin", "tools/bin"),
            ("/home/me/bin", "/p/bin"),
            ("/usr/lib64", "lib"),
            ("/loop", "/loop"),
            ("/p/up", "../etc"),
        ]
        .into();
        let read_link = |path: &Path| links.get(path.to_str()?).map(PathBuf::from);
        let writable = AgentWritable::new(["/p".into(), "/cache".into()]);
        for (path, target, passed, escapes) in [
            ("/usr/bin/git", "/usr/bin/git", &[][..], None),
            ("/usr/lib64/x", "/usr/lib/x", &[], None),
            ("/p/src", "/p/src", &["/p"], None),
            ("/p/bin/git", "/p/tools/bin/git", &["/p"], None),
            ("/p/.venv/bin", "/home/me/.ssh/bin", &["/p"], Some("/p")),
            ("/home/me/bin/git", "/p/tools/bin/git", &["/p"], None),
            ("/p/up/passwd", "/etc/passwd", &["/p"], Some("/p")),
            ("/p/../etc", "/etc", &["/p"], Some("/p")),
            ("/project", "/project", &[], None),
        ] {
            let resolved = writable.resolve(Path::new(path), read_link).unwrap();
            assert_eq!(resolved.target, Path::new(target), "{path}");
            assert_eq!(resolved.visited, passed.iter().map(PathBuf::from).collect::<Vec<_>>());
            assert_eq!(resolved.escaped_dir(), escapes.map(Path::new), "{path}");
            assert_eq!(resolved.is_trusted(), passed.is_empty(), "{path}");
        }
        assert_eq!(writable.resolve(Path::new("/loop/x"), read_link), None);
        assert_eq!(writable.resolve(Path::new("bin"), read_link), None);
    }

    #[test]
    fn link_out_finds_links_that_leave_the_project() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let [home, project, other] = ["home", "home/p", "home/other"].map(|name| root.join(name));
        fs::create_dir_all(project.join("packages/app")).unwrap();
        fs::create_dir_all(other.join("x")).unwrap();
        symlink("app", project.join("packages/same")).unwrap();
        symlink("../../other", project.join("packages/out")).unwrap();
        symlink(&project, home.join("mine")).unwrap();
        let writable = AgentWritable::new([project.clone()]);
        for (path, leads_out) in [
            ("p/packages/app", false),
            ("p/packages/same", false),
            ("p/packages/out", true),
            ("p/packages/out/x", true),
            ("mine/packages/out", true),
            ("mine/packages/app", false),
            ("p/../other", false),
            ("p/packages/out/../p", false),
        ] {
            let path = home.join(path);
            let found = writable.find_escaping_link(&path, Some(&home));
            assert_eq!(found.is_some(), leads_out, "{}", path.display());
            if let Some(found) = found {
                assert_eq!(found.link, project.join("packages/out"));
                assert_eq!(found.target, path.canonicalize().unwrap());
            }
        }
        // A project that contains the home directory has the user's links.
        let writable = AgentWritable::new([root]);
        assert_eq!(writable.find_escaping_link(&project.join("packages/out"), Some(&home)), None);
    }

    #[test]
    fn find_program_skips_directories_and_links_of_project() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let program = |path: &Path| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        program(&root.join("project/bin/tool"));
        program(&root.join("system/tool"));
        std::fs::create_dir(root.join("mine")).unwrap();
        symlink(root.join("project/bin/tool"), root.join("mine/tool")).unwrap();
        symlink(root.join("system"), root.join("project/linked")).unwrap();
        let mut writable = AgentWritable::default();
        writable.add(&root.join("project"));
        let dirs = ["project/bin", "project/linked", "mine", "system"].map(|dir| root.join(dir));
        let path = std::env::join_paths(dirs).unwrap();
        let found = writable.find_program("tool".as_ref(), Some(&path), None);
        assert_eq!(found, Ok(root.join("system/tool")));
        let system = ["/usr/bin", "/bin"].map(PathBuf::from);
        let trusted = ["mine", "system"].map(|dir| root.join(dir)).into_iter().chain(system);
        assert_eq!(
            writable.trusted_path(Some(&path), None),
            std::env::join_paths(trusted).unwrap()
        );
        let only = std::env::join_paths([root.join("mine"), root.join("project/bin")]).unwrap();
        let missing = writable.find_program("tool".as_ref(), Some(&only), None).unwrap_err();
        assert_eq!(
            missing.to_string(),
            format!(
                "tool was found only in {}, which agents can write to",
                root.join("mine").display()
            )
        );
        assert!(missing.hint().is_some());
        let missing = writable.find_program("no-such".as_ref(), Some(&path), None).unwrap_err();
        assert_eq!(missing.to_string(), "no-such was not found");
        assert_eq!(missing.hint(), None);
    }

    #[test]
    fn trusted_path_without_absolute_entries_is_system_path() {
        let writable = AgentWritable::default();
        let path = |text: &str| writable.trusted_path(Some(OsStr::new(text)), None);
        assert_eq!(path("bin::."), "/usr/bin:/bin");
        assert_eq!(path(":/bin"), "/bin:/usr/bin");
        assert_eq!(path("/opt/bin:/bin"), "/opt/bin:/bin", "a trusted PATH stays as it is");
        assert_eq!(writable.trusted_path(None, None), "/usr/bin:/bin");
    }

    #[test]
    fn trusted_path_with_home_as_project_puts_it_last() {
        let writable = AgentWritable::new(["/h/me".into(), "/h/me/p".into()]);
        let path = |writable: &AgentWritable, text: &str| {
            writable.trusted_path(Some(OsStr::new(text)), Some(Path::new("/h/me")))
        };
        let user = "/h/me/bin:/h/me/p/bin:/opt/bin";
        assert_eq!(path(&writable, user), "/opt/bin:/h/me/bin:/usr/bin:/bin");
        let everything = AgentWritable::new(["/".into()]);
        assert_eq!(path(&everything, "/usr/bin:/bin"), "/usr/bin:/bin");
        assert!(everything.find_program("sh".as_ref(), None, None).is_ok());
    }
}
