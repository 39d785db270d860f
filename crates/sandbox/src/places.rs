//! Paths that every sandbox hides, shows or protects.

/// Other users' files, service sockets, and secrets.
pub(super) const HIDDEN_DIRS: &[&str] = &[
    "/home",
    "/root",
    "/run",
    "/mnt",
    "/media",
    "/srv",
    "/boot",
    "/lost+found",
    "/etc/NetworkManager/system-connections",
    "/etc/cni",
    "/etc/docker",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/etc/ppp",
    "/etc/rancher",
    "/etc/ssl/private",
    "/etc/sudoers.d",
    "/etc/wireguard",
    "/sys/fs/pstore",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/var/backups",
    "/var/lib/bluetooth",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/incus",
    "/var/lib/iwd",
    "/var/lib/kubelet",
    "/var/lib/libvirt",
    "/var/lib/lxd",
    "/var/lib/mysql",
    "/var/lib/postgresql",
    "/var/lib/private",
    "/var/lib/redis",
    "/var/lib/sss",
    "/var/lib/tailscale",
    "/var/log",
    "/var/mail",
    "/var/run",
    "/var/snap/lxd",
    "/var/spool",
];

/// Most are unreadable for ordinary users anyway.
pub(super) const HIDDEN_FILES: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/krb5.keytab",
    "/etc/security/opasswd",
];

/// Files that control the kernel, and whether programs need to read them. For bubblewrap, an empty
/// directory is faster than a read-only mount.
pub(super) const KERNEL_PATHS: &[(&str, bool)] = &[
    ("/proc/acpi", false),
    ("/proc/asound", false),
    ("/proc/bus", false),
    ("/proc/driver", false),
    ("/proc/dynamic_debug", false),
    ("/proc/fs", false),
    ("/proc/irq", false),
    ("/proc/latency_stats", true),
    ("/proc/mtrr", true),
    ("/proc/scsi", false),
    ("/proc/sys", true),
    ("/proc/sysrq-trigger", true),
];

/// Programs are here on some systems.
pub(super) const SHOWN_DIRS: &[&str] = &["/run/current-system", "/run/opengl-driver"];

/// Keys and passwords. No hint may suggest showing them.
pub(super) const HOME_SECRETS: &[&str] = &[
    ".aws",
    ".azure",
    ".bash_history",
    ".config/gcloud",
    ".config/gh",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ralph",
    ".ssh",
    ".zsh_history",
];

pub(super) const CERTIFICATES: &[&str] = &[
    "AWS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "npm_config_cafile",
    "NPM_CONFIG_CAFILE",
];

/// Executed or obeyed outside: by ralph, the user's agents (hooks, MCP servers, plugins, approval
/// rules) and version control.
pub(super) const PROTECTED_DIRS: &[(&str, &[&str])] = &[
    (
        ".ralph",
        &[".gitignore", "config", "logs", "prompts", "settings.json", "settings.local.json"],
    ),
    (".amp", &["settings.json", "settings.jsonc", "plugins"]),
    (".claude", &["hooks", "settings.json", "settings.local.json"]),
    (".clinerules", &["hooks"]),
    (".codex", &["config.toml", "hooks", "hooks.json", "rules"]),
    (".cursor", &["hooks", "hooks.json", "mcp.json"]),
    (".gemini", &[".env", "extensions", "hooks", "settings.json"]),
    (".github", &["hooks", "mcp.json"]),
    (".hg", &["hgrc", "hgrc-not-shared", "sharedpath"]),
    (".jj", &["config.toml", "workspace-config.toml"]),
    (".jj/repo", &["config.toml"]),
    (".jj/repo/store", &["git_target"]),
    (".qwen", &[".env", "extensions", "hooks", "settings.json"]),
];

/// Created and written by ralph during a run.
pub(super) const RALPH_STATE_PATHS: [&str; 1] = [".ralph/logs"];

/// Like [`PROTECTED_DIRS`]: single files, and whole directories.
pub(super) const PROTECTED_PATHS: &[&str] =
    &[".mcp.json", ".opencode", "opencode.json", "opencode.jsonc"];
