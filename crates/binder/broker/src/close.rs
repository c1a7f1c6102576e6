//! Connections are closed, and the log tells why.

use crate::clock::now;
use crate::close_reason::CloseReason;
use crate::closing::close_later;
use crate::peer::Credentials;
use crate::poll::ConnectionId;
use crate::run::Broker;

/// Most requests that the broker reads from an exited process: more than fit into its socket.
const MAX_FINAL_REQUESTS: u32 = 4096;

impl Broker {
    /// The process exited or closed its event socket. Requests that it sent before still count: the
    /// broker closes the connection once it has read them.
    pub fn process_exited(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.exiting.get_or_insert(MAX_FINAL_REQUESTS);
            self.enqueue(id);
        }
    }

    /// Closes a connection for `why`. An engine's process counts as dead from here on, and the
    /// engines that had to do with it get [`Event::Dead`](baton_abi::control::Event::Dead).
    pub fn close(&mut self, id: ConnectionId, why: CloseReason) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let user = connection.credentials.uid;
        match connection.engine().map(|engine| engine.process) {
            Some(process) => {
                self.trim_timer.add_work(self.state.holdings(process));
                self.carry_out(user, Vec::new(), Some((process, why)));
            }
            None => self.remove_connection(id, &why),
        }
    }

    /// Removes a connection and returns its amounts to the ledger. Closing the descriptors also
    /// removes them from the epoll, because no other process shares them.
    pub fn remove_connection(&mut self, id: ConnectionId, why: &CloseReason) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        let reader = connection.reader();
        self.ledger.descriptors.give_back(reader.user, connection.descriptors());
        match connection.engine() {
            Some(engine) => {
                let waited = engine.outbox.close(reader, &mut self.ledger);
                self.trim_timer.add_work(waited as u64);
            }
            None => self.remove_non_engine(reader.user, id),
        }
        let unsent = connection.unsent.take();
        unsent.and_then(|unsent| unsent.descriptor).into_iter().for_each(close_later);
        self.blocked.remove(&id);
        self.unanswered.remove(&id);
        self.log_close(&connection.credentials, why);
    }

    /// Removes a connection from those that are no engine's, because it closed or became an
    /// engine's.
    pub fn remove_non_engine(&mut self, user: u32, id: ConnectionId) {
        let of_user = self.non_engines.get_mut(&user).expect("every such connection is listed");
        of_user.remove(&id);
        if of_user.is_empty() {
            self.non_engines.remove(&user);
        }
    }

    /// Logs why the broker closed a connection. A throttle keeps peers from filling the log.
    pub fn log_close(&mut self, who: &Credentials, why: &CloseReason) {
        let Credentials { pid, uid, .. } = who;
        if matches!(why, CloseReason::Ended) {
            return tracing::debug!(pid, uid, "connection ended");
        }
        if let Some(n_unlogged) = self.log_throttle.admit(now()) {
            tracing::warn!(pid, uid, n_unlogged, "closed a connection that {why}");
        }
    }
}
