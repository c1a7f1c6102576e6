//! The channels that this process has, by peer and by name; the lanes of a peer.

use crate::channel::Channel;
use crate::channel::returns::objects_in;
use crate::channel::table::Retired;
use crate::engine::Engine;
use crate::engine::real_time::Purpose;
use crate::sys::clock::now;
use crate::sys::packet::descriptors;
use baton_abi::control::{ChannelId, End, Identity, ProcessId, Reply, Request};
use baton_abi::lane::status;
use baton_shm::blocking::pause;
use baton_state::Manager;
use baton_state::State;
use baton_state::node::Node;
use baton_state::transaction::Refusal;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// How long a request is repeated while the broker answers `EAGAIN`: the peer, or the broker, has
/// yet to read earlier messages.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two such requests.
const ASK_PAUSE: Duration = Duration::from_millis(5);

/// Repeats a request while its answer is `EAGAIN`, for at most [`PATIENCE`].
fn patiently<T>(mut ask: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut began = None;
    loop {
        match ask() {
            Err(Errno::AGAIN) if now() - *began.get_or_insert_with(now) < PATIENCE => {
                pause(ASK_PAUSE);
            }
            answer => return answer,
        }
    }
}

impl Engine {
    /// A channel to a process, opened if there is none.
    pub fn channel_to(&self, peer: ProcessId) -> Result<Arc<Channel>, Errno> {
        if let Some(channel) = self.pool.channels.newest_to(peer) {
            return Ok(channel);
        }
        patiently(|| {
            // Of several threads that call for the first time at once, one opens the channel for
            // all.
            let _opening = self.pool.channels.opening.lock();
            self.pool.channels.newest_to(peer).map_or_else(|| self.open_channel(peer), Ok)
        })
    }

    pub(crate) fn open_channel(&self, peer: ProcessId) -> Result<Arc<Channel>, Errno> {
        let known = self.pool.channels.newest_to(peer).map(|channel| channel.id);
        self.pool.channels.lists().refused = None;
        let entry = self.lock().references.entry_at(peer);
        self.broker.ask(&Request::OpenChannel { target: peer, entry })?;
        self.take_events();
        let opened = || {
            let newest = self.pool.channels.newest_to(peer);
            newest.filter(|channel| Some(channel.id) != known)
        };
        // The peer may refuse the channel at any moment; the refusal is noted before the channel
        // goes.
        let mut newest = opened();
        if newest.is_none() && self.pool.channels.lists().refused.is_none() {
            // While too many descriptors are unread the broker keeps back further ones, and the
            // events after them.
            drop(self.pass_barrier());
            newest = opened();
        }
        let refused = self.pool.channels.lists().refused.take();
        match refused.filter(|(to, _)| *to == peer) {
            Some((_, errno)) => Err(errno),
            None => newest.ok_or(Errno::SRCH),
        }
    }

    /// A free lane to a process, on another channel if there is none.
    pub(crate) fn lane_to(
        &self,
        peer: ProcessId,
        purpose: Purpose,
    ) -> Result<(Arc<Channel>, usize), Errno> {
        if let Some(own) = self.reserved_lane(peer, purpose) {
            return Ok(own);
        }
        let (channel, lane) = self.any_lane_to(peer)?;
        self.reserve(&channel, lane);
        Ok((channel, lane))
    }

    fn any_lane_to(&self, peer: ProcessId) -> Result<(Arc<Channel>, usize), Errno> {
        let newest = self.channel_to(peer)?;
        if let Some(lane) = newest.take_lane() {
            return Ok((newest, lane));
        }
        if let Some(found) = self.pool.channels.free_lane(peer)? {
            return Ok(found);
        }
        let _opening = self.pool.channels.opening.lock();
        if let Some(found) = self.pool.channels.free_lane(peer)? {
            return Ok(found);
        }
        let another = self.open_channel(peer)?;
        let lane = another.take_lane().ok_or(Errno::AGAIN)?;
        Ok((another, lane))
    }

    /// Takes a channel up. If that fails the other end learns so from the broker's next answer or
    /// from the channel's socket. True if loopers have to look at the channel from now on.
    pub(crate) fn add_channel(
        &self,
        id: ChannelId,
        end: End,
        peer: Identity,
        fds: Result<Vec<OwnedFd>, Errno>,
    ) -> bool {
        let process = peer.process;
        self.accounts.set_descriptors(descriptors());
        let closer = self.closers.of(peer.uid, &self.accounts.of(peer.uid));
        let taken = fds.and_then(|fds| Channel::new(id, end, process, &closer, fds));
        let taken = taken.and_then(|channel| self.take_up(Arc::new(channel), peer));
        if let Err(errno) = taken {
            if end == End::Client {
                self.pool.channels.lists().refused = Some((process, errno));
            }
            self.broker.tell(&Request::CloseChannel { channel: id });
            if let Some(count) = self.pool.channels.count_refused() {
                let (pid, process) = (self.identity.pid, process.0);
                tracing::warn!(
                    target: "binder",
                    "{pid}: {count} channels refused, the last one with process {process}: {errno}"
                );
            }
        }
        taken.unwrap_or(false)
    }

    /// Lists a channel. True if loopers have to look at it.
    fn take_up(&self, channel: Arc<Channel>, peer: Identity) -> Result<bool, Errno> {
        let (id, end) = (channel.id, channel.end);
        let mut state = self.lock();
        if self.is_closed() {
            return Ok(false);
        }
        // No validation has to be revoked: a process keeps its identity from its first channel on.
        state.peers.entry(peer.process).or_default().identify(peer);
        self.pool.begin_as_recent(&channel);
        self.pool.channels.add(&channel);
        // The steps below take long in a process with many channels.
        drop(state);
        if end == End::Client {
            // What has come by now need not wake the control thread.
            channel.socket.take_introduction();
        }
        // The watch is edge-triggered: what is left for a later turn stays in the socket. It begins
        // after the channel is listed, because an edge comes once and the control thread has to
        // find the channel.
        if let Err(errno) = self.control.watch_channel(channel.socket.fd(), id.0) {
            self.with_state(|state| self.lose_channel(state, &channel, None));
            return Err(errno);
        }
        Ok(end == End::Server && !channel.is_inactive())
    }

    /// Takes a channel off the lists. `why` is written to the log.
    pub(crate) fn remove_channel(
        &self,
        state: &mut State,
        channel: &Channel,
        why: Option<&'static str>,
    ) {
        channel.ends().dead = true;
        channel.shut_down();
        // The control thread keeps the channel as long as a thread is inside an entry for it.
        channel.revocation.revoke();
        let removed = self.pool.channels.remove(channel);
        state.forget_offers(channel.id);
        self.carry_out_effects(state);
        if self.pool.channels.with(channel.peer).is_empty() {
            self.pool.channels.forget_waiting_grants(channel.peer);
        }
        if channel.end == End::Server {
            self.end_dedicated(channel.id, None);
            state.withdraw_vacant(channel.id);
            self.pool.wake_loopers_on_any_work();
            // Loopers that sleep on its bell choose other bells.
            removed.iter().for_each(|channel| self.pool.ring_removed(channel));
        }
        // The slow steps follow when no thread waits for the state.
        self.pool.channels.retire(removed.map(|channel| Retired { channel, why }));
        self.control.watchdog.expect();
    }

    /// Called by the control thread: drops the channels that have been removed.
    pub(crate) fn reclaim(&self) {
        let retired = self.pool.channels.take_retired();
        for Retired { channel, why } in &retired {
            self.control.forget(channel.socket.fd());
            if let Some(why) = why {
                let (pid, id, peer) = (self.identity.pid, channel.id.0, channel.peer.0);
                tracing::warn!(
                    target: "binder",
                    "{pid}: channel {id} with process {peer} ended: {why}"
                );
            }
        }
        if !retired.is_empty() {
            // A looper that sleeps on another channel's bell keeps the removed ones alive.
            self.pool.ring_own_bells();
        }
        let mut used = retired;
        used.retain_mut(|retired| {
            retired.why = None;
            self.operations.use_channel(&retired.channel)
        });
        if !used.is_empty() {
            // Their callers hear of the end soon.
            self.pool.channels.retire(used);
            self.control.watchdog.expect();
        }
    }

    /// The peer has broken the protocol: it loses the channel, and nobody else loses anything.
    pub fn end_channel(&self, state: &mut State, channel: &Channel, why: &'static str) {
        self.lose_channel(state, channel, Some(why));
    }

    /// Ends a channel: fails its calls and takes it off the lists.
    pub(crate) fn lose_channel(
        &self,
        state: &mut State,
        channel: &Channel,
        why: Option<&'static str>,
    ) {
        self.revoke_with(state, channel.peer);
        state.fail_channel(channel.id);
        self.carry_out_effects(state);
        self.remove_channel(state, channel, why);
        self.forget_tickets_without_channel(state, channel.peer);
        self.carry_out_effects(state);
    }

    /// Fails the calls on a channel that [was refused](Engine::was_refused), of which no fast call
    /// is left.
    pub(crate) fn fail_refused(&self, state: &mut State, channel: &Channel) {
        self.pool.channels.lists().refused = Some((channel.peer, Errno::MFILE));
        for (message, area) in channel.untaken_requests() {
            state.take_back_grants(channel.peer, &objects_in(&message, area, 0));
        }
        state.refuse_channel(channel.id);
    }

    /// Whether the server of a channel that has ended lives and has never taken it up: it lacks
    /// descriptors. The channel of a server that has ended may end before the broker's event comes,
    /// so the broker is asked.
    pub(crate) fn was_refused(&self, channel: &Channel) -> bool {
        let target = channel.peer;
        !channel.socket.was_taken_up()
            && self.broker.ask(&Request::IsFrozen { target }) != Err(Errno::SRCH)
    }

    /// The error of a call on a channel that has ended: dead, or `EMFILE` if the server has never
    /// taken it up.
    pub(crate) fn refusal_at_end(&self, channel: &Channel) -> Refusal {
        if self.was_refused(channel) { Refusal::failed(Errno::MFILE) } else { Refusal::dead() }
    }

    /// Gives the references of a peer's tickets back if no channel to the peer is left, on which
    /// their messages could come. The broker tells of a peer's death only those who have something
    /// of it.
    pub(crate) fn forget_tickets_without_channel(&self, state: &mut State, peer: ProcessId) {
        if peer != ProcessId::BROKER && self.pool.channels.with(peer).is_empty() {
            state.forget_tickets(peer);
        }
    }

    /// Refuses a call to a frozen process. `Ok(true)`: a one-way transaction waits until it is
    /// thawed.
    pub(crate) fn refuse_if_frozen(
        &self,
        channel: &Channel,
        one_way: bool,
    ) -> Result<bool, Refusal> {
        if channel.status_word(status::FROZEN) == 0 {
            return Ok(false);
        }
        self.broker.tell(&Request::FrozenTouched { target: channel.peer, two_way: !one_way });
        if one_way {
            return Ok(true);
        }
        Err(Refusal { command: baton_abi::uapi::BR_FROZEN_REPLY, errno: Errno::AGAIN })
    }

    /// Asks the broker for the context manager, unless it is known. A manager of whose death the
    /// program may have heard elsewhere counts as unknown.
    pub fn find_manager(&self) -> Result<(), Errno> {
        self.take_new_events();
        while self.lock().manager.is_none() {
            let asked = patiently(|| self.broker.ask(&Request::ContextManager))?;
            let Reply::Ticket { ticket } = asked else { return Err(Errno::PROTO) };
            self.take_events();
            let mut state = self.lock();
            let mut found = state.set_manager(ticket);
            if found.is_none() {
                // The ticket waits behind descriptors that the broker keeps back.
                self.unlock(state);
                state = self.pass_barrier();
                found = state.set_manager(ticket);
            }
            self.unlock(state);
            match found {
                Some(Manager::Known) => return Ok(()),
                Some(Manager::Dead) => {}
                None => return Err(Errno::PROTO),
            }
        }
        Ok(())
    }

    /// Makes a node of this process the context manager's. A refusal leaves it as it was: `EBUSY`
    /// if there is one, `EPERM` if the context is another user's.
    pub fn become_manager(&self, ptr: u64, cookie: u64, flags: u32) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.nodes.at(ptr).and_then(|id| state.nodes.get(id)).is_some_and(Node::may_manage) {
            return Err(Errno::BUSY);
        }
        let node = state.context_manager_node(ptr, cookie, flags);
        self.unlock(state);
        loop {
            let link = self.broker.link();
            let asked = link.ask(&Request::BecomeContextManager { node, flags });
            let mut state = self.lock();
            match asked {
                // The broker may have agreed before it died; then its successor knows the manager.
                Err(Errno::CONNREFUSED) if !state.is_of(link.era) => {}
                Ok(_) => return Ok(()),
                Err(errno) => {
                    state.not_context_manager(node);
                    self.unlock(state);
                    return Err(errno);
                }
            }
        }
    }
}
