//! The scheduling policy, real-time priority and nice value of threads.
//!
//! A thread is named by its id in the caller's pid namespace; 0 names the calling thread. Errors
//! are the kernel's: `ESRCH` if there is no such thread, `EPERM` if the caller has no right to the
//! change. The simulator (`--cfg simulated`) answers for the threads of its machine.

#[cfg(simulated)]
use crate::simulation;
use rustix::io::Errno;
use rustix::process::{Pid, getpriority_process, setpriority_process};

/// The kernel's `struct sched_param`. That of musl is longer, and musl's functions do nothing but
/// fail.
type SchedParam = i32;

/// How a thread is scheduled, as one system call shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// As of [`policy`].
    pub policy: i32,
    /// As of [`priority`].
    pub priority: i32,
    /// The nice value. Not shown while the policy is a real-time one or SCHED_DEADLINE.
    pub nice: Option<i32>,
}

/// How a thread is scheduled.
pub fn attributes(tid: u32) -> Result<Attributes, Errno> {
    #[cfg(simulated)]
    if simulation::machine().is_some() {
        let (policy, priority) = (policy(tid)?, priority(tid)?);
        return Ok(Attributes { policy, priority, nice: shown_nice(policy, nice(tid)?) });
    }
    // SAFETY: zeroes are a structure without values.
    let mut shown: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of::<libc::sched_attr>() as u32;
    // SAFETY: asks about a thread, and fills a structure of ours of this size.
    let asked = unsafe {
        libc::syscall(libc::SYS_sched_getattr, tid.cast_signed(), &raw mut shown, bytes, 0)
    };
    if asked != 0 {
        return Err(last_error());
    }
    let resets = shown.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0;
    let policy = shown.sched_policy.cast_signed();
    Ok(Attributes {
        policy: if resets { policy | libc::SCHED_RESET_ON_FORK } else { policy },
        priority: shown.sched_priority.cast_signed(),
        nice: shown_nice(policy, shown.sched_nice),
    })
}

fn shown_nice(policy: i32, nice: i32) -> Option<i32> {
    let policy = policy & !libc::SCHED_RESET_ON_FORK;
    let is_hidden = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy);
    (!is_hidden).then_some(nice)
}

/// The policy of a thread, as the kernel numbers it, with `SCHED_RESET_ON_FORK` if the thread has
/// that flag.
pub fn policy(tid: u32) -> Result<i32, Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.schedule(tid).map(|schedule| schedule.policy);
    }
    // SAFETY: asks about a thread, and touches no memory.
    match unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid.cast_signed()) } {
        policy if policy >= 0 => Ok(policy as i32),
        _ => Err(last_error()),
    }
}

/// The real-time priority of a thread; 0 if its policy has none.
pub fn priority(tid: u32) -> Result<i32, Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.schedule(tid).map(|schedule| schedule.priority);
    }
    let mut priority: SchedParam = 0;
    // SAFETY: asks about a thread, and fills a structure of ours.
    match unsafe { libc::syscall(libc::SYS_sched_getparam, tid.cast_signed(), &raw mut priority) } {
        0 => Ok(priority),
        _ => Err(last_error()),
    }
}

/// Gives a thread a policy, which may contain `SCHED_RESET_ON_FORK`, and a real-time priority.
pub fn set(tid: u32, policy: i32, priority: i32) -> Result<(), Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.set_policy(tid, policy, priority);
    }
    let priority: SchedParam = priority;
    // SAFETY: changes how a thread is scheduled, by a structure of ours.
    match unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, tid.cast_signed(), policy, &raw const priority)
    } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// The nice value of a thread.
pub fn nice(tid: u32) -> Result<i32, Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.schedule(tid).map(|schedule| schedule.nice);
    }
    getpriority_process(Pid::from_raw(tid.cast_signed()))
}

/// Gives a thread a nice value of -20 to 19.
pub fn set_nice(tid: u32, nice: i32) -> Result<(), Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.set_nice(tid, nice);
    }
    setpriority_process(Pid::from_raw(tid.cast_signed()), nice)
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_nice_value_that_it_was_given() {
        let own = move || {
            let tid = crate::thread::id();
            let before = nice(0).unwrap();
            let less_urgent = (before + 3).min(19);
            set_nice(tid, less_urgent).unwrap();
            assert_eq!((nice(0), nice(tid)), (Ok(less_urgent), Ok(less_urgent)));
            // A batch thread is an ordinary one that takes no privilege to become.
            set(tid, libc::SCHED_BATCH, 0).unwrap();
            assert_eq!((policy(0), policy(tid)), (Ok(libc::SCHED_BATCH), Ok(libc::SCHED_BATCH)));
            assert_eq!((priority(0), priority(tid)), (Ok(0), Ok(0)));
            let nice = Some(less_urgent);
            let batch = Attributes { policy: libc::SCHED_BATCH, priority: 0, nice };
            assert_eq!((attributes(0), attributes(tid)), (Ok(batch), Ok(batch)));
            let resets = libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK;
            set(tid, resets, 0).unwrap();
            assert_eq!(attributes(0), Ok(Attributes { policy: resets, ..batch }));
        };
        std::thread::spawn(own).join().unwrap();
    }

    #[test]
    fn a_thread_that_does_not_exist_has_no_policy() {
        // Linux numbers threads below 2^22.
        let nobody = 1 << 30;
        assert_eq!(policy(nobody), Err(Errno::SRCH));
        assert_eq!(priority(nobody), Err(Errno::SRCH));
        assert_eq!(attributes(nobody), Err(Errno::SRCH));
        assert_eq!(nice(nobody), Err(Errno::SRCH));
        assert_eq!(set(nobody, libc::SCHED_OTHER, 0), Err(Errno::SRCH));
        assert_eq!(set_nice(nobody, 0), Err(Errno::SRCH));
    }
}
