//! What a thread remembers of its last calls, for the next one.

use super::cell::Cell;
use crate::channel::Channel;
use crate::engine::{Engine, lock, tid};
use baton_abi::control::NodeId;
use std::cell::{Cell as Counter, RefCell};
use std::sync::{Arc, Weak};

thread_local! {
    static LOCAL: RefCell<Local> = const { RefCell::new(Local::new()) };
    /// Transactions that the thread serves: what it calls meanwhile is nested, and has a chain.
    static SERVING: Counter<u32> = const { Counter::new(0) };
}

/// Of one engine, the last that the thread has used.
pub(super) struct Local {
    engine: u64,
    pub cell: Option<Arc<Cell>>,
    pub route: Option<Route>,
}

/// The way that a call went.
pub(super) struct Route {
    pub handle: u32,
    pub node: NodeId,
    pub channel: Weak<Channel>,
    pub lane: u32,
    pub epoch: u64,
}

impl Local {
    const fn new() -> Local {
        Local { engine: 0, cell: None, route: None }
    }

    fn is_of(&self, engine: &Engine) -> bool {
        self.engine == engine.number
    }
}

/// The calling thread's, if it is of this engine. `None` too if it is in use, by a signal handler's
/// victim, or gone with its thread.
#[inline]
pub(super) fn with<T>(engine: &Engine, body: impl FnOnce(&mut Local) -> Option<T>) -> Option<T> {
    let used = LOCAL.try_with(|local| {
        let mut local = local.try_borrow_mut().ok()?;
        if local.is_of(engine) { body(&mut local) } else { None }
    });
    used.ok().flatten()
}

/// Whether the calling thread's cell is this one.
pub(super) fn has(engine: &Engine, cell: &Cell) -> bool {
    let same = |own: &Arc<Cell>| std::ptr::eq(&**own, cell);
    with(engine, |local| Some(local.cell.as_ref().is_some_and(same))).unwrap_or(false)
}

/// Whether the thread serves a transaction.
pub(super) fn is_serving() -> bool {
    SERVING.get() > 0
}

/// Runs the program's code on a transaction.
pub(crate) fn while_serving<T>(body: impl FnOnce() -> T) -> T {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            SERVING.set(SERVING.get() - 1);
        }
    }
    SERVING.set(SERVING.get() + 1);
    let _back = Back;
    body()
}

impl Engine {
    /// The calling thread's cell, new if it has none.
    pub(super) fn cell(&self) -> Option<Arc<Cell>> {
        let known = with(self, |local| local.cell.clone());
        if known.is_some() {
            return known;
        }
        let cell = Arc::new(Cell::new(tid()));
        LOCAL
            .try_with(|local| {
                let mut local = local.try_borrow_mut().ok()?;
                (local.engine, local.route) = (self.number, None);
                local.cell = Some(Arc::clone(&cell));
                lock(&self.fast.cells).push(Arc::downgrade(&cell));
                Some(cell)
            })
            .ok()
            .flatten()
    }

    /// The calling thread's cell, if it has one.
    pub(super) fn own_cell(&self) -> Option<Arc<Cell>> {
        with(self, |local| local.cell.clone())
    }
}
