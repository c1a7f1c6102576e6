//! Binder for Java programs: the native methods of Android's Binder classes, over the driver.
//!
//! The classes are those of android-all, unmodified. From the lowest module to the highest:
//!
//! - [`driver`]: the opened device and its receive buffer; commands.
//! - [`nodes`]: Java's Binder objects that others hold. [`remotes`]: objects of others.
//! - [`parcel`]: what a parcel contains. [`parcels`]: parcels by their numbers.
//! - [`classes`]: Android's classes. [`calls`]: a thread's dialogue with the driver.
//! - [`binders`]: Java's objects of nodes and remote objects. [`pool`]: recycled parcels.
//! - [`natives`]: the methods.
//!
//! **Invariant**: no lock of this crate is held while Java runs or an object is allocated. A thread
//! that waits for such a lock is a running one, and a collection would wait for it.
//!
//! Source: the protocol of `android/binder.h`; the format of Android's Parcel.

mod binders;
mod calls;
mod classes;
mod driver;
mod natives;
mod nodes;
mod parcel;
mod parcels;
mod pool;
mod remotes;

use baton_vm::vm::Native;
use std::path::PathBuf;

/// The native methods, which reach the broker that listens at `socket`. A process has one VM, and
/// the first call says where.
pub fn natives(socket: PathBuf) -> Vec<Native> {
    driver::set_socket(socket);
    natives::table()
}
