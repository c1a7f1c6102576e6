//! Objects live as long as anybody refers to them, and no longer.

use rsbinder::{Interface, SIBinder, StatusCode};

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Loopers};
use crate::listener::Counted;
use crate::peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Waits until no object that counts in `alive` is left.
fn wait_until_none(alive: &AtomicI32) -> Outcome {
    let start = std::time::Instant::now();
    while alive.load(Ordering::SeqCst) > 0 && start.elapsed() < crate::check::PATIENCE {
        std::thread::yield_now();
    }
    equal("objects alive", alive.load(Ordering::SeqCst), 0)
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let (child, peer) = peer::start("suite.references.owner")?;
    let (mut third_child, third) = peer::start("suite.references.third")?;

    step("as many objects as were asked for, and none once dropped");
    let objects = (0..100).map(|_| peer.make()).collect::<Result<Vec<_>, _>>()?;
    equal("alive", peer.alive(100)?, 100)?;
    for object in &objects {
        equal("call", object.call(1)?, 2)?;
    }
    holds("one object is not another", objects[0].as_binder() != objects[1].as_binder())?;
    drop(objects);
    equal("alive", peer.alive(0)?, 0)?;

    step("a weak reference keeps nothing alive, and revives what lives");
    let object = peer.make()?;
    let weak = SIBinder::downgrade(&object.as_binder());
    equal("revived", weak.upgrade().map(|binder| binder == object.as_binder()), Ok(true))?;
    drop(object);
    equal("alive", peer.alive(0)?, 0)?;
    equal("revived", weak.upgrade().map(|_| ()).map_err(|_| ()), Err(()))?;

    step("passed on to a third process");
    let object = peer.make()?;
    third.hold(Some(&object))?;
    drop(object);
    equal("alive", peer.alive(1)?, 1)?;
    third.send(1, 10)?;
    third.hold(None)?;
    equal("alive", peer.alive(0)?, 0)?;

    step("given back to its owner");
    let object = peer.make()?;
    peer.hold(Some(&object))?;
    drop(object);
    equal("alive", peer.alive(1)?, 1)?;
    peer.hold(None)?;
    equal("alive", peer.alive(0)?, 0)?;

    step("an object of this process comes home as itself");
    let alive = Arc::new(AtomicI32::new(0));
    let own = Counted::make(&alive);
    third.hold(Some(&own))?;
    drop(own);
    equal("own objects alive", alive.load(Ordering::SeqCst), 1)?;
    third.hold(None)?;
    wait_until_none(&alive)?;

    step("held by a process that is killed");
    let object = peer.make()?;
    third.hold(Some(&object))?;
    let own = Counted::make(&alive);
    let (mut fourth_child, fourth) = peer::start("suite.references.fourth")?;
    fourth.hold(Some(&own))?;
    drop((object, own));
    third_child.kill()?;
    fourth_child.kill()?;
    equal("alive", peer.alive(0)?, 0)?;
    wait_until_none(&alive)?;
    equal("a call to the dead", third.pid().map_err(StatusCode::from), Err(StatusCode::DeadObject))?;
    child.end()
}
