//! What kernels of a cluster share, as it ships, under the model checker.

use super::envelope::{Envelope, SendFlags, Stage};
use super::inbox::{Change, Cursor, Inbox, Topic};
use super::termination::{IdleOutcome, TerminationDetector};
use super::wakeup::Sleep;
use crate::list::Slot;
use crate::message::{N_WORDS, Tag};
use crate::revocable::Revocable;
use crate::sync::{AtomicU32, Ordering};
use crate::thread_id::ThreadId;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const OWN: u32 = 1 << 12;
const PARTNER: u32 = 2 << 12;

fn change(from: u8, number: u16) -> Change {
    Change { from, topic: Topic::Sender, number }
}

/// What stands for the descriptor of a wakeup.
struct Readable(Mutex<bool>, Condvar);

impl Readable {
    fn new() -> Readable {
        Readable(Mutex::new(false), Condvar::new())
    }

    fn write(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut is_readable = self.0.lock().unwrap();
        while !*is_readable {
            is_readable = self.1.wait(is_readable).unwrap();
        }
    }

    fn take(&self) {
        self.wait();
        *self.0.lock().unwrap() = false;
    }
}

/// Writes, posts, and rings if it has to; the reader sleeps until it is rung for. What was written
/// before the last change is seen, and the reader does not sleep on.
#[test]
fn a_letter_is_not_slept_through() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new(2, 64));
        let sleep = Arc::new(SleepFlag::new());
        let rung = Arc::new(Readable::new());
        let written = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let writers = [0_u8, 1].map(|from| {
            let (inbox, sleep) = (Arc::clone(&inbox), Arc::clone(&sleep));
            let (rung, written) = (Arc::clone(&rung), Arc::clone(&written));
            thread::spawn(move || {
                written[usize::from(from)].store(1, Ordering::Relaxed);
                if inbox.put(change(from, 7)) && sleep.claim_wakeup() {
                    rung.write();
                }
            })
        });
        let mut cursor = Cursor::default();
        let mut seen = [false; 2];
        while seen != [true; 2] {
            sleep.announce();
            if inbox.is_empty_at_rest() {
                rung.wait();
            }
            if sleep.rise() {
                rung.take();
            }
            inbox.open(&mut cursor);
            while let Some(found) = inbox.take(&mut cursor) {
                let from = usize::from(found.from);
                assert_eq!(found, change(found.from, 7));
                assert_eq!(written[from].load(Ordering::Relaxed), 1);
                seen[from] = true;
            }
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

/// Two letters about the same thread, while the reader takes them: the last one's content is seen.
#[test]
fn the_last_of_two_letters_is_taken() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new(1, 64));
        let written = Arc::new(AtomicU32::new(0));
        let writer = {
            let (inbox, written) = (Arc::clone(&inbox), Arc::clone(&written));
            thread::spawn(move || {
                for value in [1, 2] {
                    written.store(value, Ordering::Relaxed);
                    inbox.put(change(0, 3));
                }
            })
        };
        let mut cursor = Cursor::default();
        let mut seen = 0;
        let mut look = || {
            inbox.open(&mut cursor);
            while inbox.take(&mut cursor).is_some() {
                seen = written.load(Ordering::Relaxed);
            }
            seen
        };
        look();
        writer.join().unwrap();
        assert_eq!(look(), 2);
    });
}

fn take(envelope: &Envelope) -> Option<[u64; 2]> {
    let version = envelope.version();
    if version.stage() != Stage::Offered || envelope.partner() != PARTNER {
        return None;
    }
    let next = if envelope.flags().has(SendFlags::CALL) { Stage::Waiting } else { Stage::Taken };
    let mut words = [0; N_WORDS];
    envelope.read(&mut words);
    envelope.exchange(version, next).then_some([words[0], words[1]])
}

/// A sender gives up and offers another message, while its partner takes one: what is taken is
/// whole, and taken by nobody's leave but the sender's.
#[test]
fn an_offer_is_taken_or_withdrawn() {
    loom::model(|| {
        let envelope = Arc::new(Envelope::new());
        envelope.offer(PARTNER, SendFlags::SEND, Tag::of_length(2), &[1, 1]);
        let partner = {
            let envelope = Arc::clone(&envelope);
            thread::spawn(move || take(&envelope))
        };
        let version = envelope.version();
        let withdrawn =
            version.stage() == Stage::Offered && envelope.exchange(version, Stage::Idle);
        if withdrawn {
            envelope.offer(PARTNER, SendFlags::SEND, Tag::of_length(2), &[2, 2]);
        }
        let taken = partner.join().unwrap();
        let is_taken = envelope.version().stage() == Stage::Taken;
        assert_eq!(taken.is_some(), is_taken);
        match (withdrawn, taken) {
            (false, taken) => assert_eq!(taken, Some([1, 1])),
            (true, taken) => assert!(taken.is_none_or(|words| words == [2, 2]), "{taken:?}"),
        }
    });
}

/// A call is taken and answered while the caller gives up: it gets the whole answer, or its partner
/// is told that nobody waits.
#[test]
fn an_answer_comes_whole_or_not_at_all() {
    loom::model(|| {
        let envelope = Arc::new(Envelope::new());
        envelope.offer(PARTNER, SendFlags::CALL, Tag::of_length(2), &[1, 1]);
        let partner = {
            let envelope = Arc::clone(&envelope);
            thread::spawn(move || {
                take(&envelope).is_some_and(|words| {
                    let words = words.map(|word| word + 1);
                    envelope.answer(PARTNER, Tag::of_length(2), &words)
                })
            })
        };
        let version = envelope.version();
        let may_end = matches!(version.stage(), Stage::Offered | Stage::Waiting);
        let has_ended = may_end && envelope.exchange(version, Stage::Idle);
        if has_ended {
            // It sends to somebody else.
            envelope.offer(OWN, SendFlags::SEND, Tag::of_length(2), &[8, 8]);
        }
        let answered = partner.join().unwrap();
        assert!(!has_ended || !answered);
        if answered {
            let mut words = [0; N_WORDS];
            assert_eq!(envelope.version().stage(), Stage::Answered);
            envelope.read(&mut words);
            assert_eq!((envelope.partner(), words[..2].to_vec()), (PARTNER, vec![2, 2]));
        }
    });
}

/// Notices that are left while the thread ends and another one gets its number are nobody else's,
/// and those of the later one are not lost.
#[test]
fn notices_are_for_one_thread() {
    loom::model(|| {
        let [early, late] = [1, 2].map(|version| ThreadId::new(0, Slot::new(0), version));
        let envelope = Arc::new(Envelope::new());
        envelope.set_name(Some(early));
        let stranger = {
            let envelope = Arc::clone(&envelope);
            thread::spawn(move || envelope.leave_notices(early, 1))
        };
        envelope.set_name(Some(late));
        let friend = {
            let envelope = Arc::clone(&envelope);
            thread::spawn(move || assert!(envelope.leave_notices(late, 2)))
        };
        let first = envelope.take_notices(late);
        friend.join().unwrap();
        stranger.join().unwrap();
        assert_eq!(first | envelope.take_notices(late), 2);
    });
}

/// A place is not used after its owner has it back.
#[test]
fn a_place_that_was_taken_back_is_not_used() {
    loom::model(|| {
        let lent = Arc::new(Revocable::nothing());
        let place = Box::new(AtomicU32::new(1));
        // SAFETY: it is taken back below, and lives until then.
        unsafe { lent.lend(&raw const *place) };
        let user = {
            let lent = Arc::clone(&lent);
            thread::spawn(move || {
                lent.with(|place: &AtomicU32| assert_eq!(place.load(Ordering::Relaxed), 1));
            })
        };
        lent.take_back();
        place.store(2, Ordering::Relaxed);
        user.join().unwrap();
    });
}

/// Two kernels rest, one of which sends the other a change before: neither goes home while the
/// change has not been read.
#[test]
fn all_is_over_when_all_rest_and_no_letter_is_left() {
    loom::model(|| {
        let termination = Arc::new(TerminationDetector::new(2));
        let inbox = Arc::new(Inbox::new(2, 64));
        let is_read = Arc::new(AtomicU32::new(0));
        let other = {
            let (termination, inbox) = (Arc::clone(&termination), Arc::clone(&inbox));
            let is_read = Arc::clone(&is_read);
            thread::spawn(move || {
                inbox.put(change(0, 1));
                if let IdleOutcome::Terminated { .. } = termination.rest(0, |_| inbox.is_empty()) {
                    assert_eq!(is_read.load(Ordering::Relaxed), 1);
                }
            })
        };
        let mut cursor = Cursor::default();
        if termination.rest(1, |_| inbox.is_empty()) == IdleOutcome::Sleep
            && termination.rise(1) == IdleOutcome::Sleep
        {
            inbox.open(&mut cursor);
            if inbox.take(&mut cursor).is_some() {
                is_read.store(1, Ordering::Relaxed);
            }
            let rest = termination.rest(1, |_| inbox.is_empty());
            let read = is_read.load(Ordering::Relaxed) == 1;
            assert!(read || rest == IdleOutcome::Sleep);
        }
        other.join().unwrap();
    });
}

/// A caller gives up while its partner reaches what it has granted: its memory is its own again
/// before it goes on.
#[test]
fn what_is_granted_is_not_reached_after_the_wait() {
    loom::model(|| {
        let envelope = Arc::new(Envelope::new());
        let memory = Arc::new(loom::cell::UnsafeCell::new(0));
        envelope.wait(PARTNER, SendFlags::CALL);
        let partner = {
            let (envelope, memory) = (Arc::clone(&envelope), Arc::clone(&memory));
            thread::spawn(move || {
                let version = envelope.version();
                if version.stage() != Stage::Waiting || !envelope.exchange(version, Stage::Copying)
                {
                    return true;
                }
                // SAFETY: the model checker says whether somebody else is there.
                memory.with_mut(|memory| unsafe { *memory = 1 });
                envelope.end_copy()
            })
        };
        let version = envelope.version();
        let is_over = match version.stage() {
            Stage::Waiting => envelope.exchange(version, Stage::Idle),
            Stage::Copying if envelope.exchange(version, Stage::Revoking) => {
                while envelope.version().stage() != Stage::Revoked {
                    thread::yield_now();
                }
                true
            }
            _ => false,
        };
        if is_over {
            // SAFETY: the same.
            memory.with_mut(|memory| unsafe { *memory = 2 });
        }
        let needs_no_change = partner.join().unwrap();
        assert_eq!(needs_no_change, envelope.version().stage() != Stage::Revoked);
    });
}
