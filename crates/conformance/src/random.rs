//! Random numbers from a seed, by SplitMix64: a seed gives the same numbers everywhere.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True with a probability of 1 in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A random element, if there is any.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() { None } else { Some(all[self.below(all.len() as u64) as usize]) }
    }

    /// A random element, with the given weights, not all of which are zero.
    pub fn weighted<T: Copy>(&mut self, all: &[(T, u32)]) -> T {
        let sum: u64 = all.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut at = self.below(sum);
        for (value, weight) in all {
            match at.checked_sub(u64::from(*weight)) {
                None => return *value,
                Some(rest) => at = rest,
            }
        }
        unreachable!("below the sum of all weights")
    }
}
