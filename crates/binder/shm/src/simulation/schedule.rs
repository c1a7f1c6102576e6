//! Scheduling of a machine's threads: policies, priorities, and who may run next.
//!
//! The machine has [`PROCESSORS`] processors, so a thread may run as long as fewer threads than
//! that are more urgent and could run. Among these the seed chooses. Only the real-time priority
//! counts: nice values are kept and do not matter, nor do the turns of `SCHED_RR`. Threads of the
//! harness (process 0) may always run. Real-time threads are not throttled.

use super::{Inner, Machine, PROCESSORS, State, step};
use core::sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;

/// The rank of SCHED_DEADLINE, above all priorities.
const ABOVE_ALL: i32 = 100;

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// With `SCHED_RESET_ON_FORK`, if the thread has that flag.
    pub policy: i32,
    /// 0 without a real-time policy.
    pub priority: i32,
    /// The nice value, also while the policy is a real-time one.
    pub nice: i32,
}

impl Schedule {
    /// The real-time priority, 0 for ordinary threads.
    pub fn rank(self) -> i32 {
        match self.policy & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_FIFO | libc::SCHED_RR => self.priority,
            libc::SCHED_DEADLINE => ABOVE_ALL,
            _ => 0,
        }
    }

    /// The schedule of a thread that a thread of this one starts.
    pub(super) fn of_child(self) -> Schedule {
        if self.policy & libc::SCHED_RESET_ON_FORK == 0 {
            return self;
        }
        let nice = if self.rank() > 0 { 0 } else { self.nice.max(0) };
        Schedule { nice, ..Schedule::default() }
    }
}

impl Machine {
    /// The schedule of a thread; 0 is the calling one. `ESRCH` once the thread has ended.
    pub fn schedule(&self, tid: u32) -> Result<Schedule, Errno> {
        step();
        let inner = self.lock();
        let number = self.number_of(&inner, tid)?;
        Ok(inner.threads[number].schedule)
    }

    /// `sched_setscheduler`. `EPERM` for a thread of another process, after
    /// [`Machine::refuse_to_schedule_others`].
    pub(crate) fn set_policy(&self, tid: u32, policy: i32, priority: i32) -> Result<(), Errno> {
        step();
        let mut inner = self.lock();
        let number = self.number_of(&inner, tid)?;
        let is_others = {
            let process = |number: usize| inner.threads[number].process;
            process(number) != process(self.running.load(Relaxed))
        };
        if is_others && inner.refuses_to_schedule_others {
            return Err(Errno::PERM);
        }
        let schedule = &mut inner.threads[number].schedule;
        *schedule = Schedule { policy, priority, ..*schedule };
        Ok(())
    }

    /// `setpriority`.
    pub(crate) fn set_nice(&self, tid: u32, nice: i32) -> Result<(), Errno> {
        step();
        let mut inner = self.lock();
        let number = self.number_of(&inner, tid)?;
        inner.threads[number].schedule.nice = nice.clamp(-20, 19);
        Ok(())
    }

    /// No thread may schedule another process's from now on, as without CAP_SYS_NICE.
    pub fn refuse_to_schedule_others(&self) {
        self.lock().refuses_to_schedule_others = true;
    }

    /// The number of a thread that lives.
    fn number_of(&self, inner: &Inner, tid: u32) -> Result<usize, Errno> {
        match tid {
            0 => Ok(self.running.load(Relaxed)),
            tid => inner.number_of(tid).ok_or(Errno::SRCH),
        }
    }
}

impl Inner {
    /// The threads that may run next: see the module's text.
    pub(super) fn candidates(&self) -> Vec<usize> {
        let mut ready: Vec<usize> = self.ready().collect();
        if self.threads.iter().all(|thread| thread.schedule.rank() == 0) {
            return ready;
        }
        let ranks = self.ranks();
        let mut sorted: Vec<i32> = ready.iter().map(|&number| ranks[number]).collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        let least = sorted.get(PROCESSORS - 1).copied().unwrap_or(0);
        ready.retain(|&number| ranks[number] >= least || self.threads[number].process == 0);
        ready
    }

    /// The rank of each thread: its own, or that of a more urgent one that waits until it gives a
    /// lock or a lent word back.
    fn ranks(&self) -> Vec<i32> {
        let mut ranks: Vec<i32> =
            self.threads.iter().map(|thread| thread.schedule.rank()).collect();
        for waiter in 0..self.threads.len() {
            let rank = self.threads[waiter].schedule.rank();
            let mut next = waiter;
            // A circle of waiters ends where all of them have the rank.
            while let State::Waits(waits) = &self.threads[next].state
                && let Some(holder) = waits.lends_to.and_then(|holder| self.number_of(holder))
                && ranks[holder] < rank
            {
                ranks[holder] = rank;
                next = holder;
            }
        }
        ranks
    }
}
