//! The protocols of this crate under the model checker: `RUSTFLAGS="--cfg loom" cargo test -p
//! baton-shm --release`.
//!
//! The model of a futex: its check and its sleep are one step with respect to every wake, as in the
//! kernel.

#![cfg_attr(
    not(test),
    expect(dead_code, unused_imports, reason = "other crates' models use only the waits")
)]

use crate::bell::{self, Attentive, Bell, OwnBell, Ring, Sleep};
use crate::client_lanes::ClientLanes;
use crate::event_flag::EventFlag;
use crate::futex::{self, WAITERS, Wait};
use crate::lane_owner::{LaneOwner, Owner};
use crate::lock::Lock;
use crate::mailbox::{Mailbox, Reader, Seen};
use crate::ready_lanes::ReadyLanes;
use crate::reserved_slot::{ReservedSlot, SlotState};
use crate::revocation::{Entry, Revocation, Revocations};
use crate::ring::{Consumer, Producer};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, fence_after_update};
use crate::use_count::{self, UseCount};
use core::cell::Cell;
use core::time::Duration;
use loom::sync::{Arc, Condvar, Mutex};

loom::lazy_static! {
    static ref SLEEPERS: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
    static ref WAKE: Condvar = Condvar::new();
    static ref NAMES: Mutex<usize> = Mutex::new(0);
}

/// A thread that sleeps in the kernel, and the words that it sleeps on.
struct Sleeper {
    name: usize,
    words: Vec<usize>,
}

fn address(word: &AtomicU32) -> usize {
    word as *const AtomicU32 as usize
}

/// Model of [`crate::futex`].
pub fn can_wait_any() -> bool {
    true
}

/// Model of [`crate::futex`]: a wait on one word.
pub fn wait(word: &AtomicU32, expected: u32, _: Option<Duration>) -> Wait {
    wait_any(&[(word, expected)])
}

/// Model of [`crate::futex`]: a wait on several words.
pub fn wait_any_of(words: &[(&AtomicU32, u32)]) -> (Wait, Option<usize>) {
    (wait_any(words), None)
}

/// Model of [`crate::futex`]: a wait on several words.
pub fn wait_any(words: &[(&AtomicU32, u32)]) -> Wait {
    let mut sleepers = SLEEPERS.lock().unwrap();
    if words.iter().any(|(word, expected)| word.load(Ordering::SeqCst) != *expected) {
        return Wait::Woken;
    }
    let name = {
        let mut names = NAMES.lock().unwrap();
        *names += 1;
        *names
    };
    sleepers.push(Sleeper { name, words: words.iter().map(|(word, _)| address(word)).collect() });
    while sleepers.iter().any(|sleeper| sleeper.name == name) {
        sleepers = WAKE.wait(sleepers).unwrap();
    }
    Wait::Woken
}

/// Model of [`crate::futex`]: a wake.
pub fn wake(word: &AtomicU32, n: u32) -> usize {
    let mut sleepers = SLEEPERS.lock().unwrap();
    let mut woken = 0;
    while woken < n as usize {
        let at = sleepers.iter().position(|sleeper| sleeper.words.contains(&address(word)));
        let Some(at) = at else { break };
        sleepers.remove(at);
        woken += 1;
    }
    WAKE.notify_all();
    woken
}

/// Model of [`crate::futex`]: a wait on a word of this process.
pub fn wait_own(word: &AtomicU32, expected: u32, _: u32) {
    wait(word, expected, None);
}

/// Model of [`crate::futex`]: a wake of one.
pub fn wake_own(word: &AtomicU32) {
    wake(word, 1);
}

/// Model of [`crate::futex`]: a wake by a thread's id, which wakes all.
pub fn wake_thread(word: &AtomicU32, _: u32) {
    wake(word, u32::MAX);
}

loom::thread_local! {
    static THREAD: u32 = {
        let mut names = NAMES.lock().unwrap();
        *names += 1;
        *names as u32
    };
    static HELD: Cell<u32> = Cell::new(0);
}

/// The model of [`crate::thread`].
pub fn id() -> u32 {
    THREAD.with(|thread| *thread)
}

/// Model of [`crate::thread`]: the number of held locks.
pub fn held() -> &'static loom::thread::LocalKey<Cell<u32>> {
    &HELD
}

/// Model of [`crate::thread`]: every second thread is a real-time thread.
pub fn is_real_time() -> bool {
    id() % 2 == 0
}

/// Model of [`crate::futex`]: the kernel marks the word and later gives it to a sleeper.
pub fn lock(word: &AtomicU32, holder: u32) {
    let mut sleepers = SLEEPERS.lock().unwrap();
    let mark = |word| Some(if word == 0 { holder } else { word | WAITERS });
    if word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, mark) == Ok(0) {
        return;
    }
    sleepers.push(Sleeper { name: holder as usize, words: vec![address(word)] });
    while sleepers.iter().any(|sleeper| sleeper.name == holder as usize) {
        sleepers = WAKE.wait(sleepers).unwrap();
    }
}

/// Model of [`crate::futex`]: the release of a lock.
pub fn unlock(word: &AtomicU32) {
    let mut sleepers = SLEEPERS.lock().unwrap();
    let next = sleepers.iter().position(|sleeper| sleeper.words.contains(&address(word)));
    let holder = next.map_or(0, |next| sleepers.remove(next).name as u32 | WAITERS);
    word.store(holder, Ordering::SeqCst);
    WAKE.notify_all();
}

/// Each thread sees the previous holder's writes, also when the kernel passes the lock on.
#[test]
fn a_lock_admits_one_thread_at_a_time() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(AtomicU64::new(0)));
        let count = |lock: &Lock<AtomicU64>| {
            let value = lock.lock();
            value.store(value.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        };
        let others =
            [lock.clone(), lock.clone()].map(|lock| loom::thread::spawn(move || count(&lock)));
        count(&lock);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(lock.lock().load(Ordering::Relaxed), 3);
    });
}

/// A request and its reply over two mailboxes, with the bytes beside them.
#[test]
fn a_posted_message_is_complete_and_wakes_its_reader() {
    loom::model(|| {
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let areas = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let (server_words, server_areas) = (words.clone(), areas.clone());
        let server = loom::thread::spawn(move || {
            let inbox = Mailbox::new(&server_words[0]);
            while inbox.wait(None) != Ok(Seen::Message) {}
            let request = server_areas[0].load(Ordering::Relaxed);
            inbox.clear();
            server_areas[1].store(request + 1, Ordering::Relaxed);
            Mailbox::new(&server_words[1]).post();
        });
        areas[0].store(41, Ordering::Relaxed);
        Mailbox::new(&words[0]).post();
        let inbox = Mailbox::new(&words[1]);
        while inbox.wait(None) != Ok(Seen::Message) {}
        assert_eq!(areas[1].load(Ordering::Relaxed), 42);
        assert!(Mailbox::new(&words[0]).is_empty());
        server.join().unwrap();
    });
}

/// A reader that stops watching gets the message, or the writer notifies other threads.
#[test]
fn a_message_to_a_watching_reader_is_not_lost() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let told = Arc::new(AtomicU32::new(0));
        let (outbox, tell) = (word.clone(), told.clone());
        let post = loom::thread::spawn(move || {
            if Mailbox::new(&outbox).post() != Reader::Watching {
                tell.store(1, Ordering::Release);
            }
        });
        let inbox = Mailbox::new(&word);
        inbox.watch();
        let found = inbox.unwatch();
        if found {
            inbox.clear();
        }
        post.join().unwrap();
        let is_told = told.load(Ordering::Acquire) == 1;
        assert!(found || is_told);
        // A message is left in the mailbox exactly if the reader did not find it.
        assert_eq!(inbox.is_empty(), found);
        // Nothing is left of the watch: the writer notifies others of the next message.
        assert_ne!(Mailbox::new(&word).post(), Reader::Watching);
    });
}

/// A dedicated reader takes every message of which no other thread is told.
#[test]
fn a_message_to_a_dedicated_reader_is_taken_or_told_of() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let outbox = word.clone();
        let post = loom::thread::spawn(move || Mailbox::new(&outbox).post());
        let inbox = Mailbox::new(&word);
        // The writer has told other threads of an earlier message, which is theirs.
        let dedicated = inbox.dedicate();
        let found = dedicated && inbox.end_dedicated();
        if found {
            inbox.clear();
        }
        let is_told = post.join().unwrap() == Reader::Elsewhere;
        assert_eq!(found, !is_told);
        assert_eq!(
            Mailbox::new(&word).post(),
            Reader::Elsewhere,
            "the reader is dedicated no more"
        );
    });
}

/// A writer that waits for a dedicated reader is woken by it, whatever was nudged meanwhile.
#[test]
fn a_writer_that_waits_for_a_dedicated_reader_is_woken() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let (inbox, nudged) = (word.clone(), word.clone());
        let reader = loom::thread::spawn(move || assert!(Mailbox::new(&inbox).dedicate()));
        let nudges = loom::thread::spawn(move || Mailbox::new(&nudged).nudge());
        assert_eq!(Mailbox::new(&word).await_dedicated(None), Ok(()));
        assert_eq!(Mailbox::new(&word).post(), Reader::Dedicated);
        reader.join().unwrap();
        nudges.join().unwrap();
    });
}

#[test]
fn a_dedicated_reader_sleeps_through_no_message() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let inbox = word.clone();
        assert!(Mailbox::new(&word).dedicate());
        let reader = loom::thread::spawn(move || {
            let inbox = Mailbox::new(&inbox);
            for _ in 0..2 {
                while inbox.look() != Seen::Message && inbox.wait(None) != Ok(Seen::Message) {}
                inbox.clear();
            }
        });
        let outbox = Mailbox::new(&word);
        for _ in 0..2 {
            assert_ne!(outbox.post(), Reader::Elsewhere);
            while !outbox.is_empty() {
                loom::thread::yield_now();
            }
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_nudge_is_never_lost_beside_a_message() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let (peer, own) = (word.clone(), word.clone());
        let post = loom::thread::spawn(move || _ = Mailbox::new(&peer).post());
        let nudge = loom::thread::spawn(move || Mailbox::new(&own).nudge());
        let inbox = Mailbox::new(&word);
        let (mut message, mut nudged) = (false, false);
        while !(message && nudged) {
            match inbox.wait(None) {
                Ok(Seen::Message) => {
                    message = true;
                    inbox.clear();
                }
                Ok(Seen::Nudge) => nudged = true,
                _ => {}
            }
        }
        post.join().unwrap();
        nudge.join().unwrap();
    });
}

/// A thread that publishes work checks for a sleeper afterwards and nudges it.
#[test]
fn a_reader_that_waits_unless_there_is_work_misses_none() {
    loom::model(|| {
        let shared = Arc::new([AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)]);
        let theirs = shared.clone();
        let sleeper = loom::thread::spawn(move || {
            let [word, asleep, work] = &*theirs;
            let there_is_work = || work.load(Ordering::SeqCst) != 0;
            while !there_is_work() {
                asleep.store(1, Ordering::Relaxed);
                let _ = Mailbox::new(word).wait_unless(None, there_is_work);
                asleep.store(0, Ordering::Relaxed);
            }
        });
        let [word, asleep, work] = &*shared;
        work.fetch_add(1, Ordering::SeqCst);
        fence_after_update();
        if asleep.load(Ordering::Relaxed) != 0 {
            Mailbox::new(word).nudge();
        }
        sleeper.join().unwrap();
    });
}

#[test]
fn a_message_to_a_closing_reader_is_refused_or_found() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let peer = word.clone();
        let post = loom::thread::spawn(move || {
            let outbox = Mailbox::new(&peer);
            let reader = outbox.post();
            if reader == Reader::Closed {
                outbox.give_back();
            }
            reader
        });
        let inbox = Mailbox::new(&word);
        let found = inbox.close();
        let refused = post.join().unwrap() == Reader::Closed;
        assert_ne!(found, refused);
        assert_eq!(inbox.look() == Seen::Message, found);
        assert_eq!(inbox.is_given_back(), refused);
    });
}

/// Memory that the owner of two bells shares with two ringers.
#[derive(Default)]
struct Bells {
    bells: [AtomicU32; 2],
    slept_on: [AtomicU32; 2],
    asleep: [AtomicU32; 2],
    inactive: [AtomicU32; 2],
    elsewhere: AtomicU32,
    messages: [AtomicU32; 2],
}

impl Bells {
    fn bell(&self, stranger: usize) -> Bell<'_> {
        Bell::new(&self.bells[stranger], &self.slept_on[stranger], &self.inactive[stranger])
    }

    fn own_bell(&self, stranger: usize) -> OwnBell<'_> {
        self.bell(stranger).own(&self.asleep[stranger])
    }

    /// Publishes a message and rings. If the ring may have missed the sleeper, the owner's control
    /// thread, notified by socket, rings every bell.
    fn post(&self, stranger: usize) {
        self.messages[stranger].swap(1, Ordering::SeqCst);
        self.ring(stranger);
    }

    fn ring(&self, stranger: usize) {
        let ring = self.bell(stranger).ring(&self.elsewhere);
        if matches!(ring, Ring::Missed | Ring::Nobody) {
            let _ = self.own_bell(0).ring_alone();
            let _ = self.own_bell(1).ring_alone();
        }
    }

    /// The owner sleeps on the bells in `on` until all messages have come.
    fn take(&self, on: &[usize]) {
        // No word of the owner's own wakes the sleeper.
        let sleep = Sleep::Alone;
        let all = |bells: &Bells| bells.messages.iter().all(|m| m.load(Ordering::Acquire) == 1);
        loop {
            self.elsewhere.fetch_add(1, Ordering::SeqCst);
            let words: Vec<_> =
                on.iter().map(|&stranger| self.own_bell(stranger).announce(sleep)).collect();
            bell::fence_before_check();
            let over = all(self);
            if !over {
                futex::wait_any(&words);
            }
            on.iter().for_each(|&stranger| self.own_bell(stranger).withdraw(sleep));
            self.elsewhere.fetch_sub(1, Ordering::SeqCst);
            if over {
                return;
            }
        }
    }
}

#[test]
fn a_ring_wakes_a_sleeper_or_reports_that_it_did_not() {
    for on in [&[0][..], &[0, 1]] {
        loom::model(move || {
            let bells = Arc::new(Bells::default());
            bells.messages[1].store(1, Ordering::Release);
            let theirs = bells.clone();
            let stranger = loom::thread::spawn(move || theirs.post(0));
            bells.take(on);
            stranger.join().unwrap();
        });
    }
}

#[test]
fn a_ring_without_a_sleeper_on_its_bell_reports_that() {
    loom::model(|| {
        let bells = Arc::new(Bells::default());
        bells.messages[0].store(1, Ordering::Release);
        let theirs = bells.clone();
        let stranger = loom::thread::spawn(move || theirs.post(1));
        bells.take(&[0]);
        stranger.join().unwrap();
    });
}

/// A model of three threads, which is exhaustive with three preemptions.
#[cfg(test)]
fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model
}

/// A hostile ringer that resets both words at the worst moment delays the wake-up until the owner's
/// next ring.
#[test]
fn a_ring_that_the_ringer_undoes_works_when_repeated() {
    bounded().check(|| {
        let bells = Arc::new(Bells::default());
        bells.messages[1].store(1, Ordering::Release);
        let hostile = bells.clone();
        let stranger = loom::thread::spawn(move || {
            hostile.bells[0].store(0, Ordering::Relaxed);
            hostile.slept_on[0].store(0, Ordering::Relaxed);
        });
        let theirs = bells.clone();
        let owner = loom::thread::spawn(move || {
            theirs.messages[0].store(1, Ordering::Release);
            let _ = theirs.own_bell(0).ring();
            stranger.join().unwrap();
            let _ = theirs.own_bell(0).ring();
        });
        bells.take(&[0]);
        owner.join().unwrap();
        assert_eq!(bells.asleep[0].load(Ordering::Relaxed), 0);
    });
}

/// A ringer publishes while its bell is deactivated: the owner sees the message, or the ringer
/// learns that it must use other means.
#[test]
fn a_message_during_deactivation_is_seen_or_reported() {
    loom::model(|| {
        let bells = Arc::new(Bells::default());
        let theirs = bells.clone();
        let stranger = loom::thread::spawn(move || {
            theirs.messages[0].store(1, Ordering::Release);
            theirs.bell(0).ring(&theirs.elsewhere)
        });
        let inactive =
            bells.own_bell(0).deactivate(|| bells.messages[0].load(Ordering::Acquire) == 1);
        let ring = stranger.join().unwrap();
        assert!(!inactive || ring == Ring::Nobody, "no thread checks, and none was told");
        assert_eq!(inactive, bells.inactive[0].load(Ordering::Relaxed) == 1);
    });
}

/// A ringer publishes while the owner's last thread that looks goes to sleep.
#[test]
fn a_message_to_an_owner_that_ends_its_attention_is_taken() {
    loom::model(|| {
        let bells = Arc::new(Bells::default());
        bells.messages[1].store(1, Ordering::Release);
        let attentive = Arc::new(AtomicU32::new(0));
        Attentive::new(&attentive).begin();
        let (theirs, seen) = (bells.clone(), attentive.clone());
        let stranger = loom::thread::spawn(move || {
            theirs.messages[0].store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            if !Attentive::new(&seen).is_on() {
                theirs.ring(0);
            }
        });
        Attentive::new(&attentive).end();
        bells.take(&[0]);
        stranger.join().unwrap();
    });
}

/// One sleeper leaves while another comes: a ringer that sees no sleeper on its bell sees one
/// elsewhere.
#[test]
fn a_sleeper_that_replaces_another_is_not_overlooked() {
    bounded().check(|| {
        let bells = Arc::new(Bells::default());
        bells.messages[1].store(1, Ordering::Release);
        let (leaving, theirs) = (bells.clone(), bells.clone());
        let other = loom::thread::spawn(move || {
            leaving.elsewhere.fetch_add(1, Ordering::SeqCst);
            leaving.own_bell(0).announce(Sleep::Among);
            leaving.own_bell(0).withdraw(Sleep::Among);
            leaving.elsewhere.fetch_sub(1, Ordering::SeqCst);
        });
        let stranger = loom::thread::spawn(move || theirs.post(0));
        bells.take(&[0]);
        other.join().unwrap();
        stranger.join().unwrap();
        assert_eq!(bells.slept_on[0].load(Ordering::Relaxed), 0);
    });
}

#[test]
fn ring_bytes_are_published_before_their_position() {
    loom::model(|| {
        let (head, tail) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let slots = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let (reader_head, reader_tail, reader_slots) = (head.clone(), tail.clone(), slots.clone());
        let reader = loom::thread::spawn(move || {
            let mut consumer = Consumer::new(16);
            for expected in 1..=3u64 {
                while consumer.available(&reader_tail).unwrap() == 0 {
                    loom::thread::yield_now();
                }
                let slot = consumer.place() / 8;
                assert_eq!(reader_slots[slot].load(Ordering::Relaxed), expected);
                consumer.release(&reader_head, 8);
            }
        });
        let mut producer = Producer::new(16);
        for value in 1..=3u64 {
            while producer.room(&head).unwrap().0 < 8 {
                loom::thread::yield_now();
            }
            slots[producer.place() / 8].store(value, Ordering::Relaxed);
            producer.publish(&tail, 8);
        }
        reader.join().unwrap();
    });
}

/// An operation that began before a revocation is taken over exactly once, or its thread turns
/// back.
#[test]
fn an_operation_during_a_revocation_is_taken_over_or_turns_back() {
    const OPERATION: u32 = 7;
    loom::model(|| {
        let shared = Arc::new((Revocation::default(), Entry::default(), AtomicU64::new(0)));
        let looked = Arc::new(AtomicU32::new(0));
        let own = Revocation::default();
        let epoch = Revocations(&shared.0, &own).epoch();
        let (kept, told) = (shared.clone(), looked.clone());
        let keeper = loom::thread::spawn(move || {
            let (revocation, entry, details) = &*kept;
            let mut taken_over = 0;
            for _ in 0..2 {
                revocation.revoke();
                if let Some(operation) = entry.take_over() {
                    assert_eq!((operation, details.load(Ordering::Relaxed)), (OPERATION, 1));
                    taken_over += 1;
                }
                told.store(1, Ordering::Release);
            }
            taken_over
        });
        let (revocation, entry, details) = &*shared;
        details.store(1, Ordering::Relaxed);
        let entered = entry.enter(Revocations(revocation, &own), epoch, OPERATION);
        let keeper_has_looked = looked.load(Ordering::Acquire) == 1;
        let left = entry.leave();
        assert!(
            !(entered && keeper_has_looked && left),
            "the keeper checked and missed an operation"
        );
        assert_eq!(keeper.join().unwrap(), u32::from(!left));
    });
}

/// A keeper that revokes one route takes over the operations on it and no others.
#[test]
fn an_operation_on_a_revoked_route_is_taken_over_or_turns_back() {
    const OPERATION: u32 = 7;
    const HERE: u64 = 1;
    const ELSEWHERE: u64 = 2;
    struct Shared {
        all: Revocation,
        own: Revocation,
        entry: Entry,
        noted: AtomicU64,
        has_looked: AtomicU32,
    }
    loom::model(|| {
        let shared = Arc::new(Shared {
            all: Revocation::default(),
            own: Revocation::default(),
            entry: Entry::default(),
            noted: AtomicU64::new(0),
            has_looked: AtomicU32::new(0),
        });
        let other = Revocation::default();
        let kept = shared.clone();
        let keeper = loom::thread::spawn(move || {
            let Shared { own, entry, noted, has_looked, .. } = &*kept;
            own.revoke();
            let concerned = entry.is_inside() && noted.load(Ordering::Relaxed) == HERE;
            let taken_over = if concerned { entry.take_over() } else { None };
            has_looked.store(1, Ordering::Release);
            taken_over.is_some()
        });
        let Shared { all, own, entry, noted, has_looked } = &*shared;
        let mut taken_over = false;
        for (at, revocation) in [(ELSEWHERE, &other), (HERE, own)] {
            let route = Revocations(all, revocation);
            let epoch = if at == HERE { 0 } else { route.epoch() };
            noted.store(at, Ordering::Relaxed);
            let entered = entry.enter(route, epoch, OPERATION);
            assert!(entered || at == HERE, "another route's revocation does not matter");
            let keeper_has_looked = has_looked.load(Ordering::Acquire) == 1;
            let left = entry.leave();
            assert!(
                !(at == HERE && entered && keeper_has_looked && left),
                "the keeper checked and missed an operation"
            );
            taken_over |= !left;
        }
        assert_eq!(keeper.join().unwrap(), taken_over);
    });
}

/// A keeper that has revoked a route finds no thread that still uses it once none is inside,
/// whether threads end their operations before they come out or with that.
#[test]
fn a_route_is_used_no_more_when_its_threads_have_come_out() {
    #[derive(Default)]
    struct Shared {
        revocations: [Revocation; 2],
        entry: Entry,
        used: AtomicU32,
    }
    for ends_first in [true, false] {
        loom::model(move || {
            let shared = Arc::new(Shared::default());
            let kept = shared.clone();
            let keeper = loom::thread::spawn(move || {
                let Shared { revocations: [_, own], entry, used } = &*kept;
                own.revoke();
                entry.take_over();
                assert!(entry.is_inside() || used.load(Ordering::Relaxed) == 0);
            });
            let Shared { revocations: [all, own], entry, used } = &*shared;
            let has_entered = entry.enter(Revocations(all, own), 0, 1);
            if has_entered {
                used.store(1, Ordering::Relaxed);
                if ends_first {
                    entry.end();
                }
                used.store(0, Ordering::Relaxed);
            }
            if has_entered && ends_first {
                entry.come_out();
            } else {
                entry.leave();
            }
            keeper.join().unwrap();
            assert!(!entry.is_inside());
        });
    }
}

/// A message belongs to its thread or to the keeper, never to both or neither. A keeper that
/// revokes entries first knows every message that was begun before.
#[test]
fn a_reserved_message_is_its_threads_or_its_keepers() {
    const NODE: u64 = 7;
    struct Shared {
        revocation: Revocation,
        own: Revocation,
        entry: Entry,
        slot: ReservedSlot,
        node: AtomicU64,
    }
    loom::model(|| {
        let shared = Arc::new(Shared {
            revocation: Revocation::default(),
            own: Revocation::default(),
            entry: Entry::default(),
            slot: ReservedSlot::default(),
            node: AtomicU64::new(0),
        });
        let epoch = Revocations(&shared.revocation, &shared.own).epoch();
        let kept = shared.clone();
        let keeper = loom::thread::spawn(move || {
            kept.revocation.revoke();
            let was = kept.slot.take_over();
            (was, kept.node.load(Ordering::Relaxed))
        });
        let Shared { revocation, own, entry, slot, node } = &*shared;
        let mut is_keepers = None;
        if slot.is_free() {
            node.store(NODE, Ordering::Relaxed);
            if slot.begin_fill() {
                let entered = entry.enter(Revocations(revocation, own), epoch, 1);
                is_keepers = Some((
                    entered,
                    if entered { !slot.finish_fill() } else { !slot.cancel_fill() },
                ));
                entry.leave();
            }
        }
        // The thread's program frees the message, unless the keeper has to.
        let ended = is_keepers == Some((true, false)) && slot.free();
        let (was, noted) = keeper.join().unwrap();
        assert!(slot.is_taken_over());
        assert!(was == SlotState::Free || noted == NODE, "a message for an unknown node");
        match (was, is_keepers) {
            (SlotState::Filling, Some((_, true))) => {}
            (SlotState::Filled, Some((true, false))) => assert!(!ended, "two have freed it"),
            (SlotState::Free, None | Some((false, false))) => {}
            (SlotState::Free, Some((true, false))) => assert!(ended, "nobody frees it"),
            other => panic!("{other:?}"),
        }
    });
}

/// A hostile peer may reset the word that the thread sleeps on.
#[test]
fn a_raised_flag_reaches_its_thread_whatever_a_peer_writes() {
    bounded().check(|| {
        let shared = Arc::new((AtomicU32::new(0), EventFlag::default(), AtomicU32::new(0)));
        let (hostile, theirs) = (shared.clone(), shared.clone());
        let stranger = loom::thread::spawn(move || hostile.0.store(0, Ordering::Relaxed));
        let keeper = loom::thread::spawn(move || {
            let (word, flag, news) = &*theirs;
            news.store(1, Ordering::Relaxed);
            flag.raise();
            Mailbox::new(word).nudge();
        });
        let (word, flag, news) = &*shared;
        if flag.begin_wait() {
            while !flag.is_raised() {
                let _ = flag.wait_on(Mailbox::new(word), None);
            }
        }
        assert_eq!(news.load(Ordering::Relaxed), 1);
        keeper.join().unwrap();
        stranger.join().unwrap();
        assert!(flag.is_waiting() && !EventFlag::default().is_waiting());
    });
}

/// A lane between a client, the pool and a thread that becomes dedicated: `ready` is the
/// announcement that loopers of the pool claim.
struct ServedLane {
    owner: LaneOwner,
    word: AtomicU32,
    ready: AtomicU32,
    serving: AtomicU32,
    taken: AtomicU32,
}

impl ServedLane {
    fn new() -> Arc<ServedLane> {
        let zero = || AtomicU32::new(0);
        let (word, ready, serving, taken) = (zero(), zero(), zero(), zero());
        Arc::new(ServedLane { owner: LaneOwner::default(), word, ready, serving, taken })
    }

    fn inbox(&self) -> Mailbox<'_> {
        Mailbox::new(&self.word)
    }

    fn announce(&self) {
        self.ready.fetch_or(1, Ordering::SeqCst);
    }

    /// The client posts a request, and announces it unless a reader has its eyes on the mailbox.
    fn post(&self) {
        if self.inbox().post() == Reader::Elsewhere {
            self.announce();
        }
    }

    /// A thread takes the request for the owner. False if the lane is not that owner's to serve.
    fn serve(&self, owner: Owner) -> bool {
        if !self.owner.start_serving(owner) {
            return false;
        }
        assert_eq!(self.serving.fetch_add(1, Ordering::Relaxed), 0, "one thread at a time");
        if !self.inbox().is_empty() {
            self.taken.fetch_add(1, Ordering::Relaxed);
            self.inbox().clear();
        }
        self.serving.fetch_sub(1, Ordering::Relaxed);
        self.owner.end_serving();
        true
    }

    /// A looper of the pool looks for an announced request.
    fn look_as_pool(&self) {
        if self.ready.swap(0, Ordering::SeqCst) == 1 && !self.serve(Owner::Pool) {
            self.announce();
        }
    }

    /// A thread owns the lane for a while, and takes a request that lies there.
    fn own_for_a_while(&self, thread: u32) {
        if self.owner.dedicate(thread) {
            if !self.owner.show_dedicated(self.inbox()) {
                self.serve(Owner::Dedicated(thread));
            }
            if self.owner.release(thread, self.inbox()) {
                self.announce();
            }
        }
    }

    /// A looper is pinned to the lane for a while.
    fn pin_for_a_while(&self) {
        if self.owner.pin(self.inbox()) {
            assert_eq!(self.serving.fetch_add(1, Ordering::Relaxed), 0, "one thread at a time");
            self.serving.fetch_sub(1, Ordering::Relaxed);
            if self.owner.unpin(self.inbox()) {
                self.announce();
            }
        }
    }

    fn assert_nothing_is_lost(&self) {
        let (taken, ready) =
            (self.taken.load(Ordering::Relaxed), self.ready.fetch_or(0, Ordering::SeqCst));
        assert_eq!(taken, u32::from(self.inbox().is_empty()), "a request is taken once");
        assert!(taken == 1 || ready == 1, "a request that lies there is announced");
        assert_eq!((self.owner.owner(), self.owner.is_served()), (Owner::Pool, false));
    }
}

#[test]
fn a_request_is_taken_once_while_its_lane_becomes_dedicated() {
    loom::model(|| {
        let lane = ServedLane::new();
        let (client, pool) = (lane.clone(), lane.clone());
        let client = loom::thread::spawn(move || client.post());
        let pool = loom::thread::spawn(move || pool.look_as_pool());
        lane.own_for_a_while(7);
        client.join().unwrap();
        pool.join().unwrap();
        lane.assert_nothing_is_lost();
    });
}

#[test]
fn a_request_is_taken_once_while_a_looper_is_pinned() {
    loom::model(|| {
        let lane = ServedLane::new();
        let (client, pool) = (lane.clone(), lane.clone());
        let client = loom::thread::spawn(move || client.post());
        let pool = loom::thread::spawn(move || pool.look_as_pool());
        lane.pin_for_a_while();
        client.join().unwrap();
        pool.join().unwrap();
        lane.assert_nothing_is_lost();
    });
}

/// The client writes any bits at any time: it may lose its own requests, and no more.
#[test]
fn a_hostile_client_never_has_two_threads_serve_its_lane() {
    loom::model(|| {
        let lane = ServedLane::new();
        lane.announce();
        let (client, pool) = (lane.clone(), lane.clone());
        let client = loom::thread::spawn(move || {
            client.word.store(u32::MAX, Ordering::Release);
            client.word.store(1, Ordering::Release);
        });
        let pool = loom::thread::spawn(move || pool.look_as_pool());
        lane.own_for_a_while(7);
        lane.pin_for_a_while();
        client.join().unwrap();
        pool.join().unwrap();
        assert_eq!((lane.owner.owner(), lane.owner.is_served()), (Owner::Pool, false));
    });
}

/// One thread's look finds the lane empty, and is about to forget its announcement. A looper that
/// watches the lane finds a request there of which only it knows, and leaves it.
#[test]
fn a_request_that_comes_during_a_look_is_left_for_the_next_one() {
    loom::model(|| {
        let lane = ServedLane::new();
        let ready = Arc::new(Lock::new(ReadyLanes::default()));
        ready.lock().announce(1);
        let (client, watcher, marks) = (lane.clone(), lane.clone(), ready.clone());
        let client = loom::thread::spawn(move || client.post());
        let watcher = loom::thread::spawn(move || {
            watcher.inbox().watch();
            if watcher.inbox().unwatch() {
                marks.lock().leave(0, false);
            }
        });
        if lane.inbox().is_empty() {
            let has_none = |_| lane.owner.is_served() || lane.inbox().is_empty();
            ready.lock().forget(1, has_none);
        }
        client.join().unwrap();
        watcher.join().unwrap();
        let is_announced = lane.ready.fetch_or(0, Ordering::SeqCst) == 1;
        assert!(is_announced || ready.lock().all() == 1);
    });
}

/// Each thread writes where the other one has written, once the lane is its own.
#[test]
fn a_lane_has_one_caller_at_a_time() {
    loom::model(|| {
        let lanes = Arc::new((ClientLanes::default(), AtomicU32::new(0)));
        let call = |(lanes, callers): &(ClientLanes, AtomicU32)| {
            if lanes.take_this(0) {
                let before = callers.load(Ordering::Relaxed);
                assert_eq!(before % 2, 0, "another caller has it");
                callers.store(before + 1, Ordering::Relaxed);
                callers.store(before + 2, Ordering::Relaxed);
                lanes.give(0);
                return 2;
            }
            0
        };
        let other = lanes.clone();
        let other = loom::thread::spawn(move || call(&other));
        let own = call(&lanes);
        let all = own + other.join().unwrap();
        assert_eq!(lanes.1.load(Ordering::Relaxed), all);
    });
}

/// A thread reserves a lane while it has it, and gives it back between two calls. Whoever asks for
/// any lane gets another one, at whichever moment.
#[test]
fn a_reserved_lane_is_not_taken_by_others() {
    loom::model(|| {
        let lanes = Arc::new(ClientLanes::default());
        assert!(lanes.take_this(0), "another call has the first one");
        let real_time = lanes.clone();
        let real_time = loom::thread::spawn(move || {
            let has_it = real_time.take_this(1);
            if has_it {
                real_time.reserve(1);
                real_time.give(1);
            }
            has_it
        });
        let is_taken = lanes.take(|_| false) == Some(1);
        assert!(real_time.join().unwrap() != is_taken);
    });
}

/// Two callers look for lanes that the server has given back.
#[test]
fn an_abandoned_lane_comes_back_once() {
    loom::model(|| {
        let lanes = Arc::new((ClientLanes::default(), AtomicU32::new(0)));
        assert!(lanes.0.take_this(0));
        lanes.0.abandon(0);
        let reclaim = |(lanes, renewed): &(ClientLanes, AtomicU32)| {
            lanes.reclaim(|_| true, |_| _ = renewed.fetch_add(1, Ordering::Relaxed));
            lanes.take_this(0)
        };
        let other = lanes.clone();
        let other = loom::thread::spawn(move || reclaim(&other));
        let own = reclaim(&lanes);
        assert!(own ^ other.join().unwrap(), "one of them has it");
        assert_eq!(lanes.1.load(Ordering::Relaxed), 1);
    });
}

/// A user uses one thing and tells the keeper, who withdraws it and offers another meanwhile.
#[test]
fn a_use_is_of_a_thing_that_is_kept() {
    const FIRST: u64 = 1;
    const SECOND: u64 = 2;
    /// The word, the thing that it is for, and the thing that has been used.
    type Shared = (AtomicU32, AtomicU64, AtomicU64);
    loom::model(|| {
        let shared: Arc<Shared> = Arc::default();
        let (word, thing, used) = &*shared;
        thing.store(FIRST, Ordering::Relaxed);
        UseCount::new(word).offer(1);
        let user = Arc::clone(&shared);
        let user = loom::thread::spawn(move || {
            let (word, thing, used) = &*user;
            if UseCount::new(word).try_use(|| thing.load(Ordering::Relaxed) == FIRST) {
                used.store(FIRST, Ordering::Release);
            }
        });
        let (count, mut kept) = (UseCount::new(word), (FIRST, 1));
        if count.withdraw(1) {
            thing.store(SECOND, Ordering::Relaxed);
            count.offer(2);
            kept = (SECOND, 2);
        }
        user.join().unwrap();
        let used = used.load(Ordering::Acquire);
        assert!(used == 0 || used == kept.0, "{used} of {kept:?}");
        let uses = if used == 0 { kept.1 } else { use_count::after(kept.1) };
        assert!(count.withdraw(uses), "every use has come");
    });
}
