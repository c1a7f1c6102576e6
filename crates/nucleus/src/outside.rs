//! What is outside of a kernel: other OS threads, which interrupt it. Whoever runs the kernel says
//! what they want of it, and waits when it has nothing to do.

use crate::cluster::bell::Knocker;
use crate::cluster::lent::Lent;
use std::fmt;
use std::sync::Arc;

/// Tells the kernel of interrupts that come neither from times nor from descriptors.
pub(crate) struct Outside(Box<dyn FnMut() -> u64>);

impl Outside {
    pub(crate) fn new(take: impl FnMut() -> u64 + 'static) -> Outside {
        Outside(Box::new(take))
    }

    pub(crate) fn take(&mut self) -> u64 {
        (self.0)()
    }
}

impl Default for Outside {
    fn default() -> Outside {
        Outside::new(|| 0)
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outside")
    }
}

/// Makes a kernel look for interrupts, from any OS thread, though its threads run: a strict one
/// between two IPCs, any other when a thread next enters it. One that is gone is not reached, and
/// that is all.
#[derive(Clone, Debug)]
pub struct Nudge(Arc<Lent<Knocker>>);

impl Nudge {
    pub(crate) fn nobodys() -> Nudge {
        Nudge(Arc::new(Lent::nothing()))
    }

    /// The kernel looks. What was done before this is seen by then.
    pub fn poke(&self) {
        self.0.with(Knocker::knock);
    }

    pub(crate) fn lent(&self) -> &Lent<Knocker> {
        &self.0
    }
}
