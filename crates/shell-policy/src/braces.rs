//! Brace expansion: `{a,b}`, `{1..5}`.

use super::shell::{Word, WordPart};
use super::value::MAX_TEXT;

const MAX_BRACES: usize = 512;

/// A low limit: each level is expanded again for each word that it produces.
const MAX_DEPTH: usize = 50;

const MAX_WORK: usize = 1 << 20;

pub(super) enum BraceExpansion {
    Plain,
    Words(Vec<Word>),
    TooMany,
    /// Nested deeper than anyone writes in good faith.
    TooDeep,
}

pub(super) fn expand_braces(word: &Word) -> BraceExpansion {
    let plain = |part: &WordPart| matches!(part, WordPart::Text { text, quoted: false } if text.contains('{'));
    if !word.parts.iter().any(plain) {
        return BraceExpansion::Plain;
    }
    let mut atoms = Vec::new();
    for part in &word.parts {
        match part {
            WordPart::Text { text, quoted: false } => {
                atoms.extend(text.chars().map(Atom::Char));
            }
            other => atoms.push(Atom::Part(other.clone())),
        }
    }
    let mut done = Vec::new();
    let mut todo = vec![atoms];
    let mut steps = 0;
    let mut work = 0_usize;
    while let Some(atoms) = todo.pop() {
        steps += 1;
        work = work.saturating_add(atoms.len());
        if brace_depth(&atoms) > MAX_DEPTH {
            return BraceExpansion::TooDeep;
        }
        if steps > 4 * MAX_BRACES
            || done.len() + todo.len() > MAX_BRACES
            || atoms.len() > MAX_TEXT
            || work > MAX_WORK
        {
            return BraceExpansion::TooMany;
        }
        match expand_first(&atoms) {
            None => done.push(assemble(atoms)),
            Some(alternatives) => todo.extend(alternatives.into_iter().rev()),
        }
    }
    BraceExpansion::Words(done)
}

fn brace_depth(atoms: &[Atom]) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for atom in atoms {
        match atom {
            Atom::Char('{') => open += 1,
            Atom::Char('}') => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

#[derive(Clone)]
enum Atom {
    Char(char),
    Part(WordPart),
}

fn assemble(atoms: Vec<Atom>) -> Word {
    let mut parts: Vec<WordPart> = Vec::new();
    for atom in atoms {
        match (atom, parts.last_mut()) {
            (Atom::Char(c), Some(WordPart::Text { text, quoted: false })) => text.push(c),
            (Atom::Char(c), _) => parts.push(WordPart::Text { text: c.to_string(), quoted: false }),
            (Atom::Part(part), _) => parts.push(part),
        }
    }
    Word { parts }
}

fn expand_first(atoms: &[Atom]) -> Option<Vec<Vec<Atom>>> {
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut pairs: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (at, atom) in atoms.iter().enumerate() {
        match atom {
            Atom::Char('{') => open.push((at, Vec::new())),
            Atom::Char(',') => {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            Atom::Char('}') => {
                if let Some((start, commas)) = open.pop() {
                    pairs.push((start, at, commas));
                }
            }
            _ => {}
        }
    }
    pairs.sort_by_key(|(start, ..)| *start);
    for (start, end, commas) in pairs {
        let before = atoms.get(..start)?;
        let after = atoms.get(end + 1..)?;
        let join = |middle: &[Atom]| [before, middle, after].concat();
        if !commas.is_empty() {
            let mut bounds = vec![start];
            bounds.extend(&commas);
            bounds.push(end);
            return Some(
                bounds
                    .windows(2)
                    .filter_map(|pair| match pair {
                        [from, to] => atoms.get(from + 1..*to),
                        _ => None,
                    })
                    .map(join)
                    .collect(),
            );
        }
        let inner: Option<String> = atoms
            .get(start + 1..end)?
            .iter()
            .map(|atom| if let Atom::Char(c) = atom { Some(*c) } else { None })
            .collect();
        if let Some(values) = inner.and_then(|inner| expand_sequence(&inner)) {
            let chars = |value: &String| value.chars().map(Atom::Char).collect::<Vec<_>>();
            return Some(values.iter().map(|value| join(&chars(value))).collect());
        }
    }
    None
}

/// `{1..5}`, `{a..e}`, `{1..9..2}`.
fn expand_sequence(inner: &str) -> Option<Vec<String>> {
    let mut pieces = inner.split("..");
    let (from, to) = (pieces.next()?, pieces.next()?);
    let step = pieces.next().map_or(Some(1), |step| step.parse::<i64>().ok())?.saturating_abs();
    let step = usize::try_from(step.max(1)).ok()?;
    if let (Ok(from), Ok(to)) = (from.parse::<i64>(), to.parse::<i64>()) {
        let (low, high) = (from.min(to), from.max(to));
        let mut all: Vec<String> =
            (low..=high).step_by(step).take(MAX_BRACES + 1).map(|n| n.to_string()).collect();
        if from > to {
            all.reverse();
        }
        return Some(all);
    }
    let one = |text: &str| {
        let mut chars = text.chars();
        chars.next().filter(|c| c.is_ascii_alphabetic() && chars.next().is_none())
    };
    let (from, to) = (one(from)?, one(to)?);
    let mut all: Vec<String> =
        (from.min(to)..=from.max(to)).step_by(step).map(String::from).collect();
    if from > to {
        all.reverse();
    }
    Some(all)
}
