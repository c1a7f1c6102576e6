//! The pool of loopers grows as far as it was allowed to, and no further than needed.

use std::sync::mpsc;

use crate::check::{Outcome, equal, next, step};
use crate::child::{self, Loopers};
use crate::peer;

/// `n_callers` threads make a call that ends only when all of them are in the service.
fn meet(peer: &rsbinder::Strong<dyn crate::peer::IPeer>, n_callers: i32) -> Outcome {
    let (sender, answers) = mpsc::channel();
    for _ in 0..n_callers {
        let (peer, sender) = (peer.clone(), sender.clone());
        std::thread::spawn(move || sender.send(peer.meet(n_callers)));
    }
    for _ in 0..n_callers {
        equal("callers in the service at once", next("an answer", &answers)??, n_callers)?;
    }
    Ok(())
}

pub fn scenario() -> Outcome {
    child::open(Loopers::None)?;
    for (name, n_callers) in [("two", 2), ("eight", 8), ("sixteen", 16)] {
        step(name);
        let (child, peer) = peer::start(&format!("suite.threads.{name}"))?;
        meet(&peer, n_callers)?;
        child.end()?;
    }

    step("threads that end give back what they had");
    let (child, peer) = peer::start("suite.threads.short")?;
    for round in 0..200 {
        let peer = peer.clone();
        let answer = std::thread::spawn(move || peer.echo(&[round as u8])).join();
        equal("echo", answer.expect("the thread did not panic")?, vec![round as u8])?;
    }
    child.end()
}
