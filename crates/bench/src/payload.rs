//! What a call carries: words that count up from a number of the caller's choice.

/// An `int`, as a status or a handle is: the bytes that ratios are of, unless they say otherwise.
pub const SMALL_BYTES: usize = 4;
/// A request of some fields, as most are.
pub const COMMON_BYTES: usize = 124;
/// A large payload: the least that is worth a loan.
pub const LARGE_BYTES: usize = 65536;
/// A very large payload.
pub const HUGE_BYTES: usize = 1 << 20;

/// Fills a payload, a multiple of 4 bytes, with words that count up from `number`.
pub fn fill(bytes: &mut [u8], number: u32) {
    for (word, index) in bytes.chunks_exact_mut(4).zip(0..) {
        word.copy_from_slice(&number.wrapping_add(index).to_ne_bytes());
    }
}

/// Reads all of a payload: the number that it counts up from; `None` if a word is not what was
/// filled in.
pub fn check(bytes: &[u8]) -> Option<u32> {
    let word = |word: &[u8]| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
    let number = bytes.first_chunk::<4>().map(|first| word(first))?;
    let words = bytes.chunks_exact(4);
    let whole = words.remainder().is_empty();
    let wrong = words
        .zip(0..)
        .fold(0, |wrong, (bytes, index)| wrong | (word(bytes) ^ number.wrapping_add(index)));
    (whole && wrong == 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_in_is_found() {
        for bytes in [4, 124, 4096, 65536] {
            let mut payload = vec![0; bytes];
            fill(&mut payload, u32::MAX - 3);
            assert_eq!(check(&payload), Some(u32::MAX - 3));
            payload[bytes - 1] ^= 1;
            assert_ne!(check(&payload), Some(u32::MAX - 3));
        }
        assert_eq!(check(&[]), None);
        assert_eq!(check(&[0; 6]), None);
    }
}
