//! Starting threads, their priorities and processors, and what a child of fork does.

use baton_abi::sched_priority::SchedPriority;
use baton_shm::namespaces::{depth_below_proc, pids_in};
use baton_shm::schedule;
use baton_shm::sync::{AtomicU32, Ordering};
use baton_state::work::Tid;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::thread::CpuSet;

use std::cell::Cell;
use std::sync::Once;

/// Starts a thread on which no signal handler of the program runs.
pub fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let started = baton_shm::thread::spawn(name, body);
    started.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
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

pub use baton_shm::thread::id as tid;

/// Whether a process has this thread, both by their numbers in our pid namespace, and uses this
/// number itself: threads of a namespace below ours have others there.
pub fn is_thread_of(pid: u32, tid: u32) -> bool {
    #[cfg(simulated)]
    if let Some(machine) = baton_shm::simulation::machine() {
        return machine.lives(tid);
    }
    let (pid, tid) = (pid.cast_signed(), tid.cast_signed());
    // SAFETY: sends nothing, and touches no memory: signal 0 asks whether one could.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) } == 0;
    let refused = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    if pid <= 0 || tid <= 0 || !(found || refused()) {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    let depth = status.map_or(0, |status| pids_in(&status).len());
    depth != 0 && depth == depth_below_proc()
}

/// How often a thread of this process has, or may have, got another priority.
static PRIORITY_CHANGES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static PRIORITY: Cell<(u32, Option<SchedPriority>)> = const { Cell::new(UNKNOWN) };
}

/// A priority that is to be asked for.
const UNKNOWN: (u32, Option<SchedPriority>) = (u32::MAX, None);

/// The calling thread's priority, if that is a real-time one: as it was when it first asked,
/// after the last [`priorities_changed`], or at [`real_time_priority_again`].
#[inline(always)]
pub fn real_time_priority() -> Option<SchedPriority> {
    let (at, known) = PRIORITY.get();
    if at == priority_changes() { known } else { real_time_priority_again() }
}

/// Asks the system for the calling thread's priority, if that is a real-time one.
#[inline(never)]
pub fn real_time_priority_again() -> Option<SchedPriority> {
    let at = priority_changes();
    let (policy, _) = policy();
    let priority = SchedPriority::of_real_time(policy, 0)
        .and_then(|_| SchedPriority::of_real_time(policy, schedule::priority(0).ok()?));
    PRIORITY.set((at, priority));
    priority
}

/// The calling thread's priority has changed, and other threads' have not.
pub fn forget_priority() {
    PRIORITY.set(UNKNOWN);
}

/// The calling thread has had this priority since [`priority_changes`] was `at`.
pub fn know_priority(at: u32, real_time: Option<SchedPriority>) {
    PRIORITY.set((at, real_time));
}

/// The calling thread's priority may have changed without a word: if it has, that is known now.
pub fn refresh_priority() {
    let known = real_time_priority();
    if real_time_priority_again() != known {
        priorities_changed();
    }
}

/// A thread of this process has got another policy or priority: each asks anew for its own.
pub fn priorities_changed() {
    PRIORITY_CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// The priority of threads that a thread starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// That of the thread.
    Inherit,
    /// None (SCHED_RESET_ON_FORK).
    Ordinary,
}

/// The priority of threads that the calling thread starts.
pub fn children() -> Children {
    policy().1
}

/// The calling thread's scheduling policy, and what threads have that it starts.
fn policy() -> (i32, Children) {
    // A thread of which the system says nothing has no policy of its own either.
    match schedule::policy(0).unwrap_or(-1) {
        policy if policy > 0 && policy & libc::SCHED_RESET_ON_FORK != 0 => {
            (policy & !libc::SCHED_RESET_ON_FORK, Children::Ordinary)
        }
        policy => (policy, Children::Inherit),
    }
}

fn set_policy(policy: i32, sched_priority: i32, children: Children) -> bool {
    let flag = match children {
        Children::Inherit => 0,
        Children::Ordinary => libc::SCHED_RESET_ON_FORK,
    };
    schedule::set(0, policy | flag, sched_priority).is_ok()
}

/// The calling thread gets this real-time priority, or none, in its own right. Nobody is told.
/// False if it may not have it: without a privilege a thread may not go from [`Children::Ordinary`]
/// to [`Children::Inherit`].
pub fn set_real_time_priority(priority: Option<SchedPriority>, children: Children) -> bool {
    let wanted = priority.unwrap_or_default();
    let set = set_policy(wanted.policy() as i32, wanted.sched_priority(), children);
    if set {
        PRIORITY.set((priority_changes(), priority));
    }
    set
}

/// How often [`priorities_changed`] was called.
#[inline]
pub fn priority_changes() -> u32 {
    PRIORITY_CHANGES.load(Ordering::Acquire)
}

/// In children of fork, threads know nothing of their priority, nor of the ways by which their
/// parents' called.
pub fn forget_in_children() {
    static HANDLER: Once = Once::new();
    // SAFETY: the handler is a function of ours, which touches one word and nothing else.
    HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
}

extern "C" fn in_child() {
    priorities_changed();
}

/// Whether the calling thread runs at a real-time priority, as [`real_time_priority`] has it.
pub fn is_real_time() -> bool {
    real_time_priority().is_some()
}

/// Whether a thread of this process runs, or would if it had a processor. One of which the system
/// says nothing does not.
pub fn is_running(tid: Tid) -> bool {
    #[cfg(simulated)]
    if let Some(machine) = baton_shm::simulation::machine() {
        return machine.is_ready(tid);
    }
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
    // Its name may have parentheses.
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R')))
}

/// Whether the calling thread loses nothing but its turn by a yield.
#[inline]
pub fn may_yield() -> bool {
    real_time_priority() != Some(SchedPriority::DEADLINE)
}

/// Whether the calling thread has no policy that anybody has given it.
pub fn is_ordinary() -> bool {
    policy().0 == libc::SCHED_OTHER
}

/// The calling thread, which may have its starter's priority, is an ordinary one.
pub fn become_ordinary() {
    // A thread whose children do not have its priority may need a privilege for any other kind.
    let _ = [Children::Inherit, Children::Ordinary]
        .into_iter()
        .any(|children| set_policy(libc::SCHED_OTHER, 0, children));
    // It may have asked for its priority since the last change that was told.
    priorities_changed();
}

/// Makes a thread of this process ordinary if the broker has given it a real-time priority, which
/// it does with SCHED_RESET_ON_FORK.
pub fn take_priority_back(tid: Tid) {
    let reset = libc::SCHED_RESET_ON_FORK;
    let is_of_broker = schedule::policy(tid).is_ok_and(|policy| policy > 0 && policy & reset != 0);
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_OTHER | reset];
    if is_of_broker && ordinary.into_iter().any(|policy| schedule::set(tid, policy, 0).is_ok()) {
        priorities_changed();
    }
}

/// The processor on which this thread runs.
pub fn processor() -> u32 {
    #[cfg(simulated)]
    if let Some(machine) = baton_shm::simulation::machine() {
        return machine.processor();
    }
    // SAFETY: asks about the calling thread; the C library reads it from memory of its own that the
    // kernel keeps (rseq), which costs a tenth of the vDSO's call.
    unsafe { libc::sched_getcpu() as u32 }
}

/// The one processor to which the calling thread is bound, if it is.
pub fn bound_to() -> Option<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
    processors.next().filter(|_| allowed.count() == 1).map(|processor| processor as u32)
}

/// On how many processors this process and its peers can run at once. That it is bound to one tells
/// nothing of its peers; a quota of processor time, which spinning uses up, holds for both.
pub fn processors() -> usize {
    #[cfg(simulated)]
    if baton_shm::simulation::machine().is_some() {
        return baton_shm::simulation::PROCESSORS;
    }
    let allowed = std::thread::available_parallelism().map_or(1, |processors| processors.get());
    let bound = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count() as usize);
    // SAFETY: asks about the machine, and touches no memory.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    if allowed < bound { allowed } else { online }
}
