use super::*;

fn request(flags: &[String]) -> AgentRequest<'_> {
    AgentRequest {
        program: "agent",
        flags,
        model: None,
        purpose: Purpose::Work,
        stream: true,
        autonomous: true,
        sandboxed: false,
        git_directories: &[],
        prompt_via: None,
        prompt: "-do it",
        prompt_file: Path::new(".ralph/prompt.txt"),
        side_file: Path::new("side.txt"),
    }
}

fn argv(agent: &str, request: &AgentRequest<'_>) -> String {
    let invocation = by_name(agent).unwrap().invocation(request);
    let args: Vec<&str> = invocation.args.iter().map(|arg| arg.to_str().unwrap()).collect();
    args.join(" ")
}

/// Agent, request and arguments.
const EXPECTED_ARGS: &str = "\
claude with_model: -p --output-format stream-json --verbose --dangerously-skip-permissions --model opus --allowedTools Bash
claude plain: -p --output-format text --dangerously-skip-permissions --model opus --allowedTools Bash
claude cautious: -p --output-format stream-json --verbose
codex with_model: exec --json --skip-git-repo-check -s workspace-write --model opus --allowedTools Bash -
codex plain: exec -o side.txt --skip-git-repo-check -s workspace-write --model opus --allowedTools Bash -
codex cautious: exec --json --skip-git-repo-check -
codex sandboxed: exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -
amp with_model: --allowedTools Bash --model opus --stream-json --dangerously-allow-all -x
amp plain: --allowedTools Bash --model opus --dangerously-allow-all -x
amp cautious: --stream-json -x
opencode with_model: run --format json --auto --model opus --allowedTools Bash
opencode plain: run --auto --model opus --allowedTools Bash
opencode cautious: run --format json
gemini with_model: -o stream-json --approval-mode yolo --model opus --allowedTools Bash
gemini plain: -o text --approval-mode yolo --model opus --allowedTools Bash
gemini cautious: -o stream-json
copilot with_model: --output-format json --allow-all-tools --no-ask-user --model opus --usage-output-file side.txt --allowedTools Bash
copilot plain: -s --allow-all-tools --no-ask-user --model opus --allowedTools Bash
copilot cautious: --output-format json --no-ask-user --usage-output-file side.txt
copilot sandboxed: --output-format json --allow-all --no-ask-user --usage-output-file side.txt
cline with_model: --json --auto-approve true --model opus --allowedTools Bash -- -do it
cline plain: --auto-approve true --model opus --allowedTools Bash -- -do it
cline cautious: --json --auto-approve false -- -do it
qwen with_model: -o stream-json --yolo --model opus --allowedTools Bash
qwen plain: -o text --yolo --model opus --allowedTools Bash
qwen cautious: -o stream-json
text with_model: --allowedTools Bash
";

#[test]
fn agent_command_lines_match_request() {
    let flags = ["--allowedTools".to_owned(), "Bash".to_owned()];
    let with_model = AgentRequest { model: Some("opus"), ..request(&flags) };
    let plain = AgentRequest { stream: false, ..with_model.clone() };
    let cautious = AgentRequest { autonomous: false, ..request(&[]) };
    let sandboxed = AgentRequest { sandboxed: true, ..request(&[]) };
    for line in EXPECTED_ARGS.lines() {
        let (what, expected) = line.split_once(": ").unwrap();
        let (agent, request) = match what.split_once(' ').unwrap() {
            (agent, "with_model") => (agent, &with_model),
            (agent, "plain") => (agent, &plain),
            (agent, "cautious") => (agent, &cautious),
            (agent, _) => (agent, &sandboxed),
        };
        assert_eq!(argv(agent, request), expected, "{what}");
    }
    let git = [PathBuf::from("/repo/.git"), PathBuf::from("/repo/.git/worktrees/x")];
    assert_eq!(
        argv("codex", &AgentRequest { git_directories: &git, ..request(&[]) }),
        "exec --json --skip-git-repo-check -s workspace-write --add-dir /repo/.git \
         --add-dir /repo/.git/worktrees/x -"
    );
    let invocation = codex::Codex.invocation(&plain);
    assert_eq!(invocation.side_file.as_deref(), Some(plain.side_file));
    assert!(!invocation.structured);
    assert_eq!(invocation.prompt_via, PromptVia::Stdin);
    assert!(!text::TextAdapter.invocation(&with_model).structured);
}

#[test]
fn prompt_as_argument_or_file_may_start_with_dash() {
    let flags = ["--allowedTools".to_owned(), "X".to_owned()];
    let argument = AgentRequest { prompt_via: Some(PromptVia::Argument), ..request(&flags) };
    let file = AgentRequest { prompt_via: Some(PromptVia::File), ..request(&[]) };
    for (agent, request, end) in [
        ("claude", &argument, "--allowedTools X -- -do it"),
        ("codex", &argument, "--allowedTools X -- -do it"),
        ("amp", &argument, "-x  -do it"),
        ("opencode", &argument, "--allowedTools X -- -do it"),
        ("gemini", &argument, "--allowedTools X --prompt=-do it"),
        ("copilot", &argument, "--allowedTools X --prompt=-do it"),
        ("cline", &argument, "--allowedTools X -- -do it"),
        ("qwen", &argument, "--allowedTools X --prompt=-do it"),
        ("text", &argument, "--allowedTools X -do it"),
        ("claude", &file, "-- .ralph/prompt.txt"),
        ("codex", &file, "workspace-write -- .ralph/prompt.txt"),
        ("amp", &file, "-x .ralph/prompt.txt"),
        (
            "opencode",
            &file,
            "-- Read the file .ralph/prompt.txt and follow the instructions in it.",
        ),
        (
            "gemini",
            &file,
            "--prompt=Read the file .ralph/prompt.txt and follow the instructions in it.",
        ),
        ("cline", &file, "-- Read the file .ralph/prompt.txt and follow the instructions in it."),
        ("text", &file, ".ralph/prompt.txt"),
    ] {
        assert!(argv(agent, request).ends_with(end), "{agent}: {}", argv(agent, request));
    }
}

#[test]
fn cline_prompt_avoids_long_and_single_word_arguments() {
    let long = "word ".repeat(30_000);
    let invocation = cline::Cline.invocation(&AgentRequest { prompt: &long, ..request(&[]) });
    assert_eq!(invocation.prompt_via, PromptVia::Stdin);
    assert_eq!(invocation.args.last().unwrap(), "Follow the instructions below.");
    // A single word would be a command.
    let invocation = cline::Cline.invocation(&AgentRequest { prompt: "history", ..request(&[]) });
    assert_eq!(invocation.prompt_via, PromptVia::Argument);
    assert_eq!(invocation.args.last().unwrap(), "history\n");
}

#[test]
fn user_flags_replace_default_flags() {
    for (agent, flags, expected) in [
        ("gemini", "--yolo -m x", "-o stream-json --yolo -m x"),
        ("qwen", "--approval-mode=plan", "-o stream-json --model m --approval-mode=plan"),
        ("opencode", "--model x/y", "run --format json --auto --model x/y"),
        (
            "copilot",
            "--allow-all --usage-output-file u",
            "--output-format json --no-ask-user --model m --allow-all --usage-output-file u",
        ),
        ("cline", "--auto-approve false", "--json --model m --auto-approve false -- -do it"),
    ] {
        let flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
        let request = AgentRequest { model: Some("m"), ..request(&flags) };
        assert_eq!(argv(agent, &request), expected, "{agent}");
    }
    let env = gemini::Gemini.invocation(&request(&[])).env;
    assert_eq!(env, [("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned())]);
    let cautious = AgentRequest { autonomous: false, ..request(&[]) };
    assert!(gemini::Gemini.invocation(&cautious).env.is_empty());
}

#[test]
fn user_flags_override_and_legacy_flags_are_translated() {
    let codex = |flags: &[&str]| {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        argv("codex", &AgentRequest { model: Some("m"), ..request(&flags) })
    };
    assert_eq!(
        codex(&["--full-auto"]),
        "exec --json --skip-git-repo-check -s workspace-write --model m -"
    );
    assert_eq!(
        codex(&["-sread-only", "--model=n", "--json"]),
        "exec --skip-git-repo-check -sread-only --model=n --json -"
    );
    assert_eq!(codex(&["--yolo"]), "exec --json --skip-git-repo-check --model m --yolo -");
    let flags = ["--no-auto-compact".to_owned()];
    let invocation = claude::Claude.invocation(&request(&flags));
    assert_eq!(invocation.env, [("DISABLE_AUTO_COMPACT", "1".to_owned())]);
    assert!(!invocation.args.contains(&flags[0].clone().into()));
}
