//! Shared memory between processes that do not trust each other.
//!
//! - [`mapping`]: memfds that cannot shrink, and mappings of them that no Rust reference points
//!   into.
//! - [`own`]: mappings of a named file that only this process writes. [`held`]: a reference to one
//!   word of such a mapping.
//! - [`wiped`]: memory that a child of fork finds zero. [`forks`]: whether the calling process is
//!   such a child.
//! - [`mailbox`]: a word that says whether the area beside it contains a message, and whether its
//!   reader waits. [`lane_owner`]: the thread of the reader's process that takes the message.
//!   [`ready_lanes`]: where its next look finds one. [`client_lanes`]: which lanes the writer uses.
//! - [`ring`]: positions of a byte ring from one writer to one reader.
//! - [`bell`]: a futex that another process may wake and only its owner changes.
//! - [`revocation`]: operations that threads begin without a lock and that the holder of a lock can
//!   take over.
//! - [`reserved_slot`]: room for a message that one thread uses without a lock. [`event_flag`]:
//!   whether that thread has to take the lock.
//! - [`use_count`]: uses of a thing that another process keeps, which cannot end while one is on
//!   its way.
//! - [`lock`]: a lock whose holder inherits the priority of its waiters. [`thread`]: the calling
//!   thread's part of it.
//! - [`clock`]: the processor's counter and the kernel's clocks. [`schedule`]: policies and
//!   priorities of threads.
//! - [`futex`]: the waits under all of these. [`blocking`]: system calls that wait for a descriptor
//!   or a time.
//! - [`socket`]: a socket's peer, and bytes that a receiver has not read. [`closer`]: threads that
//!   close descriptors of others. [`fd_numbers`]: numbers of descriptors that leave a program its
//!   own. [`fd_limit`]: how many there may be. [`file_size`]: how long files may be.
//!   [`namespaces`]: in which the ids of other processes have a meaning.
//!
//! **Invariant**: this crate knows no Binder noun, and contains all `unsafe` code for shared
//! memory. Protocols above it use atomics, offsets and copies.
//!
//! Atomics come from [`sync`]. The model checker (`--cfg loom`) replaces them, so that it checks
//! the code that ships. The simulator (`--cfg simulated`) replaces them too, with the waits, clocks
//! and priorities of [`futex`], [`blocking`], [`clock`] and [`schedule`].

pub mod bell;
#[cfg(not(loom))]
pub mod blocking;
pub mod client_lanes;
pub mod clock;
#[cfg(not(loom))]
pub mod closer;
pub mod event_flag;
#[cfg(not(loom))]
pub mod fd_limit;
#[cfg(not(loom))]
pub mod fd_numbers;
#[cfg(not(loom))]
pub mod file_size;
#[cfg(not(loom))]
pub mod forks;
pub mod futex;
#[cfg(not(loom))]
pub mod held;
pub mod lane_owner;
pub mod lock;
pub mod mailbox;
#[cfg(not(loom))]
pub mod mapping;
#[cfg(not(loom))]
pub mod namespaces;
#[cfg(not(loom))]
pub mod own;
pub mod ready_lanes;
pub mod reserved_slot;
pub mod revocation;
pub mod ring;
#[cfg(not(loom))]
pub mod schedule;
#[cfg(simulated)]
pub mod simulation;
#[cfg(not(loom))]
pub mod socket;
pub mod sync;
pub mod thread;
pub mod use_count;
#[cfg(not(loom))]
pub mod wiped;

#[cfg(loom)]
mod models;
