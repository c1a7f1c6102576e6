//! What came of an attack.

use serde::Serialize;

/// Whether everybody has survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Nobody was harmed.
    Green,
    /// Somebody was: see the findings.
    Red,
    /// The row cannot be played here.
    Skipped,
}

/// One row's.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The attack's name.
    pub name: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// Each harm that was done, or why the row was skipped.
    pub findings: Vec<String>,
    /// What was seen besides.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

/// Harms and notes, as they are found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub harms: Vec<String>,
    pub notes: Vec<String>,
}

impl Findings {
    pub fn harm(&mut self, what: impl Into<String>) {
        let what = what.into();
        // A hang is found by each probe after it.
        if !self.harms.contains(&what) {
            self.harms.push(what);
        }
    }

    pub fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    /// A harm unless it is so.
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
    fn a_row_is_red_for_a_harm_and_tells_it_once() {
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
