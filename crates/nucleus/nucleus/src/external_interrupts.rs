//! Interrupts that other OS threads raise. The user of the kernel supplies a function that says
//! which interrupts are due; an [`Interrupter`] makes the kernel call it.

use crate::interrupt_line::InterruptLine;
use crate::revocable::Revocable;
use std::fmt;
use std::sync::Arc;

/// The function that says which external interrupts are due.
pub(crate) struct ExternalInterrupts(Box<dyn FnMut() -> u64>);

impl ExternalInterrupts {
    pub(crate) fn new(take: impl FnMut() -> u64 + 'static) -> ExternalInterrupts {
        ExternalInterrupts(Box::new(take))
    }

    /// The interrupts that came since the last call, as bits by their numbers.
    pub(crate) fn take(&mut self) -> u64 {
        (self.0)()
    }
}

impl Default for ExternalInterrupts {
    fn default() -> ExternalInterrupts {
        ExternalInterrupts::new(|| 0)
    }
}

impl fmt::Debug for ExternalInterrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExternalInterrupts")
    }
}

/// Interrupts a running kernel from any OS thread, so that the kernel looks for interrupts.
///
/// A [`StrictPlus`](crate::variant::StrictPlus) kernel looks between two IPCs; any other kernel
/// looks when a thread next enters it. A kernel that was dropped is not reached, without an error.
#[derive(Clone, Debug)]
pub struct Interrupter(Arc<Revocable<InterruptLine>>);

impl Interrupter {
    pub(crate) fn empty() -> Interrupter {
        Interrupter(Arc::new(Revocable::empty()))
    }

    /// Makes the kernel look for interrupts. The kernel then sees every write that the caller made
    /// before this call.
    pub fn interrupt(&self) {
        self.0.with(InterruptLine::raise);
    }

    pub(crate) fn line(&self) -> &Revocable<InterruptLine> {
        &self.0
    }
}
