//! Ordinary threads that compute and write memory, as long as they are kept.

use crate::random;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

/// More than a core's own caches hold.
const WORDS: usize = (8 << 20) / size_of::<u64>();

/// The threads. Dropped, they end.
#[derive(Debug)]
pub struct Stress {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stress {
    /// Starts so many, and returns when all of them are at it.
    pub fn start(n_threads: usize) -> Stress {
        let stop = Arc::new(AtomicBool::new(false));
        let started = Arc::new(Barrier::new(n_threads + 1));
        let start = |seed| {
            let (stop, started) = (Arc::clone(&stop), Arc::clone(&started));
            std::thread::spawn(move || {
                let mut words = vec![seed; WORDS];
                started.wait();
                burn(&mut words, &stop);
            })
        };
        let threads = (0..n_threads as u64).map(start).collect();
        started.wait();
        Stress { stop, threads }
    }
}

fn burn(words: &mut [u64], stop: &AtomicBool) {
    let mut value = 1_u64;
    // Only an end that is seen some time: what is written by the way is nobody's.
    while !stop.load(Ordering::Relaxed) {
        for word in words.iter_mut() {
            value = random::next(value, *word | 1);
            *word = value;
        }
        black_box(&mut *words);
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
