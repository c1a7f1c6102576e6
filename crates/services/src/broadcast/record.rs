//! Records of the journal: their layout, pure. The journal is an array of words of 32 bits.
//!
//! ```text
//!   block 0     the journal's own header
//!   others      word 0: state, of a record's first block; else 0
//!               word 1: the record's next block, or 0
//!   first block words 2..8: id, bytes of the body, marks, checksum, 0
//!   then, over the record's blocks: a bit for each mark, and the body
//! ```
//!
//! **Invariant**: the state of a record's first block is its last store, and its first when it
//! ends. A service that is killed between any two stores has a record in whole, or not at all. A
//! mark is one store, too. A record takes another one's place in two steps, so that both may be
//! there; their readers know which one counts.
//!
//! Whoever reads a journal believes nothing of it: see [`read_all`].

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 512;
/// Words of a block.
pub const BLOCK_WORDS: usize = BLOCK_BYTES / 4;

const STATE: usize = 0;
const NEXT: usize = 1;
const ID: usize = 2;
const N_BYTES: usize = 4;
const N_MARKS: usize = 5;
const CHECKSUM: usize = 6;
/// Where the data begin in a record's first block, and in its other ones.
const FIRST_DATA: usize = 8;
const OTHER_DATA: usize = 2;
/// The upper bits of the state of a record that counts.
const ACCEPTED: u32 = 0x5265_6300;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A registered receiver.
    Receiver = 1,
    /// A sticky broadcast.
    Sticky = 2,
    /// A broadcast under way, with marks of how far it is.
    Broadcast = 3,
    /// How far an ordered broadcast is.
    Step = 4,
}

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// What it is.
    pub kind: Kind,
    /// Names it among those of its kind.
    pub id: u64,
    /// The number of its marks.
    pub n_marks: u32,
    /// Its content.
    pub body: &'a [u8],
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it is.
    pub kind: Kind,
    /// Names it among those of its kind.
    pub id: u64,
    /// Its marks.
    pub marks: Vec<bool>,
    /// Its content.
    pub body: Vec<u8>,
    /// Its blocks.
    pub blocks: Vec<u32>,
}

/// Why a journal is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block} of the journal {wrong}")]
pub struct Corrupt {
    /// The block.
    pub block: u32,
    /// What is wrong with it.
    pub wrong: &'static str,
}

impl Draft<'_> {
    /// The number of blocks that it takes.
    pub fn n_blocks(&self) -> u32 {
        let n_words = n_mark_words(self.n_marks) + self.body.len().div_ceil(4);
        n_blocks(n_words) as u32
    }

    /// Writes the record to blocks that are free. The last store is the one after which it counts.
    ///
    /// # Panics
    /// If the blocks are not as many as it takes.
    pub fn write(&self, blocks: &[u32], mut store: impl FnMut(usize, u32)) {
        assert_eq!(blocks.len(), self.n_blocks() as usize, "a record has the blocks that it takes");
        for (at, block) in blocks.iter().enumerate() {
            store(word_of(*block) + NEXT, blocks.get(at + 1).copied().unwrap_or(0));
        }
        let body_words = self.body.chunks(4).map(|bytes| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(word)
        });
        let mark_words = std::iter::repeat_n(0, n_mark_words(self.n_marks));
        let mut checksum = Checksum::new(self.kind, self.id, self.n_marks, self.body.len() as u32);
        for (at, word) in mark_words.chain(body_words).enumerate() {
            store(data_word(blocks, at), word);
            if at >= n_mark_words(self.n_marks) {
                checksum.add(word);
            }
        }
        let first = word_of(blocks[0]);
        store(first + ID, self.id as u32);
        store(first + ID + 1, (self.id >> 32) as u32);
        store(first + N_BYTES, self.body.len() as u32);
        store(first + N_MARKS, self.n_marks);
        store(first + CHECKSUM, checksum.0);
        store(first + STATE, ACCEPTED | self.kind as u32);
    }
}

/// The word and the bit of a mark.
pub fn mark(blocks: &[u32], mark: u32) -> (usize, u32) {
    (data_word(blocks, (mark / 32) as usize), 1 << (mark % 32))
}

/// The word that ends a record when it becomes 0.
pub fn state(blocks: &[u32]) -> usize {
    word_of(blocks[0]) + STATE
}

/// Reads all records of a journal with this number of blocks.
///
/// # Errors
/// The journal is not as this module writes it.
pub fn read_all(n_blocks: u32, load: impl Fn(usize) -> u32) -> Result<Vec<Kept>, Corrupt> {
    let mut is_taken = vec![false; n_blocks as usize];
    let mut all = Vec::new();
    for block in 1..n_blocks {
        let state = load(word_of(block) + STATE);
        if state != 0 {
            let wrong = |wrong| Corrupt { block, wrong };
            all.push(read(block, state, &mut is_taken, &load).map_err(wrong)?);
        }
    }
    let mut names: Vec<_> = all.iter().filter(|it| it.kind != Kind::Step).collect();
    names.sort_by_key(|it| (it.kind, it.id));
    match names.windows(2).find(|pair| (pair[0].kind, pair[0].id) == (pair[1].kind, pair[1].id)) {
        Some(pair) => Err(Corrupt { block: pair[1].blocks[0], wrong: "repeats a record" }),
        None => Ok(all),
    }
}

fn read(
    first: u32,
    state: u32,
    is_taken: &mut [bool],
    load: &impl Fn(usize) -> u32,
) -> Result<Kept, &'static str> {
    let kinds = [Kind::Receiver, Kind::Sticky, Kind::Broadcast, Kind::Step];
    let kind = kinds.into_iter().find(|kind| state == ACCEPTED | *kind as u32);
    let kind = kind.ok_or("begins no record")?;
    let word = |at: usize| load(word_of(first) + at);
    let id = u64::from(word(ID)) | u64::from(word(ID + 1)) << 32;
    let (n_bytes, n_marks) = (word(N_BYTES), word(N_MARKS));
    let n_mark_words = n_mark_words(n_marks);
    let n_words = n_mark_words + (n_bytes as usize).div_ceil(4);
    let n_blocks = n_blocks(n_words);
    if n_blocks >= is_taken.len() {
        return Err("begins a record that is longer than the journal");
    }
    let mut blocks = Vec::with_capacity(n_blocks);
    let mut next = first;
    for at in 0..n_blocks {
        let is_used = is_taken.get_mut(next as usize).filter(|_| next != 0);
        if std::mem::replace(is_used.ok_or("begins a record without an end")?, true) {
            return Err("begins a record that shares a block with another one");
        }
        if at > 0 && load(word_of(next) + STATE) != 0 {
            return Err("begins a record that another one begins within");
        }
        blocks.push(next);
        next = load(word_of(next) + NEXT);
    }
    if next != 0 {
        return Err("begins a record without an end");
    }
    let mut checksum = Checksum::new(kind, id, n_marks, n_bytes);
    let mut body = Vec::with_capacity(n_words * 4);
    for at in n_mark_words..n_words {
        let word = load(data_word(&blocks, at));
        checksum.add(word);
        body.extend(word.to_le_bytes());
    }
    body.truncate(n_bytes as usize);
    if checksum.0 != word(CHECKSUM) {
        return Err("begins a record with a wrong checksum");
    }
    let is_marked = |at| {
        let (word, bit) = mark(&blocks, at);
        load(word) & bit != 0
    };
    let marks = (0..n_marks).map(is_marked).collect();
    Ok(Kept { kind, id, marks, body, blocks })
}

/// A sum over what a record's marks do not change.
struct Checksum(u32);

impl Checksum {
    fn new(kind: Kind, id: u64, n_marks: u32, n_bytes: u32) -> Checksum {
        let mut sum = Checksum(0);
        let head = [kind as u32, id as u32, (id >> 32) as u32, n_marks, n_bytes];
        head.into_iter().for_each(|word| sum.add(word));
        sum
    }

    fn add(&mut self, word: u32) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b1);
    }
}

fn n_mark_words(n_marks: u32) -> usize {
    n_marks.div_ceil(32) as usize
}

fn n_blocks(n_words: usize) -> usize {
    let others = n_words.saturating_sub(BLOCK_WORDS - FIRST_DATA);
    1 + others.div_ceil(BLOCK_WORDS - OTHER_DATA)
}

fn word_of(block: u32) -> usize {
    block as usize * BLOCK_WORDS
}

/// The place of a record's word of data.
fn data_word(blocks: &[u32], at: usize) -> usize {
    match at.checked_sub(BLOCK_WORDS - FIRST_DATA) {
        None => word_of(blocks[0]) + FIRST_DATA + at,
        Some(at) => {
            let per_block = BLOCK_WORDS - OTHER_DATA;
            word_of(blocks[1 + at / per_block]) + OTHER_DATA + at % per_block
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N_BLOCKS: u32 = 16;

    /// A journal's words, and every store since.
    struct Image {
        words: Vec<u32>,
        stores: Vec<(usize, u32)>,
    }

    impl Image {
        fn new() -> Image {
            Image { words: vec![0; N_BLOCKS as usize * BLOCK_WORDS], stores: Vec::new() }
        }

        fn store(&mut self, at: usize, word: u32) {
            self.words[at] = word;
            self.stores.push((at, word));
        }

        fn write(&mut self, draft: &Draft<'_>, blocks: &[u32]) {
            draft.write(blocks, |at, word| self.store(at, word));
        }

        fn mark(&mut self, blocks: &[u32], at: u32) {
            let (word, bit) = mark(blocks, at);
            self.store(word, self.words[word] | bit);
        }

        fn read(&self) -> Result<Vec<Kept>, Corrupt> {
            read_all(N_BLOCKS, |at| self.words[at])
        }

        /// What is read after each store, and before the first one.
        fn after_each_store(stores: &[(usize, u32)]) -> Vec<Vec<Kept>> {
            let mut image = Image::new();
            let mut all = vec![image.read().unwrap()];
            for (at, word) in stores {
                image.store(*at, *word);
                all.push(image.read().expect("a crash leaves no corrupt journal"));
            }
            all.dedup();
            all
        }
    }

    fn draft(kind: Kind, id: u64, n_marks: u32, body: &[u8]) -> Draft<'_> {
        Draft { kind, id, n_marks, body }
    }

    #[test]
    fn every_store_may_be_the_last_one() {
        let body: Vec<u8> = (0..1500u32).map(|at| at as u8).collect();
        let mut image = Image::new();
        let ordered = draft(Kind::Broadcast, 1 << 40, 0, &body);
        let (first, second) =
            (draft(Kind::Step, 1 << 40, 0, b"one"), draft(Kind::Step, 1 << 40, 0, b"two!!"));
        let parallel = draft(Kind::Broadcast, 7, 40, &body[..5]);
        image.write(&ordered, &[3, 9, 1, 4]);
        image.write(&parallel, &[2]);
        image.write(&first, &[5]);
        image.mark(&[2], 39);
        image.write(&second, &[6]);
        image.store(state(&[5]), 0);
        image.mark(&[2], 0);
        image.store(state(&[2]), 0);
        // A block that another record has had.
        image.write(&draft(Kind::Sticky, 9, 0, &body[..900]), &[5, 2]);
        image.store(state(&[3, 9, 1, 4]), 0);
        image.store(state(&[6]), 0);
        let states = Image::after_each_store(&image.stores);
        let shown: Vec<Vec<(Kind, u64, usize, usize)>> = states
            .iter()
            .map(|kept| {
                let mut shown: Vec<_> = kept
                    .iter()
                    .map(|it| {
                        let n_marked = it.marks.iter().filter(|is_marked| **is_marked).count();
                        (it.kind, it.id, n_marked, it.body.len())
                    })
                    .collect();
                shown.sort_unstable();
                shown
            })
            .collect();
        let (large, small) = ((Kind::Broadcast, 1 << 40, 0, 1500), |n| (Kind::Broadcast, 7, n, 5));
        let step = |n| (Kind::Step, 1 << 40, 0, n);
        let sticky = (Kind::Sticky, 9, 0, 900);
        let expected: Vec<Vec<(Kind, u64, usize, usize)>> = vec![
            vec![],
            vec![large],
            vec![small(0), large],
            vec![small(0), large, step(3)],
            vec![small(1), large, step(3)],
            vec![small(1), large, step(3), step(5)],
            vec![small(1), large, step(5)],
            vec![small(2), large, step(5)],
            vec![large, step(5)],
            vec![sticky, large, step(5)],
            vec![sticky, step(5)],
            vec![sticky],
        ];
        assert_eq!(shown, expected);
        assert!(
            states
                .iter()
                .flatten()
                .all(|it| it.body == body[..it.body.len()] || it.kind == Kind::Step)
        );
    }

    #[test]
    fn a_body_of_any_length_is_read_as_it_was_written() {
        for (n_bytes, n_marks) in (0..1600).step_by(7).zip((0..200).cycle()) {
            let body: Vec<u8> = (0..n_bytes).map(|at| (at * 31) as u8).collect();
            let draft = draft(Kind::Broadcast, n_bytes as u64, n_marks, &body);
            let blocks: Vec<u32> = (1..=draft.n_blocks()).rev().collect();
            let mut image = Image::new();
            image.write(&draft, &blocks);
            let marks: Vec<u32> = (0..n_marks).step_by(3).collect();
            marks.iter().for_each(|at| image.mark(&blocks, *at));
            let kept = image.read().unwrap().remove(0);
            assert_eq!((kept.body, kept.blocks), (body, blocks), "{n_bytes}");
            let is_marked = |at| marks.contains(&at);
            assert!(kept.marks.into_iter().eq((0..n_marks).map(is_marked)), "{n_bytes}");
        }
    }

    #[test]
    fn a_corrupt_journal_is_refused() {
        let body = [7; 1000];
        let write = || {
            let mut image = Image::new();
            image.write(&draft(Kind::Broadcast, 1, 3, &body), &[1, 2, 3]);
            image.write(&draft(Kind::Broadcast, 2, 0, &body[..9]), &[4]);
            image
        };
        for (word, value, wrong) in [
            (word_of(1), 7, "begins no record"),
            (word_of(5), ACCEPTED, "begins no record"),
            (word_of(1) + N_BYTES, u32::MAX, "begins a record that is longer than the journal"),
            (word_of(1) + N_MARKS, u32::MAX, "begins a record that is longer than the journal"),
            (word_of(1) + NEXT, 1, "begins a record that shares a block with another one"),
            (word_of(1) + NEXT, 4, "begins a record that another one begins within"),
            (word_of(1) + NEXT, 0, "begins a record without an end"),
            (word_of(2) + NEXT, N_BLOCKS, "begins a record without an end"),
            (word_of(3) + NEXT, 5, "begins a record without an end"),
            (word_of(2) + 20, 0, "begins a record with a wrong checksum"),
            (word_of(1) + ID, 5, "begins a record with a wrong checksum"),
        ] {
            let mut image = write();
            image.store(word, value);
            assert_eq!(image.read().unwrap_err().wrong, wrong, "{word} = {value}");
        }
        let mut image = write();
        image.write(&draft(Kind::Broadcast, 2, 0, b""), &[5]);
        let text = "block 5 of the journal repeats a record";
        assert_eq!(image.read().unwrap_err().to_string(), text);
    }
}
