//! Transcripts side by side.

use crate::step::Step;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One scenario as it went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// Steps, each with the lines that came of it; the step's own line first.
    pub steps: Vec<Vec<String>>,
}

/// A run's output: digests by scenario, and whole transcripts if it printed them.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Number of steps and digest, by scenario.
    pub digests: BTreeMap<String, (u64, String)>,
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
            } else if let Some((name, steps, digest)) = closing(line) {
                run.digests.insert(name.clone(), (steps, digest));
                run.played.insert(name, std::mem::take(&mut current));
            }
        }
        run
    }
}

/// `= NAME steps N digest D`
fn closing(line: &str) -> Option<(String, u64, String)> {
    let (name, rest) = line.strip_prefix("= ")?.split_once(" steps ")?;
    let (steps, digest) = rest.split_once(" digest ")?;
    Some((name.to_owned(), steps.parse().ok()?, digest.to_owned()))
}

/// The first step at which two transcripts differ.
pub fn first_difference(one: &Played, other: &Played) -> Option<usize> {
    let longest = one.steps.len().max(other.steps.len());
    (0..longest).find(|at| one.steps.get(*at) != other.steps.get(*at))
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
