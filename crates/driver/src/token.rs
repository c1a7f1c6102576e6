//! Numbers that no peer can guess, though it has seen all that were given out before.
//!
//! Each thread has a generator that the kernel seeds once, and some numbers in stock: to ask the kernel for each would
//! cost as much as a call, and for many at once is a long call among short ones.

use crate::thread::tid;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::cell::{Cell, RefCell};

/// As many as the generator makes at once.
const AT_ONCE: usize = 32;

thread_local! {
    static STOCK: Cell<[u64; AT_ONCE]> = const { Cell::new([0; AT_ONCE]) };
    /// How many of them nobody has been given.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// Whose they are: a child of fork has a copy of its parent's.
    static OWNER: Cell<u32> = const { Cell::new(0) };
    static SOURCE: RefCell<Option<ChaCha8Rng>> = const { RefCell::new(None) };
}

/// One that nobody has been given before, but for a signal handler in the middle of this. An error is
/// the kernel's: it has no randomness yet.
#[inline]
pub fn next() -> Result<u64, Errno> {
    if LEFT.get() == 0 || OWNER.get() != tid() {
        return refill();
    }
    let left = LEFT.get() - 1;
    LEFT.set(left);
    Ok(STOCK.with(|stock| stock.as_array_of_cells()[left % AT_ONCE].get()))
}

/// The first of a new stock.
#[cold]
fn refill() -> Result<u64, Errno> {
    SOURCE.with(|source| {
        let Ok(mut source) = source.try_borrow_mut() else {
            // A signal handler, in the middle of this.
            return Ok(u64::from_ne_bytes(random()?));
        };
        let source = match &mut *source {
            Some(source) if OWNER.get() == tid() => source,
            none_of_ours => none_of_ours.insert(ChaCha8Rng::from_seed(random()?)),
        };
        let mut stock = [0; AT_ONCE];
        source.fill_bytes(bytemuck::cast_slice_mut(&mut stock));
        STOCK.set(stock);
        OWNER.set(tid());
        LEFT.set(AT_ONCE - 1);
        Ok(stock[AT_ONCE - 1])
    })
}

/// The kernel's.
fn random<const BYTES: usize>() -> Result<[u8; BYTES], Errno> {
    let mut bytes = [0; BYTES];
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())? {
        filled if filled == BYTES => Ok(bytes),
        _ => Err(Errno::AGAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};
    use std::collections::HashSet;

    /// More than a stock.
    const MANY: usize = 3 * AT_ONCE + 1;

    fn many() -> HashSet<u64> {
        (0..MANY).map(|_| next().unwrap()).collect()
    }

    #[test]
    fn none_is_given_twice() {
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(many)).collect();
        let given: HashSet<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        assert_eq!(given.len(), 4 * MANY);
    }

    #[test]
    fn a_child_of_fork_has_others_than_its_parent() {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        next().unwrap();
        // SAFETY: the child writes some numbers and ends; it takes no lock that another thread may have held.
        let child = unsafe { libc::fork() };
        if child == 0 {
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
