//! The environment inside: the way to the proxy, and no secrets that the agent has no use for.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::plan::{Disk, INSIDE_DIR, Network, Wanted};
use super::proxy;
use crate::config::secret::looks_secret;

/// Variables that lead to something outside: sockets, terminals, other machines.
const OUTSIDE: &[&str] = &[
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

/// Whose secrets agents need: services with models.
const SERVICES: &[&str] = &[
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

/// Variables by which programs find a proxy.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];

pub(super) fn get<'e>(env: &'e [(OsString, OsString)], name: &str) -> Option<&'e OsStr> {
    env.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_os_str())
}

/// The names of the secrets that are kept from the agent.
pub(super) fn withheld(wanted: &Wanted) -> Vec<String> {
    let is_set = |name: &str| get(&wanted.env, name).is_some_and(|value| value != "0");
    // Claude by way of a cloud uses that cloud's keys.
    let bedrock = wanted.adapter == "claude" && is_set("CLAUDE_CODE_USE_BEDROCK");
    let vertex = wanted.adapter == "claude" && is_set("CLAUDE_CODE_USE_VERTEX");
    let needed = |name: &str| {
        SERVICES.iter().any(|service| name.starts_with(service))
            || (bedrock && name.starts_with("AWS_"))
            || (vertex && (name.starts_with("GOOGLE_") || name.starts_with("CLOUDSDK_")))
            || wanted.env_kept.iter().any(|kept| kept == name)
    };
    let names = wanted.env.iter().filter_map(|(name, _)| name.to_str());
    let secret = |name: &&str| looks_secret(name) || name.starts_with("AWS_");
    names.filter(secret).filter(|name| !needed(name)).map(str::to_owned).collect()
}

/// The changes to the environment.
pub(super) fn changes(wanted: &Wanted) -> Vec<(OsString, Option<OsString>)> {
    let mut changes: Vec<(OsString, Option<OsString>)> = Vec::new();
    let gone = OUTSIDE.iter().map(|name| (*name).to_owned()).chain(withheld(wanted));
    changes.extend(gone.map(|name| (name.into(), None)));
    for name in PROXIES.iter().chain(&["ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"]) {
        if wanted.network != Network::Full {
            changes.push((name.into(), None));
        }
    }
    if let Network::Proxy { .. } = &wanted.network {
        let url = format!("http://127.0.0.1:{}", proxy::PORT);
        changes.extend(PROXIES.iter().map(|name| (name.into(), Some(url.clone().into()))));
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
    changes
}

/// `/etc/passwd` and `/etc/group` with the user that the agent is inside: programs that look their own
/// user up must find one, with this home.
pub(super) fn accounts(
    disk: &dyn Disk,
    (user, group): (u32, u32),
    home: Option<&Path>,
    name: Option<&OsStr>,
) -> [(&'static str, String); 2] {
    let without = |file: &str, id: u32, name: &str| -> String {
        let text = disk.read(Path::new(file)).unwrap_or_default();
        let others = text.lines().filter(|line| {
            let mut fields = line.split(':');
            fields.next() != Some(name) && fields.nth(1) != Some(&id.to_string())
        });
        others.map(|line| format!("{line}\n")).collect()
    };
    let plain = |name: &&str| {
        !name.is_empty() && *name != "root" && name.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let name = name.and_then(OsStr::to_str).filter(plain).unwrap_or("agent");
    let home = home.and_then(Path::to_str).filter(|home| !home.contains(':')).unwrap_or("/");
    let passwd = without("/etc/passwd", user, name);
    let groups = without("/etc/group", group, name);
    [
        ("passwd", format!("{name}:x:{user}:{group}::{home}:/bin/sh\n{passwd}")),
        ("group", format!("{name}:x:{group}:\n{groups}")),
    ]
}
