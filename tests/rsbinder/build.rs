//! Generates the Rust side of the AIDL interfaces in `aidl/`.

fn main() {
    for package in ["demo", "suite"] {
        let generated = rsbinder_aidl::Builder::new()
            .source(format!("aidl/{package}"))
            .include_dir("aidl")
            .output(format!("{package}.rs"))
            .generate();
        if let Err(error) = generated {
            eprintln!("{:?}", miette::Report::new(error));
            std::process::exit(1);
        }
    }
}
