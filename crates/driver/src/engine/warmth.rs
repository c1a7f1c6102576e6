//! Which clients loopers look at: those that have wanted something lately are warm.
//!
//! A look at every channel before a looper serves or sleeps is paid for by those who call. So a channel whose
//! client has been silent for [`WARM_REQUESTS`] requests of others goes cold: no looper looks there, and its client, which
//! reads so on its bell page, rings the doorbell. The control thread then takes in what has come, which makes
//! the channel warm again.
//!
//! The list of warm channels is changed under the channels' lock, `any_work` after it: a looper that knows an older list
//! goes the general way, which looks at all channels, before it serves or sleeps.

use super::Engine;
use crate::channel::{Channel, WARM_REQUESTS};
use baton_shm::sync::{Ordering, fence};
use std::sync::Arc;

impl Engine {
    /// The channels at which loopers look.
    pub(super) fn warm(&self) -> Arc<Vec<Arc<Channel>>> {
        let channels = self.channels.lock();
        Arc::clone(&channels.warm)
    }

    /// A client has wanted something. Where there is one only, that tells nothing.
    #[inline]
    pub(super) fn count_request(&self, channel: &Channel, among: &[Arc<Channel>]) {
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
        let mut channels = self.channels.lock();
        let warm = channels.warm.iter().filter(|channel| !channel.cool(requests));
        let warm: Vec<_> = warm.cloned().collect();
        if warm.len() < channels.warm.len() {
            channels.warm = Arc::new(warm);
            self.any_work.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Something has been found on this channel: loopers look there. The caller looks there once more, for
    /// what was posted when nobody did.
    pub(super) fn warm_up(&self, channel: &Arc<Channel>) {
        if !channel.is_cold() {
            return;
        }
        let mut channels = self.channels.lock();
        // Others may have done so, or ended it.
        if channel.is_cold() && channels.by_id.contains_key(&channel.id) {
            Arc::make_mut(&mut channels.warm).push(Arc::clone(channel));
            self.any_work.fetch_add(1, Ordering::SeqCst);
            channel.warm();
            // A client that read COLD late, and SLEEPERS early, posted before the caller's next look.
            fence(Ordering::SeqCst);
        }
    }
}
