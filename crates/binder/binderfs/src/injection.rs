//! System calls that a thread of a client is made to do, by ptrace(2): descriptors are installed in
//! a process by its own system calls alone.
//!
//! ```text
//!   stand-in                     client's thread
//!   seizes it, interrupts it     in its ioctl
//!   answers the ioctl       -->  leaves the ioctl, stops before its next instruction
//!   sets its registers      -->  does a system call, stops
//!   puts the registers back -->  goes on
//! ```
//!
//! The thread does these calls by the instruction by which it has entered the ioctl. All of its
//! signals wait meanwhile, and it gets them when it is let go. A server that is killed in between
//! leaves the thread with registers of ours: it crashes.

use crate::client_memory::{ClientMemory, duplicate};
use crate::errno;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::ptr::without_provenance_mut;

/// `PTRACE_EVENT_STOP`: the event of a stop that the tracer has asked for.
const PTRACE_EVENT_STOP: i32 = 128;
/// The signal of a stop at a system call, by PTRACE_O_TRACESYSGOOD.
const AT_SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;
/// Bytes of the memory in which a client's thread finds the arguments of its calls.
const SCRATCH_BYTES: usize = 8192;
/// In that memory: the header of a message, the vector of its bytes, two descriptors, the
/// descriptors of the message.
const HEADER_AT: u64 = 0;
const VECTOR_AT: u64 = 64;
const PAIR_AT: u64 = 96;
const CONTROL_AT: u64 = 128;
const CONTROL_BYTES: u64 = SCRATCH_BYTES as u64 - CONTROL_AT;
/// The place of `msg_controllen` among the words of a `msghdr`.
const CONTROL_LENGTH: u64 = 5;

type Registers = libc::user_regs_struct;

/// How a thread enters the kernel: its instruction, the registers of its arguments, and its system
/// calls.
#[derive(Debug)]
struct Abi {
    instruction: &'static [u8],
    arguments: fn(&mut Registers) -> [&mut u64; 6],
    calls: Calls,
}

/// The numbers of system calls, and the size of a word in their structures.
#[derive(Debug)]
struct Calls {
    word_bytes: u64,
    mmap: i64,
    munmap: i64,
    socketpair: i64,
    recvmsg: i64,
    close: i64,
}

/// The system calls of this process's own ABI.
const NATIVE: Calls = Calls {
    word_bytes: size_of::<usize>() as u64,
    mmap: libc::SYS_mmap,
    munmap: libc::SYS_munmap,
    socketpair: libc::SYS_socketpair,
    recvmsg: libc::SYS_recvmsg,
    close: libc::SYS_close,
};

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::{Abi, Calls, NATIVE, Registers, transfer};
    use rustix::io::Errno;

    pub const ABIS: &[Abi] = &[
        Abi {
            // `syscall`
            instruction: &[0x0f, 0x05],
            arguments: |it| {
                [&mut it.rdi, &mut it.rsi, &mut it.rdx, &mut it.r10, &mut it.r8, &mut it.r9]
            },
            calls: NATIVE,
        },
        // 32-bit programs: the numbers are those of the kernel's `syscall_32.tbl`, and `mmap` is
        // mmap2.
        Abi {
            // `int 0x80`. After it go on those, too, that enter the kernel by the vDSO.
            instruction: &[0xcd, 0x80],
            arguments: |it| {
                [&mut it.rbx, &mut it.rcx, &mut it.rdx, &mut it.rsi, &mut it.rdi, &mut it.rbp]
            },
            calls: Calls {
                word_bytes: 4,
                mmap: 192,
                munmap: 91,
                socketpair: 360,
                recvmsg: 372,
                close: 6,
            },
        },
    ];

    pub fn next(registers: &Registers) -> u64 {
        registers.rip
    }

    pub fn enter(registers: &mut Registers, at: u64, number: u64) {
        registers.rip = at;
        registers.rax = number;
        // No call is to be restarted.
        registers.orig_rax = u64::MAX;
    }

    pub fn result(registers: &Registers) -> u64 {
        registers.rax
    }

    /// The registers of a 32-bit thread have this form, too.
    pub fn get_registers(tid: u32, registers: &mut Registers) -> Result<(), Errno> {
        transfer(libc::PTRACE_GETREGS as _, tid, 0, registers)
    }

    pub fn set_registers(tid: u32, registers: &mut Registers) -> Result<(), Errno> {
        transfer(libc::PTRACE_SETREGS as _, tid, 0, registers)
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use super::{Abi, NATIVE, Registers, transfer};
    use rustix::io::Errno;

    /// `NT_PRSTATUS`: the general registers.
    const REGISTERS: usize = 1;

    pub const ABIS: &[Abi] = &[Abi {
        // `svc #0`
        instruction: &[0x01, 0x00, 0x00, 0xd4],
        arguments: |it| {
            let [a, b, c, d, e, f, ..] = &mut it.regs;
            [a, b, c, d, e, f]
        },
        calls: NATIVE,
    }];

    pub fn next(registers: &Registers) -> u64 {
        registers.pc
    }

    pub fn enter(registers: &mut Registers, at: u64, number: u64) {
        registers.pc = at;
        registers.regs[8] = number;
    }

    pub fn result(registers: &Registers) -> u64 {
        registers.regs[0]
    }

    pub fn get_registers(tid: u32, registers: &mut Registers) -> Result<(), Errno> {
        move_registers(libc::PTRACE_GETREGSET as _, tid, registers)
    }

    pub fn set_registers(tid: u32, registers: &mut Registers) -> Result<(), Errno> {
        move_registers(libc::PTRACE_SETREGSET as _, tid, registers)
    }

    fn move_registers(
        request: libc::c_uint,
        tid: u32,
        registers: &mut Registers,
    ) -> Result<(), Errno> {
        let iov_base = std::ptr::from_mut(registers).cast();
        let mut vector = libc::iovec { iov_base, iov_len: size_of::<Registers>() };
        transfer(request, tid, REGISTERS, &mut vector)
    }
}

impl Abi {
    /// The ABI of the thread that goes on at this address, and the address of the instruction by
    /// which it has entered the kernel. `EOPNOTSUPP` if it is none of these.
    fn of(memory: ClientMemory, next: u64) -> Result<(&'static Abi, u64), Errno> {
        for abi in machine::ABIS {
            let length = abi.instruction.len();
            let entry = next.wrapping_sub(length as u64);
            if memory.read(entry, length)? == abi.instruction {
                return Ok((abi, entry));
            }
        }
        Err(Errno::OPNOTSUPP)
    }
}

impl Calls {
    /// A structure of these words.
    fn structure(&self, words: &[u64]) -> Vec<u8> {
        let word_bytes = self.word_bytes as usize;
        words.iter().flat_map(|word| word.to_le_bytes().into_iter().take(word_bytes)).collect()
    }

    /// The first word of a structure.
    fn word(&self, memory: ClientMemory, at: u64) -> Result<u64, Errno> {
        let mut word = [0; 8];
        let read = memory.read(at, self.word_bytes as usize)?;
        word[..read.len()].copy_from_slice(&read);
        Ok(u64::from_le_bytes(word))
    }

    /// Bytes of a control message before its descriptors: its length, a level and a type.
    fn control_head(&self) -> u64 {
        self.word_bytes + 8
    }
}

/// A request of ptrace by the thread's tracer.
fn trace(request: libc::c_uint, tid: u32, address: usize, data: usize) -> Result<(), Errno> {
    let (address, data) = (without_provenance_mut::<u8>(address), data);
    // SAFETY: the requests of this module take no address of this process by these arguments.
    let done = unsafe { libc::ptrace(request, tid.cast_signed(), address, data) };
    if done >= 0 { Ok(()) } else { Err(errno::last()) }
}

/// A request of ptrace that reads or writes a value of this process.
fn transfer<T>(request: libc::c_uint, tid: u32, what: usize, value: &mut T) -> Result<(), Errno> {
    let what = without_provenance_mut::<u8>(what);
    // SAFETY: these requests read or write at most the value.
    let done = unsafe { libc::ptrace(request, tid.cast_signed(), what, std::ptr::from_mut(value)) };
    if done >= 0 { Ok(()) } else { Err(errno::last()) }
}

/// A client's thread whose tracer is the calling thread. It stops once it leaves its ioctl.
///
/// **Invariant**: a signal whose delivery has stopped the thread is in `later`, and the thread gets
/// it after it has been let go.
#[derive(Debug)]
pub struct Seized {
    tid: u32,
    /// Whether the tracer has waited for a stop.
    has_stopped: bool,
    /// Signals that have come meanwhile.
    later: Vec<i32>,
}

impl Seized {
    /// Becomes the tracer of a thread that waits in an ioctl. `EPERM` if it has a tracer, or if
    /// this process may not trace it.
    pub fn seize(tid: u32) -> Result<Seized, Errno> {
        trace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        // From here on the thread is let go whatever happens.
        let seized = Seized { tid, has_stopped: false, later: Vec::new() };
        trace(libc::PTRACE_INTERRUPT, tid, 0, 0)?;
        Ok(seized)
    }

    /// Waits until the thread has left its ioctl, which has been answered.
    pub fn stop(mut self) -> Result<Stopped, Errno> {
        let tid = self.tid;
        self.await_stop(|status| status >> 16 == PTRACE_EVENT_STOP)?;
        let mut registers = zeroed_registers();
        machine::get_registers(tid, &mut registers)?;
        let (abi, entry) = Abi::of(ClientMemory::of(tid), machine::next(&registers))?;
        let mut mask = 0u64;
        transfer(libc::PTRACE_GETSIGMASK as _, tid, size_of::<u64>(), &mut mask)?;
        transfer(libc::PTRACE_SETSIGMASK as _, tid, size_of::<u64>(), &mut u64::MAX.clone())?;
        Ok(Stopped { seized: self, registers, mask, abi, entry })
    }

    /// Waits until the thread stops so that `is_it` finds it. `ESRCH` if the thread ends.
    fn await_stop(&mut self, is_it: impl Fn(i32) -> bool) -> Result<(), Errno> {
        loop {
            let mut status = 0;
            // SAFETY: waits for a thread that this one traces, and writes the status.
            let waited =
                unsafe { libc::waitpid(self.tid.cast_signed(), &mut status, libc::__WALL) };
            if waited < 0 {
                match errno::last() {
                    Errno::INTR => continue,
                    _ => return Err(Errno::SRCH),
                }
            }
            if !libc::WIFSTOPPED(status) {
                return Err(Errno::SRCH);
            }
            let is_signal = status >> 16 == 0 && libc::WSTOPSIG(status) != AT_SYSTEM_CALL;
            self.later.extend(is_signal.then(|| libc::WSTOPSIG(status)));
            if is_it(status) {
                self.has_stopped = true;
                return Ok(());
            }
            trace(libc::PTRACE_SYSCALL as _, self.tid, 0, 0)?;
        }
    }
}

impl Drop for Seized {
    fn drop(&mut self) {
        // A thread has to be stopped to be let go, and its stop may be that of a signal. One that
        // has ended is let go by its end.
        if self.has_stopped || self.await_stop(|_| true).is_ok() {
            let _ = trace(libc::PTRACE_DETACH, self.tid, 0, 0);
        }
        for signal in self.later.drain(..) {
            // SAFETY: sends a signal, and touches no memory.
            unsafe { libc::syscall(libc::SYS_tkill, self.tid.cast_signed(), signal) };
        }
    }
}

/// A client's thread between its ioctl and its next instruction.
#[derive(Debug)]
pub struct Stopped {
    seized: Seized,
    registers: Registers,
    mask: u64,
    abi: &'static Abi,
    /// The address of the instruction by which it enters the kernel.
    entry: u64,
}

impl Stopped {
    /// Has the thread do a system call.
    fn call(&mut self, number: i64, arguments: &[u64]) -> Result<u64, Errno> {
        let tid = self.seized.tid;
        let mut registers = self.registers;
        machine::enter(&mut registers, self.entry, number as u64);
        let places = (self.abi.arguments)(&mut registers);
        places.into_iter().zip(arguments).for_each(|(place, argument)| *place = *argument);
        machine::set_registers(tid, &mut registers)?;
        // At its entry, and when it has been done.
        for _ in 0..2 {
            trace(libc::PTRACE_SYSCALL as _, tid, 0, 0)?;
            self.seized.await_stop(|status| libc::WSTOPSIG(status) == AT_SYSTEM_CALL)?;
        }
        machine::get_registers(tid, &mut registers)?;
        let result = machine::result(&registers);
        match i32::try_from(result.cast_signed()) {
            Ok(error @ -4095..0) => Err(Errno::from_raw_os_error(-error)),
            _ => Ok(result),
        }
    }

    /// Closes descriptors of the client.
    pub fn close(&mut self, fds: &[i32]) {
        for &fd in fds {
            let _ = self.call(self.abi.calls.close, &[fd as u64]);
        }
    }

    /// Installs descriptors of this process in the client, all or none, and returns their numbers
    /// there. `pidfd` is the thread's. `EMFILE` if the client may not have as many.
    pub fn install(&mut self, pidfd: BorrowedFd<'_>, fds: &[i32]) -> Result<Vec<i32>, Errno> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let (bytes, no_file) = (SCRATCH_BYTES as u64, u64::MAX);
        let map = [0, bytes, access as u64, kind as u64, no_file, 0];
        let scratch = self.call(self.abi.calls.mmap, &map)?;
        // SAFETY: the driver has installed them, and nobody else closes them meanwhile.
        let borrow = |&fd: &i32| unsafe { BorrowedFd::borrow_raw(fd) };
        let fds: Vec<_> = fds.iter().map(borrow).collect();
        let installed = self.install_by(scratch, pidfd, &fds);
        let _ = self.call(self.abi.calls.munmap, &[scratch, bytes]);
        installed
    }

    fn install_by(
        &mut self,
        scratch: u64,
        pidfd: BorrowedFd<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<i32>, Errno> {
        let memory = ClientMemory::of(self.seized.tid);
        let pair_at = scratch + PAIR_AT;
        let (family, kind) = (libc::AF_UNIX as u64, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC);
        self.call(self.abi.calls.socketpair, &[family, kind as u64, 0, pair_at])?;
        let pair = ints(&memory.read(pair_at, 8)?);
        let received = duplicate(pidfd, pair[0])
            .and_then(|socket| send(&socket, fds))
            .and_then(|()| self.receive(memory, scratch, pair[1]));
        self.close(&pair);
        let received = received?;
        if received.len() < fds.len() {
            self.close(&received);
            return Err(Errno::MFILE);
        }
        Ok(received)
    }

    /// Has the thread receive the descriptors that wait in a socket of its process.
    fn receive(
        &mut self,
        memory: ClientMemory,
        scratch: u64,
        socket: i32,
    ) -> Result<Vec<i32>, Errno> {
        let calls = &self.abi.calls;
        // The byte that comes with the descriptors lies where the pair lay.
        let vector = calls.structure(&[scratch + PAIR_AT, 1]);
        let control_at = scratch + CONTROL_AT;
        // No name, the vector, the control messages, no flags.
        let words = [0, 0, scratch + VECTOR_AT, 1, control_at, CONTROL_BYTES, 0];
        let header_at = scratch + HEADER_AT;
        memory.write(scratch + VECTOR_AT, &vector)?;
        memory.write(header_at, &calls.structure(&words))?;
        let flags = libc::MSG_CMSG_CLOEXEC as u64;
        self.call(calls.recvmsg, &[socket as u64, header_at, flags])?;
        let length = calls.word(memory, header_at + CONTROL_LENGTH * calls.word_bytes)?;
        let length = length.min(CONTROL_BYTES).saturating_sub(calls.control_head());
        let fds_at = control_at + calls.control_head();
        Ok(ints(&memory.read(fds_at, length as usize / 4 * 4)?))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let tid = self.seized.tid;
        let _ = machine::set_registers(tid, &mut self.registers);
        let _ = transfer(libc::PTRACE_SETSIGMASK as _, tid, size_of::<u64>(), &mut self.mask);
    }
}

/// Closes descriptors that the driver has installed in this process for a client.
pub fn close_here(fds: impl Iterator<Item = i32>) {
    for fd in fds {
        // SAFETY: the driver has given it away.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Whether this process may make other processes' threads do system calls: it has CAP_SYS_PTRACE,
/// and neither a security module nor a seccomp profile keeps it from that.
pub fn is_permitted() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|all| u64::from_str_radix(all.trim(), 16).ok());
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty());
    effective.is_some_and(|all| all & CAP_SYS_PTRACE != 0)
        && yama.trim() != "3"
        // It traces itself no more than before.
        && trace(libc::PTRACE_DETACH, std::process::id(), 0, 0) == Err(Errno::SRCH)
        && pidfd.and_then(|own| duplicate(&own, own.as_raw_fd())).is_ok()
}

/// Sends descriptors, with one byte.
fn send(socket: &OwnedFd, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = vec![std::mem::MaybeUninit::uninit(); SCRATCH_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOMANYREFS);
    }
    sendmsg(socket.as_fd(), &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

fn zeroed_registers() -> Registers {
    // SAFETY: numbers.
    unsafe { std::mem::zeroed() }
}

/// The numbers in bytes.
fn ints(bytes: &[u8]) -> Vec<i32> {
    let number = |four: &[u8]| i32::from_ne_bytes(four.try_into().expect("4 bytes"));
    bytes.chunks_exact(4).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A child of this process that runs in a loop, and makes no system call. SIGALRM ends it after
    /// a minute.
    fn running_child() -> libc::pid_t {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new map of zeroes, which are the value false. The child uses the map alone.
        unsafe {
            let map = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let is_running = &*map.cast::<AtomicBool>();
            let child = libc::fork();
            if child == 0 {
                libc::alarm(60);
                loop {
                    is_running.store(true, Ordering::Relaxed);
                }
            }
            assert!(child > 0);
            while !is_running.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            libc::munmap(map, 4096);
            child
        }
    }

    /// Checks that a thread gets a signal that stopped it before `let_go` lets it go.
    fn check_signal_comes(let_go: impl FnOnce(Seized)) {
        let child = running_child();
        let tid = child.cast_unsigned();
        // As in `Seized::seize`, with a signal that comes first.
        let seize = trace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize);
        if seize == Err(Errno::PERM) {
            // SAFETY: ends a child of ours, and waits for it.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
            return eprintln!("skipped: nobody may trace its own child here");
        }
        seize.unwrap();
        let seized = Seized { tid, has_stopped: false, later: Vec::new() };
        let mut status = 0;
        // SAFETY: signals to a child of ours, and waits for it.
        unsafe {
            libc::kill(child, libc::SIGTERM);
            let mut info = std::mem::zeroed();
            let stopped = libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
            assert_eq!(libc::waitid(libc::P_PID, tid, &mut info, stopped), 0);
            trace(libc::PTRACE_INTERRUPT, tid, 0, 0).unwrap();
            let_go(seized);
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
        }
        assert_eq!((libc::WIFSIGNALED(status), libc::WTERMSIG(status)), (true, libc::SIGTERM));
    }

    #[test]
    fn a_signal_comes_after_a_thread_that_was_not_waited_for_is_let_go() {
        check_signal_comes(drop);
    }

    #[test]
    fn a_signal_comes_after_a_thread_that_has_made_no_call_is_let_go() {
        check_signal_comes(|seized| assert_eq!(seized.stop().unwrap_err(), Errno::OPNOTSUPP));
    }
}
