//! The process that has opened a device. A child of fork may have the device for longer than this
//! process lives, and another process may then get its pid.

use crate::client_memory::{process_of, status_number};
use crate::watches::is_readable;
use baton_shm::socket::effective_ids;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::sync::Arc;

/// The process that has opened a device.
#[derive(Clone, Debug)]
pub struct Opener {
    /// Its number, which may be another process's once it has ended.
    pub pid: u32,
    pidfd: Arc<OwnedFd>,
}

/// The process that opened the last device: it may open the next one, too.
#[derive(Debug, Default)]
pub struct LastOpener(Option<Opener>);

impl LastOpener {
    /// [`Opener::of`] a thread.
    pub fn or_of(&mut self, tid: u32) -> Result<Opener, Errno> {
        // The number is its main thread's as long as it lives.
        let again = |last: &&Opener| last.pid == tid && is_readable(&last.pidfd) == Ok(false);
        if let Some(last) = self.0.as_ref().filter(again) {
            return Ok(last.clone());
        }
        let opener = Opener::of(tid)?;
        self.0 = Some(opener.clone());
        Ok(opener)
    }
}

impl Opener {
    /// The process of a thread whose open has no answer yet: the kernel keeps such a thread, even
    /// if it is killed. `ESRCH` if the server's pid namespace does not have it.
    pub fn of(tid: u32) -> Result<Opener, Errno> {
        let pid = process_of(tid).ok_or(Errno::SRCH)?;
        let number = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
        Ok(Opener { pid, pidfd: Arc::new(pidfd_open(number, PidfdFlags::empty())?) })
    }

    /// Its effective user, which is that of its main thread; `None` if it has ended.
    pub fn user(&self) -> Option<u32> {
        match effective_ids(&self.pidfd) {
            Ok((user, _)) => Some(user),
            Err(Errno::SRCH) => None,
            // Linux before 6.13.
            Err(_) => self.user_by_pid(),
        }
    }

    fn user_by_pid(&self) -> Option<u32> {
        let user = status_number(self.pid, "Uid:", 1);
        // Looked at after the file: while the process lives, the pid is its own.
        user.filter(|_| is_readable(&self.pidfd) == Ok(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_has_the_user_of_its_main_thread() {
        let own = Opener::of(std::process::id()).unwrap();
        let user = Some(rustix::process::geteuid().as_raw());
        assert_eq!((own.user(), own.user_by_pid()), (user, user));
        let by_thread = std::thread::spawn(|| Opener::of(baton_shm::thread::id()));
        assert_eq!(by_thread.join().unwrap().unwrap().pid, own.pid);
        for nobody in [0, u32::MAX] {
            assert_eq!(Opener::of(nobody).map(|opener| opener.pid), Err(Errno::SRCH), "{nobody}");
        }
    }

    /// The test's own process stands for the one that has the number of the opener now.
    #[test]
    fn a_process_that_has_an_openers_number_after_it_lends_no_user() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let opener = Opener::of(child.id()).unwrap();
        assert!(opener.user().is_some());
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        let reused = Opener { pid: std::process::id(), ..opener };
        assert_eq!((reused.user(), reused.user_by_pid()), (None, None));
        let mut last = LastOpener(Some(reused));
        let now = [(); 2].map(|()| last.or_of(std::process::id()).unwrap());
        assert!(now.iter().all(|opener| opener.user().is_some()), "another process has the number");
        assert!(Arc::ptr_eq(&now[0].pidfd, &now[1].pidfd), "it lives");
    }
}
