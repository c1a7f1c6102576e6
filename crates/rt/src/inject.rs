//! Locks the memory of a program that is about to start.
//!
//! `exec` undoes `mlockall`, so the program would have to call it itself. This module traces the
//! process through its `exec` and makes `mlockall` its first system call.
//!
//! ```text
//!   exec ... returns to the program's entry      <- stopped here
//!            entry: `syscall`, written over it   <- mlockall
//!            entry: as it was                    <- goes on, untraced
//! ```

use crate::error::Error;
use crate::memory;
use rustix::io::Errno;

const OPTIONS: i32 = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD;
/// A stop at a system call, with PTRACE_O_TRACESYSGOOD.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;
const AT_EXEC: i32 = libc::SIGTRAP | (libc::PTRACE_EVENT_EXEC << 8);
/// General registers, as PTRACE_GETREGSET names them.
const REGISTERS: usize = 1;

#[cfg(target_arch = "x86_64")]
mod processor {
    pub const CALL: [u8; 2] = [0x0f, 0x05];

    pub fn pc(registers: &libc::user_regs_struct) -> usize {
        registers.rip as usize
    }

    pub fn call(registers: &mut libc::user_regs_struct, number: i64, argument: u64) {
        // Marks that there is no call for the kernel to restart.
        registers.orig_rax = u64::MAX;
        (registers.rax, registers.rdi) = (number as u64, argument);
    }

    pub fn result(registers: &libc::user_regs_struct) -> i64 {
        registers.rax as i64
    }
}

#[cfg(target_arch = "aarch64")]
mod processor {
    pub const CALL: [u8; 4] = 0xd400_0001_u32.to_le_bytes();

    pub fn pc(registers: &libc::user_regs_struct) -> usize {
        registers.pc as usize
    }

    pub fn call(registers: &mut libc::user_regs_struct, number: i64, argument: u64) {
        (registers.regs[8], registers.regs[0]) = (number as u64, argument);
    }

    pub fn result(registers: &libc::user_regs_struct) -> i64 {
        registers.regs[0] as i64
    }
}

/// A process that this thread traces. It runs on by itself once the trace ends or this process
/// ends.
pub(crate) struct Seized {
    pid: i32,
    /// Signals that arrived meanwhile.
    held: Vec<i32>,
}

impl Seized {
    /// Starts to trace a process, which runs on.
    pub fn new(pid: u32) -> Result<Seized, Error> {
        let seized = Seized { pid: pid as i32, held: Vec::new() };
        match seized.ptrace(libc::PTRACE_SEIZE, 0, OPTIONS as usize) {
            Ok(()) => Ok(seized),
            Err(Errno::PERM) => Err(Error::Denied {
                what: "tracing the program, to lock its memory".to_owned(),
                needs: "CAP_SYS_PTRACE or a kernel.yama.ptrace_scope below 2".to_owned(),
                advice: "run it as root, or have the program lock its memory by itself",
            }),
            Err(errno) => Err(Error::system("ptrace", errno)),
        }
    }

    /// Waits until the process has executed a program, and locks the program's memory. A program
    /// whose memory cannot be locked ends with exit code 1. A process that ends before its `exec`
    /// is no error: it has reported why.
    pub fn lock_memory(mut self) -> Result<(), Error> {
        let done = self.reach_exec().and_then(|()| self.call_mlockall());
        for signal in std::mem::take(&mut self.held) {
            // SAFETY: sends a signal that the process was sent before.
            #[allow(unsafe_code)]
            unsafe {
                libc::kill(self.pid, signal)
            };
        }
        match done {
            Err(Errno::SRCH) => Ok(()),
            done => done.map_err(memory::refused),
        }
    }

    fn reach_exec(&mut self) -> Result<(), Errno> {
        loop {
            let stop = self.wait()?;
            if stop == AT_EXEC {
                return Ok(());
            }
            let event = stop >> 8 != 0;
            self.ptrace(libc::PTRACE_CONT, 0, if event { 0 } else { stop as usize })?;
        }
    }

    fn call_mlockall(&mut self) -> Result<(), Errno> {
        self.go_to_call()?;
        let before = self.registers()?;
        let pc = processor::pc(&before);
        let code = self.peek(pc)?;
        let mut changed = code.to_ne_bytes();
        changed[..processor::CALL.len()].copy_from_slice(&processor::CALL);
        self.ptrace(libc::PTRACE_POKETEXT, pc, usize::from_ne_bytes(changed))?;
        let result = self.call(before, libc::SYS_mlockall, u64::from(memory::FLAGS.bits()))?;
        if result < 0 {
            let mut last = before;
            processor::call(&mut last, libc::SYS_exit_group, 1);
            self.set_registers(last)?;
            self.ptrace(libc::PTRACE_DETACH, 0, 0)?;
            return Err(Errno::from_raw_os_error(-result as i32));
        }
        self.ptrace(libc::PTRACE_POKETEXT, pc, code)?;
        self.set_registers(before)?;
        self.ptrace(libc::PTRACE_DETACH, 0, 0)
    }

    /// Makes the process run the system call at its program counter.
    fn call(
        &mut self,
        mut registers: libc::user_regs_struct,
        number: i64,
        argument: u64,
    ) -> Result<i64, Errno> {
        processor::call(&mut registers, number, argument);
        self.set_registers(registers)?;
        self.go_to_call()?;
        self.go_to_call()?;
        Ok(processor::result(&self.registers()?))
    }

    /// Continues to the next entry into a system call or return from one.
    fn go_to_call(&mut self) -> Result<(), Errno> {
        loop {
            self.ptrace(libc::PTRACE_SYSCALL, 0, 0)?;
            match self.wait()? {
                AT_CALL => return Ok(()),
                signal @ 1..0x80 => self.held.push(signal),
                _ => {}
            }
        }
    }

    /// Waits for the next stop. Returns the signal, and the event in the bits above. `ESRCH` if the
    /// process has ended.
    fn wait(&self) -> Result<i32, Errno> {
        let mut status = 0;
        let waited = rustix::io::retry_on_intr(|| {
            // SAFETY: writes to a variable of ours.
            #[allow(unsafe_code)]
            match unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } {
                -1 => Err(last()),
                _ => Ok(()),
            }
        });
        waited.map_err(|_| Errno::SRCH)?;
        if libc::WIFSTOPPED(status) { Ok(status >> 8) } else { Err(Errno::SRCH) }
    }

    fn ptrace(&self, request: impl Into<i64>, address: usize, data: usize) -> Result<(), Errno> {
        // SAFETY: affects only the traced process. Requests that write to this process go through
        // `transfer`.
        #[allow(unsafe_code)]
        match unsafe { libc::syscall(libc::SYS_ptrace, request.into(), self.pid, address, data) } {
            -1 => Err(last()),
            _ => Ok(()),
        }
    }

    fn transfer<T>(&self, request: i64, address: usize, data: &mut T) -> Result<(), Errno> {
        self.ptrace(request, address, std::ptr::from_mut(data) as usize)
    }

    /// Reads a word of the process's memory.
    fn peek(&self, address: usize) -> Result<usize, Errno> {
        let mut word = 0_usize;
        self.transfer(i64::from(libc::PTRACE_PEEKTEXT), address, &mut word)?;
        Ok(word)
    }

    fn registers(&self) -> Result<libc::user_regs_struct, Errno> {
        // SAFETY: a structure of numbers, which may all be zero.
        #[allow(unsafe_code)]
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.transfer(i64::from(libc::PTRACE_GETREGSET), REGISTERS, &mut vector(&mut registers))?;
        Ok(registers)
    }

    fn set_registers(&self, mut registers: libc::user_regs_struct) -> Result<(), Errno> {
        self.transfer(i64::from(libc::PTRACE_SETREGSET), REGISTERS, &mut vector(&mut registers))
    }
}

fn vector(registers: &mut libc::user_regs_struct) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::from_mut(registers).cast(), iov_len: size_of_val(registers) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
