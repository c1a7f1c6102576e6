//! Builds the interposer for `baton` to contain, with the feature `embedded-interposer` and only
//! for a release: a debug build uses the file beside it.
//!
//! Cargo cannot yet make a library of one package an input of another one, so a second cargo
//! builds it, in a target directory of its own.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libbaton_preload.so";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn main() {
    println!("cargo::rustc-check-cfg=cfg(embedded_interposer)");
    println!("cargo::rerun-if-changed=build.rs");
    let is_release = variable("PROFILE") == "release";
    if !is_release || std::env::var_os("CARGO_FEATURE_EMBEDDED_INTERPOSER").is_none() {
        return;
    }
    for source in [".cargo/config.toml", "Cargo.toml", "Cargo.lock", "crates/binder", "crates/log"]
    {
        println!("cargo::rerun-if-changed={ROOT}/{source}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let bytes = std::fs::read(build(&out)).expect("cargo has built the interposer");
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    std::fs::write(out.join(LIBRARY), &bytes).expect("OUT_DIR can be written to");
    println!("cargo::rustc-env=INTERPOSER_HASH={:016x}", hasher.finish());
    println!("cargo::rustc-cfg=embedded_interposer");
}

/// Builds the interposer and returns its path.
fn build(out: &Path) -> PathBuf {
    let (target, directory) = (variable("TARGET"), out.join("target"));
    let status = Command::new(variable("CARGO"))
        .args(["--locked", "interposer"])
        .current_dir(ROOT)
        .env("CARGO_BUILD_TARGET", &target)
        .env("CARGO_TARGET_DIR", &directory)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env_remove("CARGO_BUILD_BUILD_DIR")
        // A lint's driver is no compiler.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "cargo could not build the interposer: {status}");
    directory.join(target).join("release").join(LIBRARY)
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("cargo sets it for build scripts")
}
