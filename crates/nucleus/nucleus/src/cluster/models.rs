//! The shared structures of a cluster, as they ship, under the loom model checker.

use super::envelope::{Envelope, SendFlags, Stage};
use super::inbox::{Change, Cursor, Inbox, Topic};
use super::termination::{IdleOutcome, TerminationDetector};
use super::wakeup::SleepFlag;
use crate::interrupt_line::InterruptLine;
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

/// A stand-in for the eventfd of a `Wakeup`.
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

/// Two writers post and wake the reader if they have to, while the reader sleeps again and again.
/// The reader sees everything that was written before each change, and does not sleep on.
#[test]
fn no_change_is_slept_through() {
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
            if sleep.end() {
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

/// A writer posts two changes of one thread while the reader takes changes. The reader sees the
/// content of the last one.
#[test]
fn the_last_of_two_changes_is_seen() {
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

/// Another OS thread raises the line while a kernel's OS thread does `last`, the last step before
/// one of its threads is preemptible on an OS thread. One of the two knows of the other.
fn a_raise_is_not_lost(prepare: fn(&InterruptLine), last: fn(&InterruptLine)) {
    loom::model(move || {
        let line = Arc::new(InterruptLine::default());
        prepare(&line);
        let raiser = {
            let line = Arc::clone(&line);
            thread::spawn(move || line.os_thread_to_signal())
        };
        last(&line);
        let looks = line.pending.load(Ordering::Relaxed) != 0;
        assert!(looks || raiser.join().unwrap() == 7);
    });
}

#[test]
fn a_raise_before_a_thread_is_preemptible_is_seen() {
    a_raise_is_not_lost(|line| line.begin(7), InterruptLine::add_preemptible);
}

#[test]
fn a_raise_before_a_kernel_runs_is_seen() {
    a_raise_is_not_lost(InterruptLine::add_preemptible, |line| line.begin(7));
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

/// A sender withdraws its message and offers another one while its partner takes one. The partner
/// takes one whole message, and none that was withdrawn.
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

/// A call is taken and answered while the caller gives up. The caller gets the whole answer, or the
/// partner is told that nobody waits.
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
            // The thread sends to another partner.
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

/// Notices are left while the thread ends and another thread gets its number. The later thread gets
/// its own notices and no others.
#[test]
fn notices_reach_only_their_thread() {
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

/// No user reaches the target after the owner has revoked the reference.
#[test]
fn a_revoked_reference_is_not_used() {
    loom::model(|| {
        let reference = Arc::new(Revocable::empty());
        let target = Box::new(AtomicU32::new(1));
        // SAFETY: the target lives until `revoke` below has returned.
        unsafe { reference.set(&raw const *target) };
        let user = {
            let reference = Arc::clone(&reference);
            thread::spawn(move || {
                reference.with(|target: &AtomicU32| assert_eq!(target.load(Ordering::Relaxed), 1));
            })
        };
        reference.revoke();
        target.store(2, Ordering::Relaxed);
        user.join().unwrap();
    });
}

/// One kernel posts a change to another, and then both are idle. The cluster does not terminate
/// while the change has not been read.
#[test]
fn a_cluster_terminates_when_all_are_idle_and_no_change_is_left() {
    loom::model(|| {
        let termination = Arc::new(TerminationDetector::new(2));
        let inbox = Arc::new(Inbox::new(2, 64));
        let is_read = Arc::new(AtomicU32::new(0));
        let other = {
            let (termination, inbox) = (Arc::clone(&termination), Arc::clone(&inbox));
            let is_read = Arc::clone(&is_read);
            thread::spawn(move || {
                inbox.put(change(0, 1));
                if let IdleOutcome::Terminated { .. } =
                    termination.report_idle(0, |_| inbox.is_empty())
                {
                    assert_eq!(is_read.load(Ordering::Relaxed), 1);
                }
            })
        };
        let mut cursor = Cursor::default();
        if termination.report_idle(1, |_| inbox.is_empty()) == IdleOutcome::Sleep
            && termination.report_busy(1) == IdleOutcome::Sleep
        {
            inbox.open(&mut cursor);
            if inbox.take(&mut cursor).is_some() {
                is_read.store(1, Ordering::Relaxed);
            }
            let rest = termination.report_idle(1, |_| inbox.is_empty());
            let read = is_read.load(Ordering::Relaxed) == 1;
            assert!(read || rest == IdleOutcome::Sleep);
        }
        other.join().unwrap();
    });
}

/// A caller gives up while its partner copies to its memory. The caller does not go on before the
/// copy has ended.
#[test]
fn granted_memory_is_not_reached_after_the_wait() {
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
                // SAFETY: the model checker reports any other access at the same time.
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
            // SAFETY: the model checker reports any other access at the same time.
            memory.with_mut(|memory| unsafe { *memory = 2 });
        }
        let needs_no_change = partner.join().unwrap();
        assert_eq!(needs_no_change, envelope.version().stage() != Stage::Revoked);
    });
}
