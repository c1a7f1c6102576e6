//! The active set: the channels at which loopers look, because their clients have called lately.
//!
//! A looper looks at each active channel before it serves or sleeps, and callers pay for these
//! looks. A channel whose client has been silent for [`ACTIVE_REQUESTS`] requests of others
//! therefore becomes inactive: no looper looks there. Its client reads this on its bell page, and
//! rings the doorbell. The control thread then takes the message in, and makes the channel active
//! again. Beyond [`MOST_ACTIVE`] channels the most silent ones become inactive, however short their
//! silence. Beyond [`FEW`] channels new ones begin inactive, and every look for messages passes
//! over inactive ones.
//!
//! The list of active channels changes under the channels' lock, and `any_work` after it: a looper
//! that knows an older list takes the general path before it serves or sleeps. A looper that sleeps
//! alone on the bell of a channel that becomes inactive is rung there.
//!
//! **Invariant**: a channel with a message is active, or its client has rung the doorbell.
//!
//! [`FEW`]: crate::channel::table::FEW

use super::pool::Pool;
use crate::channel::{ACTIVE_REQUESTS, Channel};
use baton_shm::sync::{Ordering, fence};
use std::sync::Arc;

/// Most active channels, apart from those that have a message.
const MOST_ACTIVE: usize = 256;

impl Pool {
    /// Counts a request of a client. With one client only there is nothing to compare.
    #[inline]
    pub(crate) fn count_request(&self, channel: &Channel, among: &[Arc<Channel>]) {
        channel.count_fruitful();
        if among.len() > 1 {
            let request = self.requests.fetch_add(1, Ordering::Relaxed);
            channel.wanted(request);
            self.keep_one_idle(among, request);
            if request.is_multiple_of(ACTIVE_REQUESTS) {
                self.deactivate_silent(request);
            }
        }
    }

    /// Notes a request that a pinned looper has taken: its client is not silent.
    #[inline(always)]
    pub(crate) fn note_pinned_request(&self, channel: &Channel) {
        channel.wanted(self.requests.load(Ordering::Relaxed));
    }

    /// Makes the channels of clients inactive that have been silent for long.
    #[cold]
    fn deactivate_silent(&self, requests: u64) {
        self.deactivate_chosen(|channels| {
            let silent =
                channels.iter().filter(|channel| channel.silence(requests) > ACTIVE_REQUESTS);
            silent.cloned().collect()
        });
    }

    /// Makes the most silent quarter inactive.
    #[cold]
    fn deactivate_most_silent(&self) {
        let requests = self.requests.load(Ordering::Relaxed);
        self.deactivate_chosen(|channels| {
            let mut all = channels.to_vec();
            all.sort_by_cached_key(|channel| std::cmp::Reverse(channel.silence(requests)));
            all.truncate(MOST_ACTIVE / 4);
            all
        });
    }

    fn deactivate_chosen(&self, choose: impl FnOnce(&[Arc<Channel>]) -> Vec<Arc<Channel>>) {
        let deactivated = {
            let mut lists = self.channels.lists();
            let mut deactivated = choose(&lists.active);
            // A pinned looper keeps its channel active: it returns to the pool first.
            deactivated.retain(|channel| !channel.nudge_pinned() && channel.deactivate());
            if deactivated.is_empty() {
                return;
            }
            let active = lists.active.iter().filter(|channel| !channel.is_inactive());
            lists.active = Arc::new(active.cloned().collect());
            self.any_work.fetch_add(1, Ordering::SeqCst);
            deactivated
        };
        // Loopers that sleep on one of these bells look again: no ring would come there any more.
        self.ring_all(&deactivated);
        // A message may have come just before.
        for channel in deactivated.iter().filter(|channel| channel.is_wanted()) {
            self.activate(channel);
            self.wake_looper();
        }
    }

    /// A channel that is put on the lists counts as one of a client that has just called.
    pub(crate) fn begin_as_recent(&self, channel: &Channel) {
        channel.wanted(self.requests.load(Ordering::Relaxed));
    }

    /// Leaves a request for the next look: see [`Channel::leave_ready`].
    pub(crate) fn leave_ready(&self, channel: &Arc<Channel>, lane: usize, announced: bool) {
        channel.leave_ready(lane, announced);
        self.activate(channel);
    }

    /// Makes a channel active on which a message was found. The caller looks there once more, for
    /// messages that were posted while nobody looked.
    pub(crate) fn activate(&self, channel: &Arc<Channel>) {
        if !channel.is_inactive() || channel.is_muted() {
            return;
        }
        if self.channels.active().len() >= MOST_ACTIVE {
            self.deactivate_most_silent();
        }
        let mut lists = self.channels.lists();
        // Another thread may have made the channel active, or have ended it.
        if channel.is_inactive() && !channel.is_muted() && lists.has(channel.id) {
            Arc::make_mut(&mut lists.active).push(Arc::clone(channel));
            self.any_work.fetch_add(1, Ordering::SeqCst);
            channel.reactivate();
            // A client that read INACTIVE late, and SLEEPERS early, posted before the caller's next
            // look.
            fence(Ordering::SeqCst);
        }
    }
}
