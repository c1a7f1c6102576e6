//! Binder objects of this process that a parcel holds, or another process.
//!
//! A node is a number that the driver knows in place of an address, and the Java object. The Java
//! object stays alive as long as something counts the node strongly: parcels of this process, and
//! the driver for holders elsewhere.

use baton_vm::globals::Global;
use baton_vm::object::Ref;
use rustc_hash::FxHashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The process's nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    by_number: FxHashMap<u32, Node>,
    last: u32,
}

#[derive(Debug)]
struct Node {
    /// The Java object, unless only weak references are left
    object: Option<Global>,
    strong: usize,
    weak: usize,
}

/// A strong reference to a node.
#[derive(Debug)]
pub struct NodeRef(u32);

static NODES: LazyLock<Mutex<Nodes>> = LazyLock::new(Mutex::default);

/// The nodes. The lock is held for a few instructions, and never while Java runs or an object is
/// allocated.
pub fn nodes() -> MutexGuard<'static, Nodes> {
    NODES.lock().expect("no holder panics")
}

impl Nodes {
    /// A reference to the node of this number, which a Java object has; or to a new node, if there
    /// is none (any more). `object` keeps the Java object.
    pub fn of_object(&mut self, number: u32, object: impl FnOnce() -> Global) -> NodeRef {
        if let Some(node) = self.by_number.get_mut(&number) {
            node.strong += 1;
            node.object.get_or_insert_with(object);
            return NodeRef(number);
        }
        loop {
            self.last = self.last.wrapping_add(1).max(1);
            if !self.by_number.contains_key(&self.last) {
                break;
            }
        }
        self.by_number.insert(self.last, Node { object: Some(object()), strong: 1, weak: 0 });
        NodeRef(self.last)
    }

    /// A reference to a node that the driver names. None if the driver has no such node of ours.
    pub fn get(&mut self, number: u64) -> Option<NodeRef> {
        let number = u32::try_from(number).ok()?;
        let node = self.by_number.get_mut(&number).filter(|node| node.object.is_some())?;
        node.strong += 1;
        Some(NodeRef(number))
    }

    /// The Java object of a node that the driver names, which the caller keeps before it lets go of
    /// the lock.
    pub fn object(&self, number: u64) -> Option<Ref> {
        let node = self.by_number.get(&u32::try_from(number).ok()?)?;
        node.object.as_ref().map(Global::get)
    }

    /// The driver holds a node.
    pub fn increase(&mut self, number: u64, is_strong: bool) {
        let node = u32::try_from(number).ok().and_then(|it| self.by_number.get_mut(&it));
        if let Some(node) = node {
            *(if is_strong { &mut node.strong } else { &mut node.weak }) += 1;
        }
    }

    /// The driver, or a parcel, holds a node no longer.
    #[must_use = "the object is dropped without the lock"]
    pub fn decrease(&mut self, number: u64, is_strong: bool) -> Option<Global> {
        let number = u32::try_from(number).ok()?;
        let node = self.by_number.get_mut(&number)?;
        let count = if is_strong { &mut node.strong } else { &mut node.weak };
        *count = count.saturating_sub(1);
        let object = if node.strong == 0 { node.object.take() } else { None };
        if node.strong == 0 && node.weak == 0 {
            self.by_number.remove(&number);
        }
        object
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.by_number.len()
    }
}

impl NodeRef {
    /// The number by which the driver knows the node.
    pub fn number(&self) -> u32 {
        self.0
    }

    /// Runs `with` on the reference that keeps the Java object.
    pub fn object<T>(&self, with: impl FnOnce(&Global) -> T) -> T {
        let nodes = nodes();
        let object = nodes.by_number[&self.0].object.as_ref();
        with(object.expect("a node that is held strongly has its object"))
    }
}

impl Clone for NodeRef {
    fn clone(&self) -> NodeRef {
        nodes().increase(self.0.into(), true);
        NodeRef(self.0)
    }
}

impl Drop for NodeRef {
    fn drop(&mut self) {
        let object = nodes().decrease(self.0.into(), true);
        drop(object);
    }
}
