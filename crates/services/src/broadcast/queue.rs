//! The queues of accepted broadcasts: one for each level of priority, without a lock.
//!
//! ```text
//!   sender's looper                              delivery thread of the level
//!     invoke(level)      open[level] += 1          take_all(level): the whole stack, reversed
//!     decode, match
//!     accept(item)       push, wake                is_first(level)? hand over : sleep
//!                                                  handed_over(level): open[level] -= 1, wake
//! ```
//!
//! A level's queue is a stack to which senders push by one compare-and-swap, and which its delivery
//! thread takes as a whole. No thread ever waits for another one that is in the middle of a push. A
//! sender touches its own level's queue and nothing that senders of other levels write.
//!
//! **Invariant** (thesis 7.3.4): a broadcast that is invoked after a more urgent one is handed over
//! after it. `open` counts the broadcasts of a level from their invocation until they are handed
//! over. A delivery thread hands an item over only after it has seen, *later than it took the
//! item*, zero at each level above. A more urgent broadcast that was invoked before the item was
//! invoked counted then, so it has been handed over.
//!
//! Memory order:
//! - The increment of `open` in `invoke` precedes the push of any broadcast that is invoked later.
//!   The release of that push pairs with the acquire of `take_all`, and the loads of `is_first`
//!   follow it.
//! - An invocation that goes down to a lower level counts there before it leaves the upper one. The
//!   decrement there is a release, which pairs with the acquire of `is_first`. That looks from the
//!   top down: it meets the invocation at one of the two.
//! - Fences separate the two sides of a wake-up (Dekker): either the thread that ends the last
//!   broadcast of a level sees that a lower level has one, or the lower level's thread sees that
//!   the upper level has none.

use super::sync::{AtomicPtr, AtomicU32, Ordering, fence};
use std::ptr;

/// The queues of `N` levels; a greater level is more urgent.
pub struct Queues<T, const N: usize> {
    levels: [Level<T>; N],
    wake: Box<dyn Fn(usize) + Send + Sync>,
}

struct Level<T> {
    /// Broadcasts that are invoked and not yet handed over.
    open: AtomicU32,
    /// The newest item, and behind it all that have not been taken.
    newest: AtomicPtr<Node<T>>,
}

struct Node<T> {
    item: T,
    older: *mut Node<T>,
}

/// A broadcast that its sender has invoked. Lower levels wait for it until it is dropped, or
/// accepted and handed over.
pub struct Invocation<'a, T, const N: usize> {
    queues: &'a Queues<T, N>,
    level: usize,
}

// SAFETY: nodes belong to the stack that they are in, or to the thread that has taken it.
unsafe impl<T: Send, const N: usize> Sync for Queues<T, N> {}
// SAFETY: as above.
unsafe impl<T: Send, const N: usize> Send for Queues<T, N> {}

impl<T, const N: usize> Queues<T, N> {
    /// Empty queues. `wake` wakes the delivery thread of a level, or starts it. A thread that is
    /// woken before it sleeps must not sleep.
    pub fn new(wake: impl Fn(usize) + Send + Sync + 'static) -> Queues<T, N> {
        let level = |_| Level { open: AtomicU32::new(0), newest: AtomicPtr::new(ptr::null_mut()) };
        Queues { levels: std::array::from_fn(level), wake: Box::new(wake) }
    }

    /// Begins a broadcast: from now on, later ones of lower levels are handed over after it.
    pub fn invoke(&self, level: usize) -> Invocation<'_, T, N> {
        self.count(level);
        Invocation { queues: self, level }
    }

    /// Takes all items of a level, the oldest first. For the level's delivery thread.
    pub fn take_all(&self, level: usize) -> Vec<T> {
        let mut next = self.levels[level].newest.swap(ptr::null_mut(), Ordering::Acquire);
        let mut items = Vec::new();
        while !next.is_null() {
            // SAFETY: `push` made it of a box, and the swap has made this thread its owner.
            let node = unsafe { Box::from_raw(next) };
            next = node.older;
            items.push(node.item);
        }
        items.reverse();
        items
    }

    /// Whether every broadcast of a higher level that was invoked before an item that this thread
    /// has taken is handed over. If not, the thread sleeps until it is woken.
    pub fn is_first(&self, level: usize) -> bool {
        // Pairs with the fence of `handed_over`.
        fence(Ordering::SeqCst);
        let above = self.levels.iter().skip(level + 1).rev();
        above.map(|level| level.open.load(Ordering::Acquire)).all(|open| open == 0)
    }

    /// Ends a broadcast of this level. For its delivery thread, once for each accepted item.
    pub fn handed_over(&self, level: usize) {
        if self.levels[level].open.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Pairs with the fence of `is_first`.
            fence(Ordering::SeqCst);
            self.wake_next(level);
        }
    }

    fn count(&self, level: usize) {
        self.levels[level].open.fetch_add(1, Ordering::AcqRel);
    }

    /// Puts an item into a level's queue for which no lower level waits, and wakes its delivery
    /// thread.
    pub fn tell(&self, level: usize, item: T) {
        self.push(level, item);
        (self.wake)(level);
    }

    /// Broadcasts of a level that are invoked and not yet handed over.
    pub fn open(&self, level: usize) -> u32 {
        self.levels[level].open.load(Ordering::Relaxed)
    }

    /// Wakes the best level below that may have waited for this one. That one wakes the next.
    fn wake_next(&self, level: usize) {
        let is_open = |level: &usize| self.levels[*level].open.load(Ordering::Relaxed) != 0;
        if let Some(next) = (0..level).rev().find(is_open) {
            (self.wake)(next);
        }
    }

    fn push(&self, level: usize, item: T) {
        let newest = &self.levels[level].newest;
        let node = Box::into_raw(Box::new(Node { item, older: ptr::null_mut() }));
        let mut older = newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: no other thread knows the node before it is in the stack.
            unsafe { (*node).older = older };
            // Release pairs with the acquire of `take_all`.
            match newest.compare_exchange(older, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => older = newer,
            }
        }
    }
}

impl<T, const N: usize> Drop for Queues<T, N> {
    fn drop(&mut self) {
        (0..N).for_each(|level| drop(self.take_all(level)));
    }
}

impl<T, const N: usize> Invocation<'_, T, N> {
    /// The level at which it counts.
    pub fn level(&self) -> usize {
        self.level
    }

    /// Makes it one of a lower level.
    ///
    /// # Panics
    /// If the level is higher: nobody raises a broadcast above its sender.
    pub fn lower_to(&mut self, level: usize) {
        assert!(level <= self.level, "a broadcast goes down");
        if level < self.level {
            self.queues.count(level);
            let upper = std::mem::replace(&mut self.level, level);
            self.queues.handed_over(upper);
        }
    }

    /// Puts it into its level's queue, and wakes the delivery thread.
    pub fn accept(self, item: T) {
        let Invocation { queues, level } = self;
        // The item counts on, until it is handed over.
        std::mem::forget(self);
        queues.tell(level, item);
    }
}

impl<T, const N: usize> Drop for Invocation<'_, T, N> {
    fn drop(&mut self) {
        self.queues.handed_over(self.level);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    type Four = Queues<u32, 4>;

    fn queues() -> (Four, Arc<Mutex<Vec<usize>>>) {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&woken);
        (Queues::new(move |level| tell.lock().unwrap().push(level)), woken)
    }

    #[test]
    fn items_of_a_level_come_in_their_order() {
        let (queues, woken) = queues();
        (0..3).for_each(|item| queues.invoke(1).accept(item));
        assert_eq!(*woken.lock().unwrap(), [1, 1, 1]);
        assert_eq!(queues.take_all(1), [0, 1, 2]);
        assert!(queues.take_all(1).is_empty());
        assert_eq!(queues.open(1), 3, "taken, and not yet handed over");
    }

    #[test]
    fn a_level_waits_for_those_above_from_their_invocation_on() {
        let (queues, woken) = queues();
        let mut urgent = queues.invoke(3);
        for (level, is_first) in [(0, false), (2, false), (3, true)] {
            assert_eq!(queues.is_first(level), is_first, "{level}");
        }
        queues.invoke(0).accept(7);
        urgent.lower_to(1);
        assert!(queues.is_first(2) && !queues.is_first(0));
        urgent.accept(8);
        queues.handed_over(1);
        assert!(queues.is_first(0));
        // Two accepted items, the invocation that left level 3, and level 1, which is empty.
        assert_eq!(*woken.lock().unwrap(), [0, 1, 1, 0]);
    }

    #[test]
    fn an_invocation_that_is_refused_holds_nobody_up() {
        let (queues, woken) = queues();
        queues.invoke(0).accept(1);
        drop(queues.invoke(2));
        assert!(queues.is_first(0));
        assert_eq!(*woken.lock().unwrap(), [0, 0], "the waiter is told");
    }
}

/// The queues under the model checker: `RUSTFLAGS="--cfg loom" cargo test -p baton-services`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    type Three = Queues<&'static str, 3>;

    /// Where the threads of the levels sleep: a thread that is woken before does not.
    #[derive(Default)]
    struct Sleepers([(Mutex<bool>, Condvar); 3]);

    impl Sleepers {
        fn wake(&self, level: usize) {
            let (is_woken, woken) = &self.0[level];
            *is_woken.lock().unwrap() = true;
            woken.notify_one();
        }

        fn sleep(&self, level: usize) {
            let (is_woken, woken) = &self.0[level];
            let mut is_woken = is_woken.lock().unwrap();
            while !*is_woken {
                is_woken = woken.wait(is_woken).unwrap();
            }
            *is_woken = false;
        }
    }

    struct World {
        queues: &'static Three,
        sleepers: &'static Sleepers,
        arrived: Arc<Mutex<Vec<&'static str>>>,
    }

    impl World {
        fn new() -> World {
            // An invocation on another thread borrows them.
            let sleepers: &Sleepers = Box::leak(Box::default());
            let queues = Box::leak(Box::new(Queues::new(|level| sleepers.wake(level))));
            World { queues, sleepers, arrived: Arc::default() }
        }

        /// A delivery thread, until it has delivered this many.
        fn deliver(&self, level: usize, n_items: usize) -> thread::JoinHandle<()> {
            let (queues, sleepers) = (self.queues, self.sleepers);
            let arrived = Arc::clone(&self.arrived);
            thread::spawn(move || {
                let mut items = Vec::new();
                for _ in 0..n_items {
                    loop {
                        items.extend(queues.take_all(level));
                        if !items.is_empty() && queues.is_first(level) {
                            break;
                        }
                        sleepers.sleep(level);
                    }
                    arrived.lock().unwrap().push(items.remove(0));
                    queues.handed_over(level);
                }
            })
        }
    }

    #[test]
    fn a_later_and_lower_broadcast_arrives_later() {
        // Four threads: three preemptions take the checker minutes.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = World::new();
            let urgent = world.queues.invoke(2);
            let sender = thread::spawn(move || urgent.accept("urgent"));
            let [lower, upper] = [0, 2].map(|level| world.deliver(level, 1));
            world.queues.invoke(0).accept("later");
            [sender, lower, upper].into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*world.arrived.lock().unwrap(), ["urgent", "later"]);
        });
    }

    #[test]
    fn a_broadcast_that_goes_down_counts_on_the_way() {
        loom::model(|| {
            let world = World::new();
            let mut urgent = world.queues.invoke(2);
            let arrived = Arc::clone(&world.arrived);
            let sender = thread::spawn(move || {
                urgent.lower_to(1);
                arrived.lock().unwrap().push("urgent");
            });
            let lower = world.deliver(0, 1);
            world.queues.invoke(0).accept("later");
            [sender, lower].into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*world.arrived.lock().unwrap(), ["urgent", "later"]);
        });
    }

    #[test]
    fn a_refused_broadcast_lets_the_lower_one_through() {
        loom::model(|| {
            let world = World::new();
            let refused = world.queues.invoke(2);
            let sender = thread::spawn(move || drop(refused));
            let lower = world.deliver(0, 1);
            world.queues.invoke(0).accept("lower");
            [sender, lower].into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn nothing_is_lost_or_doubled_among_senders() {
        loom::model(|| {
            let world = World::new();
            let senders = ["a", "b"].map(|item| {
                let queues = world.queues;
                thread::spawn(move || queues.invoke(0).accept(item))
            });
            let delivery = world.deliver(0, 2);
            senders.into_iter().for_each(|thread| thread.join().unwrap());
            delivery.join().unwrap();
            let mut arrived = world.arrived.lock().unwrap().clone();
            arrived.sort_unstable();
            assert_eq!(arrived, ["a", "b"]);
            assert!(world.queues.take_all(0).is_empty());
        });
    }
}
