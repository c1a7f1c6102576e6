//! What the threads of a server share.

use crate::connection::Connection;
use crate::pending::Pending;
use crate::watches::Watches;

/// What the threads of a server share.
#[derive(Debug)]
pub struct Shared {
    /// The kernel's end of the file system.
    pub connection: Connection,
    /// The ioctls that have no answer yet.
    pub pending: Pending,
    /// The descriptors that the server watches.
    pub watches: Watches,
}
