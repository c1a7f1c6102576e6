//! A process that holds the lock, distinguished from later processes with its pid.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// A process, identified by pid and start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Pid of the process.
    pub pid: u32,
    /// Start time in the kernel's ticks since boot. `exec` does not change it.
    pub started_ticks: u64,
    /// Pid of the guardian that undoes its settings if it is killed.
    pub guardian: u32,
}

impl Display for Holder {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "process {}", self.pid)?;
        match std::fs::read_to_string(format!("/proc/{}/comm", self.pid)) {
            Ok(name) => write!(out, " ({})", name.trim_end().replace(char::is_control, "?")),
            Err(_) => Ok(()),
        }
    }
}

impl Holder {
    /// The process that has this pid now. `None` if there is none.
    pub fn of(pid: u32, guardian: u32) -> Option<Holder> {
        Some(Holder { pid, started_ticks: started(pid)?, guardian })
    }

    /// This process.
    pub(crate) fn own(guardian: u32) -> Option<Holder> {
        Holder::of(std::process::id(), guardian)
    }

    /// Whether both values are the same process, with any guardian.
    pub fn is(&self, other: &Holder) -> bool {
        (self.pid, self.started_ticks) == (other.pid, other.started_ticks)
    }

    /// A pidfd, which becomes readable when the process ends. `None` if it has been reaped.
    pub fn pidfd(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Checked after the pidfd was opened: from then on the pid cannot become another process's.
        (started(self.pid)? == self.started_ticks).then_some(pidfd)
    }

    /// Whether the process has not ended. A zombie has ended.
    pub fn is_alive(&self) -> bool {
        let Some(pidfd) = self.pidfd() else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&now)), Ok(1..))
    }
}

/// Reads field 22 of `/proc/PID/stat`. The name before it may contain spaces and brackets.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_alive_until_it_ends_and_is_no_other() {
        let own = Holder::own(0).unwrap();
        assert!(own.is_alive());
        let other = Holder { started_ticks: own.started_ticks + 1, ..own.clone() };
        assert!(!other.is_alive() && !other.is(&own));
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let holder = Holder::of(child.id(), 0).unwrap();
        assert!(holder.is_alive());
        let pidfd = holder.pidfd().unwrap();
        child.kill().unwrap();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        assert!(!holder.is_alive(), "nobody has waited for it yet");
        child.wait().unwrap();
        assert!(!holder.is_alive());
    }
}
