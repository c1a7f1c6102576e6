//! Compares two transcripts, step by step in the order of the scenario.
//!
//! The returns of one read are compared in order, because the kernel's order is defined. The lines
//! of a step, one for each thread that finished, are compared as a set: threads finish side by
//! side, and their order is not observable. Both sides are sorted by process and thread.

use crate::rules::{Rule, Scene, explain};
use crate::step::Step;
use crate::transcript::{CLOSING, DRIVER, STUCK};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The transcript of one scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// Steps, each with its own line first and then its results.
    pub steps: Vec<Vec<String>>,
}

/// The output of one side.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Name and version of the driver.
    pub driver: String,
    /// Scenarios by name.
    pub played: BTreeMap<String, Played>,
    current: Played,
}

impl Run {
    /// Adds the next line of a run. Returns whether the line ended a scenario.
    pub fn take(&mut self, line: &str) -> bool {
        if line.starts_with("> ") {
            self.current.steps.push(vec![line.to_owned()]);
        } else if let (true, Some(step)) = (line.starts_with("  "), self.current.steps.last_mut()) {
            step.push(line.to_owned());
        } else if let Some(driver) = line.strip_prefix(DRIVER) {
            driver.clone_into(&mut self.driver);
        } else if let Some(name) = line.strip_prefix(CLOSING) {
            self.played.insert(name.to_owned(), std::mem::take(&mut self.current));
            return true;
        }
        false
    }
}

/// The result of comparing two transcripts.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Number of compared steps: all, or those up to the first unexplained difference.
    pub steps: u64,
    /// Number of steps that are equal on both sides.
    pub equal: u64,
    /// Number of steps to whose explanation each rule contributed.
    pub by_rule: BTreeMap<&'static str, u64>,
    /// Number of steps whose differences rules explain.
    pub explained: u64,
    /// Index of the first unexplained difference. Later steps are another scenario on each side.
    pub different: Option<usize>,
}

/// Compares two transcripts. `kernel_driver` is the name of the kernel's driver. Baton's side may
/// have rules of its own.
pub fn compare(
    kernel: &Played,
    baton: &Played,
    kernel_driver: &str,
    more_rules: &'static [Rule],
) -> Verdict {
    let mut verdict = Verdict::default();
    for at in 0..kernel.steps.len().max(baton.steps.len()) {
        verdict.steps += 1;
        match compare_step(kernel, baton, kernel_driver, more_rules, at) {
            Some(rules) if rules.is_empty() => verdict.equal += 1,
            Some(rules) => {
                verdict.explained += 1;
                for rule in rules {
                    *verdict.by_rule.entry(rule.name).or_default() += 1;
                }
            }
            None => {
                verdict.different = Some(at);
                break;
            }
        }
    }
    verdict
}

/// The rules that explain a step's differences, if they do.
fn compare_step(
    kernel: &Played,
    baton: &Played,
    kernel_driver: &str,
    more_rules: &'static [Rule],
    at: usize,
) -> Option<Vec<&'static Rule>> {
    let (theirs, ours) = (kernel.steps.get(at)?, baton.steps.get(at)?);
    let is_stuck = |step: &[String]| step.iter().any(|line| line.trim_start() == STUCK);
    if is_stuck(theirs) || is_stuck(ours) {
        return None;
    }
    if theirs == ours {
        return Some(Vec::new());
    }
    explain(&Scene { kernel_driver, steps: &steps_until(kernel, at), theirs, ours, more_rules })
}

fn steps_until(played: &Played, at: usize) -> Vec<Step> {
    let lines = played.steps[..=at].iter().filter_map(|step| step.first()?.strip_prefix("> "));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The steps of a transcript, for playing it again.
pub fn steps(played: &Played) -> Vec<Step> {
    played.steps.len().checked_sub(1).map_or_else(Vec::new, |last| steps_until(played, last))
}

/// Prints both transcripts, each with the name of its side, up to the step at which they differ.
pub fn side_by_side(kernel: (&str, &Played), baton: (&str, &Played), at: usize) -> String {
    let mut text = String::new();
    for step in kernel.1.steps.iter().take(at) {
        text.push_str(&step.join("\n"));
        text.push('\n');
    }
    for (name, played) in [kernel, baton] {
        let step = played.steps.get(at).map_or_else(|| "(nothing)".to_owned(), |s| s.join("\n"));
        let _ = writeln!(text, "---- {name}\n{step}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(text: &str) -> Played {
        let mut run = Run::default();
        for line in text.lines() {
            run.take(line);
        }
        assert!(run.take("= one 1"));
        run.played.remove("one 1").expect("closed")
    }

    const OPENING: &str = r#"> {"process":0,"thread":0,"act":{"Open":{"nonblocking":false}}}
  p0.t0 ok
"#;

    fn check(kernel: &str, baton: &str) -> Verdict {
        let (kernel, baton) = (format!("{OPENING}{kernel}"), format!("{OPENING}{baton}"));
        compare(&played(&kernel), &played(&baton), "linux 6.1.0-56-amd64", &[])
    }

    #[test]
    fn the_same_is_equal() {
        let step = "> {\"process\":0,\"thread\":0,\"act\":\"Poll\"}\n  p0.t0 events 5";
        assert_eq!(check(step, step), Verdict { steps: 2, equal: 2, ..Verdict::default() });
    }

    #[test]
    fn a_difference_ends_the_comparison() {
        let (one, other) =
            ("> \"a\"\n  p0.t0 ok\n> \"b\"\n  x", "> \"a\"\n  p0.t0 EINTR\n> \"b\"\n  x");
        let verdict = check(one, other);
        assert_eq!((verdict.steps, verdict.equal, verdict.different), (2, 1, Some(1)));
    }

    #[test]
    fn a_transcript_that_is_shorter_differs() {
        assert_eq!(check("> \"a\"\n  p0.t0 ok", "").different, Some(1));
    }

    #[test]
    fn who_is_stuck_differs_even_from_the_stuck() {
        let stuck = "> \"a\"\n  stuck";
        assert_eq!(check(stuck, stuck).different, Some(1));
    }

    #[test]
    fn another_step_is_no_matter_of_rules() {
        let (one, other) = ("> \"a +10\"\n  p0.t0 ok", "> \"a +20\"\n  p0.t0 ok");
        assert_eq!(check(one, other).different, Some(1));
    }
}
