//! Exfiltration, reverse shells and remote access.

use super::files::is_remote;
use super::{CommandInvocation, Hit, finding};
use crate::data::DATA;
use crate::value::{Argument, KnownOutput, TextOrigin, UNKNOWN, UNKNOWN_NAME};

/// Whether a part of a host name is command output. A whole name may be, and so may a local name.
fn carries_command_output(host: &Argument) -> bool {
    const LOCAL_SUFFIXES: &[&str] = &[".local", ".localhost", ".internal", ".lan", ".test"];
    if host.is_unknown() || LOCAL_SUFFIXES.iter().any(|suffix| host.text.ends_with(suffix)) {
        return false;
    }
    // A label before a domain: `$(whoami).example.com`.
    let label = || {
        let mut labels = host.text.split('.');
        labels.next_back();
        labels.any(|label| !label.is_empty() && label.chars().all(|c| c == UNKNOWN_NAME))
    };
    (host.text.contains(UNKNOWN) && host.origin != TextOrigin::Literal) || label()
}

pub(crate) fn is_resolver(name: &str) -> bool {
    DATA.resolvers.contains(&name)
}

/// Options of curl with an attached value: `-ofile`.
const CURL_VALUES: &str = "AbcCdDeEFhHKmoPQrtTuUwxXyYz";

fn skips_tls_verification(command: &CommandInvocation<'_>) -> bool {
    let flags = DATA.insecure_flags.get(command.name).unwrap_or_default();
    let is_insecure = |text: &str| flags.contains(&text);
    let has_short_flag = |text: &str| {
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let mut flags = letters.unwrap_or_default().chars();
        command.name == "curl" && flags.find(|c| *c == 'k' || CURL_VALUES.contains(*c)) == Some('k')
    };
    command.args.iter().any(|arg| is_insecure(&arg.text) || has_short_flag(&arg.text))
}

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    if skips_tls_verification(command) && !targets_loopback(command) {
        hits.push(finding("unchecked_certificate"));
    }
    if command.is(&["curl", "wget"])
        && command.operands().iter().any(|arg| {
            let authority = arg.text.split_once("://").map_or("", |(_, rest)| rest);
            let end = authority.find(['/', '?', ':']).unwrap_or(authority.len());
            let host = authority.get(..end).unwrap_or_default();
            carries_command_output(&Argument { text: host.to_owned(), ..(*arg).clone() })
        })
    {
        hits.push(finding("output_in_address"));
    }
    match command.name {
        "curl" => check_curl(command, hits),
        "wget" => {
            let files = command.values(&["--post-file", "--body-file"]);
            let computed = command
                .values(&["--post-data", "--body-data", "--header"])
                .iter()
                .any(|arg| arg.text.contains(UNKNOWN) && arg.origin != TextOrigin::Literal);
            if (computed || !files.is_empty()) && !targets_loopback(command) {
                hits.push(finding("file_sent"));
            }
        }
        "http" | "https" | "xh" => {
            let sends =
                command.args.iter().any(|arg| arg.text.contains('@') && !arg.text.contains("://"));
            if sends && !targets_loopback(command) {
                hits.push(finding("file_sent"));
            }
        }
        "nc" | "ncat" | "netcat"
            if command.context.stdin.is_some() && !targets_loopback(command) =>
        {
            hits.push(finding("input_sent"));
        }
        "socat" => {
            let word = |words: &[&str]| {
                command.args.iter().any(|arg| {
                    let text = arg.text.to_ascii_lowercase();
                    words.iter().any(|word| text.starts_with(word))
                })
            };
            let connects = word(&["tcp:", "tcp4:", "tcp6:", "openssl:", "udp:", "ssl:"]);
            if connects
                && (word(&["file:", "open:", "gopen:"]) || sends_hidden_data(command))
                && !command.args.iter().any(|arg| {
                    arg.text.split_once(':').is_some_and(|(_, address)| is_loopback(address))
                })
            {
                hits.push(finding("input_sent"));
            } else if connects {
                hits.push(finding("raw_connection"));
            }
        }
        "openssl" if command.subcommand() == "s_client" && sends_hidden_data(command) => {
            hits.push(finding("output_sent"));
        }
        "ssh" if sends_hidden_data(command) => {
            let operands = command.operands();
            let is_remote_host = operands.first().is_some_and(|host| !is_loopback(&host.text));
            // A remote shell that only runs its input keeps nothing.
            let stores_input = operands.iter().skip(1).any(|arg| {
                let mut words = arg.text.split(|c: char| !c.is_ascii_alphanumeric());
                arg.text.contains('>') || words.any(|word| STORING_PROGRAMS.contains(&word))
            });
            if is_remote_host && stores_input && !command.has(&["-n"]) {
                hits.push(finding("input_sent"));
            }
        }
        "sftp"
            if command.context.stdin.is_some_and(|input| {
                input.text.split_whitespace().any(|word| {
                    ["put", "mput", "reput", "-put"].contains(&word) || word.contains(UNKNOWN)
                })
            }) =>
        {
            hits.push(finding("files_copied_out"));
        }
        "scp" | "rsync" | "sftp" => {
            let target = command.operands().last().map(|arg| arg.text.clone()).unwrap_or_default();
            let is_remote_target = is_remote(&target)
                || target.starts_with("rsync://")
                || target.starts_with("scp://");
            if is_remote_target && !is_loopback(&target) {
                hits.push(finding("files_copied_out"));
            }
        }
        "aws" | "gsutil" | "gcloud" | "az" | "s3cmd" | "mc" => check_store(command, hits),
        _ if is_resolver(command.name)
            && command.operands().into_iter().any(carries_command_output) =>
        {
            hits.push(finding("output_in_looked_up_name"));
        }
        "python" | "php" | "ruby" | "npx" | "busybox" => check_serve(command, hits),
        _ => {}
    }
}

const STORING_PROGRAMS: &[&str] =
    &["cat", "tee", "tar", "dd", "cpio", "gzip", "gunzip", "zstd", "base64", "pax", "nc"];

/// Whether standard input is a file or command output, which the command line does not show.
fn sends_hidden_data(command: &CommandInvocation<'_>) -> bool {
    let is_hidden =
        |input: &KnownOutput| input.origin != TextOrigin::Literal || input.text.contains(UNKNOWN);
    command.context.stdin.is_some_and(is_hidden)
}

fn check_curl(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let data = command.values(&[
        "-d",
        "--data",
        "--data-binary",
        "--data-ascii",
        "--data-raw",
        "--data-urlencode",
        "--url-query",
        "--json",
    ]);
    let forms = command.values(&["-F", "--form", "--form-string"]);
    let headers = command.values(&["-H", "--header"]);
    // `name@file`, but not `name=a@b`.
    let encoded = command.values(&["--data-urlencode", "--url-query"]);
    let from_file = |text: &str| text.chars().find(|c| "=@".contains(*c)) == Some('@');
    // Command output in the query of a URL.
    let in_query = command.operands().into_iter().any(|arg| {
        let query = arg.text.split_once('?').map(|(_, query)| query);
        arg.origin != TextOrigin::Literal && query.is_some_and(|query| query.contains(UNKNOWN))
    });
    let uploads = command.values(&["-T", "--upload-file"]);
    let named = |text: &str| text.strip_prefix('@').is_some_and(|file| file != "-");
    let piped =
        data.iter().any(|arg| arg.text == "@-") || uploads.iter().any(|arg| arg.text == "-");
    // Literal input is visible in the command.
    let hidden = command.context.stdin.is_none() || sends_hidden_data(command);
    let files = data.iter().any(|arg| named(&arg.text) || arg.text.contains("=@"))
        || forms.iter().any(|arg| arg.text.contains("=@") || arg.text.contains("=<"))
        || uploads.iter().any(|arg| arg.text != "-")
        || encoded.iter().any(|arg| from_file(&arg.text))
        || headers.iter().any(|arg| named(&arg.text));
    let computed = data
        .iter()
        .chain(&forms)
        .chain(&headers)
        .any(|arg| arg.text.contains(UNKNOWN) && arg.origin != TextOrigin::Literal)
        || in_query;
    if (files || computed || (piped && hidden)) && !targets_loopback(command) {
        hits.push(finding("local_data_sent"));
    }
    for arg in data.iter().chain(&forms).chain(&uploads) {
        let path = arg.text.rsplit('@').next().unwrap_or_default();
        hits.extend(command.context.check_read(&Argument::known(path)));
    }
    for config in command.values(&["-K", "--config"]) {
        hits.extend(command.context.check_read(&config));
    }
}

fn check_store(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let operands = command.operands();
    let copies = operands
        .iter()
        .any(|arg| ["cp", "sync", "mv", "put", "rsync", "upload"].contains(&arg.text.as_str()));
    let bucket =
        |text: &str| ["s3://", "gs://", "az://"].iter().any(|scheme| text.starts_with(scheme));
    if copies && operands.last().is_some_and(|arg| bucket(&arg.text)) {
        hits.push(finding("data_stored_remotely"));
    }
}

fn check_serve(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let text = |word: &str| command.args.iter().any(|arg| arg.text == word);
    let open = text("0.0.0.0") || command.args.iter().any(|arg| arg.text.starts_with("0.0.0.0:"));
    let python = text("http.server") && !text("127.0.0.1") && !text("localhost");
    if python || (open && (text("-S") || text("httpd"))) {
        hits.push(finding("files_served"));
    }
}

fn host_of(text: &str) -> String {
    let host = text.split_once("://").map_or(text, |(_, rest)| rest);
    let host = host.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    host.strip_prefix('[').map_or_else(
        || host.split(':').next().unwrap_or_default().to_owned(),
        |rest| format!("[{}]", rest.split(']').next().unwrap_or_default()),
    )
}

fn is_loopback(text: &str) -> bool {
    const LOOPBACK_NAMES: &[&str] =
        &["localhost", "127.0.0.1", "[::1]", "::1", "0.0.0.0", "host.docker.internal"];
    let host = host_of(text);
    LOOPBACK_NAMES.contains(&host.as_str()) || host.ends_with(".localhost")
}

fn targets_loopback(command: &CommandInvocation<'_>) -> bool {
    let mut any = false;
    for arg in command.operands() {
        let bare = host_of(&arg.text);
        if is_loopback(&arg.text) {
            any = true;
        } else if arg.text.contains("://") || bare.contains('.') {
            return false;
        }
    }
    any
}
