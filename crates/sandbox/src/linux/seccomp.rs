//! A seccomp filter against system calls that agents do not need.
//!
//! It reduces the kernel's attack surface. An allow list would break whatever compiler or runtime
//! an agent installs tomorrow.

mod bpf;

pub(super) use bpf::install;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SyscallRule {
    syscall: i64,
    when: ArgCondition,
    errno: i32,
}

/// Conditions look at the lower 32 bits of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgCondition {
    Always,
    Equals {
        argument: u32,
        value: u32,
    },
    HasBit {
        argument: u32,
        bits: u32,
    },
    HasAllBits {
        arguments: [u32; 2],
        bits: [u32; 2],
    },
    NoneOf {
        argument: u32,
        values: &'static [u32],
    },
    /// Neither TCP nor netlink.
    NotTcp,
}

const CLONE_NEWUSER: u32 = libc::CLONE_NEWUSER.cast_unsigned();

#[cfg(test)]
impl SyscallRule {
    pub(super) fn refuse(call: i64, errno: i32) -> SyscallRule {
        SyscallRule { syscall: call, when: ArgCondition::Always, errno }
    }
}

const REFUSED_SYSCALLS: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
];

/// Programs have a fallback for these.
const UNIMPLEMENTED_SYSCALLS: &[i64] = &[
    // Its arguments are in memory, invisible to a filter. C libraries fall back to `clone`.
    libc::SYS_clone3,
    // Its operations bypass the filter.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // Its mode is in memory. Callers fall back to `openat`.
    libc::SYS_openat2,
];

/// Calls on a process. The argument is a pid; 0 is the caller, whose pid a filter cannot know.
/// Landlock covers only signals and process memory.
const PROCESS_CALLS: &[(i64, u32)] = &[
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_move_pages, 0),
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_setpriority, 1),
];

/// IPC objects that all processes of a user share. ENOSYS looks like a kernel without them.
const SHARED_IPC_SYSCALLS: &[i64] = &[
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
];

/// Others reach a VM's host or rarely used parts of the kernel.
const ALLOWED_SOCKET_FAMILIES: &[u32] = &[
    libc::AF_UNIX.cast_unsigned(),
    libc::AF_INET.cast_unsigned(),
    libc::AF_INET6.cast_unsigned(),
    libc::AF_NETLINK.cast_unsigned(),
];

/// Refuses to create setuid programs, which would run with the owner's rights outside, later.
fn setuid_rules() -> impl Iterator<Item = (i64, ArgCondition)> {
    // The same on all architectures; `libc` lacks it on some.
    const SYS_FCHMODAT2: i64 = 452;
    const SETUID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;
    // Without them there is no mode argument.
    const CREATE_FLAGS: u32 =
        (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned();
    let has = |(call, argument)| (call, ArgCondition::HasBit { argument, bits: SETUID_BITS });
    let makes = |(call, flags)| {
        (
            call,
            ArgCondition::HasAllBits {
                arguments: [flags, flags + 1],
                bits: [CREATE_FLAGS, SETUID_BITS],
            },
        )
    };
    // `openat2` is refused altogether.
    let has_mode = [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (SYS_FCHMODAT2, 2),
        (libc::SYS_mknodat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
    ];
    let opens = [
        (libc::SYS_openat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
    ];
    has_mode.into_iter().map(has).chain(opens.into_iter().map(makes))
}

fn rule(syscall: i64, when: ArgCondition, errno: i32) -> SyscallRule {
    SyscallRule { syscall, when, errno }
}

fn always(syscalls: &[i64], errno: i32) -> impl Iterator<Item = SyscallRule> {
    syscalls.iter().map(move |call| rule(*call, ArgCondition::Always, errno))
}

pub(super) fn inside_namespaces() -> Vec<SyscallRule> {
    let mut rules: Vec<SyscallRule> = always(REFUSED_SYSCALLS, libc::EPERM).collect();
    rules.extend(always(UNIMPLEMENTED_SYSCALLS, libc::ENOSYS));
    // Typing into the user's terminal.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        let when =
            ArgCondition::Equals { argument: 1, value: u32::try_from(request).unwrap_or_default() };
        rules.push(rule(libc::SYS_ioctl, when, libc::EPERM));
    }
    // Root rights in a user namespace open more attack surface.
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        let when = ArgCondition::HasBit { argument: 0, bits: CLONE_NEWUSER };
        rules.push(rule(call, when, libc::EPERM));
    }
    rules.extend(setuid_rules().map(|(call, when)| rule(call, when, libc::EPERM)));
    let family = ArgCondition::NoneOf { argument: 0, values: ALLOWED_SOCKET_FAMILIES };
    rules.push(rule(libc::SYS_socket, family, libc::EAFNOSUPPORT));
    rules
}

/// The rules beside Landlock, which restricts only TCP sockets. With `open`, the network is not
/// confined.
pub(super) fn without_namespaces(open: bool) -> Vec<SyscallRule> {
    let mut rules = inside_namespaces();
    for (call, argument) in PROCESS_CALLS {
        let when = ArgCondition::NoneOf { argument: *argument, values: &[0] };
        rules.push(rule(*call, when, libc::EPERM));
    }
    // These also accept groups and users.
    for (call, process) in [(libc::SYS_setpriority, &[0]), (libc::SYS_ioprio_set, &[1])] {
        let when = ArgCondition::NoneOf { argument: 0, values: process };
        rules.push(rule(call, when, libc::EPERM));
    }
    rules.extend(always(SHARED_IPC_SYSCALLS, libc::ENOSYS));
    if !open {
        rules.push(rule(libc::SYS_socket, ArgCondition::NotTcp, libc::EACCES));
        // TCP Fast Open connects without `connect`, which is all that Landlock checks.
        let bits = libc::MSG_FASTOPEN.cast_unsigned();
        for (call, argument) in
            [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
        {
            rules.push(rule(call, ArgCondition::HasBit { argument, bits }, libc::EOPNOTSUPP));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::bpf::*;
    use super::*;

    /// Interprets the program like the kernel.
    fn run(program: &[libc::sock_filter], architecture: u32, number: u32, args: [u64; 6]) -> u32 {
        let mut accumulator = 0;
        let mut at = 0;
        loop {
            let instruction = program[at];
            let code = u32::from(instruction.code);
            at += 1;
            match code & 0x07 {
                libc::BPF_LD => {
                    accumulator = match instruction.k {
                        NUMBER_AT => number,
                        ARCHITECTURE_AT => architecture,
                        offset => args[((offset - ARGUMENTS_AT) / 8) as usize] as u32,
                    }
                }
                libc::BPF_JMP => {
                    let taken = match code & 0xf0 {
                        libc::BPF_JEQ => accumulator == instruction.k,
                        libc::BPF_JGE => accumulator >= instruction.k,
                        libc::BPF_JSET => accumulator & instruction.k != 0,
                        other => panic!("{other:#x}"),
                    };
                    at += usize::from(if taken { instruction.jt } else { instruction.jf });
                }
                libc::BPF_ALU => accumulator &= instruction.k,
                libc::BPF_RET => return instruction.k,
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn seccomp_filter_refuses_only_listed_calls() {
        let program = compile(&inside_namespaces());
        assert!(program.len() < 4096, "the kernel takes no more");
        let no = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
        let yes = libc::SECCOMP_RET_ALLOW;
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
        for (call, first, second, expected) in [
            (libc::SYS_read, 0, 0, yes),
            (libc::SYS_execve, 0, 0, yes),
            (libc::SYS_ptrace, 0, 0, yes),
            (libc::SYS_mount, 0, 0, no(libc::EPERM)),
            (libc::SYS_keyctl, 0, 0, no(libc::EPERM)),
            (libc::SYS_clone3, 0, 0, no(libc::ENOSYS)),
            (libc::SYS_clone, thread, 0, yes),
            (libc::SYS_clone, u64::from(CLONE_NEWUSER), 0, no(libc::EPERM)),
            (libc::SYS_unshare, u64::from(CLONE_NEWUSER) | 0x2_0000, 0, no(libc::EPERM)),
            (libc::SYS_unshare, 0x200, 0, yes),
            (libc::SYS_ioctl, 0, libc::TIOCGWINSZ, yes),
            (libc::SYS_ioctl, 0, libc::TIOCSTI, no(libc::EPERM)),
            // The kernel uses only the lower half.
            (libc::SYS_ioctl, 0, libc::TIOCSTI | 0xabcd_0000_0000, no(libc::EPERM)),
            (libc::SYS_socket, 1, 0, yes),
            (libc::SYS_socket, 16, 0, yes),
            (libc::SYS_socket, libc::AF_VSOCK as u64, 0, no(libc::EAFNOSUPPORT)),
            (libc::SYS_socket, libc::AF_PACKET as u64, 0, no(libc::EAFNOSUPPORT)),
        ] {
            let args = [first, second, 0, 0, 0, 0];
            assert_eq!(run(&program, ARCHITECTURE, call as u32, args), expected, "{call}");
        }
        let create = (libc::O_CREAT | libc::O_WRONLY) as u64;
        for (call, args, expected) in [
            (libc::SYS_fchmod, [3, 0o755, 0, 0], yes),
            (libc::SYS_fchmod, [3, 0o4755, 0, 0], no(libc::EPERM)),
            (libc::SYS_fchmodat, [0, 0, 0o2755, 0], no(libc::EPERM)),
            (libc::SYS_openat, [0, 0, create, 0o644], yes),
            (libc::SYS_openat, [0, 0, create, 0o4755], no(libc::EPERM)),
            (libc::SYS_openat, [0, 0, 0, 0o7777], yes),
            (libc::SYS_openat, [0, 0, libc::O_DIRECTORY as u64, 0o7777], yes),
            (libc::SYS_openat, [0, 0, libc::O_TMPFILE as u64, 0o4755], no(libc::EPERM)),
        ] {
            let args = [args[0], args[1], args[2], args[3], 0, 0];
            assert_eq!(run(&program, ARCHITECTURE, call as u32, args), expected, "{call} {args:?}");
        }
        let program = compile(&without_namespaces(false));
        let stream = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
        let (dgram, raw) = (libc::SOCK_DGRAM as u64, libc::SOCK_RAW as u64);
        for (family, kind, protocol, expected) in [
            (libc::AF_INET, stream, 0, yes),
            (libc::AF_INET6, stream, libc::IPPROTO_TCP, yes),
            (libc::AF_NETLINK, raw, 0, yes),
            (libc::AF_INET, dgram, 0, no(libc::EACCES)),
            (libc::AF_INET6, raw, 0, no(libc::EACCES)),
            (libc::AF_INET, stream, libc::IPPROTO_SCTP, no(libc::EACCES)),
            (libc::AF_INET, stream, libc::IPPROTO_MPTCP, no(libc::EACCES)),
            (libc::AF_UNIX, stream, 0, no(libc::EACCES)),
            (libc::AF_VSOCK, stream, 0, no(libc::EAFNOSUPPORT)),
        ] {
            let args = [family as u64, kind, protocol as u64, 0, 0, 0];
            let call = libc::SYS_socket as u32;
            assert_eq!(run(&program, ARCHITECTURE, call, args), expected, "{family} {kind}");
        }
        let fast = [0, 0, 0, libc::MSG_FASTOPEN as u64, 0, 0];
        let call = libc::SYS_sendto as u32;
        assert_eq!(run(&program, ARCHITECTURE, call, fast), no(libc::EOPNOTSUPP));
        assert_eq!(run(&program, ARCHITECTURE, call, [0; 6]), yes);
        for (call, args, expected) in [
            (libc::SYS_prlimit64, [0, 0], yes),
            (libc::SYS_prlimit64, [1, 0], no(libc::EPERM)),
            // The kernel uses the lower half as pid.
            (libc::SYS_prlimit64, [0xabcd_0000_0000, 0], yes),
            (libc::SYS_sched_setaffinity, [0, 8], yes),
            (libc::SYS_sched_setaffinity, [77, 8], no(libc::EPERM)),
            (libc::SYS_sched_setscheduler, [77, 0], no(libc::EPERM)),
            (libc::SYS_sched_setparam, [77, 0], no(libc::EPERM)),
            (libc::SYS_sched_setattr, [77, 0], no(libc::EPERM)),
            (libc::SYS_setpriority, [libc::PRIO_PROCESS as u64, 0], yes),
            (libc::SYS_setpriority, [libc::PRIO_PROCESS as u64, 77], no(libc::EPERM)),
            (libc::SYS_setpriority, [libc::PRIO_PGRP as u64, 0], no(libc::EPERM)),
            (libc::SYS_setpriority, [libc::PRIO_USER as u64, 0], no(libc::EPERM)),
            (libc::SYS_ioprio_set, [1, 0], yes),
            (libc::SYS_ioprio_set, [1, 77], no(libc::EPERM)),
            (libc::SYS_ioprio_set, [3, 0], no(libc::EPERM)),
            (libc::SYS_shmget, [0, 0], no(libc::ENOSYS)),
            (libc::SYS_shmat, [0, 0], no(libc::ENOSYS)),
            (libc::SYS_mq_open, [0, 0], no(libc::ENOSYS)),
        ] {
            let args = [args[0], args[1], 0, 0, 0, 0];
            assert_eq!(run(&program, ARCHITECTURE, call as u32, args), expected, "{call} {args:?}");
        }
        let program = compile(&without_namespaces(true));
        let unix = [libc::AF_UNIX as u64, stream, 0, 0, 0, 0];
        assert_eq!(run(&program, ARCHITECTURE, libc::SYS_socket as u32, unix), yes);

        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(run(&program, 0x4000_0003, 0, [0; 6]), kill, "32-bit calls");
        if cfg!(target_arch = "x86_64") {
            let other = libc::SYS_mount as u32 | X32_BIT;
            assert_eq!(run(&program, ARCHITECTURE, other, [0; 6]), no(libc::ENOSYS));
        }
    }
}
