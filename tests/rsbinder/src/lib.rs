//! The AIDL interfaces of the programs in this package.
#![forbid(unsafe_code)]

#[allow(non_snake_case, non_camel_case_types, missing_docs, clippy::all)]
mod generated {
    pub mod demo {
        include!(concat!(env!("OUT_DIR"), "/demo.rs"));
    }
    pub mod suite {
        include!(concat!(env!("OUT_DIR"), "/suite.rs"));
    }
}

pub use generated::demo::demo;
pub use generated::suite::suite;
