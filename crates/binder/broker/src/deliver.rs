//! Carries out the effects that the state decided on.

use crate::close_reason::CloseReason;
use crate::connection::Answer;
use crate::outbox::{Backlog, SocketFailed};
use crate::poll::{ConnectionId, Source};
use crate::run::{Broker, OUTBOXES_AT_ONCE};
use crate::state::Effect;
use baton_abi::control::{ChannelId, End, Event, ProcessId};
use baton_abi::lane::CHANNEL_BYTES;
use baton_shm::mapping;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::VecDeque;

/// Makes a pair of connected SOCK_SEQPACKET sockets in blocking mode.
pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)
}

fn channel_memory() -> Result<OwnedFd, Errno> {
    let memory = mapping::create("baton-channel", CHANNEL_BYTES)?;
    mapping::freeze_seals(&memory)?;
    Ok(memory)
}

impl Broker {
    /// Carries out effects in order, then closes the connections that this makes necessary, and
    /// whatever follows from those. Events count against the user `cause`. Returns the errno of a
    /// channel that could not be made.
    pub fn carry_out(
        &mut self,
        cause: u32,
        effects: Vec<Effect>,
        to_close: Option<(ProcessId, CloseReason)>,
    ) -> Option<Errno> {
        let mut work = VecDeque::from(effects);
        let mut to_close = VecDeque::from_iter(to_close);
        let mut failed = None;
        // Events that follow from a closed connection count against the user of that connection.
        let mut cause = cause;
        loop {
            while let Some(effect) = work.pop_front() {
                self.cost += 1;
                match effect {
                    Effect::Event { to, event } => {
                        if let Err(why) = self.send(to, &event, Vec::new(), cause) {
                            to_close.push_back((to, why.into()));
                        }
                        if let Event::RealTimeLane { looper: 1.., .. } = event
                            && let Some(engine) = self.engine(to)
                        {
                            engine.pages.wake_standby_looper();
                        }
                    }
                    Effect::OpenChannel { channel, client, server } => {
                        match self.open_channel(channel, (client, server), cause) {
                            Ok(problems) => to_close.extend(problems),
                            Err(errno) => {
                                let mut more = Vec::new();
                                self.state.end_channel(client, channel, &mut more);
                                work.extend(more);
                                failed = Some(errno);
                            }
                        }
                    }
                    Effect::SetFrozen { process, frozen } => {
                        if let Some(engine) = self.engine(process) {
                            engine.pages.set_frozen(frozen);
                        }
                    }
                    Effect::Promote { lane, thread, priority } => {
                        let mut more = Vec::new();
                        let _ = self.promote(lane, thread, priority, &mut more);
                        work.extend(more);
                    }
                    Effect::SetPriority { thread, priority } => {
                        Broker::set_priority(thread, priority)
                    }
                    Effect::Disconnect { process, why } => {
                        to_close.push_back((process, why.into()));
                    }
                }
            }
            let Some((process, why)) = to_close.pop_front() else {
                self.write_rules();
                return failed;
            };
            // A process that failed twice has already been removed.
            if let Some(id) = self.engines.remove(&process) {
                cause = self.connections.get(&id).map_or(cause, |it| it.credentials.uid);
                self.remove_connection(id, &why);
                self.restart_state.processes.remove(process);
                let mut more = Vec::new();
                self.state.remove_process(process, &mut more);
                work.extend(more);
            }
        }
    }

    /// Retries the replies that could not be sent, at most [`OUTBOXES_AT_ONCE`] of them.
    pub fn send_unsent_replies(&mut self) {
        let first: Vec<_> = self.unanswered.iter().take(OUTBOXES_AT_ONCE).copied().collect();
        for id in first {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let Some(unsent) = connection.unsent.take() else { continue };
            self.unanswered.remove(&id);
            match self.send_reply(id, unsent) {
                Ok(Answer::Sent) => self.enqueue(id),
                Ok(Answer::Waits) => {}
                Err(why) => self.close(id, why),
            }
        }
    }

    /// Sends the waiting events of a connection whose event socket has room again.
    pub fn flush(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let reader = connection.reader();
        let Some(engine) = connection.engine() else { return };
        let flushed = engine.outbox.flush(reader, &mut self.ledger);
        if let Err(why) = flushed.and_then(|backlog| self.wait_for(id, backlog)) {
            self.close(id, why.into());
        }
    }

    /// Decides when to look at an engine's outbox again: when its socket has room, or with the next
    /// round of blocked outboxes.
    fn wait_for(&mut self, id: ConnectionId, backlog: Backlog) -> Result<(), SocketFailed> {
        if backlog == Backlog::OthersUnread {
            self.blocked.insert(id);
        } else {
            self.blocked.remove(&id);
        }
        let engine = self.connections.get_mut(&id).and_then(|it| it.engine());
        let Some(engine) = engine else { return Ok(()) };
        let wanted = matches!(backlog, Backlog::Unread | Backlog::Full);
        let waited = std::mem::replace(&mut engine.waits_for_room, wanted);
        // Asking the epoll again makes it report at once if there is room by now.
        if waited == wanted && backlog != Backlog::Full {
            return Ok(());
        }
        let socket = engine.outbox.socket();
        self.poll.wait_for_room(socket, Source::Events(id), wanted).map_err(SocketFailed)
    }

    /// The engine of a process, while it is connected.
    pub fn engine(&mut self, process: ProcessId) -> Option<&mut crate::connection::Engine> {
        let id = self.engines.get(&process)?;
        self.connections.get_mut(id)?.engine()
    }

    /// Appends an event to a process's stream, together with its descriptors.
    fn send(
        &mut self,
        to: ProcessId,
        event: &Event,
        descriptors: Vec<OwnedFd>,
        cause: u32,
    ) -> Result<(), SocketFailed> {
        let Some(id) = self.engines.get(&to).copied() else { return Ok(()) };
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let reader = connection.reader();
        let Some(engine) = connection.engine() else { return Ok(()) };
        if engine.pages.put_ticket(event) {
            return Ok(());
        }
        let is_one_more = !engine.outbox.has_earlier(event);
        let backlog = engine.outbox.push(event, descriptors, cause, reader, &mut self.ledger)?;
        if is_one_more {
            engine.pages.count_event();
        }
        self.wait_for(id, backlog)
    }

    /// Makes a channel's memory and sockets and announces it to both ends. Returns the processes
    /// whose event socket failed; an errno means that nothing was sent.
    fn open_channel(
        &mut self,
        channel: ChannelId,
        (client, server): (ProcessId, ProcessId),
        cause: u32,
    ) -> Result<Vec<(ProcessId, CloseReason)>, Errno> {
        // Every step that can fail comes before the first event.
        let (client_memory, doorbells, descriptors) =
            (channel_memory()?, socket_pair()?, socket_pair()?);
        let copy = |file| rustix::io::fcntl_dupfd_cloexec(file, 0);
        let server_memory = copy(client_memory.as_fd())?;
        let status_page = copy(self.engine(server).ok_or(Errno::SRCH)?.pages.file())?;
        let event = |end, to, peer| {
            let peer = self.state.identity_for(to, peer).ok_or(Errno::SRCH)?;
            Ok(Event::Channel { channel, end, peer })
        };
        let to_server = event(End::Server, server, client)?;
        let to_client = event(End::Client, client, server)?;
        let server_gets = vec![server_memory, doorbells.0, descriptors.0];
        let client_gets = vec![client_memory, doorbells.1, descriptors.1, status_page];
        let mut problems = Vec::new();
        for (to, event, descriptors) in
            [(server, to_server, server_gets), (client, to_client, client_gets)]
        {
            if let Err(why) = self.send(to, &event, descriptors, cause) {
                problems.push((to, why.into()));
            }
        }
        Ok(problems)
    }
}
