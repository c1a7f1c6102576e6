//! Which clients loopers look at: those that have wanted something lately are warm.
//!
//! A look at every channel before a looper serves or sleeps is paid for by those who call. So a
//! channel whose client has been silent for [`WARM_REQUESTS`] requests of others goes cold: no
//! looper looks there, and its client, which reads so on its bell page, rings the doorbell. The
//! control thread then takes in what has come, which makes the channel warm again. Beyond
//! [`MOST_WARM`] the most silent go cold, however short their silence; beyond [`FEW`], channels
//! begin cold, and a look for messages that is not a looper's passes over cold ones, too.
//!
//! The list of warm channels is changed under the channels' lock, `any_work` after it: a looper
//! that knows an older list goes the general way before it serves or sleeps. One that sleeps alone
//! on the bell of a channel that has gone cold is rung for there.
//!
//! **Invariant**: a channel with a message is warm, or its client has rung the doorbell.

use super::Engine;
use crate::channel::{Channel, WARM_REQUESTS};
use baton_shm::sync::{Ordering, fence};
use std::sync::Arc;

/// So many channels are all looked at.
pub(super) const FEW: usize = 64;

/// Most channels at which loopers look, but for those that have a message.
const MOST_WARM: usize = 256;

impl Engine {
    /// The channels at which loopers look.
    pub(super) fn warm(&self) -> Arc<Vec<Arc<Channel>>> {
        let channels = self.channels.lock();
        Arc::clone(&channels.warm)
    }

    /// A client has wanted something. Where there is one only, that tells nothing.
    #[inline]
    pub(super) fn count_request(&self, channel: &Channel, among: &[Arc<Channel>]) {
        channel.count_fruitful();
        if among.len() > 1 {
            let request = self.requests.fetch_add(1, Ordering::Relaxed);
            channel.wanted(request);
            if request.is_multiple_of(WARM_REQUESTS) {
                self.cool_down(request);
            }
        }
    }

    /// Clients that have been silent for long are looked at no more.
    #[cold]
    fn cool_down(&self, requests: u64) {
        self.cool_those(|channels| {
            let silent =
                channels.iter().filter(|channel| channel.silence(requests) > WARM_REQUESTS);
            silent.cloned().collect()
        });
    }

    /// The most silent quarter makes room for others.
    #[cold]
    fn make_way(&self) {
        let requests = self.requests.load(Ordering::Relaxed);
        self.cool_those(|channels| {
            let mut all = channels.to_vec();
            all.sort_by_cached_key(|channel| std::cmp::Reverse(channel.silence(requests)));
            all.truncate(MOST_WARM / 4);
            all
        });
    }

    fn cool_those(&self, choose: impl FnOnce(&[Arc<Channel>]) -> Vec<Arc<Channel>>) {
        let cooled = {
            let mut channels = self.channels.lock();
            let mut cooled = choose(&channels.warm);
            cooled.retain(|channel| channel.cool());
            if cooled.is_empty() {
                return;
            }
            let warm = channels.warm.iter().filter(|channel| !channel.is_cold());
            channels.warm = Arc::new(warm.cloned().collect());
            self.any_work.fetch_add(1, Ordering::SeqCst);
            cooled
        };
        // Whoever sleeps on one of these bells goes round: a wake-up there would be for nothing.
        self.ring_all(&cooled);
        // It may have been one until now.
        for channel in cooled.iter().filter(|channel| channel.is_wanted()) {
            self.warm_up(channel);
            self.wake_looper();
        }
    }

    /// Something is left on this channel for whoever looks next: see [`Channel::leave_ready`].
    pub(super) fn leave_ready(&self, channel: &Arc<Channel>, lane: usize, announced: bool) {
        channel.leave_ready(lane, announced);
        self.warm_up(channel);
    }

    /// Something has been found on this channel: loopers look there. The caller looks there once
    /// more, for what was posted when nobody did.
    pub(super) fn warm_up(&self, channel: &Arc<Channel>) {
        if !channel.is_cold() || channel.is_muted() {
            return;
        }
        if self.warm().len() >= MOST_WARM {
            self.make_way();
        }
        let mut channels = self.channels.lock();
        // Others may have done so, or ended it.
        if channel.is_cold() && !channel.is_muted() && channels.by_id.contains_key(&channel.id) {
            Arc::make_mut(&mut channels.warm).push(Arc::clone(channel));
            self.any_work.fetch_add(1, Ordering::SeqCst);
            channel.warm();
            // A client that read COLD late, and SLEEPERS early, posted before the caller's next
            // look.
            fence(Ordering::SeqCst);
        }
    }
}
