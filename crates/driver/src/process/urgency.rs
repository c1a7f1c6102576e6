//! How urgently a transaction is served.

use super::Request;
use super::received::Place;
use crate::level;
use baton_state::level::Wanted;

/// How urgent a transaction, or a thread, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// At a nice value of -20 to 19.
    Nice(i8),
    /// At a real-time priority of 1 to 99.
    RealTime(u8),
}

impl Urgency {
    /// The calling thread's: as it was when it first asked, after the last
    /// [`priority_changed`](super::priority_changed).
    pub fn own() -> Urgency {
        Urgency::of(None)
    }

    fn of(wanted: Option<Wanted>) -> Urgency {
        match level::of_transaction(wanted).parts() {
            Ok(priority) => Urgency::RealTime(priority),
            Err(nice) => Urgency::Nice(nice),
        }
    }
}

impl Request<'_> {
    /// At which this transaction is to be served: its caller's, its object's least, or the serving
    /// thread's own, whichever is the most urgent. The thread may not have got it, for want of a
    /// right. For the thread that serves.
    pub fn urgency(&self) -> Urgency {
        match &self.received.place {
            Place::Buffer(incoming) => Urgency::of(Some(incoming.wanted())),
            // Such a transaction comes to a thread that has the right level already.
            Place::Here(_) => Urgency::own(),
        }
    }
}
