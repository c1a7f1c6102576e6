//! The local references of a native method: slots of the thread's stack, above the registers of the
//! method's frame.
//!
//! `PushLocalFrame` begins an inner frame, a native method that C calls through Java a frame of its
//! own. A deleted reference leaves a hole, which the next reference of the frame fills.
//!
//! **Invariant**: holes lie in use, below the stack's top.

use crate::handle::{Handle, Kind};
use baton_vm::object::Ref;
use baton_vm::stack::{Overflow, Stack};
use std::cell::{Cell, RefCell};

/// A frame of local references.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Its first slot
    first: usize,
    /// How many holes there were when it began
    n_holes: usize,
    /// How many inner frames there were when its native method began
    n_outer: usize,
}

/// A thread's frames.
#[derive(Debug)]
pub struct Locals {
    /// The innermost frame
    current: Cell<Frame>,
    /// The frames around inner ones
    outer: RefCell<Vec<Frame>>,
    holes: RefCell<Vec<usize>>,
}

impl Locals {
    /// A thread that runs no native method yet.
    pub fn new(stack: &Stack) -> Locals {
        let current = Frame { first: stack.kept(), n_holes: 0, n_outer: 0 };
        Locals { current: Cell::new(current), outer: RefCell::default(), holes: RefCell::default() }
    }

    /// Begins the frame of a native method; returns the caller's.
    pub fn begin(&self, stack: &Stack) -> Frame {
        let n_holes = self.holes.borrow().len();
        let n_outer = self.outer.borrow().len();
        self.current.replace(Frame { first: stack.kept(), n_holes, n_outer })
    }

    /// Ends the frame of a native method, and what it has left open.
    pub fn end(&self, callers: Frame) {
        let mut outer = self.outer.borrow_mut();
        let mut own = self.current.get();
        while outer.len() > own.n_outer {
            own = outer.pop().expect("it is not empty");
        }
        self.holes.borrow_mut().truncate(own.n_holes);
        self.current.set(callers);
    }

    /// Begins an inner frame.
    pub fn push(&self, stack: &Stack) {
        let own = self.current.get();
        self.outer.borrow_mut().push(own);
        let n_holes = self.holes.borrow().len();
        self.current.set(Frame { first: stack.kept(), n_holes, n_outer: own.n_outer });
    }

    /// Ends an inner frame and lets go of its references; false if there is none.
    pub fn pop(&self, stack: &Stack) -> bool {
        let own = self.current.get();
        let mut outer = self.outer.borrow_mut();
        if outer.len() == own.n_outer {
            return false;
        }
        self.holes.borrow_mut().truncate(own.n_holes);
        stack.release(own.first);
        self.current.set(outer.pop().expect("it is not empty"));
        true
    }

    /// A local reference to an object that is not null.
    ///
    /// # Errors
    /// The stack has no room.
    pub fn add(&self, stack: &Stack, object: Ref) -> Result<Handle, Overflow> {
        let mut holes = self.holes.borrow_mut();
        let slot = if holes.len() > self.current.get().n_holes {
            let slot = holes.pop().expect("it is not empty");
            stack.set_kept(slot, object);
            slot
        } else {
            stack.keep_within_limit(object)?
        };
        Ok(Handle::new(Kind::Local, slot, object.address()))
    }

    /// Lets go of the object in a slot. An argument stays: it is its caller's.
    pub fn remove(&self, stack: &Stack, slot: usize) {
        let own = self.current.get();
        if slot < own.first {
            let outer = self.outer.borrow();
            let is_own = outer.get(own.n_outer).is_some_and(|outermost| slot >= outermost.first);
            if is_own {
                stack.set_kept(slot, Ref::NULL);
            }
        } else if slot + 1 == stack.kept() {
            stack.release(slot);
        } else {
            stack.set_kept(slot, Ref::NULL);
            self.holes.borrow_mut().push(slot);
        }
    }
}
