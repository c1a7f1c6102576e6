//! One bounded amount, and how much of it each user has.
//!
//! A user's share shrinks as the user takes more, as in dbus-broker: a user may have at most as
//! much as is then left for all others. One user alone gets a half, a second one half of the rest,
//! and there is always something for the next one. A part is kept back for the owner,
//! who may take everything, and to whom that part is certain whatever others have.
//!
//! ```text
//!   |-- taken --|-- a user's --|------ left ------|-- reserve --|
//!                    <=  what is left                owner's
//! ```

use std::collections::BTreeMap;

/// One sixteenth of an amount is kept back for its owner.
const RESERVE: u64 = 16;

/// Whose amount it is, and who takes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// May take everything, the reserve included.
    Owner,
    /// Has a share, and takes at most so much of it whatever is left.
    Stranger {
        /// As the configuration says of the user.
        most: u64,
    },
}

/// A stranger of whom the configuration says nothing.
pub const STRANGER: Standing = Standing::Stranger { most: u64::MAX };

/// A user asked for more than its share. It is that user's fault, and nobody else's loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded;

/// The amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: u64,
    taken: u64,
    /// Never zero.
    by_user: BTreeMap<u32, u64>,
}

impl Quota {
    /// Nobody has anything of `limit`.
    pub fn new(limit: u64) -> Quota {
        Quota { limit, taken: 0, by_user: BTreeMap::new() }
    }

    /// Whether a user may take so much more.
    pub fn check(&self, user: u32, standing: Standing, amount: u64) -> Result<(), Exceeded> {
        let taken = self.taken.saturating_add(amount);
        let fits = match standing {
            Standing::Owner => {
                let its = self.of(user).saturating_add(amount);
                taken <= self.limit || its <= self.limit / RESERVE
            }
            Standing::Stranger { most } => {
                let open = self.limit - self.limit / RESERVE;
                let its = self.of(user).saturating_add(amount);
                its <= open.saturating_sub(taken) && its <= most
            }
        };
        if amount == 0 || fits { Ok(()) } else { Err(Exceeded) }
    }

    /// Whether a user may take back what it had of another amount of this size. What others took
    /// or took back before it does not make its share smaller: it took in another order. Users who
    /// say that they had more than they did take at most twice of what there is.
    pub fn check_return(&self, user: u32, standing: Standing, amount: u64) -> Result<(), Exceeded> {
        let its = self.of(user).saturating_add(amount);
        let could_have_had = match standing {
            Standing::Owner => its <= self.limit,
            Standing::Stranger { most } => {
                let open = self.limit - self.limit / RESERVE;
                let taken = self.taken.saturating_add(amount);
                its <= most && its <= open / 2 && taken <= self.limit.saturating_mul(2)
            }
        };
        if could_have_had { Ok(()) } else { self.check(user, standing, amount) }
    }

    /// A user takes so much, whether it may or not: see [`Quota::check`].
    pub fn take(&mut self, user: u32, amount: u64) {
        if amount > 0 {
            self.taken += amount;
            *self.by_user.entry(user).or_default() += amount;
        }
    }

    /// A user gives back some of what it has.
    ///
    /// # Panics
    /// If that is more than it has: the caller's books are wrong.
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

    /// How much a user has.
    pub fn of(&self, user: u32) -> u64 {
        self.by_user.get(&user).copied().unwrap_or_default()
    }

    /// How much more a user may take.
    pub fn left_for(&self, user: u32, standing: Standing) -> u64 {
        match standing {
            Standing::Owner => {
                let kept_back = (self.limit / RESERVE).saturating_sub(self.of(user));
                self.limit.saturating_sub(self.taken).max(kept_back)
            }
            Standing::Stranger { most } => {
                let open = self.limit - self.limit / RESERVE;
                // its + x <= open - taken - x
                let share = open.saturating_sub(self.taken).saturating_sub(self.of(user)) / 2;
                share.min(most.saturating_sub(self.of(user)))
            }
        }
    }

    /// How much all users have together.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// There is so much from now on. What has been taken stays taken.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The whole amount.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Everybody who has something.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.by_user.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of users that take one at a time until they are refused, one after the other.
    fn shares(limit: u64, users: &[(u32, Standing)]) -> Vec<u64> {
        let mut quota = Quota::new(limit);
        let fill = |&(user, standing): &(u32, Standing)| {
            while quota.check(user, standing, 1).is_ok() {
                quota.take(user, 1);
            }
            assert_eq!(quota.left_for(user, standing), 0);
            quota.of(user)
        };
        users.iter().map(fill).collect()
    }

    #[test]
    fn a_share_shrinks_and_is_never_nothing_for_the_next_one() {
        let most = |most| Standing::Stranger { most };
        for (users, expect) in [
            (&[(1, STRANGER)][..], &[750][..]),
            (&[(1, STRANGER), (2, STRANGER), (3, STRANGER)], &[750, 375, 187]),
            (&[(1, STRANGER), (0, Standing::Owner)], &[750, 850]),
            (&[(0, Standing::Owner), (1, STRANGER)], &[1600, 0]),
            (&[(1, most(100)), (2, STRANGER)], &[100, 700]),
            (&[(1, most(0)), (2, STRANGER)], &[0, 750]),
        ] {
            assert_eq!(shares(1600, users), expect, "{users:?}");
        }
    }

    #[test]
    fn what_is_left_is_what_can_be_taken_at_once() {
        let mut quota = Quota::new(1600);
        quota.take(1, 300);
        quota.take(2, 50);
        for (user, standing) in [(1, STRANGER), (2, STRANGER), (3, STRANGER), (0, Standing::Owner)]
        {
            let left = quota.left_for(user, standing);
            assert_eq!(quota.check(user, standing, left), Ok(()), "{user}");
            assert_eq!(quota.check(user, standing, left + 1), Err(Exceeded), "{user}");
        }
        assert_eq!(quota.check(1, STRANGER, u64::MAX), Err(Exceeded));
    }

    #[test]
    fn what_a_user_had_it_may_take_back_whoever_comes_first() {
        let most = Standing::Stranger { most: 100 };
        let mut quota = Quota::new(1600);
        quota.take(2, 700);
        assert_eq!(quota.check(1, STRANGER, 750), Err(Exceeded));
        assert_eq!(quota.check_return(1, STRANGER, 750), Ok(()));
        assert_eq!(quota.check_return(1, STRANGER, 751), Err(Exceeded));
        assert_eq!(quota.check_return(1, most, 100), Ok(()));
        assert_eq!(quota.check_return(1, most, 101), Err(Exceeded));
        assert_eq!(quota.check_return(0, Standing::Owner, 1600), Ok(()));
        assert_eq!(quota.check_return(0, Standing::Owner, 1601), Err(Exceeded));
        quota.take(1, 700);
        assert_eq!(quota.check_return(1, STRANGER, 51), Err(Exceeded), "with what it has");
        quota.take(3, 1800);
        assert_eq!(quota.check_return(4, STRANGER, 1), Err(Exceeded), "they lie");
    }

    #[test]
    fn what_is_kept_back_is_the_owners_whatever_others_took_back() {
        let mut quota = Quota::new(1600);
        quota.take(1, 2000);
        assert_eq!(quota.left_for(0, Standing::Owner), 100);
        assert_eq!(quota.check(0, Standing::Owner, 100), Ok(()));
        assert_eq!(quota.check(0, Standing::Owner, 101), Err(Exceeded));
        assert_eq!((quota.left_for(2, STRANGER), quota.check(2, STRANGER, 1)), (0, Err(Exceeded)));
    }

    #[test]
    fn what_was_given_back_can_be_taken_again() {
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
    fn nobody_gives_back_what_is_anothers() {
        let mut quota = Quota::new(32);
        quota.take(1, 5);
        quota.give_back(2, 5);
    }
}
