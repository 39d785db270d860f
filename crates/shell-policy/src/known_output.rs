//! Known output of programs, which may be run or deleted.

use super::rules::{flag_values, valued_options};
use super::value::{
    Argument, KnownOutput, NEW_TEMP_DIR, PID_PREFIX, TextOrigin, UNKNOWN_NAME, is_known,
};
use super::walk::ShellWalker;

fn download_targets(name: &str, args: &[Argument]) -> Vec<Argument> {
    let (to, by_name) = match name {
        "curl" => (
            flag_values(args, &["-o", "--output"]),
            args.iter().any(|arg| {
                let text = arg.text.as_str();
                text.starts_with("--remote-name")
                    || (text.starts_with('-') && !text.starts_with("--") && text.contains('O'))
            }),
        ),
        _ => {
            let to = flag_values(args, &["-O", "--output-document"]);
            let by_name = to.is_empty();
            (to, by_name)
        }
    };
    if !by_name {
        return to;
    }
    let directories = flag_values(args, &["-P", "--directory-prefix", "--output-dir"]);
    let mut files = to;
    let mut skip = false;
    for arg in args {
        let text = arg.text.as_str();
        let is_value = std::mem::replace(&mut skip, valued_options(name).contains(&text));
        if is_value || text.starts_with('-') {
            continue;
        }
        let path = text.split(['?', '#']).next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        files.push(Argument::known(match directories.first() {
            Some(directory) => format!("{}/{file}", directory.text),
            None => file.to_owned(),
        }));
    }
    files
}

fn process_ids(name: &str) -> KnownOutput {
    KnownOutput::known(format!("{PID_PREFIX}{}", name.replace(char::is_whitespace, "_")))
}

impl ShellWalker<'_> {
    pub(super) fn known_output(
        &mut self,
        name: &str,
        args: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        let operands: Vec<&Argument> =
            args.iter().filter(|arg| !arg.text.starts_with('-')).collect();
        let has = |flags: &[&str]| args.iter().any(|arg| flags.contains(&arg.text.as_str()));
        match name {
            // Downloaded files may be run later.
            "curl" | "wget" => {
                for file in download_targets(name, args) {
                    self.record_write(
                        &file,
                        &KnownOutput::unknown_from(TextOrigin::Network),
                        false,
                    );
                }
                KnownOutput::unknown_from(TextOrigin::Network)
            }
            "pgrep" | "pidof" => {
                let owners = flag_values(args, &["-u", "-U", "--euid", "--uid"]);
                match operands.last() {
                    Some(name) if owners.iter().all(|user| user.text != name.text) => {
                        process_ids(&name.text)
                    }
                    _ if owners.is_empty() => KnownOutput::name(),
                    _ => process_ids(""),
                }
            }
            "ps" if has(&["-C", "-p", "-q", "--pid", "--ppid", "-t", "--tty", "-s", "-g"]) => {
                KnownOutput::name()
            }
            "ps" => process_ids(""),
            "head" | "awk" | "sed"
                if stdin.is_some_and(|input| *input.text == PID_PREFIX)
                    && (name == "head"
                        || operands.iter().any(|arg| arg.text.contains(['/', '~', '=']))) =>
            {
                KnownOutput::name()
            }
            // `ps | grep NAME | awk '{print $2}'` prints process ids.
            "grep" | "egrep" | "fgrep" | "rg"
                if stdin.is_some_and(|input| *input.text == PID_PREFIX) && !has(&["-v"]) =>
            {
                process_ids(operands.first().map_or("", |arg| &arg.text))
            }
            _ if stdin.is_some_and(|input| input.text.starts_with(PID_PREFIX))
                && ["awk", "grep", "head", "tail", "cut", "tr", "sed", "sort", "uniq", "cat"]
                    .contains(&name) =>
            {
                stdin.cloned().unwrap_or_default()
            }
            "cp" | "mv" | "ln" | "install" => {
                self.record_copy(&operands);
                KnownOutput::default()
            }
            "cat" if operands.iter().any(|file| self.file_content(file).is_some()) => {
                let mut output = KnownOutput::default();
                for file in operands {
                    output.push(&self.file_content(file).unwrap_or_else(KnownOutput::unknown));
                }
                output
            }
            "tee" if stdin.is_some() => {
                let input = stdin.cloned().unwrap_or_default();
                for file in operands {
                    self.record_write(file, &input, false);
                }
                input
            }
            "cat" | "tee" | "head" | "tail" | "sort" | "uniq" | "tac" | "grep" | "egrep"
            | "sed" | "awk" | "tr" | "cut" | "rev" | "fmt" | "strings" | "nl" | "iconv" | "jq"
            | "envsubst" | "column" | "fold" | "xz" | "pv" | "sponge" => match stdin {
                Some(input) if name == "cat" && operands.iter().all(|arg| arg.text == "-") => {
                    input.clone()
                }
                Some(input) if name == "rev" && is_known(&input.text) => {
                    let reversed = |line: &str| line.chars().rev().collect::<String>();
                    let text = input.text.lines().map(reversed).collect::<Vec<_>>().join("\n");
                    KnownOutput::new(text, TextOrigin::Decoded)
                }
                // No more trusted than the input.
                Some(input) => KnownOutput::unknown_from(match name {
                    "rev" | "tr" => TextOrigin::Decoded.max(input.origin),
                    _ => TextOrigin::Computed.max(input.origin),
                }),
                None => match operands.iter().find_map(|arg| arg.process.as_deref()) {
                    Some(process) => process.clone(),
                    None => KnownOutput::unknown(),
                },
            },
            "base64" | "base32" | "basenc" | "openssl" | "gpg" | "xxd" | "uudecode" | "gunzip"
            | "zcat" | "bzcat" | "xzcat" | "bunzip2" | "gzip" | "unxz" | "zstd" | "brotli"
                if has(&[
                    "-d", "-D", "--decode", "-r", "-p", "-rp", "-ps", "-dc", "-di", "-c", "enc",
                ]) || has(&["-rps", "--decompress", "--decrypt", "-cd"])
                    || name.contains("cat")
                    || name.starts_with("un")
                    || name.starts_with("gun")
                    || name.starts_with("uu") =>
            {
                let origin = stdin.map(|input| input.origin).unwrap_or_default();
                KnownOutput::unknown_from(origin.max(TextOrigin::Decoded))
            }
            "http" | "https" | "xh" | "aria2c" | "fetch" | "lynx" | "nc" | "ncat" | "socat"
            | "telnet" | "ftp" | "dig" | "nslookup" => {
                KnownOutput::unknown_from(TextOrigin::Network)
            }
            "which" | "type" | "whence" => KnownOutput::known(
                operands.first().map_or_else(String::new, |arg| arg.text.clone()),
            ),
            "basename" => {
                let path = operands.first().map(|arg| arg.text.trim_end_matches('/'));
                KnownOutput::known(
                    path.and_then(|path| path.rsplit('/').next()).unwrap_or_default(),
                )
            }
            "dirname" => match operands.first() {
                Some(arg) => {
                    KnownOutput::known(arg.text.trim_end_matches('/').rsplit_once('/').map_or(
                        ".",
                        |(directory, _)| {
                            if directory.is_empty() { "/" } else { directory }
                        },
                    ))
                }
                None => KnownOutput::unknown(),
            },
            "realpath" | "readlink" => match operands.first() {
                Some(arg) => KnownOutput::known(arg.text.clone()),
                None => KnownOutput::unknown(),
            },
            "git" if has(&["--show-toplevel"]) => {
                KnownOutput::known(self.context.project.to_string_lossy())
            }
            "git" if has(&["rev-parse", "branch", "describe"]) => KnownOutput::name(),
            "date" | "whoami" | "id" | "hostname" | "uname" | "nproc" | "wc" | "seq"
            | "uuidgen" | "arch" | "expr" | "logname" | "getconf" => KnownOutput::name(),
            "mktemp" => KnownOutput::known(NEW_TEMP_DIR),
            "ls" if has(&["-d", "-1d", "-d1", "--directory"]) && !operands.is_empty() => {
                let names: Vec<Argument> = operands.iter().map(|arg| arg.glob_match_of()).collect();
                KnownOutput::lines(&names)
            }
            "ls" => KnownOutput::new(UNKNOWN_NAME, TextOrigin::Computed),
            "mkdir" | "touch" | "rm" | "chmod" | "sleep" | "kill" => KnownOutput::default(),
            _ => KnownOutput::unknown(),
        }
    }
}
