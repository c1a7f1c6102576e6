//! A looper: a thread that runs messages in the order of their priorities, and handlers that post
//! them from other threads.
//!
//! ```text
//!   poster                                 looper's thread
//!     lock: queue, raise the thread  --->    lock: take the best, follow; run it
//! ```
//!
//! The thread runs at the level of the best message among the one that it runs and those that are
//! pending, within the range that the application allows. So a message of a low level does not hold
//! up an urgent one behind it for longer than its own computation. A poster raises the thread
//! before it wakes it; the thread lowers itself.
//!
//! A delayed message is pending from its time on. A thread that is in the middle of another message
//! notices that when it has finished.
//!
//! **Lock**: the queue has one lock, whose holder runs at the priority of a real-time thread that
//! waits for it. Messages run without it.

use crate::broadcast::priority::{level_of, priority_of};
use baton_rt::schedule::set_priority;
use baton_shm::clock::now_ns;
use baton_shm::lock::Lock;
use rustix::thread::gettid;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

/// Messages by their levels, pure.
#[derive(Debug)]
pub struct MessageQueue<T> {
    /// By level, time and number.
    pending: BTreeMap<(Reverse<usize>, u64, u64), T>,
    /// By time and number, with the level.
    delayed: BTreeMap<(u64, u64), (usize, T)>,
    n_posted: u64,
}

impl<T> Default for MessageQueue<T> {
    fn default() -> MessageQueue<T> {
        MessageQueue { pending: BTreeMap::new(), delayed: BTreeMap::new(), n_posted: 0 }
    }
}

impl<T> MessageQueue<T> {
    /// Adds a message for a time.
    pub fn post(&mut self, level: usize, time_ns: u64, message: T) {
        self.n_posted += 1;
        self.delayed.insert((time_ns, self.n_posted), (level, message));
    }

    /// Makes the messages pending whose time has come, and returns the best one's level.
    pub fn best(&mut self, now_ns: u64) -> Option<usize> {
        while let Some(first) = self.delayed.first_entry() {
            let (time_ns, number) = *first.key();
            if time_ns > now_ns {
                break;
            }
            let (level, message) = first.remove();
            self.pending.insert((Reverse(level), time_ns, number), message);
        }
        self.pending.first_key_value().map(|((Reverse(level), ..), _)| *level)
    }

    /// Takes the best message that is pending, and its level.
    pub fn take(&mut self) -> Option<(usize, T)> {
        let ((Reverse(level), ..), message) = self.pending.pop_first()?;
        Some((level, message))
    }

    /// The time of the next message that is not yet pending.
    pub fn next_time_ns(&self) -> Option<u64> {
        self.delayed.first_key_value().map(|((time_ns, _), _)| *time_ns)
    }
}

type Message = Box<dyn FnOnce() + Send>;

/// A thread's loop: see the module.
///
/// ```
/// use baton_services::looper::Looper;
///
/// let looper = Looper::new(0..=80);
/// let (handler, quitter) = (looper.handler(), looper.handler());
/// handler.post_at(0, move || quitter.quit());
/// handler.post_at(80, || println!("first"));
/// looper.run();
/// ```
#[derive(Debug)]
pub struct Looper {
    shared: Arc<Shared>,
}

/// Posts messages to a looper.
#[derive(Clone, Debug)]
pub struct Handler {
    shared: Arc<Shared>,
}

struct Shared {
    /// The levels at which the thread may run.
    allowed: RangeInclusive<usize>,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    queue: MessageQueue<Message>,
    thread: Option<(rustix::process::Pid, Thread)>,
    /// Of the message that is being run.
    running: Option<usize>,
    /// The thread's.
    level: usize,
    has_quit: bool,
    is_refused: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

impl State {
    /// Gives the thread the level that it should have. A thread without the right stays as it is.
    fn follow(&mut self, allowed: &RangeInclusive<usize>) {
        let best = self.queue.best(now_ns()).max(self.running).unwrap_or(0);
        let level = best.clamp(*allowed.start(), *allowed.end());
        let Some((tid, _)) = &self.thread else { return };
        if level == self.level || self.is_refused {
            return;
        }
        match set_priority(priority_of(level), Some(*tid)) {
            Ok(()) => {
                self.level = level;
                // The thread's own calls go at it, too.
                baton::priority_changed();
            }
            Err(error) => {
                self.is_refused = true;
                tracing::warn!(target: "looper", "a looper keeps its priority: {error}");
            }
        }
    }
}

impl Looper {
    /// A looper whose thread may run at these levels: 0 is an ordinary one, 1 to 99 are real-time
    /// priorities.
    ///
    /// # Panics
    /// If the range is empty or has levels above 99: the caller's bug.
    pub fn new(allowed: RangeInclusive<usize>) -> Looper {
        assert!(allowed.start() <= allowed.end() && *allowed.end() <= 99, "levels {allowed:?}");
        Looper { shared: Arc::new(Shared { allowed, state: Lock::default() }) }
    }

    /// A handler for other threads, or for messages.
    pub fn handler(&self) -> Handler {
        Handler { shared: Arc::clone(&self.shared) }
    }

    /// Runs messages on this thread until [`Handler::quit`]. The thread keeps the level that it has
    /// then.
    ///
    /// # Panics
    /// If another thread runs the looper, or a message panics.
    pub fn run(&self) {
        let Shared { allowed, state } = &*self.shared;
        let mut locked = state.lock();
        assert!(locked.thread.is_none(), "a looper has one thread");
        locked.thread = Some((gettid(), std::thread::current()));
        // The thread's own: another one than any that it is given.
        locked.level = usize::MAX;
        while !locked.has_quit {
            locked.follow(allowed);
            let Some((level, message)) = locked.queue.take() else {
                let next = locked.queue.next_time_ns();
                drop(locked);
                match next {
                    None => std::thread::park(),
                    Some(time_ns) => {
                        let left_ns = time_ns.saturating_sub(now_ns());
                        std::thread::park_timeout(Duration::from_nanos(left_ns));
                    }
                }
                locked = state.lock();
                continue;
            };
            locked.running = Some(level);
            drop(locked);
            message();
            locked = state.lock();
            locked.running = None;
        }
    }
}

impl Handler {
    /// Has the looper run a message at the calling thread's priority.
    pub fn post(&self, message: impl FnOnce() + Send + 'static) {
        self.post_at(level_of(baton::own_priority()), message);
    }

    /// Has the looper run a message at a level.
    pub fn post_at(&self, level: usize, message: impl FnOnce() + Send + 'static) {
        self.post_delayed(level, Duration::ZERO, message);
    }

    /// Has the looper run a message at a level, after this time.
    pub fn post_delayed(
        &self,
        level: usize,
        delay: Duration,
        message: impl FnOnce() + Send + 'static,
    ) {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let time_ns = now_ns().saturating_add(delay_ns);
        let message: Message = Box::new(message);
        self.change(|state| state.queue.post(level, time_ns, message));
    }

    /// Ends the looper after the message that it runs. Pending messages are dropped with it.
    pub fn quit(&self) {
        self.change(|state| state.has_quit = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state.lock();
        change(&mut state);
        state.follow(&self.shared.allowed);
        let thread = state.thread.as_ref().map(|(_, thread)| thread.clone());
        drop(state);
        if let Some(thread) = thread {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_rt::schedule::current_priority;
    use std::sync::mpsc;

    #[test]
    fn messages_come_by_level_then_time_then_number() {
        let mut queue = MessageQueue::default();
        for (level, time_ns, name) in
            [(0, 1, "a"), (5, 3, "b"), (5, 2, "c"), (5, 2, "d"), (9, 7, "e")]
        {
            queue.post(level, time_ns, name);
        }
        assert_eq!((queue.best(0), queue.next_time_ns()), (None, Some(1)));
        assert_eq!((queue.best(2), queue.next_time_ns()), (Some(5), Some(3)));
        assert_eq!(queue.take(), Some((5, "c")));
        assert_eq!(queue.best(7), Some(9));
        let rest: Vec<_> = std::iter::from_fn(|| queue.take()).map(|(_, name)| name).collect();
        assert_eq!(rest, ["e", "d", "b", "a"]);
    }

    #[test]
    fn a_looper_runs_the_best_message_and_ends_when_it_quits() {
        let looper = Looper::new(0..=0);
        let handler = looper.handler();
        let (tell, told) = mpsc::channel();
        for level in [1, 3, 2] {
            let tell = tell.clone();
            handler.post_at(level, move || tell.send(level).unwrap());
        }
        let quitter = handler.clone();
        handler.post_delayed(99, Duration::from_millis(1), move || quitter.quit());
        handler.post_delayed(99, Duration::MAX, || unreachable!("its time does not come"));
        looper.run();
        drop(tell);
        let order: Vec<usize> = told.iter().collect();
        assert_eq!(order.iter().filter(|level| **level != 99).collect::<Vec<_>>(), [&3, &2, &1]);
    }

    #[test]
    fn the_thread_follows_the_best_pending_message_within_its_range() {
        let may = std::thread::spawn(|| set_priority(priority_of(1), None).is_ok());
        if !may.join().unwrap() {
            return println!("skipped: no real-time priority here");
        }
        let looper = Looper::new(1..=3);
        let handler = looper.handler();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || looper.run());
        let (inner, own) = (handler.clone(), tell.clone());
        handler.post_at(0, move || {
            let level = || level_of(current_priority().unwrap());
            own.send(level()).unwrap();
            // It is raised in the middle of a message, for the one behind it.
            let own_again = own.clone();
            inner.post_at(2, move || own_again.send(level()).unwrap());
            own.send(level()).unwrap();
            let own_again = own.clone();
            inner.post_at(50, move || own_again.send(level()).unwrap());
            own.send(level()).unwrap();
            let quitter = inner.clone();
            inner.post_at(0, move || {
                own.send(level()).unwrap();
                quitter.quit();
            });
        });
        drop(tell);
        thread.join().unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2, 3, 3, 2, 1]);
    }
}
