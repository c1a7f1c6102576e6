//! The result of an attack.

use serde::Serialize;

/// Whether the honest processes survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// No honest process was harmed.
    Green,
    /// An honest process was harmed: see the findings.
    Red,
    /// The attack cannot run here.
    Skipped,
}

/// The result of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The attack's name.
    pub name: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// Every harm, or the reason for skipping the attack.
    pub findings: Vec<String>,
    /// Other observations.
    pub notes: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Harms and notes, collected during an attack.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub harms: Vec<String>,
    pub notes: Vec<String>,
}

impl Findings {
    pub fn harm(&mut self, what: impl Into<String>) {
        let what = what.into();
        // Every probe after a hang finds it again.
        if !self.harms.contains(&what) {
            self.harms.push(what);
        }
    }

    pub fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    /// Records a harm unless `is_so` is true.
    pub fn expect(&mut self, is_so: bool, otherwise: impl Into<String>) {
        if !is_so {
            self.harm(otherwise);
        }
    }

    pub fn verdict(self, name: &'static str, seconds: f64) -> Verdict {
        let outcome = if self.harms.is_empty() { Outcome::Green } else { Outcome::Red };
        Verdict { name, outcome, findings: self.harms, notes: self.notes, seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_harm_makes_the_result_red_and_is_listed_once() {
        let mut findings = Findings::default();
        findings.note("somebody came");
        findings.expect(true, "nothing");
        assert_eq!(findings.clone().verdict("a", 0.0).outcome, Outcome::Green);
        findings.expect(false, "it hangs");
        findings.harm("it hangs");
        let verdict = findings.verdict("a", 0.0);
        assert_eq!((verdict.outcome, verdict.findings.len()), (Outcome::Red, 1));
    }
}
