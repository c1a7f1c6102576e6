//! Tokens: by which receivers finish, and which nobody can make but the service.
//!
//! ```text
//!   bits 57..64 level     bits 25..57 number, hidden     bits 0..25 check of the others
//! ```
//!
//! Number and check are hashes with a secret. A looper drops a token whose check is wrong, so that
//! guesses wake no delivery thread, whose priority may be above all of its user's. A guess that
//! passes the check still has to meet the number of a step.

use super::priority::N_LEVELS;
use std::hash::{BuildHasher, RandomState};

const CHECK_BITS: u32 = 25;
const NUMBER_BITS: u32 = 32;

/// Makes tokens and knows them. So does a clone.
#[derive(Clone, Debug, Default)]
pub struct Tokens(RandomState);

impl Tokens {
    /// The token of a level's step. Another number may have the same one.
    pub fn token(&self, level: usize, number: u64) -> u64 {
        let hidden = self.0.hash_one((level, number)) % (1 << NUMBER_BITS);
        self.with_check((level as u64) << NUMBER_BITS | hidden)
    }

    /// The level of a token. `None` if it is a guess.
    pub fn level(&self, token: u64) -> Option<usize> {
        let checked = token >> CHECK_BITS;
        let level = (checked >> NUMBER_BITS) as usize;
        (level < N_LEVELS && self.with_check(checked) == token).then_some(level)
    }

    fn with_check(&self, checked: u64) -> u64 {
        let check = self.0.hash_one(checked) % (1 << CHECK_BITS);
        checked << CHECK_BITS | check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_with_another_bit_is_a_guess() {
        let tokens = Tokens::default();
        for level in [0, 1, 80, 99] {
            let token = tokens.token(level, 5);
            assert_eq!(tokens.clone().level(token), Some(level));
            assert!((0..64).all(|bit| tokens.level(token ^ 1 << bit).is_none()), "{token:x}");
            assert_eq!(Tokens::default().level(token), None, "another service's");
        }
        assert_eq!(tokens.level(tokens.token(N_LEVELS, 5)), None, "there is no such level");
    }
}
