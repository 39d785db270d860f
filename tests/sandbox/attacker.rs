//! Attacks that a shell cannot run: the test program runs itself inside the sandbox.

use std::ffi::c_int;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// The variable that names the attack, and the exit code of a success.
pub(crate) const ATTACK: &str = "TEST_ATTACK";
pub(crate) const ESCAPED: i32 = 42;

/// Not a test by itself: runs the attack in [`ATTACK`] and exits.
#[test]
fn attack() {
    let Ok(attack) = std::env::var(ATTACK) else { return };
    let (name, target) = attack.split_once('=').unwrap_or((&attack, ""));
    let escaped = match name {
        "tcp" => {
            let patience = Duration::from_secs(2);
            TcpStream::connect_timeout(&target.parse().unwrap(), patience).is_ok()
        }
        "udp" => {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            // Sending may succeed without a receiver: only an answer counts.
            socket.send_to(b"ping", target).is_ok() && socket.recv(&mut [0; 8]).is_ok()
        }
        "kernel" => open_kernel_file(),
        "unix" => UnixStream::connect(target).is_ok(),
        "abstract" => {
            let address = SocketAddr::from_abstract_name(target).unwrap();
            UnixStream::connect_addr(&address).is_ok()
        }
        "packet" => call(libc::SYS_socket, [17, libc::c_long::from(libc::SOCK_RAW), 0x0300, 0]),
        "vsock" => call(libc::SYS_socket, [libc::c_long::from(libc::AF_VSOCK), 1, 0, 0]),
        // KEYCTL_GET_KEYRING_ID of the user's keyring.
        "keyring" => call(libc::SYS_keyctl, [0, -4, 0, 0]),
        "ptrace" => {
            // PTRACE_ATTACH.
            call(libc::SYS_ptrace, [16, target.parse().unwrap(), 0, 0])
        }
        "type" => type_into_terminal(),
        "pipe" => {
            // Also for reading, because opening would otherwise wait for a reader.
            let open = fs::OpenOptions::new().read(true).write(true).open(target);
            open.is_ok_and(|mut pipe| pipe.write_all(b"x").is_ok())
        }
        "memory" => attach_memory(target.parse().unwrap()),
        "listen" => TcpListener::bind("0.0.0.0:0").is_ok(),
        "limit" | "priority" | "affinity" | "scheduler" | "disk" => {
            limit_process(name, target.parse().unwrap())
        }
        other => panic!("no attack {other}"),
    };
    std::process::exit(if escaped { ESCAPED } else { 0 });
}

#[expect(unsafe_code, reason = "attacks use calls that have no safe interface")]
fn call(number: libc::c_long, args: [libc::c_long; 4]) -> bool {
    // SAFETY: no call above takes a pointer.
    unsafe { libc::syscall(number, args[0], args[1], args[2], args[3]) >= 0 }
}

#[expect(unsafe_code, reason = "as above")]
fn type_into_terminal() -> bool {
    let key: c_int = c_int::from(b'x');
    // SAFETY: reads one byte from a valid pointer.
    unsafe { libc::ioctl(0, libc::TIOCSTI, &raw const key) == 0 }
}

#[expect(unsafe_code, reason = "as above")]
fn attach_memory(id: c_int) -> bool {
    // SAFETY: the kernel chooses the address, which is not used.
    unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) as isize != -1 }
}

#[expect(unsafe_code, reason = "as above")]
fn limit_process(how: &str, pid: c_int) -> bool {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    let mask = 1u64;
    // SAFETY: the pointers are valid for the sizes that the calls read. All zeroes are valid
    // parameters, whose fields differ between C libraries.
    let done = unsafe {
        let param: libc::sched_param = std::mem::zeroed();
        match how {
            "limit" => {
                libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut())
            }
            "priority" => libc::setpriority(libc::PRIO_PROCESS, pid.cast_unsigned(), 19),
            "affinity" => libc::sched_setaffinity(pid, 8, (&raw const mask).cast()),
            "scheduler" => libc::sched_setscheduler(pid, libc::SCHED_BATCH, &raw const param),
            // The lowest priority of the best-effort class.
            _ => libc::syscall(libc::SYS_ioprio_set, 1, pid, 2 << 13 | 7) as c_int,
        }
    };
    done == 0
}

/// Whether a kernel file that belongs to no process and is not world-writable can be opened for
/// writing. Nothing is written.
fn open_kernel_file() -> bool {
    let is_of_a_process = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_digit()) || name.ends_with("self")
    };
    let mut dirs: Vec<PathBuf> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| !is_of_a_process(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .chain([PathBuf::from("/sys")])
        .collect();
    while let Some(path) = dirs.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.is_dir() {
            let below = fs::read_dir(&path).into_iter().flatten().flatten();
            dirs.extend(below.map(|entry| entry.path()));
        } else if meta.is_file() && meta.mode() & 0o222 != 0 && meta.mode() & 0o002 == 0 {
            let open =
                fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
            if open.is_ok() {
                return true;
            }
        }
    }
    false
}
