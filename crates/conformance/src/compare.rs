//! Transcripts side by side.

use crate::step::Step;
use crate::transcript::apart;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One scenario as it went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// Steps, each with the lines that came of it; the step's own line first.
    pub steps: Vec<Vec<String>>,
}

/// What a scenario came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Number of steps.
    pub steps: u64,
    /// Everything but places in receive buffers.
    pub rest: String,
    /// These.
    pub places: String,
}

/// A run's output: digests by scenario, and whole transcripts if it printed them.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// By scenario.
    pub digests: BTreeMap<String, Digest>,
    /// What was printed of each.
    pub played: BTreeMap<String, Played>,
}

impl Run {
    /// From what `play` has printed.
    pub fn parse(text: &str) -> Run {
        let mut run = Run::default();
        let mut current = Played::default();
        for line in text.lines() {
            if line.starts_with("> ") {
                current.steps.push(vec![line.to_owned()]);
            } else if let (true, Some(step)) = (line.starts_with("  "), current.steps.last_mut()) {
                step.push(line.to_owned());
            } else if let Some((name, digest)) = closing(line) {
                run.digests.insert(name.clone(), digest);
                run.played.insert(name, std::mem::take(&mut current));
            }
        }
        run
    }
}

/// `= NAME steps N digest D places P`
fn closing(line: &str) -> Option<(String, Digest)> {
    let (name, rest) = line.strip_prefix("= ")?.split_once(" steps ")?;
    let (steps, rest) = rest.split_once(" digest ")?;
    let (rest, places) = rest.split_once(" places ")?;
    let (rest, places) = (rest.to_owned(), places.to_owned());
    Some((name.to_owned(), Digest { steps: steps.parse().ok()?, rest, places }))
}

/// The first step at which two transcripts differ in more than places in receive buffers.
pub fn first_difference(one: &Played, other: &Played) -> Option<usize> {
    let longest = one.steps.len().max(other.steps.len());
    let rest = |played: &Played, at| {
        played.steps.get(at).map(|lines: &Vec<String>| apart(&lines.join("\n")).0)
    };
    (0..longest).find(|at| rest(one, *at) != rest(other, *at))
}

/// The steps of a transcript, to be played again.
pub fn steps(played: &Played) -> Vec<Step> {
    let lines = played.steps.iter().filter_map(|step| step.first()?.strip_prefix("> "));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Both transcripts, up to and with the step at which they differ.
pub fn side_by_side(kernel: &Played, baton: &Played, kernel_name: &str) -> String {
    let mut text = String::new();
    let Some(at) = first_difference(kernel, baton) else { return "no difference".to_owned() };
    for step in &kernel.steps[..at] {
        text.push_str(&step.join("\n"));
        text.push('\n');
    }
    for (name, played) in [(kernel_name, kernel), ("baton", baton)] {
        let step = played.steps.get(at).map_or_else(|| "(nothing)".to_owned(), |s| s.join("\n"));
        let _ = writeln!(text, "---- {name}\n{step}");
    }
    text
}
