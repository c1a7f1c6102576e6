//! C's variadic functions, which stable Rust cannot define; and the shared library's name at run
//! time, which changes when a program has to be built anew.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/print.c");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbaton_log.so.0");
    cc::Build::new()
        .file("src/print.c")
        .flag("-fvisibility=hidden")
        .warnings(true)
        .compile("print");
}
