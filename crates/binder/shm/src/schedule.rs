//! The scheduling policy, real-time priority and nice value of threads.
//!
//! A thread is named by its id in the caller's pid namespace; 0 names the calling thread. Errors
//! are the kernel's: `ESRCH` if there is no such thread, `EPERM` if the caller has no right to the
//! change. The simulator (`--cfg simulated`) answers for the threads of its machine.

#[cfg(simulated)]
use crate::simulation;
use rustix::io::Errno;
use rustix::process::{Pid, getpriority_process, setpriority_process};

/// The policy of a thread, as the kernel numbers it, with `SCHED_RESET_ON_FORK` if the thread has
/// that flag.
pub fn policy(tid: u32) -> Result<i32, Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.schedule(tid).map(|schedule| schedule.policy);
    }
    // SAFETY: asks about a thread, and touches no memory.
    match unsafe { libc::sched_getscheduler(tid.cast_signed()) } {
        policy if policy >= 0 => Ok(policy),
        _ => Err(last_error()),
    }
}

/// The real-time priority of a thread; 0 if its policy has none.
pub fn priority(tid: u32) -> Result<i32, Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.schedule(tid).map(|schedule| schedule.priority);
    }
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: asks about a thread, and fills a structure of ours.
    match unsafe { libc::sched_getparam(tid.cast_signed(), &mut parameters) } {
        0 => Ok(parameters.sched_priority),
        _ => Err(last_error()),
    }
}

/// Gives a thread a policy, which may contain `SCHED_RESET_ON_FORK`, and a real-time priority.
pub fn set(tid: u32, policy: i32, priority: i32) -> Result<(), Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return machine.set_policy(tid, policy, priority);
    }
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: changes how a thread is scheduled, by a structure of ours.
    match unsafe { libc::sched_setscheduler(tid.cast_signed(), policy, &parameters) } {
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
        };
        std::thread::spawn(own).join().unwrap();
    }

    #[test]
    fn a_thread_that_does_not_exist_has_no_policy() {
        // Linux numbers threads below 2^22.
        let nobody = 1 << 30;
        assert_eq!(policy(nobody), Err(Errno::SRCH));
        assert_eq!(priority(nobody), Err(Errno::SRCH));
        assert_eq!(nice(nobody), Err(Errno::SRCH));
        assert_eq!(set(nobody, libc::SCHED_OTHER, 0), Err(Errno::SRCH));
        assert_eq!(set_nice(nobody, 0), Err(Errno::SRCH));
    }
}
