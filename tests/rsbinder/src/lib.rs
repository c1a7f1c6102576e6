//! The AIDL interfaces of the programs in this package.
#![forbid(unsafe_code)]

#[allow(non_snake_case, non_camel_case_types, missing_docs, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/suite.rs"));
}

pub use generated::suite;
