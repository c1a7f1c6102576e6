//! The cache of a dedicated thread: one validated client, whose requests come on one lane.
//!
//! Unlike a looper of the pool, a dedicated thread applies no events first: strangers may cause any
//! number of events. A plain request needs no event, and the general path waits for the events that
//! a request needs.

use super::client_cache::{ClientCache, may_be_cached};
use super::receiver::Receiver;
use super::serve::Taken;
use crate::channel::Channel;
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use baton_shm::lane_owner::Owner;
use baton_state::State;
use baton_state::transaction::Incoming;
use std::sync::Arc;

/// The cache of a dedicated thread.
pub struct LaneCache<T> {
    in_flight: Option<Arc<InFlight>>,
    client: Option<ClientCache<T>>,
}

impl<T> Default for LaneCache<T> {
    /// An empty cache.
    fn default() -> Self {
        LaneCache { in_flight: None, client: None }
    }
}

impl<T: Clone> LaneCache<T> {
    /// Remembers sender, node and priority of a plain transaction that the state has admitted.
    pub fn insert(&mut self, engine: &Engine, state: &State, incoming: &Incoming, object: T) {
        if !may_be_cached(engine, state, incoming) {
            return;
        }
        let serving = incoming.serving.as_ref();
        let channel = serving.and_then(|serving| engine.channel(serving.via.channel));
        let Some(channel) = channel else { return };
        if self.is_stale(engine, &channel) || self.in_flight.is_none() {
            *self = LaneCache { in_flight: engine.in_flight(), client: None };
        }
        ClientCache::insert(
            &mut self.client,
            engine.operations.revocations_of(&channel).epoch(),
            state,
            incoming,
            object,
        );
    }

    /// Whether the client is not cached, or was revoked after it was cached.
    #[inline(always)]
    pub fn is_stale(&self, engine: &Engine, channel: &Channel) -> bool {
        let epoch = engine.operations.revocations_of(channel).epoch();
        self.client.as_ref().is_none_or(|client| client.epoch() != epoch)
    }

    /// The thread's operation in flight.
    pub(super) fn in_flight(&self) -> Option<&InFlight> {
        self.in_flight.as_deref()
    }

    /// Takes in the request on this lane, if it is a plain one to a known node, and finds the
    /// node's object. The payload goes to `receiver`.
    #[inline(always)]
    pub fn take<'a>(
        &'a mut self,
        engine: &Engine,
        channel: &'a Channel,
        number: usize,
        receiver: &mut impl Receiver,
    ) -> Option<(Taken<'a>, &'a T)> {
        if self.is_stale(engine, channel) {
            return None;
        }
        let (in_flight, client) = (self.in_flight.as_deref()?, self.client.as_ref()?);
        let (lane, via) = (channel.lane(number).ok()?, channel.via(number));
        if !channel.start_serving(via.lane, Owner::Dedicated(in_flight.tid)) {
            return None;
        }
        let taken = Taken { in_flight, channel, lane, via };
        let object = client.take_in(engine, taken, receiver);
        match object {
            Some(_) => {
                lane.inbox().clear();
                channel.count_fruitful();
            }
            None => channel.end_serving(via.lane),
        }
        Some((taken, object?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::payload::Payload;
    use crate::fast::RouteCache;
    use crate::runner::send::Outgoing;
    use crate::runner::tests::{TestBroker, broker, channel, other_end};
    use crate::sys::thread::tid;
    use baton_abi::lane::{ChainEntry, MAX_PAYLOAD_BYTES};
    use baton_shm::sync::Ordering;
    use baton_state::Return;
    use baton_state::parcel::Sent;
    use baton_state::transaction::Target;

    struct Stage {
        broker: TestBroker,
        server: Arc<Engine>,
        client: Arc<Engine>,
        /// The server's end.
        channel: Arc<Channel>,
        cache: LaneCache<()>,
    }

    /// A cache that has validated a client.
    fn stage() -> Stage {
        let stage = learn_first(|_, _| ());
        assert!(!stage.is_stale(), "it has learnt");
        stage
    }

    /// A cache that has been given a transaction after this change.
    fn learn_first(change: impl Fn(&Engine, &mut Incoming)) -> Stage {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        let channel = other_end(&server, &channel);
        let mut state = server.lock();
        state.buffers.map(MAX_PAYLOAD_BYTES);
        server.unlock(state);
        let (data, sent) = (Payload::Bytes(&[]), Sent::default());
        let outgoing = Outgoing { code: 1, flags: 0, data, offsets: &[], sent };
        client.send(tid(), Target::Handle(0), 0, (0, 0), Ok(outgoing));
        let mut cache = LaneCache::default();
        let mut state = server.lock();
        server.accept_first(&mut state);
        let Some(Return::Transaction(mut incoming, _)) = state.next_return(tid(), true) else {
            panic!("the call has been posted");
        };
        change(&server, &mut incoming);
        cache.insert(&server, &state, &incoming, ());
        let mut of_pool = RouteCache::default();
        of_pool.insert(&server, &state, &incoming, ());
        server.unlock(state);
        assert_eq!(of_pool.in_flight().is_some(), cache.in_flight().is_some());
        Stage { broker, server, client, channel, cache }
    }

    impl Stage {
        fn stranger(&self) -> (Arc<Engine>, Arc<Channel>) {
            let stranger = Engine::open("binder", self.broker.socket()).unwrap();
            stranger.find_manager().unwrap();
            let channel = stranger.channel_to(self.server.identity.process).unwrap();
            let channel = other_end(&self.server, &channel);
            (stranger, channel)
        }

        fn lose(&self, channel: &Channel) {
            let mut state = self.server.lock();
            self.server.end_channel(&mut state, channel, "a test");
            self.server.unlock(state);
        }

        /// Waits until every event so far has been applied.
        fn settle(&self, gone: &Channel) {
            while self.server.channel(gone.id).is_some() {
                std::thread::yield_now();
            }
            drop(self.server.pass_barrier());
        }

        fn is_stale(&self) -> bool {
            self.cache.is_stale(&self.server, &self.channel)
        }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            self.client.close();
            self.server.close();
        }
    }

    /// A plain message has no security context, names no user, and goes past who polls.
    #[test]
    fn nothing_is_learnt_of_what_plain_messages_cannot_say() {
        type Change = fn(&Engine, &mut Incoming);
        let changes: [(&str, Change); 4] = [
            ("a security context", |_, incoming| incoming.label = Some(0)),
            ("a sender that names its user", |_, incoming| incoming.sender.1 += 1),
            ("a receiver that has to name its user", |server, _| {
                server.user.store(server.identity.uid + 1, Ordering::Relaxed);
            }),
            ("a thread that polls", |server, _| server.pollables.begin()),
        ];
        for (name, change) in changes {
            assert!(learn_first(change).is_stale(), "{name}");
        }
    }

    #[test]
    fn strangers_do_not_make_a_cache_stale() {
        let stage = stage();
        for breaks_protocol in [false, true] {
            let (stranger, channel) = stage.stranger();
            assert!(!stage.is_stale(), "a stranger holds a reference, and has a channel");
            if breaks_protocol {
                stage.lose(&channel);
                assert!(!stage.is_stale(), "it has lost the channel");
            }
            stranger.close();
            stage.settle(&channel);
            assert!(!stage.is_stale(), "and it is dead");
        }
        let mut state = stage.server.lock();
        let process = stage.server.identity.process.0;
        stage.server.revoke_callers(&mut state, &[ChainEntry { process, token: 1 }]);
        assert!(!stage.is_stale(), "a stranger says that we have called it");
    }

    #[test]
    fn changes_of_its_client_make_a_cache_stale() {
        type End = (&'static str, fn(&Stage));
        let ends: [End; 3] = [
            ("its channel", |stage| stage.lose(&stage.channel)),
            ("its process", |stage| {
                stage.client.close();
                stage.settle(&stage.channel);
            }),
            ("everybody", |stage| stage.server.revoke(&mut stage.server.lock())),
        ];
        for (whose, end) in ends {
            let stage = stage();
            end(&stage);
            assert!(stage.is_stale(), "the end of {whose}");
        }
    }
}
