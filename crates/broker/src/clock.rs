//! Which clock the messages of all engines are stamped with: one for all, since their stamps are compared.

use baton_abi::control::Stamps;

/// The clock that the kernel's own time is made of.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The processors' counter where the kernel has found it to be the same on all of them.
pub fn stamps() -> Stamps {
    let source = std::fs::read_to_string(SOURCE).unwrap_or_default();
    stamps_of(std::env::consts::ARCH, source.trim())
}

fn stamps_of(architecture: &str, source: &str) -> Stamps {
    match (architecture, source) {
        ("x86_64", "tsc") | ("aarch64", "arch_sys_counter") => Stamps::Counter,
        _ => Stamps::Clock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_the_kernel_does_not_trust_is_not_used() {
        for (architecture, source, stamps) in [
            ("x86_64", "tsc", Stamps::Counter),
            ("aarch64", "arch_sys_counter", Stamps::Counter),
            ("x86_64", "hpet", Stamps::Clock),
            ("x86_64", "kvm-clock", Stamps::Clock),
            ("x86_64", "", Stamps::Clock),
            ("riscv64", "riscv_clocksource", Stamps::Clock),
        ] {
            assert_eq!(stamps_of(architecture, source), stamps, "{architecture} {source}");
        }
    }
}
