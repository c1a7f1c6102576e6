//! How each thread comes to the next [`Stage`] of a collection: by itself, when it sees its flag,
//! or by the collector while it is *safe*.
//!
//! A safe thread is *held* while the collector acts for it, but not kept: if it has to run
//! meanwhile, it does what the stage asks for as well. So each stage may be done twice, and the
//! collector goes on only when the thread has done it.
//!
//! The collector acts for all safe threads first, and then waits for one after the other. A thread
//! wakes it only while it waits for that very thread.
//!
//! Orders: a thread stores its state and then loads its attention; the collector stores the stage,
//! each thread's attention, and then loads the states. An [asymmetric fence](asymmetric_fence) lies
//! between, so that one of them sees the other. A thread whose attention is off has nothing to do:
//! it takes the attention off by an exchange, and then looks at the stage.

use crate::asymmetric_fence::{self, LightSide};
use crate::cards::{Cards, Mutator, Stage, Step};
use crate::sync::{
    self, AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed,
    Ordering::Release, Ordering::SeqCst, Thread, current, park,
};
use std::sync::{Arc, OnceLock};

/// Whether a thread may touch objects.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Running {
    Yes,
    Safe,
    /// Safe, and the collector acts for it
    Held,
}

/// One thread.
#[derive(Debug)]
pub struct Party {
    /// A [`Running`]
    pub(crate) running: AtomicU8,
    /// The thread is to look at what is asked of it
    attention: AtomicBool,
    light_side: LightSide,
    /// What a collector that counts has to know
    pub(crate) mutator: Option<Arc<Mutator>>,
}

impl Party {
    /// A thread that is safe. It has attention, as it may come while others are called.
    pub(crate) fn new(mutator: Option<Arc<Mutator>>) -> Party {
        let running = AtomicU8::new(Running::Safe as u8);
        let attention = AtomicBool::new(true);
        Party { running, attention, light_side: LightSide::new(), mutator }
    }

    /// No other living thread has this number.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn is_safe(&self) -> bool {
        self.running.load(SeqCst) != Running::Yes as u8
    }

    /// Whether the thread has to look at what is asked of it.
    #[inline(always)]
    pub(crate) fn has_attention(&self) -> bool {
        self.attention.load(Relaxed)
    }

    /// Lets the thread look at what is asked of it. Then [`fence`] is due.
    pub(crate) fn call(&self) {
        self.attention.store(true, Release);
    }

    /// The thread is about to look: it sees what was asked before [`Party::call`].
    pub(crate) fn heed(&self) {
        self.attention.swap(false, AcqRel);
    }

    /// The thread touches no object from now on. Then [`Handshake::tell`] is due, if the thread has
    /// attention.
    #[inline(always)]
    pub(crate) fn become_safe(&self) {
        self.running.store(Running::Safe as u8, Release);
        self.light_side.fence();
    }

    /// The thread may touch objects if it has no attention, or after [`Handshake::reach_due`].
    #[inline(always)]
    pub(crate) fn become_running(&self) {
        self.running.store(Running::Yes as u8, Release);
        self.light_side.fence();
    }
}

/// Comes between the calls of threads and the look at their states.
pub(crate) fn fence<'a>(called: impl Iterator<Item = &'a Party>) {
    asymmetric_fence::heavy_fence(called.map(|party| &party.light_side));
}

/// The stage that all threads are to reach, and the thread that waits for them.
#[derive(Debug, Default)]
pub struct Handshake {
    stage: AtomicU32,
    collector: OnceLock<Thread>,
    /// The [number](Party::number) of the thread for which the collector waits; 0 for none. No
    /// other one spends a system call on waking it.
    awaited: AtomicUsize,
}

impl Handshake {
    /// The stage that all threads are to reach. A new thread begins with it.
    pub(crate) fn stage(&self) -> Stage {
        Stage::of(self.stage.load(SeqCst))
    }

    /// The stage that a thread has to reach, if it has not.
    fn due<'a>(&self, party: &'a Party) -> Option<(&'a Mutator, Stage)> {
        let (mutator, stage) = (party.mutator.as_deref()?, self.stage());
        (mutator.stage() != stage).then_some((mutator, stage))
    }

    /// Whether a thread has to reach another stage.
    pub(crate) fn is_due(&self, party: &Party) -> bool {
        self.due(party).is_some()
    }

    /// Brings a running thread to the stage that is due; false if none is. `scan` marks what the
    /// thread's stack refers to.
    pub(crate) fn reach_due(&self, party: &Party, scan: impl FnOnce(&Cards)) -> bool {
        let Some((mutator, stage)) = self.due(party) else { return false };
        advance(mutator, stage, scan);
        self.wake(party);
        true
    }

    /// Lets the collector act for a thread that has just become safe.
    pub(crate) fn tell(&self, party: &Party) {
        if self.is_due(party) {
            self.wake(party);
        }
    }

    /// Wakes the collector if it waits for this thread, whose state has just changed: either the
    /// collector sees the state, or this thread sees that it is awaited.
    fn wake(&self, party: &Party) {
        sync::fence(SeqCst);
        if self.awaited.load(Relaxed) == party.number()
            && let Some(collector) = self.collector.get()
        {
            collector.unpark();
        }
    }

    /// Makes the calling thread the one that waits for the others.
    pub(crate) fn set_collector(&self) {
        self.collector.set(current()).expect("a VM has one collector");
    }

    /// Asks for a stage. Then threads are listed and called, and [`fence`] is due.
    pub(crate) fn ask(&self, stage: Stage) {
        self.stage.store(stage.number(), SeqCst);
    }

    /// Brings a thread that is safe to the stage that was asked for. False if it runs, and has to
    /// come there by itself.
    pub(crate) fn act_for(&self, party: &Party, scan: impl FnOnce(&Cards)) -> bool {
        let Some((mutator, stage)) = self.due(party) else { return true };
        let exchange = |from: Running, to: Running| {
            party.running.compare_exchange(from as u8, to as u8, SeqCst, SeqCst).is_ok()
        };
        let is_safe = exchange(Running::Safe, Running::Held);
        if is_safe {
            advance(mutator, stage, scan);
            // A failure means that the thread runs, and does the same.
            exchange(Running::Held, Running::Safe);
        }
        is_safe
    }

    /// Waits until a thread has reached the stage that was asked for.
    pub(crate) fn await_party(&self, party: &Party, scan: impl Fn(&Cards)) {
        self.awaited.store(party.number(), Relaxed);
        // Pairs with the one in `wake`.
        sync::fence(SeqCst);
        while self.is_due(party) {
            if !self.act_for(party, &scan) {
                park();
            }
        }
        self.awaited.store(0, Relaxed);
    }
}

/// Does what a stage asks of a thread.
fn advance(mutator: &Mutator, stage: Stage, scan: impl FnOnce(&Cards)) {
    if stage.step() == Step::Scanned {
        scan(mutator.cards());
    }
    mutator.advance(stage);
}
