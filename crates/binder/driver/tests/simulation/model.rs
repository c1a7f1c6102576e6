//! The naive side of the comparison: plain counts of what one program did and was told.
//!
//! Threads apply what they were told in any order, as a program's threads do. So counts may be
//! ahead of what another thread has yet to apply; at rest they are exact.

use crate::payload::{Name, Order};
use baton_abi::uapi::{BR_ACQUIRE, BR_DECREFS, BR_INCREFS, BR_RELEASE};
use std::collections::BTreeMap;

/// An object of the program, as libbinder's BBinder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Object {
    pub cookie: u64,
    /// The program's own reference.
    pub local: bool,
    /// Sends that carry it and have not been completed.
    pub sending: u32,
    /// BR_ACQUIRE less BR_RELEASE.
    pub strong: i32,
    /// BR_INCREFS less BR_DECREFS.
    pub weak: i32,
}

/// What the program knows of a handle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference {
    pub name: Name,
    /// BC_ACQUIRE less BC_RELEASE.
    pub strong: u32,
    /// BC_INCREFS less BC_DECREFS.
    pub weak: u32,
    /// Buffers that mention it.
    pub in_buffers: u32,
    /// Sends that rely on it.
    pub sending: u32,
}

impl Reference {
    /// Whether the program counts it. Buffers that mention it are freed at any time.
    fn is_counted(&self) -> bool {
        self.strong > 0 || self.weak > 0
    }
}

/// A death or freeze notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// Of freezes, not of the owner's death.
    pub is_of_freezes: bool,
    pub handle: u32,
    pub name: Name,
    /// The driver has been asked.
    pub is_asked: bool,
    /// BR_DEAD_BINDER has come.
    pub is_delivered: bool,
    /// What the last BR_FROZEN_BINDER said.
    pub is_frozen: Option<bool>,
    pub is_cleared: bool,
    /// The handle went first.
    pub is_dropped: bool,
}

/// A buffer that the program has not freed.
#[derive(Clone, Debug)]
pub struct Held {
    pub address: u64,
    pub handles: Vec<u32>,
    /// The cookie of the object for which it came, if that was a one-way transaction.
    pub one_way: Option<u64>,
}

/// What a send keeps alive in its sender.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    pub objects: Vec<u64>,
    pub handles: Vec<u32>,
}

impl Pins {
    pub fn of(handle: u32) -> Pins {
        Pins { handles: vec![handle], ..Pins::default() }
    }
}

#[derive(Debug, Default)]
pub struct Model {
    pub objects: BTreeMap<u64, Object>,
    pub references: BTreeMap<u32, Reference>,
    pub notices: BTreeMap<u64, Notice>,
    pub buffers: Vec<Held>,
    pub last_cookie: u64,
    /// Of each sender and object, the nonce of the last one-way transaction at each priority.
    pub last_one_way: BTreeMap<(u64, u64, Order), u64>,
    /// Calls that were answered, and that failed.
    pub n_answered: u64,
    pub n_failed: u64,
}

impl Model {
    pub fn next_cookie(&mut self) -> u64 {
        self.last_cookie += 1;
        self.last_cookie
    }

    /// BR_INCREFS and its like.
    pub fn node_news(&mut self, command: u32, ptr: u64, cookie: u64) {
        let object = self.objects.get_mut(&ptr);
        let object = object.unwrap_or_else(|| panic!("{command:#x} of {ptr:#x}, which is gone"));
        assert_eq!(object.cookie, cookie, "{command:#x} of what was at {ptr:#x} before");
        match command {
            BR_INCREFS => object.weak += 1,
            BR_ACQUIRE => object.strong += 1,
            BR_RELEASE => object.strong -= 1,
            BR_DECREFS => object.weak -= 1,
            other => panic!("{other:#x} is no node's"),
        }
        assert!((-1..=2).contains(&object.strong) && (-1..=2).contains(&object.weak), "{object:?}");
        self.tidy(ptr);
    }

    /// Forgets an object that nobody needs; its address may be used again.
    pub fn tidy(&mut self, ptr: u64) {
        let gone = |o: &Object| !o.local && o.sending == 0 && o.strong == 0 && o.weak == 0;
        if self.objects.get(&ptr).is_some_and(gone) {
            self.objects.remove(&ptr);
        }
    }

    /// A buffer mentions this handle, which its sender says is `name`.
    pub fn mention(&mut self, handle: u32, name: Name) {
        let reference =
            self.references.entry(handle).or_insert(Reference { name, ..Reference::default() });
        assert_eq!(reference.name, name, "handle {handle} is another object");
        reference.in_buffers += 1;
    }

    /// Forgets a handle that the program has no right to any more.
    pub fn forget(&mut self, handle: u32) {
        let is_free = |r: &Reference| (r.strong, r.weak, r.in_buffers, r.sending) == (0, 0, 0, 0);
        if self.references.get(&handle).is_some_and(is_free) {
            self.references.remove(&handle);
            let notices = self.notices.values_mut().filter(|notice| notice.handle == handle);
            notices.for_each(|notice| notice.is_dropped = true);
        }
    }

    /// The buffer is about to be freed.
    pub fn let_go(&mut self, held: &Held) {
        for &handle in &held.handles {
            self.references.get_mut(&handle).expect("mentioned").in_buffers -= 1;
            self.forget(handle);
        }
    }

    pub fn pin(&mut self, pins: &Pins) {
        for ptr in &pins.objects {
            self.objects.get_mut(ptr).expect("sent while alive").sending += 1;
        }
        for handle in &pins.handles {
            self.references.get_mut(handle).expect("sent while held").sending += 1;
        }
    }

    pub fn unpin(&mut self, pins: &Pins) {
        for &ptr in &pins.objects {
            self.objects.get_mut(&ptr).expect("pinned").sending -= 1;
            self.tidy(ptr);
        }
        for &handle in &pins.handles {
            self.references.get_mut(&handle).expect("pinned").sending -= 1;
            self.forget(handle);
        }
    }

    /// A one-way transaction has come: those of one sender to one object come one at a time, and in
    /// its order as long as its priority stays. What it sends as an ordinary thread comes after
    /// whatever it has sent before.
    pub fn one_way(&mut self, sender: u64, order: Order, cookie: u64, nonce: u64) {
        let under_way = self.buffers.iter().any(|held| held.one_way == Some(cookie));
        assert!(!under_way, "two one-way transactions to {cookie} at once");
        let all = self.last_one_way.iter();
        let of_these = all.filter(|((from, to, _), _)| (*from, *to) == (sender, cookie));
        let bars = of_these.filter(|((_, _, other), _)| other.is_last || *other == order);
        let last = bars.map(|(_, nonce)| *nonce).max().unwrap_or(0);
        assert!(last < nonce, "one-way transaction {nonce:#x} after {last:#x}: {order:?}");
        self.last_one_way.insert((sender, cookie, order), nonce);
    }

    pub fn dead(&mut self, cookie: u64) -> Name {
        let notice = self.notices.get_mut(&cookie).expect("BR_DEAD_BINDER nobody asked for");
        assert!(!notice.is_of_freezes, "BR_DEAD_BINDER for {notice:?}");
        assert!(!notice.is_delivered, "BR_DEAD_BINDER twice: {cookie}");
        notice.is_delivered = true;
        notice.name
    }

    /// The cookie and handle of a notice that the program may clear.
    pub fn notice_to_clear(&self) -> Option<(u64, u32)> {
        let is_counted = |notice: &Notice| {
            self.references.get(&notice.handle).is_some_and(Reference::is_counted)
        };
        let may = |notice: &Notice| {
            notice.is_asked && !notice.is_cleared && !notice.is_dropped && is_counted(notice)
        };
        let found = self.notices.iter().find(|(_, notice)| may(notice));
        found.map(|(cookie, notice)| (*cookie, notice.handle))
    }

    /// BR_FROZEN_BINDER. What has to stay until the driver has heard that this is done. `None` if
    /// the handle, and the notice with it, may go or have gone meanwhile. A notice that was cleared
    /// before its handle was dropped waits for that word, too.
    pub fn frozen(&mut self, cookie: u64, is_frozen: bool) -> Option<Pins> {
        let notice = self.notices.get_mut(&cookie).expect("BR_FROZEN_BINDER nobody asked for");
        assert!(notice.is_of_freezes, "BR_FROZEN_BINDER for {notice:?}");
        notice.is_frozen = Some(is_frozen);
        if notice.is_cleared {
            return Some(Pins::default());
        }
        let reference = self.references.get(&notice.handle).filter(|_| !notice.is_dropped)?;
        let pins = reference.is_counted().then(|| Pins::of(notice.handle))?;
        self.pin(&pins);
        Some(pins)
    }

    /// BR_CLEAR_DEATH_NOTIFICATION_DONE, or the one of freezes.
    pub fn notice_cleared(&mut self, cookie: u64, is_of_freezes: bool) {
        let notice = self.notices.remove(&cookie).expect("cleared once");
        assert!(notice.is_cleared, "a notice that nobody has cleared: {notice:?}");
        assert_eq!(notice.is_of_freezes, is_of_freezes, "{notice:?}");
    }
}
