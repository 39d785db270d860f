//! The environment inside: the way to the proxy, and no secrets that the agent has no use for.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::plan::{Disk, INSIDE_DIR, NetworkMode, PlanInputs};
use super::plan_builder::PlanBuilder;
use super::proxy;
use ralph_events::redact;

/// Variables that lead to something outside: sockets, terminals, other machines.
const HOST_VARIABLES: &[&str] = &[
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "GNOME_KEYRING_CONTROL",
    "GPG_AGENT_INFO",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "KUBECONFIG",
    "NOTIFY_SOCKET",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STY",
    "SUDO_ASKPASS",
    "TEMP",
    "TMP",
    "TMUX",
    "TMUX_PANE",
    "VSCODE_IPC_HOOK_CLI",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];

/// Services with models, by what the names of their variables begin with.
const MODEL_SERVICES: &[&str] = &[
    "AMP_",
    "ANTHROPIC_",
    "AZURE_OPENAI_",
    "CEREBRAS_",
    "CLAUDE_",
    "CLINE_",
    "CODEX_",
    "COHERE_",
    "COPILOT_",
    "DASHSCOPE_",
    "DEEPSEEK_",
    "FIREWORKS_",
    "GEMINI_",
    "GOOGLE_API_KEY",
    "GOOGLE_GEMINI_",
    "GOOGLE_GENERATIVE_AI_",
    "GROQ_",
    "MISTRAL_",
    "MOONSHOT_",
    "OPENAI_",
    "OPENCODE_",
    "OPENROUTER_",
    "PERPLEXITY_",
    "QWEN_",
    "TOGETHER_",
    "XAI_",
    "ZAI_",
];

/// Those that an agent uses. Who is a door to many of them, or is not known, may use any.
fn agent_services(adapter: &str) -> &'static [&'static str] {
    match adapter {
        "claude" => &["ANTHROPIC_", "CLAUDE_"],
        "codex" => &["OPENAI_", "CODEX_", "AZURE_OPENAI_"],
        "gemini" => &["GEMINI_", "GOOGLE_API_KEY", "GOOGLE_GEMINI_", "GOOGLE_GENERATIVE_AI_"],
        "copilot" => &["COPILOT_"],
        "amp" => &["AMP_"],
        _ => MODEL_SERVICES,
    }
}

fn belongs_to_service(adapter: &str, name: &str) -> bool {
    agent_services(adapter).iter().any(|service| name.starts_with(service))
}

/// Whether this is a variable by which the agent is told where its service is: `ANTHROPIC_BASE_URL`.
pub(super) fn is_service_url(adapter: &str, name: &str) -> bool {
    let ends = ["_BASE_URL", "_API_BASE", "_API_URL", "_ENDPOINT"];
    ends.iter().any(|end| name.ends_with(end)) && belongs_to_service(adapter, name)
}

/// What Amazon's tools are told besides keys and names of keys.
const AWS_PUBLIC_VARIABLES: &[&str] = &["AWS_CA_BUNDLE", "AWS_DEFAULT_REGION", "AWS_REGION"];

/// Variables by which programs find a proxy.
const PROXY_VARIABLES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];

pub(super) fn get<'e>(env: &'e [(OsString, OsString)], name: &str) -> Option<&'e OsStr> {
    env.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_os_str())
}

/// The names of the secrets that are kept from the agent. `named` are those that its own configuration
/// says it needs.
fn withheld_secrets(wanted: &PlanInputs, named: &[String]) -> Vec<String> {
    let is_set = |name: &str| get(&wanted.env, name).is_some_and(|value| value != "0");
    // Claude by way of a cloud uses that cloud's keys.
    let bedrock = wanted.adapter == "claude" && is_set("CLAUDE_CODE_USE_BEDROCK");
    let vertex = wanted.adapter == "claude" && is_set("CLAUDE_CODE_USE_VERTEX");
    let needed = |name: &str| {
        belongs_to_service(wanted.adapter, name)
            || named.iter().any(|named| named == name)
            || (bedrock && name.starts_with("AWS_"))
            || (vertex && (name.starts_with("GOOGLE_") || name.starts_with("CLOUDSDK_")))
            || wanted.kept_variables.iter().any(|kept| kept == name)
    };
    let of_aws = |name: &str| name.starts_with("AWS_") && !AWS_PUBLIC_VARIABLES.contains(&name);
    // With the network of the host, the user's proxy is needed with its password.
    let is_proxy = |name: &str| name.to_ascii_lowercase().ends_with("_proxy");
    let variables = wanted.env.iter().filter_map(|(name, value)| Some((name.to_str()?, value)));
    let secrets = variables.filter(|(name, value)| {
        let is_secret = match is_proxy(name) {
            true => redact::looks_secret(name),
            false => redact::is_secret_variable(name, &value.to_string_lossy()),
        };
        (is_secret || of_aws(name)) && !HOST_VARIABLES.contains(name)
    });
    let secrets = secrets.map(|(name, _)| name).filter(|name| !needed(name));
    let (of_git, mut withheld): (Vec<_>, Vec<_>) = secrets.partition(|name| is_git_setting(name));
    // Git fails if it gets only some of these variables, so the agent gets all of them or none. Their names say
    // "key", but they are secret only if a value is.
    let is_secret = |(name, value): &(OsString, OsString)| {
        name.to_str().is_some_and(is_git_setting) && is_secret_git_setting(&wanted.env, name, value)
    };
    if !of_git.is_empty() && wanted.env.iter().any(is_secret) {
        let names = wanted.env.iter().filter_map(|(name, _)| name.to_str());
        withheld.extend(names.filter(|name| is_git_setting(name)));
    }
    withheld.into_iter().map(str::to_owned).collect()
}

/// Whether a variable is one of those that hold settings of git: `GIT_CONFIG_KEY_0`.
fn is_git_setting(name: &str) -> bool {
    name == "GIT_CONFIG_COUNT"
        || name.starts_with("GIT_CONFIG_KEY_")
        || name.starts_with("GIT_CONFIG_VALUE_")
}

/// Whether the variable holds a value of git's settings that is secret, by itself or by the setting's name.
fn is_secret_git_setting(env: &[(OsString, OsString)], name: &OsStr, value: &OsStr) -> bool {
    let Some(number) = name.to_str().and_then(|name| name.strip_prefix("GIT_CONFIG_VALUE_")) else {
        return name.to_str().is_some_and(|name| name != "GIT_CONFIG_COUNT")
            && redact::holds_secret(&value.to_string_lossy());
    };
    let setting = get(env, &format!("GIT_CONFIG_KEY_{number}"));
    let setting = setting.map(OsStr::to_string_lossy).unwrap_or_default();
    redact::is_secret_variable(&setting.replace('.', "_"), &value.to_string_lossy())
}

/// The variables from which codex takes a key.
fn codex_key_variables(text: &str) -> Vec<String> {
    let values = text.lines().filter_map(|line| {
        let value =
            line.trim().strip_prefix("env_key")?.trim_start().strip_prefix('=')?.trim_start();
        let (value, _) = value.strip_prefix('"')?.split_once('"')?;
        Some(value.to_owned())
    });
    values.collect()
}

/// The changes to the environment, and the names of the secrets that are kept from the agent.
pub(super) fn env_changes(
    wanted: &PlanInputs,
    home: Option<&Path>,
    draft: &PlanBuilder<'_>,
) -> (Vec<(OsString, Option<OsString>)>, Vec<String>) {
    let mut named = Vec::new();
    if wanted.adapter == "codex" {
        let moved = get(&wanted.env, "CODEX_HOME").map(PathBuf::from);
        let dir = moved.or_else(|| Some(home?.join(".codex")));
        // One that an agent can write would give it whichever key it names.
        let config = dir.and_then(|dir| draft.trusted_target(&dir.join("config.toml")));
        let text = config.and_then(|config| draft.disk.read(&config));
        named = text.as_deref().map(codex_key_variables).unwrap_or_default();
    }
    let withheld = withheld_secrets(wanted, &named);
    let mut changes: Vec<(OsString, Option<OsString>)> = Vec::new();
    let gone = HOST_VARIABLES.iter().map(|name| (*name).to_owned()).chain(withheld.iter().cloned());
    changes.extend(gone.map(|name| (name.into(), None)));
    for name in PROXY_VARIABLES.iter().chain(&["ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"]) {
        if wanted.network != NetworkMode::Full {
            changes.push((name.into(), None));
        }
    }
    if let NetworkMode::Proxy { .. } = &wanted.network {
        let url = format!("http://127.0.0.1:{}", proxy::PORT);
        changes.extend(PROXY_VARIABLES.iter().map(|name| (name.into(), Some(url.clone().into()))));
        // What runs inside is reached without the proxy, which could not reach it.
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

/// `/etc/passwd` and `/etc/group` with the user that the agent is inside, where they do not have it:
/// programs that look their own user up must find one, with this home.
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
