//! What the threads of a server share.

use crate::account::Account;
use crate::client_priority::Urgency;
use crate::connection::Connection;
use crate::pending::Pending;
use crate::traffic::Traffic;
use crate::watches::Watches;
use std::sync::Arc;

/// What the threads of a server share.
#[derive(Debug)]
pub struct Shared {
    /// The kernel's end of the file system.
    pub connection: Connection,
    /// The shares of the server that each user's programs take.
    pub account: Arc<Account>,
    /// The ioctls that have no answer yet.
    pub pending: Pending,
    /// The descriptors that the server watches.
    pub watches: Watches,
    /// How urgent the thread is that reads requests.
    pub urgency: Urgency,
    /// The traffic of clients, in a mount with logs.
    pub traffic: Option<Traffic>,
    /// Whether descriptors can be installed in clients.
    pub installs_fds: bool,
}
