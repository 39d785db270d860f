//! Commands in containers, where only mounted files are this machine's.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::message::subject;
use super::rules::{self, CommandInvocation, Hit, finding, flag_values, valued_options};
use super::run::program_name;
use super::value::{Argument, KnownOutput};
use super::walk::ShellWalker;
use super::wrappers::{skip_options, split_options};
use super::{Family, Tier, normalize_path};

#[derive(Debug)]
pub(super) struct Container {
    /// Existed before the command, so its mounts are unknown.
    is_preexisting: bool,
    /// Pairs of a path on this machine and the path inside.
    mounts: Vec<(PathBuf, PathBuf)>,
}

/// Families whose harm reaches the host.
const HOST_ACCESS: &[Family] = &[
    Family::Databases,
    Family::Cloud,
    Family::Publishing,
    Family::Exfiltration,
    Family::Remote,
    Family::Resources,
];

fn is_scratch_path(path: &Argument) -> bool {
    ["/tmp/", "/var/tmp/", "/var/cache/"].iter().any(|place| path.text.starts_with(place))
        && !path.text.contains("..")
}

impl ShellWalker<'_> {
    /// `docker exec NAME COMMAND`, `docker run IMAGE COMMAND`, `kubectl exec NAME -- COMMAND`.
    pub(super) fn check_container(
        &mut self,
        name: &str,
        args: &[Argument],
        stdin: Option<&KnownOutput>,
    ) {
        let rest = skip_options(args, valued_options(name));
        let Some(at) = rest.iter().position(|arg| ["exec", "run"].contains(&arg.text.as_str()))
        else {
            return;
        };
        let cluster = name == "kubectl" || name == "oc";
        let is_exec = rest.get(at).is_some_and(|sub| sub.text == "exec");
        let rest = rest.get(at + 1..).unwrap_or_default();
        let (options, inner) = split_options(rest, valued_options(name));
        let mut command = match rest.iter().position(|arg| arg.text == "--") {
            Some(at) if cluster => rest.get(at + 1..).unwrap_or_default(),
            _ => inner.get(1..).unwrap_or_default(),
        }
        .to_vec();
        if let Some(program) = flag_values(options, &["--entrypoint"]).pop() {
            command.insert(0, program);
        }
        if command.is_empty() {
            return;
        }
        let container = Container { is_preexisting: is_exec, mounts: self.mounts(options) };
        let outer = self.container.clone();
        self.container = (!cluster).then(|| Rc::new(container));
        let inside = flag_values(options, &["-w", "--workdir"]).pop();
        self.with_copied_state(|walk| {
            let inside = inside.map(|arg| PathBuf::from(arg.text));
            walk.state.cwd = inside.filter(|path| path.is_absolute());
            walk.run(&command, stdin)
        });
        self.container = outer;
    }

    fn mounts(&self, options: &[Argument]) -> Vec<(PathBuf, PathBuf)> {
        let cwd = self.state.cwd.clone().unwrap_or_default();
        let mounts = rules::mounts(options).into_iter();
        mounts
            .filter(|mount| !mount.is_read_only && mount.host.contains(['/', '.']))
            .filter_map(|mount| {
                let inside = normalize_path(Path::new(&mount.inside?))?;
                Some((normalize_path(&cwd.join(mount.host))?, inside))
            })
            .collect()
    }

    /// Reports a hit if it matters on the host.
    pub(super) fn report_contained(&mut self, argv: &[Argument], hit: Hit, container: &Container) {
        if HOST_ACCESS.contains(&hit.family) {
            self.record_finding(subject(argv), hit);
            return;
        }
        let [program, args @ ..] = argv else { return };
        if hit.family != Family::Files {
            return;
        }
        let cwd = self.state.cwd.clone();
        let inside = |arg: &Argument| normalize_path(&cwd.as_deref()?.join(&arg.text));
        let outside = |arg: &Argument| {
            let path = match arg.text.starts_with('/') {
                true => normalize_path(Path::new(&arg.text))?,
                false => inside(arg)?,
            };
            container.mounts.iter().find_map(|(host, inside)| {
                match (path.strip_prefix(inside), inside.starts_with(&path)) {
                    (Ok(rest), _) => Some(host.join(rest)),
                    (_, true) => Some(host.clone()),
                    _ => None,
                }
            })
        };
        let is_flag = |arg: &Argument| arg.text.starts_with('-');
        let translated: Vec<Argument> = args
            .iter()
            .filter_map(|arg| match is_flag(arg) {
                true => Some(arg.clone()),
                false => outside(arg).map(|path| Argument {
                    text: path.to_string_lossy().into_owned(),
                    ..arg.clone()
                }),
            })
            .collect();
        if translated.iter().any(|arg| !is_flag(arg)) {
            let name = program_name(&program.text);
            let command_context = self.command_context(None);
            let hits = rules::check_all(&CommandInvocation {
                name: &name,
                args: &translated,
                context: &command_context,
            });
            for hit in hits {
                self.record_finding(subject(argv), hit);
            }
        } else if container.is_preexisting
            && hit.tier == Tier::Deny
            && !args.iter().filter(|arg| !is_flag(arg)).all(is_scratch_path)
        {
            let deletes_root = args.iter().any(|arg| ["/", "/*"].contains(&arg.text.as_str()));
            let tier = if deletes_root { Tier::Deny } else { Tier::Warn };
            let hit = Hit { tier, ..finding("container_files_deleted") };
            self.record_finding(subject(argv), hit);
        }
    }
}
