//! Names of words: two mappings of one file have the same words at different addresses.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At an address of this process.
    Private(usize),
    /// In a file: its inode and offset.
    Shared(u64, usize),
}

/// Mappings by the address of their first byte.
static MAPPINGS: Mutex<BTreeMap<usize, Mapped>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Mapped {
    bytes: usize,
    inode: u64,
    offset: usize,
}

impl Place {
    pub fn of(address: usize) -> Place {
        let mappings = MAPPINGS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match mappings.range(..=address).next_back() {
            Some((base, mapped)) if address - base < mapped.bytes => {
                Place::Shared(mapped.inode, mapped.offset + address - base)
            }
            _ => Place::Private(address),
        }
    }
}

/// A file's bytes from `offset` on are at `address` from now on.
pub(crate) fn note_mapping(address: usize, bytes: usize, inode: u64, offset: usize) {
    let mut mappings = MAPPINGS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    mappings.insert(address, Mapped { bytes, inode, offset });
}

/// The mapping at `address` is gone.
pub(crate) fn forget_mapping(address: usize) {
    MAPPINGS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&address);
}
