//! The environment in a sandbox: proxy settings, and only secrets that the agent needs.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::home::agent_dir;
use super::places::PLACES;
use super::plan::{Disk, INSIDE_DIR, NetworkMode, PlanInputs};
use super::plan_builder::PlanBuilder;
use super::proxy;
use ralph_agents::profile_of;
use ralph_events::redact;

fn has_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a variable has the address of a service, as `ANTHROPIC_BASE_URL`.
pub(super) fn is_service_url(adapter: &str, name: &str) -> bool {
    let ends = ["_BASE_URL", "_API_BASE", "_API_URL", "_ENDPOINT"];
    ends.iter().any(|end| name.ends_with(end)) && has_prefix(name, profile_of(adapter).key_prefixes)
}

/// Neither keys nor names of keys.
const AWS_PUBLIC_VARIABLES: &[&str] = &["AWS_CA_BUNDLE", "AWS_DEFAULT_REGION", "AWS_REGION"];

const PROXY_VARIABLES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];

pub(super) fn get<'e>(env: &'e [(OsString, OsString)], name: &str) -> Option<&'e OsStr> {
    env.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_os_str())
}

/// `configured` are variables that the agent's own configuration names.
fn withheld_secrets(wanted: &PlanInputs, configured: &[String]) -> Vec<String> {
    let is_set = |name: &str| get(&wanted.env, name).is_some_and(|value| value != "0");
    let profile = profile_of(wanted.adapter);
    let clouds = || profile.extras.cloud_keys.iter().filter(|cloud| is_set(cloud.switch));
    let needed = |name: &str| {
        has_prefix(name, profile.key_prefixes)
            || configured.iter().any(|other| other == name)
            || clouds().any(|cloud| has_prefix(name, cloud.prefixes))
            || wanted.kept_variables.iter().any(|kept| kept == name)
    };
    let of_aws = |name: &str| name.starts_with("AWS_") && !AWS_PUBLIC_VARIABLES.contains(&name);
    // With the host's network, the user's proxy keeps its password.
    let is_proxy = |name: &str| name.to_ascii_lowercase().ends_with("_proxy");
    let variables = wanted.env.iter().filter_map(|(name, value)| Some((name.to_str()?, value)));
    let secrets = variables.filter(|(name, value)| {
        let is_secret = match is_proxy(name) {
            true => redact::looks_secret(name),
            false => redact::is_secret_variable(name, &value.to_string_lossy()),
        };
        (is_secret || of_aws(name)) && !PLACES.host_variables.contains(name)
    });
    let secrets = secrets.map(|(name, _)| name).filter(|name| !needed(name));
    let (of_git, mut withheld): (Vec<_>, Vec<_>) = secrets.partition(|name| is_git_setting(name));
    // Git fails with only some of these variables, so the agent gets all or none. Despite the "KEY" in
    // their names, they are secret only if a value is.
    let is_secret = |(name, value): &(OsString, OsString)| {
        name.to_str().is_some_and(is_git_setting) && is_secret_git_setting(&wanted.env, name, value)
    };
    if !of_git.is_empty() && wanted.env.iter().any(is_secret) {
        let names = wanted.env.iter().filter_map(|(name, _)| name.to_str());
        withheld.extend(names.filter(|name| is_git_setting(name)));
    }
    withheld.into_iter().map(str::to_owned).collect()
}

fn is_git_setting(name: &str) -> bool {
    name == "GIT_CONFIG_COUNT"
        || name.starts_with("GIT_CONFIG_KEY_")
        || name.starts_with("GIT_CONFIG_VALUE_")
}

/// Judges by the value and by the setting's name.
fn is_secret_git_setting(env: &[(OsString, OsString)], name: &OsStr, value: &OsStr) -> bool {
    let Some(number) = name.to_str().and_then(|name| name.strip_prefix("GIT_CONFIG_VALUE_")) else {
        return name.to_str().is_some_and(|name| name != "GIT_CONFIG_COUNT")
            && redact::holds_secret(&value.to_string_lossy());
    };
    let setting = get(env, &format!("GIT_CONFIG_KEY_{number}"));
    let setting = setting.map(OsStr::to_string_lossy).unwrap_or_default();
    redact::is_secret_variable(&setting.replace('.', "_"), &value.to_string_lossy())
}

fn configured_keys(
    wanted: &PlanInputs,
    home: Option<&Path>,
    draft: &PlanBuilder<'_>,
) -> Vec<String> {
    let Some(keys) = &profile_of(wanted.adapter).extras.configured_keys else { return Vec::new() };
    let dir = agent_dir(&keys.dir, wanted, home);
    // A file that agents can write could name any key.
    let file = dir.and_then(|dir| draft.trusted_target(&dir.join(keys.file)));
    let text = file.and_then(|file| draft.disk.read(&file));
    text.as_deref().map(keys.variables).unwrap_or_default()
}

/// Returns the changes and the names of withheld secrets.
pub(super) fn env_changes(
    wanted: &PlanInputs,
    home: Option<&Path>,
    draft: &PlanBuilder<'_>,
) -> (Vec<(OsString, Option<OsString>)>, Vec<String>) {
    let withheld = withheld_secrets(wanted, &configured_keys(wanted, home, draft));
    let mut changes: Vec<(OsString, Option<OsString>)> = Vec::new();
    let removed =
        PLACES.host_variables.iter().map(|name| (*name).to_owned()).chain(withheld.iter().cloned());
    changes.extend(removed.map(|name| (name.into(), None)));
    for name in PROXY_VARIABLES.iter().chain(&["ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"]) {
        if wanted.network != NetworkMode::Full {
            changes.push((name.into(), None));
        }
    }
    if let NetworkMode::Proxy { .. } = &wanted.network {
        let url = format!("http://127.0.0.1:{}", proxy::PORT);
        changes.extend(PROXY_VARIABLES.iter().map(|name| (name.into(), Some(url.clone().into()))));
        // The proxy runs outside and cannot reach servers inside.
        let local = "localhost,127.0.0.1,::1";
        changes.extend(["NO_PROXY", "no_proxy"].map(|name| (name.into(), Some(local.into()))));
        changes.push(("NODE_USE_ENV_PROXY".into(), Some("1".into())));
    }
    changes.push(("TMPDIR".into(), Some("/tmp".into())));
    let mut path = get(&wanted.env, "PATH").unwrap_or(OsStr::new("/usr/bin:/bin")).to_owned();
    path.push(":");
    path.push(INSIDE_DIR);
    changes.push(("PATH".into(), Some(path)));
    (changes, withheld)
}

/// Adds the agent's user to `/etc/passwd` and `/etc/group`: programs look up their user and home.
pub(super) fn account_files(
    disk: &dyn Disk,
    (user, group): (u32, u32),
    home: Option<&Path>,
    name: Option<&OsStr>,
) -> Vec<(&'static str, String)> {
    let plain = |name: &&str| {
        !name.is_empty() && *name != "root" && name.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let name = name.and_then(OsStr::to_str).filter(plain).unwrap_or("agent");
    let home = home.and_then(Path::to_str).filter(|home| !home.contains(':')).unwrap_or("/");
    let mut files = Vec::new();
    for (file, id, own) in [
        ("passwd", user, format!("{name}:x:{user}:{group}::{home}:/bin/sh")),
        ("group", group, format!("{name}:x:{group}:")),
    ] {
        let Some(text) = disk.read(&Path::new("/etc").join(file)) else { continue };
        let id = id.to_string();
        let field = |line: &str, nth: usize| line.split(':').nth(nth).map(str::to_owned);
        let is_own = |line: &&str| field(line, 2).as_ref() == Some(&id);
        let known = text.lines().find(is_own);
        if known.is_some_and(|line| file == "group" || field(line, 5).as_deref() == Some(home)) {
            continue;
        }
        let is_other = |line: &&str| !is_own(line) && field(line, 0).as_deref() != Some(name);
        let others = text.lines().filter(is_other).map(|line| format!("{line}\n"));
        files.push((file, format!("{own}\n{}", others.collect::<String>())));
    }
    files
}
