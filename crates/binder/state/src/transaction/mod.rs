//! Transactions: how one leaves a process, and how one comes in.
//!
//! Leaving: `State::depart` checks and counts, the runner gets lane, ticket and descriptors,
//! `State::departed` makes it final (or `State::turn_back` undoes it) and the runner posts.
//! Coming in: `State::admit` checks the peer's right and takes room, the runner copies, then
//! `State::deliver` or `State::answered` queues it.

mod answer;
mod arrive;
mod depart;
mod fast;
mod few;
mod one_way;
mod refusal;
mod release;
mod slots;

pub use crate::message::{Buffer, BufferedMessage, HeldObject, Incoming, LaneId};
pub use crate::message::{LaneSender, Received, Serving};
pub use crate::reserved_slot::{ReservedSlot, SLOT_BYTES};
pub use arrive::{Arrival, Recipient, Room, Sender, Verdict};
pub use depart::{Departure, PinnedHandles, Target};
pub use refusal::Refusal;
pub use release::Freer;
