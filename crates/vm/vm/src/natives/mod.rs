//! Native methods of the class library, one file for each Java class or group.
//!
//! A file has a table of (class, name, signature, function). A method that is missing throws
//! UnsatisfiedLinkError with its name. Some methods that have bytecode are listed, too, where the
//! library relies on another VM's layout of objects.

mod addresses;
mod annotations;
mod big_number;
mod blocked;
mod boxes;
mod character;
mod class;
mod constants;
mod converter;
mod decimal_format;
mod digest;
pub mod handles;
mod icu;
mod interfaces;
mod locale;
mod math;
pub mod members;
mod memory;
mod normalizer;
mod number;
mod object;
mod pattern;
mod posix;
mod process;
mod proxy;
mod reflect;
mod serialization;
mod socket_options;
mod sockets;
mod string;
mod system;
mod thread;
mod throwable;
mod time_zone;
mod unsafe_;
pub mod values;
mod vm;
mod zip;

use crate::vm::Native;

/// All native methods.
pub fn table() -> Vec<Native> {
    [
        addresses::TABLE,
        big_number::TABLE,
        character::TABLE,
        class::TABLE,
        constants::TABLE,
        converter::TABLE,
        decimal_format::TABLE,
        digest::TABLE,
        icu::TABLE,
        interfaces::TABLE,
        math::ROUND,
        memory::TABLE,
        normalizer::TABLE,
        number::TABLE,
        object::TABLE,
        pattern::TABLE,
        posix::TABLE,
        process::TABLE,
        proxy::TABLE,
        reflect::ACCESSORS,
        reflect::TABLE,
        serialization::TABLE,
        socket_options::TABLE,
        sockets::TABLE,
        string::TABLE,
        system::TABLE,
        thread::TABLE,
        throwable::TABLE,
        time_zone::TABLE,
        unsafe_::TABLE,
        vm::TABLE,
        zip::TABLE,
    ]
    .into_iter()
    .chain(math::TABLES)
    .flatten()
    .copied()
    .collect()
}
