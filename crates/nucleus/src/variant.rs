//! The kernels: what can be chosen, and the ten choices that have names.
//!
//! Nine are those of Greenaway 2007, table 3.1. The tenth, [`StrictPlus`], keeps every promise that
//! the others trade for speed.

use crate::send_queue::{Bitmap, Fifo, Heap, Ordered, Scanned, SendQueue};
use crate::statistics::{Counters, Statistics};
use std::marker::PhantomData;

/// Who runs after an IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switching {
    /// One of the two parties, whoever else is ready (section 2.4.2).
    Direct,
    /// The highest thread that is ready.
    Strict,
}

/// Which threads are on the ready queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queueing {
    /// All that are ready, except perhaps the one that runs; and some that were (section 2.4.3).
    Lazy,
    /// The same, but who blocks to receive from another than it has sent to is taken off at once,
    /// as the thesis' Slowpath does (section 5.2.2).
    HalfLazy,
    /// All that are ready, and no others.
    Eager,
    /// All that are ready except the one that runs, and no others. A switch between two parties
    /// touches the queue as little as a lazy one, and no work is put off.
    Exact,
}

/// How IPC reaches the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// It decides on its own, at each place (figure 3.1).
    Open,
    /// By the interface of section 3.2.
    Interface,
}

/// What a call does to its server's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inheritance {
    /// Nothing.
    None,
    /// The server runs at its best caller's priority, if that is above its own, and so do those
    /// that it calls in turn.
    ThroughCalls,
}

/// When the kernel looks for interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preemption {
    /// When a system call is over, with all the IPCs that it has set off.
    AtExit,
    /// After each IPC.
    BetweenIpcs,
}

/// The assembly that is tried before the general path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assembly {
    /// None.
    None,
    /// Call, and reply and wait, between two parties.
    Direct,
    /// The same, if the party that goes on is the highest thread that is ready.
    Strict,
}

/// A kernel.
pub trait Variant: Clone + std::fmt::Debug + 'static {
    /// Its name in table 3.1.
    const NAME: &'static str;
    /// Who runs after an IPC.
    const SWITCHING: Switching = Switching::Direct;
    /// Which threads are on the ready queue.
    const QUEUEING: Queueing = Queueing::Lazy;
    /// How IPC reaches the scheduler.
    const PATH: Path = Path::Interface;
    /// What a call does to its server's priority.
    const INHERITANCE: Inheritance = Inheritance::None;
    /// When the kernel looks for interrupts.
    const PREEMPTION: Preemption = Preemption::AtExit;
    /// The assembly that is tried first.
    const ASSEMBLY: Assembly = Assembly::None;
    /// How senders wait.
    type SendQueue: SendQueue;
    /// What is counted.
    type Statistics: Statistics;
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $queue:ty {
        $($item:ident: $kind:ty = $value:expr),* };)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Variant for $name {
            const NAME: &'static str = $text;
            $(const $item: $kind = $value;)*
            type SendQueue = $queue;
            type Statistics = ();
        }
    )* };
}

kernels! {
    /// The assembly path for the common call and reply; otherwise as [`Slowpath`].
    Fastpath = "Fastpath", Fifo { PATH: Path = Path::Open, ASSEMBLY: Assembly = Assembly::Direct };
    /// Decisions in the IPC path itself.
    Slowpath = "Slowpath", Fifo { PATH: Path = Path::Open,
        QUEUEING: Queueing = Queueing::HalfLazy };
    /// Direct process switch and lazy queueing, by the interface.
    DirectLazy = "Direct/Lazy", Fifo {};
    /// Direct process switch without lazy queueing.
    DirectEager = "Direct/Eager", Fifo { QUEUEING: Queueing = Queueing::Eager };
    /// Lazy queueing without direct process switch.
    StrictLazy = "Strict/Lazy", Fifo { SWITCHING: Switching = Switching::Strict };
    /// Neither.
    StrictEager = "Strict/Eager", Fifo { SWITCHING: Switching = Switching::Strict,
        QUEUEING: Queueing = Queueing::Eager };
    /// [`DirectLazy`] with a send queue that is scanned.
    IpcScan = "IPC-Scan", Scanned {};
    /// [`DirectLazy`] with a send queue in order.
    IpcOrdered = "IPC-Ordered", Ordered {};
    /// [`DirectLazy`] with a heap for a send queue.
    IpcHeap = "IPC-Heap", Heap {};
    /// Strict priorities, inherited through calls, in constant time and with bounded delays.
    StrictPlus = "Strict+", Bitmap {
        SWITCHING: Switching = Switching::Strict, QUEUEING: Queueing = Queueing::Exact,
        INHERITANCE: Inheritance = Inheritance::ThroughCalls,
            PREEMPTION: Preemption = Preemption::BetweenIpcs,
        ASSEMBLY: Assembly = Assembly::Strict
    };
}

/// A kernel that counts what it does (section 4.2). It takes no assembly path: that counts nothing.
#[derive(Clone, Copy, Debug)]
pub struct Counted<K>(PhantomData<K>);

impl<K: Variant> Variant for Counted<K> {
    const NAME: &'static str = K::NAME;
    const SWITCHING: Switching = K::SWITCHING;
    const QUEUEING: Queueing = K::QUEUEING;
    const PATH: Path = K::PATH;
    const INHERITANCE: Inheritance = K::INHERITANCE;
    const PREEMPTION: Preemption = K::PREEMPTION;
    type SendQueue = K::SendQueue;
    type Statistics = Counters;
}

/// Does something for each of the ten kernels: `each_kernel!(K => expression of K)`.
#[macro_export]
macro_rules! each_kernel {
    ($kernel:ident => $body:expr) => {
        $crate::each_kernel!(@ $kernel, $body, Fastpath Slowpath DirectLazy DirectEager StrictLazy
            StrictEager IpcScan IpcOrdered IpcHeap StrictPlus)
    };
    (@ $kernel:ident, $body:expr, $($name:ident)*) => { $({
        type $kernel = $crate::variant::$name;
        $body
    })* };
}
