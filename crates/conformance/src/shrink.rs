//! Makes a scenario on which two drivers differ as short as it gets.
//!
//! Steps are taken out in runs of ever fewer; all candidates of one length are played together, as
//! starting a guest costs more than playing many scenarios in it.

use crate::compare::{Played, first_difference, side_by_side, steps};
use crate::sides::{Parts, Play, Side};
use crate::step::Step;
use std::io;

/// The shortest scenario that was found, with both transcripts of it.
///
/// # Errors
/// A side could not be run.
pub fn shrink(parts: &Parts, kernel: Side, found: &Played, other: &Played) -> io::Result<String> {
    let Some(at) = first_difference(found, other) else { return Ok("no difference".to_owned()) };
    let mut shortest = steps(found);
    shortest.truncate(at + 1);
    let mut shown = side_by_side(found, other, &kernel.name());
    let mut length = (shortest.len() / 2).max(1);
    loop {
        let candidates = candidates(&shortest, length);
        let results = play_both(parts, kernel, &candidates)?;
        let before = shortest.len();
        for ((_, steps), (found, other)) in candidates.iter().zip(&results) {
            if let Some(at) = first_difference(found, other)
                && (at + 1).min(steps.len()) < shortest.len()
            {
                shortest = steps.clone();
                shortest.truncate(at + 1);
                shown = side_by_side(found, other, &kernel.name());
            }
        }
        if shortest.len() == before {
            if length == 1 {
                return Ok(shown);
            }
            length = (length / 2).max(1);
        } else {
            length = length.min((shortest.len() / 2).max(1));
        }
    }
}

/// The scenario without each run of so many steps; and, as many of these can go together, without
/// every second and every third of them.
fn candidates(steps: &[Step], length: usize) -> Vec<(String, Vec<Step>)> {
    let runs: Vec<_> = (0..steps.len()).step_by(length).collect();
    let without = |gone: &dyn Fn(usize) -> bool| {
        let kept = steps.iter().enumerate().filter(|(at, _)| !gone(at / length));
        kept.map(|(_, step)| step.clone()).collect::<Vec<_>>()
    };
    let mut all: Vec<Vec<Step>> =
        runs.iter().map(|run| without(&|number| number == run / length)).collect();
    for every in [2, 3] {
        all.extend((0..every).map(|first| without(&|number| number % every == first)));
    }
    all.into_iter().enumerate().map(|(n, steps)| (format!("candidate {n}"), steps)).collect()
}

fn play_both(
    parts: &Parts,
    kernel: Side,
    candidates: &[(String, Vec<Step>)],
) -> io::Result<Vec<(Played, Played)>> {
    let play = Play::Scenarios(candidates.to_vec());
    let (guest, host) = std::thread::scope(|scope| {
        let guest = scope.spawn(|| kernel.run(parts, &play));
        (Side::Baton.run(parts, &play), guest.join().expect("no panic"))
    });
    let (mut guest, mut host) = (guest?, host?);
    let mut take = |name: &String| {
        let both = (guest.played.remove(name), host.played.remove(name));
        (both.1.unwrap_or_default(), both.0.unwrap_or_default())
    };
    Ok(candidates.iter().map(|(name, _)| take(name)).collect())
}
