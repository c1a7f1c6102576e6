//! What the programs send each other: who is meant, and what each object is, in plain words beside
//! the objects themselves.

use baton_abi::uapi::{
    BINDER_TYPE_BINDER, BINDER_TYPE_FD, BINDER_TYPE_HANDLE, BINDER_TYPE_WEAK_BINDER,
    BINDER_TYPE_WEAK_HANDLE, FLAT_BINDER_FLAG_ACCEPTS_FDS, FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT,
    FlatObject,
};
use bytemuck::{bytes_of, pod_read_unaligned};

/// An object's name, the same for everybody: its owner's process, and its cookie there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub owner: u64,
    pub cookie: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The sender's, or come home: address and cookie.
    Own {
        ptr: u64,
        cookie: u64,
        strong: bool,
    },
    Handle {
        handle: u32,
        strong: bool,
    },
    Descriptor(i32),
}

/// Real-time priorities are from 1 to this.
pub const MOST_PRIORITY: i32 = 5;
/// The owner of a descriptor's name, whose cookie is the file's inode.
pub const FILE: u64 = u64::MAX;

/// The priority of a thread that sends a one-way transaction, as far as that matters to the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// How often the thread's priority has changed.
    pub epoch: u64,
    /// Its real-time priority; 0 of an ordinary thread.
    pub priority: u64,
    /// It is ordinary, and not for a while only: nothing follows that it has sent before.
    pub is_last: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// Of the call; its reply has it, too.
    pub nonce: u64,
    /// Sent by this thread.
    pub sender: u64,
    /// Of a one-way transaction: its place in its sender's order.
    pub order: Order,
    /// Nobody for a reply and for the context manager.
    pub target: Name,
    /// Nothing but a few bytes, to be answered with as much at once.
    pub is_plain: bool,
    pub objects: Vec<(Name, Object)>,
    pub filler_bytes: usize,
}

const HEADER_BYTES: usize = 64;
const NAME_BYTES: usize = 16;
const OBJECT_BYTES: usize = size_of::<FlatObject>();

impl Payload {
    /// The bytes, and where the objects lie in them.
    pub fn encode(&self) -> (Vec<u8>, Vec<u64>) {
        let Name { owner, cookie } = self.target;
        let count = self.objects.len() as u64;
        let Order { epoch, priority, is_last } = self.order;
        let flags = u64::from(self.is_plain) | u64::from(is_last) << 1;
        let header = [self.nonce, self.sender, owner, cookie, flags, count, epoch, priority];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for (name, _) in &self.objects {
            bytes.extend([name.owner, name.cookie].iter().flat_map(|word| word.to_ne_bytes()));
        }
        let mut offsets = Vec::new();
        for (_, object) in &self.objects {
            offsets.push(bytes.len() as u64);
            bytes.extend(bytes_of(&object.flat()));
        }
        bytes.extend((0..self.filler_bytes).map(|index| (self.nonce as usize + index) as u8));
        (bytes, offsets)
    }

    /// # Panics
    /// Panics if these are not the bytes of a payload.
    pub fn decode(bytes: &[u8]) -> Payload {
        let word = |at: usize| pod_read_unaligned::<u64>(&bytes[at..at + 8]);
        let count = word(40) as usize;
        let flats = HEADER_BYTES + count * NAME_BYTES;
        let objects = (0..count).map(|index| {
            let at = HEADER_BYTES + index * NAME_BYTES;
            let flat = pod_read_unaligned(&bytes[flats + index * OBJECT_BYTES..][..OBJECT_BYTES]);
            (Name { owner: word(at), cookie: word(at + 8) }, Object::of(&flat))
        });
        let filler = &bytes[flats + count * OBJECT_BYTES..];
        let nonce = word(0);
        for (index, byte) in filler.iter().enumerate() {
            assert_eq!(*byte, (nonce as usize + index) as u8, "byte {index} of the filler");
        }
        Payload {
            nonce,
            sender: word(8),
            target: Name { owner: word(16), cookie: word(24) },
            is_plain: word(32) & 1 != 0,
            order: Order { epoch: word(48), priority: word(56), is_last: word(32) & 2 != 0 },
            objects: objects.collect(),
            filler_bytes: filler.len(),
        }
    }
}

impl Object {
    /// Flags of an object: one of four asks for a real-time priority at least.
    fn minimum_priority(self) -> u32 {
        match self {
            Object::Own { cookie, .. } if cookie % 4 == 0 => {
                let priority = 1 + (cookie / 4 % MOST_PRIORITY as u64) as u32;
                (libc::SCHED_FIFO as u32) << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT | priority
            }
            _ => 0,
        }
    }

    fn flat(self) -> FlatObject {
        let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS | self.minimum_priority();
        let (kind, binder, cookie) = match self {
            Object::Own { ptr, cookie, strong: true } => (BINDER_TYPE_BINDER, ptr, cookie),
            Object::Own { ptr, cookie, strong: false } => (BINDER_TYPE_WEAK_BINDER, ptr, cookie),
            Object::Handle { handle, strong: true } => (BINDER_TYPE_HANDLE, handle.into(), 0),
            Object::Handle { handle, strong: false } => (BINDER_TYPE_WEAK_HANDLE, handle.into(), 0),
            Object::Descriptor(fd) => (BINDER_TYPE_FD, fd as u64, 0),
        };
        FlatObject { kind, flags, binder, cookie }
    }

    pub fn of(flat: &FlatObject) -> Object {
        let (ptr, cookie, handle) = (flat.binder, flat.cookie, flat.binder as u32);
        match flat.kind {
            BINDER_TYPE_BINDER => Object::Own { ptr, cookie, strong: true },
            BINDER_TYPE_WEAK_BINDER => Object::Own { ptr, cookie, strong: false },
            BINDER_TYPE_HANDLE => Object::Handle { handle, strong: true },
            BINDER_TYPE_WEAK_HANDLE => Object::Handle { handle, strong: false },
            BINDER_TYPE_FD => Object::Descriptor(flat.binder as i32),
            other => panic!("an object of kind {other:#x}"),
        }
    }
}
