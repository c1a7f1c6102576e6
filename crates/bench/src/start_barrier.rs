//! A word in memory that lets many clients go at once.
//!
//! It counts up: a client waits until it has come to the number that its order names.

use crate::shared_map::SharedMap;
use baton_shm::futex;
use baton_shm::sync::Ordering;
use std::io;
use std::path::{Path, PathBuf};

const BYTES: usize = 4096;

/// The end of who opens it.
pub struct StartBarrier(SharedMap<BYTES>);

impl StartBarrier {
    /// A barrier at which nobody waits.
    pub fn new() -> io::Result<StartBarrier> {
        SharedMap::new().map(StartBarrier)
    }

    /// Where other processes find it, as long as it lives.
    pub fn place(&self) -> PathBuf {
        self.0.place()
    }

    /// Lets those go who wait for the next number.
    pub fn open(&self) {
        let word = self.0.word(0);
        // Release pairs with the acquire in `wait`.
        word.fetch_add(1, Ordering::Release);
        futex::wake(word, i32::MAX as u32);
    }

    pub fn next(&self) -> u32 {
        self.0.word(0).load(Ordering::Relaxed).wrapping_add(1)
    }
}

/// Waits at the barrier at `place` until it has been opened for `number`.
pub fn wait(place: &Path, number: u32) -> io::Result<()> {
    let shared = SharedMap::<BYTES>::find(place)?;
    let word = shared.word(0);
    // Acquire pairs with the release in `StartBarrier::open`.
    while word.load(Ordering::Acquire) != number {
        futex::wait(word, number.wrapping_sub(1), None);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_when_it_opens() {
        let barrier = StartBarrier::new().unwrap();
        for number in 1..3 {
            assert_eq!(barrier.next(), number);
            let place = barrier.place();
            let waiters: Vec<_> = (0..3)
                .map(|_| (place.clone(), number))
                .map(|(place, number)| std::thread::spawn(move || wait(&place, number)))
                .collect();
            barrier.open();
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap().is_ok()));
        }
    }
}
