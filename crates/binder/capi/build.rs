//! The shared library's name at run time: its number changes when a program has to be built anew.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbaton.so.0");
}
