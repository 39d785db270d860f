//! Prompt templates with `$NAME` and `${NAME}`, by the rules of `envsubst`: names do not start with a digit, other
//! dollar signs stay, values are not expanded again.

/// Variables without a value become empty. `value` is called once per place, in order.
pub fn substitute<'v>(template: &str, mut value: impl FnMut(&str) -> Option<&'v str>) -> String {
    parts(template).map(|(raw, name)| name.map_or(raw, |name| value(name).unwrap_or(""))).collect()
}

/// Replaces only variables that have a value.
pub fn substitute_known<'v>(template: &str, value: impl Fn(&str) -> Option<&'v str>) -> String {
    parts(template).map(|(raw, name)| name.and_then(&value).unwrap_or(raw)).collect()
}

pub fn mentions(template: &str, name: &str) -> bool {
    parts(template).any(|(_, found)| found == Some(name))
}

/// The pieces of a template, and the names of those that are variables.
fn parts(template: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((name, after)) = variable(rest) {
            let raw = &rest[..rest.len() - after.len()];
            rest = after;
            return Some((raw, Some(name)));
        }
        // Text: no dollar sign, or one without a name.
        let next = rest.as_bytes().get(1..).and_then(|tail| memchr::memchr(b'$', tail));
        let (text, after) = rest.split_at(next.map_or(rest.len(), |at| at + 1));
        rest = after;
        Some((text, None))
    })
}

/// Splits off the variable at the start of `text`.
fn variable(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('$')?;
    let braced = text.strip_prefix('{');
    let text = braced.unwrap_or(text);
    let end = text.find(|c: char| !is_part_of_name(c)).unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    if !name.starts_with(|c: char| is_part_of_name(c) && !c.is_ascii_digit()) {
        return None;
    }
    let after = if braced.is_some() { after.strip_prefix('}')? } else { after };
    Some((name, after))
}

pub fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUES: [(&str, &str); 4] =
        [("A", "apple"), ("SELF", "${SELF}"), ("_x1", "$A"), ("EMPTY", "")];

    fn filled(template: &str) -> String {
        substitute(template, |name| {
            VALUES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
        })
    }

    #[test]
    fn template_substitutes_variables_only() {
        for (template, expected) in [
            ("", ""),
            ("plain é", "plain é"),
            ("$A ${A} $A.", "apple apple apple."),
            ("${A}s and $As", "apples and "),
            ("a$A", "aapple"),
            ("é${A}é", "éappleé"),
            ("$_x1", "$A"),
            ("${SELF}", "${SELF}"),
            ("[$EMPTY][$UNKNOWN]", "[][]"),
            ("$", "$"),
            ("5 $ and $5 and ${5}", "5 $ and $5 and ${5}"),
            ("$$", "$$"),
            ("$$A", "$apple"),
            ("$${A}", "$apple"),
            ("${}", "${}"),
            ("${A", "${A"),
            ("${A:-x}", "${A:-x}"),
            ("${A $A", "${A apple"),
            ("${A${A}", "${Aapple"),
            ("${ A}", "${ A}"),
            ("$(A)", "$(A)"),
            ("$é", "$é"),
            ("\\$A", "\\apple"),
        ] {
            assert_eq!(filled(template), expected, "{template:?}");
        }
    }

    #[test]
    fn template_keeps_unknown_variables() {
        let known = |name: &str| (name == "A").then_some("apple");
        for (template, expected) in [
            ("$A of ${A}, $As, ${B}", "apple of apple, $As, ${B}"),
            ("$$A ${A $HOME $", "$apple ${A $HOME $"),
        ] {
            assert_eq!(substitute_known(template, known), expected);
        }
    }

    #[test]
    fn template_mention_requires_variable_syntax() {
        assert!(mentions("in ${SPECS_DIR}/", "SPECS_DIR"));
        assert!(mentions("in $SPECS_DIR/", "SPECS_DIR"));
        assert!(!mentions("in ${SPECS_DIR", "SPECS_DIR"));
        assert!(!mentions("in $SPECS_DIR2 or SPECS_DIR", "SPECS_DIR"));
    }

    /// `None` if `envsubst` is not installed.
    fn envsubst(template: &str) -> Option<String> {
        let mut child = std::process::Command::new("envsubst")
            .env_clear()
            .env("PATH", std::env::var_os("PATH")?)
            .envs(VALUES)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .ok()?;
        std::io::Write::write_all(child.stdin.as_mut()?, template.as_bytes()).ok()?;
        let output = child.wait_with_output().ok()?;
        String::from_utf8(output.stdout).ok()
    }

    #[test]
    fn template_substitution_agrees_with_envsubst() {
        // One call for many templates, a line each.
        let pieces = ["$", "{", "}", "A", "SELF", "_x1", "_", "9", "é", " ", ":-", "\\", "(", "NO"];
        let mut state = 7_u64;
        let mut template = String::new();
        for _ in 0..5_000 {
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                template.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            template.push('\n');
        }
        match envsubst(&template) {
            Some(expected) => assert_eq!(filled(&template), expected),
            None => eprintln!("skipped: no envsubst here (package gettext-base)"),
        }
    }

    proptest! {
        #[test]
        fn template_without_dollar_is_unchanged(text in "[^$]*") {
            prop_assert_eq!(filled(&text), text);
        }

        #[test]
        fn template_substitution_never_panics(text in any::<String>()) {
            filled(&text);
        }
    }
}
