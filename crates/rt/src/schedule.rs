//! A thread's priority, processors and timer slack. What it starts, and what it becomes by `exec`,
//! inherits them.

use crate::error::Error;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, getrlimit};
use rustix::thread::{
    CpuSet, current_timer_slack, sched_getaffinity, sched_setaffinity, set_current_timer_slack,
};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU64;
use std::str::FromStr;

/// Policy and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// SCHED_OTHER.
    Other,
    /// SCHED_FIFO, 1 to 99: runs until it waits or a higher one comes.
    Fifo(u8),
    /// SCHED_RR, 1 to 99: takes turns with its equals.
    Rr(u8),
}

impl FromStr for Priority {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Priority, &'static str> {
        const WRONG: &str = "not one of `other`, `fifo:N`, `rr:N` with N from 1 to 99";
        if text == "other" {
            return Ok(Priority::Other);
        }
        let (policy, level) = text.split_once(':').ok_or(WRONG)?;
        let level = level.parse().ok().filter(|level| (1..=99).contains(level)).ok_or(WRONG)?;
        match policy {
            "fifo" => Ok(Priority::Fifo(level)),
            "rr" => Ok(Priority::Rr(level)),
            _ => Err(WRONG),
        }
    }
}

impl Display for Priority {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Priority::Other => write!(out, "other"),
            Priority::Fifo(level) => write!(out, "fifo:{level}"),
            Priority::Rr(level) => write!(out, "rr:{level}"),
        }
    }
}

impl Priority {
    fn parts(self) -> (i32, i32) {
        match self {
            Priority::Other => (libc::SCHED_OTHER, 0),
            Priority::Fifo(level) => (libc::SCHED_FIFO, i32::from(level)),
            Priority::Rr(level) => (libc::SCHED_RR, i32::from(level)),
        }
    }

    /// The calling thread's. SCHED_BATCH, SCHED_IDLE and SCHED_DEADLINE are errors: they have more
    /// than this.
    pub fn current() -> Result<Priority, Error> {
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: both look at the calling thread, and the second writes to a variable of ours.
        #[allow(unsafe_code)]
        let policy = unsafe {
            libc::sched_getparam(0, &mut param);
            libc::sched_getscheduler(0)
        };
        let level = u8::try_from(param.sched_priority).unwrap_or(0);
        match policy & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_OTHER => Ok(Priority::Other),
            libc::SCHED_FIFO => Ok(Priority::Fifo(level)),
            libc::SCHED_RR => Ok(Priority::Rr(level)),
            _ => Err(Error::system("tell the priority", Errno::OPNOTSUPP)),
        }
    }

    /// Gives it to a thread of this system, `None` for the calling one.
    pub fn set(self, thread: Option<Pid>) -> Result<(), Error> {
        let (policy, sched_priority) = self.parts();
        let param = libc::sched_param { sched_priority };
        // SAFETY: the call reads a variable of ours.
        #[allow(unsafe_code)]
        let done = unsafe { libc::sched_setscheduler(Pid::as_raw(thread), policy, &param) };
        if done == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EPERM) => Err(Error::Denied {
                what: format!("priority {self}"),
                needs: format!(
                    "CAP_SYS_NICE or an RLIMIT_RTPRIO of {sched_priority} ({})",
                    limit()
                ),
                advice: "run it as root, after `ulimit -r 99`, or with LimitRTPRIO=99 in its \
                    systemd unit; in a \
                         container with --cap-add SYS_NICE, and of control groups v1 only one with \
                         a \
                         cpu.rt_runtime_us has real-time threads",
            }),
            _ => Err(Error::system(format!("set priority {self}"), error)),
        }
    }
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
    before: Priority,
}

impl Prioritized {
    /// Gives the calling thread a priority.
    pub fn new(priority: Priority) -> Result<Prioritized, Error> {
        let before = Priority::current()?;
        priority.set(None)?;
        Ok(Prioritized { before })
    }
}

impl Drop for Prioritized {
    fn drop(&mut self) {
        let _ = self.before.set(None);
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
        let failed = |errno| Error::system(format!("run on processors {cpus:?} only"), errno);
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
    fn priorities() {
        for (text, expected) in [
            ("other", Some(Priority::Other)),
            ("fifo:80", Some(Priority::Fifo(80))),
            ("rr:1", Some(Priority::Rr(1))),
            ("fifo:0", None),
            ("fifo:100", None),
            ("fifo", None),
            ("idle:1", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
            if let Some(priority) = expected {
                assert_eq!(priority.to_string(), text);
            }
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
        let before = Priority::current().unwrap();
        match Prioritized::new(Priority::Rr(2)) {
            Ok(prioritized) => {
                assert_eq!(Priority::current().unwrap(), Priority::Rr(2));
                drop(prioritized);
            }
            Err(error) => assert!(error.advice().is_some(), "{error}"),
        }
        assert_eq!(Priority::current().unwrap(), before);
    }
}
