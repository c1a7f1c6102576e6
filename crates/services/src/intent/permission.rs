//! Permissions of users.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Which users hold which permissions. Root and the system's user hold all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    granted: BTreeMap<String, Vec<RangeInclusive<u32>>>,
}

impl Policy {
    /// Grants a permission to users.
    pub fn grant(&mut self, permission: impl Into<String>, uids: RangeInclusive<u32>) {
        self.granted.entry(permission.into()).or_default().push(uids);
    }

    /// Whether a user holds a permission.
    pub fn allows(&self, _uid: u32, _permission: &str) -> bool {
        todo!()
    }
}
