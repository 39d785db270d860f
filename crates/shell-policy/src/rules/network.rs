//! Exfiltration; reverse shells and remote access.

use super::files::is_remote;
use super::table::{deny, warn};
use super::{Hit, Invocation, Rule};
use crate::Family::{Containers, Environment, Exfiltration, Remote};
use crate::value::{Arg, BELOW, HOLE, Origin};

const UNCHECKED_LATER: &str = "from now on nobody checks who is at the other end";
const CHECKED: &str = "leave the check on, and name the certificate of a server that you trust";
const TUNNEL: &str = "it opens this machine to others";
const SERVE: &str = "serve on 127.0.0.1, for as long as the check needs it";

pub(super) const RULES: &[Rule] = &[
    deny(Remote, &["nc", "ncat", "netcat", "nc.traditional", "nc.openbsd"])
        .with(&["-e", "-c", "--exec", "--sh-exec", "--lua-exec"])
        .because("it hands a shell to whoever is at the other end", "leave it"),
    deny(Remote, &["nc", "ncat", "netcat", "nc.traditional", "nc.openbsd"])
        .with(&["-l", "--listen"])
        .because("it listens for connections", SERVE),
    deny(
        Remote,
        &[
            "ngrok",
            "localtunnel",
            "lt",
            "bore",
            "frpc",
            "chisel",
            "cloudflared",
            "sshuttle",
            "tailscale",
            "zerotier-cli",
            "serveo",
            "pagekite",
            "gost",
            "rathole",
        ],
    )
    .because(TUNNEL, SERVE),
    deny(
        Remote,
        &[
            "sshd",
            "dropbear",
            "telnetd",
            "in.telnetd",
            "x11vnc",
            "vncserver",
            "xrdp",
            "teamviewer",
            "anydesk",
            "rustdesk",
            "ttyd",
            "gotty",
            "tmate",
            "wetty",
        ],
    )
    .because("it lets others in", "leave it"),
    deny(Remote, &["ssh", "autossh"])
        .with(&["-R", "-D", "-w"])
        .because("it opens a tunnel", "run what you need here"),
    deny(
        Remote,
        &[
            "msfvenom",
            "msfconsole",
            "pwncat",
            "evil-winrm",
            "hydra",
            "sqlmap",
            "nmap",
            "masscan",
            "responder",
        ],
    )
    .because("it is a tool for breaking in", "leave it"),
    warn(Remote, &["ssh", "autossh", "mosh", "telnet", "rsh", "rlogin", "sftp"])
        .unless(&["-V", "-Q", "-G"])
        .because("it works on another machine, which nothing here guards", "work on this machine"),
    warn(Remote, &["ssh-copy-id"]).because("it lets this machine's key into another", "leave it"),
    deny(
        Exfiltration,
        &[
            "pastebinit",
            "wormhole",
            "magic-wormhole",
            "croc",
            "ffsend",
            "transfer",
            "0x0",
            "termbin",
        ],
    )
    .because("it sends local data to others", "keep it here and name the file in your answer"),
    deny(Exfiltration, &["mail", "mailx", "mutt", "sendmail", "swaks", "msmtp"])
        .because("it sends mail", "put what you have to say into your answer"),
    deny(Exfiltration, &["gh"])
        .sub(&["gist create"])
        .because("it publishes local data as a gist", "put it into a file of the project"),
    deny(Exfiltration, &["rclone"])
        .sub(&["copy", "sync", "move", "copyto", "moveto", "rcat"])
        .because(
            "it copies data to a remote store",
            "keep it here and name the file in your answer",
        ),
    deny(Exfiltration, &["ftp", "lftp", "ncftpput", "tftp", "smbclient"]).because(
        "it moves data to another machine",
        "keep it here and name the file in your answer",
    ),
    warn(Environment, &["npm", "pnpm", "yarn"])
        .sub(&[
            "config set strict-ssl false",
            "config set strict-ssl=false",
            "set strict-ssl false",
            "set strict-ssl=false",
            "config set enableStrictSsl false",
        ])
        .because(UNCHECKED_LATER, CHECKED),
    warn(Environment, &["conda", "mamba", "bundle", "composer", "poetry", "go"])
        .sub(&[
            "config ssl_verify false",
            "config ssl_verify_mode 0",
            "config set ssl_verify_mode 0",
            "config secure-http false",
            "config disable-tls true",
            "config certificates.* false",
            "env GOINSECURE=*",
        ])
        .because(UNCHECKED_LATER, CHECKED),
    deny(Exfiltration, &["tcpdump", "tshark", "wireshark", "ettercap", "mitmproxy", "dsniff"])
        .because("it listens in on the network", "log in the program itself"),
];

const KEEP: &str = "keep it here and name the file in your answer";

/// Programs that have a name looked up.
const RESOLVERS: &[&str] = &[
    "dig",
    "nslookup",
    "host",
    "ping",
    "ping6",
    "fping",
    "drill",
    "delv",
    "kdig",
    "dog",
    "doggo",
    "getent",
    "resolvectl",
    "systemd-resolve",
    "traceroute",
    "tracepath",
    "mtr",
    "dns-sd",
    "whois",
];

/// Whether a host name has in it what another command printed. The whole of a name may come from there, and so
/// may names that stay on this network.
fn carries_data(host: &Arg) -> bool {
    const NEAR: &[&str] = &[".local", ".localhost", ".internal", ".lan", ".test"];
    if host.is_hole() || NEAR.iter().any(|near| host.text.ends_with(near)) {
        return false;
    }
    // A label of its own, with a domain behind it: `$(whoami).example.com`.
    let label = || {
        let mut labels = host.text.split('.');
        labels.next_back();
        labels.any(|label| !label.is_empty() && label.chars().all(|c| c == BELOW))
    };
    (host.text.contains(HOLE) && host.origin != Origin::Written) || label()
}

pub(crate) fn is_resolver(name: &str) -> bool {
    RESOLVERS.contains(&name)
}

pub(crate) fn looked_up() -> Hit {
    Hit::deny(Exfiltration, "it puts a secret into a name that others get to see", KEEP)
}

/// Flags by which programs talk to a server without a look at its certificate.
const UNCHECKED: &[(&[&str], &[&str])] = &[
    (&["curl"], &["--insecure", "--proxy-insecure", "--doh-insecure"]),
    (&["wget", "wget2"], &["--no-check-certificate"]),
    (&["http", "https", "xh", "xhs"], &["--verify=no", "--verify=false"]),
    (&["aws"], &["--no-verify-ssl"]),
    (&["aria2c"], &["--check-certificate=false"]),
    (&["npm", "pnpm", "yarn"], &["--strict-ssl=false", "--no-strict-ssl"]),
    (
        &["kubectl", "oc", "helm", "k"],
        &["--insecure-skip-tls-verify", "--insecure-skip-tls-verify=true"],
    ),
];

/// Letters of curl's whose value may follow at once: `-ofile`.
const CURL_VALUES: &str = "AbcCdDeEFhHKmoPQrtTuUwxXyYz";

pub(super) fn unchecked() -> Hit {
    Hit::warn(Environment, "nobody checks who is at the other end", CHECKED)
}

fn is_unchecked(command: &Invocation<'_>) -> bool {
    let flags = UNCHECKED.iter().find(|(programs, _)| command.is(programs));
    let said = |text: &str| flags.is_some_and(|(_, flags)| flags.contains(&text));
    let short = |text: &str| {
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let mut flags = letters.unwrap_or_default().chars();
        command.name == "curl" && flags.find(|c| *c == 'k' || CURL_VALUES.contains(*c)) == Some('k')
    };
    command.args.iter().any(|arg| said(&arg.text) || short(&arg.text))
}

pub(super) fn look(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    if is_unchecked(command) && !to_this_machine(command) {
        hits.push(unchecked());
    }
    if command.is(&["curl", "wget"])
        && command.operands().iter().any(|arg| {
            let authority = arg.text.split_once("://").map_or("", |(_, rest)| rest);
            let end = authority.find(['/', '?', ':']).unwrap_or(authority.len());
            let host = authority.get(..end).unwrap_or_default();
            carries_data(&Arg { text: host.to_owned(), ..(*arg).clone() })
        })
    {
        hits.push(Hit::warn(
            Exfiltration,
            "it puts what another command printed into a name that others get to see",
            KEEP,
        ));
    }
    match command.name {
        "curl" => curl(command, hits),
        "wget" => {
            let files = command.values(&["--post-file", "--body-file"]);
            let computed = command
                .values(&["--post-data", "--body-data", "--header"])
                .iter()
                .any(|arg| arg.text.contains(HOLE) && arg.origin != Origin::Written);
            if (computed || !files.is_empty()) && !to_this_machine(command) {
                hits.push(Hit::deny(Exfiltration, "it sends a file to another machine", KEEP));
            }
        }
        "http" | "https" | "xh" => {
            let sends =
                command.args.iter().any(|arg| arg.text.contains('@') && !arg.text.contains("://"));
            if sends && !to_this_machine(command) {
                hits.push(Hit::deny(Exfiltration, "it sends a file to another machine", KEEP));
            }
        }
        "nc" | "ncat" | "netcat" if command.scene.stdin.is_some() && !to_this_machine(command) => {
            hits.push(Hit::deny(Exfiltration, "it sends what it reads to another machine", KEEP));
        }
        "socat" => {
            let word = |words: &[&str]| {
                command.args.iter().any(|arg| {
                    let text = arg.text.to_ascii_lowercase();
                    words.iter().any(|word| text.starts_with(word))
                })
            };
            if word(&["exec:", "system:", "shell:"]) {
                hits.push(Hit::deny(
                    Remote,
                    "it hands a program to whoever is at the other end",
                    "leave it",
                ));
            } else if word(&[
                "tcp-listen:",
                "tcp4-listen:",
                "tcp-l:",
                "openssl-listen:",
                "udp-listen:",
            ]) {
                hits.push(Hit::deny(Remote, TUNNEL, SERVE));
            } else if word(&["tcp:", "tcp4:", "tcp6:", "openssl:", "udp:", "ssl:"])
                && (word(&["file:", "open:", "gopen:"]) || sends_what_is_hidden(command))
                && !command.args.iter().any(|arg| {
                    arg.text.split_once(':').is_some_and(|(_, address)| is_here(address))
                })
            {
                hits.push(Hit::deny(
                    Exfiltration,
                    "it sends what it reads to another machine",
                    KEEP,
                ));
            } else if word(&["tcp:", "tcp4:", "tcp6:", "openssl:", "udp:", "ssl:"]) {
                hits.push(Hit::warn(Remote, "it opens a raw connection", "use curl"));
            }
        }
        "openssl"
            if command.operands().first().is_some_and(|arg| arg.text == "s_client")
                && command.scene.stdin.is_some_and(|input| {
                    input.origin != Origin::Written || input.text.contains(HOLE)
                }) =>
        {
            hits.push(Hit::deny(
                Remote,
                "it sends what another command prints to another machine",
                KEEP,
            ));
        }
        "ssh" if sends_what_is_hidden(command) => {
            let operands = command.operands();
            let there = operands.first().is_some_and(|host| !is_here(&host.text));
            // What over there only runs, as a shell or in a loop over hosts, keeps nothing of it.
            let keeps = operands.iter().skip(1).any(|arg| {
                let mut words = arg.text.split(|c: char| !c.is_ascii_alphanumeric());
                arg.text.contains('>') || words.any(|word| KEEPING.contains(&word))
            });
            if there && keeps && !command.has(&["-n"]) {
                hits.push(Hit::deny(
                    Exfiltration,
                    "it sends what it reads to another machine",
                    KEEP,
                ));
            }
        }
        "sftp"
            if command.scene.stdin.is_some_and(|input| {
                input.text.split_whitespace().any(|word| {
                    ["put", "mput", "reput", "-put"].contains(&word) || word.contains(HOLE)
                })
            }) =>
        {
            hits.push(Hit::deny(Exfiltration, "it copies files to another machine", KEEP));
        }
        "scp" | "rsync" | "sftp" => {
            let target = command.operands().last().map(|arg| arg.text.clone()).unwrap_or_default();
            let elsewhere = is_remote(&target)
                || target.starts_with("rsync://")
                || target.starts_with("scp://");
            if elsewhere && !is_here(&target) {
                hits.push(Hit::deny(Exfiltration, "it copies files to another machine", KEEP));
            }
        }
        "aws" | "gsutil" | "gcloud" | "az" | "s3cmd" | "mc" => store(command, hits),
        _ if command.is(RESOLVERS) && command.operands().into_iter().any(carries_data) => {
            hits.push(Hit::deny(
                Exfiltration,
                "it puts what another command printed into a name that others get to see",
                KEEP,
            ));
        }
        "python" | "php" | "ruby" | "npx" | "busybox" => serve(command, hits),
        _ => {}
    }
}

/// Programs that write down, unpack or pass on what they read.
const KEEPING: &[&str] =
    &["cat", "tee", "tar", "dd", "cpio", "gzip", "gunzip", "zstd", "base64", "pax", "nc"];

/// Whether it reads what does not stand in the command: a file, or what another command prints.
fn sends_what_is_hidden(command: &Invocation<'_>) -> bool {
    command
        .scene
        .stdin
        .is_some_and(|input| input.origin != Origin::Written || input.text.contains(HOLE))
}

fn curl(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let sockets = command.values(&["--unix-socket"]);
    if sockets.iter().any(|arg| {
        ["docker.sock", "containerd.sock", "podman.sock"]
            .iter()
            .any(|name| arg.text.ends_with(name))
    }) {
        hits.push(Hit::deny(
            Containers,
            "who has the socket of the container daemon has the machine",
            "use docker's own commands",
        ));
    }
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
    // What another command printed, behind the `?` of an address.
    let asked = command.operands().into_iter().any(|arg| {
        let query = arg.text.split_once('?').map(|(_, query)| query);
        arg.origin != Origin::Written && query.is_some_and(|query| query.contains(HOLE))
    });
    let uploads = command.values(&["-T", "--upload-file"]);
    let named = |text: &str| text.strip_prefix('@').is_some_and(|file| file != "-");
    let piped =
        data.iter().any(|arg| arg.text == "@-") || uploads.iter().any(|arg| arg.text == "-");
    // What stands in the command is there to be seen; what is read from elsewhere is not.
    let hidden = command
        .scene
        .stdin
        .is_none_or(|input| input.origin != Origin::Written || input.text.contains(HOLE));
    let files = data.iter().any(|arg| named(&arg.text) || arg.text.contains("=@"))
        || forms.iter().any(|arg| arg.text.contains("=@") || arg.text.contains("=<"))
        || uploads.iter().any(|arg| arg.text != "-")
        || encoded.iter().any(|arg| from_file(&arg.text))
        || headers.iter().any(|arg| named(&arg.text));
    let computed = data
        .iter()
        .chain(&forms)
        .chain(&headers)
        .any(|arg| arg.text.contains(HOLE) && arg.origin != Origin::Written)
        || asked;
    if (files || computed || (piped && hidden)) && !to_this_machine(command) {
        hits.push(Hit::deny(Exfiltration, "it sends local data to another machine", KEEP));
    }
    for arg in data.iter().chain(&forms).chain(&uploads) {
        let path = arg.text.rsplit('@').next().unwrap_or_default();
        hits.extend(command.scene.reads(&Arg::known(path)));
    }
    for config in command.values(&["-K", "--config"]) {
        hits.extend(command.scene.reads(&config));
    }
}

fn store(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let operands = command.operands();
    let copies = operands
        .iter()
        .any(|arg| ["cp", "sync", "mv", "put", "rsync", "upload"].contains(&arg.text.as_str()));
    let bucket =
        |text: &str| ["s3://", "gs://", "az://"].iter().any(|scheme| text.starts_with(scheme));
    if copies && operands.last().is_some_and(|arg| bucket(&arg.text)) {
        hits.push(Hit::deny(Exfiltration, "it copies data to a remote store", KEEP));
    }
}

fn serve(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let text = |word: &str| command.args.iter().any(|arg| arg.text == word);
    let open = text("0.0.0.0") || command.args.iter().any(|arg| arg.text.starts_with("0.0.0.0:"));
    let python = text("http.server") && !text("127.0.0.1") && !text("localhost");
    if python || (open && (text("-S") || text("httpd"))) {
        hits.push(Hit::warn(
            Remote,
            "it serves files to everybody who can reach this machine",
            "bind it to 127.0.0.1",
        ));
    }
}

/// The host in an address, or in a target of scp.
fn host(text: &str) -> String {
    let host = text.split_once("://").map_or(text, |(_, rest)| rest);
    // What is before an @ is a user, not a host.
    let host = host.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    host.strip_prefix('[').map_or_else(
        || host.split(':').next().unwrap_or_default().to_owned(),
        |rest| format!("[{}]", rest.split(']').next().unwrap_or_default()),
    )
}

fn is_here(text: &str) -> bool {
    const HERE: &[&str] =
        &["localhost", "127.0.0.1", "[::1]", "::1", "0.0.0.0", "host.docker.internal"];
    let host = host(text);
    HERE.contains(&host.as_str()) || host.ends_with(".localhost")
}

fn to_this_machine(command: &Invocation<'_>) -> bool {
    let mut any = false;
    for arg in command.operands() {
        let bare = host(&arg.text);
        if is_here(&arg.text) {
            any = true;
        } else if arg.text.contains("://") || bare.contains('.') {
            return false;
        }
    }
    any
}
