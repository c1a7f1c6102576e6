//! Nodes of third processes that the receiver knows: they pass from process to process without the
//! broker, and are given up like any other.
#[path = "support/service.rs"]
mod service;
mod support;

use baton::{Errno, Handle, Parcel, Process, Request};
use baton_driver::observer::Observer;
use service::{client_of, manage};
use std::sync::{Arc, Mutex};
use std::thread;
use support::Broker;

/// What a registry is asked: to keep the service that comes, to answer with it, to see that the
/// services that come are the one that it keeps, to answer with the bytes of the request, to answer
/// with the service many times.
const ADD: u32 = 1;
const GET: u32 = 2;
const CHECK: u32 = 3;
const ECHO: u32 = 4;
const GET_MANY: u32 = 5;
/// Calls after which all threads use the fast path.
const WARM_UP: u32 = 100;
const CALLS: u32 = 500;

/// References of a message that are too many for the fast path.
const MANY: usize = 20;

/// A registry, the owner of the service that it keeps, and a client.
struct Stage {
    registry: Process,
    owner: Process,
    client: Process,
    manager: Handle,
}

fn stage(broker: &Broker) -> Stage {
    let kept: Arc<Mutex<Option<Handle>>> = Arc::default();
    let registry = manage(broker, move |request| answer(&kept, request));
    let (owner, manager) = client_of(broker);
    let service = owner.object(|request| Ok(request.data().into())).add();
    let serving = owner.clone();
    thread::spawn(move || serving.serve());
    let mut added = Parcel::new();
    added.write_object(service);
    manager.call(ADD, &added).unwrap();
    let (client, manager) = client_of(broker);
    (0..WARM_UP).for_each(|_| drop(manager.call(ECHO, &Parcel::new()).unwrap()));
    Stage { registry, owner, client, manager }
}

fn answer(kept: &Mutex<Option<Handle>>, request: &Request<'_>) -> Result<Parcel, Errno> {
    let mut answer = Parcel::from(request.data());
    let mut kept = kept.lock().unwrap();
    match request.code() {
        ADD => *kept = request.received.handle(0),
        GET => answer = parcel_of(kept.as_ref().ok_or(Errno::NOENT)?, 1),
        GET_MANY => answer = parcel_of(kept.as_ref().ok_or(Errno::NOENT)?, MANY),
        CHECK => {
            let mut all = (0..).map_while(|at| request.received.handle(at)).peekable();
            let is_it = all.peek().is_some() && all.all(|handle| Some(handle) == *kept);
            answer = Parcel::from(&[u8::from(is_it)][..]);
        }
        _ => {}
    }
    Ok(answer)
}

fn parcel_of(handle: &Handle, n: usize) -> Parcel {
    let mut parcel = Parcel::new();
    (0..n).for_each(|_| _ = parcel.write_handle(handle));
    parcel
}

impl Stage {
    fn get(&self) -> Option<Handle> {
        self.manager.call(GET, &Parcel::new()).ok()?.handle(0)
    }

    /// Whether the registry takes the handle for the service, if it comes so many times at once.
    fn is_service(&self, handle: &Handle, times: usize) -> bool {
        let answer = self.manager.call(CHECK, &parcel_of(handle, times));
        answer.is_ok_and(|answer| answer.data() == [1])
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        [&self.client, &self.owner, &self.registry].into_iter().for_each(Process::close);
    }
}

/// How many processes hold nodes of others than the context manager.
fn n_holdings(broker: &Broker) -> usize {
    let contexts = Observer::connect(&broker.socket).unwrap().report().unwrap().contexts;
    let owners = contexts.iter().flat_map(|context| {
        let is_manager = |process: u64| context.manager == Some(process);
        context.processes.iter().filter(move |owner| !is_manager(owner.process))
    });
    owners.map(|owner| owner.holdings.len()).sum()
}

fn answers(service: &Handle) -> bool {
    service.call(0, &b"called"[..].into()).is_ok_and(|answer| answer.data() == b"called")
}

#[test]
fn what_both_ends_know_passes_while_there_is_no_broker() {
    let broker = Broker::start();
    let stage = stage(&broker);
    let service = stage.get().unwrap();
    assert!(stage.is_service(&service, 1) && answers(&service));
    drop(broker);
    (0..WARM_UP).for_each(|_| drop(stage.manager.call(ECHO, &Parcel::new()).unwrap()));
    for number in 0..CALLS {
        assert!(stage.get().as_ref() == Some(&service), "call {number}");
        assert!(stage.is_service(&service, 1), "call {number}");
    }
    assert!(answers(&service));
}

/// Whatever takes the general path.
#[test]
fn many_known_nodes_pass_while_there_is_no_broker() {
    let broker = Broker::start();
    let stage = stage(&broker);
    let service = stage.get().unwrap();
    assert!(stage.is_service(&service, MANY));
    drop(broker);
    for number in 0..CALLS {
        let all = stage.manager.call(GET_MANY, &Parcel::new()).unwrap();
        assert!((0..MANY).all(|at| all.handle(at).as_ref() == Some(&service)), "call {number}");
        assert!(stage.is_service(&service, MANY), "call {number}");
    }
}

#[test]
fn a_handle_that_one_thread_drops_comes_again_for_another() {
    let broker = Broker::start();
    let stage = stage(&broker);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for number in 0..CALLS {
                    let service = stage.get().unwrap();
                    assert!(number % 8 != 0 || answers(&service), "call {number}");
                }
            });
        }
    });
    // The registry alone.
    while n_holdings(&broker) != 1 {
        thread::yield_now();
    }
    assert!(answers(&stage.get().unwrap()), "it is there for the next one");
}
