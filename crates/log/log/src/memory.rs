//! The memory of a ring, its two positions and its bytes: for its writer, and for a reader.
//!
//! A reader does not map the file, since an access beyond the end of a file that its owner has
//! shrunk would fault. A read is short instead. On the supported processors the kernel copies an
//! aligned word at once.
//!
//! Under the model checker, `crate::models` replaces this module with loom's atomics.

use crate::bounds::Bounds;
use baton_shm::held::Held;
use baton_shm::own::{MirroredRing, Own};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The memory of one ring, for its writer. Both positions are in the map that all rings of the file
/// share.
pub(crate) struct Memory {
    bytes: MirroredRing,
    head: Held<Own, AtomicU64>,
    tail: Held<Own, AtomicU64>,
}

impl Memory {
    /// `tail_at`: the offset of the tail in the table. The head follows it.
    pub fn new(table: &Arc<Own>, tail_at: usize, bytes: MirroredRing) -> Memory {
        let word = |at: usize| Held::new(Arc::clone(table), |table| table.double_word(at));
        Memory { bytes, head: word(tail_at + 8), tail: word(tail_at) }
    }

    pub fn capacity(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    pub fn tail(&self) -> &AtomicU64 {
        &self.tail
    }

    #[inline]
    pub fn head(&self) -> &AtomicU64 {
        &self.head
    }

    /// Writes a record at a position: its header and other bytes of fixed length, its tag, and its
    /// message.
    #[inline]
    pub fn write<const N: usize>(
        &self,
        position: u64,
        header: &[u8; N],
        tag: &[u8],
        message: &[u8],
    ) {
        self.bytes.write_in_a_row(position, header, tag, message);
    }
}

/// Why a ring could not be read: the error of a system call, or `ENODATA` if the file is too short.
pub(crate) type Unreadable = Errno;

/// One ring in its file, for a reader.
pub(crate) struct View<'a> {
    pub file: BorrowedFd<'a>,
    /// The offset of the tail. The head follows it.
    pub bounds_at: u64,
    pub bytes_at: u64,
    pub capacity: u64,
}

impl View<'_> {
    /// Reads the positions. The tail may be older than the head.
    pub fn bounds(&mut self) -> Result<Bounds, Unreadable> {
        let mut words = [0; 16];
        read_exactly(self.file, self.bounds_at, &mut words)?;
        let word = |at: usize| u64::from_ne_bytes(words[at..at + 8].try_into().expect("8 bytes"));
        Ok(Bounds { tail: word(0), head: word(8) })
    }

    /// Copies bytes from a position on, modulo the capacity, which they do not exceed. If the
    /// writer writes them meanwhile, the copy is any mixture of old and new ones.
    pub fn copy(&mut self, position: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let at = position % self.capacity;
        let until_end = usize::try_from(self.capacity - at).unwrap_or(usize::MAX);
        let (first, second) = into.split_at_mut(until_end.min(into.len()));
        read_exactly(self.file, self.bytes_at + at, first)?;
        read_exactly(self.file, self.bytes_at, second)
    }
}

/// Reads all bytes, or fails with `ENODATA` if the file ends before.
pub(crate) fn read_exactly(file: impl AsFd, at: u64, mut into: &mut [u8]) -> Result<(), Errno> {
    let mut at = at;
    while !into.is_empty() {
        match rustix::io::pread(file.as_fd(), &mut *into, at) {
            Ok(0) => return Err(Errno::NODATA),
            Ok(n_bytes) => {
                into = &mut into[n_bytes..];
                at += n_bytes as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
