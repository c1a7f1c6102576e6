//! A way that a thread keeps for its calls by one handle: nothing of it is looked up.

use super::cell::Cell;
use super::local::{self, Route};
use super::{Body, Outcome, Receiver};
use crate::engine::Engine;
use crate::token::Stock;
use std::sync::Arc;

/// The way, as the thread's last call by the handle went. It keeps the lane, of which the thread's
/// other calls make use, too.
pub(crate) struct Line {
    cell: Arc<Cell>,
    route: Route,
    tokens: Stock,
}

impl Engine {
    /// The calling thread's way by the handle, if it has one.
    pub(crate) fn line(&self, handle: u32) -> Option<Line> {
        local::with(self, |local| {
            let (cell, route) = local.way(handle)?;
            Some(Line { cell: Arc::clone(cell), route: route.clone(), tokens: Stock::new() })
        })
    }

    /// Calls by a line of the calling thread's. [`Outcome::No`] if it leads nowhere any more, too.
    #[inline(always)]
    pub(crate) fn call_by_line(
        &self,
        line: &mut Line,
        named: (u32, u32),
        data: &[u8],
        receiver: &mut impl Receiver,
    ) -> Outcome {
        let Line { cell, route, tokens } = line;
        if route.is_of_other_rank() || local::is_serving() || self.has_events() {
            return Outcome::No;
        }
        let Ok(token) = tokens.next() else { return Outcome::No };
        match self.call_on((cell, route), token, named, Body::Bytes(data), receiver) {
            Outcome::Adopted(seen) => {
                line.leave(self);
                Outcome::Adopted(seen)
            }
            outcome => outcome,
        }
    }
}

impl Line {
    /// The lane is the state's, with the call that is on it.
    #[cold]
    fn leave(&self, engine: &Engine) {
        let _ = local::with(engine, |local| {
            local.leave(&self.route.lane);
            Some(())
        });
        self.route.lane.is_no_more();
    }
}
