//! A program that keeps the rules, and holds its driver to them: what it was told, what it holds.
//!
//! This is the naive side of the comparison: plain counts of what the program did and heard.

use baton_abi::control::{Granted, Strength};
use baton_abi::uapi::*;
use baton_state::buffer::Offset;
use baton_state::node::News;
use std::collections::{BTreeMap, VecDeque};

/// A local object, as libbinder's BBinder.
#[derive(Clone, Debug, Default)]
pub struct Object {
    pub cookie: u64,
    /// The program's own reference.
    pub local: bool,
    /// Transactions that carry it and have not been completed.
    pub sending: u32,
    /// `BR_ACQUIRE` without its `BR_RELEASE`.
    pub strong: bool,
    /// `BR_INCREFS` without its `BR_DECREFS`.
    pub weak: bool,
    /// Acknowledgements that the program owes.
    pub owed: u32,
    pub manager: bool,
    pub asks_to_manage: bool,
}

impl Object {
    /// The program may use it.
    pub fn is_alive(&self) -> bool {
        self.local || self.strong || self.sending > 0 || self.asks_to_manage
    }
}

/// A buffer that the program has not freed.
#[derive(Clone, Debug)]
pub struct Held {
    pub granted: Vec<Granted>,
    /// Descriptors that the program closes itself.
    pub fds: Vec<i32>,
    /// The object that a one-way transaction was for.
    pub one_way: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Asked,
    Delivered,
    Done,
}

/// A death or freeze notification by its cookie.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    pub handle: u32,
    pub stage: Stage,
    pub cleared: bool,
    /// Of a freeze: what was told last.
    pub told: Option<bool>,
}

impl Notice {
    pub fn new(handle: u32) -> Notice {
        Notice { handle, stage: Stage::Asked, cleared: false, told: None }
    }
}

/// What a transaction under way keeps alive in its sender.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    pub objects: Vec<u64>,
    pub handles: Vec<(u32, Strength)>,
}

#[derive(Debug, Default)]
pub struct Program {
    pub objects: BTreeMap<u64, Object>,
    /// What it took with BC_ACQUIRE and BC_INCREFS.
    pub counts: BTreeMap<u32, (u32, u32)>,
    /// Counts that transactions under way rely on.
    pub pinned: BTreeMap<u32, (u32, u32)>,
    pub buffers: BTreeMap<Offset, Held>,
    pub acks: Vec<(u64, Strength)>,
    pub deaths: BTreeMap<u64, Notice>,
    pub freezes: BTreeMap<u64, Notice>,
    /// Of each sender and object, the number of the last one-way transaction.
    pub last_one_way: BTreeMap<(u32, u64), u32>,
    pub last_cookie: u64,
}

impl Program {
    pub fn count(&mut self, handle: u32, strength: Strength) -> &mut u32 {
        of(self.counts.entry(handle).or_default(), strength)
    }

    /// Handles held with this strength that a release would not pull away from a transaction.
    pub fn releasable(&self, strength: Strength) -> Vec<u32> {
        let spare = |(handle, counts): (&u32, &(u32, u32))| {
            let mut pinned = self.pinned.get(handle).copied().unwrap_or_default();
            let mut counts = *counts;
            (*of(&mut counts, strength) > *of(&mut pinned, strength)).then_some(*handle)
        };
        self.counts.iter().filter_map(spare).collect()
    }

    pub fn held(&self, strength: Strength) -> Vec<u32> {
        let mut of_strength = Vec::new();
        for (&handle, &counts) in &self.counts {
            if *of(&mut { counts }, strength) > 0 {
                of_strength.push(handle);
            }
        }
        of_strength
    }

    pub fn pin(&mut self, pins: &Pins) {
        for &(handle, strength) in &pins.handles {
            *of(self.pinned.entry(handle).or_default(), strength) += 1;
        }
        for ptr in &pins.objects {
            self.objects.get_mut(ptr).expect("sent while alive").sending += 1;
        }
    }

    pub fn unpin(&mut self, pins: &Pins) {
        for &(handle, strength) in &pins.handles {
            *of(self.pinned.get_mut(&handle).expect("pinned"), strength) -= 1;
        }
        for ptr in &pins.objects {
            self.objects.get_mut(ptr).expect("pinned").sending -= 1;
            self.tidy(*ptr);
        }
    }

    /// Memory of an object that nobody needs goes; its address may be used again.
    pub fn tidy(&mut self, ptr: u64) {
        let gone = |object: &Object| !object.is_alive() && !object.weak && object.owed == 0;
        if self.objects.get(&ptr).is_some_and(gone) {
            self.objects.remove(&ptr);
        }
    }

    /// `BR_INCREFS` and its kin, in the order in which they may come.
    pub fn node_news(&mut self, news: &News) {
        let (ptr, cookie) = news.subject;
        for &command in &news.returns {
            let object = self.objects.get_mut(&ptr);
            let object =
                object.unwrap_or_else(|| panic!("news of an object that is gone: {ptr:x}"));
            assert_eq!(object.cookie, cookie, "news of an object that was there before {ptr:x}");
            match command {
                BR_INCREFS => {
                    assert!(!object.weak, "BR_INCREFS twice of {ptr:x}");
                    (object.weak, object.owed) = (true, object.owed + 1);
                    self.acks.push((ptr, Strength::Weak));
                }
                BR_ACQUIRE => {
                    assert!(object.weak && !object.strong, "BR_ACQUIRE out of turn of {ptr:x}");
                    assert!(object.is_alive(), "BR_ACQUIRE of {ptr:x}, which was destroyed");
                    (object.strong, object.owed) = (true, object.owed + 1);
                    self.acks.push((ptr, Strength::Strong));
                }
                BR_RELEASE => {
                    assert!(object.strong, "BR_RELEASE out of turn of {ptr:x}");
                    assert!(!self.acks.contains(&(ptr, Strength::Strong)), "BR_RELEASE too early");
                    object.strong = false;
                }
                BR_DECREFS => {
                    assert!(object.weak && !object.strong, "BR_DECREFS out of turn of {ptr:x}");
                    assert!(!self.acks.contains(&(ptr, Strength::Weak)), "BR_DECREFS too early");
                    object.weak = false;
                }
                other => panic!("{other:#x} is no node's"),
            }
        }
        self.tidy(ptr);
    }

    /// A one-way transaction: the one before to the same object has been freed, and those of one
    /// sender come in its order.
    pub fn one_way(&mut self, ptr: u64, cookie: u64, code: u32) {
        let under_way = self.buffers.values().any(|held| held.one_way == Some(ptr));
        assert!(!under_way, "two one-way transactions to {ptr:x} at once");
        let (sender, number) = (code >> 20, code & 0xf_ffff);
        let last = self.last_one_way.insert((sender, cookie), number).unwrap_or(0);
        assert!(sender == 0 || last < number, "one-way transaction {number} after {last}");
    }

    pub fn dead(&mut self, cookie: u64) {
        let notice = self.deaths.get_mut(&cookie).expect("BR_DEAD_BINDER nobody asked for");
        assert_eq!(notice.stage, Stage::Asked, "BR_DEAD_BINDER twice: {cookie}");
        notice.stage = Stage::Delivered;
    }

    pub fn death_cleared(&mut self, cookie: u64) {
        let notice = self.deaths.remove(&cookie).expect("cleared once");
        assert!(notice.cleared && notice.stage != Stage::Delivered, "CLEAR_DONE too early");
    }

    pub fn frozen(&mut self, cookie: u64, frozen: bool) {
        let notice = self.freezes.get_mut(&cookie).expect("BR_FROZEN_BINDER nobody asked for");
        assert_ne!(notice.stage, Stage::Delivered, "BR_FROZEN_BINDER before it was done");
        (notice.stage, notice.told) = (Stage::Delivered, Some(frozen));
    }

    pub fn freeze_cleared(&mut self, cookie: u64) {
        let notice = self.freezes.remove(&cookie).expect("cleared once");
        assert!(notice.cleared && notice.stage != Stage::Delivered, "CLEAR_DONE too early");
    }

    pub fn next_cookie(&mut self) -> u64 {
        self.last_cookie += 1;
        self.last_cookie
    }
}

pub fn of(counts: &mut (u32, u32), strength: Strength) -> &mut u32 {
    match strength {
        Strength::Strong => &mut counts.0,
        Strength::Weak => &mut counts.1,
    }
}

/// Transactions of a thread that it has not been told the fate of, oldest first.
pub type Underway = VecDeque<Pins>;
