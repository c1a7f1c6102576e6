//! The channels that this process has, by peer and by number.

use super::Channel;
use crate::sys::clock::now;
use baton_abi::control::{ChannelId, End, MAX_OBJECTS, ProcessId};
use baton_abi::lane::ReturnedGrants;
use baton_shm::lock::{Guard, Lock};
use baton_shm::sync::Ordering;
use baton_state::account::Held;
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Up to so many channels every look for messages sees all of them.
pub(crate) const FEW: usize = 64;

/// Time between two log lines about refused channels.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The channels of an engine.
#[derive(Debug, Default)]
pub(crate) struct ChannelTable {
    lists: Lock<Lists>,
    /// Held while a channel is opened.
    pub opening: Lock<()>,
    /// Channels that have been removed.
    retired: Lock<Vec<Retired>>,
    /// Refused channels that have not been logged.
    unlogged: Lock<Unlogged>,
    /// Grants that found no room in their owners' rings.
    waiting: Lock<FxHashMap<ProcessId, Waiting>>,
    /// Whether there are channels in `full`. Written and read under the state's lock.
    any_full: AtomicBool,
    /// Channels whose oldest one-way transaction waits for room in the receive buffer.
    full: Lock<Vec<Arc<Channel>>>,
}

/// Grants of one owner that wait for room in its rings, by nodes: each with a share of what the
/// owner's user may give. The owner rings once there is room.
type Waiting = BTreeMap<u64, (ReturnedGrants, Option<Held>)>;

/// So many of one owner's wait without a share, as those of messages that were refused for want of
/// one.
const WAITING: usize = 2 * MAX_OBJECTS;

/// A channel that is on no list any more, and the warning about its end: a log may keep its writer
/// waiting, so the warning is written when no lock is held.
#[derive(Debug)]
pub(crate) struct Retired {
    pub channel: Arc<Channel>,
    pub why: Option<&'static str>,
}

/// A line of the log that is written once in [`LOG_PAUSE`] at most.
#[derive(Debug, Default)]
struct Unlogged {
    count: u64,
    written: Option<Instant>,
}

/// The lists of channels.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    by_id: FxHashMap<ChannelId, Arc<Channel>>,
    incoming: Vec<Arc<Channel>>,
    /// The incoming channels while they are at most [`FEW`]. The list is replaced as a whole, so
    /// that a look only counts one reference.
    few: Arc<Vec<Arc<Channel>>>,
    /// The incoming channels at which loopers look: see [`crate::wait::active_set`].
    pub active: Arc<Vec<Arc<Channel>>>,
    /// All channels with a peer, as client and as server, oldest first.
    by_peer: FxHashMap<ProcessId, Vec<Arc<Channel>>>,
    /// The last refused channel to a server: its peer and the error.
    pub refused: Option<(ProcessId, Errno)>,
}

impl Lists {
    /// All channels.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Channel>> {
        self.by_id.values()
    }

    /// Whether a channel is on the lists.
    pub fn has(&self, id: ChannelId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// The number of channels on which this process is called.
    pub fn n_incoming(&self) -> usize {
        self.incoming.len()
    }

    /// The channels on which a process is called, oldest first.
    fn to(&self, peer: ProcessId) -> impl DoubleEndedIterator<Item = &Arc<Channel>> {
        let all = self.by_peer.get(&peer).into_iter().flatten();
        all.filter(|channel| channel.end == End::Client)
    }

    fn add(&mut self, channel: &Arc<Channel>) {
        if channel.end == End::Server {
            self.incoming.push(Arc::clone(channel));
            self.count_again();
            if self.active.len() < FEW || !channel.deactivate() {
                Arc::make_mut(&mut self.active).push(Arc::clone(channel));
            }
        }
        self.by_peer.entry(channel.peer).or_default().push(Arc::clone(channel));
        self.by_id.insert(channel.id, Arc::clone(channel));
    }

    fn remove(&mut self, channel: &Channel) -> Option<Arc<Channel>> {
        let is_other = |other: &Arc<Channel>| !std::ptr::eq(&raw const **other, channel);
        if channel.end == End::Server {
            if let Some(place) = self.incoming.iter().position(|other| !is_other(other)) {
                self.incoming.swap_remove(place);
            }
            self.count_again();
            if !self.active.iter().all(is_other) {
                Arc::make_mut(&mut self.active).retain(is_other);
            }
        }
        if let Entry::Occupied(mut all) = self.by_peer.entry(channel.peer) {
            all.get_mut().retain(is_other);
            if all.get().is_empty() {
                all.remove();
            }
        }
        self.by_id.remove(&channel.id)
    }

    fn count_again(&mut self) {
        let few = if self.incoming.len() <= FEW { &self.incoming[..] } else { &[] };
        if few.len() != self.few.len() || !few.is_empty() {
            self.few = Arc::new(few.to_vec());
        }
    }
}

impl ChannelTable {
    /// Locks the lists. Hold the lock for a look only, under the state's lock or alone.
    pub fn lists(&self) -> Guard<'_, Lists> {
        self.lists.lock()
    }

    /// Locks the lists in a child of fork, where a thread of the parent may hold the lock for ever.
    pub fn lists_in_child(&self) -> Option<Guard<'_, Lists>> {
        self.lists.try_lock()
    }

    /// A channel by its number.
    pub fn get(&self, id: ChannelId) -> Option<Arc<Channel>> {
        self.lists().by_id.get(&id).cloned()
    }

    /// A list of all channels.
    pub fn all(&self) -> Vec<Arc<Channel>> {
        self.lists().all().cloned().collect()
    }

    /// A list of the channels on which this process is called. The copy takes long if there are
    /// many.
    pub fn incoming(&self) -> Vec<Arc<Channel>> {
        self.lists().incoming.clone()
    }

    /// The channels that every look visits: all channels if they are few, else the active ones.
    pub fn watched(&self) -> Arc<Vec<Arc<Channel>>> {
        let lists = self.lists();
        let few = lists.incoming.len() <= FEW;
        Arc::clone(if few { &lists.few } else { &lists.active })
    }

    /// The channels at which loopers look.
    pub fn active(&self) -> Arc<Vec<Arc<Channel>>> {
        Arc::clone(&self.lists().active)
    }

    /// The channels with a process, oldest first.
    pub fn with(&self, peer: ProcessId) -> Vec<Arc<Channel>> {
        self.lists().by_peer.get(&peer).cloned().unwrap_or_default()
    }

    /// The newest channel on which a process is called.
    pub fn newest_to(&self, peer: ProcessId) -> Option<Arc<Channel>> {
        self.lists().to(peer).next_back().cloned()
    }

    /// A free lane to a process, on the oldest channel that has one.
    pub fn free_lane(&self, peer: ProcessId) -> Result<Option<(Arc<Channel>, usize)>, Errno> {
        let all: Vec<_> = self.lists().to(peer).cloned().collect();
        for channel in all {
            if let Some(lane) = channel.take_lane() {
                return Ok(Some((channel, lane)));
            }
        }
        Ok(None)
    }

    /// Revokes the validated calls from the peer and to it.
    pub fn revoke_entries_with(&self, peer: ProcessId) {
        let lists = self.lists();
        let with = lists.by_peer.get(&peer).into_iter().flatten();
        with.for_each(|channel| channel.revocation.revoke());
    }

    /// Puts a channel on the lists.
    pub fn add(&self, channel: &Arc<Channel>) {
        self.lists().add(channel);
    }

    /// Takes a channel off the lists, if it is there.
    pub fn remove(&self, channel: &Channel) -> Option<Arc<Channel>> {
        let removed = self.lists().remove(channel);
        if channel.end == End::Server {
            self.full.lock().retain(|full| full.id != channel.id);
        }
        removed
    }

    /// Keeps removed channels for the control thread, which drops them.
    pub fn retire(&self, retired: impl IntoIterator<Item = Retired>) {
        self.retired.lock().extend(retired);
    }

    /// The channels that have been retired since.
    pub fn take_retired(&self) -> Vec<Retired> {
        std::mem::take(&mut self.retired.lock())
    }

    /// Counts a refused channel. Returns the number of unlogged ones if it is time for a log line.
    pub fn count_refused(&self) -> Option<u64> {
        let mut unlogged = self.unlogged.lock();
        unlogged.count += 1;
        if unlogged.written.is_some_and(|last| now() - last < LOG_PAUSE) {
            return None;
        }
        unlogged.written = Some(now());
        Some(std::mem::take(&mut unlogged.count))
    }

    /// Returns grants to their owner. Those that find no room in the owner's rings wait, where
    /// those of one node are one record. Grants of an owner without a channel are dropped: it
    /// counts them until this process ends. `EDQUOT` if so many wait for this owner's user that no
    /// more may: it reads none.
    pub fn return_grants(
        &self,
        owner: ProcessId,
        returned: &[ReturnedGrants],
    ) -> Result<(), Errno> {
        let mut waiting = self.waiting.lock();
        let Some(channel) = self.lists().by_peer.get(&owner).and_then(|all| all.first().cloned())
        else {
            waiting.remove(&owner);
            return Ok(());
        };
        let n_put = match waiting.contains_key(&owner) {
            true => 0,
            false => self.put_returned(owner, returned.iter().copied()),
        };
        for returned in &returned[n_put..] {
            let of_owner = waiting.entry(owner).or_default();
            let n_waiting = of_owner.len();
            match of_owner.entry(returned.node) {
                btree_map::Entry::Occupied(mut waiting) => {
                    let (waiting, _) = waiting.get_mut();
                    waiting.strong = waiting.strong.saturating_add(returned.strong);
                    waiting.all = waiting.all.saturating_add(returned.all);
                }
                btree_map::Entry::Vacant(none) => {
                    let share = channel.share_of_handles();
                    if share.is_none() && n_waiting >= WAITING {
                        return Err(Errno::DQUOT);
                    }
                    none.insert((*returned, share));
                }
            }
        }
        Ok(())
    }

    /// Returns the grants that wait, as far as there is room now.
    pub fn return_waiting_grants(&self) {
        self.waiting.lock().retain(|owner, waiting| {
            self.put_waiting(*owner, waiting);
            !waiting.is_empty()
        });
    }

    /// A channel with this owner may have room now.
    pub fn return_waiting_grants_to(&self, owner: ProcessId) {
        if let Entry::Occupied(mut waiting) = self.waiting.lock().entry(owner) {
            self.put_waiting(owner, waiting.get_mut());
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
    }

    /// The owner is dead, or there is no channel with it any more: nothing goes back.
    pub fn forget_waiting_grants(&self, owner: ProcessId) {
        self.waiting.lock().remove(&owner);
    }

    fn put_waiting(&self, owner: ProcessId, waiting: &mut Waiting) {
        let n_put = self.put_returned(owner, waiting.values().map(|(returned, _)| *returned));
        (0..n_put).for_each(|_| drop(waiting.pop_first()));
    }

    /// Puts grants into the rings of channels that their owner has taken up, until these are full,
    /// and rings. Returns how many found room.
    fn put_returned(
        &self,
        owner: ProcessId,
        returned: impl Iterator<Item = ReturnedGrants>,
    ) -> usize {
        let mut returned = returned.peekable();
        let mut n_put = 0;
        for channel in self.with(owner) {
            let mut ends = channel.ends();
            if ends.dead || !channel.socket.was_taken_up() {
                continue;
            }
            let before = n_put;
            // An owner that has written an impossible position gets nothing there.
            while let Some(first) = returned.peek()
                && channel.put_returned(&mut ends, first) == Ok(true)
            {
                returned.next();
                n_put += 1;
            }
            if n_put > before {
                channel.socket.ring();
            }
        }
        n_put
    }

    /// With the state's lock held: the oldest one-way transaction of the channel's ring, or of a
    /// lane's, waits for room.
    pub fn wait_for_room(&self, channel: Arc<Channel>, lane: Option<usize>) {
        if !channel.wait_for_room(lane) {
            self.full.lock().push(channel);
        }
        self.any_full.store(true, Ordering::Relaxed);
    }

    /// With the state's lock held: whether a one-way transaction waits for room.
    pub fn has_full(&self) -> bool {
        self.any_full.load(Ordering::Relaxed)
    }

    /// With the state's lock held: no channel waits for room any more. True if one did.
    pub fn end_waits_for_room(&self) -> bool {
        if !self.any_full.swap(false, Ordering::Relaxed) {
            return false;
        }
        let full = std::mem::take(&mut *self.full.lock());
        full.iter().for_each(|channel| channel.end_wait_for_room());
        !full.is_empty()
    }
}
