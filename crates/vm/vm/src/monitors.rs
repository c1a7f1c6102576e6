//! Lock words, and the monitors of objects whose word does not suffice.
//!
//! ```text
//! 0                      neither locked nor hashed
//! 00 | entries | thread  thin: locked by a thread, `entries` times more than once
//! 01 | hash              hashed, not locked
//! 10 | number            inflated: the monitor has owner, hash and waiting threads
//! ```
//!
//! A word changes by compare-and-exchange only. An inflated word stays inflated as long as its
//! object lives: [`Monitors::sweep`] frees a monitor after the collection that frees its object.

use crate::object::Ref;
use crate::parker::Parker;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

const TAG: u32 = 3 << 30;
const HASHED: u32 = 1 << 30;
const INFLATED: u32 = 2 << 30;
const THREAD_BITS: u32 = 16;
/// A thin lock counts up to this many further entries.
pub const MOST_ENTRIES: u32 = (1 << 14) - 1;

/// What a thread does, as `Thread.getState` numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Activity {
    /// Runs
    Running = 1,
    /// Waits, sleeps or is parked, with a limit
    TimedWait = 2,
    /// Waits to enter a monitor
    Blocked = 3,
    /// Waits without a limit
    Wait = 4,
}

/// What a lock word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Neither locked nor hashed
    Free,
    /// Locked by a thread, entered `entries` times after the first
    Thin {
        /// The thread's number
        owner: u32,
        /// How often the owner has entered again
        entries: u32,
    },
    /// Hashed, not locked
    Hashed(u32),
    /// The number of a monitor
    Inflated(u32),
}

impl Word {
    /// Reads a word.
    pub fn decode(word: u32) -> Word {
        match word & TAG {
            _ if word == 0 => Word::Free,
            HASHED => Word::Hashed(word & !TAG),
            INFLATED => Word::Inflated(word & !TAG),
            _ => Word::Thin {
                owner: word & ((1 << THREAD_BITS) - 1),
                entries: word >> THREAD_BITS & MOST_ENTRIES,
            },
        }
    }

    /// Writes a word.
    ///
    /// # Panics
    /// If a number has more bits than the word has for it.
    pub fn encode(self) -> u32 {
        match self {
            Word::Free => 0,
            Word::Thin { owner, entries } => {
                assert!(owner > 0 && owner >> THREAD_BITS == 0 && entries <= MOST_ENTRIES);
                entries << THREAD_BITS | owner
            }
            Word::Hashed(hash) => {
                assert!(hash & TAG == 0);
                HASHED | hash
            }
            Word::Inflated(number) => {
                assert!(number & TAG == 0);
                INFLATED | number
            }
        }
    }
}

/// An inflated monitor.
#[derive(Debug)]
pub struct Monitor {
    state: Mutex<State>,
    /// Signalled when the owner leaves.
    left: Condvar,
}

/// What a monitor knows.
#[derive(Debug, Default)]
pub struct State {
    /// The owning thread's number; 0 for none
    pub owner: u32,
    /// How often the owner has entered
    pub entries: u32,
    /// The object's hash, once somebody has asked
    pub hash: Option<u32>,
    /// Threads in `Object.wait`, the longest wait first
    pub waiting: VecDeque<Arc<Parker>>,
}

impl Monitor {
    /// The monitor's state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Waits until no thread owns the monitor, and owns it for `thread`, entered `entries` times.
    pub fn acquire(&self, thread: u32, entries: u32) {
        let mut state = self.lock();
        while state.owner != 0 {
            state = self.left.wait(state).expect("no holder panics");
        }
        (state.owner, state.entries) = (thread, entries);
    }

    /// Owns the monitor once more if it is free or the thread's already.
    pub fn try_acquire(&self, thread: u32) -> bool {
        let mut state = self.lock();
        match state.owner {
            0 => (state.owner, state.entries) = (thread, 1),
            owner if owner == thread => state.entries += 1,
            _ => return false,
        }
        true
    }

    /// Gives the monitor up, whatever the count. Returns the count.
    pub fn release(&self, mut state: MutexGuard<'_, State>) -> u32 {
        state.owner = 0;
        let entries = std::mem::take(&mut state.entries);
        drop(state);
        self.left.notify_one();
        entries
    }
}

/// All inflated monitors.
#[derive(Debug, Default)]
pub struct Monitors {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Option<(Ref, Arc<Monitor>)>>,
    free: Vec<u32>,
}

impl Monitors {
    /// A monitor by its number.
    ///
    /// # Panics
    /// If no monitor has it.
    pub fn get(&self, number: u32) -> Arc<Monitor> {
        let table = self.table.read().expect("no holder panics");
        table.slots[number as usize].as_ref().expect("an inflated object's monitor").1.clone()
    }

    /// Makes a monitor for an object; returns its number.
    pub fn add(&self, object: Ref, state: State) -> u32 {
        let monitor = Arc::new(Monitor { state: Mutex::new(state), left: Condvar::new() });
        let mut table = self.table.write().expect("no holder panics");
        let number = table.free.pop().unwrap_or(table.slots.len() as u32);
        if number as usize == table.slots.len() {
            table.slots.push(None);
        }
        table.slots[number as usize] = Some((object, monitor));
        number
    }

    /// Removes a monitor that no word has the number of.
    pub fn remove(&self, number: u32) {
        let mut table = self.table.write().expect("no holder panics");
        table.slots[number as usize] = None;
        table.free.push(number);
    }

    /// Removes the monitors of objects that are about to be freed.
    pub fn sweep(&self, lives: impl Fn(Ref) -> bool) {
        let mut table = self.table.write().expect("no holder panics");
        let Table { slots, free } = &mut *table;
        for (number, slot) in slots.iter_mut().enumerate() {
            if slot.as_ref().is_some_and(|(object, _)| !lives(*object)) {
                *slot = None;
                free.push(number as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn words_are_read_as_written() {
        for word in [
            Word::Free,
            Word::Thin { owner: 1, entries: 0 },
            Word::Thin { owner: 0xffff, entries: MOST_ENTRIES },
            Word::Hashed(0),
            Word::Hashed(0x3fff_ffff),
            Word::Inflated(0),
            Word::Inflated(7),
        ] {
            assert_eq!(Word::decode(word.encode()), word);
        }
    }

    #[test]
    fn a_monitor_excludes_other_threads() {
        let monitors = Monitors::default();
        let number = monitors.add(Ref::NULL, State::default());
        let monitor = monitors.get(number);
        let total = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                let (monitor, total) = (&monitor, &total);
                scope.spawn(move || {
                    for _ in 0..1000 {
                        monitor.acquire(thread, 1);
                        // Two steps: an increment is lost if two threads are inside.
                        total.store(total.load(Relaxed) + 1, Relaxed);
                        monitor.release(monitor.lock());
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4000);
    }
}
