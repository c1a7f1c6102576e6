//! What each user has in the service: broadcasts under way, receivers, sticky broadcasts, and room
//! in the journal.
//!
//! A user's account is found without a lock. Ordinary and real-time broadcasts are counted apart,
//! so that a user's ordinary senders cannot use up what its real-time senders may have.

use super::priority::ORDINARY;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Broadcasts of a user that may be under way: so many ordinary and as many real-time ones.
pub const MAX_UNDER_WAY: u32 = 1000;
/// Receivers that a user may have registered.
pub const MAX_RECEIVERS: u32 = 1000;
/// Sticky broadcasts that a user may have.
pub const MAX_STICKIES: u32 = 256;

/// What a user has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("user {uid} has {most} {what}, the most that a user may have")]
pub struct Exhausted {
    /// The user.
    pub uid: u32,
    /// The bound.
    pub most: u32,
    /// Of what.
    pub what: &'static str,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// A broadcast of this level.
    Broadcast(usize),
    /// A registered receiver.
    Receiver,
    /// A sticky broadcast.
    Sticky,
}

/// A half of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// That of real-time broadcasts.
    RealTime,
    /// That of all other records.
    Ordinary,
}

impl Memory {
    /// The error of a user who asks for more than others may still have.
    pub fn exhausted(self, uid: u32, most: u32) -> Exhausted {
        let what = match self {
            Memory::RealTime => "blocks of the journal for real-time broadcasts",
            Memory::Ordinary => "blocks of the journal for ordinary broadcasts",
        };
        Exhausted { uid, most, what }
    }
}

#[derive(Debug, Default)]
struct Account {
    ordinary: AtomicU32,
    real_time: AtomicU32,
    receivers: AtomicU32,
    stickies: AtomicU32,
    ordinary_blocks: AtomicU32,
    real_time_blocks: AtomicU32,
}

impl Account {
    fn counter(&self, counted: Counted) -> (&AtomicU32, u32, &'static str) {
        match counted {
            Counted::Broadcast(ORDINARY) => {
                (&self.ordinary, MAX_UNDER_WAY, "ordinary broadcasts under way")
            }
            Counted::Broadcast(_) => {
                (&self.real_time, MAX_UNDER_WAY, "real-time broadcasts under way")
            }
            Counted::Receiver => (&self.receivers, MAX_RECEIVERS, "receivers registered"),
            Counted::Sticky => (&self.stickies, MAX_STICKIES, "sticky broadcasts"),
        }
    }

    fn blocks(&self, memory: Memory) -> &AtomicU32 {
        match memory {
            Memory::Ordinary => &self.ordinary_blocks,
            Memory::RealTime => &self.real_time_blocks,
        }
    }
}

/// Something on a user's account, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    charged: Charged,
}

#[derive(Debug)]
enum Charged {
    One(Counted),
    Blocks(Memory, u32),
}

impl Drop for Charge {
    fn drop(&mut self) {
        let (counter, n) = match self.charged {
            Charged::One(counted) => (self.account.counter(counted).0, 1),
            Charged::Blocks(memory, n) => (self.account.blocks(memory), n),
        };
        counter.fetch_sub(n, Ordering::Relaxed);
    }
}

/// The accounts of all users.
#[derive(Debug, Default)]
pub struct Accounts {
    by_uid: ArcSwap<HashMap<u32, Arc<Account>>>,
}

impl Accounts {
    /// Charges a user.
    ///
    /// # Errors
    /// The user has the most of these already.
    pub fn charge(&self, uid: u32, counted: Counted) -> Result<Charge, Exhausted> {
        let account = self.account(uid);
        let (counter, most, what) = account.counter(counted);
        let add = |count| (count < most).then_some(count + 1);
        match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Charge { account, charged: Charged::One(counted) }),
            Err(_) => Err(Exhausted { uid, most, what }),
        }
    }

    /// Charges a user, beyond the bound if need be: with what an earlier service has accepted, or
    /// what takes the place of something on the account.
    pub fn adopt(&self, uid: u32, counted: Counted) -> Charge {
        let account = self.account(uid);
        account.counter(counted).0.fetch_add(1, Ordering::Relaxed);
        Charge { account, charged: Charged::One(counted) }
    }

    /// Charges a user with blocks of the journal.
    ///
    /// # Errors
    /// The user would have more of them than are free.
    pub fn charge_memory(
        &self,
        uid: u32,
        memory: Memory,
        n_blocks: u32,
        n_free: u32,
    ) -> Result<Charge, Exhausted> {
        let account = self.account(uid);
        let add = |count: u32| {
            let count = count.saturating_add(n_blocks);
            (count <= n_free).then_some(count)
        };
        let counter = account.blocks(memory);
        match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Charge { account, charged: Charged::Blocks(memory, n_blocks) }),
            Err(_) => Err(memory.exhausted(uid, n_free)),
        }
    }

    /// Charges a user with blocks that an earlier service has filled.
    pub fn adopt_memory(&self, uid: u32, memory: Memory, n_blocks: u32) -> Charge {
        let account = self.account(uid);
        account.blocks(memory).fetch_add(n_blocks, Ordering::Relaxed);
        Charge { account, charged: Charged::Blocks(memory, n_blocks) }
    }

    fn account(&self, uid: u32) -> Arc<Account> {
        if let Some(account) = self.by_uid.load().get(&uid) {
            return Arc::clone(account);
        }
        self.by_uid.rcu(|accounts| {
            let mut accounts = HashMap::clone(accounts);
            accounts.entry(uid).or_default();
            accounts
        });
        Arc::clone(&self.by_uid.load()[&uid])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_and_each_kind_is_bounded_alone() {
        let accounts = Accounts::default();
        let charge = |uid, counted| accounts.charge(uid, counted);
        let mut held: Vec<Charge> =
            (0..MAX_UNDER_WAY).map(|_| charge(1, Counted::Broadcast(ORDINARY)).unwrap()).collect();
        let error = charge(1, Counted::Broadcast(ORDINARY)).unwrap_err();
        let text = "user 1 has 1000 ordinary broadcasts under way, the most that a user may have";
        assert_eq!(error.to_string(), text);
        for (uid, counted) in [
            (2, Counted::Broadcast(ORDINARY)),
            (1, Counted::Broadcast(80)),
            (1, Counted::Receiver),
            (1, Counted::Sticky),
        ] {
            assert!(charge(uid, counted).is_ok(), "{counted:?}");
        }
        held.pop();
        held.push(charge(1, Counted::Broadcast(ORDINARY)).unwrap());
    }
}
