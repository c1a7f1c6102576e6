//! The code of the interfaces that their own compilers make.

#[cfg(feature = "others")]
use tonic_build::manual::{Builder, Method, Service};

#[cfg(not(feature = "others"))]
fn main() {}

#[cfg(feature = "others")]
fn main() {
    let echo = Method::builder()
        .name("echo")
        .route_name("Echo")
        .input_type("crate::grpc::Payload")
        .output_type("crate::grpc::Payload")
        .codec_path("tonic_prost::ProstCodec");
    let service = Service::builder().name("Echo").package("baton.bench").method(echo.build());
    Builder::new().compile(&[service.build()]);
    println!("cargo:rerun-if-changed=schema/echo.capnp");
    capnpc::CompilerCommand::new()
        .src_prefix("schema")
        .file("schema/echo.capnp")
        .default_parent_module(vec!["capnp".to_owned()])
        .run()
        .expect("Cap'n Proto's compiler, `capnp`; the package `capnproto` has it");
}
