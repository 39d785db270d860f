//! Publishing and supply chain.

use super::{CommandInvocation, Hit, finding, rules_of};
use crate::Family::Publishing;
use crate::value::Argument;

fn check_registry(command: &CommandInvocation<'_>) -> Option<Hit> {
    const DEFAULT_REGISTRIES: &[&str] = &["https://pypi.org/", "https://registry.npmjs.org/"];
    const INSTALL_SUBCOMMANDS: &[&str] = &["install", "i", "add", "ci"];
    let is_foreign = match command.name {
        "pip" | "uv" => {
            let flags =
                ["--index-url", "--extra-index-url", "--trusted-host", "--find-links", "-i"];
            let urls = command.values(&flags);
            // Without an index, packages come from a local directory.
            let is_local =
                |url: &Argument| command.has(&["--no-index"]) && !url.text.contains("://");
            let has_foreign_url = urls
                .iter()
                .any(|url| !is_default_registry(DEFAULT_REGISTRIES, &url.text) && !is_local(url));
            has_foreign_url || (urls.is_empty() && command.has(&flags))
        }
        "npm" | "pnpm" | "yarn" | "bun" if INSTALL_SUBCOMMANDS.contains(&command.subcommand()) => {
            let urls = command.values(&["--registry"]);
            let has_foreign_url =
                urls.iter().any(|url| !is_default_registry(DEFAULT_REGISTRIES, &url.text));
            has_foreign_url || (urls.is_empty() && command.has(&["--registry"]))
        }
        _ => false,
    };
    is_foreign.then(|| finding("foreign_registry"))
}

fn is_default_registry(defaults: &[&str], url: &str) -> bool {
    let url = format!("{}/", url.trim_end_matches('/'));
    defaults.iter().any(|registry| url.starts_with(registry))
}

fn check_url_package(command: &CommandInvocation<'_>) -> Option<Hit> {
    const PYTHON: &[&str] = &["pip", "uv", "poetry", "pdm", "pipenv", "easy_install", "conda"];
    const NODE: &[&str] = &["npm", "pnpm", "yarn", "bun"];
    const INSTALLS: &[&str] = &["install", "i", "in", "add", "isntall"];
    if !command.is(PYTHON) && !command.is(NODE) {
        return None;
    }
    let operands = command.operands();
    // `uv pip install`
    let sub = operands.iter().take(2).position(|arg| INSTALLS.contains(&arg.text.as_str()))?;
    let packages = operands.get(sub + 1..).unwrap_or_default();
    let is_url = |package: &&&Argument| {
        let text = package.text.as_str();
        // `name @ address`, `name@address`
        let address = text.split_once('@').map_or(text, |(name, rest)| {
            if name.contains([':', '/']) { text } else { rest.trim_start() }
        });
        let hosted = ["github:", "gitlab:", "bitbucket:", "gist:"];
        let name = text.split('#').next().unwrap_or_default();
        let scoped = name.starts_with(['@', '.', '/', '~']) || name.contains(':');
        (address.contains("://") && !address.starts_with("file:"))
            || address.starts_with("git@")
            || text.starts_with("git@")
            || hosted.iter().any(|host| address.starts_with(host))
            // `user/repository`
            || (command.is(NODE) && !scoped && name.matches('/').count() == 1)
    };
    packages.iter().find(is_url)?;
    Some(finding("package_from_address"))
}

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    hits.extend(check_registry(command));
    hits.extend(check_url_package(command));
    let text = |word: &str| command.args.iter().any(|arg| arg.text == word);
    if command.is(&["python"]) && text("setup.py") && (text("upload") || text("register")) {
        hits.push(finding("package_published"));
    }
    if command.name == "python"
        && let Some(at) = command.args.iter().position(|arg| arg.text == "-m")
        && let Some((module, args)) = command.args.get(at + 1..).and_then(<[_]>::split_first)
        && ["pip", "twine", "flit", "poetry", "pipx"].contains(&module.text.as_str())
    {
        let inner = CommandInvocation { name: &module.text, args, context: command.context };
        hits.extend(check_registry(&inner));
        hits.extend(check_url_package(&inner));
        hits.extend(rules_of(Publishing).filter_map(|rule| rule.check(&inner)));
    }
    // Without a subcommand they deploy.
    let harmless = ["--help", "-h", "--version", "-v"];
    if command.is(&["vercel", "now"])
        && command.operands().first().is_none_or(|arg| arg.text.starts_with(['.', '/']))
        && !command.args.iter().any(|arg| harmless.contains(&arg.text.as_str()))
    {
        hits.push(finding("deployment"));
    }
    if command.is(&["pip", "npm", "pnpm", "yarn", "bun", "gem", "easy_install"])
        && command.operands().iter().skip(1).any(|arg| {
            arg.text.starts_with("http://")
                || arg.text.starts_with("git+http:")
                || arg.text.starts_with("ftp://")
        })
    {
        hits.push(finding("package_over_open_connection"));
    }
}
