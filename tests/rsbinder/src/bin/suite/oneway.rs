//! One-way calls: their order, and the limit of those that wait.

use rsbinder::{StatusCode, Strong};

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Loopers};
use crate::peer::{self, IPeer};

const MESSAGES: i32 = 1000;

/// Checks what the peer received: `MESSAGES` of each source, each source's in order.
fn check(received: &[i64], n_sources: i32) -> Outcome {
    equal("messages", received.len(), (MESSAGES * n_sources) as usize)?;
    for source in 0..n_sources {
        let sequences = received
            .iter()
            .filter(|message| *message >> 32 == i64::from(source))
            .map(|message| *message as i32);
        holds("messages come in order, one at a time", sequences.eq(0..MESSAGES))?;
    }
    Ok(())
}

fn post(peer: &Strong<dyn IPeer>, source: i32) -> Result<(), StatusCode> {
    (0..MESSAGES).try_for_each(|sequence| peer.post(source, sequence)).map_err(StatusCode::from)
}

/// A thousand messages come in the order in which they were sent, one at a time.
pub fn order() -> Outcome {
    child::open(Loopers::Pool)?;
    let (child, peer) = peer::start("suite.oneway.order")?;
    step("from one thread");
    post(&peer, 0)?;
    check(&peer.received(MESSAGES)?, 1)?;

    step("from four threads at once");
    let senders: Vec<_> = (0..4)
        .map(|source| (peer.clone(), source))
        .map(|(peer, source)| std::thread::spawn(move || post(&peer, source)))
        .collect();
    for sender in senders {
        sender.join().expect("the sender did not panic")?;
    }
    check(&peer.received(MESSAGES * 4)?, 4)?;
    child.end()
}

/// One-way calls may use half of the receiver's memory: only calls beyond that fail.
pub fn limit() -> Outcome {
    const SIZE: usize = 64 * 1024;
    child::open(Loopers::Pool)?;
    let (child, peer) = peer::start("suite.oneway.limit")?;
    step("until there is no room");
    peer.stall(true)?;
    let data = vec![1; SIZE];
    let mut sent = 0;
    let refused = loop {
        match peer.load(&data) {
            Ok(()) if sent < 16 => sent += 1,
            result => break result,
        }
    };
    equal(
        "the call too many",
        refused.map_err(StatusCode::from),
        Err(StatusCode::FailedTransaction),
    )?;
    // 508 KiB are there; each message takes a little more than its 64 KiB.
    equal("messages that found room", sent, 7)?;

    step("calls with a reply have room still");
    equal("echo", peer.echo(&data)?.len(), SIZE)?;

    step("everything that found room arrives");
    peer.stall(false)?;
    equal("bytes", peer.loaded(sent * SIZE as i32)?, sent * SIZE as i32)?;

    step("and there is room again");
    for _ in 0..100 {
        peer.load(&data)?;
        equal("bytes", peer.loaded(SIZE as i32)?, SIZE as i32)?;
    }
    child.end()
}
