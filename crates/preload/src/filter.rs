//! The seccomp filters: programs for the kernel's classic BPF.
//!
//! Each block looks at one system call and leaves with an answer; a block that is not about the
//! call is jumped over. What no block is about leaves by the numbers alone, which newer kernels
//! find out once and then know without running the filter. Both architectures are little-endian:
//! an argument's low half comes first.

use crate::real;
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_int,
    c_long, c_ulong, sock_filter, sock_fprog,
};
use std::mem::offset_of;
use std::ops::Range;

/// The sixth argument of an `ioctl` that the filter lets pass. `ioctl` has three.
pub const MAGIC: u64 = 0xba70_10c7_5eed_b1bd;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

fn load(offset: usize) -> sock_filter {
    sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset as u32 }
}

fn load_argument(index: usize) -> sock_filter {
    load(offset_of!(libc::seccomp_data, args) + 8 * index)
}

fn mask(bits: u32) -> sock_filter {
    sock_filter { code: (BPF_ALU | BPF_AND | BPF_K) as u16, jt: 0, jf: 0, k: bits }
}

fn jump(comparison: u32, value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt: then, jf: otherwise, k: value }
}

fn answer(action: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: action }
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const TRAP: u32 = libc::SECCOMP_RET_TRAP;

/// A block for one system call.
fn about(number: c_long, block: &[sock_filter]) -> Vec<sock_filter> {
    [&[jump(BPF_JEQ, number as u32, 0, block.len() as u8)], block].concat()
}

fn whole(blocks: impl Iterator<Item = Vec<sock_filter>>) -> Vec<sock_filter> {
    let mut filter = vec![
        load(offset_of!(libc::seccomp_data, arch)),
        jump(BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(ALLOW),
        load(offset_of!(libc::seccomp_data, nr)),
    ];
    filter.extend(blocks.flatten());
    filter.push(answer(ALLOW));
    filter
}

/// Traps every `ioctl` whose request type is `b`, unless it carries [`MAGIC`].
pub fn of_ioctls() -> Vec<sock_filter> {
    let sixth = offset_of!(libc::seccomp_data, args) + 8 * 5;
    let block = [
        load_argument(1),
        mask(0xff00),
        jump(BPF_JEQ, u32::from(b'b') << 8, 0, 4),
        load(sixth),
        jump(BPF_JEQ, MAGIC as u32, 0, 3),
        load(sixth + 4),
        jump(BPF_JEQ, (MAGIC >> 32) as u32, 0, 1),
        answer(ALLOW),
        answer(TRAP),
    ];
    whole([about(libc::SYS_ioctl, &block)].into_iter())
}

/// The system calls that [`of_code`] traps.
pub const OF_CODE: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_ppoll,
    libc::SYS_epoll_ctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Traps what `code` does itself with descriptors and maps of files. `None` if a filter cannot
/// tell this code's addresses.
pub fn of_code(code: Range<usize>) -> Option<Vec<sock_filter>> {
    let high = (code.start as u64 >> 32) as u32;
    if high != (code.end as u64 >> 32) as u32 {
        return None;
    }
    let address = offset_of!(libc::seccomp_data, instruction_pointer);
    let from_code = [
        load(address + 4),
        jump(BPF_JEQ, high, 0, 4),
        load(address),
        jump(BPF_JGE, code.start as u32, 0, 2),
        jump(BPF_JGE, code.end as u32, 1, 0),
        answer(TRAP),
        answer(ALLOW),
    ];
    let file_map =
        [load_argument(3), mask(libc::MAP_ANONYMOUS as u32), jump(BPF_JEQ, 0, 1, 0), answer(ALLOW)];
    Some(whole(OF_CODE.iter().map(|number| match *number {
        libc::SYS_mmap => about(*number, &[&file_map[..], &from_code].concat()),
        number => about(number, &from_code),
    })))
}

/// Installs a filter in every thread. With no privilege the process first gives up gaining any
/// by `exec`, which is the kernel's condition.
pub fn install(filter: &[sock_filter]) -> Result<(), c_int> {
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SPEC_ALLOW: the filter confines nobody, so nobody need be slowed down against speculation.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let try_with = |flags: c_ulong| {
        let mode = c_long::from(libc::SECCOMP_SET_MODE_FILTER as c_int);
        let arguments = [mode, flags as c_long, (&raw const program) as c_long, 0, 0, 0];
        // SAFETY: the program and its instructions outlive the call.
        match unsafe { real::system_call(libc::SYS_seccomp, arguments) } {
            0 => Ok(()),
            // With TSYNC: the id of a thread that has a filter of its own.
            1.. => Err(libc::EBUSY),
            _ => Err(real::errno()),
        }
    };
    let in_all_threads = flags | libc::SECCOMP_FILTER_FLAG_TSYNC;
    match try_with(in_all_threads) {
        Err(libc::EACCES) => {
            // SAFETY: a flag of this process, no memory involved.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            try_with(in_all_threads).or_else(|_| try_with(flags))
        }
        Err(libc::EBUSY) => try_with(flags),
        other => other,
    }
}
