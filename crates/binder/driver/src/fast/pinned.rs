//! A looper with one caller is pinned to that caller's lane: it sleeps on the lane's mailbox, and
//! the caller's post wakes it at once.
//!
//! ```text
//!             other loopers of the pool               a pinned looper
//!   client    READY, fence, bell, wake                wake
//!   looper    counts itself among the sleepers and    is counted all the time, and on no bell
//!             on the bell, looks at all channels,
//!             claims the READY bit, marks the lane
//! ```
//!
//! Another client sees a looper that sleeps elsewhere, and rings the doorbell. With each request
//! that it takes, the pinned looper also looks for requests on other lanes of its channel. A looper
//! is pinned after a number of requests in a row on one lane ([`super::route_cache`]), and until
//! there is anything else to do.
//!
//! Each client may have a pinned looper of its own, as long as another looper sleeps for all other
//! clients. If that one takes a request, a pinned looper that sleeps returns to the pool.
//!
//! **Invariant**: a pinned looper owns its lane ([`baton_shm::lane_owner`]). See ADR
//! [0036](../../../../../../docs/adr/0036-a-looper-dwells-at-a-lane.md) and
//! [0058](../../../../../../docs/adr/0058-a-pinned-looper-for-each-client.md).

use super::client_cache::{CachedNode, ClientCache};
use super::receiver::{Receiver, is_plain};
use super::serve::{Posted, Taken};
use crate::engine::Engine;
use crate::sys::clock::now_ns;
use crate::sys::spin::Spun;
use crate::wait::policy::{WaitMode, WaitPolicy};
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use baton_shm::sync::Ordering;
use std::cell::Cell;

/// A looper that is pinned to a lane until this is dropped.
pub struct PinnedLooper<'a, T> {
    engine: &'a Engine,
    at: Taken<'a>,
    client: &'a ClientCache<T>,
    /// The node that was called last.
    known: Cell<Option<&'a CachedNode<T>>>,
    any_work: u32,
    policy: WaitPolicy,
    sleeps: u32,
}

/// Sleeps between two looks at where the caller runs.
const FOLLOWS_EVERY: u32 = 8;

impl<'a, T> PinnedLooper<'a, T> {
    /// Pins the calling looper, which has validated the client at its epoch, and has seen
    /// `any_work`. `None` if the lane is not the pool's, or is served.
    pub(super) fn begin(
        engine: &'a Engine,
        at: Taken<'a>,
        client: &'a ClientCache<T>,
        any_work: u32,
    ) -> Option<PinnedLooper<'a, T>> {
        if !at.channel.pin(at.lane, at.via.lane) {
            return None;
        }
        engine.pool.begin_pinned();
        let (known, policy, sleeps) = (Cell::new(None), WaitPolicy::new(), 0);
        at.in_flight.set_lane(at.via, at.channel.peer);
        Some(PinnedLooper { engine, at, client, known, any_work, policy, sleeps })
    }

    /// The transaction that the looper has taken in last.
    pub fn taken(&self) -> &Taken<'a> {
        &self.at
    }

    /// Waits for a request, or for anything else to do.
    #[inline(always)]
    pub fn wait(&mut self) -> Result<Seen, Wait> {
        let PinnedLooper { engine, at: Taken { channel, lane, via, .. }, .. } = *self;
        self.policy.next(&engine.pool.settings, channel, via.lane);
        if self.policy.yields_to_peer(engine.broker.stamps, channel, via.lane, || lane.arrived()) {
            return Ok(Seen::Message);
        }
        self.spin_or_sleep()
    }

    #[inline(never)]
    fn spin_or_sleep(&mut self) -> Result<Seen, Wait> {
        let PinnedLooper { engine, at: Taken { channel, lane, via, .. }, any_work, .. } = *self;
        let is_wanted = || engine.pool.any_work.load(Ordering::SeqCst) != any_work;
        let longest = engine.pool.settings.longest_spin_ns;
        let mut since = None;
        let spinning = &engine.pool.spinning;
        if self.policy.mode() == WaitMode::Spin && !spinning.swap(true, Ordering::Acquire) {
            let spun = engine.pool.gaps.spin(longest, || match lane.inbox().look() {
                Seen::Nothing => (channel.has_news() || is_wanted()).then_some(Seen::Nothing),
                seen => Some(seen),
            });
            spinning.store(false, Ordering::Release);
            match spun {
                Spun::Saw(seen) => return Ok(seen),
                Spun::Since(start) => since = Some(start),
            }
        }
        self.policy.sleep();
        let seen = channel.sleep_pinned(lane, via.lane, is_wanted);
        if let Some(start) = since {
            engine.pool.gaps.record(now_ns() - start, longest);
        }
        if self.sleeps.is_multiple_of(FOLLOWS_EVERY) {
            match since {
                Some(_) => engine.pool.follow(&[channel]),
                // Another looper spins, or none may: a spin saves this looper no wake-up.
                None => engine.pool.follow_caller(channel),
            }
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        seen
    }

    /// The plain request that has come, and its node's object. `None` if it is another one, or if
    /// there is anything else to do.
    #[inline(always)]
    pub fn find(&self) -> Option<(Posted<'a>, &'a T)> {
        if self.is_wanted() || self.has_others() {
            return None;
        }
        let known = |node| self.client.cached_node_again(node, &self.known);
        let (posted, object) = self.client.find(self.at, is_plain, known)?;
        Some((Posted { is_pinned: true, ..posted }, object))
    }

    /// Takes the plain request in; the payload goes to `receiver`. False if it stays on its lane.
    #[inline(always)]
    pub fn take(&self, posted: &Posted<'a>, receiver: &mut impl Receiver) -> bool {
        let taken = receiver.fits(&posted.message) && receiver.take_request(self.engine, posted);
        if taken {
            self.end_wait();
        }
        taken
    }

    /// Takes a request with few references in, and finds its node's object. `None` if it is another
    /// one, or if there is anything else to do: the request stays on its lane.
    pub fn take_with_references(&self, receiver: &mut impl Receiver) -> Option<&'a T> {
        if self.is_wanted() || self.has_others() {
            return None;
        }
        let PinnedLooper { engine, at, client, .. } = *self;
        let object = client.take_in_with_references(engine, at, true, receiver)?;
        self.end_wait();
        Some(object)
    }

    #[inline(always)]
    fn end_wait(&self) {
        self.at.lane.inbox().clear_watched();
        self.at.channel.count_fruitful();
        self.engine.pool.note_pinned_request(self.at.channel);
    }

    /// Whether there is anything to do besides this lane's requests.
    #[inline(always)]
    pub fn is_disturbed(&self) -> bool {
        let PinnedLooper { engine, at, client, .. } = *self;
        let is_stale = engine.operations.revocations_of(at.channel).epoch() != client.epoch();
        self.is_wanted() || is_stale || self.has_others()
    }

    #[inline(always)]
    fn is_wanted(&self) -> bool {
        let PinnedLooper { engine, any_work, .. } = *self;
        engine.pool.any_work.load(Ordering::Acquire) != any_work || engine.broker.has_events()
    }

    /// Whether the client has announced anything on other lanes or in its ring.
    #[inline(always)]
    fn has_others(&self) -> bool {
        let Taken { channel, via, .. } = self.at;
        match channel.new_lanes() {
            Ok(0) => false,
            // The lane was announced before the looper was pinned.
            Ok(ready) if ready == 1 << via.lane => {
                channel.claim_ready(via.lane as usize);
                false
            }
            _ => true,
        }
    }
}

impl<T> Drop for PinnedLooper<'_, T> {
    fn drop(&mut self) {
        self.at.channel.unpin(self.at.lane, self.at.via.lane);
        self.engine.pool.end_pinned();
    }
}
