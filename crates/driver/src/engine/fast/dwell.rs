//! A looper with one caller dwells at that caller's lane: it sleeps on the lane's own word, which the caller's post
//! wakes without more ado.
//!
//! ```text
//!             a looper of the pool                    one that dwells at a lane
//!   client    READY, fence, bell, wake                wake
//!   looper    counts itself among the sleepers and    is counted all the time, and on no bell
//!             on the bell, looks at all channels,
//!             claims the READY bit, marks the lane
//! ```
//!
//! Nobody is sent away: whoever else wants a looper finds one that sleeps elsewhere, and rings the doorbell as for any
//! such. With each request that it takes the looper looks for others'. It dwells only while there is one warm channel,
//! after so many requests in a row on that lane, and until anything else is to be done.
//!
//! **Invariant**: whoever dwells at a lane serves it, whether there is a request or not: nobody else takes one there, nor
//! attends it. See [ADR 0036](../../../../../docs/adr/0036-a-looper-dwells-at-a-lane.md).

use super::seats::Client;
use super::serve::Taken;
use super::{PLACED_EVERY, Receiver};
use crate::channel::Placed;
use crate::clock::now_ns;
use crate::engine::Engine;
use crate::engine::spin::{Spun, may_spin};
use baton_abi::lane::front;
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use baton_shm::sync::Ordering;

/// A lane at which the calling looper dwells until this is dropped.
pub(crate) struct Dwelling<'a, T> {
    engine: &'a Engine,
    at: Taken<'a>,
    client: &'a Client<T>,
    any_work: u32,
    /// It is the looper of the process that may spin.
    spins: bool,
    waits: u32,
}

impl<'a, T> Dwelling<'a, T> {
    /// By what holds while the client's epoch and `any_work` stand. `None` if somebody is at the lane.
    pub(super) fn begin(
        engine: &'a Engine,
        at: Taken<'a>,
        client: &'a Client<T>,
        any_work: u32,
    ) -> Option<Dwelling<'a, T>> {
        if !at.channel.dwell(at.lane, at.via.lane) {
            return None;
        }
        engine.front.word(front::SLEEPERS).fetch_add(1, Ordering::SeqCst);
        Some(Dwelling { engine, at, client, any_work, spins: false, waits: 0 })
    }

    /// What it has taken in last.
    pub fn taken(&self) -> &Taken<'a> {
        &self.at
    }

    /// Waits for a message, or for anything else.
    #[inline(always)]
    pub fn wait(&mut self) -> Result<Seen, Wait> {
        let Dwelling { engine, at: Taken { channel, lane, via, .. }, any_work, .. } = *self;
        let is_wanted = || engine.any_work.load(Ordering::SeqCst) != any_work;
        let placed = channel.placed();
        let lets_by = engine.is_to_let_by(channel, via.lane, placed);
        if lets_by && engine.let_by(channel, via.lane, || lane.arrived()) {
            return Ok(Seen::Message);
        }
        let longest = engine.settings.longest_spin_ns;
        let mut since = None;
        if may_spin(&engine.settings, placed == Placed::Apart) && self.may_spin() {
            let spun = engine.gaps.spin(longest, || match lane.inbox().look() {
                Seen::Nothing => (channel.has_news() || is_wanted()).then_some(Seen::Nothing),
                seen => Some(seen),
            });
            match spun {
                Spun::Saw(seen) => return Ok(seen),
                Spun::Since(start) => since = Some(start),
            }
        }
        let seen = channel.sleep_dwelling(lane, via.lane, is_wanted);
        if let Some(start) = since {
            engine.gaps.learn(now_ns() - start, longest);
        }
        if self.waits.is_multiple_of(PLACED_EVERY) {
            engine.follow(&[channel]);
        }
        seen
    }

    fn may_spin(&mut self) -> bool {
        self.spins = self.spins || !self.engine.spinning.swap(true, Ordering::Acquire);
        self.spins
    }

    /// Takes the message in, and says what serves it. What it brought goes to `receiver`. `None` if it is not a
    /// transaction of the one shape, or there is anything else.
    #[inline(always)]
    pub fn take(&mut self, receiver: &mut impl Receiver) -> Option<&'a T> {
        let Dwelling { engine, at, client, .. } = *self;
        if self.is_disturbed() {
            return None;
        }
        let served = client.take_in(engine, at, receiver)?;
        at.lane.inbox().clear_watched();
        self.waits = self.waits.wrapping_add(1);
        if self.waits.is_multiple_of(PLACED_EVERY) {
            at.channel.show_processor();
        }
        Some(served)
    }

    /// Whether there is anything to do but what comes on this lane.
    #[inline(always)]
    pub fn is_disturbed(&self) -> bool {
        let Dwelling { engine, at, client, any_work, .. } = *self;
        let wanted = engine.any_work.load(Ordering::Acquire) != any_work || engine.has_events();
        wanted || engine.way(at.channel).epoch() != client.epoch() || self.has_others()
    }

    /// Whether anything has come but on this lane.
    #[inline(always)]
    fn has_others(&self) -> bool {
        let Taken { channel, via, .. } = self.at;
        match channel.new_lanes() {
            Ok(0) => false,
            // Announced before the looper came to dwell there.
            Ok(ready) if ready == 1 << via.lane => {
                channel.claim_ready(via.lane as usize);
                false
            }
            _ => true,
        }
    }
}

impl<T> Drop for Dwelling<'_, T> {
    fn drop(&mut self) {
        if self.spins {
            self.engine.spinning.store(false, Ordering::Release);
        }
        self.at.channel.dwell_no_more(self.at.lane, self.at.via.lane);
        self.engine.front.word(front::SLEEPERS).fetch_sub(1, Ordering::SeqCst);
    }
}
