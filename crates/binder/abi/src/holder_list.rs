//! An owner's list of the processes to which it has granted its nodes directly.
//!
//! An owner that sends a node of its own asks nobody. Before it posts the message it enters the
//! receiver here, and it takes the entry out when the last such grant has come back. The receiver
//! learns the entry's number with the object. When the receiver passes the handle on, it names the
//! entry to the broker, which reads it and need not wait for the owner: an owner may be frozen.
//!
//! The list follows the first page of the engine's tally file, which only the engine and its broker
//! have. The engine writes it, and the broker reads it by `pread`: so a list takes memory only
//! where its owner has written. An owner lies at its own cost, because an entry speaks of the
//! owner's own nodes only.

use crate::control::{NodeId, ProcessId, Strength};
use crate::lane::TALLY_BYTES;
use bytemuck::{Pod, Zeroable};

/// Entries of one list: pairs of a holder and a node.
pub const ENTRIES: u32 = 1 << 18;
/// Size of the list, in bytes.
pub const LIST_BYTES: usize = ENTRIES as usize * size_of::<Entry>();
/// Size of a tally file, with the list.
pub const TALLY_FILE_BYTES: usize = TALLY_BYTES + LIST_BYTES;

/// One entry, as it lies in the list. All bytes zero is a free entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    holder: u64,
    node: u64,
    flags: u32,
    strength: u32,
    /// A sum of holder, node and flags: it tells a reader that an entry was being written.
    check: u64,
}

/// Offset of an entry's strength in the entry. The owner writes this word alone, and at once: 0
/// before any other word changes, its value after them. While an entry stands only this word
/// changes.
pub const STRENGTH_AT: usize = std::mem::offset_of!(Entry, strength);

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The process that holds the node.
    pub holder: ProcessId,
    /// The node.
    pub node: NodeId,
    /// The node's flags.
    pub flags: u32,
    /// How the process holds the node.
    pub strength: Strength,
}

impl Entry {
    /// The word at [`STRENGTH_AT`].
    pub fn strength(&self) -> u32 {
        self.strength
    }

    /// The entry that says this.
    pub fn of(holding: Holding) -> Entry {
        let Holding { holder, node, flags, strength } = holding;
        let strength = match strength {
            Strength::Weak => 1,
            Strength::Strong => 2,
        };
        let entry = Entry { holder: holder.0, node: node.0, flags, strength, check: 0 };
        Entry { check: entry.sum(), ..entry }
    }

    /// What the entry says. `None` if it is free, or was read while its owner wrote it.
    pub fn holding(self) -> Option<Holding> {
        let strength = match self.strength {
            1 => Strength::Weak,
            2 => Strength::Strong,
            _ => return None,
        };
        let Entry { holder, node, flags, .. } = self;
        let holding = Holding { holder: ProcessId(holder), node: NodeId(node), flags, strength };
        (self.check == self.sum()).then_some(holding)
    }

    /// A word that changes with each of the others. It need not withstand an adversary: only the
    /// owner writes the entry.
    fn sum(self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        [self.node, u64::from(self.flags) + 1]
            .iter()
            .fold(self.holder, |sum, word| sum.wrapping_mul(ODD) ^ word)
    }
}

/// Offset of an entry in the tally file. Every number below [`ENTRIES`] has one.
pub fn entry_at(entry: u32) -> Option<usize> {
    (entry < ENTRIES).then_some(TALLY_BYTES + entry as usize * size_of::<Entry>())
}

const _: () = assert!(size_of::<Entry>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(holder: u64, node: u64, strength: Strength) -> Holding {
        Holding { holder: ProcessId(holder), node: NodeId(node), flags: 0x113, strength }
    }

    #[test]
    fn an_entry_says_what_was_written() {
        for strength in [Strength::Weak, Strength::Strong] {
            let written = holding(7, 9, strength);
            assert_eq!(Entry::of(written).holding(), Some(written));
        }
        assert_eq!(Entry::default().holding(), None);
    }

    #[test]
    fn a_mixture_of_two_entries_says_nothing() {
        let (old, new) = (holding(7, 1, Strength::Strong), holding(8, 2, Strength::Strong));
        let (old, new) = (Entry::of(old), Entry::of(new));
        assert_eq!(Entry { holder: old.holder, ..new }.holding(), None);
        assert_eq!(Entry { holder: new.holder, ..old }.holding(), None);
        assert_eq!(Entry { flags: 1, ..new }.holding(), None);
        assert_eq!(Entry { strength: 0, ..new }.holding(), None);
        assert_eq!(Entry { check: old.check, ..new }.holding(), None);
    }

    #[test]
    fn entries_lie_one_after_another_past_the_tally() {
        assert_eq!(entry_at(0), Some(TALLY_BYTES));
        assert_eq!(entry_at(ENTRIES - 1), Some(TALLY_FILE_BYTES - 32));
        assert_eq!(entry_at(ENTRIES), None);
    }
}
