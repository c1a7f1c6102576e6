//! The shares of the server that programs of each user take: descriptors and threads. One user's
//! programs take a [share](Quota) at most, so the next user can open a device, too.
//!
//! The user is the one of the request by which a device, a thread or a descriptor came, whatever
//! becomes of its process later. Root and the server's own user may take everything.
//!
//! An open takes a thread's part as well: a device that is open can be used, whatever others take.

use baton_abi::quota::{Quota, QuotaClass, STRANGER};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Descriptors that the server keeps for itself: /dev/fuse, the watches, the broker, devices that
/// are prepared.
const OWN_DESCRIPTORS: u64 = 64;
/// Threads of all users: a half for one user alone.
const MOST_THREADS: u64 = 16 * 1024;

/// An amount of each resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    descriptors: u64,
    threads: u64,
}

/// A client's thread that uses a device: its pidfd, two descriptors to poll, and the stand-in.
const THREAD: Amount = Amount { descriptors: 3, threads: 1 };
/// An open device, without its channels: the engine's descriptors, the opener's pidfd, the control
/// thread, and one of the client's threads.
pub const DEVICE: Amount =
    Amount { descriptors: 10 + THREAD.descriptors, threads: 1 + THREAD.threads };
const NOTHING: Amount = Amount { descriptors: 0, threads: 0 };
/// A duplicate of a client's descriptor.
pub const DESCRIPTOR: Amount = Amount { descriptors: 1, threads: 0 };

/// The place for a thread that an open device has. It is free if nobody holds it.
#[derive(Debug, Default)]
pub struct ThreadPlace(Weak<()>);

/// A user's programs have their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded;

/// The account of all users.
#[derive(Debug)]
pub struct Account {
    /// The server's own user.
    owner: u32,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    descriptors: Quota,
    threads: Quota,
}

impl Account {
    /// An account of a server that may have so many descriptors. Nobody has anything.
    pub fn new(owner: u32, descriptors: u64) -> Account {
        let own = OWN_DESCRIPTORS.min(descriptors / 4);
        let (descriptors, threads) = (Quota::new(descriptors - own), Quota::new(MOST_THREADS));
        Account { owner, taken: Mutex::new(Taken { descriptors, threads }) }
    }

    /// Takes an amount for a user, until the result is dropped.
    pub fn take(self: &Arc<Account>, user: u32, amount: Amount) -> Result<Share, Exceeded> {
        let is_owner = user == 0 || user == self.owner;
        let class = if is_owner { QuotaClass::Owner } else { STRANGER };
        let mut taken = self.taken();
        let Taken { descriptors, threads } = &mut *taken;
        let fits = descriptors
            .check(user, class, amount.descriptors)
            .and_then(|()| threads.check(user, class, amount.threads));
        fits.map_err(|_| Exceeded)?;
        descriptors.take(user, amount.descriptors);
        threads.take(user, amount.threads);
        Ok(Share { account: Arc::clone(self), user, amount, place: None })
    }

    /// Takes a thread of an open device for a user: the device's place, or a thread beside it.
    pub fn take_thread(
        self: &Arc<Account>,
        user: u32,
        of_device: &mut ThreadPlace,
    ) -> Result<Share, Exceeded> {
        if of_device.0.strong_count() > 0 {
            return self.take(user, THREAD);
        }
        let place = Arc::new(());
        of_device.0 = Arc::downgrade(&place);
        let mut share = self.take(user, NOTHING)?;
        share.place = Some(place);
        Ok(share)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An amount that a user has taken, and gives back when this is dropped.
#[derive(Debug)]
pub struct Share {
    account: Arc<Account>,
    user: u32,
    amount: Amount,
    /// The place of a device, for the thread that has it.
    place: Option<Arc<()>>,
}

impl Share {
    /// Takes a further amount for the same user.
    pub fn another(&self, amount: Amount) -> Result<Share, Exceeded> {
        self.account.take(self.user, amount)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.account.taken();
        taken.descriptors.give_back(self.user, self.amount.descriptors);
        taken.threads.give_back(self.user, self.amount.threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes amounts for a user until there is no more.
    fn take_all(account: &Arc<Account>, user: u32, amount: Amount) -> Vec<Share> {
        std::iter::from_fn(|| account.take(user, amount).ok()).collect()
    }

    #[test]
    fn a_user_with_all_that_it_can_have_leaves_others_something() {
        for amount in [DEVICE, THREAD, DESCRIPTOR] {
            let account = Arc::new(Account::new(1, 64 + 1600));
            let first = take_all(&account, 12345, amount);
            assert_eq!(first.len() as u64, 750 / amount.descriptors);
            let second = take_all(&account, 23456, amount);
            assert!(!second.is_empty() && second.len() < first.len());
            assert!(account.take(1, amount).is_ok() && account.take(0, amount).is_ok());
            drop(first);
            assert!(account.take(12345, amount).is_ok());
            assert_eq!(second[0].another(amount).err(), None, "there is room again");
        }
    }

    #[test]
    fn a_device_that_is_open_has_a_place_for_a_thread() {
        let account = Arc::new(Account::new(0, 64 + 64));
        let device = account.take(12345, DEVICE).unwrap();
        let mut place = ThreadPlace::default();
        let others = take_all(&account, 12345, DESCRIPTOR);
        let thread = account.take_thread(12345, &mut place).unwrap();
        assert_eq!(account.take_thread(12345, &mut place).err(), Some(Exceeded));
        drop(thread);
        let thread = account.take_thread(12345, &mut place).unwrap();
        drop(others);
        let second = account.take_thread(12345, &mut place).unwrap();
        assert_eq!((thread.amount, second.amount), (NOTHING, THREAD));
        drop((device, thread, second));
        assert_eq!(account.taken().descriptors.taken(), 0);
    }

    #[test]
    fn threads_are_bounded_whatever_the_limit_of_descriptors() {
        let account = Arc::new(Account::new(0, 1 << 30));
        let n_threads = take_all(&account, 12345, THREAD).len() as u64;
        assert_eq!(n_threads, (MOST_THREADS - MOST_THREADS / 16) / 2);
    }
}
