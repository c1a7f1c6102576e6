//! Features that Baton has and a kernel lacks. No scenario uses them, and the output names them.

use crate::rules::release;
use serde::Serialize;

/// A feature that the kernel's driver got with a release.
#[derive(Debug, Serialize)]
pub struct Skip {
    /// Name of the feature.
    pub name: &'static str,
    /// First release with the feature: version and patch level.
    pub since: (u32, u32),
    /// The replacement in scenarios.
    pub instead: &'static str,
}

const ALL: &[Skip] = &[
    Skip { name: "freeze-notifications", since: (6, 12), instead: "no scenario asks for them" },
    Skip {
        name: "BR_TRANSACTION_PENDING_FROZEN",
        since: (6, 2),
        instead: "stands for BR_TRANSACTION_COMPLETE: rule pending-frozen",
    },
];

/// The features that the named driver lacks.
pub fn skipped(driver: &str) -> Vec<&'static Skip> {
    let later = |skip: &&Skip| release(driver).is_some_and(|release| release < skip.since);
    ALL.iter().filter(later).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_later_is_skipped() {
        let names = |driver| skipped(driver).iter().map(|skip| skip.name).collect::<Vec<_>>();
        let both = ["freeze-notifications", "BR_TRANSACTION_PENDING_FROZEN"];
        assert_eq!(names("linux 6.1.0-56-rt-amd64"), both);
        assert_eq!(names("linux 6.6.1"), both[..1]);
        assert_eq!(names("linux 6.12.0"), [""; 0]);
    }
}
