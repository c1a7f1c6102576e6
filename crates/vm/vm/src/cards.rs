//! Cards: what has changed in the heap since the collector looked last, and the barrier that says
//! so before each store of a reference.
//!
//! The heap is divided into cards of 64 bytes. The first store of an epoch into a card copies the
//! card into a log, and tags the card with the entry. So the log and the memory together hold a
//! *view*: the references as they were when the epoch began. A collector that counts references
//! needs no more than two views: what a store in between has overwritten or written does not
//! matter. (Levanoni and Petrank, An on-the-fly reference counting garbage collector for Java,
//! TOPLAS 28:1, 2006; they log objects, which may be large. A card bounds the barrier.)
//!
//! Threads do not begin an epoch at one moment, but one after the other, at a safepoint of their
//! own ([`Stage`]). A reference that moves meanwhile could hide from the view. So from before the
//! first thread's turn until each thread's stack is read, its stores also mark what they store:
//! [`Cards::reach`].
//!
//! ```text
//! tag: entry << 2 | 2 | parity of the epoch that the entry was made in;  0: not logged
//! ```
//!
//! **Invariant**: a thread of epoch `e` stores a reference only into a card whose tag is of `e`, or
//! of `e + 1`. A tag is exchanged for the next epoch's after its entry is whole.

use crate::sync::{
    AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst, fence, load32, zeroed,
};
use std::cell::Cell;
use std::sync::Arc;

/// The size of a card.
pub const CARD_BYTES: u32 = if cfg!(loom) { 16 } else { 64 };
const CARD_WORDS: usize = CARD_BYTES as usize / 4;
/// No two objects begin in one granule.
const GRANULE_BYTES: u32 = 16;
/// Entries that a thread takes at once.
const RUN_ENTRIES: u32 = if cfg!(loom) { 2 } else { 32 };
/// Threads that may have an unfinished run at the same time.
pub const MOST_THREADS: usize = if cfg!(loom) { 3 } else { 4096 };
/// In a granule's word: the object is about to be freed.
const CONDEMNED: u8 = u8::MAX;

/// How far a thread, or all of them, have come in the sequence of collections.
///
/// ```text
/// collection << 3 | 1: announced, 2: turned, 3: scanned, 4 and 5 in turn: settled;  0: at first
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stage(u32);

const STEP_BITS: u32 = 3;
const STEP: u32 = (1 << STEP_BITS) - 1;
const SETTLED: u32 = 4;
const SETTLED_AGAIN: u32 = 5;

/// What the last stage was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The thread marks what it stores.
    Announced,
    /// The thread has begun the next epoch.
    Turned,
    /// The references of the thread's stack are marked.
    Scanned,
    /// The thread has left the barrier, and the accessors of referents, since the collector decided
    /// what to free. A collection settles as often as it gives memory away.
    Settled,
}

impl Stage {
    /// The stage of a number.
    pub fn of(number: u32) -> Stage {
        Stage(number)
    }

    /// The number of the stage.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The first stage of the next collection.
    #[must_use]
    pub fn announced(self) -> Stage {
        Stage((self.0 | STEP).wrapping_add(2))
    }

    /// The stage after this one in the same collection. One that settles follows another such.
    #[must_use]
    pub fn next(self) -> Stage {
        match self.0 & STEP {
            SETTLED_AGAIN => Stage(self.0 - 1),
            _ => Stage(self.0 + 1),
        }
    }

    /// What the stage is for.
    pub fn step(self) -> Step {
        match self.0 & STEP {
            1 => Step::Announced,
            2 => Step::Turned,
            3 => Step::Scanned,
            0 | SETTLED | SETTLED_AGAIN => Step::Settled,
            other => unreachable!("no stage has the step {other}"),
        }
    }

    /// The epoch of a thread at this stage.
    pub fn epoch(self) -> u32 {
        let is_behind = self.step() == Step::Announced;
        (self.0 >> STEP_BITS).wrapping_sub(is_behind.into()) & u32::MAX >> STEP_BITS
    }

    fn marks_stores(self) -> bool {
        matches!(self.step(), Step::Announced | Step::Turned)
    }
}

/// The low bits of a tag of an epoch.
fn tag_bits(epoch: u32) -> u32 {
    2 | epoch & 1
}

const TAG_BITS: u32 = 3;
/// In what a thread compares tags with: none is equal.
const MARKS_STORES: u32 = 4;

/// Tags, logs and marks of one heap.
#[derive(Debug)]
pub struct Cards {
    start: u32,
    tags: Box<[AtomicU32]>,
    /// For each granule the number of the collection in which its object was last reached.
    reached: Box<[AtomicU8]>,
    /// The number of the collection, from 1 to 254.
    collection: AtomicU8,
    /// Objects below this address are frozen: they count as reached.
    frozen_end: AtomicU32,
    log: Log,
}

/// Entries in runs. A run is in use by one thread, or in a list.
#[derive(Debug)]
struct Log {
    /// For each entry the number of its card
    cards: Box<[AtomicU32]>,
    words: Box<[AtomicU32]>,
    /// For each run how many of its entries are whole
    lengths: Box<[AtomicU32]>,
    /// For each run the next one of its list, plus 1
    next: Box<[AtomicU32]>,
    /// The first run that was never used
    fresh: AtomicU32,
    free: List,
    /// Runs with entries, by the parity of their epoch
    used: [List; 2],
    /// Unfinished runs of threads that have ended, each with its epoch
    left: Mutex<Vec<(u32, u32)>>,
}

/// A stack of runs: how often it changed, and the first run plus 1.
#[derive(Debug, Default)]
struct List(AtomicU64);

impl List {
    fn push(&self, run: u32, next: &[AtomicU32]) {
        let mut head = self.0.load(Relaxed);
        loop {
            next[run as usize].store(head as u32, Relaxed);
            let new = ((head >> 32) + 1) << 32 | u64::from(run + 1);
            match self.0.compare_exchange_weak(head, new, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self, next: &[AtomicU32]) -> Option<u32> {
        let mut head = self.0.load(Acquire);
        loop {
            let run = (head as u32).checked_sub(1)?;
            // Another thread may take the run meanwhile; then the head has changed.
            let after = next[run as usize].load(Relaxed);
            let new = ((head >> 32) + 1) << 32 | u64::from(after);
            match self.0.compare_exchange_weak(head, new, Acquire, Acquire) {
                Ok(_) => return Some(run),
                Err(now) => head = now,
            }
        }
    }
}

/// An entry of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(u32);

impl Cards {
    /// Cards for the heap at an address, which is a multiple of a card's size.
    pub fn new(start: u32, n_bytes: u32) -> Cards {
        let n_cards = (n_bytes / CARD_BYTES) as usize;
        let n_runs = 2 * (n_cards / RUN_ENTRIES as usize + MOST_THREADS);
        let n_entries = n_runs * RUN_ENTRIES as usize;
        Cards {
            start,
            tags: zeroed(n_cards),
            reached: zeroed((n_bytes / GRANULE_BYTES) as usize),
            collection: AtomicU8::new(1),
            frozen_end: AtomicU32::new(start),
            log: Log {
                cards: zeroed(n_entries),
                words: zeroed(n_entries * CARD_WORDS),
                lengths: zeroed(n_runs),
                next: zeroed(n_runs),
                fresh: AtomicU32::new(0),
                free: List::default(),
                used: Default::default(),
                left: Mutex::default(),
            },
        }
    }

    fn tag(&self, address: u32) -> &AtomicU32 {
        &self.tags[((address - self.start) / CARD_BYTES) as usize]
    }

    fn reached(&self, object: u32) -> &AtomicU8 {
        &self.reached[((object - self.start) / GRANULE_BYTES) as usize]
    }

    /// Begins another collection: nothing is marked.
    pub fn begin(&self) {
        let number = self.collection.load(Relaxed) % (CONDEMNED - 1) + 1;
        self.collection.store(number, Relaxed);
    }

    /// Freezes all objects below an address.
    pub fn freeze(&self, end: u32) {
        self.frozen_end.store(end, Relaxed);
    }

    fn is_frozen(&self, object: u32) -> bool {
        object < self.frozen_end.load(Relaxed)
    }

    /// Marks an object, by its address, as reached in this collection. Null is ignored.
    pub fn reach(&self, object: u32) {
        // Null is below all objects.
        if !self.is_frozen(object) {
            self.reached(object).store(self.collection.load(Relaxed), Release);
        }
    }

    /// Whether an object was reached in this collection.
    pub fn is_reached(&self, object: u32) -> bool {
        self.reached(object).load(Acquire) == self.collection.load(Relaxed)
    }

    /// Marks a referent as reached, unless the collector has decided to free it: then a reference
    /// is to appear cleared. Without a safepoint before it is stored or on the stack, the object
    /// stays.
    pub fn reach_referent(&self, object: u32) -> bool {
        if self.is_frozen(object) {
            return true;
        }
        let now = self.collection.load(Relaxed);
        let word = self.reached(object);
        let mut seen = word.load(Acquire);
        loop {
            match seen {
                CONDEMNED => return false,
                _ if seen == now => return true,
                _ => match word.compare_exchange_weak(seen, now, SeqCst, Acquire) {
                    Ok(_) => return true,
                    Err(changed) => seen = changed,
                },
            }
        }
    }

    /// Decides that an object is not reached any more; false if it was reached.
    pub fn condemn(&self, object: u32) -> bool {
        let now = self.collection.load(Relaxed);
        let word = self.reached(object);
        let mut seen = word.load(Acquire);
        while seen != now {
            match word.compare_exchange_weak(seen, CONDEMNED, SeqCst, Acquire) {
                Ok(_) => return true,
                Err(changed) => seen = changed,
            }
        }
        false
    }

    /// Takes [`Cards::condemn`] back, or makes the granule fit for another object.
    pub fn pardon(&self, object: u32) {
        let word = self.reached(object);
        if word.load(Relaxed) == CONDEMNED {
            // Nothing but this thread changes it from here.
            word.store(0, Release);
        }
    }

    /// The word at an address as it was when `epoch` began.
    ///
    /// # Safety
    /// The address is a word of the heap's. No thread is in an earlier epoch.
    pub unsafe fn view(&self, address: u32, epoch: u32) -> u32 {
        let logged = || {
            let tag = self.tag(address).load(Acquire);
            let index = ((address % CARD_BYTES) / 4) as usize;
            (tag & TAG_BITS == tag_bits(epoch)).then(|| self.entry_word(Entry(tag >> 2), index))
        };
        logged().unwrap_or_else(|| {
            // SAFETY: by the caller's promise.
            let word = unsafe { load32(address, Acquire) };
            // A store changes the tag before the word.
            logged().unwrap_or(word)
        })
    }

    fn entry_word(&self, entry: Entry, index: usize) -> u32 {
        self.log.words[entry.0 as usize * CARD_WORDS + index].load(Relaxed)
    }

    /// The word at an address, as an entry of its card has it.
    pub fn logged(&self, entry: Entry, address: u32) -> u32 {
        self.entry_word(entry, ((address % CARD_BYTES) / 4) as usize)
    }

    /// Makes a range of the view zero that belongs to no object any more. Threads may have copied
    /// it together with their neighbours; each has passed a safepoint since the memory is zero, or
    /// has only what belongs to free cells. No tag is of an epoch that has ended.
    pub fn forget(&self, from: u32, n_bytes: u32) {
        let end = from + n_bytes;
        for card in (from - from % CARD_BYTES..end).step_by(CARD_BYTES as usize) {
            let tag = self.tag(card).load(Acquire);
            if tag != 0 {
                let words = &self.log.words[(tag >> 2) as usize * CARD_WORDS..][..CARD_WORDS];
                let within = (card..).step_by(4).zip(words);
                let forgotten = within.filter(|(address, _)| (from..end).contains(address));
                forgotten.for_each(|(_, word)| word.store(0, Relaxed));
            }
        }
    }

    /// Takes the runs of an epoch, which every thread has left.
    pub fn take_log(&self, epoch: u32) -> Vec<Run> {
        let list = &self.log.used[(epoch & 1) as usize];
        std::iter::from_fn(|| list.pop(&self.log.next)).map(Run).collect()
    }

    /// The entries of a run, each with the address of its card.
    pub fn entries(&self, run: &Run) -> impl Iterator<Item = (Entry, u32)> + use<'_> {
        let first = run.0 * RUN_ENTRIES;
        let end = first + self.log.lengths[run.0 as usize].load(Acquire);
        (first..end).map(|entry| {
            let card = self.log.cards[entry as usize].load(Relaxed);
            (Entry(entry), self.start + card * CARD_BYTES)
        })
    }

    /// Removes the tag of an entry of `epoch`, unless the card was logged again since.
    pub fn clear_tag(&self, entry: Entry, card: u32, epoch: u32) {
        let tag = entry.0 << 2 | tag_bits(epoch);
        // A failure means that the tag is the next epoch's.
        let _ = self.tag(card).compare_exchange(tag, 0, Release, Relaxed);
    }

    /// Gives a run back.
    pub fn give_back(&self, run: Run) {
        self.log.lengths[run.0 as usize].store(0, Relaxed);
        self.log.free.push(run.0, &self.log.next);
    }

    fn take_run(&self, epoch: u32) -> u32 {
        let log = &self.log;
        // Whoever has the lock may be less urgent than this thread.
        if let Ok(mut left) = log.left.try_lock() {
            while let Some((run, of_epoch)) = left.pop() {
                if of_epoch == epoch {
                    return run;
                }
            }
        }
        let run = log.free.pop(&log.next).unwrap_or_else(|| log.fresh.fetch_add(1, Relaxed));
        assert!((run as usize) < log.lengths.len(), "at most {MOST_THREADS} threads");
        log.used[(epoch & 1) as usize].push(run, &log.next);
        run
    }
}

/// A part of a log that no thread writes to any more.
#[derive(Debug)]
pub struct Run(u32);

/// A thread that stores references, as far as the collector has to know.
#[derive(Debug)]
pub struct Mutator {
    cards: Arc<Cards>,
    stage: AtomicU32,
    /// What a tag's low bits have to be for a store without a further look.
    fast: AtomicU32,
    /// The run that the thread writes, and of which epoch it is. Only this thread uses them.
    run: AtomicU32,
    run_epoch: AtomicU32,
}

impl Mutator {
    /// A thread that is at a stage.
    pub fn new(cards: Arc<Cards>, stage: Stage) -> Mutator {
        let mutator = Mutator {
            cards,
            stage: AtomicU32::new(0),
            fast: AtomicU32::new(0),
            run: AtomicU32::new(0),
            run_epoch: AtomicU32::new(u32::MAX),
        };
        mutator.advance(stage);
        mutator
    }

    /// The thread's stage.
    pub fn stage(&self) -> Stage {
        Stage(self.stage.load(SeqCst))
    }

    /// Brings the thread to a stage. It is at a safepoint, or about to leave one.
    pub fn advance(&self, to: Stage) {
        let marks = if to.marks_stores() { MARKS_STORES } else { 0 };
        self.fast.store(tag_bits(to.epoch()) | marks, Relaxed);
        self.stage.store(to.0, SeqCst);
    }

    /// The thread's cards.
    pub fn cards(&self) -> &Arc<Cards> {
        &self.cards
    }

    /// Leaves an unfinished run to others: the thread ends.
    pub fn end(&self) {
        let (run, epoch) = (self.run.load(Relaxed), self.run_epoch.load(Relaxed));
        let log = &self.cards.log;
        let is_unfinished =
            epoch != u32::MAX && log.lengths[run as usize].load(Relaxed) < RUN_ENTRIES;
        if is_unfinished && epoch == self.stage().epoch() {
            log.left.lock().expect("no holder panics").push((run, epoch));
        }
    }

    /// Logs and marks what a store needs that is about to happen.
    #[inline(always)]
    pub(crate) fn before(&self, address: u32, value: u32) {
        if self.cards.tag(address).load(Acquire) & TAG_BITS != self.fast.load(Relaxed) {
            self.log(address, value);
        }
    }

    #[cold]
    #[inline(never)]
    fn log(&self, address: u32, value: u32) {
        let stage = Stage(self.stage.load(Relaxed));
        if stage.marks_stores() {
            self.cards.reach(value);
        }
        let epoch = stage.epoch();
        let word = self.cards.tag(address);
        loop {
            let tag = word.load(Acquire);
            let is_logged = tag & TAG_BITS == tag_bits(epoch)
                // All tags of earlier epochs were gone when this stage began.
                || stage.step() == Step::Announced && tag & TAG_BITS == tag_bits(epoch + 1);
            if is_logged || self.copy(address, epoch, tag) {
                // No store is seen before the tag.
                fence(SeqCst);
                return;
            }
        }
    }

    /// Copies a card into the log, and exchanges its tag; false if another thread was faster.
    fn copy(&self, address: u32, epoch: u32, tag: u32) -> bool {
        let log = &self.cards.log;
        let mut run = self.run.load(Relaxed);
        let mut length = log.lengths[run as usize].load(Relaxed);
        if self.run_epoch.load(Relaxed) != epoch || length == RUN_ENTRIES {
            run = self.cards.take_run(epoch);
            length = log.lengths[run as usize].load(Relaxed);
            self.run.store(run, Relaxed);
            self.run_epoch.store(epoch, Relaxed);
        }
        let entry = run * RUN_ENTRIES + length;
        let card = address - address % CARD_BYTES;
        let words = &log.words[entry as usize * CARD_WORDS..][..CARD_WORDS];
        for (to, from) in words.iter().zip((card..).step_by(4)) {
            // SAFETY: the card lies in the heap, as the address does.
            to.store(unsafe { load32(from, Relaxed) }, Relaxed);
        }
        log.cards[entry as usize].store((card - self.cards.start) / CARD_BYTES, Relaxed);
        let word = self.cards.tag(address);
        let is_first =
            word.compare_exchange(tag, entry << 2 | tag_bits(epoch), SeqCst, Relaxed).is_ok();
        if is_first {
            log.lengths[run as usize].store(length + 1, Release);
        }
        is_first
    }
}

thread_local! {
    /// The calling thread, null if no collector counts what it stores.
    static MUTATOR: Cell<*const Mutator> = const { Cell::new(std::ptr::null()) };
}

/// The calling thread stores for a mutator while this lives.
#[derive(Debug)]
pub struct Acting {
    mutator: Arc<Mutator>,
    before: *const Mutator,
}

impl Acting {
    /// Lets the calling thread store for a mutator.
    pub fn new(mutator: Arc<Mutator>) -> Acting {
        let before = MUTATOR.replace(Arc::as_ptr(&mutator));
        Acting { mutator, before }
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        debug_assert_eq!(MUTATOR.get(), Arc::as_ptr(&self.mutator));
        MUTATOR.set(self.before);
    }
}

/// The barrier: has to come before each store of a reference to the heap, without a safepoint in
/// between.
///
/// # Safety
/// The address is a word of the heap's that holds a reference; the value is 0 or an object's.
#[inline(always)]
pub unsafe fn before_store(address: u32, value: u32) {
    let mutator = MUTATOR.get();
    if !mutator.is_null() {
        // SAFETY: `Acting` holds the mutator, and takes it out before it is gone.
        unsafe { &*mutator }.before(address, value);
    }
}

/// Notes that a reference was stored outside of the heap, among the roots.
pub fn note_root(object: u32) {
    let mutator = MUTATOR.get();
    if !mutator.is_null() {
        // SAFETY: as in `before_store`.
        let mutator = unsafe { &*mutator };
        if mutator.stage().marks_stores() {
            mutator.cards.reach(object);
        }
    }
}

/// Whether a referent may be used; see [`Cards::reach_referent`].
pub fn keeps_referent(object: u32) -> bool {
    let mutator = MUTATOR.get();
    // SAFETY: as in `before_store`.
    mutator.is_null() || unsafe { &*mutator }.cards.reach_referent(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_begins_with_the_second_stage_of_each_collection() {
        let mut stage = Stage::default();
        for collection in 0..3 {
            assert_eq!((stage.step(), stage.epoch()), (Step::Settled, collection));
            stage = stage.announced();
            assert_eq!((stage.step(), stage.epoch()), (Step::Announced, collection));
            for step in [Step::Turned, Step::Scanned, Step::Settled, Step::Settled, Step::Settled] {
                let before = stage;
                stage = stage.next();
                assert_ne!(stage, before);
                assert_eq!((stage.step(), stage.epoch()), (step, collection + 1));
            }
        }
        // Numbers begin afresh after the last one.
        let last = Stage::of(u32::MAX - STEP + SETTLED);
        let [announced, turned] = [last.announced(), last.announced().next()];
        assert_eq!(announced.epoch(), last.epoch());
        assert_eq!(turned.epoch(), 0);
        assert_ne!(tag_bits(turned.epoch()), tag_bits(last.epoch()));
    }

    #[test]
    fn a_referent_is_kept_or_condemned_by_whoever_is_first() {
        let (start, object) = (CARD_BYTES, CARD_BYTES + GRANULE_BYTES);
        let cards = Cards::new(start, 4 * CARD_BYTES);
        cards.begin();
        assert!(cards.condemn(object));
        assert!(!cards.reach_referent(object), "it is about to be freed");
        cards.pardon(object);
        assert!(cards.reach_referent(object));
        assert!(!cards.condemn(object), "a thread has it");
        cards.begin();
        assert!(cards.condemn(object), "marks are those of one collection");
    }
}
