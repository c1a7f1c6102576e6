//! Which clients loopers look at: those that have wanted something lately are active.
//!
//! A look at every channel before a looper serves or sleeps is paid for by those who call. So a
//! channel whose client has been silent for [`ACTIVE_REQUESTS`] requests of others goes inactive:
//! no looper looks there, and its client, which reads so on its bell page, rings the doorbell. The
//! control thread then takes in what has come, which makes the channel active again. Beyond
//! [`MOST_ACTIVE`] the most silent go inactive, however short their silence; beyond [`FEW`],
//! channels begin inactive, and a look for messages that is not a looper's passes over inactive
//! ones, too.
//!
//! The list of active channels is changed under the channels' lock, `any_work` after it: a looper
//! that knows an older list goes the general way before it serves or sleeps. One that sleeps alone
//! on the bell of a channel that has gone inactive is rung for there.
//!
//! **Invariant**: a channel with a message is active, or its client has rung the doorbell.

use super::Engine;
use crate::channel::{ACTIVE_REQUESTS, Channel};
use baton_shm::sync::{Ordering, fence};
use std::sync::Arc;

/// So many channels are all looked at.
pub(super) const FEW: usize = 64;

/// Most channels at which loopers look, but for those that have a message.
const MOST_ACTIVE: usize = 256;

impl Engine {
    /// The channels at which loopers look.
    pub(super) fn active(&self) -> Arc<Vec<Arc<Channel>>> {
        let channels = self.channels.lock();
        Arc::clone(&channels.active)
    }

    /// A client has wanted something. Where there is one only, that tells nothing.
    #[inline]
    pub(super) fn count_request(&self, channel: &Channel, among: &[Arc<Channel>]) {
        channel.count_fruitful();
        if among.len() > 1 {
            let request = self.requests.fetch_add(1, Ordering::Relaxed);
            channel.wanted(request);
            if request.is_multiple_of(ACTIVE_REQUESTS) {
                self.deactivate_silent(request);
            }
        }
    }

    /// Clients that have been silent for long are looked at no more.
    #[cold]
    fn deactivate_silent(&self, requests: u64) {
        self.deactivate_those(|channels| {
            let silent =
                channels.iter().filter(|channel| channel.silence(requests) > ACTIVE_REQUESTS);
            silent.cloned().collect()
        });
    }

    /// The most silent quarter makes room for others.
    #[cold]
    fn make_way(&self) {
        let requests = self.requests.load(Ordering::Relaxed);
        self.deactivate_those(|channels| {
            let mut all = channels.to_vec();
            all.sort_by_cached_key(|channel| std::cmp::Reverse(channel.silence(requests)));
            all.truncate(MOST_ACTIVE / 4);
            all
        });
    }

    fn deactivate_those(&self, choose: impl FnOnce(&[Arc<Channel>]) -> Vec<Arc<Channel>>) {
        let deactivated = {
            let mut channels = self.channels.lock();
            let mut deactivated = choose(&channels.active);
            deactivated.retain(|channel| channel.deactivate());
            if deactivated.is_empty() {
                return;
            }
            let active = channels.active.iter().filter(|channel| !channel.is_inactive());
            channels.active = Arc::new(active.cloned().collect());
            self.any_work.fetch_add(1, Ordering::SeqCst);
            deactivated
        };
        // Whoever sleeps on one of these bells goes round: a wake-up there would be for nothing.
        self.ring_all(&deactivated);
        // It may have been one until now.
        for channel in deactivated.iter().filter(|channel| channel.is_wanted()) {
            self.activate(channel);
            self.wake_looper();
        }
    }

    /// Something is left on this channel for whoever looks next: see [`Channel::leave_ready`].
    pub(super) fn leave_ready(&self, channel: &Arc<Channel>, lane: usize, announced: bool) {
        channel.leave_ready(lane, announced);
        self.activate(channel);
    }

    /// Something has been found on this channel: loopers look there. The caller looks there once
    /// more, for what was posted when nobody did.
    pub(super) fn activate(&self, channel: &Arc<Channel>) {
        if !channel.is_inactive() || channel.is_muted() {
            return;
        }
        if self.active().len() >= MOST_ACTIVE {
            self.make_way();
        }
        let mut channels = self.channels.lock();
        // Others may have done so, or ended it.
        if channel.is_inactive() && !channel.is_muted() && channels.by_id.contains_key(&channel.id)
        {
            Arc::make_mut(&mut channels.active).push(Arc::clone(channel));
            self.any_work.fetch_add(1, Ordering::SeqCst);
            channel.reactivate();
            // A client that read INACTIVE late, and SLEEPERS early, posted before the caller's next
            // look.
            fence(Ordering::SeqCst);
        }
    }
}
