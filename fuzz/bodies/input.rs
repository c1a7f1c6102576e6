//! Interprets a fuzzer's bytes as a sequence of choices. After the last byte every choice is zero.

pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&mut self, wanted: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(wanted.min(self.0.len()));
        self.0 = left;
        taken
    }

    pub fn u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.bytes(8);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    pub fn u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        let taken = self.bytes(4);
        bytes[..taken.len()].copy_from_slice(taken);
        u32::from_le_bytes(bytes)
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// A number below `n`, which is at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len().min(256))]
    }

    /// A number that is mostly small and sometimes arbitrary.
    pub fn small(&mut self) -> u64 {
        match self.u8() {
            255 => self.u64(),
            254 => u64::from(self.u32()),
            small => u64::from(small % 32),
        }
    }
}
