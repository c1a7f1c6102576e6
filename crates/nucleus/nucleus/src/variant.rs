//! The variants of the kernel: the choices, and the ten combinations that have names.
//!
//! Nine are those of Greenaway 2007, table 3.1. The tenth, [`StrictPlus`], keeps every promise that
//! the others trade for speed.

use crate::send_queue::{Bitmap, Fifo, Heap, Ordered, Scanned, SendQueue};
use crate::statistics::{Counters, Statistics};
use std::marker::PhantomData;

/// Which thread runs after an IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switching {
    /// A party of the IPC, even if another ready thread has a higher priority (section 2.4.2).
    Direct,
    /// The ready thread of the highest priority.
    Strict,
}

/// Which threads are on the ready queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queueing {
    /// All ready threads, except perhaps the running one, and some that have blocked (section
    /// 2.4.3).
    Lazy,
    /// As in `Lazy`, but a thread that blocks to receive from another thread than it has sent to is
    /// taken off at once. The thesis' Slowpath does this (section 5.2.2).
    HalfLazy,
    /// All ready threads and no others.
    Eager,
    /// All ready threads but the running one, and no others. A switch between two parties is as
    /// cheap for the queue as with `Lazy`, and no work is put off.
    Exact,
}

/// How the IPC path calls the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// The IPC path makes the decisions itself, where they arise (figure 3.1).
    Open,
    /// Through the interface of section 3.2.
    Interface,
}

/// The effect of a call on its server's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inheritance {
    /// The server keeps its own priority.
    None,
    /// The server runs at the highest priority of its callers, if that is above its own. So do the
    /// servers that it calls in turn.
    ThroughCalls,
}

/// When the kernel looks for interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preemption {
    /// At the end of a system call, with all the IPCs that it has set off.
    AtExit,
    /// After each IPC.
    BetweenIpcs,
}

/// The assembly fast path that is tried before the general path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assembly {
    /// No fast path.
    None,
    /// A call, or a reply and wait, between two parties.
    Direct,
    /// Like `Direct`, if the party that goes on has the highest priority of the ready threads.
    Strict,
}

/// A variant of the kernel.
pub trait Variant: Clone + std::fmt::Debug + 'static {
    /// The name of the variant in table 3.1.
    const NAME: &'static str;
    /// Which thread runs after an IPC.
    const SWITCHING: Switching = Switching::Direct;
    /// Which threads are on the ready queue.
    const QUEUEING: Queueing = Queueing::Lazy;
    /// How the IPC path calls the scheduler.
    const PATH: Path = Path::Interface;
    /// The effect of a call on its server's priority.
    const INHERITANCE: Inheritance = Inheritance::None;
    /// When the kernel looks for interrupts.
    const PREEMPTION: Preemption = Preemption::AtExit;
    /// The assembly fast path that is tried first.
    const ASSEMBLY: Assembly = Assembly::None;
    /// The order in which senders are served.
    type SendQueue: SendQueue;
    /// The counters.
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
    /// The assembly path for the common call and reply, and [`Slowpath`] for the rest.
    Fastpath = "Fastpath", Fifo { PATH: Path = Path::Open, ASSEMBLY: Assembly = Assembly::Direct };
    /// Decisions in the IPC path itself.
    Slowpath = "Slowpath", Fifo { PATH: Path = Path::Open,
        QUEUEING: Queueing = Queueing::HalfLazy };
    /// Direct process switch and lazy queueing, through the interface.
    DirectLazy = "Direct/Lazy", Fifo {};
    /// Direct process switch without lazy queueing.
    DirectEager = "Direct/Eager", Fifo { QUEUEING: Queueing = Queueing::Eager };
    /// Lazy queueing without direct process switch.
    StrictLazy = "Strict/Lazy", Fifo { SWITCHING: Switching = Switching::Strict };
    /// Neither direct process switch nor lazy queueing.
    StrictEager = "Strict/Eager", Fifo { SWITCHING: Switching = Switching::Strict,
        QUEUEING: Queueing = Queueing::Eager };
    /// [`DirectLazy`] with a send queue that the receiver scans.
    IpcScan = "IPC-Scan", Scanned {};
    /// [`DirectLazy`] with a send queue in order of priority.
    IpcOrdered = "IPC-Ordered", Ordered {};
    /// [`DirectLazy`] with a heap as send queue.
    IpcHeap = "IPC-Heap", Heap {};
    /// Strict priorities, inherited through calls, in constant time and with bounded delays.
    StrictPlus = "Strict+", Bitmap {
        SWITCHING: Switching = Switching::Strict, QUEUEING: Queueing = Queueing::Exact,
        INHERITANCE: Inheritance = Inheritance::ThroughCalls,
            PREEMPTION: Preemption = Preemption::BetweenIpcs,
        ASSEMBLY: Assembly = Assembly::Strict
    };
}

/// A variant that counts its operations (section 4.2). It uses no assembly path, as that counts
/// nothing.
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

/// Evaluates an expression for each of the ten variants: `each_kernel!(K => expression of K)`.
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
