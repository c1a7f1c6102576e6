//! Shortens a scenario on which two drivers differ.
//!
//! Steps are removed in runs of decreasing length. All candidates of one length are played
//! together, because starting a guest costs more than playing many scenarios.

use crate::arena::PROCESSES;
use crate::compare::{Played, compare, side_by_side, steps};
use crate::sides::{Parts, Play, Side};
use crate::step::{Act, Step};
use std::io;
use std::time::{Duration, Instant};

/// A scenario that differs.
#[derive(Debug)]
pub struct Found {
    /// Family and seed.
    pub name: String,
    /// The kernel's transcript.
    pub kernel: Played,
    /// Baton's transcript.
    pub baton: Played,
}

/// The parts that shrinking uses.
struct Bench<'a> {
    parts: &'a Parts,
    kernel: Side,
    ours: Side,
    driver: &'a str,
    until: Instant,
}

/// Returns the shortest scenario that was found in time, with both transcripts.
///
/// # Errors
/// A side could not be run.
pub fn shrink(
    parts: &Parts,
    (kernel, ours): (Side, Side),
    driver: &str,
    found: &Found,
    within: Duration,
) -> io::Result<String> {
    let bench = Bench { parts, kernel, ours, driver, until: Instant::now() + within };
    let first = bench.judged(steps(&found.kernel), &found.kernel, &found.baton);
    let Some(first) = first else { return Ok("no difference".to_owned()) };
    let again = bench.play(vec![first.steps.clone()])?.pop().flatten();
    let Some(mut shortest) = again else {
        let shown = first.shown;
        return Ok(format!("{shown}---- no difference when it is played again: it comes and goes"));
    };
    bench.leave_out_processes(&mut shortest)?;
    bench.leave_out_runs(&mut shortest)?;
    Ok(shortest.shown)
}

/// A scenario that differs in its last step.
struct Differing {
    steps: Vec<Step>,
    shown: String,
}

impl Bench<'_> {
    fn leave_out_processes(&self, shortest: &mut Differing) -> io::Result<()> {
        for process in 0..PROCESSES as u8 {
            let is_others = |step: &&Step| step.process != process;
            let left: Vec<_> = shortest.steps.iter().filter(is_others).cloned().collect();
            if left.len() < shortest.steps.len() && !self.is_late() {
                self.play(vec![left])?.into_iter().flatten().for_each(|found| *shortest = found);
            }
        }
        Ok(())
    }

    fn leave_out_runs(&self, shortest: &mut Differing) -> io::Result<()> {
        let mut length = (shortest.steps.len() / 2).max(1);
        while !self.is_late() {
            let before = shortest.steps.len();
            let alone: Vec<_> = (0..before.div_ceil(length)).map(|run| vec![run]).collect();
            let without = |sets: &[Vec<usize>]| {
                let steps = &shortest.steps;
                self.play(sets.iter().map(|set| leave_out(steps, length, set)).collect())
            };
            let results = without(&alone)?;
            // Runs that can be removed one by one possibly cannot be removed together.
            let dispensable: Vec<_> =
                (0..alone.len()).filter(|run| results[*run].is_some()).collect();
            let quarters = |n: usize| dispensable.len() * n / 4;
            let firsts = (1..=4).map(|n| dispensable[..quarters(n)].to_vec());
            let lasts = (0..4).map(|n| dispensable[quarters(n)..].to_vec());
            let more = without(&firsts.chain(lasts).collect::<Vec<_>>())?;
            for found in results.into_iter().chain(more).flatten() {
                if found.steps.len() < shortest.steps.len() {
                    *shortest = found;
                }
            }
            if shortest.steps.len() < before {
                length = length.min((shortest.steps.len() / 2).max(1));
            } else if length == 1 {
                break;
            } else {
                length /= 2;
            }
        }
        Ok(())
    }

    fn is_late(&self) -> bool {
        Instant::now() > self.until
    }

    /// The scenario up to the step in which it differs. `None` if it does not.
    fn judged(&self, mut steps: Vec<Step>, kernel: &Played, baton: &Played) -> Option<Differing> {
        let at = compare(kernel, baton, self.driver, self.ours.rules()).different?;
        steps.truncate(at + 1);
        let (theirs, ours) = (self.kernel.name(), self.ours.name());
        Some(Differing { steps, shown: side_by_side((&theirs, kernel), (&ours, baton), at) })
    }

    /// Plays all candidates on both sides.
    fn play(&self, candidates: Vec<Vec<Step>>) -> io::Result<Vec<Option<Differing>>> {
        let named = candidates.iter().enumerate();
        let named = named.map(|(n, steps)| (format!("candidate {n}"), steps.clone())).collect();
        let play = Play::Scenarios(named);
        let (baton, kernel) = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| self.kernel.run(self.parts, &play, &|| ()));
            (self.ours.run(self.parts, &play, &|| ()), kernel.join().expect("no panic"))
        });
        let (mut baton, mut kernel) = (baton?, kernel?);
        let judged = candidates.into_iter().enumerate().map(|(n, steps)| {
            let name = format!("candidate {n}");
            let (kernel, baton) = (kernel.played.remove(&name), baton.played.remove(&name));
            self.judged(steps, &kernel.unwrap_or_default(), &baton.unwrap_or_default())
        });
        Ok(judged.collect())
    }
}

/// The steps without the given runs of `length`.
fn leave_out(steps: &[Step], length: usize, runs: &[usize]) -> Vec<Step> {
    let kept = steps
        .iter()
        .enumerate()
        .filter(|(at, _)| is_opening(&steps[..=*at]) || !runs.contains(&(at / length)));
    kept.map(|(_, step)| step.clone()).collect()
}

/// Whether the last step belongs to the beginning of a process: a process that is only partly begun
/// is another scenario.
fn is_opening(steps: &[Step]) -> bool {
    match steps {
        [.., Step { act: Act::Map { .. }, .. }, Step { act: Act::Poll, .. }] => true,
        [.., Step { act: Act::Start { .. } | Act::Open { .. } | Act::Map { .. }, .. }] => true,
        // A process that is about to end.
        [.., Step { act: Act::Close, .. }] => true,
        _ => false,
    }
}
