//! C's variadic functions, which stable Rust cannot define.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/variadic.c");
    cc::Build::new()
        .file("src/variadic.c")
        .flag("-fvisibility=hidden")
        .warnings(true)
        .compile("variadic");
}
