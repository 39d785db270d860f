//! The answer of `sysctl(KERN_PROCARGS2)`: a count, the program's path, padding, that many
//! arguments, then variables up to an empty string. Each string ends with a NUL.

/// Returns the arguments and the variables, with a NUL after each.
pub(super) fn parse(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = answer.split_first_chunk()?;
    let count = usize::try_from(i32::from_ne_bytes(*count)).ok()?;
    let path_end = memchr::memchr(0, rest)?;
    let padding = rest[path_end..].iter().take_while(|&&byte| byte == 0).count();
    let words = &rest[path_end + padding..];
    let args_end = memchr::memchr_iter(0, words).nth(count.checked_sub(1)?)? + 1;
    let (args, variables) = words.split_at(args_end);
    let mut end = 0;
    while let Some(length) = memchr::memchr(0, &variables[end..]).filter(|&length| length > 0) {
        end += length + 1;
    }
    Some((args, &variables[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(count: i32, rest: &[u8]) -> Vec<u8> {
        [&count.to_ne_bytes(), rest].concat()
    }

    #[test]
    fn arguments_and_variables_are_told_apart() {
        let full = answer(2, b"/bin/x\0\0\0\0x\0A=1\0A=2\0B=\0\0ptr_munge=\0");
        assert_eq!(parse(&full), Some((&b"x\0A=1\0"[..], &b"A=2\0B=\0"[..])));
        // The variables of Apple's own programs are left out.
        assert_eq!(parse(&answer(1, b"/bin/sh\0\0sh\0")), Some((&b"sh\0"[..], &b""[..])));
        assert_eq!(parse(&answer(1, b"/bin/sh\0\0sh\0\0")), Some((&b"sh\0"[..], &b""[..])));
    }

    #[test]
    fn malformed_answers_are_refused() {
        for bad in [
            &b""[..],
            b"\0\0",
            &answer(0, b"/bin/x\0x\0"),
            &answer(-1, b"/bin/x\0x\0"),
            &answer(3, b"/bin/x\0x\0"),
            &answer(i32::MAX, b"/bin/x\0x\0"),
            &answer(1, b"/bin/x"),
            &answer(1, b"/bin/x\0\0\0"),
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        // A variable that was cut off does not count.
        assert_eq!(parse(&answer(1, b"x\0x\0A=1\0B=")), Some((&b"x\0"[..], &b"A=1\0"[..])));
    }
}
