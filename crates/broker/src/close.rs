//! Ending a connection, for whatever reason, and telling the log.

use crate::outbox::Failed;
use crate::peer::Credentials;
use crate::poll::ConnectionId;
use crate::run::Broker;
use crate::state::Violation;
use rustix::io::Errno;
use std::time::Instant;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// No fault of anybody's.
    #[error("ended")]
    Ended,
    #[error("sent a malformed packet")]
    Malformed,
    #[error("sent a request that is not an observer's")]
    NotAnObserver,
    #[error("began with something else than a greeting")]
    NotGreeted,
    #[error("is one of more connections than its user may have")]
    Crowd,
    #[error("floods another with cancelled tickets")]
    Flood,
    #[error("does not read its events")]
    Deaf,
    #[error("does not read its replies")]
    Unread,
    #[error("could not be sent a reply: {0}")]
    Reply(Errno),
    #[error("was refused: {0}")]
    Refused(Errno),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Events(#[from] Failed),
}

/// Requests that a dead process can have left behind: more than its socket holds.
const LEFT_BEHIND: u32 = 4096;

impl Broker {
    /// The process ended, or gave up its event socket. What it sent before counts: it is closed
    /// when that has been read.
    pub fn leaves(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.leaving.get_or_insert(LEFT_BEHIND);
            self.add_turn(id);
        }
    }

    /// Closes a connection; if it was an engine's, its process is gone.
    pub fn close(&mut self, id: ConnectionId, why: Why) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let user = connection.credentials.uid;
        match connection.engine().map(|engine| engine.process) {
            Some(process) => {
                self.used.add(self.state.holdings(process));
                self.carry_out(user, Vec::new(), Some((process, why)));
            }
            None => self.forget(id, &why),
        }
    }

    /// Drops a connection. Its descriptors leave the epoll with their closing: nobody else has
    /// them.
    pub fn forget(&mut self, id: ConnectionId, why: &Why) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        let reader = connection.reader();
        self.ledger.descriptors.give_back(reader.user, connection.descriptors());
        match connection.engine() {
            Some(engine) => {
                let waited = engine.outbox.close(reader, &mut self.ledger);
                self.used.add(waited as u64);
            }
            None => self.dismiss_guest(reader.user, id),
        }
        self.crowded.remove(&id);
        self.unanswered.remove(&id);
        self.complain(&connection.credentials, why);
    }

    /// A guest left, or became an engine.
    pub fn dismiss_guest(&mut self, user: u32, id: ConnectionId) {
        let guests = self.guests.get_mut(&user).expect("every guest was counted");
        guests.remove(&id);
        if guests.is_empty() {
            self.guests.remove(&user);
        }
    }

    /// Says what a peer did wrong, so rarely that no peer fills the log.
    pub fn complain(&mut self, who: &Credentials, why: &Why) {
        let Credentials { pid, uid, .. } = who;
        if matches!(why, Why::Ended) {
            return tracing::debug!(pid, uid, "connection ended");
        }
        if let Some(unsaid) = self.complaints.admit(Instant::now()) {
            tracing::warn!(pid, uid, unsaid, "closed a connection that {why}");
        }
    }
}
