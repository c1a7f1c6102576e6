//! Threads of clients as the system knows them: whose they are, and at which priority they run.

#![expect(unsafe_code, reason = "prlimit of another process, which rustix lacks")]

use crate::peer::{Credentials, may_live, process_file, started_in};
use crate::state::{PidNamespace, Thread};
use baton_abi::sched_priority::SchedPriority;
use baton_shm::namespaces::pids_in;
use baton_shm::schedule;
#[cfg(simulated)]
use baton_shm::simulation;
use rustix::io::Errno;

/// Most threads among which one of another pid namespace is looked for: about 20 ms.
const MOST_THREADS: usize = 512;
/// The highest priority.
const HIGHEST: u8 = 99;
/// CAP_SYS_NICE, in /proc/PID/status.
const CAP_SYS_NICE: u64 = 1 << 23;

/// A thread of a process by the number that it has in its own pid namespace. `ESRCH` if there is
/// none, or if the broker does not see the process. A process of another namespace is searched: the
/// second value is the number of threads that were looked at.
pub(crate) fn find(pid: u32, tid: u32, namespace: PidNamespace) -> (Result<Thread, Errno>, usize) {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        let is_its = machine.process_of(tid).is_some_and(|its| simulation::FIRST_PID + its == pid);
        let found = Thread { pid, tid, started: 0 };
        return (is_its.then_some(found).ok_or(Errno::SRCH), 1);
    }
    let Some(tasks) = process_file(pid, "task") else { return (Err(Errno::SRCH), 0) };
    let mut n_read = 0;
    let mut thread = |in_ours: u32| {
        n_read += 1;
        let status = std::fs::read_to_string(format!("{tasks}/{in_ours}/status")).ok()?;
        if *pids_in(&status).last()? != tid {
            return None;
        }
        let started = started_in(&format!("{tasks}/{in_ours}/stat"))?;
        Some(Thread { pid, tid: in_ours, started })
    };
    let mut found = thread(tid);
    if found.is_none() && namespace != PidNamespace::Brokers {
        let names = std::fs::read_dir(&tasks).into_iter().flatten().take(MOST_THREADS).flatten();
        let mut numbers = names.filter_map(|task| task.file_name().to_str()?.parse().ok());
        found = numbers.find_map(thread);
    }
    (found.ok_or(Errno::SRCH), n_read)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

impl Thread {
    /// Whether it still lives: else its number is, or will be, another one's.
    fn is_there(self) -> bool {
        #[cfg(simulated)]
        if let Some(machine) = simulation::machine() {
            return machine.lives(self.tid);
        }
        let stat = format!("/proc/{}/task/{}/stat", self.pid, self.tid);
        started_in(&stat) == Some(self.started)
    }
}

/// The priority of a real-time thread. A looper of a SCHED_DEADLINE thread gets the highest that
/// there is. `EINVAL` for a thread that is not a real-time one.
pub(crate) fn priority(thread: Thread) -> Result<SchedPriority, Errno> {
    let asked = (schedule::policy(thread.tid), schedule::priority(thread.tid));
    let (Ok(policy), Ok(priority)) = asked else { return Err(Errno::SRCH) };
    if !thread.is_there() {
        return Err(Errno::SRCH);
    }
    let priority = SchedPriority::of_real_time(policy & !libc::SCHED_RESET_ON_FORK, priority);
    match priority.ok_or(Errno::INVAL)? {
        SchedPriority::DEADLINE => {
            tracing::info!(
                pid = thread.pid,
                tid = thread.tid,
                "a looper cannot have its caller's SCHED_DEADLINE"
            );
            Ok(SchedPriority::fifo(HIGHEST))
        }
        priority => Ok(priority),
    }
}

/// The highest priority that a process may have loopers of others run at: what it could give
/// itself. 0 for a process that has ended: another one may have its pid.
pub(crate) fn priority_limit(process: &Credentials) -> u32 {
    #[cfg(simulated)]
    if simulation::is_simulated() {
        return HIGHEST.into();
    }
    let limit = limit_by_pid(process.pid, process.uid);
    // Looked at last: while the process lives, the pid is its own.
    let lives = process.incarnation.is_none_or(|it| may_live(process.pid, it));
    if lives { limit } else { 0 }
}

fn limit_by_pid(pid: u32, uid: u32) -> u32 {
    let text = |name| std::fs::read_to_string(process_file(pid, name)?).ok();
    let Some(status) = text("status") else { return 0 };
    let capabilities = field(&status, "CapEff:").map(str::trim);
    let capabilities = capabilities.and_then(|all| u64::from_str_radix(all, 16).ok());
    // A process has all capabilities in a user namespace of its own making.
    let own_map = std::fs::read_to_string("/proc/self/uid_map").ok();
    let capabilities = capabilities.filter(|_| text("uid_map") == own_map);
    if uid == 0 || capabilities.is_some_and(|all| all & CAP_SYS_NICE != 0) {
        return HIGHEST.into();
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: asks about a process, and fills a structure of ours.
    let asked = unsafe {
        libc::prlimit(pid.cast_signed(), libc::RLIMIT_RTPRIO, std::ptr::null(), &mut limit)
    };
    if asked == 0 { limit.rlim_cur.min(HIGHEST.into()) as u32 } else { 0 }
}

/// Gives a thread a priority; `None` makes it an ordinary one. Its children do not have it. `EPERM`
/// if the system does not let us, `ESRCH` if it has ended.
pub(crate) fn set_priority(thread: Thread, priority: Option<SchedPriority>) -> Result<(), Errno> {
    let (policy, sched_priority) = match priority {
        None => (libc::SCHED_OTHER, 0),
        Some(priority) => (priority.policy() as i32, priority.sched_priority()),
    };
    if !thread.is_there() {
        return Err(Errno::SRCH);
    }
    let set = |policy| schedule::set(thread.tid, policy, sched_priority);
    let resets = policy | libc::SCHED_RESET_ON_FORK;
    match priority {
        Some(_) => set(resets),
        // As it was, a thread of its program's. That takes a privilege, and to take a priority back
        // takes none.
        None => set(policy).or_else(|_| set(resets)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{LastPeer, identify};

    #[test]
    fn a_thread_is_found_by_its_own_number_and_in_its_own_process_only() {
        let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get());
        let find = |pid, tid| find(pid, tid, PidNamespace::Brokers).0;
        let thread = find(pid, tid.cast_unsigned()).unwrap();
        assert_eq!((thread.pid, thread.tid), (pid, tid.cast_unsigned()));
        assert_eq!(find(pid, 1), Err(Errno::SRCH), "another process's");
        assert_eq!(priority(thread), Err(Errno::INVAL), "not a real-time one");
        let ended = Thread { started: thread.started + 1, ..thread };
        assert_eq!(priority(ended), Err(Errno::SRCH));
        assert_eq!(set_priority(ended, None), Err(Errno::SRCH));
    }

    #[test]
    fn only_a_process_of_another_namespace_is_searched() {
        let (pid, unused) = (std::process::id(), u32::MAX);
        let (missing, n_read) = find(pid, unused, PidNamespace::Brokers);
        assert_eq!((missing, n_read), (Err(Errno::SRCH), 1));
        let (missing, n_read) = find(pid, unused, PidNamespace::Other { number: 1, pid: 1 });
        // The test's own thread, and the one that runs the tests.
        assert!(missing == Err(Errno::SRCH) && n_read > 2, "{n_read}");
    }

    #[test]
    fn nothing_is_done_by_the_pid_0() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_eq!(find(0, tid, PidNamespace::Unknown), (Err(Errno::SRCH), 0));
        assert_eq!(limit_by_pid(0, 0), 0, "not the broker's own");
    }

    /// The test's own process stands for the one that has the number of another that has ended.
    #[test]
    fn a_process_that_has_ended_may_have_no_real_time_looper() {
        let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = identify(&theirs, &mut LastPeer::default()).unwrap().0;
        let root = Credentials { uid: 0, ..own };
        assert_eq!(priority_limit(&root), u32::from(HIGHEST));
        let incarnation = root.incarnation.map(|own| own ^ 1);
        assert_eq!(priority_limit(&Credentials { incarnation, ..root }), 0);
    }
}
