//! Accounts: how much of this process each user of its peers holds, and how much each may hold.
//!
//! | resource | limit, all users together | beyond a user's share |
//! |---|---|---|
//! | `Channels`, as server | a sixth of RLIMIT_NOFILE | its first call fails |
//! | `Descriptors` before their message | a quarter of RLIMIT_NOFILE | they stay in their socket |
//! | `Closing`: descriptors to be closed | a quarter of RLIMIT_NOFILE | none is read |
//! | `Tickets` without their message | 16,384 | the references go back, the message fails |
//! | `Objects` in such tickets | 32,768 | likewise |
//! | `Disowned` tickets, dropped before they came | 4,096 | a late one stays in `Tickets` |
//! | `Sent` descriptors that a peer has not read | half of RLIMIT_NOFILE | the send fails |
//! | `Lanes` of others that are mapped | 32,768 | the channel ends |
//! | `Handles` that owners have granted | 65,536 | the message fails |
//! | `Handles` that have gone and that their owner does not take back | the same | channels end |
//! | `Entries` of this process's list of holders | 262,144 | the message fails |
//!
//! Users share each as [`Quota`] says: a stranger may have at most what is then left for all
//! others. The engine's own user and root may take all, and have a part that no stranger reaches.
//!
//! **Lock order**: last. Nothing is locked under it.

use baton_abi::holder_list::ENTRIES;
use baton_abi::quota::{Quota, QuotaClass, STRANGER};
use baton_shm::lock::Lock;
use std::sync::Arc;

/// A resource that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Channels on which the user's processes call this one.
    Channels,
    /// Descriptors that have come before their message.
    Descriptors,
    /// Descriptors of the user's processes that wait to be closed.
    Closing,
    /// Tickets that have come before their message.
    Tickets,
    /// The objects of such tickets.
    Objects,
    /// Tickets whose message has been dropped and whose event has not come.
    Disowned,
    /// Descriptors on their way to the user's processes.
    Sent,
    /// Lanes that the user's processes call on, mapped.
    Lanes,
    /// Handles to nodes of the user's processes that these have granted themselves.
    Handles,
    /// Entries of this process's list with the user's processes.
    Entries,
}

const RESOURCES: usize = 10;

const MAX_TICKETS: u64 = 16 * 1024;
const MAX_OBJECTS: u64 = 32 * 1024;
const MAX_DISOWNED: u64 = 4 * 1024;
/// Half of the maps that a process may have by default.
const MAX_LANES: u64 = 32 * 1024;
const MAX_HANDLES: u64 = 64 * 1024;
/// The default RLIMIT_NOFILE of a process.
const DESCRIPTORS: u64 = 1024;

/// All users' accounts with one engine.
#[derive(Clone, Debug, Default)]
pub struct Accounts(Arc<Lock<Quotas>>);

/// One user's account.
#[derive(Clone, Debug)]
pub struct Account {
    all: Accounts,
    uid: u32,
}

/// A taken amount, until this is dropped.
#[derive(Debug)]
#[must_use = "it is given back when this is dropped"]
pub struct Held {
    account: Account,
    resource: Resource,
    amount: u64,
}

impl Accounts {
    /// The engine's own user, and how many descriptors its process may have.
    pub fn set_owner(&self, uid: u32, descriptors: u64) {
        let mut quotas = self.0.lock();
        quotas.owner = uid;
        quotas.set_descriptors(descriptors);
    }

    /// Sets how many descriptors the process may have. Amounts that are held already stay.
    pub fn set_descriptors(&self, descriptors: u64) {
        self.0.lock().set_descriptors(descriptors);
    }

    /// A user's account.
    pub fn of(&self, uid: u32) -> Account {
        Account { all: self.clone(), uid }
    }
}

impl Account {
    /// Whether the user is neither the engine's own nor root: then it may harm nobody here.
    pub fn is_of_stranger(&self) -> bool {
        !self.all.0.lock().is_at_home(self.uid)
    }

    /// Takes some of a resource for the user. `None` if that is beyond its share.
    pub fn take(&self, resource: Resource, amount: usize) -> Option<Held> {
        let amount = amount as u64;
        let taken = self.all.0.lock().take(self.uid, resource, amount);
        taken.then(|| Held { account: self.clone(), resource, amount })
    }
}

impl Account {
    /// Whether the user may have one more of a resource.
    pub fn has_room(&self, resource: Resource) -> bool {
        self.take(resource, 1).is_some()
    }

    /// Takes some of a resource for the user, also beyond its share: the user has it already.
    pub fn owe(&self, resource: Resource, amount: usize) -> Held {
        let amount = amount as u64;
        self.all.0.lock().by_resource[resource as usize].take(self.uid, amount);
        Held { account: self.clone(), resource, amount }
    }
}

impl Held {
    /// Takes one more. False if that is beyond the user's share.
    pub fn add_one(&mut self) -> bool {
        let Account { all, uid } = &self.account;
        let taken = all.0.lock().take(*uid, self.resource, 1);
        self.amount += u64::from(taken);
        taken
    }

    /// Gives one back.
    ///
    /// # Panics
    /// If nothing is held.
    pub fn give_one(&mut self) {
        let Account { all, uid } = &self.account;
        self.amount -= 1;
        all.0.lock().give(*uid, self.resource, 1);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Account { all, uid } = &self.account;
        all.0.lock().give(*uid, self.resource, self.amount);
    }
}

#[derive(Debug)]
struct Quotas {
    owner: u32,
    by_resource: [Quota; RESOURCES],
}

impl Default for Quotas {
    fn default() -> Quotas {
        let mut limits = [0; RESOURCES];
        limits[Resource::Tickets as usize] = MAX_TICKETS;
        limits[Resource::Objects as usize] = MAX_OBJECTS;
        limits[Resource::Disowned as usize] = MAX_DISOWNED;
        limits[Resource::Lanes as usize] = MAX_LANES;
        limits[Resource::Handles as usize] = MAX_HANDLES;
        limits[Resource::Entries as usize] = u64::from(ENTRIES);
        let mut quotas = Quotas { owner: 0, by_resource: limits.map(Quota::new) };
        quotas.set_descriptors(DESCRIPTORS);
        quotas
    }
}

impl Quotas {
    fn set_descriptors(&mut self, descriptors: u64) {
        for (resource, limit) in [
            // Three descriptors for each: half of them for all channels.
            (Resource::Channels, descriptors / 6),
            (Resource::Descriptors, descriptors / 4),
            (Resource::Closing, descriptors / 4),
            (Resource::Sent, descriptors / 2),
        ] {
            self.by_resource[resource as usize].set_limit(limit);
        }
    }

    fn is_at_home(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner
    }

    fn take(&mut self, uid: u32, resource: Resource, amount: u64) -> bool {
        let quota_class = if self.is_at_home(uid) { QuotaClass::Owner } else { STRANGER };
        let quota = &mut self.by_resource[resource as usize];
        let fits = quota.check(uid, quota_class, amount).is_ok();
        if fits {
            quota.take(uid, amount);
        }
        fits
    }

    fn give(&mut self, uid: u32, resource: Resource, amount: u64) {
        self.by_resource[resource as usize].give_back(uid, amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 7;
    const STRANGERS: [u32; 3] = [1000, 1001, 1002];

    /// How many descriptors of 800 a user gets, one by one, when others have so many.
    fn most(uid: u32, others: &[(u32, u64)]) -> u64 {
        let mut quotas = Quotas { owner: OWNER, ..Quotas::default() };
        quotas.set_descriptors(4 * 800);
        for &(other, amount) in others {
            quotas.by_resource[Resource::Descriptors as usize].take(other, amount);
        }
        let mut taken = 0;
        while quotas.take(uid, Resource::Descriptors, 1) {
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_users_share_shrinks_as_others_take() {
        let [first, second, third] = STRANGERS;
        for (uid, others, expect) in [
            (first, &[][..], 375),
            (second, &[(first, 375)], 187),
            (third, &[(first, 375), (second, 187)], 94),
            (first, &[(OWNER, 750)], 0),
            (first, &[(OWNER, 780)], 0),
            (OWNER, &[], 800),
            (0, &[], 800),
            (OWNER, &[(first, 375), (second, 187)], 238),
        ] {
            assert_eq!(most(uid, others), expect, "{uid} beside {others:?}");
        }
    }

    #[test]
    fn strangers_together_never_reach_the_reserve() {
        let others: Vec<(u32, u64)> = (0..100).fold(Vec::new(), |mut others, nth| {
            let uid = 1000 + nth;
            others.push((uid, most(uid, &others)));
            others
        });
        let all: u64 = others.iter().map(|(_, amount)| amount).sum();
        assert!((740..=750).contains(&all), "{all}");
        assert_eq!(most(OWNER, &others), 800 - all);
    }

    #[test]
    fn too_much_at_once_takes_nothing() {
        let accounts = Accounts::default();
        accounts.set_owner(OWNER, 4 * 800);
        let stranger = accounts.of(STRANGERS[0]);
        assert!(stranger.take(Resource::Descriptors, 376).is_none());
        let held = stranger.take(Resource::Descriptors, 375);
        assert!(held.is_some());
        assert!(stranger.take(Resource::Descriptors, 1).is_none());
        let channels = [251, 250].map(|n| stranger.take(Resource::Channels, n).is_some());
        assert_eq!(channels, [false, true], "another resource, with a limit of its own");
        drop(held);
        assert!(stranger.take(Resource::Descriptors, usize::MAX).is_none());
        assert!(stranger.take(Resource::Descriptors, 375).is_some(), "given back");
        let quotas = accounts.0.lock();
        let kept = quotas.by_resource.iter().flat_map(Quota::users).count();
        assert_eq!(kept, 0, "nothing is kept of who has nothing");
    }

    #[test]
    fn who_owes_more_than_its_share_has_no_room() {
        let accounts = Accounts::default();
        accounts.set_owner(OWNER, 4 * 800);
        let [stranger, other] = [STRANGERS[0], STRANGERS[1]].map(|uid| accounts.of(uid));
        let owed = [stranger.owe(Resource::Closing, 375), stranger.owe(Resource::Closing, 1000)];
        assert!(!stranger.has_room(Resource::Closing) && stranger.has_room(Resource::Descriptors));
        assert!(
            !other.has_room(Resource::Closing) && accounts.of(OWNER).has_room(Resource::Closing)
        );
        drop(owed);
        assert!(stranger.has_room(Resource::Closing) && other.has_room(Resource::Closing));
    }

    #[test]
    fn what_is_held_when_the_limit_falls_is_given_back_all_the_same() {
        let accounts = Accounts::default();
        accounts.set_owner(OWNER, 4 * 800);
        let held = accounts.of(OWNER).take(Resource::Sent, 1600);
        assert!(held.is_some());
        accounts.set_descriptors(400);
        assert!(accounts.of(OWNER).take(Resource::Sent, 1).is_none());
        drop(held);
        assert!(accounts.of(OWNER).take(Resource::Sent, 200).is_some());
    }
}
