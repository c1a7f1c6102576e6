//! Native methods of Android's classes, one file for each group.

mod binder;
mod message_queue;
mod parcel;
mod service_manager;
mod system;

use baton_vm::vm::Native;

/// All native methods, and methods with bytecode that they replace.
pub fn table() -> Vec<Native> {
    let tables =
        [binder::TABLE, message_queue::TABLE, service_manager::TABLE, system::TABLE].concat();
    [parcel::table(), tables].concat()
}
