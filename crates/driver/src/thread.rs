//! The control thread's start, and what a child of fork does.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Starts a thread on which no signal handler of the program runs.
pub fn start(body: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    // SAFETY: plain data; both masks are ours and initialised by the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = std::thread::Builder::new().name("baton-control".into()).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    }
}

/// Replaces a descriptor by nothing in this process, keeping its number taken.
pub fn close_in_child(fd: BorrowedFd<'_>) {
    if let Ok(null) =
        rustix::fs::open("/dev/null", rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
    {
        // SAFETY: both are open; the number stays valid, so its owner may close it as ever.
        unsafe { libc::dup3(null.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
    }
}

/// Whether the calling thread runs at a real-time priority; as it was when it first asked.
pub fn is_real_time() -> bool {
    thread_local!(static REAL_TIME: bool = {
        // SAFETY: asks about the calling thread, and touches no memory.
        let policy = unsafe { libc::sched_getscheduler(0) };
        matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
    });
    REAL_TIME.with(|real_time| *real_time)
}

/// The processor on which this thread runs.
pub fn processor() -> u32 {
    // SAFETY: asks about the calling thread; the C library reads it from memory of its own that the
    // kernel keeps (rseq), which costs a tenth of the vDSO's call.
    unsafe { libc::sched_getcpu() as u32 }
}

/// On how many processors this process and its peers can run at once. That it is bound to one tells
/// nothing of its peers; a quota of processor time, which spinning uses up, holds for both.
pub fn processors() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, |processors| processors.get());
    let bound = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count() as usize);
    // SAFETY: asks about the machine, and touches no memory.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    if allowed < bound { allowed } else { online }
}
