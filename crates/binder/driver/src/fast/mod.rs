//! The fast path: calls that bypass the state.
//!
//! A call is *plain* if it is two-way, carries at most [`INLINE_BYTES`] and no objects, and goes by
//! a handle that the thread has called before, to a looper that has served this client and this
//! node before. Neither end takes a lock or allocates. Like it goes a call, or a reply, with few
//! descriptors, and nodes and handles that both ends know ([`references`]): each end counts these
//! under the state's lock. Every other transaction takes the general path.
//!
//! A thread remembers what the general path has checked, together with an epoch. The check holds as
//! long as the epoch stands. [`Engine::revoke`] ends the epoch before the state learns anything
//! that could change a check (an event of the broker, the end of a channel). It also turns every
//! operation in flight into the frame on its thread's stack that the general path would have made:
//! the state has the operation from then on.
//!
//! A change that concerns one peer alone (its channels, references or death) ends the epochs of
//! that peer's channels only ([`Engine::revoke_with`]), because any process can cause such changes
//! as often as it likes.
//!
//! **Invariant**: until a transaction is answered, either the state or exactly one [`InFlight`]
//! knows it; the status page counts it in both cases.
//!
//! [`INLINE_BYTES`]: crate::channel::INLINE_BYTES
//! [`InFlight`]: crate::engine::in_flight::InFlight
//! [`Engine::revoke`]: crate::engine::Engine::revoke
//! [`Engine::revoke_with`]: crate::engine::Engine::revoke_with

mod buffered;
mod call;
mod client_cache;
mod copied_payload;
mod dedicated_uapi;
mod lane_cache;
mod local;
mod own_lane;
mod pinned;
mod receiver;
mod references;
mod route_cache;
mod serve;
mod take_over;
#[cfg(test)]
pub(crate) mod tests;
mod uapi_thread;

pub(crate) use buffered::{Buffered, FastRead, LocalObject, SHORT_BYTES};
pub use call::Outcome;
pub use copied_payload::CopiedPayload;
pub use lane_cache::LaneCache;
pub use local::while_serving;
pub use pinned::PinnedLooper;
pub use references::{Carries, Nothing, References};
pub use route_cache::RouteCache;
pub use serve::{Answered, Taken};
