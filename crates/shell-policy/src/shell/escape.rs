//! Backslash escapes: of `$'…'`, of `echo -e`, of `printf`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Octal {
    /// `\NNN`, as in `$'…'` and the format of `printf`.
    Bare,
    /// `\0NNN`, as in `echo -e`, and `\NNN`, as in some shells.
    Zero,
}

pub(crate) fn decode(text: &str, octal: Octal) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' {
            push(&mut out, c);
            continue;
        }
        let Some(c) = rest.next() else {
            out.push(b'\\');
            break;
        };
        match c {
            'a' => out.push(7),
            'b' => out.push(8),
            'e' | 'E' => out.push(27),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            '\\' | '\'' | '"' | '?' => push(&mut out, c),
            'x' | 'u' | 'U' => {
                let width = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                match digits(&mut rest, 16, width, None) {
                    None => {
                        out.push(b'\\');
                        push(&mut out, c);
                    }
                    Some(code) if c == 'x' => out.push((code & 0xff) as u8),
                    Some(code) => push(&mut out, char::from_u32(code).unwrap_or('\u{fffd}')),
                }
            }
            'c' => {
                // `\c` ends the output of `echo -e`.
                if octal == Octal::Zero {
                    break;
                }
                if let Some(c) = rest.next() {
                    out.push((c as u32 & 0x1f) as u8);
                }
            }
            '0'..='7' => {
                let width = if octal == Octal::Zero && c == '0' { 3 } else { 2 };
                let code = digits(&mut rest, 8, width, c.to_digit(8));
                out.push((code.unwrap_or_default() & 0xff) as u8);
            }
            other => {
                out.push(b'\\');
                push(&mut out, other);
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The position of a mark that no backslash precedes.
pub(crate) fn find_unescaped(text: &str, mark: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().map(|(at, _)| at).find(|at| {
        let rest = text.get(*at..).unwrap_or_default();
        let found = !escaped && rest.starts_with(mark);
        escaped = !escaped && rest.starts_with('\\');
        found
    })
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Reads up to `width` digits after the first one.
fn digits(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    radix: u32,
    width: usize,
    first: Option<u32>,
) -> Option<u32> {
    let mut code = first;
    for _ in 0..width {
        let Some(digit) = rest.peek().and_then(|c| c.to_digit(radix)) else { break };
        rest.next();
        code = Some(code.unwrap_or(0_u32).wrapping_mul(radix).wrapping_add(digit));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_escapes_are_decoded() {
        for (text, decoded) in [
            ("plain", "plain"),
            (r"\x72\x6d", "rm"),
            (r"\162\155", "rm"),
            (r"\u0072\U0000006d", "rm"),
            (r"a\tb\n", "a\tb\n"),
            (r"\'\\", r"'\"),
            (r"\xzz", r"\xzz"),
            (r"\q", r"\q"),
            ("\\", "\\"),
            (r"\xc3\xa4", "ä"),
            (r"\U7fffffff", "\u{fffd}"),
        ] {
            assert_eq!(decode(text, Octal::Bare), decoded, "{text}");
        }
        assert_eq!(decode(r"\0162\0155\cxyz", Octal::Zero), "rm");
    }
}
