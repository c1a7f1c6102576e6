//! AIDL in Rust, by the published crate rsbinder: the interfaces of a service and its client.
#![forbid(unsafe_code)]

#[allow(non_snake_case, non_camel_case_types, missing_docs, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/demo.rs"));
}

pub use generated::demo;
