//! How a thread waits for the other end of a lane: it yields, spins or sleeps at once. That depends
//! on the processors of the two ends, at which the thread looks once for several waits.
//!
//! Either end may move to another processor in the meantime. Then one wait is in vain: the thread
//! sleeps, and looks again.

use super::Engine;
use super::spin::may_spin;
use crate::channel::{Channel, Placed};
use crate::thread::may_yield;
use std::cell::Cell;

/// Waits on a lane between two looks at the processors of its ends.
const WAITS: u32 = 32;

/// What a thread does before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitMode {
    /// It yields once to the other end's thread: see [`super::yield_first`].
    LetBy,
    /// It spins: see [`super::spin`].
    Spin,
    /// It sleeps at once.
    #[default]
    Sleep,
}

/// The mode of one end's next waits on a lane. At each look this end also shows the other one on
/// which processor it runs.
#[derive(Debug)]
pub(super) struct WaitPolicy {
    mode: Cell<WaitMode>,
    /// For how many waits a look holds, at most.
    waits: u32,
    /// For how many waits after this one it still holds.
    left: Cell<u32>,
}

impl WaitPolicy {
    /// For a thread that waits on the lane often.
    pub fn new() -> WaitPolicy {
        WaitPolicy { mode: Cell::default(), waits: WAITS, left: Cell::new(0) }
    }

    /// For one wait.
    pub fn of_one(engine: &Engine, channel: &Channel, lane: u32) -> WaitPolicy {
        let (mode, _) = engine.mode(channel, lane, 1);
        WaitPolicy { mode: Cell::new(mode), waits: 1, left: Cell::new(0) }
    }

    /// Begins the next wait, before the message that it waits to be answered is posted.
    #[inline(always)]
    pub fn next(&self, engine: &Engine, channel: &Channel, lane: u32) {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.find(engine, channel, lane),
        }
    }

    #[inline(never)]
    fn find(&self, engine: &Engine, channel: &Channel, lane: u32) {
        channel.show_processor();
        let (mode, waits) = engine.mode(channel, lane, self.waits);
        self.mode.set(mode);
        self.left.set(waits - 1);
    }

    /// The mode of this wait.
    #[inline(always)]
    pub fn mode(&self) -> WaitMode {
        self.mode.get()
    }

    /// How many waits before this one the look has served, if the mode is not to sleep.
    pub fn held(&self) -> u32 {
        self.waits - 1 - self.left.get()
    }

    /// Whether this is the last wait of the look.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        self.left.get() == 0
    }

    /// The wait has been in vain, or has not paid: the next one looks again.
    pub fn forget(&self) {
        self.left.set(0);
    }

    /// The thread sleeps. If the mode was another one, an end may have moved: the next wait looks
    /// again.
    pub fn sleep(&self) {
        if self.mode() != WaitMode::Sleep {
            self.forget();
        }
    }
}

impl Engine {
    /// The mode of the calling thread's next waits on a lane, and for how many of them it holds, at
    /// most `most`.
    fn mode(&self, channel: &Channel, lane: u32, most: u32) -> (WaitMode, u32) {
        // A thread that lends its priority sleeps on the lock that lends it.
        let may_let_by = || !channel.lends(lane) && may_yield();
        match channel.placed() {
            Placed::Unknown => (WaitMode::Sleep, 1),
            Placed::Together if may_let_by() => match channel.yield_first(lane).leave_out(most) {
                0 => (WaitMode::LetBy, most),
                waits => (WaitMode::Sleep, waits),
            },
            Placed::Apart if may_spin(&self.settings, true) => (WaitMode::Spin, most),
            Placed::Together | Placed::Apart => (WaitMode::Sleep, most),
        }
    }
}
