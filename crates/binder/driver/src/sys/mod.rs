//! The calling thread and the operating system, without a word of Binder: clocks, threads and their
//! priorities, tokens, the program's memory, packets with descriptors.

pub(crate) mod clock;
pub(crate) mod control_poll;
pub(crate) mod maps;
pub(crate) mod packet;
pub(crate) mod priority;
pub(crate) mod spin;
pub(crate) mod thread;
pub(crate) mod token;
pub(crate) mod user;
