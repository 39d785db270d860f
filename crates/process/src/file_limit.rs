//! The limit of open files: raised for a server, not for its children.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit before it was raised.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Lets this process open up to `wanted` files, if the hard limit allows it. Children start with the limit of before.
pub fn raise_file_limit(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(wanted, |hard| hard.min(wanted));
    // None stands for no limit.
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return;
    }
    // If it fails, the usual limit remains.
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok() {
        let _ = ORIGINAL.set(limit);
    }
}

/// For the child, before it executes its program. Only makes a system call.
pub(super) fn restore() {
    if let Some(limit) = ORIGINAL.get() {
        let _ = setrlimit(Resource::Nofile, *limit);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::run_to_end;

    #[test]
    fn children_keep_the_limit_of_before() {
        let limit = getrlimit(Resource::Nofile);
        let hard = limit.maximum.unwrap_or(65_536);
        setrlimit(Resource::Nofile, Rlimit { current: Some(hard - 1), ..limit }).unwrap();
        raise_file_limit(hard);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(hard));
        let args = ["-c".into(), "ulimit -S -n".into()];
        let timeout = Duration::from_secs(20);
        let output = run_to_end("sh".as_ref(), &args, Path::new("/"), &[], timeout).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), (hard - 1).to_string());
    }
}
