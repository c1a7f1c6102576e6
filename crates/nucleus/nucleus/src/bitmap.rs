//! A set of the 256 priorities as two levels of bits. Two instructions find the highest one
//! (Greenaway 2007, section 2.4.1).
//!
//! ```text
//!  summary        . . 1 1        bit w: words[w] is not 0
//!                     | |
//!  words    [3] [2] [1] [0]      bit p % 64 of words[p / 64]: priority p is in use
//! ```

/// A set of priorities.
#[derive(Clone, Copy, Debug, Default)]
pub struct PriorityBitmap {
    summary: u64,
    words: [u64; 4],
}

impl PriorityBitmap {
    /// Inserts a priority.
    #[inline]
    pub fn insert(&mut self, priority: u8) {
        let word = usize::from(priority >> 6);
        self.words[word] |= 1 << (priority & 63);
        self.summary |= 1 << word;
    }

    /// Removes a priority.
    #[inline]
    pub fn remove(&mut self, priority: u8) {
        let word = usize::from(priority >> 6);
        self.words[word] &= !(1 << (priority & 63));
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }

    /// The highest priority of the set, or -1.
    #[inline]
    pub fn highest(&self) -> i32 {
        if self.summary == 0 {
            return -1;
        }
        let word = self.summary.ilog2();
        (word * 64 + self.words[word as usize & 3].ilog2()) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_is_that_of_the_set() {
        let mut bitmap = PriorityBitmap::default();
        let mut set = std::collections::BTreeSet::new();
        let mut random = 1_u32;
        for _ in 0..5000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let priority = (random >> 24) as u8;
            if random & 1 << 20 == 0 {
                bitmap.insert(priority);
                set.insert(priority);
            } else {
                bitmap.remove(priority);
                set.remove(&priority);
            }
            assert_eq!(bitmap.highest(), set.last().map_or(-1, |&highest| i32::from(highest)));
        }
    }
}
