//! Permissions of users.
//!
//! A broadcast may demand permissions of its receivers, and a receiver of its senders. A process
//! holds what its user holds. Root and the system's user hold all permissions. Nobody else holds
//! one that the policy does not grant.
//!
//! A policy is a text with a permission and its users on each line, which are numbers and ranges:
//!
//! ```text
//! # What applications may ask for.
//! android.permission.REBOOT        2000 10000-10099
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const ROOT: u32 = 0;
/// The user of Android's system server.
const SYSTEM: u32 = 1000;

/// Which users hold which permissions.
///
/// ```
/// use baton_services::intent::permission::Policy;
/// let policy: Policy = "org.example.LISTEN 10001-10009".parse()?;
/// assert!(policy.allows(10_005, "org.example.LISTEN"));
/// assert!(!policy.allows(8, "org.example.LISTEN"));
/// # Ok::<(), baton_services::intent::permission::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    granted: BTreeMap<String, Vec<RangeInclusive<u32>>>,
}

/// What is wrong with the text of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {word:?} is no number of a user, and no range such as 10000-10099")]
pub struct PolicyError {
    /// The line, from 1 on.
    pub line: usize,
    /// The wrong word.
    pub word: String,
}

impl Policy {
    /// Grants a permission to users.
    pub fn grant(&mut self, permission: impl Into<String>, uids: RangeInclusive<u32>) {
        self.granted.entry(permission.into()).or_default().push(uids);
    }

    /// Whether a user holds a permission.
    pub fn allows(&self, uid: u32, permission: &str) -> bool {
        let mut granted = self.granted.get(permission).into_iter().flatten();
        [ROOT, SYSTEM].contains(&uid) || granted.any(|uids| uids.contains(&uid))
    }
}

/// A number, or two with a hyphen between them.
fn uids(word: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

impl std::str::FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let mut policy = Policy::default();
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(permission) = words.next() else { continue };
            for word in words {
                let wrong = || PolicyError { line: index + 1, word: word.to_owned() };
                policy.grant(permission, uids(word).ok_or_else(wrong)?);
            }
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_grants_what_it_says() {
        let policy: Policy = "# all\na.A 5 10-12 # some\n\n  b.B 5\na.A 20".parse().unwrap();
        for (uid, permission, expected) in [
            (5, "a.A", true),
            (10, "a.A", true),
            (12, "a.A", true),
            (13, "a.A", false),
            (20, "a.A", true),
            (5, "b.B", true),
            (10, "b.B", false),
            (5, "c.C", false),
            (0, "c.C", true),
            (1000, "c.C", true),
            (1001, "c.C", false),
        ] {
            assert_eq!(policy.allows(uid, permission), expected, "{uid} {permission}");
        }
    }

    #[test]
    fn a_wrong_policy_is_refused_with_its_line() {
        for (text, line, word) in [
            ("a.A x", 1, "x"),
            ("\na.A 1 12-10", 2, "12-10"),
            ("a.A -1", 1, "-1"),
            ("a.A 1-", 1, "1-"),
            ("a.A 4294967296", 1, "4294967296"),
        ] {
            let wrong = PolicyError { line, word: word.to_owned() };
            assert_eq!(text.parse::<Policy>(), Err(wrong), "{text:?}");
        }
    }
}
