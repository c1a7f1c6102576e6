//! Requests for collections, to the thread that counts references.

use crate::heap::Search;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Release, Ordering::SeqCst,
};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

const NONE: u8 = 0;
const PART: u8 = 1;
const WHOLE: u8 = 2;

/// What threads and the collector's thread know of each other.
#[derive(Debug)]
pub(crate) struct Requests {
    thread: OnceLock<std::thread::Thread>,
    /// The collection that is asked for
    due: AtomicU8,
    /// How often memory was given away. It changes under the lock.
    releases: AtomicU64,
    /// A thread waits for memory, and has not been woken since.
    is_awaited: AtomicBool,
    done: Mutex<Done>,
    changed: Condvar,
}

/// How many collections have begun and ended, and the last one that a thread waits for.
#[derive(Debug, Default)]
struct Done {
    begun: u64,
    ended: u64,
    awaited: u64,
}

impl Requests {
    pub fn new() -> Requests {
        Requests {
            thread: OnceLock::new(),
            due: AtomicU8::new(NONE),
            releases: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            done: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().expect("no holder panics")
    }

    fn demand(&self, search: Search) {
        let due = if search == Search::Whole { WHOLE } else { PART };
        if self.due.fetch_max(due, SeqCst) == NONE
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Asks for a collection, without waiting for it.
    pub fn request(&self) {
        self.demand(Search::Part);
    }

    /// Asks for a collection that begins after this call; returns its number.
    pub fn ask(&self, search: Search) -> u64 {
        let mut done = self.lock();
        done.awaited = done.begun + 1;
        self.demand(search);
        done.awaited
    }

    /// Makes a thread the one that collects.
    pub fn set_thread(&self, thread: std::thread::Thread) {
        self.thread.set(thread).expect("a VM has one collector");
    }

    /// Whether there is such a thread. A zygote has none.
    pub fn has_thread(&self) -> bool {
        self.thread.get().is_some()
    }

    /// The collecting thread waits until a collection is asked for.
    pub fn wait(&self) {
        while self.due.load(SeqCst) == NONE {
            std::thread::park();
        }
    }

    /// Waits for the end of a collection. The calling thread is safe.
    pub fn await_end(&self, number: u64) {
        let done = self.lock();
        drop(self.changed.wait_while(done, |done| done.ended < number).expect("no holder panics"));
    }

    /// How often memory was given away so far.
    pub fn releases(&self) -> u64 {
        self.releases.load(Acquire)
    }

    /// Waits until memory was given away more often than `seen` times, or a collection has ended:
    /// true then. The calling thread is safe.
    pub fn await_release(&self, seen: u64, number: u64) -> bool {
        let mut done = self.lock();
        while done.ended < number && self.releases() == seen {
            self.is_awaited.store(true, SeqCst);
            done = self.changed.wait(done).expect("no holder panics");
        }
        done.ended >= number
    }

    /// Whether a thread waits for memory, and has not been woken since.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited.load(SeqCst)
    }

    /// Wakes the threads that wait for memory: some was given away.
    pub fn released(&self) {
        let done = self.lock();
        self.releases.fetch_add(1, Release);
        self.wake(done);
    }

    fn wake(&self, done: MutexGuard<'_, Done>) {
        self.is_awaited.store(false, SeqCst);
        drop(done);
        self.changed.notify_all();
    }

    /// Begins the collection that was asked for.
    pub fn begin(&self) -> Search {
        let mut done = self.lock();
        done.begun += 1;
        if self.due.swap(NONE, SeqCst) == WHOLE { Search::Whole } else { Search::Part }
    }

    /// Ends a collection. Unless the heap is full again already, or a thread waits for the next
    /// collection, requests that came meanwhile are met.
    pub fn end(&self, is_full: bool) {
        let mut done = self.lock();
        done.ended = done.begun;
        if !is_full && done.awaited <= done.begun {
            self.due.store(NONE, SeqCst);
        }
        self.wake(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_a_release_or_with_its_collection() {
        let requests = Requests::new();
        let number = requests.ask(Search::Part);
        let seen = requests.releases();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let first = requests.await_release(seen, number);
                (first, requests.await_release(requests.releases(), number))
            });
            while !requests.is_awaited() {
                std::thread::yield_now();
            }
            assert_eq!(requests.begin(), Search::Part);
            requests.released();
            while !requests.is_awaited() {
                std::thread::yield_now();
            }
            requests.end(false);
            assert_eq!(waiter.join().unwrap(), (false, true));
        });
        assert!(!requests.is_awaited());
    }

    #[test]
    fn a_request_is_met_by_a_collection_under_way_unless_a_thread_waits_for_the_next() {
        let requests = Requests::new();
        let due = || requests.due.load(SeqCst);
        requests.request();
        requests.begin();
        requests.request();
        requests.end(true);
        assert_eq!(due(), PART, "the heap is full again");
        requests.begin();
        requests.request();
        requests.end(false);
        assert_eq!(due(), NONE);
        requests.begin();
        let number = requests.ask(Search::Whole);
        requests.request();
        requests.end(false);
        assert_eq!(due(), WHOLE);
        assert_eq!(requests.begin(), Search::Whole);
        requests.end(false);
        assert_eq!(due(), NONE);
        requests.await_end(number);
    }
}
