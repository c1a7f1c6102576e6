//! A thread's routes: the validated nodes and lanes of its last calls, kept for the next ones.

use super::own_lane::OwnLane;
use crate::channel::Channel;
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use crate::sys::priority::nice;
use crate::sys::thread::priority_changes;
use crate::sys::thread::tid;
use baton_abi::control::NodeId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    static LOCAL: RefCell<Local> = const { RefCell::new(Local::new()) };
    /// How many transactions the thread serves. A call that it makes meanwhile is nested.
    static SERVING: Cell<u32> = const { Cell::new(0) };
}

/// How many routes a thread keeps.
const ROUTES: usize = 8;

/// The thread's routes of the engine that it has used last.
pub(super) struct Local {
    engine: u64,
    pub in_flight: Option<Arc<InFlight>>,
    /// A route stands at its handle modulo [`ROUTES`].
    routes: [Option<Route>; ROUTES],
}

/// The route of calls by one handle.
pub(super) struct Route {
    pub handle: u32,
    pub node: NodeId,
    pub lane: Rc<OwnLane>,
    /// The thread's nice value.
    pub nice: i32,
    /// [`priority_changes`] when the route was made: a thread of another priority has other lanes.
    priority_changes: u32,
}

impl Route {
    /// Whether the thread's priority may have changed since.
    #[inline(always)]
    fn has_other_priority(&self) -> bool {
        self.priority_changes != priority_changes()
    }

    /// Whether calls cannot take this route any more.
    fn is_stale(&self, engine: &Engine) -> bool {
        self.lane.is_stale(&engine.operations) || self.has_other_priority()
    }
}

impl Local {
    const fn new() -> Local {
        Local { engine: 0, in_flight: None, routes: [const { None }; ROUTES] }
    }

    fn is_of(&self, engine: &Engine) -> bool {
        self.engine == engine.number
    }

    /// The thread's operation and its route for this handle, which may be stale.
    #[inline]
    pub fn route(&self, handle: u32) -> Option<(&InFlight, &Route)> {
        let route = self.routes[handle as usize % ROUTES].as_ref();
        let route = route.filter(|route| route.handle == handle && !route.has_other_priority())?;
        Some((self.in_flight.as_deref()?, route))
    }

    /// Forgets the routes that are stale.
    #[cold]
    pub fn forget_stale(&mut self, engine: &Engine) {
        for route in &mut self.routes {
            route.take_if(|route| route.is_stale(engine));
        }
    }

    /// Calls by the handle use this lane from now on, or the lane that the thread has on the
    /// channel.
    pub fn insert(
        &mut self,
        engine: &Engine,
        (handle, node): (u32, NodeId),
        channel: &Arc<Channel>,
        number: u32,
    ) {
        let (epoch, priority_changes) =
            (engine.operations.revocations_of(channel).epoch(), priority_changes());
        self.forget_stale(engine);
        let mut lanes = self.routes.iter().flatten().map(|route| &route.lane);
        let lane = match lanes.find(|lane| lane.is_on(channel)) {
            Some(lane) => Rc::clone(lane),
            None => match OwnLane::take(channel, number, epoch) {
                Some(lane) => Rc::new(lane),
                None => return,
            },
        };
        self.routes[handle as usize % ROUTES] =
            Some(Route { handle, node, lane, nice: nice(), priority_changes });
    }

    /// Drops the routes on the handle's lane: the state has taken over a call, and the lane with
    /// it.
    pub fn leave_lane(&mut self, handle: u32) {
        let route = self.routes[handle as usize % ROUTES].take();
        if let Some(Route { lane, .. }) = route {
            self.leave(&lane);
        }
    }

    fn leave(&mut self, lane: &Rc<OwnLane>) {
        lane.disown();
        for route in &mut self.routes {
            route.take_if(|route| Rc::ptr_eq(&route.lane, lane));
        }
    }

    /// Gives up a lane on which no call is under way. `None` if the thread does not keep it.
    fn release_lane(&mut self, channel: &Channel, number: u32) -> Option<()> {
        let is_this = |lane: &Rc<OwnLane>| lane.via().lane == number && lane.is_on(channel);
        let lane = self.routes.iter().flatten().map(|route| &route.lane).find(|lane| is_this(lane));
        let lane = Rc::clone(lane?);
        self.leave(&lane);
        Some(())
    }
}

/// Uses the calling thread's routes, if they are of this engine. `None` also if a signal handler
/// has interrupted their use, or if the thread is ending.
#[inline(always)]
pub(super) fn with<T>(engine: &Engine, body: impl FnOnce(&mut Local) -> Option<T>) -> Option<T> {
    let used = LOCAL.try_with(|local| {
        let mut local = local.try_borrow_mut().ok()?;
        if local.is_of(engine) { body(&mut local) } else { None }
    });
    used.ok().flatten()
}

/// Whether the calling thread may have an operation of an engine that it has used before.
fn has_used_others() -> bool {
    LOCAL.try_with(|local| local.try_borrow().is_ok_and(|local| local.engine != 0)).unwrap_or(true)
}

/// Whether the calling thread serves a transaction.
pub(super) fn is_serving() -> bool {
    SERVING.get() > 0
}

/// Runs the program's handler of a transaction.
#[inline(always)]
pub fn while_serving<T>(body: impl FnOnce() -> T) -> T {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            SERVING.set(SERVING.get() - 1);
        }
    }
    SERVING.set(SERVING.get() + 1);
    let _back = Back;
    body()
}

impl Engine {
    /// Takes a lane that the calling thread keeps for its plain calls. No call is in flight there.
    pub(crate) fn take_own_lane(&self, channel: &Channel, number: u32) -> bool {
        with(self, |local| local.release_lane(channel, number)).is_some()
    }

    /// The calling thread's operation, a new one if it has none.
    pub(super) fn in_flight(&self) -> Option<Arc<InFlight>> {
        let known = with(self, |local| local.in_flight.clone());
        if known.is_some() {
            return known;
        }
        LOCAL
            .try_with(|local| {
                let mut local = local.try_borrow_mut().ok()?;
                let listed = self.operations.of(tid());
                let in_flight =
                    listed.unwrap_or_else(|| self.operations.add(tid(), self.page.mapping()));
                (local.engine, local.routes) = (self.number, Default::default());
                local.in_flight = Some(Arc::clone(&in_flight));
                Some(in_flight)
            })
            .ok()
            .flatten()
    }

    /// The calling thread's operation, if it has one. It may be in the engine's list alone: a
    /// looper keeps it while the thread uses other engines.
    pub(super) fn own_in_flight(&self) -> Option<Arc<InFlight>> {
        let known = with(self, |local| local.in_flight.clone());
        known.or_else(|| has_used_others().then(|| self.operations.of(tid())).flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::{broker, channel};

    const NODE: NodeId = NodeId(7);

    /// The lanes of its routes by these handles.
    fn lanes<const N: usize>(engine: &Engine, handles: [u32; N]) -> [Option<u32>; N] {
        let lane = |local: &mut Local, handle| Some(local.route(handle)?.1.lane.via().lane);
        handles.map(|handle| with(engine, |local| lane(local, handle)))
    }

    fn add_route(engine: &Engine, handle: u32, channel: &Arc<Channel>, lane: u32) {
        let add = |local: &mut Local| {
            local.insert(engine, (handle, NODE), channel, lane);
            Some(())
        };
        with(engine, add).unwrap();
    }

    fn is_free(channel: &Channel, lane: u32) -> bool {
        let is_free = channel.client_lanes.take_this(lane);
        if is_free {
            channel.client_lanes.give(lane);
        }
        is_free
    }

    #[test]
    fn a_route_is_its_handles_and_its_lane_one_of_its_channel() {
        let [broker, other_broker] = [broker(), broker()];
        let (server, client, to_server) = channel(&broker);
        let (other_server, other_client, elsewhere) = channel(&other_broker);
        client.in_flight().unwrap();
        add_route(&client, 1, &to_server, 3);
        assert_eq!(lanes(&client, [1, 2, 1 + ROUTES as u32]), [Some(3), None, None]);
        add_route(&client, 2, &to_server, 4);
        assert_eq!(lanes(&client, [1, 2]), [Some(3), Some(3)], "the lane that it has there");
        add_route(&client, 3, &elsewhere, 5);
        assert_eq!(lanes(&client, [1, 3]), [Some(3), Some(5)], "another channel's");
        assert!(elsewhere.client_lanes.take_this(6));
        add_route(&client, 4, &to_server, 6);
        client.with_state(|state| client.revoke(state));
        add_route(&client, 4, &elsewhere, 6);
        assert_eq!(lanes(&client, [1, 2, 3, 4]), [None; 4], "stale, and a lane that is taken");
        assert!(is_free(&to_server, 3) && is_free(&elsewhere, 5), "given back");
        [server, client, other_server, other_client].iter().for_each(|engine| engine.close());
    }

    #[test]
    fn a_thread_parts_with_the_lane_that_is_asked_for_and_no_other() {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        client.in_flight().unwrap();
        [1, 2].into_iter().for_each(|handle| add_route(&client, handle, &channel, 3));
        assert!(!client.take_own_lane(&channel, 4));
        assert_eq!(lanes(&client, [1, 2]), [Some(3); 2]);
        assert!(client.take_own_lane(&channel, 3));
        assert_eq!(lanes(&client, [1, 2]), [None; 2]);
        let is_kept = |local: &mut Local| Some(local.routes.iter().any(Option::is_some));
        assert_eq!(with(&client, is_kept), Some(false), "no route by any handle");
        assert!(!is_free(&channel, 3), "it is the one's who asked");
        let handle = 2 * ROUTES as u32 + 1;
        [handle, 3].into_iter().for_each(|handle| add_route(&client, handle, &channel, 5));
        let leave = |local: &mut Local| {
            local.leave_lane(handle);
            Some(())
        };
        with(&client, leave).unwrap();
        assert_eq!(lanes(&client, [handle, 3]), [None; 2]);
        assert!(!is_free(&channel, 5), "it is the state's");
        [server, client].iter().for_each(|engine| engine.close());
    }

    #[test]
    fn a_thread_has_one_operation_of_each_engine() {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        assert!(client.own_in_flight().is_none());
        let ours = client.in_flight().unwrap();
        add_route(&client, 1, &channel, 3);
        let theirs = server.in_flight().unwrap();
        assert!(!Arc::ptr_eq(&ours, &theirs));
        assert!(Arc::ptr_eq(&client.own_in_flight().unwrap(), &ours), "it is listed");
        assert_eq!(lanes(&server, [1]), [None], "a route of another engine");
        assert!(Arc::ptr_eq(&client.in_flight().unwrap(), &ours));
        let other =
            std::thread::scope(|scope| scope.spawn(|| client.in_flight().unwrap()).join().unwrap());
        let slots = [&ours, &other].map(|it| it.slot.as_ref().unwrap().number);
        assert_ne!(slots[0], slots[1], "threads that count in one slot");
        [server, client].iter().for_each(|engine| engine.close());
    }
}
