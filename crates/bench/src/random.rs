//! Numbers that look random, and are the same in each run.

/// The number after `value` of a linear congruential generator (Knuth's MMIX), of which the upper
/// bits are good. `odd` is odd.
pub fn next(value: u64, odd: u64) -> u64 {
    value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(odd)
}
