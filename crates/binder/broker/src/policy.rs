//! The administrator's configuration: how much users may have, and who may manage a context.
//!
//! ```toml
//! [[user]]                      # the first entry that fits a process counts
//! uid = 1000                    # or gid, or label; none of them: everybody
//! processes = 64                # handles, nodes, channels: most of one user, whatever is left
//! reserve = false               # whether it takes from what is kept back, as root does
//! real-time-priority = 20       # most that its callers are served at, whatever RLIMIT_RTPRIO says
//!
//! [[context]]
//! name = "binder"               # is made if there is none
//! managers = [{ uid = 1001 }]   # who may manage it; of a root broker's first three only root
//! ```

use crate::limits::{Rights, Usage};
use crate::peer::Credentials;
use crate::state::CONTEXTS;
use serde::Deserialize;

/// A parsed configuration. The empty configuration restricts nothing beyond the built-in rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    #[serde(default, rename = "user")]
    users: Vec<User>,
    #[serde(default, rename = "context")]
    contexts: Vec<Context>,
}

/// Selects processes by user, group and label. An empty selector fits every process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Who {
    uid: Option<u32>,
    gid: Option<u32>,
    label: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct User {
    // `Who` is not flattened here because serde would then accept unknown fields.
    uid: Option<u32>,
    gid: Option<u32>,
    label: Option<String>,
    #[serde(default)]
    reserve: bool,
    processes: Option<u32>,
    handles: Option<u32>,
    nodes: Option<u32>,
    channels: Option<u32>,
    real_time_priority: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    name: String,
    managers: Option<Vec<Who>>,
}

/// The reason for which a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The text is not TOML, or has an unknown entry.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// The priority is outside of the scheduler's range.
    #[error("real-time-priority is {0}, and has to be from 0 to 99")]
    Priority(u32),
    /// A context's list of managers is empty.
    #[error("the context {0:?} has no managers: leave the entry out, or name somebody")]
    NoManagers(String),
}

fn fits(
    uid: Option<u32>,
    gid: Option<u32>,
    label: Option<&String>,
    credentials: &Credentials,
) -> bool {
    uid.is_none_or(|uid| uid == credentials.uid)
        && gid.is_none_or(|gid| credentials.gids.contains(&gid))
        && label.is_none_or(|label| *label == credentials.security_context)
}

impl Who {
    fn fits(&self, credentials: &Credentials) -> bool {
        fits(self.uid, self.gid, self.label.as_ref(), credentials)
    }
}

impl User {
    fn fits(&self, credentials: &Credentials) -> bool {
        fits(self.uid, self.gid, self.label.as_ref(), credentials)
    }
}

impl Policy {
    /// Parses a configuration. An error is the administrator's fault.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let policy: Policy = toml::from_str(text)?;
        let priorities = policy.users.iter().filter_map(|user| user.real_time_priority);
        if let Some(priority) = priorities.into_iter().find(|priority| *priority > 99) {
            return Err(PolicyError::Priority(priority));
        }
        let nobody = |context: &&Context| context.managers.as_ref().is_some_and(Vec::is_empty);
        match policy.contexts.iter().find(nobody) {
            Some(context) => Err(PolicyError::NoManagers(context.name.clone())),
            None => Ok(policy),
        }
    }

    /// Appends the entries of another configuration. Earlier entries take precedence.
    pub fn extend(&mut self, next: Policy) {
        self.users.extend(next.users);
        self.contexts.extend(next.contexts);
    }

    /// Names of the contexts that the configuration mentions.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.iter().map(|context| context.name.as_str())
    }

    /// Whether an entry names a group.
    pub(crate) fn names_groups(&self) -> bool {
        let mut managers = self.contexts.iter().filter_map(|it| it.managers.as_ref()).flatten();
        self.users.iter().any(|user| user.gid.is_some()) || managers.any(|who| who.gid.is_some())
    }

    /// The amounts that a process may have. `owner` is the broker's own user.
    /// [`Policy::may_manage`] decides about managing.
    pub(crate) fn rights(&self, credentials: &Credentials, owner: u32) -> Rights {
        let entry = self.users.iter().find(|user| user.fits(credentials));
        let most = |of: fn(&User) -> Option<u32>| entry.and_then(of).unwrap_or(u32::MAX);
        Rights {
            reserve: credentials.uid == 0
                || credentials.uid == owner
                || entry.is_some_and(|user| user.reserve),
            manages: false,
            most: Usage {
                processes: most(|user| user.processes),
                handles: most(|user| user.handles),
                nodes: most(|user| user.nodes),
                channels: most(|user| user.channels),
            },
        }
    }

    /// Whether a process may manage a context. Only root manages Android's three contexts of root's
    /// broker, unless the configuration names others. Any other context belongs to its first
    /// manager's user.
    pub(crate) fn may_manage(&self, context: &str, credentials: &Credentials, owner: u32) -> bool {
        let named = self.contexts.iter().find(|it| it.name == context && it.managers.is_some());
        match named.and_then(|it| it.managers.as_ref()) {
            Some(managers) => managers.iter().any(|manager| manager.fits(credentials)),
            None => owner != 0 || credentials.uid == 0 || !CONTEXTS.contains(&context),
        }
    }

    /// The highest priority at which a process's real-time callers are served, if the configuration
    /// has one.
    pub(crate) fn real_time_limit(&self, credentials: &Credentials) -> Option<u32> {
        self.users.iter().find(|user| user.fits(credentials))?.real_time_priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::PidNamespace;

    fn credentials_of(uid: u32, gids: &[u32], label: &str) -> Credentials {
        let security_context = label.to_owned();
        let (pid_namespace, gids) = (PidNamespace::Brokers, gids.to_vec());
        Credentials {
            pid: 1,
            pid_namespace,
            uid,
            gids,
            security_context,
            incarnation: None,
            is_served_by_root: false,
        }
    }

    const TEXT: &str = r#"
        [[user]]
        uid = 1000
        processes = 64
        [[user]]
        gid = 50
        reserve = true
        real-time-priority = 20
        [[user]]
        label = "untrusted"
        handles = 10
        [[context]]
        name = "binder"
        managers = [{ uid = 1001 }, { gid = 50, label = "manager" }]
        [[context]]
        name = "mine"
    "#;

    #[test]
    fn the_first_matching_entry_applies() {
        let policy = Policy::parse(TEXT).unwrap();
        let none = Usage::MOST;
        for (credentials, reserve, most, priority) in [
            (credentials_of(1000, &[50], "x"), false, Usage { processes: 64, ..none }, None),
            (credentials_of(1002, &[7, 50], "x"), true, none, Some(20)),
            (credentials_of(1002, &[7], "untrusted"), false, Usage { handles: 10, ..none }, None),
            (credentials_of(1002, &[7], "x"), false, none, None),
            (credentials_of(0, &[0], "x"), true, none, None),
            (credentials_of(4, &[4], "x"), true, none, None),
        ] {
            let rights = policy.rights(&credentials, 4);
            assert_eq!((rights.reserve, rights.most), (reserve, most), "{credentials:?}");
            assert_eq!(policy.real_time_limit(&credentials), priority, "{credentials:?}");
        }
    }

    #[test]
    fn the_contexts_of_root_are_managed_by_root_or_named_users() {
        let (policy, none) = (Policy::parse(TEXT).unwrap(), Policy::default());
        let (root, user) = (credentials_of(0, &[0], "x"), credentials_of(1000, &[1000], "x"));
        for (policy, context, credentials, owner, expect) in [
            (&none, "binder", &root, 0, true),
            (&none, "binder", &user, 0, false),
            (&none, "vndbinder", &user, 0, false),
            (&none, "mine", &user, 0, true),
            (&none, "binder", &user, 1000, true),
            (&policy, "binder", &root, 0, false),
            (&policy, "binder", &credentials_of(1001, &[], "x"), 0, true),
            (&policy, "binder", &credentials_of(1002, &[50], "manager"), 0, true),
            (&policy, "binder", &credentials_of(1002, &[50], "x"), 0, false),
            (&policy, "mine", &user, 0, true),
        ] {
            assert_eq!(
                policy.may_manage(context, credentials, owner),
                expect,
                "{context} {credentials:?}"
            );
        }
        assert_eq!(policy.contexts().collect::<Vec<_>>(), ["binder", "mine"]);
    }

    #[test]
    fn groups_are_named_by_entries_of_either_kind() {
        for (text, expected) in [
            ("", false),
            ("[[user]]\nuid = 1", false),
            ("[[user]]\ngid = 1", true),
            ("[[context]]\nname = 'a'", false),
            ("[[context]]\nname = 'a'\nmanagers = [{ uid = 1 }]", false),
            ("[[context]]\nname = 'a'\nmanagers = [{ uid = 1 }, { gid = 1 }]", true),
        ] {
            assert_eq!(Policy::parse(text).unwrap().names_groups(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_configurations_are_refused() {
        for (text, expect) in [
            ("[[user]]\nuidd = 1", "unknown field `uidd`"),
            ("[[user]]\nuid = -1", "invalid value"),
            ("[[user]]\nreal-time-priority = 100", "from 0 to 99"),
            ("[[context]]\nname = \"a\"\nmanagers = []", "has no managers"),
            ("[[context]]\nname = \"a\"\nmanagers = [{ user = 1 }]", "unknown field `user`"),
            ("user = 1", "invalid type"),
        ] {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
        assert_eq!(Policy::parse("").unwrap(), Policy::default());
    }
}
