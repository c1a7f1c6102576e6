//! The cache of a looper for all its clients, and the choice of the client that it serves next.

use super::client_cache::{ClientCache, may_be_cached};
use super::pinned::PinnedLooper;
use super::receiver::Receiver;
use super::serve::Taken;
use crate::channel::{Channel, OneWay};
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use crate::wait::server::{ActiveSet, Served};
use baton_abi::lane::LANES;
use baton_shm::lane_owner::Owner;
use baton_shm::ready_lanes::lanes_of;
use baton_shm::sync::Ordering;
use baton_state::State;
use baton_state::transaction::Incoming;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::cmp::Reverse;
use std::sync::{Arc, Weak};

/// The validated clients of a looper, in the order of the active channels. The cache keeps no
/// channel alive: its looper may stay with its program for any time.
pub struct RouteCache<T> {
    in_flight: Option<Arc<InFlight>>,
    /// The engine's epoch when the cache was begun.
    epoch: u64,
    active: Weak<Vec<Arc<Channel>>>,
    clients: Vec<Option<ClientCache<T>>>,
    /// The lane that was served last: the index of its channel, and its number.
    last: Option<(usize, u32)>,
    /// How many choices in a row were made by nice values.
    by_nice: Cell<u8>,
    /// Where the next choice in turn begins: the index after the lane of the last one.
    by_turn: Cell<usize>,
}

/// After so many requests in a row on one lane a looper is pinned. To be pinned costs a lock and
/// three atomic operations, and the next caller on another lane of the channel has to ring the
/// doorbell. A simulated history is short.
const PINNED_AFTER: u32 = if cfg!(simulated) { 3 } else { 64 };

impl<T> Default for RouteCache<T> {
    /// An empty cache.
    fn default() -> Self {
        RouteCache {
            in_flight: None,
            epoch: 0,
            active: Weak::new(),
            clients: Vec::new(),
            last: None,
            by_nice: Cell::new(0),
            by_turn: Cell::new(0),
        }
    }
}

impl<T: Clone> RouteCache<T> {
    /// Remembers sender, node and priority of a plain transaction that the state has admitted.
    pub fn insert(&mut self, engine: &Engine, state: &State, incoming: &Incoming, object: T) {
        let Some(serving) = &incoming.serving else { return };
        if !may_be_cached(engine, state, incoming) {
            return;
        }
        let epoch = engine.operations.revocation.epoch();
        let active = engine.pool.channels.active();
        if self.epoch != epoch || self.in_flight.is_none() {
            *self = RouteCache { in_flight: engine.in_flight(), epoch, ..RouteCache::default() };
        }
        self.follow(&active);
        let place = active.iter().position(|active| active.id == serving.via.channel);
        let Some(place) = place else { return };
        if let Some(cache) = self.clients.get_mut(place) {
            ClientCache::insert(
                cache,
                engine.operations.revocations_of(&active[place]).epoch(),
                state,
                incoming,
                object,
            );
        }
    }

    /// Whether the epoch has ended, so that the cache is void.
    #[inline(always)]
    pub fn is_stale(&self, engine: &Engine) -> bool {
        engine.operations.revocation.epoch() != self.epoch
    }

    /// See [`crate::wait::server::Server::forget_stale`].
    #[inline]
    pub fn forget_stale(&mut self, engine: &Engine) {
        if self.is_stale(engine) {
            *self = RouteCache::default();
        }
    }

    /// Switches to these channels, and keeps the cached clients of channels that stay.
    pub fn follow(&mut self, active: &ActiveSet) {
        if self.in_flight.is_none() || self.knows(active) {
            return;
        }
        let known = self.clients.drain(..).flatten().map(|client| (client.channel, client));
        let mut known: FxHashMap<_, _> = known.collect();
        self.clients = active.iter().map(|channel| known.remove(&channel.id)).collect();
        (self.active, self.last) = (Arc::downgrade(active), None);
    }

    /// See [`crate::wait::server::Server::last_lane`].
    pub fn last_lane(&self, active: &ActiveSet) -> Option<(usize, u32)> {
        self.last.filter(|_| self.knows(active))
    }

    /// See [`crate::wait::server::Server::serve_pinned`].
    #[inline(always)]
    pub fn pin<'a>(
        &'a mut self,
        engine: &'a Engine,
        active: &'a ActiveSet,
        any_work: u32,
    ) -> Option<PinnedLooper<'a, T>> {
        let taken = self.taken(active)?;
        let is_callers = taken.channel.in_a_row(taken.via.lane) >= PINNED_AFTER;
        if !is_callers || !engine.pool.may_pin(active) {
            return None;
        }
        // Other clients may have rung this looper alone: see `OwnBell::pass_on`.
        if active.iter().any(|channel| channel.has_news()) {
            return None;
        }
        let (place, _) = self.last?;
        let client = self.clients[place].as_ref()?;
        PinnedLooper::begin(engine, taken, client, any_work)
    }

    /// Whether the cache is in the order of these channels.
    #[inline(always)]
    fn knows(&self, active: &ActiveSet) -> bool {
        std::ptr::eq(self.active.as_ptr(), Arc::as_ptr(active))
    }

    /// The channels of the cache, if the list still exists.
    pub fn active(&self) -> Option<ActiveSet> {
        self.active.upgrade()
    }

    /// The thread's operation in flight.
    pub(super) fn in_flight(&self) -> Option<&InFlight> {
        self.in_flight.as_deref()
    }

    /// The transaction that it has taken in last, on one of these channels.
    pub fn taken<'a>(&'a self, active: &'a ActiveSet) -> Option<Taken<'a>> {
        let (place, number) = self.last_lane(active)?;
        let (in_flight, channel) = (self.in_flight()?, &*active[place]);
        let (lane, via) = (channel.lane(number as usize).ok()?, channel.via(number as usize));
        Some(Taken { in_flight, channel, lane, via })
    }

    /// Takes in one plain request, and finds its node's object. The payload goes to `receiver`.
    /// `Err` if nothing was taken in: the looper waits on, or looks at everything.
    #[inline(always)]
    pub fn take<'a>(
        &'a mut self,
        engine: &Engine,
        active: &'a ActiveSet,
        (any_work, posted): (u32, bool),
        receiver: &mut impl Receiver,
    ) -> Result<(Taken<'a>, &'a T), Served> {
        self.forget_stale(engine);
        let wanted =
            engine.pool.any_work.load(Ordering::Acquire) != any_work || engine.broker.has_events();
        if wanted || !self.knows(active) {
            return Err(Served::Look);
        }
        let Ok(chosen) = self.choose(active, posted) else { return Err(Served::Look) };
        let Some(Chosen { place, number, ours }) = chosen else { return Err(Served::Wait) };
        let (Some(client), Some(in_flight)) = (&self.clients[place], self.in_flight.as_deref())
        else {
            return Err(Served::Look);
        };
        let (channel, number) = (&*active[place], number as usize);
        let Ok(lane) = channel.lane(number) else { return Err(Served::Look) };
        // Another thread owns the lane, and the client has announced a request all the same: the
        // general path nudges the owner.
        if !channel.is_pools(number as u32) {
            return Err(Served::Look);
        }
        if !ours && !channel.claim_ready(number) {
            // Another looper has claimed it.
            return Err(Served::Wait);
        }
        self.last = Some((place, number as u32));
        let taken = Taken { in_flight, channel, lane, via: channel.via(number) };
        let idle = channel.start_serving(taken.via.lane, Owner::Pool);
        let object = if idle { client.take_in(engine, taken, receiver) } else { None };
        let Some(object) = object else {
            if idle {
                channel.end_serving(taken.via.lane);
            }
            engine.pool.leave_ready(&active[place], number, !ours);
            return Err(Served::Look);
        };
        lane.inbox().clear();
        channel.count_in_a_row(taken.via.lane);
        engine.pool.count_request(channel, active);
        channel.show_processor();
        Ok((taken, object))
    }

    /// Chooses the lane to serve next: one of the next client with a request, so that all clients
    /// have their turn, and all lanes of each. If some request has a nice value other than 0, it is
    /// mostly the lane with the best value. `Err` if a one-way transaction waits.
    #[inline(always)]
    fn choose(&self, active: &[Arc<Channel>], posted: bool) -> Result<Option<Chosen>, OneWay> {
        let last = self.last.filter(|_| posted);
        let last_place = self.last.map_or(usize::MAX, |(place, _)| place);
        let mut first: Option<(usize, u64)> = None;
        let mut niced = 0;
        for (place, channel) in active.iter().enumerate() {
            let ready = channel.new_lanes()?;
            let later = |(first, _): (usize, u64)| first <= last_place && place > last_place;
            if ready != 0 {
                niced |= channel.niced(ready);
                if first.is_none_or(later) {
                    first = Some((place, ready));
                }
            }
        }
        let Some((place, ready)) = first else {
            return Ok(last.map(|(place, number)| Chosen { place, number, ours: true }));
        };
        if niced != 0 {
            return Ok(self.choose_by_nice(active, last));
        }
        if let Some((place, number)) = last {
            // It is another lane's turn: the request on the last lane is announced.
            active[place].set_ready(number as usize);
        }
        Ok(Some(Chosen { place, number: active[place].next_in_turn(ready), ours: false }))
    }
}

/// After so many choices by nice values the next lane is chosen in turn: a nice value is the
/// client's word. A lane so waits for at most `MOST_BY_NICE + 1` times as many others as without
/// nice values.
const MOST_BY_NICE: u8 = 8;

impl<T: Clone> RouteCache<T> {
    /// Chooses the lane with the best nice value; of several the first after the last one served.
    #[cold]
    fn choose_by_nice(
        &self,
        active: &[Arc<Channel>],
        last: Option<(usize, u32)>,
    ) -> Option<Chosen> {
        let index = |(place, number): (usize, u32)| place * LANES + number as usize;
        let in_turn = self.by_nice.get() == MOST_BY_NICE;
        self.by_nice.set(if in_turn { 0 } else { self.by_nice.get() + 1 });
        let next =
            if in_turn { self.by_turn.get() } else { self.last.map_or(0, |last| index(last) + 1) };
        let lanes = active.len() * LANES;
        let key = |place: usize, number: u32| {
            let nice = (!in_turn).then(|| active[place].nice(number as usize));
            (Reverse(nice), (index((place, number)) + lanes - next % lanes) % lanes)
        };
        let ours = last.map(|(place, number)| Chosen { place, number, ours: true });
        let others = active.iter().enumerate().flat_map(|(place, channel)| {
            let ready = channel.new_lanes().unwrap_or(0);
            lanes_of(ready).map(move |lane| Chosen { place, number: lane as u32, ours: false })
        });
        let chosen =
            ours.into_iter().chain(others).min_by_key(|lane| key(lane.place, lane.number))?;
        if in_turn {
            self.by_turn.set(index((chosen.place, chosen.number)) + 1);
        }
        if let Some((place, number)) = last.filter(|_| !chosen.ours) {
            // It is another lane's turn: the request on the last lane is announced.
            active[place].set_ready(number as usize);
        }
        Some(chosen)
    }
}

/// The lane that is to be served next.
struct Chosen {
    place: usize,
    number: u32,
    /// Only this looper knows of its request.
    ours: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::{TestBroker, broker};
    use baton_abi::lane::{Kind, Message};

    struct Stage {
        server: Arc<Engine>,
        /// The client's end, and its engine.
        client: (Arc<Channel>, Arc<Engine>),
        broker: TestBroker,
    }

    fn stage() -> Stage {
        let broker = broker();
        let server = Engine::open("binder", broker.socket()).unwrap();
        server.become_manager(0x10, 0, 0).unwrap();
        let client = client(&server, &broker);
        Stage { server, client, broker }
    }

    /// One more client.
    fn client(server: &Engine, broker: &TestBroker) -> (Arc<Channel>, Arc<Engine>) {
        let n_others = server.pool.channels.active().len();
        let client = Engine::open("binder", broker.socket()).unwrap();
        client.find_manager().unwrap();
        let channel = client.channel_to(server.identity.process).unwrap();
        while server.pool.channels.active().len() == n_others {
            server.take_events();
        }
        (channel, client)
    }

    impl Stage {
        /// Posts a request without ringing the server's control thread.
        fn post(&self, lane: usize, nice: i32) {
            let (channel, _) = &self.client;
            channel.show_nice(lane, nice);
            let message = Message { kind: Kind::Request as u32, param: nice, ..Message::default() };
            channel.lane(lane).unwrap().post(&message, |_| {});
            channel.set_ready(lane);
        }

        /// The lane that the looper takes next.
        fn take(&self, route_cache: &mut RouteCache<()>) -> Option<u32> {
            let active = self.server.pool.channels.active();
            let chosen = route_cache.choose(&active, false).ok().flatten()?;
            assert!(active[chosen.place].claim_ready(chosen.number as usize));
            active[chosen.place].count_in_a_row(chosen.number);
            route_cache.last = Some((chosen.place, chosen.number));
            Some(chosen.number)
        }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            self.server.close();
            self.client.1.close();
        }
    }

    #[test]
    fn lanes_are_served_by_nice_values_and_else_in_turn() {
        let cases: [([i32; 5], [u32; 5]); 5] = [
            ([0, 0, 0, 0, 0], [0, 1, 2, 3, 4]),
            ([10, 0, -10, 0, 5], [2, 3, 1, 4, 0]),
            ([3, 3, 3, 3, 2], [4, 0, 1, 2, 3]),
            // A value out of range counts as the nearest valid one.
            ([i32::MIN, -20, 19, i32::MAX, 0], [0, 1, 4, 2, 3]),
            ([-1, 0, -1, 0, -1], [0, 2, 4, 1, 3]),
        ];
        for (values, order) in cases {
            let (stage, mut route_cache) = (stage(), RouteCache::default());
            let _control_waits = stage.server.lock();
            values.iter().enumerate().for_each(|(lane, nice)| stage.post(lane, *nice));
            let served: Vec<u32> = std::iter::from_fn(|| stage.take(&mut route_cache)).collect();
            assert_eq!(served, order, "{values:?}");
        }
    }

    /// Without nice values clients have their turn, and so have the lanes of each.
    #[test]
    fn lanes_that_always_have_a_request_are_served_in_turn() {
        const BUSY: [(usize, u32); 4] = [(0, 1), (0, 2), (1, 5), (2, 3)];
        let cases = [
            (0, [(0, 1), (1, 5), (2, 3), (0, 2), (1, 5), (2, 3)]),
            (5, [(0, 1), (0, 2), (1, 5), (2, 3), (0, 1), (0, 2)]),
        ];
        for (nice, expected) in cases {
            let (stage, mut route_cache) = (stage(), RouteCache::default());
            let others = [(); 2].map(|()| client(&stage.server, &stage.broker));
            let _control_waits = stage.server.lock();
            let active = stage.server.pool.channels.active();
            for (place, number) in BUSY {
                active[place].show_nice(number as usize, nice);
                active[place].set_ready(number as usize);
            }
            let served = [(); 6].map(|()| {
                stage.take(&mut route_cache).unwrap();
                let (place, number) = route_cache.last.unwrap();
                active[place].set_ready(number as usize);
                (place, number)
            });
            assert_eq!(served, expected, "{nice}");
            others.iter().for_each(|(_, client)| client.close());
        }
    }

    /// Only the looper that has served a lane knows of the next request there.
    #[test]
    fn a_request_whose_lane_has_to_wait_is_announced() {
        for (own, other) in [(0, 0), (5, -5)] {
            let (stage, mut route_cache) = (stage(), RouteCache::<()>::default());
            let _control_waits = stage.server.lock();
            let active = stage.server.pool.channels.active();
            stage.post(1, own);
            stage.post(2, other);
            assert!(active[0].claim_ready(1));
            route_cache.last = Some((0, 1));
            let chosen = route_cache.choose(&active, true).ok().flatten().unwrap();
            assert_eq!((chosen.number, chosen.ours), (2, false));
            assert_eq!(active[0].new_lanes().ok(), Some(1 << 1 | 1 << 2));
        }
    }

    #[test]
    fn the_last_lane_is_one_of_the_channels_that_are_known() {
        let stage = stage();
        let active = stage.server.pool.channels.active();
        let others = Arc::new(Vec::clone(&active));
        let in_flight = stage.server.in_flight();
        let mut route_cache = RouteCache { in_flight, ..RouteCache::<()>::default() };
        route_cache.follow(&active);
        route_cache.last = Some((0, 1));
        assert_eq!(route_cache.last_lane(&active), Some((0, 1)));
        assert_eq!(route_cache.last_lane(&others), None);
        route_cache.follow(&others);
        assert_eq!(route_cache.last_lane(&others), None, "its place may be another channel's");
    }

    #[test]
    fn false_nice_values_do_not_starve_other_lanes() {
        let (stage, mut route_cache) = (stage(), RouteCache::default());
        let _control_waits = stage.server.lock();
        let (honest, liars) = ([0, 1, 2], [10, 20, 30]);
        honest.iter().for_each(|lane| stage.post(*lane, 19));
        liars.iter().for_each(|lane| stage.post(*lane, -20));
        let mut unserved = honest.to_vec();
        let most = (usize::from(MOST_BY_NICE) + 1) * (honest.len() + liars.len());
        for _ in 0..most {
            let lane = stage.take(&mut route_cache).unwrap() as usize;
            stage.client.0.set_ready(lane);
            unserved.retain(|unserved| *unserved != lane);
        }
        assert!(unserved.is_empty(), "{unserved:?}");
    }
}
