//! Calls back into a caller that waits for a reply, and later into one that does not.

use std::sync::mpsc::Receiver;

use rsbinder::{Interface, ProcessState};

use crate::check::{Outcome, equal, holds, next, step};
use crate::child::{self, Loopers};
use crate::listener::{Heard, listen};
use crate::peer;

/// Checks that the last call came from `pid`, to this very thread.
fn heard_here(heard: &Receiver<Heard>, value: i32, pid: i32) -> Outcome {
    let call = next("the call back", heard)?;
    equal("value", call.value, value)?;
    equal("caller", call.caller_pid, pid)?;
    equal("thread", call.thread, std::thread::current().id())
}

pub fn scenario() -> Outcome {
    step("into a process with no looper");
    child::open(Loopers::None)?;
    let (child, peer) = peer::start("suite.callback.peer")?;
    let (listener, heard) = listen();
    for value in 0..100 {
        equal("answer", peer.callBack(&listener, value)?, value + 1)?;
        heard_here(&heard, value, child.pid())?;
    }

    step("back and forth, 20 deep");
    equal("hops", peer.bounce(&peer::local(), 20)?, 20)?;

    step("into the thread that waits, though there is a pool");
    ProcessState::start_thread_pool();
    for value in 0..100 {
        equal("answer", peer.callBack(&listener, value)?, value + 1)?;
        heard_here(&heard, value, child.pid())?;
    }

    step("after the call has ended");
    peer.hold(Some(&listener))?;
    peer.send(7, 50)?;
    for sequence in 0..50 {
        let event = next("the event", &heard)?;
        equal("event", (event.value, event.sequence), (7, sequence))?;
        // As on Linux: a one-way call does not say who made it.
        equal("caller of a one-way call", event.caller_pid, 0)?;
        holds("an event comes to a looper", event.thread != std::thread::current().id())?;
    }

    step("to an object of the caller itself");
    let own = peer::local();
    equal("own process", own.pid()?, std::process::id() as i32)?;
    holds("an own object is not remote", !own.as_binder().is_remote())?;
    child.end()
}
