//! The memory and the descriptors of a client, from outside.
//!
//! The kernel checks each access as it checks a debugger's. An address that the client has not
//! mapped is `EFAULT`, as in a system call of its own.

use crate::errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::fs::File;
use std::io::Read;

/// An address of the kernel's own, which no process has mapped.
const NOWHERE: u64 = u64::MAX - 4095;
/// Bytes of /proc/PID/status that have the lines up to that of the groups, and more.
const STATUS_HEAD_BYTES: usize = 1024;

/// The memory of one thread's process.
#[derive(Clone, Copy, Debug)]
pub struct ClientMemory {
    tid: u32,
}

impl ClientMemory {
    /// That of the process which has this thread.
    pub fn of(tid: u32) -> ClientMemory {
        ClientMemory { tid }
    }

    /// Whether this process may read and write the memory. Otherwise the system call that it may
    /// not make, and its error: `EPERM` for a process with rights that this one lacks, and what a
    /// seccomp profile says.
    pub fn check(self) -> Result<(), (&'static str, Errno)> {
        let mut byte = 0u8;
        let here = libc::iovec { iov_base: std::ptr::from_mut(&mut byte).cast(), iov_len: 1 };
        let there = libc::iovec { iov_base: NOWHERE as *mut _, iov_len: 1 };
        let calls: [(_, unsafe extern "C" fn(_, _, _, _, _, _) -> _); 2] = [
            ("process_vm_readv", libc::process_vm_readv),
            ("process_vm_writev", libc::process_vm_writev),
        ];
        for (name, call) in calls {
            // SAFETY: the kernel reads or writes this one byte, if any.
            let moved = unsafe { call(self.tid.cast_signed(), &here, 1, &there, 1, 0) };
            match if moved < 0 { errno::last() } else { Errno::FAULT } {
                Errno::FAULT => {}
                errno => return Err((name, errno)),
            }
        }
        Ok(())
    }

    /// Reads up to `bytes` bytes: as many as can be read from the address on.
    pub fn read_up_to(self, address: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        let there = libc::iovec { iov_base: address as *mut _, iov_len: bytes };
        let here = libc::iovec { iov_base: read.as_mut_ptr().cast(), iov_len: bytes };
        // SAFETY: the kernel writes at most `bytes` bytes into `read`, which has as many.
        let n = unsafe { libc::process_vm_readv(self.tid.cast_signed(), &here, 1, &there, 1, 0) };
        read.truncate(n.max(0).cast_unsigned());
        // The kernel stops at the granularity of its call's ranges: a page that cannot be read
        // ends the range.
        read
    }

    /// Reads exactly so many bytes.
    pub fn read(self, address: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let read = self.read_up_to(address, bytes);
        if read.len() == bytes { Ok(read) } else { Err(Errno::FAULT) }
    }

    /// Writes all bytes.
    pub fn write(self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        let there = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
        let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the kernel only reads `bytes`.
        let n = unsafe { libc::process_vm_writev(self.tid.cast_signed(), &here, 1, &there, 1, 0) };
        if n == bytes.len() as isize { Ok(()) } else { Err(Errno::FAULT) }
    }
}

/// A duplicate of a descriptor of the process of a pidfd.
pub fn duplicate(pidfd: impl AsFd, fd: i32) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty())
}

/// The process of a thread, by its number; `None` if the thread has ended.
pub fn process_of(tid: u32) -> Option<u32> {
    if is_main_thread(tid) { Some(tid) } else { status_number(tid, "Tgid:", 0) }
}

/// Whether a thread is its process's first. Tells so much faster than /proc.
fn is_main_thread(tid: u32) -> bool {
    let tid = tid.cast_signed();
    // SAFETY: sends nothing, and touches no memory: signal 0 asks whether one could.
    tid > 0 && unsafe { libc::syscall(libc::SYS_tgkill, tid, tid, 0) } == 0
}

/// The number at an index of a line of /proc/PID/status, before that of the groups. `None` if no
/// process has this pid.
pub fn status_number(pid: u32, name: &str, index: usize) -> Option<u32> {
    // The lines of any length come later, so one read has it.
    let mut head = [0; STATUS_HEAD_BYTES];
    let bytes = File::open(format!("/proc/{pid}/status")).ok()?.read(&mut head).ok()?;
    let status = String::from_utf8_lossy(&head[..bytes]);
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().nth(index)?.parse().ok()
}

/// Whether the descriptor by which a thread now makes an ioctl has O_NONBLOCK; `None` if the system
/// does not say. The kernel does not pass the flag on, nor a change of it.
pub fn is_nonblocking(tid: u32) -> Option<bool> {
    // The system call's number, and then its arguments.
    let call = std::fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    let fd = call.split_ascii_whitespace().nth(1)?.strip_prefix("0x")?;
    let fd = u32::from_str_radix(fd, 16).ok()?;
    let info = std::fs::read_to_string(format!("/proc/{tid}/fdinfo/{fd}")).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
    Some(flags & libc::O_NONBLOCK != 0)
}

/// Address and length of a process's map of this inode at offset 0, if there is one. Inode numbers
/// are unique only in their file system, of this device number. Of several maps it is the one that
/// was made first, as far as that can be seen.
pub fn find_map(pid: u32, inode: u64, device: (u32, u32)) -> Option<(usize, usize)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    first_made(&maps, inode, device)
}

/// The highest map of an inode. The kernel gives each map the highest gap that it fits into. So a
/// later map that is as long lies below, and a shorter one does unless there was a hole. Another
/// one was first if the program names addresses itself, or has them given upwards
/// (ADDR_COMPAT_LAYOUT).
fn first_made(maps: &str, inode: u64, device: (u32, u32)) -> Option<(usize, usize)> {
    // /proc has them by rising addresses.
    maps.lines().rev().find_map(|line| parse(line, inode, device))
}

/// `7f00-7f10 r--p 00000000 00:2a 4294967297   /mnt/binder`
fn parse(line: &str, inode: u64, (major, minor): (u32, u32)) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, _, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (device, line_inode) = (fields.next()?, fields.next()?);
    if line_inode.parse() != Ok(inode) || device != format!("{major:02x}:{minor:02x}") {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    let from = usize::from_str_radix(from, 16).ok()?;
    let bytes = usize::from_str_radix(to, 16).ok()?.checked_sub(from)?;
    offset.bytes().all(|byte| byte == b'0').then_some((from, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_map_of_the_device_counts() {
        let line = "7f0000000000-7f0000100000 r--p 00000000 00:2a 4294967297 /mnt/binder";
        let check = |line: &str| parse(line, 4_294_967_297, (0, 0x2a));
        assert_eq!(check(line), Some((0x7f00_0000_0000, 0x10_0000)));
        assert_eq!(check(&line.replace("00:2a", "00:2b")), None);
        assert_eq!(check(&line.replace("7297", "7298")), None);
        assert_eq!(check(&line.replace("00000000 00", "00001000 00")), None);
        assert_eq!(check("x"), None);
    }

    #[test]
    fn of_two_maps_the_first_one_counts() {
        let maps = "00400000-00401000 r-xp 00000000 08:01 7 /bin/true\n\
                    7f0000000000-7f0000200000 r--p 00000000 00:2a 7 /mnt/binder\n\
                    7f0000200000-7f0000300000 r--p 00000000 00:2a 7 /mnt/binder\n\
                    7f0000300000-7f0000400000 r--p 00100000 00:2a 7 /mnt/binder\n\
                    7ffe00000000-7ffe00001000 rw-p 00000000 00:00 0 [stack]\n";
        assert_eq!(first_made(maps, 7, (0, 0x2a)), Some((0x7f00_0020_0000, 0x10_0000)));
        assert_eq!(first_made(maps, 8, (0, 0x2a)), None);
    }

    #[test]
    fn a_thread_has_a_process() {
        let pid = std::process::id();
        let other = || baton_shm::thread::id();
        let other = std::thread::spawn(move || (other(), process_of(other()))).join().unwrap();
        assert_ne!(other.0, pid);
        assert_eq!((process_of(pid), other.1), (Some(pid), Some(pid)));
        for nobody in [0, u32::MAX] {
            assert_eq!(process_of(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn memory_is_accessible_while_its_process_lives() {
        assert_eq!(ClientMemory::of(std::process::id()).check(), Ok(()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(ClientMemory::of(child.id()).check(), Err(("process_vm_readv", Errno::SRCH)));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let own = ClientMemory::of(std::process::id());
        let text = *b"a client's memory";
        assert_eq!(own.read(text.as_ptr() as u64, text.len()).unwrap(), text);
        for address in [0, 8, u64::MAX - 2, 1 << 60] {
            assert_eq!(own.read(address, 4), Err(Errno::FAULT), "{address:#x}");
            assert_eq!(own.write(address, &[1; 4]), Err(Errno::FAULT), "{address:#x}");
        }
    }
}
