//! Claude Code: `claude -p --output-format stream-json`.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::messages::{StreamJsonDialect, StreamJsonParser};
use super::structured::stream_or_text;
use super::text::LastOutput;
use super::{
    Adapter, AgentInvocation, AgentRequest, HookFileAccess, OutputReader, PromptVia, failure,
    has_option, messages, start_failure,
};
use crate::profile::{
    AgentExtras, AgentHome, AgentProfile, CloudKeys, FileExposure, HomeDir, Recording,
};
use ralph_events::event::{Failure, FailureKind};
use ralph_events::text::first_line;

#[derive(Debug)]
pub(super) struct Claude;

static PROFILE: AgentProfile = AgentProfile {
    name: "claude",
    install_command: "npm install -g @anthropic-ai/claude-code",
    recording: Recording::Version { product: "Claude Code", version: "2.1.325" },
    tokens: Some("with each message"),
    cost: Some("at the end"),
    cost_is_verified: true,
    limit_end: Some("yes"),
    interactive_autonomous_flags: &["--dangerously-skip-permissions"],
    hosts: &["api.anthropic.com", "console.anthropic.com", "platform.claude.com"],
    key_prefixes: &["ANTHROPIC_", "CLAUDE_"],
    homes: &[
        AgentHome {
            dir: HomeDir { moved_by: Some("CLAUDE_CONFIG_DIR"), path: ".claude" },
            entries: &[
                (".credentials.json", FileExposure::Credentials),
                (".claude.json", FileExposure::Copy),
                ("CLAUDE.md", FileExposure::Config),
                ("agents", FileExposure::Config),
                ("commands", FileExposure::Config),
                ("hooks", FileExposure::Config),
                ("output-styles", FileExposure::Config),
                ("plugins", FileExposure::Config),
                ("rules", FileExposure::Config),
                ("settings.json", FileExposure::Config),
                ("settings.local.json", FileExposure::Config),
                ("skills", FileExposure::Config),
            ],
        },
        AgentHome {
            dir: HomeDir::HOME,
            entries: &[
                (".claude.json", FileExposure::Copy),
                (".local/share/claude/versions", FileExposure::Config),
            ],
        },
    ],
    extras: AgentExtras {
        stop_hook: true,
        cloud_keys: &[
            CloudKeys { switch: "CLAUDE_CODE_USE_BEDROCK", prefixes: &["AWS_"] },
            CloudKeys { switch: "CLAUDE_CODE_USE_VERTEX", prefixes: &["GOOGLE_", "CLOUDSDK_"] },
        ],
        keychain_substitutes: &["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"],
        root_switch: Some("IS_SANDBOX"),
        docker_agent: Some("claude"),
        ..AgentExtras::NONE
    },
};

impl Adapter for Claude {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        invocation.args(["-p", "--output-format"]);
        if request.stream {
            // It refuses to stream without `--verbose`.
            invocation.args(["stream-json", "--verbose"]);
        } else {
            invocation.arg("text");
        }
        if request.autonomous && !has_option(request.flags, &["--dangerously-skip-permissions"]) {
            invocation.arg("--dangerously-skip-permissions");
        }
        invocation.model(request, &[], &[]);
        for flag in request.flags {
            if flag == NO_AUTO_COMPACT {
                invocation.env.push(("DISABLE_AUTO_COMPACT", "1".into()));
            } else {
                invocation.arg(flag);
            }
        }
        invocation.prompt_after_dashes(request);
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        stream_or_text(
            structured,
            StreamJsonParser::new(&StreamJsonDialect::CLAUDE),
            explain_failure,
        )
    }

    fn env_flags(&self, variables: &[(&str, &str)]) -> Vec<OsString> {
        if variables.is_empty() {
            return Vec::new();
        }
        let variables = variables.iter();
        let env: Map<String, Value> =
            variables.map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        vec![SETTINGS_FLAG.into(), json!({"env": env}).to_string().into()]
    }

    fn with_hook(
        &self,
        flags: &[String],
        hook: &[&str],
        files: &dyn HookFileAccess,
    ) -> Option<Vec<String>> {
        let (user_settings, others) = split_settings_flag(flags);
        let mut in_file = false;
        let mut settings = match user_settings {
            None => json!({}),
            // claude distinguishes JSON and paths in the same way.
            Some(text) if text.trim_start().starts_with('{') => serde_json::from_str(text).ok()?,
            Some(path) => {
                in_file = true;
                serde_json::from_str(&files.read(Path::new(path))?).ok()?
            }
        };
        let (program, args) = hook.split_first()?;
        let hook_entry = json!({"hooks": [
            {"type": "command", "command": program, "args": args, "timeout": HOOK_TIMEOUT_SECONDS}
        ]});
        let hooks = settings.as_object_mut()?.entry("hooks").or_insert_with(|| json!({}));
        let before = hooks.as_object_mut()?.entry("PreToolUse").or_insert_with(|| json!([]));
        before.as_array_mut()?.push(hook_entry);
        let mut settings = settings.to_string();
        // The file may contain keys; a command line is public.
        if in_file {
            settings = files.write(&settings)?;
        }
        let mut merged = vec![SETTINGS_FLAG.to_owned(), settings];
        merged.extend(others);
        Some(merged)
    }
}

/// Only the last one counts, so ralph's and the user's are merged.
const SETTINGS_FLAG: &str = "--settings";

/// After this, claude assumes consent.
const HOOK_TIMEOUT_SECONDS: u64 = 10;

fn split_settings_flag(flags: &[String]) -> (Option<&str>, Vec<String>) {
    let mut settings = None;
    let mut others = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        if flag == SETTINGS_FLAG {
            settings = flags.next().map(String::as_str);
        } else if let Some(value) = flag.strip_prefix("--settings=") {
            settings = Some(value);
        } else {
            others.push(flag.clone());
        }
    }
    (settings, others)
}

/// Removed from claude; a variable does the same.
const NO_AUTO_COMPACT: &str = "--no-auto-compact";

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    let message = first_line(output.stderr);
    if output.stderr.contains("cannot be used with root/sudo privileges") {
        return Some(failure(
            FailureKind::Usage,
            "claude refuses --dangerously-skip-permissions as root: run ralph as an ordinary user, \
             use --sandbox, or set IS_SANDBOX=1 if this machine is a sandbox",
        ));
    }
    if let Some(message) = message.filter(|message| message.starts_with("error: ")) {
        return Some(start_failure("claude", message, "claude --help"));
    }
    // The last line, on stdout for plain text.
    [output.stderr, output.stdout]
        .into_iter()
        .filter_map(|stream| stream.lines().rev().find(|line| !line.trim().is_empty()))
        .find_map(messages::failure_by_message)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::Value;

    use super::*;

    const FILE: &str = r#"{"model": "opus", "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}], "Stop": []}}"#;

    #[derive(Default)]
    struct Files(RefCell<String>);

    impl HookFileAccess for Files {
        fn read(&self, path: &Path) -> Option<String> {
            (path == Path::new("own.json")).then(|| FILE.to_owned())
        }

        fn write(&self, text: &str) -> Option<String> {
            self.0.replace(text.to_owned());
            Some("merged.json".to_owned())
        }
    }

    fn with_hook(flags: &[&str], files: &Files) -> Option<Vec<String>> {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Claude.with_hook(&flags, &["/bin/ralph", "hook", "pre-tool-use"], files)
    }

    #[test]
    fn claude_hook_is_merged_into_user_settings() {
        let hook_entry = json!({"hooks": [{
            "type": "command", "command": "/bin/ralph", "args": ["hook", "pre-tool-use"], "timeout": 10
        }]});
        let alone = json!({"hooks": {"PreToolUse": [&hook_entry]}});
        let with_file = json!({
            "model": "opus",
            "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}, &hook_entry], "Stop": []},
        });
        for (flags, settings, others) in [
            (&[][..], &alone, &[][..]),
            (&["--verbose", "-c"], &alone, &["--verbose", "-c"]),
            (&["-c", "--settings", "own.json", "-x"], &with_file, &["-c", "-x"]),
            (&["--settings=own.json"], &with_file, &[]),
            (&["--settings", " {}", "--settings", "own.json"], &with_file, &[]),
            (&["--settings", "own.json", "--settings", r#" {"hooks": {}}"#], &alone, &[]),
        ] {
            let files = Files::default();
            let merged = with_hook(flags, &files).unwrap();
            let written = files.0.into_inner();
            assert_eq!(merged[1] == "merged.json", settings == &with_file, "{flags:?}");
            let json = if written.is_empty() { &merged[1] } else { &written };
            assert_eq!(merged[0], "--settings");
            assert_eq!(serde_json::from_str::<Value>(json).unwrap(), *settings, "{flags:?}");
            assert_eq!(merged[2..], *others, "{flags:?}");
        }
    }

    #[test]
    fn claude_hook_is_not_added_to_invalid_user_settings() {
        for flags in [
            &["--settings", "missing.json"][..],
            &["--settings", "{"],
            &["--settings", r#"{"hooks": []}"#],
            &["--settings", r#"{"hooks": {"PreToolUse": {}}}"#],
        ] {
            assert_eq!(with_hook(flags, &Files::default()), None, "{flags:?}");
        }
    }
}
