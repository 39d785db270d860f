//! Compiles rules to a BPF program and installs it.

use std::io;

use super::syscalls::Architecture;
use super::{ALLOWED_SOCKET_FAMILIES, ArgCondition, SyscallRule};

/// x32 calls have this bit and would match no rule.
pub(super) const X32_BIT: u32 = 0x4000_0000;

pub(super) const NUMBER_AT: u32 = 0;
pub(super) const ARCHITECTURE_AT: u32 = 4;
pub(super) const ARGUMENTS_AT: u32 = 16;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | code | libc::BPF_K) as u16, jt, jf, k }
}

fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

fn return_statement(with: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, with)
}

fn refuse(errno: i32) -> libc::sock_filter {
    return_statement(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned() & libc::SECCOMP_RET_DATA)
}

pub(super) fn compile(rules: &[SyscallRule], architecture: Architecture) -> Vec<libc::sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(libc::BPF_JEQ, architecture.audit_value(), 1, 0),
        // Other architectures number their calls differently.
        return_statement(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    if architecture == Architecture::X86_64 {
        program.extend([load(NUMBER_AT), jump(libc::BPF_JGE, X32_BIT, 0, 1), refuse(libc::ENOSYS)]);
    }
    for rule in rules {
        let Some(number) = rule.syscall.number(architecture) else { continue };
        let low_half = |argument: u32| load(ARGUMENTS_AT + 8 * argument);
        let tail = match rule.when {
            ArgCondition::Always => vec![refuse(rule.errno)],
            ArgCondition::Equals { argument, value } => {
                vec![low_half(argument), jump(libc::BPF_JEQ, value, 0, 1), refuse(rule.errno)]
            }
            ArgCondition::HasBit { argument, bits } => {
                vec![low_half(argument), jump(libc::BPF_JSET, bits, 0, 1), refuse(rule.errno)]
            }
            ArgCondition::HasAllBits { arguments, bits } => vec![
                low_half(arguments[0]),
                jump(libc::BPF_JSET, bits[0], 0, 3),
                low_half(arguments[1]),
                jump(libc::BPF_JSET, bits[1], 0, 1),
                refuse(rule.errno),
            ],
            ArgCondition::NotTcp => {
                let (inet, inet6) = (ALLOWED_SOCKET_FAMILIES[1], ALLOWED_SOCKET_FAMILIES[2]);
                vec![
                    low_half(0),
                    jump(libc::BPF_JEQ, ALLOWED_SOCKET_FAMILIES[3], 9, 0),
                    jump(libc::BPF_JEQ, inet, 1, 0),
                    jump(libc::BPF_JEQ, inet6, 0, 6),
                    low_half(1),
                    // Without SOCK_CLOEXEC and SOCK_NONBLOCK.
                    statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf),
                    jump(libc::BPF_JEQ, libc::SOCK_STREAM.cast_unsigned(), 0, 3),
                    low_half(2),
                    jump(libc::BPF_JEQ, 0, 2, 0),
                    jump(libc::BPF_JEQ, libc::IPPROTO_TCP.cast_unsigned(), 1, 0),
                    refuse(rule.errno),
                ]
            }
            ArgCondition::NoneOf { argument, values } => {
                let mut tail = vec![low_half(argument)];
                for (nth, value) in values.iter().enumerate() {
                    let past = u8::try_from(values.len() - nth).unwrap_or(u8::MAX);
                    tail.push(jump(libc::BPF_JEQ, *value, past, 0));
                }
                tail.push(refuse(rule.errno));
                tail
            }
        };
        program.push(load(NUMBER_AT));
        program.push(jump(libc::BPF_JEQ, number, 0, u8::try_from(tail.len()).unwrap_or(u8::MAX)));
        program.extend(tail);
    }
    program.push(return_statement(libc::SECCOMP_RET_ALLOW));
    program
}

/// Applies the rules to this thread and its descendants, irrevocably.
///
/// # Errors
/// The kernel lacks seccomp filters.
pub(crate) fn install(rules: &[SyscallRule]) -> io::Result<()> {
    let Some(native) = Architecture::NATIVE else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not on this architecture"));
    };
    let mut program = compile(rules, native);
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(u16::MAX),
        filter: program.as_mut_ptr(),
    };
    #[expect(unsafe_code, reason = "there is no safe interface to the kernel's filters")]
    // SAFETY: `program` has its stated length; the kernel copies it.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
