//! Nested calls through several processes, and back into those that wait.

use crate::check::{Outcome, equal, holds, next, step};
use crate::child::{self, Loopers};
use crate::listener::{listen, listen_and};
use crate::peer;

pub fn scenario() -> Outcome {
    child::open(Loopers::None)?;
    let (child_b, b) = peer::start_without_pool("suite.chain.b")?;
    let (child_c, c) = peer::start_without_pool("suite.chain.c")?;
    let (listener, heard) = listen();

    step("A to B to C to A");
    for round in 0..100 {
        let answer = b.relay(std::slice::from_ref(&c), &listener, round)?;
        equal("answer", answer, round + 2)?;
        let call = next("the call at the end of the chain", &heard)?;
        equal("caller", call.caller_pid, child_c.pid())?;
        equal("thread", call.thread, std::thread::current().id())?;
    }

    step("A to B to C to A to B to C, each with one thread");
    let (inner_b, inner_c) = (b.clone(), c.clone());
    let (through, heard) = listen_and(move |value| {
        let (innermost, heard) = listen();
        let answer = inner_b.relay(std::slice::from_ref(&inner_c), &innermost, value)?;
        let here = heard.try_recv().map(|call| call.thread) == Ok(std::thread::current().id());
        if here && answer == value + 2 {
            Ok(())
        } else {
            Err(rsbinder::StatusCode::BadValue.into())
        }
    });
    for round in 0..100 {
        equal("answer", b.relay(std::slice::from_ref(&c), &through, round)?, round + 2)?;
        next("the call at the end of the chain", &heard)?;
    }

    step("round and round: B to C to B to C to A");
    let path = [c.clone(), b.clone(), c.clone()];
    equal("answer", b.relay(&path, &listener, 0)?, 4)?;

    step("an error at the far end comes back through everybody");
    let (broken, _heard) = listen_and(|_| Err(rsbinder::StatusCode::NotEnoughData.into()));
    let error = b.relay(std::slice::from_ref(&c), &broken, 0).expect_err("the far end failed");
    holds("the far end's error", error == rsbinder::StatusCode::NotEnoughData.into())?;
    equal("calls go on", b.pid()?, child_b.pid())?;
    child_b.end()?;
    child_c.end()
}
