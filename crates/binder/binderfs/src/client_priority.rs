//! The priority of a client's thread, which its stand-in shares: the driver reads the calling
//! thread's priority, and gives the thread that of the caller that it serves.
//!
//! ```text
//!   an ioctl begins: the client's, if that has changed     --> the stand-in's
//!   an ioctl ends:   the stand-in's, if that has changed   --> the client's
//! ```
//!
//! The thread that reads requests is as urgent as the most urgent of all stand-ins: a request of a
//! real-time thread passes it.

use baton_shm::schedule::{self, Attributes};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The calling thread, for [`schedule`].
const CALLING: u32 = 0;
/// The highest real-time priority: the stand-in of a SCHED_DEADLINE thread has it.
const HIGHEST: i32 = 99;

/// The scheduling of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scheduling(Attributes);

impl Scheduling {
    fn of(tid: u32) -> Result<Scheduling, Errno> {
        let found = schedule::attributes(tid)?;
        let reset = found.policy & libc::SCHED_RESET_ON_FORK;
        let (policy, priority) = match found.policy & !reset {
            libc::SCHED_DEADLINE => (libc::SCHED_FIFO | reset, HIGHEST),
            _ => (found.policy, found.priority),
        };
        Ok(Scheduling(Attributes { policy, priority, ..found }))
    }

    /// Gives a thread this scheduling in place of that.
    fn give(self, tid: u32, before: Scheduling) -> Result<(), Errno> {
        let (Scheduling(new), Scheduling(old)) = (self, before);
        if (new.policy, new.priority) != (old.policy, old.priority) {
            schedule::set(tid, new.policy, new.priority)?;
        }
        // A real-time thread keeps its nice value until it is an ordinary one.
        if let Some(nice) = new.nice.filter(|_| new.nice != old.nice) {
            schedule::set_nice(tid, nice)?;
        }
        Ok(())
    }

    /// The real-time priority, if the policy has one.
    fn real_time(self) -> Option<i32> {
        let policy = self.0.policy & !libc::SCHED_RESET_ON_FORK;
        [libc::SCHED_FIFO, libc::SCHED_RR].contains(&policy).then_some(self.0.priority)
    }
}

/// The priorities of a client's thread and of its stand-in, which is the calling thread.
#[derive(Debug)]
pub struct ClientPriority {
    client: u32,
    /// Of the client's thread when that was last looked at; `None` if it has not been yet.
    theirs: Option<Scheduling>,
    /// Of the stand-in when that was last looked at.
    ours: Option<Scheduling>,
}

impl ClientPriority {
    /// The priority of the client's thread with this number.
    pub fn of(client: u32) -> ClientPriority {
        ClientPriority { client, theirs: None, ours: None }
    }

    /// The stand-in takes over a priority that is new to it. True if that has changed its own.
    pub fn take_over(&mut self, urgency: &Urgency) -> bool {
        let Ok(theirs) = Scheduling::of(self.client) else { return false };
        if self.theirs.replace(theirs) == Some(theirs) {
            return false;
        }
        let Some(before) = self.ours.or_else(|| Scheduling::of(CALLING).ok()) else { return false };
        if let Err(errno) = theirs.give(CALLING, before) {
            tracing::debug!(client = self.client, %errno, "cannot take over a priority");
        }
        self.ours = Scheduling::of(CALLING).ok();
        urgency.note(self.ours.and_then(Scheduling::real_time));
        self.ours != Some(before)
    }

    /// The client's thread gets a priority that the driver or the broker has given the stand-in.
    pub fn give_back(&mut self, urgency: &Urgency) {
        let (Some(before), Ok(ours)) = (self.ours, Scheduling::of(CALLING)) else { return };
        if ours == before {
            return;
        }
        self.ours = Some(ours);
        urgency.note(ours.real_time());
        if let Some(theirs) = self.theirs
            && ours.give(self.client, theirs).is_ok()
        {
            self.theirs = Some(ours);
        }
    }
}

/// How urgent the thread is that reads requests.
#[derive(Debug)]
pub struct Urgency {
    reader: u32,
    /// The real-time priorities of stand-ins, by their thread ids.
    stand_ins: Mutex<HashMap<u32, i32>>,
}

impl Urgency {
    /// The calling thread reads requests.
    pub fn of_reader() -> Urgency {
        Urgency { reader: baton_shm::thread::id(), stand_ins: Mutex::default() }
    }

    /// The calling thread, a stand-in, has this real-time priority, or none.
    pub fn note(&self, priority: Option<i32>) {
        self.change(|stand_ins| {
            match priority {
                Some(priority) => stand_ins.insert(baton_shm::thread::id(), priority),
                None => stand_ins.remove(&baton_shm::thread::id()),
            };
        });
    }

    /// Looks whether stand-ins are real-time threads still: the broker makes a dedicated looper an
    /// ordinary one while it waits. Called by the reader now and then.
    pub fn review(&self) {
        let is_real_time = |tid: u32| Scheduling::of(tid).is_ok_and(|it| it.real_time().is_some());
        self.change(|stand_ins| stand_ins.retain(|tid, _| is_real_time(*tid)));
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<u32, i32>)) {
        let mut stand_ins = self.stand_ins.lock().unwrap_or_else(PoisonError::into_inner);
        let most = |all: &HashMap<u32, i32>| all.values().copied().max();
        let before = most(&stand_ins);
        change(&mut stand_ins);
        let now = most(&stand_ins);
        if now == before {
            return;
        }
        // Threads that the reader starts are ordinary ones.
        let set = match now {
            Some(priority) => {
                let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
                schedule::set(self.reader, policy, priority)
            }
            None => schedule::set(self.reader, libc::SCHED_OTHER, 0),
        };
        if let Err(errno) = set {
            tracing::warn!(%errno, "requests are not read at the priority of real-time callers");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Nice values go up without a right, and a batch thread is an ordinary one.
    #[test]
    fn each_thread_has_what_the_other_was_given() {
        let (tell, tid) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let client = std::thread::spawn(move || {
            tell.send(baton_shm::thread::id()).unwrap();
            _ = ends.recv();
        });
        let stand_in = std::thread::spawn(move || {
            let urgency = Urgency::of_reader();
            let client = tid.recv().unwrap();
            let own = || (schedule::policy(0).unwrap(), schedule::nice(0).unwrap());
            let theirs = || (schedule::policy(client).unwrap(), schedule::nice(client).unwrap());
            let mut both = ClientPriority::of(client);
            both.take_over(&urgency);
            let nice = own().1;
            schedule::set(client, libc::SCHED_BATCH, 0).unwrap();
            schedule::set_nice(client, (nice + 3).min(19)).unwrap();
            assert!(both.take_over(&urgency));
            assert_eq!(own(), (libc::SCHED_BATCH, (nice + 3).min(19)));
            assert!(!both.take_over(&urgency), "nothing is new");
            schedule::set_nice(0, (nice + 5).min(19)).unwrap();
            both.give_back(&urgency);
            assert_eq!(theirs(), (libc::SCHED_BATCH, (nice + 5).min(19)));
            assert!(!both.take_over(&urgency), "it is the stand-in's own");
            drop(end);
        });
        stand_in.join().unwrap();
        client.join().unwrap();
    }
}
