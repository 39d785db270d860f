//! Finds the lines of keys in a settings file.

use super::schema::join;
use ralph_agents::json::RawJson;

/// Adds the file and the line of its key to a problem (`key: what is wrong`).
pub(super) fn locate(problem: &str, text: &str, name: &str) -> String {
    let place = format!("({name}:{})", line_of(problem, text));
    match problem.rsplit_once(SUGGESTION) {
        Some((what, nearest)) => format!("{what} {place}{SUGGESTION}{nearest}"),
        None => format!("{problem} {place}"),
    }
}

/// Follows a problem that has a likely fix.
pub(super) const SUGGESTION: &str = "; did you mean ";

/// The line of the longest path that the problem begins with: of a missing key, its parent.
fn line_of(problem: &str, text: &str) -> usize {
    let mut found = Vec::new();
    positions(RawJson::from_document(text.as_bytes()), "", &mut found);
    let is_about = |path: &str| {
        problem.strip_prefix(path).is_some_and(|rest| rest.starts_with([':', '.', '[']))
    };
    let named = found.iter().filter(|(path, _)| is_about(path)).max_by_key(|(path, _)| path.len());
    let start = text.as_ptr() as usize;
    let offset = named.map_or(0, |(_, place)| place.as_ptr() as usize - start);
    memchr::memchr_iter(b'\n', &text.as_bytes()[..offset]).count() + 1
}

/// Collects the paths of all keys and elements, with their bytes in the document.
fn positions<'t>(value: RawJson<'t>, path: &str, found: &mut Vec<(String, &'t [u8])>) {
    let mut children = Vec::new();
    let _ = value.for_each_member(|key, value| {
        let name: String =
            serde_json::from_slice(&[b"\"", key, b"\""].concat()).unwrap_or_default();
        children.push((join(path, &name), key, value));
    });
    for (index, value) in value.elements().into_iter().flatten().enumerate() {
        children.push((format!("{path}[{index}]"), value.bytes(), value));
    }
    for (path, place, value) in children {
        positions(value, &path, found);
        found.push((path, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_problem_names_line_of_its_key() {
        let text = "{\n  \"agent\": {\"flags\":\n    [\"a\",\n     \"b\"]},\n  \"x y\": 1,\n\n  \
                    \"guardrails\": [\n    {\"command\": \"x\"},\n    {\n      \
                    \"failAction\": \"APEND\"\n    }\n  ]\n}\n";
        for (problem, line) in [
            ("agent: wrong", 2),
            ("agent.flags: wrong", 2),
            ("agent.flags[1]: wrong", 4),
            ("[\"x y\"]: unknown key", 5),
            ("guardrails[1].failAction: wrong", 10),
            ("guardrails[1].command: missing", 9),
            ("the top level: wrong", 1),
        ] {
            assert_eq!(locate(problem, text, "s"), format!("{problem} (s:{line})"));
        }
        let located = locate("agent: unknown key; did you mean b?", text, "s");
        assert_eq!(located, "agent: unknown key (s:2); did you mean b?");
    }
}
