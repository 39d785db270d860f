//! Numbers of system calls. `libc` knows those of one architecture only, and not all.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Syscall {
    x86_64: u32,
    /// On arm64 and all later architectures, which lack what a newer call replaces.
    generic: &'static [u32],
}

impl Syscall {
    pub(super) const fn number(self, architecture: Architecture) -> Option<u32> {
        match (architecture, self.generic) {
            (Architecture::X86_64, _) => Some(self.x86_64),
            (Architecture::Arm64 | Architecture::Riscv64, [number]) => Some(*number),
            (Architecture::Arm64 | Architecture::Riscv64, _) => None,
        }
    }

    const fn is_native(self, number: i64) -> bool {
        match Architecture::NATIVE {
            Some(native) => match self.number(native) {
                Some(known) => known as i64 == number,
                None => false,
            },
            None => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Architecture {
    X86_64,
    Arm64,
    Riscv64,
}

impl Architecture {
    pub(super) const NATIVE: Option<Architecture> = match std::env::consts::ARCH.as_bytes() {
        b"x86_64" => Some(Architecture::X86_64),
        b"aarch64" => Some(Architecture::Arm64),
        b"riscv64" => Some(Architecture::Riscv64),
        _ => None,
    };

    /// The kernel's `AUDIT_ARCH` value.
    pub(super) fn audit_value(self) -> u32 {
        match self {
            Architecture::X86_64 => 0xc000_003e,
            Architecture::Arm64 => 0xc000_00b7,
            Architecture::Riscv64 => 0xc000_00f3,
        }
    }
}

/// Name, number on x86-64, and number elsewhere, if it exists there. A group has a name.
macro_rules! syscalls {
    ($($name:ident $x86_64:literal $($generic:literal)?;)*) => {
        $(
            #[expect(non_upper_case_globals, reason = "named as in `libc`")]
            pub(in super::super) const $name: Syscall =
                Syscall { x86_64: $x86_64, generic: &[$($generic)?] };
        )*
    };
    ($(#[$doc:meta])* $group:ident: $($name:ident $x86_64:literal $generic:literal;)*) => {
        checked_syscalls! { $($name $x86_64 $generic;)* }
        $(#[$doc])*
        pub(super) const $group: &[Syscall] = &[$($name),*];
    };
}

/// Compares with `libc` when compiled for one of the architectures.
macro_rules! checked_syscalls {
    ($($name:ident $x86_64:literal $generic:literal;)*) => {
        syscalls! { $($name $x86_64 $generic;)* }
        $(const _: () = assert!($name.is_native(libc::$name));)*
    };
}

syscalls! {
    REFUSED_SYSCALLS:
    SYS_acct 163 89;
    SYS_add_key 248 217;
    SYS_bpf 321 280;
    SYS_delete_module 176 106;
    SYS_finit_module 313 273;
    SYS_fsconfig 431 431;
    SYS_fsmount 432 432;
    SYS_fsopen 430 430;
    SYS_fspick 433 433;
    SYS_init_module 175 105;
    SYS_kexec_load 246 104;
    SYS_keyctl 250 219;
    SYS_mount 165 40;
    SYS_mount_setattr 442 442;
    SYS_move_mount 429 429;
    SYS_open_by_handle_at 304 265;
    SYS_open_tree 428 428;
    SYS_perf_event_open 298 241;
    SYS_pivot_root 155 41;
    SYS_quotactl 179 60;
    SYS_reboot 169 142;
    SYS_request_key 249 218;
    SYS_setns 308 268;
    SYS_swapoff 168 225;
    SYS_swapon 167 224;
    SYS_umount2 166 39;
    SYS_userfaultfd 323 282;
}

syscalls! {
    /// Programs have a fallback for these.
    UNIMPLEMENTED_SYSCALLS:
    // Its arguments are in memory, invisible to a filter. C libraries fall back to `clone`.
    SYS_clone3 435 435;
    // Its operations bypass the filter.
    SYS_io_uring_enter 426 426;
    SYS_io_uring_register 427 427;
    SYS_io_uring_setup 425 425;
    // Its mode is in memory. Callers fall back to `openat`.
    SYS_openat2 437 437;
}

syscalls! {
    /// IPC objects that all processes of a user share. ENOSYS looks like a kernel without them.
    SHARED_IPC_SYSCALLS:
    SYS_mq_open 240 180;
    SYS_mq_unlink 241 181;
    SYS_msgctl 71 187;
    SYS_msgget 68 186;
    SYS_msgrcv 70 188;
    SYS_msgsnd 69 189;
    SYS_semctl 66 191;
    SYS_semget 64 190;
    SYS_semop 65 193;
    SYS_semtimedop 220 192;
    SYS_shmat 30 196;
    SYS_shmctl 31 195;
    SYS_shmget 29 194;
}

// `libc` lacks these on some systems.
syscalls! {
    SYS_chmod 90;
    SYS_creat 85;
    SYS_fchmodat2 452 452;
    SYS_kexec_file_load 320 294;
    SYS_mknod 133;
    SYS_open 2;
}

checked_syscalls! {
    SYS_clone 56 220;
    SYS_fchmod 91 52;
    SYS_fchmodat 268 53;
    SYS_ioctl 16 29;
    SYS_ioprio_set 251 30;
    SYS_migrate_pages 256 238;
    SYS_mknodat 259 33;
    SYS_move_pages 279 239;
    SYS_openat 257 56;
    SYS_prlimit64 302 261;
    SYS_sched_setaffinity 203 122;
    SYS_sched_setattr 314 274;
    SYS_sched_setparam 142 118;
    SYS_sched_setscheduler 144 119;
    SYS_sendmmsg 307 269;
    SYS_sendmsg 46 211;
    SYS_sendto 44 206;
    SYS_setpriority 141 140;
    SYS_socket 41 198;
    SYS_unshare 272 97;
}

#[cfg(test)]
checked_syscalls! {
    SYS_capset 126 91;
    SYS_execve 59 221;
    SYS_landlock_create_ruleset 444 444;
    SYS_prctl 157 167;
    SYS_ptrace 101 117;
    SYS_read 0 63;
}
