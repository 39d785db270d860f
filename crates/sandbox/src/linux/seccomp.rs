//! A seccomp filter against system calls that agents do not need.
//!
//! It reduces the kernel's attack surface. An allow list would break whatever compiler or runtime
//! an agent installs tomorrow.

mod bpf;
mod syscalls;

pub(super) use bpf::install;
pub(super) use syscalls::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SyscallRule {
    syscall: Syscall,
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
    pub(super) fn refuse(call: Syscall, errno: i32) -> SyscallRule {
        SyscallRule { syscall: call, when: ArgCondition::Always, errno }
    }
}

/// Calls on a process. The argument is a pid; 0 is the caller, whose pid a filter cannot know.
/// Landlock covers only signals and process memory.
const PROCESS_CALLS: &[(Syscall, u32)] = &[
    (SYS_ioprio_set, 1),
    (SYS_migrate_pages, 0),
    (SYS_move_pages, 0),
    (SYS_prlimit64, 0),
    (SYS_sched_setaffinity, 0),
    (SYS_sched_setattr, 0),
    (SYS_sched_setparam, 0),
    (SYS_sched_setscheduler, 0),
    (SYS_setpriority, 1),
];

/// Others reach a VM's host or rarely used parts of the kernel.
const ALLOWED_SOCKET_FAMILIES: &[u32] = &[
    libc::AF_UNIX.cast_unsigned(),
    libc::AF_INET.cast_unsigned(),
    libc::AF_INET6.cast_unsigned(),
    libc::AF_NETLINK.cast_unsigned(),
];

/// Refuses to create setuid programs, which would run with the owner's rights outside, later.
fn setuid_rules() -> impl Iterator<Item = (Syscall, ArgCondition)> {
    const SETUID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;
    // Without them there is no mode argument. The same on all architectures, unlike O_DIRECTORY.
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
        (SYS_fchmod, 1),
        (SYS_fchmodat, 2),
        (SYS_fchmodat2, 2),
        (SYS_mknodat, 2),
        (SYS_chmod, 1),
        (SYS_creat, 1),
        (SYS_mknod, 1),
    ];
    let opens = [(SYS_openat, 2), (SYS_open, 1)];
    has_mode.into_iter().map(has).chain(opens.into_iter().map(makes))
}

fn rule(syscall: Syscall, when: ArgCondition, errno: i32) -> SyscallRule {
    SyscallRule { syscall, when, errno }
}

fn always(syscalls: &[Syscall], errno: i32) -> impl Iterator<Item = SyscallRule> {
    syscalls.iter().map(move |call| rule(*call, ArgCondition::Always, errno))
}

pub(super) fn inside_namespaces() -> Vec<SyscallRule> {
    let mut rules: Vec<SyscallRule> = always(REFUSED_SYSCALLS, libc::EPERM).collect();
    rules.extend(always(&[SYS_kexec_file_load], libc::EPERM));
    rules.extend(always(UNIMPLEMENTED_SYSCALLS, libc::ENOSYS));
    // Typing into the user's terminal.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        let when =
            ArgCondition::Equals { argument: 1, value: u32::try_from(request).unwrap_or_default() };
        rules.push(rule(SYS_ioctl, when, libc::EPERM));
    }
    // Root rights in a user namespace open more attack surface.
    for call in [SYS_unshare, SYS_clone] {
        let when = ArgCondition::HasBit { argument: 0, bits: CLONE_NEWUSER };
        rules.push(rule(call, when, libc::EPERM));
    }
    rules.extend(setuid_rules().map(|(call, when)| rule(call, when, libc::EPERM)));
    let family = ArgCondition::NoneOf { argument: 0, values: ALLOWED_SOCKET_FAMILIES };
    rules.push(rule(SYS_socket, family, libc::EAFNOSUPPORT));
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
    for (call, process) in [(SYS_setpriority, &[0]), (SYS_ioprio_set, &[1])] {
        let when = ArgCondition::NoneOf { argument: 0, values: process };
        rules.push(rule(call, when, libc::EPERM));
    }
    rules.extend(always(SHARED_IPC_SYSCALLS, libc::ENOSYS));
    if !open {
        rules.push(rule(SYS_socket, ArgCondition::NotTcp, libc::EACCES));
        // TCP Fast Open connects without `connect`, which is all that Landlock checks.
        let bits = libc::MSG_FASTOPEN.cast_unsigned();
        for (call, argument) in [(SYS_sendto, 3), (SYS_sendmsg, 2), (SYS_sendmmsg, 3)] {
            rules.push(rule(call, ArgCondition::HasBit { argument, bits }, libc::EOPNOTSUPP));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::bpf::*;
    use super::syscalls::Architecture;
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
        check_filter(Architecture::X86_64);
    }

    #[test]
    fn seccomp_filter_of_arm64_refuses_only_listed_calls() {
        check_filter(Architecture::Arm64);
    }

    fn check_filter(architecture: Architecture) {
        // The type of such numbers in `libc` differs.
        const TYPE_INTO: u64 = 0x5412;
        const WINDOW_SIZE: u64 = 0x5413;
        let program = compile(&inside_namespaces(), architecture);
        let run = |program: &[libc::sock_filter], call: Syscall, args: [u64; 6]| {
            run(program, architecture.audit_value(), call.number(architecture).unwrap(), args)
        };
        assert!(program.len() < 4096, "the kernel takes no more");
        let no = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
        let yes = libc::SECCOMP_RET_ALLOW;
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
        for (call, first, second, expected) in [
            (SYS_read, 0, 0, yes),
            (SYS_execve, 0, 0, yes),
            (SYS_ptrace, 0, 0, yes),
            (SYS_mount, 0, 0, no(libc::EPERM)),
            (SYS_keyctl, 0, 0, no(libc::EPERM)),
            (SYS_clone3, 0, 0, no(libc::ENOSYS)),
            (SYS_clone, thread, 0, yes),
            (SYS_clone, u64::from(CLONE_NEWUSER), 0, no(libc::EPERM)),
            (SYS_unshare, u64::from(CLONE_NEWUSER) | 0x2_0000, 0, no(libc::EPERM)),
            (SYS_unshare, 0x200, 0, yes),
            (SYS_ioctl, 0, WINDOW_SIZE, yes),
            (SYS_ioctl, 0, TYPE_INTO, no(libc::EPERM)),
            // The kernel uses only the lower half.
            (SYS_ioctl, 0, TYPE_INTO | 0xabcd_0000_0000, no(libc::EPERM)),
            (SYS_socket, 1, 0, yes),
            (SYS_socket, 16, 0, yes),
            (SYS_socket, libc::AF_VSOCK as u64, 0, no(libc::EAFNOSUPPORT)),
            (SYS_socket, libc::AF_PACKET as u64, 0, no(libc::EAFNOSUPPORT)),
        ] {
            let args = [first, second, 0, 0, 0, 0];
            assert_eq!(run(&program, call, args), expected, "{call:?}");
        }
        let directory: u64 =
            if architecture == Architecture::X86_64 { 0o200_000 } else { 0o40_000 };
        let tmpfile = 0o20_000_000 | directory;
        let create = (libc::O_CREAT | libc::O_WRONLY) as u64;
        for (call, args, expected) in [
            (SYS_fchmod, [3, 0o755, 0, 0], yes),
            (SYS_fchmod, [3, 0o4755, 0, 0], no(libc::EPERM)),
            (SYS_fchmodat, [0, 0, 0o2755, 0], no(libc::EPERM)),
            (SYS_openat, [0, 0, create, 0o644], yes),
            (SYS_openat, [0, 0, create, 0o4755], no(libc::EPERM)),
            (SYS_openat, [0, 0, 0, 0o7777], yes),
            (SYS_openat, [0, 0, directory, 0o7777], yes),
            (SYS_openat, [0, 0, tmpfile, 0o4755], no(libc::EPERM)),
        ] {
            let args = [args[0], args[1], args[2], args[3], 0, 0];
            assert_eq!(run(&program, call, args), expected, "{call:?} {args:?}");
        }
        let program = compile(&without_namespaces(false), architecture);
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
            assert_eq!(run(&program, SYS_socket, args), expected, "{family} {kind}");
        }
        let fast = [0, 0, 0, libc::MSG_FASTOPEN as u64, 0, 0];
        assert_eq!(run(&program, SYS_sendto, fast), no(libc::EOPNOTSUPP));
        assert_eq!(run(&program, SYS_sendto, [0; 6]), yes);
        for (call, args, expected) in [
            (SYS_prlimit64, [0, 0], yes),
            (SYS_prlimit64, [1, 0], no(libc::EPERM)),
            // The kernel uses the lower half as pid.
            (SYS_prlimit64, [0xabcd_0000_0000, 0], yes),
            (SYS_sched_setaffinity, [0, 8], yes),
            (SYS_sched_setaffinity, [77, 8], no(libc::EPERM)),
            (SYS_sched_setscheduler, [77, 0], no(libc::EPERM)),
            (SYS_sched_setparam, [77, 0], no(libc::EPERM)),
            (SYS_sched_setattr, [77, 0], no(libc::EPERM)),
            (SYS_setpriority, [libc::PRIO_PROCESS as u64, 0], yes),
            (SYS_setpriority, [libc::PRIO_PROCESS as u64, 77], no(libc::EPERM)),
            (SYS_setpriority, [libc::PRIO_PGRP as u64, 0], no(libc::EPERM)),
            (SYS_setpriority, [libc::PRIO_USER as u64, 0], no(libc::EPERM)),
            (SYS_ioprio_set, [1, 0], yes),
            (SYS_ioprio_set, [1, 77], no(libc::EPERM)),
            (SYS_ioprio_set, [3, 0], no(libc::EPERM)),
            (SYS_shmget, [0, 0], no(libc::ENOSYS)),
            (SYS_shmat, [0, 0], no(libc::ENOSYS)),
            (SYS_mq_open, [0, 0], no(libc::ENOSYS)),
        ] {
            let args = [args[0], args[1], 0, 0, 0, 0];
            assert_eq!(run(&program, call, args), expected, "{call:?} {args:?}");
        }
        let program = compile(&without_namespaces(true), architecture);
        let unix = [libc::AF_UNIX as u64, stream, 0, 0, 0, 0];
        assert_eq!(run(&program, SYS_socket, unix), yes);
    }

    #[test]
    fn seccomp_filter_refuses_every_call_of_its_lists() {
        for architecture in [Architecture::X86_64, Architecture::Arm64] {
            let run = |rules: &[SyscallRule], call: &Syscall| {
                let number = call.number(architecture).unwrap();
                super::tests::run(
                    &compile(rules, architecture),
                    architecture.audit_value(),
                    number,
                    [0; 6],
                )
            };
            let (inside, beside) = (inside_namespaces(), without_namespaces(false));
            let no = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
            for call in REFUSED_SYSCALLS.iter().chain(&[SYS_kexec_file_load]) {
                assert_eq!(run(&inside, call), no(libc::EPERM), "{architecture:?} {call:?}");
            }
            for call in UNIMPLEMENTED_SYSCALLS {
                assert_eq!(run(&inside, call), no(libc::ENOSYS), "{architecture:?} {call:?}");
            }
            for call in SHARED_IPC_SYSCALLS {
                assert_eq!(run(&beside, call), no(libc::ENOSYS), "{architecture:?} {call:?}");
                assert_eq!(run(&inside, call), libc::SECCOMP_RET_ALLOW, "{call:?}");
            }
        }
    }

    #[test]
    fn seccomp_filter_knows_numbers_of_its_architecture_only() {
        const I386: u32 = 0x4000_0003;
        const ARM: u32 = 0x4000_0028;
        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        let no = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
        let (x86_64, arm64) = (Architecture::X86_64, Architecture::Arm64);
        let program = compile(&without_namespaces(true), x86_64);
        for other in [I386, ARM, arm64.audit_value()] {
            assert_eq!(run(&program, other, 0, [0; 6]), kill, "{other:#x}");
        }
        let x32 = SYS_mount.number(Architecture::X86_64).unwrap() | X32_BIT;
        assert_eq!(run(&program, x86_64.audit_value(), x32, [0; 6]), no(libc::ENOSYS));
        // Old calls that create or change a mode.
        let setuid = [0, 0o4755, 0o4755, 0, 0, 0];
        for call in [SYS_chmod, SYS_creat, SYS_mknod] {
            let number = call.number(Architecture::X86_64).unwrap();
            let judged = run(&program, x86_64.audit_value(), number, setuid);
            assert_eq!(judged, no(libc::EPERM), "{call:?}");
            assert_eq!(call.number(arm64), None);
        }
        let create = [0, libc::O_CREAT as u64, 0o4755, 0, 0, 0];
        let judged = run(
            &program,
            x86_64.audit_value(),
            SYS_open.number(Architecture::X86_64).unwrap(),
            create,
        );
        assert_eq!(judged, no(libc::EPERM));

        let program = compile(&without_namespaces(true), arm64);
        for other in [I386, ARM, x86_64.audit_value()] {
            assert_eq!(run(&program, other, 0, [0; 6]), kill, "{other:#x}");
        }
        // These are `mount` and `chmod` on x86-64 only.
        for number in [SYS_mount, SYS_chmod].map(|call| call.number(x86_64).unwrap()) {
            let judged = run(&program, arm64.audit_value(), number, setuid);
            assert_eq!(judged, libc::SECCOMP_RET_ALLOW, "{number}");
        }
    }
}
