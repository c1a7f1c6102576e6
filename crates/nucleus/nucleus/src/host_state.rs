//! A kernel's use of its OS thread: stacks, interrupt sources, the timer, and its place in a
//! cluster.
//!
//! Nothing here depends on the variant, so threads use it without knowing their kernel's.
//!
//! **Invariant**: one party uses it at a time: kernel code, or a thread that is not preemptible.

use crate::cluster::Membership;
use crate::external_interrupts::{ExternalInterrupts, Interrupter};
use crate::interrupts::Interrupts;
use crate::list::Slot;
use crate::stack::Stack;
use crate::thread_id::ThreadId;
use crate::timer::Timer;
use std::cell::UnsafeCell;
use std::io;
use std::time::Duration;

/// Why a thread ended before its body returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The thread panicked, with this message; it is empty if the payload is no string.
    Panic(String),
    /// The thread needed more stack than it had.
    StackOverflow,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) stack_bytes: usize,
    /// By the threads' slots.
    pub(crate) stacks: Box<[Option<Stack>]>,
    /// Stacks of threads that have ended.
    pub(crate) pool: Vec<Stack>,
    pub(crate) failures: Vec<(ThreadId, Failure)>,
    pub(crate) interrupts: Interrupts,
    pub(crate) timer: Timer,
    /// `None`: the kernel is in no cluster.
    pub(crate) membership: Option<Membership>,
    /// How long an idle kernel polls its inbox before it sleeps.
    pub(crate) spin: Duration,
    pub(crate) external_interrupts: ExternalInterrupts,
    /// Reaches this kernel until the kernel is dropped.
    pub(crate) interrupter: Interrupter,
}

impl HostState {
    /// A stack of the pool, or a new one.
    pub(crate) fn new_stack(&mut self) -> io::Result<Stack> {
        self.pool.pop().map_or_else(|| Stack::new(self.stack_bytes), Ok)
    }

    /// Gives a thread a stack of the pool and returns its top. The thread's old stack is leaked, as
    /// its frames are never dropped. `None`: the pool is empty.
    pub(crate) fn change_stack(&mut self, slot: Slot) -> Option<usize> {
        let stack = self.pool.pop()?;
        let top = stack.top();
        std::mem::forget(self.stacks[slot.index()].replace(stack));
        Some(top)
    }

    /// Puts the stack of a thread that has ended into the pool. A stack that has overflowed is
    /// leaked.
    pub(crate) fn take_stack(&mut self, id: ThreadId) {
        let stack = self.stacks[id.slot().index()].take();
        let overflowed =
            self.failures.last().is_some_and(|failed| *failed == (id, Failure::StackOverflow));
        match stack {
            Some(stack) if overflowed => std::mem::forget(stack),
            Some(stack) => self.pool.push(stack),
            None => {}
        }
    }

    pub(crate) fn stack_of(&self, slot: Slot) -> Option<&Stack> {
        self.stacks.get(slot.index())?.as_ref()
    }
}

impl Drop for HostState {
    fn drop(&mut self) {
        // Threads that have not ended still have frames on their stacks.
        self.stacks.iter_mut().for_each(|stack| std::mem::forget(stack.take()));
    }
}

/// The host state inside of the `EntryPoints`.
#[derive(Debug)]
pub(crate) struct HostStateCell(pub(crate) UnsafeCell<HostState>);
