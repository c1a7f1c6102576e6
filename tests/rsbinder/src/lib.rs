//! The AIDL interfaces of the programs in this package.
#![forbid(unsafe_code)]

/// The types that Baton's broadcast service leaves to programs.
pub mod android;

#[allow(non_snake_case, non_camel_case_types, missing_docs, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/suite.rs"));
}

pub use generated::baton;
pub use generated::suite;
