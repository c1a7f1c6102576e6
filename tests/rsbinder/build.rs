//! Generates the Rust side of the AIDL interfaces in `aidl/`, and of Baton's broadcast service.

fn main() {
    let generated = rsbinder_aidl::Builder::new()
        .source("aidl/suite")
        .include_dir("aidl")
        .source("../../crates/services/aidl/baton/app/IBroadcastManager.aidl")
        .include_dir("../../crates/services/aidl")
        .output("suite.rs")
        .generate();
    if let Err(error) = generated {
        eprintln!("{:?}", miette::Report::new(error));
        std::process::exit(1);
    }
}
