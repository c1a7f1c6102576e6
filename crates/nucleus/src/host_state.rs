//! What a kernel has beside its state: stacks, threads' bodies, sources of interrupts, time.
//!
//! Nothing here depends on the variant, so threads reach it without knowing theirs.
//!
//! **Invariant**: touched by one party at a time: kernel code, or a thread that holds off the tick.

use crate::cluster::Seat;
use crate::interrupts::Interrupts;
use crate::list::Slot;
use crate::outside::{Nudge, Outside};
use crate::stack::Stack;
use crate::thread_id::ThreadId;
use crate::timer::Timer;
use std::cell::UnsafeCell;
use std::io;
use std::time::Duration;

/// Why a thread ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It panicked, with this message.
    Panic(String),
    /// It needed more stack than it had.
    StackOverflow,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) stack_bytes: usize,
    /// By thread.
    pub(crate) stacks: Box<[Option<Stack>]>,
    pub(crate) pool: Vec<Stack>,
    pub(crate) failures: Vec<(ThreadId, Failure)>,
    pub(crate) interrupts: Interrupts,
    pub(crate) timer: Timer,
    /// The kernel's place among others, if it has one.
    pub(crate) seat: Option<Seat>,
    /// How long the kernel looks for letters before it sleeps.
    pub(crate) spin: Duration,
    pub(crate) outside: Outside,
    /// Reaches this kernel for as long as this is here.
    pub(crate) nudge: Nudge,
}

impl HostState {
    /// A stack that no thread has.
    pub(crate) fn new_stack(&mut self) -> io::Result<Stack> {
        self.pool.pop().map_or_else(|| Stack::new(self.stack_bytes), Ok)
    }

    /// A thread goes on on a stack of the pool, and what is on its own stays there. Says where that
    /// begins.
    pub(crate) fn change_stack(&mut self, slot: Slot) -> Option<usize> {
        let stack = self.pool.pop()?;
        let top = stack.top();
        std::mem::forget(self.stacks[slot.index()].replace(stack));
        Some(top)
    }

    /// A thread has ended. Its stack is another one's, unless it failed there.
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
        // Threads that have not come to their end stand there still.
        self.stacks.iter_mut().for_each(|stack| std::mem::forget(stack.take()));
    }
}

/// The host_state, as the entry_points have it.
#[derive(Debug)]
pub(crate) struct SideCell(pub(crate) UnsafeCell<HostState>);
