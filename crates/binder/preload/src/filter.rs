//! The seccomp filters: programs for the kernel's classic BPF.
//!
//! Each block decides about one system call; other calls jump over the block. A call without a
//! block leaves after the checks of its number. Newer kernels evaluate these checks once and then
//! skip the filter. Both architectures are little-endian: the low half of an argument comes first.

use crate::{real, signals};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_int,
    c_long, c_ulong, sock_filter, sock_fprog,
};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Once;

/// The sixth argument that makes the filter let an `ioctl` pass. `ioctl` itself has three
/// arguments.
pub const MAGIC: u64 = 0xba70_10c7_5eed_b1bd;

/// A request of type `b` that Binder does not have, and the handler's answer to it without a
/// descriptor. They reveal an inherited filter.
pub const PROBE: c_ulong = 0x62ff;
pub const PROBE_ANSWER: c_long = 0xba70;

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

/// Makes a block for one system call.
fn block_for(number: c_long, block: &[sock_filter]) -> Vec<sock_filter> {
    [&[jump(BPF_JEQ, number as u32, 0, block.len() as u8)], block].concat()
}

/// Makes a filter of blocks. Calls of other architectures pass.
fn assemble(blocks: impl Iterator<Item = Vec<sock_filter>>) -> Vec<sock_filter> {
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

/// A filter that traps every `ioctl` with request type `b`, unless it carries [`MAGIC`].
pub fn ioctl_filter() -> Vec<sock_filter> {
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
    assemble([block_for(libc::SYS_ioctl, &block)].into_iter())
}

/// The system calls that [`code_filter`] traps.
pub const CODE_CALLS: &[c_long] = &[
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

/// A filter that traps system calls about descriptors and file mappings that the instructions in
/// `code` make. `None` if a filter cannot recognize this range of addresses.
pub fn code_filter(code: Range<usize>) -> Option<Vec<sock_filter>> {
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
    Some(assemble(CODE_CALLS.iter().map(|number| match *number {
        libc::SYS_mmap => block_for(*number, &[&file_map[..], &from_code].concat()),
        number => block_for(number, &from_code),
    })))
}

/// Installs a filter in every thread. Without privileges the process first gives up gaining any by
/// `exec`, which the kernel requires.
pub fn install(filter: &[sock_filter]) -> Result<(), c_int> {
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SPEC_ALLOW: the filter restricts no code, so speculation need not be slowed down.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let try_with = |flags: c_ulong| {
        let mode = c_long::from(libc::SECCOMP_SET_MODE_FILTER as c_int);
        let arguments = [mode, flags as c_long, (&raw const program) as c_long, 0, 0, 0];
        // SAFETY: the program and its instructions outlive the call.
        match unsafe { real::system_call(libc::SYS_seccomp, arguments) } {
            0 => Ok(()),
            // With TSYNC: the id of a thread that has a different filter.
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

/// Installs the filter for ioctls, unless this process was told not to or has inherited one.
pub fn install_ioctl_filter() {
    static ARMED: Once = Once::new();
    if signals::is_handled() {
        ARMED.call_once(|| {
            // If the system refuses a filter, programs that use the C library still work.
            if !is_trapping() {
                let _ = install(&ioctl_filter());
            }
        });
    }
}

/// Installs the filter for the executable's own code, at the start, because the program may open a
/// device that way.
pub fn install_code_filter(code: Range<usize>) {
    if signals::is_handled()
        && let Some(filter) = code_filter(code)
    {
        let _ = install(&filter);
    }
}

fn is_trapping() -> bool {
    let errno = real::errno();
    let arguments = [-1, PROBE as c_long, 0, 0, 0, 0];
    // SAFETY: no descriptor, and a request without an argument: at worst EBADF.
    let emulate = unsafe { real::system_call(libc::SYS_ioctl, arguments) };
    real::set_errno(errno);
    emulate == PROBE_ANSWER
}
