//! In which mode a thread waits for the other end of a lane: by where the two run, found out once
//! for several waits.
//!
//! Either end may come to run elsewhere in the meantime. One wait is then in vain: after it the
//! thread sleeps, and finds out anew.

use super::Engine;
use super::spin::may_spin;
use crate::channel::{Channel, Placed};
use crate::thread::may_yield;
use std::cell::Cell;

/// Waits on a lane between two looks at where its two ends run.
const WAITS: u32 = 32;

/// What a thread does before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitMode {
    /// It lets the other end's thread by: see [`super::yield_first`].
    LetBy,
    /// It spins: see [`super::spin`].
    Spin,
    /// Nothing.
    #[default]
    Sleep,
}

/// That of one end's next waits on a lane. The other end is told every so often where this one
/// runs.
#[derive(Debug)]
pub(super) struct WaitPolicy {
    mode: Cell<WaitMode>,
    /// For how many waits it holds, at most.
    waits: u32,
    /// For how many more than this it does.
    left: Cell<u32>,
}

impl WaitPolicy {
    /// Those of a thread that waits there often.
    pub fn new() -> WaitPolicy {
        WaitPolicy { mode: Cell::default(), waits: WAITS, left: Cell::new(0) }
    }

    /// That of one wait.
    pub fn of_one(engine: &Engine, channel: &Channel, lane: u32) -> WaitPolicy {
        let (mode, _) = engine.mode(channel, lane, 1);
        WaitPolicy { mode: Cell::new(mode), waits: 1, left: Cell::new(0) }
    }

    /// Before the next wait, and what is posted before that.
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

    /// That of the wait.
    #[inline(always)]
    pub fn mode(&self) -> WaitMode {
        self.mode.get()
    }

    /// For how many waits before this it has held, if it is not to sleep.
    pub fn held(&self) -> u32 {
        self.waits - 1 - self.left.get()
    }

    /// Whether it holds for this wait, and no more.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        self.left.get() == 0
    }

    /// It has been in vain, or has not paid, and holds no more.
    pub fn forget(&self) {
        self.left.set(0);
    }

    /// The thread sleeps. If that was not to be, either end may be elsewhere.
    pub fn sleep(&self) {
        if self.mode() != WaitMode::Sleep {
            self.forget();
        }
    }
}

impl Engine {
    /// That of the calling thread's next waits for something on a lane, and of how many, which is
    /// not more than `most`.
    fn mode(&self, channel: &Channel, lane: u32, most: u32) -> (WaitMode, u32) {
        // Who lends its priority does so, and hears of the answer by that.
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
