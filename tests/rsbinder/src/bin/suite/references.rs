//! Objects live exactly as long as references to them exist.

use rsbinder::{Interface, SIBinder, StatusCode};

use crate::check::{Outcome, PATIENCE, equal, holds, step};
use crate::child::{self, Loopers};
use crate::listener::Counted;
use crate::peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

/// Waits until `alive` is `count`. Repeated calls also let the owner go on: rsbinder drops a
/// released object only when its thread has answered the call that came with the release.
fn alive(count: i32, alive: impl Fn() -> Outcome<i32>) -> Outcome {
    let start = Instant::now();
    while alive()? != count && start.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    equal("objects alive", alive()?, count)
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let (child, peer) = peer::start("suite.references.owner")?;
    let (mut third_child, third) = peer::start("suite.references.third")?;

    step("as many objects as were asked for, and none once dropped");
    let objects = (0..100).map(|_| peer.make()).collect::<Result<Vec<_>, _>>()?;
    alive(100, || Ok(peer.alive()?))?;
    for object in &objects {
        equal("call", object.call(1)?, 2)?;
    }
    holds("one object is not another", objects[0].as_binder() != objects[1].as_binder())?;
    drop(objects);
    alive(0, || Ok(peer.alive()?))?;

    step("a weak reference revives what lives");
    let object = peer.make()?;
    let weak = SIBinder::downgrade(&object.as_binder());
    let revived = weak.upgrade()?;
    holds("it is the same object", revived == object.as_binder())?;
    drop(object);
    alive(1, || Ok(peer.alive()?))?;
    drop((revived, weak));
    alive(0, || Ok(peer.alive()?))?;

    step("passed on to a third process");
    let object = peer.make()?;
    third.hold(Some(&object))?;
    drop(object);
    alive(1, || Ok(peer.alive()?))?;
    third.send(1, 10)?;
    third.hold(None)?;
    alive(0, || Ok(peer.alive()?))?;

    step("given back to its owner");
    let object = peer.make()?;
    peer.hold(Some(&object))?;
    drop(object);
    alive(1, || Ok(peer.alive()?))?;
    peer.hold(None)?;
    alive(0, || Ok(peer.alive()?))?;

    step("an object of this process comes home as itself");
    let own_alive = Arc::new(AtomicI32::new(0));
    let own = Counted::make(&own_alive);
    third.hold(Some(&own))?;
    drop(own);
    equal("own objects alive", own_alive.load(Ordering::SeqCst), 1)?;
    third.hold(None)?;
    alive(0, || Ok(own_alive.load(Ordering::SeqCst)))?;

    step("held by a process that is killed");
    let object = peer.make()?;
    third.hold(Some(&object))?;
    let own = Counted::make(&own_alive);
    let (mut fourth_child, fourth) = peer::start("suite.references.fourth")?;
    fourth.hold(Some(&own))?;
    drop((object, own));
    third_child.kill()?;
    fourth_child.kill()?;
    alive(0, || Ok(peer.alive()?))?;
    alive(0, || Ok(own_alive.load(Ordering::SeqCst)))?;
    equal(
        "a call to the dead",
        third.pid().map_err(StatusCode::from),
        Err(StatusCode::DeadObject),
    )?;
    child.end()
}
