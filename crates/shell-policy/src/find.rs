//! `find` and `fd`: commands they run, files they delete, paths they print.

use super::rules::{finding, valued_options};
use super::value::{Argument, KnownOutput, TextOrigin, UNKNOWN_NAME};
use super::walk::ShellWalker;
use super::wrappers::skip_options;
use super::xargs::fill_in;

fn matched_paths(starts: &[Argument], names: &[String], is_partial: bool) -> Vec<Argument> {
    let mut all = Vec::new();
    // One unknown component stands for everything there, two for a part of it.
    let below =
        if is_partial { format!("{UNKNOWN_NAME}{UNKNOWN_NAME}") } else { UNKNOWN_NAME.to_string() };
    for start in starts {
        let start_text = start.text.trim_end_matches('/');
        let root = if start_text.is_empty() { "" } else { start_text };
        if names.is_empty() {
            all.push(Argument { text: format!("{root}/{below}"), ..start.clone() });
        }
        for name in names {
            let text = match name.contains('/') {
                // A pattern for the whole path: `./build/*`.
                true if name.starts_with(&format!("{root}/")) => name.clone(),
                true => format!("{root}/{UNKNOWN_NAME}{UNKNOWN_NAME}"),
                false => format!("{root}/{UNKNOWN_NAME}/{name}"),
            };
            all.push(Argument { text, glob: true, ..start.clone() });
        }
    }
    all
}

pub(super) fn check_find(walk: &mut ShellWalker<'_>, argv: &[Argument]) -> KnownOutput {
    let args = argv.get(1..).unwrap_or_default();
    let begins =
        |arg: &&Argument| arg.text.starts_with(['-', '(', ')', '!', ',']) && arg.text != "-";
    let links =
        args.iter().take_while(|arg| ["-H", "-L", "-P"].contains(&arg.text.as_str())).count();
    let args = args.get(links..).unwrap_or_default();
    let count = args.iter().position(|arg| begins(&arg)).unwrap_or(args.len());
    let (starts, tests) = args.split_at(count);
    let starts = match starts.len() {
        0 => vec![Argument::known(".")],
        _ => starts.to_vec(),
    };

    let mut actions: Vec<Vec<Argument>> = Vec::new();
    let mut delete = false;
    // Name tests before an action; `-o` resets them.
    let mut names: Vec<String> = Vec::new();
    let mut all_names: Vec<String> = Vec::new();
    let mut has_unnamed_action = false;
    let mut action_names: Vec<String> = Vec::new();
    let mut rest = tests.iter();
    let mut negated = false;
    let mut is_partial = false;
    // Whether there is a positive test, and whether `.git` is excluded.
    let mut tested = false;
    let mut spares_git = false;
    while let Some(test) = rest.next() {
        match test.text.as_str() {
            "!" | "-not" => {
                negated = true;
                continue;
            }
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" => {
                let name = rest.next();
                is_partial |= negated;
                spares_git |= negated && name.is_some_and(|name| name.text.ends_with("/.git/*"));
                if let Some(name) = name
                    && !negated
                {
                    let path = test.text.ends_with("path") || test.text == "-wholename";
                    if path || name.text.chars().any(|c| !"*?.".contains(c)) {
                        names.push(name.text.clone());
                    }
                }
            }
            "-o" | "-or" | "," => {
                tested = false;
                has_unnamed_action |= names.is_empty();
                all_names.append(&mut names);
            }
            "-delete" => {
                delete = true;
                action_names.append(&mut names.clone());
                has_unnamed_action |= names.is_empty();
            }
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let command: Vec<Argument> = rest
                    .by_ref()
                    .take_while(|arg| arg.text != ";" && arg.text != "+")
                    .cloned()
                    .collect();
                let paths = matched_paths(&starts, &names, is_partial);
                for path in paths.into_iter().take(8) {
                    let path = Argument { origin: TextOrigin::Computed, ..path };
                    actions.push(fill_in(&command, "{}", &path));
                }
            }
            "-fprint" | "-fls" | "-fprintf" | "-fprint0" => {
                if let Some(file) = rest.next() {
                    walk.report_write(argv, file);
                }
            }
            "-type" | "-maxdepth" | "-mindepth" | "-printf" => {
                rest.next();
            }
            "-mtime" | "-size" | "-newer" | "-user" | "-perm" | "-mmin" | "-regex" | "-iregex"
            | "-group" | "-atime" | "-ctime" | "-amin" | "-cmin" | "-inum" | "-samefile" => {
                is_partial = true;
                tested |= !negated;
                rest.next();
            }
            "-empty" | "-prune" | "-executable" => {
                is_partial = true;
                tested |= !negated && test.text != "-prune";
            }
            _ => {}
        }
        negated = false;
    }
    if delete {
        let names = if has_unnamed_action { &[][..] } else { &action_names };
        let (in_project, other_starts): (Vec<Argument>, Vec<Argument>) = {
            let command_context = walk.command_context(None);
            let is_filtered = tested && names.is_empty();
            starts
                .iter()
                .cloned()
                .partition(|start| is_filtered && command_context.is_project(start))
        };
        if !in_project.is_empty() {
            let name = if spares_git { "recursive_delete" } else { "search_deletes_git" };
            walk.report(argv, finding(name));
        }
        let paths = matched_paths(&other_starts, names, is_partial);
        let hits = paths.iter().filter_map(|path| walk.command_context(None).check_delete(path));
        let hits = hits.collect();
        walk.report_all(argv, hits);
    }
    for action in actions {
        walk.run(&action, None);
    }
    all_names.append(&mut names);
    KnownOutput::lines(&matched_paths(&starts, &all_names, is_partial))
}

/// `fd [OPTIONS] [PATTERN] [PATH…] [-x COMMAND…]`
pub(super) fn check_fd(walk: &mut ShellWalker<'_>, argv: &[Argument]) -> KnownOutput {
    let args = argv.get(1..).unwrap_or_default();
    let flags = ["-x", "-X", "--exec", "--exec-batch"];
    let at = args.iter().position(|arg| flags.contains(&arg.text.as_str())).unwrap_or(args.len());
    let (search, command) = args.split_at(at);
    let search = skip_options(search, valued_options("fd"));
    let starts = match search.get(1..) {
        Some(starts) if !starts.is_empty() => starts.to_vec(),
        _ => vec![Argument::known(".")],
    };
    let names: Vec<String> = search
        .first()
        .map(|pattern| {
            format!(
                "{UNKNOWN_NAME}{}{UNKNOWN_NAME}",
                pattern.text.trim_matches(['^', '$', '\\', '*'])
            )
        })
        .filter(|pattern| pattern.chars().count() > 3)
        .into_iter()
        .collect();
    let paths = matched_paths(&starts, &names, search.len() < args.len());
    if let Some(command) = command.get(1..).filter(|command| !command.is_empty()) {
        for path in paths.iter().take(8) {
            let mut words = fill_in(command, "{}", path);
            words.retain(|arg| arg.text != ";");
            if !command.iter().any(|arg| arg.text.contains("{}")) {
                words.push(path.clone());
            }
            walk.run(&words, None);
        }
    }
    KnownOutput::lines(&paths)
}
