//! The front end's part of a looper of the pool, which serves plain calls between two sleeps.

use crate::channel::Channel;
use baton_shm::futex::Wait;
use std::sync::Arc;

/// The channels at which loopers look.
pub type ActiveSet = Arc<Vec<Arc<Channel>>>;

/// The front end's part of a looper.
pub trait Server {
    /// Called before a sleep: forgets cached clients if the epoch has ended, and switches to these
    /// channels.
    fn forget_stale(&mut self, active: &ActiveSet);

    /// The lane that it served last: the index of its channel in `active`, and its number.
    fn last_lane(&self, active: &ActiveSet) -> Option<(usize, u32)>;

    /// Stays pinned to the lane that it served last until there is anything else to do. `None` if
    /// that would not pay.
    fn serve_pinned(&mut self, active: &ActiveSet, any_work: u32) -> Option<Wait>;

    /// Serves one plain call on these channels, if there is one. `posted`: there is one on
    /// [`Server::last_lane`].
    fn serve_next(&mut self, active: &ActiveSet, any_work: u32, posted: bool) -> Served;
}

/// The looper's next step after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It has served a call or found none, and waits.
    Wait,
    /// It returns to its program with the call that it has taken in.
    Leave,
    /// It has taken nothing in, and looks at everything, by the general path.
    Look,
}
