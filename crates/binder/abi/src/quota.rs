//! A bounded amount, and the part of it that each user has.
//!
//! A user may have at most as much as is then left for all others, as in dbus-broker. So one user
//! alone gets a half, a second one half of the rest, and the next user always finds something. A
//! reserve is kept back for the owner, who may take everything and always gets the reserve.
//!
//! ```text
//!   |-- taken --|-- a user's --|------ left ------|-- reserve --|
//!                    <=  what is left                owner's
//! ```

use std::collections::BTreeMap;

/// The reserve is this fraction of the amount: one sixteenth.
const RESERVE: u64 = 16;

/// The class of a user that takes from an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaClass {
    /// The user may take everything, including the reserve.
    Owner,
    /// The user has a share, and takes at most `most` whatever is left.
    Stranger {
        /// The limit from the configuration.
        most: u64,
    },
}

/// A user that the configuration does not limit.
pub const STRANGER: QuotaClass = QuotaClass::Stranger { most: u64::MAX };

/// A user asked for more than its share. Other users lose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded;

/// An amount, and what each user has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: u64,
    taken: u64,
    /// Users that have something; never zero.
    by_user: BTreeMap<u32, u64>,
}

impl Quota {
    /// An amount of `limit` of which no user has anything.
    pub fn new(limit: u64) -> Quota {
        Quota { limit, taken: 0, by_user: BTreeMap::new() }
    }

    /// Checks whether a user may take `amount` more.
    pub fn check(&self, user: u32, quota_class: QuotaClass, amount: u64) -> Result<(), Exceeded> {
        let taken = self.taken.saturating_add(amount);
        let fits = match quota_class {
            QuotaClass::Owner => {
                let its = self.of(user).saturating_add(amount);
                taken <= self.limit || its <= self.limit / RESERVE
            }
            QuotaClass::Stranger { most } => {
                let open = self.limit - self.limit / RESERVE;
                let its = self.of(user).saturating_add(amount);
                its <= open.saturating_sub(taken) && its <= most
            }
        };
        if amount == 0 || fits { Ok(()) } else { Err(Exceeded) }
    }

    /// Checks whether a user may take back an amount that it had of an earlier quota of this size.
    /// Other users' takings do not reduce the share, because the order was different then. Users
    /// that lie take at most twice the limit together.
    pub fn check_return(
        &self,
        user: u32,
        quota_class: QuotaClass,
        amount: u64,
    ) -> Result<(), Exceeded> {
        let its = self.of(user).saturating_add(amount);
        let could_have_had = match quota_class {
            QuotaClass::Owner => its <= self.limit,
            QuotaClass::Stranger { most } => {
                let open = self.limit - self.limit / RESERVE;
                let taken = self.taken.saturating_add(amount);
                its <= most && its <= open / 2 && taken <= self.limit.saturating_mul(2)
            }
        };
        if could_have_had { Ok(()) } else { self.check(user, quota_class, amount) }
    }

    /// Takes an amount for a user without a check: see [`Quota::check`].
    pub fn take(&mut self, user: u32, amount: u64) {
        if amount > 0 {
            self.taken += amount;
            *self.by_user.entry(user).or_default() += amount;
        }
    }

    /// Gives back part of what a user has.
    ///
    /// # Panics
    /// Panics if the user has less: the caller's accounts are wrong.
    pub fn give_back(&mut self, user: u32, amount: u64) {
        if amount == 0 {
            return;
        }
        let its = self.by_user.get_mut(&user).expect("a user gives back what it has");
        *its = its.checked_sub(amount).expect("a user gives back what it has");
        if *its == 0 {
            self.by_user.remove(&user);
        }
        self.taken -= amount;
    }

    /// The part that a user has.
    pub fn of(&self, user: u32) -> u64 {
        self.by_user.get(&user).copied().unwrap_or_default()
    }

    /// The most that a user may take now.
    pub fn left_for(&self, user: u32, quota_class: QuotaClass) -> u64 {
        match quota_class {
            QuotaClass::Owner => {
                let kept_back = (self.limit / RESERVE).saturating_sub(self.of(user));
                self.limit.saturating_sub(self.taken).max(kept_back)
            }
            QuotaClass::Stranger { most } => {
                let open = self.limit - self.limit / RESERVE;
                // its + x <= open - taken - x
                let share = open.saturating_sub(self.taken).saturating_sub(self.of(user)) / 2;
                share.min(most.saturating_sub(self.of(user)))
            }
        }
    }

    /// The part that all users have together.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Changes the limit. Users keep what they have.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The users that have something.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.by_user.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of users that take one at a time until they are refused, one user after the
    /// other.
    fn shares(limit: u64, users: &[(u32, QuotaClass)]) -> Vec<u64> {
        let mut quota = Quota::new(limit);
        let fill = |&(user, quota_class): &(u32, QuotaClass)| {
            while quota.check(user, quota_class, 1).is_ok() {
                quota.take(user, 1);
            }
            assert_eq!(quota.left_for(user, quota_class), 0);
            quota.of(user)
        };
        users.iter().map(fill).collect()
    }

    #[test]
    fn shares_shrink_and_leave_something_for_the_next_user() {
        let most = |most| QuotaClass::Stranger { most };
        for (users, expect) in [
            (&[(1, STRANGER)][..], &[750][..]),
            (&[(1, STRANGER), (2, STRANGER), (3, STRANGER)], &[750, 375, 187]),
            (&[(1, STRANGER), (0, QuotaClass::Owner)], &[750, 850]),
            (&[(0, QuotaClass::Owner), (1, STRANGER)], &[1600, 0]),
            (&[(1, most(100)), (2, STRANGER)], &[100, 700]),
            (&[(1, most(0)), (2, STRANGER)], &[0, 750]),
        ] {
            assert_eq!(shares(1600, users), expect, "{users:?}");
        }
    }

    #[test]
    fn left_for_is_the_largest_amount_that_check_allows() {
        let mut quota = Quota::new(1600);
        quota.take(1, 300);
        quota.take(2, 50);
        for (user, quota_class) in
            [(1, STRANGER), (2, STRANGER), (3, STRANGER), (0, QuotaClass::Owner)]
        {
            let left = quota.left_for(user, quota_class);
            assert_eq!(quota.check(user, quota_class, left), Ok(()), "{user}");
            assert_eq!(quota.check(user, quota_class, left + 1), Err(Exceeded), "{user}");
        }
        assert_eq!(quota.check(1, STRANGER, u64::MAX), Err(Exceeded));
    }

    #[test]
    fn a_user_may_take_back_its_share_in_any_order() {
        let most = QuotaClass::Stranger { most: 100 };
        let mut quota = Quota::new(1600);
        quota.take(2, 700);
        assert_eq!(quota.check(1, STRANGER, 750), Err(Exceeded));
        assert_eq!(quota.check_return(1, STRANGER, 750), Ok(()));
        assert_eq!(quota.check_return(1, STRANGER, 751), Err(Exceeded));
        assert_eq!(quota.check_return(1, most, 100), Ok(()));
        assert_eq!(quota.check_return(1, most, 101), Err(Exceeded));
        assert_eq!(quota.check_return(0, QuotaClass::Owner, 1600), Ok(()));
        assert_eq!(quota.check_return(0, QuotaClass::Owner, 1601), Err(Exceeded));
        quota.take(1, 700);
        assert_eq!(quota.check_return(1, STRANGER, 51), Err(Exceeded), "with what it has");
        quota.take(3, 1800);
        assert_eq!(quota.check_return(4, STRANGER, 1), Err(Exceeded), "they lie");
    }

    #[test]
    fn the_reserve_stays_the_owners_whatever_others_took_back() {
        let mut quota = Quota::new(1600);
        quota.take(1, 2000);
        assert_eq!(quota.left_for(0, QuotaClass::Owner), 100);
        assert_eq!(quota.check(0, QuotaClass::Owner, 100), Ok(()));
        assert_eq!(quota.check(0, QuotaClass::Owner, 101), Err(Exceeded));
        assert_eq!((quota.left_for(2, STRANGER), quota.check(2, STRANGER, 1)), (0, Err(Exceeded)));
    }

    #[test]
    fn returned_amounts_can_be_taken_again() {
        let mut quota = Quota::new(32);
        quota.take(1, 15);
        assert_eq!(quota.check(1, STRANGER, 1), Err(Exceeded));
        quota.give_back(1, 5);
        quota.give_back(1, 0);
        assert_eq!((quota.of(1), quota.taken()), (10, 10));
        quota.give_back(1, 10);
        assert_eq!(quota, Quota::new(32));
    }

    #[test]
    #[should_panic(expected = "gives back what it has")]
    fn giving_back_another_users_amount_panics() {
        let mut quota = Quota::new(32);
        quota.take(1, 5);
        quota.give_back(2, 5);
    }
}
