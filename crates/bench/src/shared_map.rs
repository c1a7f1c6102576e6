//! Memory that one process makes, and that others find by a path as long as the first one keeps it;
//! and a word in such memory that lets many clients go at once.

use baton_shm::futex;
use baton_shm::mapping::{self, Access, Mapping};
use baton_shm::sync::Ordering;
use rustix::fd::{AsRawFd, OwnedFd};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A map, and the file that it is of.
pub struct SharedMap<const BYTES: usize> {
    map: Mapping<BYTES>,
    file: OwnedFd,
}

impl<const BYTES: usize> Deref for SharedMap<BYTES> {
    type Target = Mapping<BYTES>;

    fn deref(&self) -> &Mapping<BYTES> {
        &self.map
    }
}

impl<const BYTES: usize> SharedMap<BYTES> {
    /// Makes a map of zeros.
    pub fn new() -> io::Result<Self> {
        Self::of(mapping::create("bench", BYTES)?)
    }

    /// Makes a map that is found in a directory.
    pub fn make_in(directory: &Path) -> io::Result<Self> {
        let made = Self::new()?;
        std::os::unix::fs::symlink(made.place(), directory.join("memory"))?;
        Ok(made)
    }

    pub fn find_in(directory: &Path) -> io::Result<Self> {
        Self::find(&directory.join("memory"))
    }

    pub fn find(place: &Path) -> io::Result<Self> {
        Self::of(File::options().read(true).write(true).open(place)?.into())
    }

    /// Where other processes find it.
    pub fn place(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    fn of(file: OwnedFd) -> io::Result<Self> {
        Ok(SharedMap { map: Mapping::new(&file, Access::ReadWrite)?, file })
    }
}

const BARRIER_BYTES: usize = 4096;

/// The end of who opens it.
pub struct StartBarrier(SharedMap<BARRIER_BYTES>);

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
    let shared = SharedMap::<BARRIER_BYTES>::find(place)?;
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
