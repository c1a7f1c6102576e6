//! The totals of a comparison, by family and by rule.

use crate::compare::Verdict;
use crate::rules::{Does, RULES};
use crate::sides::Side;
use crate::skips::{Skip, skipped};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// Counts of a family, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Scenarios.
    pub scenarios: u64,
    /// Steps compared.
    pub steps: u64,
    /// Steps that are equal on both sides.
    pub equal: u64,
    /// Steps whose differences rules explain.
    pub explained: u64,
    /// Unexplained differences: at most one per scenario, which ends its comparison.
    pub different: u64,
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.scenarios += other.scenarios;
        self.steps += other.steps;
        self.equal += other.equal;
        self.explained += other.explained;
        self.different += other.different;
    }
}

/// The comparison with one kernel.
#[derive(Debug, Serialize)]
pub struct Tally {
    /// The kernel's package.
    pub kernel: String,
    /// Baton's side.
    pub ours: String,
    /// Name and version of its driver.
    pub driver: String,
    /// By family.
    pub families: BTreeMap<String, Row>,
    /// All families together.
    pub all: Row,
    /// Number of steps to which each rule contributed, for all rules that explain.
    pub rules: BTreeMap<&'static str, u64>,
    /// Rules that the generator avoids.
    pub avoided: Vec<&'static str>,
    /// Features that this kernel lacks.
    pub skipped: Vec<&'static Skip>,
    /// Scenarios that differ.
    pub differences: Vec<String>,
}

impl Tally {
    /// An empty tally.
    pub fn new(kernel: Side, ours: Side) -> Tally {
        let names = |explains: bool| {
            let like = move |does: &Does| matches!(does, Does::Explains(_)) == explains;
            let rules = RULES.iter().chain(ours.rules());
            rules.filter(move |rule| like(&rule.does)).map(|rule| rule.name)
        };
        Tally {
            kernel: kernel.name(),
            ours: ours.name(),
            driver: String::new(),
            families: BTreeMap::new(),
            all: Row::default(),
            rules: names(true).map(|name| (name, 0)).collect(),
            avoided: names(false).collect(),
            skipped: Vec::new(),
            differences: Vec::new(),
        }
    }

    /// Records the name of the driver.
    pub fn met(&mut self, driver: &str) {
        driver.clone_into(&mut self.driver);
        self.skipped = skipped(driver);
    }

    /// Adds a scenario.
    pub fn add(&mut self, name: &str, verdict: &Verdict) {
        let family = name.split(' ').next().unwrap_or(name);
        let row = Row {
            scenarios: 1,
            steps: verdict.steps,
            equal: verdict.equal,
            explained: verdict.explained,
            different: u64::from(verdict.different.is_some()),
        };
        self.families.entry(family.to_owned()).or_default().add(&row);
        self.all.add(&row);
        for (rule, steps) in &verdict.by_rule {
            *self.rules.entry(rule).or_default() += steps;
        }
        if verdict.different.is_some() {
            self.differences.push(name.to_owned());
        }
    }
}

impl Display for Tally {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "{} ({}) and {}", self.kernel, self.driver, self.ours)?;
        writeln!(
            to,
            "{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "family", "scenarios", "steps", "equal", "explained", "different"
        )?;
        let rows = self.families.iter().map(|(family, row)| (family.as_str(), row));
        for (family, row) in rows.chain([("all", &self.all)]) {
            let Row { scenarios, steps, equal, explained, different } = row;
            writeln!(
                to,
                "{family:<12}{scenarios:>10}{steps:>10}{equal:>10}{explained:>10}{different:>10}"
            )?;
        }
        for (rule, steps) in &self.rules {
            match steps {
                0 => writeln!(to, "rule {rule}: explained nothing")?,
                steps => writeln!(to, "rule {rule}: explained {steps} steps")?,
            }
        }
        writeln!(to, "rules that no scenario meets: {}", self.avoided.join(", "))?;
        for Skip { name, since: (version, patch), instead } in &self.skipped {
            writeln!(to, "skipped: {name}, since Linux {version}.{patch}: {instead}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_add_up() {
        let mut tally = Tally::new(Side::Kernel("generic"), Side::Baton);
        tally.met("linux 6.1.0");
        let by_rule = BTreeMap::from([("taken-in-later", 3)]);
        let explained = Verdict { steps: 10, equal: 7, explained: 3, by_rule, different: None };
        let different = Verdict { steps: 5, equal: 4, different: Some(4), ..Verdict::default() };
        tally.add("calls 0", &explained);
        tally.add("calls 1", &different);
        tally.add("deaths 1", &explained);
        let sum = Row { scenarios: 3, steps: 25, equal: 18, explained: 6, different: 1 };
        assert_eq!(tally.all, sum);
        assert_eq!(tally.families["calls"].scenarios, 2);
        assert_eq!(tally.differences, ["calls 1"]);
        let text = tally.to_string();
        assert!(text.contains("rule taken-in-later: explained 6 steps"), "{text}");
        assert!(text.contains("rule pending-frozen: explained nothing"), "{text}");
        assert!(text.contains("skipped: freeze-notifications, since Linux 6.12"), "{text}");
    }
}
