//! Tests of all layers together.

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const EXAMPLE: &str = r#"{
  "maximumIterations": 10,
  "completionResponse": "DONE",
  "outputTruncateChars": 5000,
  "streamAgentOutput": true,
  "includeIterationCountInPrompt": false,
  "agent": {
    "command": "claude",
    "flags": ["--model opus", "--no-auto-compact"]
  },
  "guardrails": [
    {
      "command": "make lint",
      "failAction": "APPEND",
      "hint": "Fix lint errors only. Do not change behavior."
    },
    {
      "command": "./mvnw clean install -T 2C -q -e",
      "failAction": "append"
    }
  ],
  "scm": {
    "command": "git",
    "tasks": ["commit", "push"]
  }
}
"#;

struct Project {
    dir: tempfile::TempDir,
    sources: Sources,
}

impl Project {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".ralph")).unwrap();
        let sources = Sources { project_dir: dir.path().to_owned(), ..Sources::default() };
        Project { dir, sources }
    }

    fn file(self, name: &str, content: &str) -> Self {
        fs::write(self.dir.path().join(name), content).unwrap();
        self
    }

    fn settings(self, content: &str) -> Self {
        self.file(".ralph/settings.json", content)
    }

    fn local(self, content: &str) -> Self {
        self.file(".ralph/settings.local.json", content)
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.sources.env.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, name: &str, key: &'static str, value: Value) -> Self {
        let name = name.to_owned();
        self.sources.flags.push(FlagSetting { key, value, name });
        self
    }

    fn load(&self) -> LoadedSettings {
        load(&self.sources).unwrap()
    }

    fn error(&self) -> String {
        let error = load(&self.sources).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let dir = self.dir.path().display().to_string();
        error.to_string().replace(&dir, "DIR")
    }

    fn origin(&self, loaded: &LoadedSettings, key: &str) -> String {
        let dir = self.dir.path().display().to_string();
        loaded.origins[key].to_string().replace(&dir, "DIR")
    }
}

#[test]
fn settings_without_files_are_defaults() {
    let project = Project::new();
    let loaded = project.load();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.settings.maximum_iterations, None);
    assert_eq!(loaded.settings.completion_response, "DONE");
    assert_eq!(loaded.settings.output_truncate_chars, 5000);
    assert!(loaded.settings.stream_agent_output);
    assert!(loaded.files.is_empty());
    assert!(loaded.origins.values().all(|origin| *origin == SettingOrigin::Default));
}

#[test]
fn example_settings_load_without_warnings() {
    let loaded = Project::new().settings(EXAMPLE).load();
    assert_eq!(loaded.warnings, [""; 0]);
    let settings = &loaded.settings;
    assert_eq!(
        agent_args(&settings.agent.flags).unwrap(),
        ["--model", "opus", "--no-auto-compact"]
    );
    assert_eq!(settings.guardrails[1].fail_action, FailAction::Append);
    assert_eq!(settings.scm.as_ref().unwrap().tasks, ["commit", "push"]);
}

#[test]
fn settings_layers_override_in_order() {
    let project = Project::new()
        .settings(
            r#"{"maximumIterations": 1, "completionResponse": "A", "outputTruncateChars": 1,
                "stall": {"iterations": 1}, "agent": {"flags": ["--model opus"], "model": "m"}}"#,
        )
        .local(
            r#"{"completionResponse": "B", "outputTruncateChars": 2, "stall": {"iterations": 2},
                "agent": {"flags": ["--verbose"]}}"#,
        )
        .env("RALPH_OUTPUT_TRUNCATE_CHARS", "3")
        .env("RALPH_STALL__ITERATIONS", "3")
        .flag("--stall", "stall.iterations", json!(4));
    let loaded = project.load();
    let settings = &loaded.settings;
    assert_eq!(settings.maximum_iterations, Some(1));
    assert_eq!(settings.completion_response, "B");
    assert_eq!(settings.output_truncate_chars, 3);
    assert_eq!(settings.stall.iterations, 4);
    assert_eq!(settings.agent.flags, ["--verbose"]);
    assert_eq!(settings.agent.model.as_deref(), Some("m"));
    for (key, origin) in [
        ("maximumIterations", "DIR/.ralph/settings.json"),
        ("completionResponse", "DIR/.ralph/settings.local.json"),
        ("outputTruncateChars", "environment RALPH_OUTPUT_TRUNCATE_CHARS"),
        ("stall.iterations", "flag --stall"),
        ("agent.flags", "DIR/.ralph/settings.local.json"),
        ("agent.model", "DIR/.ralph/settings.json"),
        ("agent.autonomous", "default"),
    ] {
        assert_eq!(project.origin(&loaded, key), origin, "{key}");
    }
    assert_eq!(loaded.files.len(), 2);
    assert!(loaded.is_set("stall.iterations"));
    assert!(!loaded.is_set("agent.autonomous"));
    assert!(!loaded.is_set("no.such.key"));
}

#[test]
fn home_settings_apply_to_every_project_below_its_own() {
    let home = tempfile::tempdir().unwrap();
    let own = r#"{"maximumIterations": 7, "completionResponse": "H",
                  "agent": {"command": "claude", "flags": ["--max-turns 9"], "model": "opus"}}"#;
    fs::write(home.path().join("settings.json"), own).unwrap();
    let home_dir = home.path().to_str().unwrap();
    let project = || Project::new().env("RALPH_HOME", home_dir);
    let loaded = project().load();
    assert_eq!(loaded.settings.agent.model.as_deref(), Some("opus"));
    assert_eq!(loaded.files, [home.path().join("settings.json")]);
    let loaded = project().settings(r#"{"completionResponse": "P"}"#).load();
    let settings = &loaded.settings;
    assert_eq!((settings.maximum_iterations, &*settings.completion_response), (Some(7), "P"));
    assert_eq!(settings.agent.flags, ["--max-turns 9"]);
    // Flags and model of claude mean nothing to codex.
    let other = project().settings(r#"{"agent": {"command": "codex"}}"#).load().settings.agent;
    assert_eq!((other.flags.len(), other.model), (0, None));
    fs::write(home.path().join("settings.json"), "{\n \"maxIterations\": 7}").unwrap();
    let error = project().error();
    assert!(error.contains("settings.json:2") && error.contains("maxIterations"), "{error}");
}

#[test]
fn settings_object_can_be_nulled_and_set_again() {
    let base = r#"{"scm": {"command": "jj", "tasks": ["commit"]}}"#;
    let project = Project::new().settings(base).local(r#"{"scm": null}"#);
    let loaded = project.load();
    assert_eq!(loaded.settings.scm, None);
    assert_eq!(project.origin(&loaded, "scm"), "DIR/.ralph/settings.local.json");

    let project = project.env("RALPH_SCM__TASKS", "commit push");
    let loaded = project.load();
    let scm = loaded.settings.scm.as_ref().unwrap();
    assert_eq!((scm.command.as_str(), scm.tasks.len()), ("git", 2));
    assert_eq!(project.origin(&loaded, "scm.command"), "default");
    assert_eq!(project.origin(&loaded, "scm.tasks"), "environment RALPH_SCM__TASKS");
}

#[test]
fn agent_options_survive_other_path_of_same_agent() {
    let base = r#"{"agent": {"command": "claude", "model": "m", "flags": ["--verbose"]}}"#;
    for (command, kind, kept) in [
        ("/x/claude", None, true),
        ("/x/claude", Some("claude"), true),
        ("/x/wrapper", Some("claude"), true),
        ("/x/wrapper", None, false),
        ("codex", None, false),
        ("/x/claude", Some("codex"), false),
    ] {
        let mut project = Project::new().settings(base);
        let flag = |key, value| FlagSetting { key, value, name: "config:1".to_owned() };
        project.sources.overlay.push(flag("agent.command", json!(command)));
        project.sources.overlay.extend(kind.map(|kind| flag("agent.type", json!(kind))));
        let agent = project.load().settings.agent;
        assert_eq!(agent.model.is_some(), kept, "{command} {kind:?}");
        assert_eq!(!agent.flags.is_empty(), kept, "{command} {kind:?}");
        assert_eq!(agent.command.as_deref(), Some(command));
    }
}

#[test]
fn explicit_settings_file_uses_its_own_local_overlay() {
    let mut project = Project::new()
        .settings(r#"{"completionResponse": "not read"}"#)
        .local(r#"{"completionResponse": "not read"}"#)
        .file("other.json", r#"{"completionResponse": "A"}"#)
        .file("settings.local.json", r#"{"outputTruncateChars": 7}"#);
    project.sources.settings_path = Some(project.dir.path().join("other.json"));
    let loaded = project.load();
    assert_eq!(loaded.settings.completion_response, "A");
    assert_eq!(loaded.settings.output_truncate_chars, 7);

    project.sources.settings_path = Some(project.dir.path().join("none.json"));
    assert_eq!(project.error(), "error: DIR/none.json: no such file");
}

#[test]
fn settings_problems_of_all_layers_are_reported_together() {
    let project = Project::new()
        .settings("{\"agent\": {\"comand\": \"claude\"},\n \"guardrails\": [{\"command\": \"\"}]}")
        .local("{\"a\": 1,}")
        .env("RALPH_MAXIMUM_ITERATIONS", "ten")
        .env("RALPH_AGENT__ENV", "{")
        .flag("--max-iterations", "maximumIterations", json!(0));
    assert_eq!(
        project.error(),
        "\
error: agent.comand: unknown key (DIR/.ralph/settings.json:1); did you mean agent.command?
error: guardrails[0].command: must not be blank (DIR/.ralph/settings.json:2)
error: DIR/.ralph/settings.local.json:1:9: not valid JSON: trailing comma
  1 | {\"a\": 1,}
    |         ^
error: environment RALPH_AGENT__ENV: not valid JSON: EOF while parsing an object at line 1 column 1
error: environment RALPH_MAXIMUM_ITERATIONS: maximumIterations: expected a whole number or null, found the string \"ten\"
error: --max-iterations: maximumIterations: must be at least 1, not the number 0
hint: remove the comma before the closing bracket"
    );
}

#[test]
fn settings_path_is_shown_relative_to_project() {
    let here = Some(Path::new("/home/me/project"));
    for (path, name) in [
        ("./.ralph/settings.json", ".ralph/settings.json"),
        (".ralph/settings.json", ".ralph/settings.json"),
        ("/home/me/project/.ralph/settings.json", ".ralph/settings.json"),
        ("/home/me/other/.ralph/settings.json", "/home/me/other/.ralph/settings.json"),
        ("../x.json", "../x.json"),
    ] {
        assert_eq!(relative_name(here, Path::new(path)), name);
    }
}

#[test]
fn settings_merge_by_key() {
    for (base, overlay, merged) in [
        (
            json!({"agent": {"command": "claude", "flags": ["--model opus"]}}),
            json!({"agent": {"flags": ["--verbose"]}}),
            json!({"agent": {"command": "claude", "flags": ["--verbose"]}}),
        ),
        (json!({"a": {"b": 1}}), json!({"a": null}), json!({"a": null})),
        (json!({"a": null}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        (json!({"a": {"b": 1}}), json!({"a": {}}), json!({"a": {"b": 1}})),
        (json!({"a": [1, 2]}), json!({"a": []}), json!({"a": []})),
    ] {
        let mut result = base.clone();
        merge_documents(&mut result, overlay.clone());
        assert_eq!(result, merged, "{base} < {overlay}");
    }
}

/// Few different keys, for layers to overlap.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z\0 \"é-]{0,4}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "[ab.]{1}",
        Just("agent".to_owned()),
        Just("flags".to_owned()),
        Just("env".to_owned()),
        Just("guardrails".to_owned()),
        Just("command".to_owned()),
        Just("failAction".to_owned()),
        Just("budget".to_owned()),
        Just("duration".to_owned()),
        Just("maximumIterations".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn merged(mut base: Value, overlay: Value) -> Value {
    merge_documents(&mut base, overlay);
    base
}

proptest! {
    #[test]
    fn settings_merge_is_idempotent(a in document(), b in document()) {
        let once = merged(a, b.clone());
        prop_assert_eq!(merged(once.clone(), b), once);
    }

    /// Only for layers that agree on which values are objects: an object under a scalar under an
    /// object is kept in one order and lost in the other.
    #[test]
    fn settings_merge_is_associative(
        a in flat_document(), b in flat_document(), c in flat_document()
    ) {
        let left = merged(merged(a.clone(), b.clone()), c.clone());
        let right = merged(a, merged(b, c));
        prop_assert_eq!(left, right);
    }

    #[test]
    fn any_document_that_passes_check_deserializes(document in document()) {
        let mut layers = SettingsLayers::new();
        let origin = SettingOrigin::File("x".into());
        layers.add(document.clone(), "x", &origin);
        let valid = layers.problems.is_empty();
        let result = layers.finish(Vec::new(), Vec::new());
        // The check accepts exactly what deserializes.
        prop_assert_eq!(valid, result.is_ok(), "{:?}", result);
        if let Ok(loaded) = result {
            let effective = serde_json::to_value(&loaded.settings).unwrap();
            let keys: Vec<String> = leaf_values(&effective).into_iter().map(|(key, _)| key).collect();
            prop_assert!(keys.iter().all(|key| loaded.origins.contains_key(key)));
        }
    }

    #[test]
    fn valid_settings_round_trip_through_json(
        iterations in proptest::option::of(1u32..), seconds in 0u32..100_000, tokens in 1u64..,
    ) {
        let document = json!({
            "maximumIterations": iterations,
            "inactivityTimeoutSeconds": f64::from(seconds) / 8.0,
            "budget": {"tokens": tokens, "duration": seconds + 1},
        });
        prop_assume!(check::find_problems(&document).is_empty());
        let settings: Settings = serde_json::from_value(document).unwrap();
        let again = serde_json::to_value(&settings).unwrap();
        prop_assert_eq!(serde_json::from_value::<Settings>(again).unwrap(), settings);
    }
}

fn flat_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<u8>().prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::from),
    ];
    let entries = prop::collection::btree_map("[a-d]", leaf, 0..4);
    (entries.clone(), proptest::option::of((entries.clone(), entries))).prop_map(|(top, nested)| {
        let object = |entries: BTreeMap<String, Value>| -> Value {
            Value::Object(entries.into_iter().collect())
        };
        let mut document = object(top);
        if let Some((outer, inner)) = nested {
            document["o"] = object(outer);
            document["o"]["p"] = object(inner);
        }
        document
    })
}
