//! Splits `agent.flags` into arguments.

use super::schema::quote;
use ralph_events::redact::redact_command;
use ralph_events::text;

/// An element is one argument. Only a flag with its value, such as `"--model opus"`, is split as in
/// a shell; `"--prompt=be brief"` and `"be brief"` are not.
pub fn agent_args(flags: &[String]) -> Result<Vec<String>, String> {
    let mut args = Vec::with_capacity(flags.len());
    for (index, flag) in flags.iter().enumerate() {
        args.extend(split(flag).map_err(|problem| format!("agent.flags[{index}]: {problem}"))?);
    }
    Ok(args)
}

pub(crate) fn split(element: &str) -> Result<Vec<String>, String> {
    let mut words = element.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_flag = first.starts_with('-')
        && first.trim_start_matches('-').starts_with(|c: char| c.is_ascii_alphanumeric())
        && first.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !is_flag || words.next().is_none() {
        return Ok(vec![element.to_owned()]);
    }
    shell_words::split(element).map_err(|_| {
        format!(
            "unclosed quote in {}; write the flag and its value as two elements",
            quote(&text::truncate(&redact_command(element), 40, "…"))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_args_split_only_flags_with_values() {
        for (element, args) in [
            ("--model opus", &["--model", "opus"][..]),
            ("-m  'a b' -x", &["-m", "a b", "-x"]),
            ("--no-auto-compact", &["--no-auto-compact"]),
            ("--prompt=be brief", &["--prompt=be brief"]),
            ("be brief, don't", &["be brief, don't"]),
            ("it's", &["it's"]),
            ("--it's", &["--it's"]),
            ("- a list", &["- a list"]),
            ("-- x", &["-- x"]),
            ("", &[""]),
            (" ", &[" "]),
            ("--flag ", &["--flag "]),
        ] {
            assert_eq!(agent_args(&[element.to_owned()]).unwrap(), args, "{element:?}");
        }
    }

    #[test]
    fn agent_args_with_open_quote_name_the_element() {
        let flags = ["-p".to_owned(), "--say don't".to_owned()];
        assert_eq!(
            agent_args(&flags).unwrap_err(),
            "agent.flags[1]: unclosed quote in \"--say don't\"; write the flag and its value as two elements"
        );
    }
}
