//! Carrying out what the state decided.

use crate::close::Why;
use crate::outbox::{Backlog, Failed};
use crate::poll::{ConnectionId, Source};
use crate::requests::Answer;
use crate::run::{Broker, SETTLED_AT_ONCE};
use crate::state::Effect;
use baton_abi::control::{ChannelId, End, Event, ProcessId};
use baton_abi::lane::CHANNEL_BYTES;
use baton_shm::mapping;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::VecDeque;

/// A pair of connected sockets, each of which blocks.
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
    /// Carries out effects that a user caused, in order, then ends those who are to end for them,
    /// and whatever follows from that. The errno of a channel that could not be made.
    pub fn carry_out(
        &mut self,
        cause: u32,
        effects: Vec<Effect>,
        doomed: Option<(ProcessId, Why)>,
    ) -> Option<Errno> {
        let mut work = VecDeque::from(effects);
        let mut doomed = VecDeque::from_iter(doomed);
        let mut failed = None;
        // Of those who end for it, the end is their own doing.
        let mut cause = cause;
        loop {
            while let Some(effect) = work.pop_front() {
                self.cost += 1;
                match effect {
                    Effect::Event { to, event } => {
                        if let Err(why) = self.send(to, &event, Vec::new(), cause) {
                            doomed.push_back((to, why.into()));
                        }
                        if let Event::RealTimeLane { looper: 1.., .. } = event
                            && let Some(engine) = self.engine(to)
                        {
                            engine.front.wake_spare();
                        }
                    }
                    Effect::OpenChannel { channel, client, server } => {
                        match self.open_channel(channel, (client, server), cause) {
                            Ok(problems) => doomed.extend(problems),
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
                            engine.front.set_frozen(frozen);
                        }
                    }
                    Effect::Promote { place, thread, priority } => {
                        let mut more = Vec::new();
                        let _ = self.promote(place, thread, priority, &mut more);
                        work.extend(more);
                    }
                    Effect::SetPriority { thread, priority } => {
                        Broker::set_priority(thread, priority)
                    }
                    Effect::Disconnect { process, why } => {
                        doomed.push_back((process, why.into()));
                    }
                }
            }
            let Some((process, why)) = doomed.pop_front() else {
                self.write_rules();
                return failed;
            };
            // Whoever failed twice is gone already.
            if let Some(id) = self.engines.remove(&process) {
                cause = self.connections.get(&id).map_or(cause, |it| it.credentials.uid);
                self.forget(id, &why);
                let mut more = Vec::new();
                self.state.gone(process, &mut more);
                work.extend(more);
            }
        }
    }

    /// Sends replies that the system had no room for, as far as it has now.
    pub fn answer_later(&mut self) {
        let first: Vec<_> = self.unanswered.iter().take(SETTLED_AT_ONCE).copied().collect();
        for id in first {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let Some(unsent) = connection.unsent.take() else { continue };
            self.unanswered.remove(&id);
            match self.send_reply(id, unsent) {
                Ok(Answer::Given) => self.add_turn(id),
                Ok(Answer::Waits) => {}
                Err(why) => self.close(id, why),
            }
        }
    }

    /// Sends what has been waiting for room in an event socket.
    pub fn flush(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let reader = connection.reader();
        let Some(engine) = connection.engine() else { return };
        let flushed = engine.outbox.flush(reader, &mut self.ledger);
        if let Err(why) = flushed.and_then(|backlog| self.wait_for(id, backlog)) {
            self.close(id, why.into());
        }
    }

    /// An engine's outbox is looked at again when that may come to something.
    fn wait_for(&mut self, id: ConnectionId, backlog: Backlog) -> Result<(), Failed> {
        if backlog == Backlog::Crowded {
            self.crowded.insert(id);
        } else {
            self.crowded.remove(&id);
        }
        let engine = self.connections.get_mut(&id).and_then(|it| it.engine());
        let Some(engine) = engine else { return Ok(()) };
        let wanted = matches!(backlog, Backlog::Unread | Backlog::Full);
        let waited = std::mem::replace(&mut engine.waits_for_room, wanted);
        // Asked for again, it is said at once if there is room by now.
        if waited == wanted && backlog != Backlog::Full {
            return Ok(());
        }
        let socket = engine.outbox.socket();
        self.poll.wait_for_room(socket, Source::Events(id), wanted).map_err(Failed)
    }

    pub fn engine(&mut self, process: ProcessId) -> Option<&mut crate::connection::Engine> {
        let id = self.engines.get(&process)?;
        self.connections.get_mut(id)?.engine()
    }

    fn send(
        &mut self,
        to: ProcessId,
        event: &Event,
        descriptors: Vec<OwnedFd>,
        cause: u32,
    ) -> Result<(), Failed> {
        let Some(id) = self.engines.get(&to).copied() else { return Ok(()) };
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let reader = connection.reader();
        let Some(engine) = connection.engine() else { return Ok(()) };
        let backlog = engine.outbox.push(event, descriptors, cause, reader, &mut self.ledger)?;
        engine.front.count_event();
        self.wait_for(id, backlog)
    }

    /// Makes a channel and tells both ends; those who could not be told.
    fn open_channel(
        &mut self,
        channel: ChannelId,
        (client, server): (ProcessId, ProcessId),
        cause: u32,
    ) -> Result<Vec<(ProcessId, Why)>, Errno> {
        // Everything that can fail comes before the first event.
        let (client_memory, (client_socket, server_socket)) = (channel_memory()?, socket_pair()?);
        let copy = |file| rustix::io::fcntl_dupfd_cloexec(file, 0);
        let server_memory = copy(client_memory.as_fd())?;
        let front = copy(self.engine(server).ok_or(Errno::SRCH)?.front.file())?;
        let event = |end, peer| {
            let peer = self.state.identity(peer).ok_or(Errno::SRCH)?.clone();
            Ok(Event::Channel { channel, end, peer })
        };
        let (to_server, to_client) = (event(End::Server, client)?, event(End::Client, server)?);
        let server_gets = vec![server_memory, server_socket];
        let client_gets = vec![client_memory, client_socket, front];
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
