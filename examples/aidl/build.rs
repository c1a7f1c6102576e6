//! Generates the Rust side of the AIDL interfaces in `aidl/`.

fn main() {
    let generated = rsbinder_aidl::Builder::new()
        .source("aidl/demo")
        .include_dir("aidl")
        .output("demo.rs")
        .generate();
    if let Err(error) = generated {
        eprintln!("{:?}", miette::Report::new(error));
        std::process::exit(1);
    }
}
