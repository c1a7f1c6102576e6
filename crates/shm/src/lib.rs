//! Shared memory between processes that do not trust each other.
//!
//! - [`mapping`]: memfds that cannot shrink, and maps of them that no Rust reference points into.
//! - [`own`]: maps of a named file that this process alone writes; [`held`]: a word in one of them,
//!   found once.
//! - [`wiped`]: memory that a child of fork finds zero; [`forks`]: whether this is one.
//! - [`mailbox`]: one word that says whether a message lies beside it, and who waits for it;
//!   [`lane_owner`]: which thread of the reader's process takes it.
//! - [`ring`]: bytes in order from one writer to one reader.
//! - [`bell`]: a futex that strangers may wake and only its owner changes.
//! - [`revocation`]: entered without a lock, revoked by whoever holds one.
//! - [`reserved_slot`]: room that is one thread's without a lock; [`event_flag`]: whether it has to
//!   ask who holds one.
//! - [`lock`]: whoever holds it runs at the priority of whoever waits; for threads of one process,
//!   which [`thread`] knows.
//! - [`clock`]: the processor's counter and the kernel's clocks.
//! - [`futex`]: the waits under all of these.
//!
//! **Invariant**: this crate knows no Binder noun, and it is the one place for shared-memory
//! `unsafe`. Protocols above it see atomics, offsets and copies.
//!
//! Atomics come through [`sync`], which the model checker swaps (`--cfg loom`), so that it checks
//! the code that ships.

pub mod bell;
pub mod clock;
pub mod event_flag;
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
pub mod own;
pub mod reserved_slot;
pub mod revocation;
pub mod ring;
pub mod sync;
pub mod thread;
#[cfg(not(loom))]
pub mod wiped;

#[cfg(loom)]
mod models;
