//! The caller's identity, as the driver reports it.

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Loopers};
use crate::listener::listen_and;
use crate::peer;

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let (child, peer) = peer::start("suite.identity.peer")?;
    let (other_child, other) = peer::start("suite.identity.other")?;
    let own = std::process::id() as i32;

    step("the caller's process and user");
    equal("service", peer.pid()?, child.pid())?;
    equal("process", peer.callerPid()?, own)?;
    equal("user", peer.callerUid()?, rustix::process::geteuid().as_raw() as i32)?;

    step("outside of any call");
    holds("no call is served here", !rsbinder::is_handling_transaction())?;

    step("inside a call back, and after calls made in it");
    let outer = child.pid();
    let (listener, _heard) = listen_and(move |_| {
        let before = rsbinder::get_calling_pid();
        let seen = other.callerPid()?;
        let after = rsbinder::get_calling_pid();
        if (before, seen, after) == (outer, own, outer) {
            Ok(())
        } else {
            Err(rsbinder::StatusCode::BadValue.into())
        }
    });
    equal("answer", peer.callBack(&listener, 1)?, 2)?;
    child.end()?;
    other_child.end()
}
