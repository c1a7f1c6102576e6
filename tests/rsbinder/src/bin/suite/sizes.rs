//! Payloads from nothing to more than fits.

use rsbinder::StatusCode;

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Loopers};
use crate::peer;

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 253) as u8).collect()
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let (child, peer) = peer::start("suite.sizes.peer")?;
    step("what fits");
    for size in [0, 1, 2, 3, 4, 5, 7, 8, 4095, 4096, 4097, 65536, 524_288, 1_000_000] {
        let data = pattern(size);
        holds("the bytes come back unchanged", peer.echo(&data)? == data)?;
    }

    step("a request that does not fit");
    let failed = Err(StatusCode::FailedTransaction);
    for _ in 0..3 {
        let answer = peer.echo(&pattern(1_100_000)).map_err(StatusCode::from);
        equal("answer", answer, failed.clone())?;
        equal("the next call", peer.echo(&[1, 2, 3])?, vec![1, 2, 3])?;
    }

    step("a reply that does not fit");
    for _ in 0..3 {
        equal("answer", peer.fill(2_000_000).map_err(StatusCode::from), failed.clone())?;
        equal("the next call", peer.fill(3)?, vec![7, 7, 7])?;
    }

    step("many at once, in pieces of all sizes");
    let callers: Vec<_> = (0..4)
        .map(|caller| (caller, peer.clone()))
        .map(|(caller, peer)| {
            std::thread::spawn(move || {
                (0..200usize).all(|round| {
                    let data = pattern((round * 7919 + caller * 104_729) % 200_000);
                    peer.echo(&data).is_ok_and(|answer| answer == data)
                })
            })
        })
        .collect();
    for caller in callers {
        holds("every echo came back unchanged", caller.join().unwrap_or(false))?;
    }
    child.end()
}
