//! Numbers that no peer can guess, even if it has seen all earlier ones.
//!
//! Each thread has a generator that the kernel seeds once, and some numbers in stock: to ask the
//! kernel for each would cost as much as a call, and for many at once is a long call among short
//! ones.

use crate::sys::thread::tid;
use baton_shm::blocking::random;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};

/// Numbers that the generator makes at once.
const AT_ONCE: usize = 32;

/// A thread's stock of numbers.
#[derive(Debug)]
pub struct Stock {
    numbers: [u64; AT_ONCE],
    /// How many numbers have not been given out.
    left: usize,
}

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock::new()) };
    /// The thread that owns the stock: a child of fork has a copy of its parent's.
    static OWNER: Cell<u32> = const { Cell::new(0) };
    /// The thread's generator, with the thread's id.
    static SOURCE: RefCell<Option<(u32, ChaCha8Rng)>> = const { RefCell::new(None) };
}

/// A number that has never been given out. An error means that the kernel has no randomness yet.
#[inline]
pub fn next() -> Result<u64, Errno> {
    STOCK.with(|stock| {
        let Ok(mut stock) = stock.try_borrow_mut() else {
            // A signal handler has interrupted this function.
            return Ok(u64::from_ne_bytes(random()?));
        };
        if OWNER.get() != tid() {
            stock.left = 0;
            OWNER.set(tid());
        }
        stock.next()
    })
}

impl Stock {
    /// An empty stock.
    pub const fn new() -> Stock {
        Stock { numbers: [0; AT_ONCE], left: 0 }
    }

    /// See [`next`]. In a child of fork, a copy of its parent's stock gives the parent's numbers.
    #[inline(always)]
    pub fn next(&mut self) -> Result<u64, Errno> {
        if self.left == 0 {
            self.refill()?;
        }
        self.left -= 1;
        Ok(self.numbers[self.left % AT_ONCE])
    }

    #[cold]
    fn refill(&mut self) -> Result<(), Errno> {
        SOURCE.with(|source| {
            let Ok(mut source) = source.try_borrow_mut() else {
                self.numbers[0] = u64::from_ne_bytes(random()?);
                self.left = 1;
                return Ok(());
            };
            let (_, source) = match &mut *source {
                Some(own) if own.0 == tid() => own,
                none_of_ours => none_of_ours.insert((tid(), ChaCha8Rng::from_seed(random()?))),
            };
            source.fill_bytes(bytemuck::cast_slice_mut(&mut self.numbers));
            self.left = AT_ONCE;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};
    use std::collections::HashSet;

    /// More than a stock.
    const MANY: usize = 3 * AT_ONCE + 1;

    /// By turns from the thread's stock and from one apart.
    fn many() -> HashSet<u64> {
        let mut apart = Stock::new();
        (0..MANY).flat_map(|_| [apart.next().unwrap(), next().unwrap()]).collect()
    }

    #[test]
    fn none_is_given_twice() {
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(many)).collect();
        let given: HashSet<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        assert_eq!(given.len(), 4 * 2 * MANY);
    }

    #[test]
    fn a_child_of_fork_has_others_than_its_parent() {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        next().unwrap();
        // SAFETY: the child writes some numbers and ends; it takes no lock that another thread may
        // have held.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = Stock::new().next();
            for _ in 0..MANY {
                let _ = rustix::io::write(&theirs, &next().unwrap_or(0).to_ne_bytes());
            }
            // SAFETY: ends the child, and runs nothing of the parent's.
            unsafe { libc::_exit(0) }
        }
        drop(theirs);
        let given = many();
        for _ in 0..MANY {
            let mut token = [0; 8];
            assert_eq!(rustix::io::read(&ours, &mut token), Ok(8));
            assert!(!given.contains(&u64::from_ne_bytes(token)));
        }
        let child = Pid::from_raw(child).expect("a child");
        waitpid(Some(child), WaitOptions::empty()).unwrap();
    }
}
