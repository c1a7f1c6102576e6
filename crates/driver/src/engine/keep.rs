//! A looper with one caller keeps to that caller's lane: it sleeps on the lane's own word, which the caller's post
//! wakes without more ado.
//!
//! ```text
//!   a looper of the pool                      a looper that keeps to a lane
//!   client: READY, fence, bell, wake          client: wake
//!   looper: counts itself among the           looper: is counted all the time, on no bell
//!     sleepers and on the bell, looks at
//!     all channels, claims the READY bit
//! ```
//!
//! Nobody is sent away: whoever else wants a looper finds one that sleeps elsewhere, and rings the doorbell as for any such.
//! The looper looks for others' requests after each that it takes, and before it spins. It keeps to the lane only while
//! there is one warm channel, after [`in a row`](super::fast::Seats) so many requests on that lane, and until something
//! else is to be done.
//!
//! **Invariant**: who keeps to a lane serves it, whether there is a request or not: nobody else takes one there, nor attends it.
//! See [ADR 0036](../../../../docs/adr/0036-a-looper-keeps-to-a-lane.md).

use super::Engine;
use super::fast::{Server, Warm};
use super::spin::{Spun, may_spin};
use crate::channel::{Channel, Lane};
use crate::clock::now_ns;
use baton_abi::lane::front;
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use baton_shm::sync::Ordering;

/// A lane to which the calling looper keeps until this is dropped.
struct Kept<'a> {
    engine: &'a Engine,
    channel: &'a Channel,
    lane: Lane<'a>,
    number: u32,
    /// It is the looper of the process that may spin.
    spins: bool,
}

impl<'a> Kept<'a> {
    fn begin(engine: &'a Engine, channel: &'a Channel, number: u32) -> Option<Kept<'a>> {
        let lane = channel.lane(number as usize).ok()?;
        if !channel.keep(lane, number) {
            return None;
        }
        engine.front.word(front::SLEEPERS).fetch_add(1, Ordering::SeqCst);
        Some(Kept { engine, channel, lane, number, spins: false })
    }

    #[inline(always)]
    fn wait(&mut self, any_work: u32) -> Result<Seen, Wait> {
        let Kept { engine, channel, lane, number, .. } = *self;
        let is_wanted = || engine.any_work.load(Ordering::SeqCst) != any_work;
        let longest = engine.settings.longest_spin_ns;
        let mut since = None;
        if may_spin(&engine.settings, channel.is_apart()) && self.may_spin() {
            let spun = engine.gaps.spin(longest, || match lane.inbox().look() {
                Seen::Nothing => (channel.has_news() || is_wanted()).then_some(Seen::Nothing),
                seen => Some(seen),
            });
            match spun {
                Spun::Saw(seen) => return Ok(seen),
                Spun::Since(start) => since = Some(start),
            }
        }
        let seen = channel.sleep_on_kept(lane, number, is_wanted);
        engine.follow(&[channel]);
        if let Some(start) = since {
            engine.gaps.learn(now_ns() - start, longest);
        }
        seen
    }

    fn may_spin(&mut self) -> bool {
        self.spins = self.spins || !self.engine.spinning.swap(true, Ordering::Acquire);
        self.spins
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.spins {
            self.engine.spinning.store(false, Ordering::Release);
        }
        self.channel.keep_no_more(self.lane, self.number);
        self.engine.front.word(front::SLEEPERS).fetch_sub(1, Ordering::SeqCst);
    }
}

impl Engine {
    /// Serves on one lane of these channels, by its channel's place and its number, until there is something else. Then
    /// everything is to be looked at. `None` if somebody is at that lane.
    pub(super) fn keep_to(
        &self,
        (place, number): (usize, u32),
        warm: &Warm,
        any_work: u32,
        server: &mut dyn Server,
    ) -> Option<Wait> {
        let mut kept = Kept::begin(self, &warm[place], number)?;
        loop {
            match kept.wait(any_work) {
                Ok(Seen::Message) if server.serve_kept(warm, any_work) => {}
                Ok(_) => return Some(Wait::Woken),
                Err(ended) => return Some(ended),
            }
        }
    }
}
