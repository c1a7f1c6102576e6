//! Clients whose announcements come to nothing: doorbells, READY bits and rings of the bell without
//! a message.
//!
//! Each announcement costs a look, and looks delay the calls of other clients. A request makes up
//! for [`FORGIVEN`] fruitless looks. Beyond [`MOST_FRUITLESS`] looks the channel is *muted*: no
//! looper looks at it, its doorbell wakes no thread, and the control thread looks at some muted
//! channels every [`ROUND`]. After some rounds without false announcements the channel is unmuted.
//! Each time it is muted again, that takes twice as many rounds.
//!
//! **Invariant**: a message on a muted channel comes in by one of the next rounds.
//!
//! [`FORGIVEN`]: crate::channel::server::FORGIVEN

use super::pool::{Muted, Pool};
use crate::channel::Channel;
use baton_abi::control::ChannelId;
use baton_shm::sync::Ordering;
use rustix::event::Timespec;
use std::sync::Arc;

/// Fruitless looks after which a channel is muted.
const MOST_FRUITLESS: u32 = 64;

/// Time between two looks at muted channels.
pub(crate) const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Channels that one round looks at.
const AT_ONCE: usize = 16;

/// Fruitless looks in one round that still count as calm.
const FEW_FRUITLESS: u32 = 8;

/// Calm rounds after which a channel is unmuted, the first time.
const CALM_ROUNDS: u32 = 5;

/// How often that number of rounds doubles.
const DOUBLED: u32 = 6;

impl Pool {
    /// Counts fruitless looks at a channel, and mutes it after too many.
    pub(crate) fn count_fruitless(&self, channel: &Channel, times: u32) {
        if times > 0 && channel.count_fruitless(times) > MOST_FRUITLESS && !channel.is_muted() {
            self.mute(channel.id);
        }
    }

    #[cold]
    pub(crate) fn mute(&self, id: ChannelId) {
        let Some(channel) = self.channels.get(id) else { return };
        {
            let mut lists = self.channels.lists();
            // An only client delays no other one.
            if lists.n_incoming() < 2 || !lists.has(id) || !channel.mute() {
                channel.forgive();
                return;
            }
            let active = lists.active.iter().filter(|active| active.id != id);
            lists.active = Arc::new(active.cloned().collect());
            self.any_work.fetch_add(1, Ordering::SeqCst);
        }
        self.ring_all(std::slice::from_ref(&channel));
        self.control.set_muted(channel.socket.fd(), id.0, true);
        let wanted = CALM_ROUNDS << channel.times_muted().min(DOUBLED);
        self.muted.lock().push_back(Muted { channel, calm: 0, wanted });
        // The control thread sees that it has rounds to make.
        self.control.watchdog.expect();
    }

    /// Whether the control thread has rounds to make.
    pub(crate) fn has_muted(&self) -> bool {
        !self.muted.lock().is_empty()
    }

    /// The muted channels of the next round, as they stand before the look at them.
    pub(crate) fn begin_muted_round(&self) -> Vec<Muted> {
        let mut round: Vec<Muted> = {
            let mut muted = self.muted.lock();
            let n = muted.len().min(AT_ONCE);
            muted.drain(..n).collect()
        };
        round.retain(|muted| self.channels.get(muted.channel.id).is_some());
        for Muted { channel, .. } in &round {
            channel.forgive();
            if let Ok((_, n_read)) = channel.drain()
                && !channel.has_message()
            {
                channel.count_fruitless(n_read);
            }
        }
        round
    }

    /// Ends a round: unmutes the channels that have been calm for long enough.
    pub(crate) fn end_muted_round(&self, round: Vec<Muted>) {
        for mut muted in round {
            let is_calm = muted.channel.fruitless() <= FEW_FRUITLESS;
            muted.calm = if is_calm { muted.calm + 1 } else { 0 };
            if muted.calm < muted.wanted {
                self.muted.lock().push_back(muted);
                continue;
            }
            let channel = muted.channel;
            channel.unmute();
            self.control.set_muted(channel.socket.fd(), channel.id.0, false);
            // Messages that came in between woke no looper.
            self.activate(&channel);
            self.wake_looper();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::payload::Payload;
    use crate::channel::server::FORGIVEN;
    use crate::engine::Engine;
    use crate::runner::send::Outgoing;
    use crate::runner::tests::{broker, channel, other_end};
    use crate::sys::thread::tid;
    use baton_abi::lane::MAX_PAYLOAD_BYTES;
    use baton_abi::uapi::TF_ONE_WAY;
    use baton_state::parcel::Sent;
    use baton_state::transaction::Target;
    use std::sync::Arc;

    /// A server, a client with its channel's two ends, and another client.
    fn stage(broker: &baton_broker::Running) -> (Arc<Engine>, Arc<Engine>, [Arc<Channel>; 2]) {
        let (server, client, ours) = channel(broker);
        let theirs = other_end(&server, &ours);
        let other = Engine::open("binder", broker.socket()).unwrap();
        other.find_manager().unwrap();
        let its = other.channel_to(server.identity.process).unwrap();
        other_end(&server, &its);
        let mut state = server.lock();
        state.buffers.map(MAX_PAYLOAD_BYTES);
        server.carry_out(&mut state);
        drop(state);
        (server, client, [ours, theirs])
    }

    fn send(client: &Engine) {
        let (data, sent) = (Payload::Bytes(&[]), Sent::default());
        let outgoing = Outgoing { code: 1, flags: TF_ONE_WAY, data, offsets: &[], sent };
        client.send(tid(), Target::Handle(0), TF_ONE_WAY, (0, 0), Ok(outgoing));
    }

    fn await_that(what: impl Fn() -> bool) {
        while !what() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn announcements_of_nothing_mute_a_channel_and_its_messages_come_in_all_the_same() {
        let broker = broker();
        for announce in [
            (|ours| {
                ours.set_ready(3);
                ours.set_ready(5);
            }) as fn(&Channel),
            (|ours| ours.socket.ring()),
            (|ours| ours.socket.cancel(u32::MAX)),
        ] {
            let (server, client, [ours, theirs]) = stage(&broker);
            await_that(|| {
                announce(&ours);
                server.accept_first(&mut server.lock());
                theirs.is_muted()
            });
            assert!(!server.pool.channels.active().iter().any(|active| active.id == theirs.id));
            assert!(theirs.is_inactive());
            let before = server.lock().received;
            send(&client);
            await_that(|| server.lock().received > before);
            await_that(|| !theirs.is_muted());
            send(&client);
            await_that(|| server.lock().received > before + 1);
            client.close();
            await_that(|| server.channel(ours.id).is_none());
            server.close();
        }
    }

    #[test]
    fn a_muted_client_that_goes_on_stays_muted_and_its_end_is_noticed() {
        let broker = broker();
        let (server, client, [ours, theirs]) = stage(&broker);
        server.pool.mute(theirs.id);
        assert!(theirs.is_muted());
        let rounds = || server.pool.muted.lock().front().map_or(0, |muted| muted.calm);
        for _ in 0..3 {
            // As many doorbells as the queue has room for, in each round.
            await_that(|| rounds() > 0 || theirs.fruitless() > 0);
            (0..1000).for_each(|_| ours.socket.ring());
            await_that(|| theirs.fruitless() > FEW_FRUITLESS);
            assert!(theirs.is_muted());
        }
        client.close();
        await_that(|| server.channel(ours.id).is_none() && !server.pool.has_muted());
        server.close();
    }

    #[test]
    fn requests_that_loopers_leave_to_each_other_are_no_announcements() {
        let broker = broker();
        let (server, client, [ours, theirs]) = stage(&broker);
        let look = || {
            server.accept_first(&mut server.lock());
        };
        for _ in 0..10 * MOST_FRUITLESS {
            server.pool.leave_ready(&theirs, 3, false);
            look();
        }
        assert_eq!(theirs.fruitless(), 0);
        ours.set_ready(3);
        look();
        assert_eq!(theirs.fruitless(), 1);
        server.pool.leave_ready(&theirs, 3, true);
        look();
        assert_eq!(theirs.fruitless(), 2);
        client.close();
        server.close();
    }

    #[test]
    fn an_only_client_and_a_client_with_requests_are_not_muted() {
        let broker = broker();
        let (server, client, ours) = channel(&broker);
        let theirs = other_end(&server, &ours);
        for _ in 0..10 * MOST_FRUITLESS {
            server.pool.count_fruitless(&theirs, 1);
        }
        assert!(!theirs.is_muted(), "nobody else pays");
        client.close();
        server.close();
        let (server, client, [_, theirs]) = stage(&broker);
        for _ in 0..10 * MOST_FRUITLESS {
            server.pool.count_fruitless(&theirs, FORGIVEN);
            theirs.count_fruitful();
        }
        assert!(!theirs.is_muted());
        client.close();
        server.close();
    }
}
