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
/// use baton_services::intent::permission::{Party, Policy};
/// let policy: Policy = "org.example.LISTEN 10001-10009".parse()?;
/// assert!(policy.allows(10_005, "org.example.LISTEN"));
/// let demands = ["org.example.LISTEN".to_owned()];
/// let (sender, receiver) = (Party { uid: 7, demands: &demands }, Party { uid: 8, demands: &[] });
/// let denial = policy.may_deliver(sender, receiver).unwrap_err();
/// assert_eq!(denial.to_string(), "the receiver, user 8, lacks org.example.LISTEN");
/// # Ok::<(), baton_services::intent::permission::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    granted: BTreeMap<String, Vec<RangeInclusive<u32>>>,
}

/// A sender or a receiver.
#[derive(Clone, Copy, Debug)]
pub struct Party<'a> {
    /// The user.
    pub uid: u32,
    /// The permissions that it demands of the other party.
    pub demands: &'a [String],
}

/// A permission that keeps a broadcast from a receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {role}, user {uid}, lacks {permission}")]
pub struct Denial {
    /// `sender` or `receiver`.
    pub role: &'static str,
    /// The user who lacks the permission.
    pub uid: u32,
    /// The permission.
    pub permission: String,
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

    /// Checks that each party holds what the other one demands.
    ///
    /// # Errors
    /// The first permission that one of them lacks.
    pub fn may_deliver(&self, sender: Party<'_>, receiver: Party<'_>) -> Result<(), Denial> {
        let check = |role, uid, demands: &[String]| {
            let lacking = demands.iter().find(|permission| !self.allows(uid, permission));
            lacking.cloned().map_or(Ok(()), |permission| Err(Denial { role, uid, permission }))
        };
        check("receiver", receiver.uid, sender.demands)?;
        check("sender", sender.uid, receiver.demands)
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

    #[test]
    fn both_parties_are_checked() {
        let policy: Policy = "p.SEND 1\np.RECEIVE 2".parse().unwrap();
        let (send, receive) = (["p.SEND".to_owned()], ["p.RECEIVE".to_owned()]);
        let outcome = |sender, receiver| {
            let sender = Party { uid: sender, demands: &receive };
            let receiver = Party { uid: receiver, demands: &send };
            policy.may_deliver(sender, receiver).map_err(|denial| (denial.role, denial.uid))
        };
        assert_eq!(outcome(1, 2), Ok(()));
        assert_eq!(outcome(1, 1), Err(("receiver", 1)));
        assert_eq!(outcome(2, 2), Err(("sender", 2)));
        assert_eq!(outcome(0, 0), Ok(()));
    }
}
