//! Interrupts threads of this process that wait in the driver, as a signal handler of a program
//! would.
//!
//! The driver ends a wait with `EINTR` when a handler has run. A signal that arrives just before a
//! wait begins is lost, so whoever interrupts a thread repeats it until the wait has ended.

use rustix::io::Errno;
use rustix::process::getpid;

/// A signal that nobody else sends, and that is ignored without a handler.
const SIGNAL: i32 = libc::SIGURG;

extern "C" fn nothing(_: i32) {}

/// Installs the handler.
pub fn install() -> Result<(), Errno> {
    // SAFETY: zeroes are an empty mask and no flags, SA_RESTART least of all; the handler does
    // nothing.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        libc::sigaction(SIGNAL, &action, std::ptr::null_mut())
    };
    if installed == 0 { Ok(()) } else { Err(Errno::INVAL) }
}

/// Interrupts a thread of this process. Nothing happens if it has ended.
pub fn interrupt(tid: u32) {
    // SAFETY: touches no memory. Any thread of this process has the handler.
    unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw_pid(), tid.cast_signed(), SIGNAL) };
}
