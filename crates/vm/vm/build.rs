//! Says whether the compiler makes jumps of calls that end a function: it does from level 2 on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(calls_may_stay_calls)");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    let checks = std::env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_some();
    if checks || matches!(level.as_str(), "" | "0" | "1") {
        println!("cargo::rustc-cfg=calls_may_stay_calls");
    }
}
