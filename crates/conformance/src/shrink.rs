//! Makes a scenario on which two drivers differ as short as it gets.
//!
//! Steps are taken out in runs of ever fewer; all candidates of one length are played together, as
//! starting a guest costs more than playing many scenarios in it.

use crate::arena::PROCESSES;
use crate::compare::{Played, first_difference, side_by_side, steps};
use crate::sides::{Parts, Play, Side};
use crate::step::{Act, Step};
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
    for process in 0..PROCESSES as u8 {
        let left: Vec<_> = shortest.iter().filter(|s| s.process != process).cloned().collect();
        let both = play_both(parts, kernel, &[("candidate".to_owned(), left.clone())])?;
        if let Some(at) = first_difference(&both[0].0, &both[0].1) {
            shown = side_by_side(&both[0].0, &both[0].1, &kernel.name());
            shortest = left;
            shortest.truncate(at + 1);
        }
    }
    let mut length = (shortest.len() / 2).max(1);
    loop {
        let before = shortest.len();
        let alone: Vec<_> = (0..before.div_ceil(length)).map(|run| vec![run]).collect();
        let results = play_without(parts, kernel, &shortest, length, &alone)?;
        let dispensable: Vec<_> =
            (0..alone.len()).filter(|run| results[*run].2.is_some()).collect();
        // Those that can go one by one may not go together.
        let halves = (0..4).map(|n| dispensable[..dispensable.len() * (n + 1) / 4].to_vec());
        let others = (0..4).map(|n| dispensable[dispensable.len() * n / 4..].to_vec());
        let together: Vec<_> = halves.chain(others).collect();
        let more = play_without(parts, kernel, &shortest, length, &together)?;
        for (steps, text, at) in results.into_iter().chain(more) {
            if let Some(at) = at
                && (at + 1).min(steps.len()) < shortest.len()
            {
                shortest = steps;
                shortest.truncate(at + 1);
                shown = text;
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

/// Whether the last step is one by which a process comes in: a process that did it in part only is
/// another scenario.
fn is_opening(steps: &[Step]) -> bool {
    match steps {
        [.., Step { act: Act::Map { .. }, .. }, Step { act: Act::Poll, .. }] => true,
        [.., Step { act: Act::Start { .. } | Act::Open { .. } | Act::Map { .. }, .. }] => true,
        // One that is about to end.
        [.., Step { act: Act::Close, .. }] => true,
        _ => false,
    }
}

/// Steps, both transcripts side by side, and where they differ.
type Judged = (Vec<Step>, String, Option<usize>);

/// Plays the scenario without each of these sets of runs: what is left of it, both transcripts, and
/// where they differ.
fn play_without(
    parts: &Parts,
    kernel: Side,
    steps: &[Step],
    length: usize,
    sets: &[Vec<usize>],
) -> io::Result<Vec<Judged>> {
    let without = |set: &Vec<usize>| {
        let kept = steps
            .iter()
            .enumerate()
            .filter(|(at, _)| is_opening(&steps[..=*at]) || !set.contains(&(at / length)));
        kept.map(|(_, step)| step.clone()).collect::<Vec<_>>()
    };
    let name = |n| format!("candidate {n}");
    let candidates: Vec<_> =
        sets.iter().enumerate().map(|(n, set)| (name(n), without(set))).collect();
    let results = play_both(parts, kernel, &candidates)?;
    let judged = candidates.into_iter().zip(results).map(|((_, steps), (found, other))| {
        let text = side_by_side(&found, &other, &kernel.name());
        (steps, text, first_difference(&found, &other))
    });
    Ok(judged.collect())
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
