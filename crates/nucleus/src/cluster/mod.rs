//! Kernels of one process whose threads reach each other: what they share, and nothing else of one
//! is ever touched by another.
//!
//! ```text
//!   kernel 0                        kernel 1
//!   +----------------+              +----------------+
//!   | State          |   writes     | inbox  <-------|--- letters: look at this thread
//!   |   own threads -|------------->| bell           |
//!   |   proxies      |   and reads  | envelopes      |--- a thread's message and its wait
//!   +----------------+              +----------------+
//! ```
//!
//! - [`envelope`]: one for each thread: what it offers, or waits for.
//! - [`inbox`]: which envelopes a kernel has to look at. [`bell`]: how it is told.
//! - [`census`]: when all is over. [`lent`]: what may be reached of a kernel while it is there.
//!
//! Everything is allocated when the cluster is made. No kernel ever waits for another one, but for
//! the copying of one message (`envelope`).

pub(crate) mod bell;
pub(crate) mod census;
pub(crate) mod envelope;
pub(crate) mod inbox;
pub(crate) mod lent;
#[cfg(all(test, loom))]
mod models;

use crate::list::Slot;
use crate::thread_id::{MAX_KERNELS, MAX_THREADS, ThreadId};
use bell::Bell;
use census::{Census, Rest};
use envelope::Envelope;
use inbox::{Inbox, Letter};
use std::io;
use std::sync::Arc;

/// What one kernel shares with the others.
#[derive(Debug)]
struct Member {
    inbox: Inbox,
    bell: Bell,
    envelopes: Box<[Envelope]>,
}

/// Kernels that reach each other. It lives as long as one of them.
#[derive(Debug)]
pub struct Cluster {
    members: Box<[Member]>,
    n_threads: usize,
    census: Census,
}

/// The place of one kernel in its cluster. What has this may be sent to the OS thread that is to
/// run the kernel. If it is dropped without a kernel, the others do not wait for it.
#[derive(Debug)]
pub struct Seat {
    cluster: Arc<Cluster>,
    kernel: u8,
}

impl Cluster {
    /// Places for this many kernels, from 1 to 64, with so many threads each, rounded up to a power
    /// of two. There are 65,535 threads in a cluster at most, and 4,096 in a kernel.
    ///
    /// # Errors
    /// `InvalidInput` if that is too many; the system's, if it has no descriptors for us.
    pub fn seats(n_kernels: usize, n_threads: usize) -> io::Result<Vec<Seat>> {
        let n_threads = n_threads.next_power_of_two();
        let is_possible = (1..=MAX_KERNELS).contains(&n_kernels)
            && n_threads <= MAX_THREADS
            && n_kernels * n_threads <= Slot::MAX_SLOTS;
        if !is_possible {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let member = |_| {
            let envelopes = (0..n_threads).map(|_| Envelope::new()).collect();
            Ok(Member { inbox: Inbox::new(n_kernels, n_threads), bell: Bell::new()?, envelopes })
        };
        let members = (0..n_kernels).map(member).collect::<io::Result<_>>()?;
        let cluster = Arc::new(Cluster { members, n_threads, census: Census::new(n_kernels) });
        let seat = |kernel| Seat { cluster: Arc::clone(&cluster), kernel: kernel as u8 };
        Ok((0..n_kernels).map(seat).collect())
    }

    pub(crate) fn n_kernels(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn n_threads(&self) -> usize {
        self.n_threads
    }

    pub(crate) fn inbox(&self, kernel: u8) -> &Inbox {
        &self.members[usize::from(kernel)].inbox
    }

    pub(crate) fn envelope(&self, kernel: u8, number: usize) -> &Envelope {
        &self.members[usize::from(kernel)].envelopes[number]
    }

    /// A thread's envelope, if it can be one of this cluster's.
    pub(crate) fn envelope_of(&self, id: ThreadId) -> Option<&Envelope> {
        self.members.get(usize::from(id.kernel()))?.envelopes.get(id.slot().index())
    }

    /// Puts a letter into a kernel's inbox. Says whether the kernel has to be told.
    pub(crate) fn post(&self, to: u8, letter: Letter) -> bool {
        self.members[usize::from(to)].inbox.put(letter)
    }

    /// Rings for the kernels of these bits.
    pub(crate) fn ring(&self, mut kernels: u64) {
        while kernels != 0 {
            self.members[kernels.trailing_zeros() as usize].bell.ring();
            kernels &= kernels - 1;
        }
    }

    fn is_quiet(&self, present: u64) -> bool {
        let has_letters = |(kernel, member): (usize, &Member)| {
            present >> kernel & 1 == 1 && !member.inbox.is_empty()
        };
        !self.members.iter().enumerate().any(has_letters)
    }
}

impl Seat {
    /// Its kernel's number.
    pub fn kernel(&self) -> u8 {
        self.kernel
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.cluster.members[usize::from(self.kernel)].bell
    }

    pub(crate) fn has_letters(&self) -> bool {
        !self.cluster.inbox(self.kernel).is_empty()
    }

    /// Whether there are letters, asked after the kernel has said that it sleeps.
    pub(crate) fn has_letters_at_rest(&self) -> bool {
        !self.cluster.inbox(self.kernel).is_empty_at_rest()
    }

    /// The kernel has nothing to do, and only another one can change that. Says whether one could.
    pub(crate) fn rest(&self) -> bool {
        let rest = self.cluster.census.rest(self.kernel, |present| self.cluster.is_quiet(present));
        self.is_not_over(rest)
    }

    /// It has something to do again. `false`: it has not, and nobody has.
    pub(crate) fn rise(&self) -> bool {
        self.is_not_over(self.cluster.census.rise(self.kernel))
    }

    pub(crate) fn begin(&self) {
        self.cluster.census.begin(self.kernel);
    }

    fn is_not_over(&self, rest: Rest) -> bool {
        if let Rest::Over { rings: true } = rest {
            self.cluster.ring(u64::MAX >> (64 - self.cluster.n_kernels()) & !(1 << self.kernel));
        }
        rest == Rest::Sleep
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let rest = self.cluster.census.leave(self.kernel, |present| self.cluster.is_quiet(present));
        self.is_not_over(rest);
    }
}
