//! A thread's priority, processors and timer slack. What it starts, and what it becomes by `exec`,
//! inherits them.

use crate::error::Error;
use baton_abi::sched_priority::SchedPriority;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, getpriority_process, getrlimit, setpriority_process};
use rustix::thread::{
    CpuSet, current_timer_slack, sched_getaffinity, sched_setaffinity, set_current_timer_slack,
};
use std::num::NonZeroU64;

/// The calling thread's priority. SCHED_BATCH, SCHED_IDLE and SCHED_DEADLINE are errors: they have
/// more than this.
pub fn current_priority() -> Result<SchedPriority, Error> {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: both look at the calling thread, and the second writes to a variable of ours.
    #[allow(unsafe_code)]
    let policy = unsafe {
        libc::sched_getparam(0, &mut param);
        libc::sched_getscheduler(0)
    };
    match policy & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => Ok(SchedPriority::nice(nice(None)?)),
        policy @ (libc::SCHED_FIFO | libc::SCHED_RR) => {
            Ok(SchedPriority::of_real_time(policy, param.sched_priority).expect("a real-time one"))
        }
        _ => Err(Error::system("tell the priority", Errno::OPNOTSUPP)),
    }
}

/// Gives a thread of this system a priority; `None` stands for the calling thread. `Denied` says
/// which right is missing.
pub fn set_priority(priority: SchedPriority, thread: Option<Pid>) -> Result<(), Error> {
    let param = libc::sched_param { sched_priority: priority.sched_priority() };
    let policy = priority.policy() as i32;
    // SAFETY: the call reads a variable of ours.
    #[allow(unsafe_code)]
    let done = unsafe { libc::sched_setscheduler(Pid::as_raw(thread), policy, &param) };
    let set = match priority.nice_value() {
        _ if done != 0 => Err(std::io::Error::last_os_error()),
        Some(wanted) if nice(thread)? != wanted => {
            setpriority_process(thread, wanted).map_err(Into::into)
        }
        _ => Ok(()),
    };
    let error = match set {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let is_denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    match (is_denied, priority.real_time()) {
        (true, Some(level)) => Err(Error::Denied {
            what: format!("priority {priority}"),
            needs: format!("CAP_SYS_NICE or an RLIMIT_RTPRIO of {level} ({})", limit()),
            advice: "run it as root, after `ulimit -r 99`, or with LimitRTPRIO=99 in its systemd \
                     unit; in a container with --cap-add SYS_NICE, and of control groups v1 only \
                     one with a cpu.rt_runtime_us has real-time threads",
        }),
        (true, None) => Err(Error::Denied {
            what: format!("priority {priority}"),
            needs: "CAP_SYS_NICE or a sufficient RLIMIT_NICE".to_owned(),
            advice: "run it as root, after `ulimit -e 40`, or with LimitNICE=-20 in its systemd \
                     unit",
        }),
        (false, _) => Err(Error::system(format!("set priority {priority}"), error)),
    }
}

fn nice(thread: Option<Pid>) -> Result<i32, Error> {
    getpriority_process(thread).map_err(|errno| Error::system("tell the nice value", errno))
}

fn limit() -> String {
    match getrlimit(Resource::Rtprio).current {
        Some(limit) => format!("here it is {limit}"),
        None => "here it is unlimited".to_owned(),
    }
}

/// The calling thread's priority, until it is dropped.
#[derive(Debug)]
pub struct Prioritized {
    before: SchedPriority,
}

impl Prioritized {
    /// Gives the calling thread a priority.
    pub fn new(priority: SchedPriority) -> Result<Prioritized, Error> {
        let before = current_priority()?;
        set_priority(priority, None)?;
        Ok(Prioritized { before })
    }
}

impl Drop for Prioritized {
    fn drop(&mut self) {
        let _ = set_priority(self.before, None);
    }
}

/// The calling thread's processors, until it is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Lets the calling thread run on these processors only.
    pub fn new(cpus: &[usize]) -> Result<Pinned, Error> {
        let failed = |errno| match errno {
            Errno::INVAL => Error::NoProcessors { wanted: cpus.to_vec() },
            errno => Error::system(format!("run on processors {cpus:?} only"), errno),
        };
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut set = CpuSet::new();
        for &cpu in cpus {
            if cpu >= CpuSet::MAX_CPU {
                return Err(failed(Errno::INVAL));
            }
            set.set(cpu);
        }
        sched_setaffinity(None, &set).map_err(failed)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// How late the calling thread's timers may come, until it is dropped. Real-time threads have none
/// anyway.
#[derive(Debug)]
pub struct Slack {
    before_ns: u64,
}

impl Slack {
    /// Lets timers be so late, in nanoseconds.
    pub fn new(slack_ns: NonZeroU64) -> Result<Slack, Error> {
        let failed = |errno| Error::system("set the timer slack", errno);
        let before_ns = current_timer_slack().map_err(failed)?;
        set_current_timer_slack(Some(slack_ns)).map_err(failed)?;
        Ok(Slack { before_ns })
    }
}

impl Drop for Slack {
    fn drop(&mut self) {
        let _ = set_current_timer_slack(NonZeroU64::new(self.before_ns));
    }
}

/// The kernel's list of processors: `0,2-3`. `None` if that is no list, or one of none.
pub fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        for (text, expected) in [
            ("0\n", Some(&[0][..])),
            ("0,2-3", Some(&[0, 2, 3])),
            ("", None),
            ("3-2", None),
            ("1,x", None),
            ("0-99999999", None),
        ] {
            assert_eq!(parse_cpus(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_thread_gets_back_what_it_had() {
        let slack = current_timer_slack().unwrap();
        let cpus = sched_getaffinity(None).unwrap();
        let one = (0..CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu)).unwrap();
        {
            let _slack = Slack::new(NonZeroU64::MIN).unwrap();
            let _pinned = Pinned::new(&[one]).unwrap();
            assert_eq!(current_timer_slack().unwrap(), 1);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        }
        assert_eq!(current_timer_slack().unwrap(), slack);
        assert_eq!(sched_getaffinity(None).unwrap(), cpus);
        assert!(Pinned::new(&[CpuSet::MAX_CPU]).is_err());
    }

    #[test]
    fn a_thread_gets_its_priority_and_has_it_no_longer() {
        let before = current_priority().unwrap();
        let worse = SchedPriority::nice(before.nice_value().unwrap_or(0) + 1);
        for wanted in [SchedPriority::round_robin(2), worse] {
            // A worse nice value anybody may have; without a right there is no way back from it.
            let test = std::thread::spawn(move || match Prioritized::new(wanted) {
                Ok(prioritized) => {
                    assert_eq!(current_priority().unwrap(), wanted);
                    drop(prioritized);
                    let after = current_priority().unwrap();
                    assert!(after == before || set_priority(before, None).is_err());
                }
                Err(error) => assert!(wanted != worse && error.advice().is_some(), "{error}"),
            });
            test.join().unwrap();
        }
        assert_eq!(current_priority().unwrap(), before);
    }
}
