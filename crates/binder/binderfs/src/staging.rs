//! A client's commands with everything they point to, copied into this process for the driver.
//!
//! ```text
//!   client: write buffer --> BC_TRANSACTION --> data --> PTR objects --> buffers
//!                                          `--> offsets
//!   here:   commands      -->  the same, each address replaced by that of the copy
//! ```
//!
//! **Invariant**: the driver reads memory of this process by the addresses in commands. None of
//! them is the client's: each is that of a copy, or [`NOWHERE`], at which the driver answers as at
//! any bad address. Objects that overlap could change each other's addresses, so the first object
//! that is out of place makes the rest of the list invalid.
//!
//! Where no descriptors can be installed in clients, their objects and calls do not accept any:
//! the bits that say otherwise are cleared, and senders are refused as by an object that accepts
//! none.
//! Descriptors that the client sends are duplicated into this process first.

use crate::account::{DESCRIPTOR, Share};
use crate::client_memory::{ClientMemory, duplicate};
use baton_abi::lane::{MAX_FDS, MAX_PAYLOAD_BYTES};
use baton_abi::uapi::*;
use bytemuck::{AnyBitPattern, NoUninit, bytes_of, pod_read_unaligned};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// An address that no process can map.
pub const NOWHERE: u64 = 1 << 60;

/// Bytes of commands that are copied at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// The longest command, with its number.
const LONGEST_COMMAND: usize = 4 + size_of::<TransactionDataSg>();
/// Bytes of payloads after which the next command waits for the next chunk.
const ENOUGH_BYTES: usize = MAX_PAYLOAD_BYTES;
/// Descriptors of one transaction that are duplicated. The driver takes fewer.
const MOST_FDS: usize = MAX_FDS + 1;
/// Descriptors after which the next command waits for the next chunk.
const ENOUGH_FDS: usize = MAX_FDS;

/// The client's thread that gives commands.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// Its memory.
    pub memory: ClientMemory,
    /// Its pidfd.
    pub pidfd: BorrowedFd<'a>,
    /// Whether its process may get descriptors, if it accepts them.
    pub accepts_fds: bool,
    /// The share that its user has taken for it. The descriptors that it sends come out of the same
    /// account.
    pub share: &'a Share,
}

/// A chunk of commands.
#[derive(Debug, Default)]
pub struct Staged {
    commands: Vec<u8>,
    /// Bytes of the client's write buffer that the commands are.
    pub bytes: u64,
    payloads: Vec<Vec<u8>>,
    payload_bytes: usize,
    fds: Vec<(OwnedFd, Share)>,
}

impl Staged {
    /// The commands with their payloads' addresses, of which the driver has taken so many bytes.
    pub fn taken(&self, bytes: u64) -> impl Iterator<Item = (u32, &[u8])> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.commands.len());
        items(&self.commands[..bytes])
    }

    /// The address of the commands. They last as long as this value.
    pub fn address(&self) -> u64 {
        if self.commands.is_empty() { NOWHERE } else { self.commands.as_ptr() as u64 }
    }

    /// Copies commands from the client's write buffer, of which `left` bytes are left: at least
    /// one. If the first cannot be read, these are all the bytes that are left, [`NOWHERE`]: the
    /// driver does not look at them before a thread has read of its failed transaction.
    pub fn copy(sender: Sender<'_>, address: u64, left: u64) -> Staged {
        let mut staged = Staged::default();
        let most = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        // The kernel reads a command that the end of the buffer cuts short, if its bytes are there.
        let mut commands = sender.memory.read_up_to(address, most + LONGEST_COMMAND);
        let mut at = 0;
        while at < most && staged.has_room() {
            let Some(command) = value_at::<u32>(&commands, at) else { break };
            let bytes = payload_bytes(command);
            if bytes > LONGEST_COMMAND - 4 {
                // There is no such command: the driver refuses it by its number.
                at += 4;
                break;
            }
            let Some(body) = commands.get_mut(at + 4..at + 4 + bytes) else { break };
            staged.copy_payload(sender, command, body);
            at += 4 + bytes;
        }
        commands.truncate(at);
        staged.bytes = if at == 0 { left } else { at.min(most) as u64 };
        staged.commands = commands;
        staged
    }

    /// Whether a further command may belong to this chunk.
    fn has_room(&self) -> bool {
        self.payload_bytes < ENOUGH_BYTES && self.fds.len() < ENOUGH_FDS
    }

    /// Copies a command's payload, if it has one, and puts the addresses of the copy in place.
    fn copy_payload(&mut self, sender: Sender<'_>, command: u32, body: &mut [u8]) {
        let (mut transaction, buffers_size) = match command {
            BC_TRANSACTION | BC_REPLY => (pod_read_unaligned::<TransactionData>(body), 0),
            BC_TRANSACTION_SG | BC_REPLY_SG => {
                let scattered: TransactionDataSg = pod_read_unaligned(body);
                (scattered.transaction, scattered.buffers_size)
            }
            _ => return,
        };
        if !sender.accepts_fds {
            transaction.flags &= !TF_ACCEPT_FDS;
        }
        let copy = |address, bytes: u64| {
            let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_PAYLOAD_BYTES);
            fits.and_then(|bytes| sender.memory.read(address, bytes).ok())
        };
        let data = copy(transaction.buffer, transaction.data_size);
        let offsets = copy(transaction.offsets, transaction.offsets_size);
        (transaction.buffer, transaction.offsets) = (NOWHERE, NOWHERE);
        if let Some(mut data) = data {
            if let Some(mut offsets) = offsets {
                self.copy_objects(sender, &mut data, &mut offsets, buffers_size);
                transaction.offsets = self.keep(offsets);
            }
            transaction.buffer = self.keep(data);
        }
        body[..size_of::<TransactionData>()].copy_from_slice(bytes_of(&transaction));
    }

    /// Copies what the objects of a payload point to. An object that is out of place, and all after
    /// it, get an offset that the driver refuses.
    fn copy_objects(
        &mut self,
        sender: Sender<'_>,
        data: &mut [u8],
        offsets: &mut [u8],
        buffers_size: u64,
    ) {
        let mut objects = Objects {
            sender,
            buffers_left: buffers_size.min(MAX_PAYLOAD_BYTES as u64),
            buffers: Vec::new(),
            fds: Vec::new(),
        };
        let (mut end, mut is_in_place) = (0, true);
        for (index, offset) in offsets.chunks_exact_mut(8).enumerate() {
            let at = usize::try_from(u64::from_ne_bytes(offset.try_into().expect("8 bytes")));
            let object = at.ok().filter(|at| is_in_place && *at >= end);
            match object.and_then(|at| Some((at, objects.copy(data, at, index)?))) {
                Some((at, bytes)) => end = at + bytes,
                None => {
                    is_in_place = false;
                    offset.copy_from_slice(&u64::MAX.to_ne_bytes());
                }
            }
        }
        let Objects { buffers, fds, .. } = objects;
        self.payload_bytes += buffers.iter().map(|(_, buffer)| buffer.len()).sum::<usize>();
        self.payloads.extend(buffers.into_iter().map(|(_, buffer)| buffer));
        self.fds.extend(fds);
    }

    /// Keeps bytes for as long as the commands. Returns their address.
    fn keep(&mut self, bytes: Vec<u8>) -> u64 {
        let address = bytes.as_ptr() as u64;
        self.payload_bytes += bytes.len();
        self.payloads.push(bytes);
        address
    }
}

/// The objects of one payload.
struct Objects<'a> {
    sender: Sender<'a>,
    /// Bytes of buffers that the transaction may still have.
    buffers_left: u64,
    /// The copies of buffers, by the indices of their objects.
    buffers: Vec<(usize, Vec<u8>)>,
    fds: Vec<(OwnedFd, Share)>,
}

impl Objects<'_> {
    /// Copies what the object at an offset points to, and puts the addresses of the copies in
    /// place. Returns the object's length, or `None` if no object is there.
    fn copy(&mut self, data: &mut [u8], at: usize, index: usize) -> Option<usize> {
        Some(match value_at::<u32>(data, at)? {
            BINDER_TYPE_BINDER | BINDER_TYPE_WEAK_BINDER => {
                let mut object: FlatObject = value_at(data, at)?;
                if !self.sender.accepts_fds {
                    object.flags &= !FLAT_BINDER_FLAG_ACCEPTS_FDS;
                }
                put_at(data, at, &object)
            }
            BINDER_TYPE_HANDLE | BINDER_TYPE_WEAK_HANDLE => {
                value_at::<FlatObject>(data, at).map(|_| size_of::<FlatObject>())?
            }
            BINDER_TYPE_FD => {
                let mut object: FdObject = value_at(data, at)?;
                object.fd = u64::from(self.duplicate(object.fd as u32));
                put_at(data, at, &object)
            }
            BINDER_TYPE_PTR => {
                let mut object: BufferObject = value_at(data, at)?;
                object.buffer = self.copy_buffer(object.buffer, object.length, index);
                put_at(data, at, &object)
            }
            BINDER_TYPE_FDA => {
                let object: FdArrayObject = value_at(data, at)?;
                self.duplicate_array(&object);
                size_of::<FdArrayObject>()
            }
            _ => return None,
        })
    }

    fn copy_buffer(&mut self, address: u64, bytes: u64, index: usize) -> u64 {
        if bytes > self.buffers_left {
            return NOWHERE;
        }
        let Ok(buffer) = self.sender.memory.read(address, bytes as usize) else { return NOWHERE };
        self.buffers_left -= bytes;
        let address = buffer.as_ptr() as u64;
        self.buffers.push((index, buffer));
        address
    }

    /// The number here of a descriptor of the client. One that no process can have, if the client
    /// has none of this number, or its user has its share.
    fn duplicate(&mut self, fd: u32) -> u32 {
        if self.fds.len() >= MOST_FDS {
            return u32::MAX;
        }
        let Ok(share) = self.sender.share.another(DESCRIPTOR) else { return u32::MAX };
        let Ok(fd) = duplicate(self.sender.pidfd, fd.cast_signed()) else { return u32::MAX };
        let number = fd.as_raw_fd().cast_unsigned();
        self.fds.push((fd, share));
        number
    }

    fn duplicate_array(&mut self, object: &FdArrayObject) {
        let parent = self.buffers.iter().position(|(index, _)| *index as u64 == object.parent);
        let Some(parent) = parent else { return };
        let mut buffer = std::mem::take(&mut self.buffers[parent].1);
        let at = usize::try_from(object.parent_offset).unwrap_or(usize::MAX);
        let n = usize::try_from(object.num_fds).unwrap_or(usize::MAX).min(MOST_FDS);
        let end = at.saturating_add(n * 4);
        for fd in buffer.get_mut(at..end).unwrap_or_default().chunks_exact_mut(4) {
            let number = u32::from_ne_bytes((&*fd).try_into().expect("4 bytes"));
            fd.copy_from_slice(&self.duplicate(number).to_ne_bytes());
        }
        self.buffers[parent].1 = buffer;
    }
}

/// The commands or returns in a buffer, each with what follows its number.
pub fn items(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let number = value_at::<u32>(bytes, 0)?;
        let (body, rest) = bytes[4..].split_at_checked(payload_bytes(number))?;
        bytes = rest;
        Some((number, body))
    })
}

/// The value at an offset, if all of it is there.
fn value_at<T: AnyBitPattern>(bytes: &[u8], at: usize) -> Option<T> {
    bytes.get(at..at.checked_add(size_of::<T>())?).map(pod_read_unaligned)
}

/// Replaces a value that [`value_at`] has found. Returns its length.
fn put_at<T: NoUninit>(bytes: &mut [u8], at: usize, value: &T) -> usize {
    bytes[at..at + size_of::<T>()].copy_from_slice(bytes_of(value));
    size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, DEVICE};
    use rustix::fd::AsFd;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::sync::Arc;

    const USER: u32 = 12345;

    fn copy(commands: &[u8]) -> Staged {
        copy_for(false, commands)
    }

    fn copy_for(accepts_fds: bool, commands: &[u8]) -> Staged {
        let account = Arc::new(Account::new(0, 1 << 20));
        let (address, bytes) = (commands.as_ptr() as u64, commands.len() as u64);
        copy_by(&account, accepts_fds, address, bytes)
    }

    /// Copies commands of this process for a user with an account.
    fn copy_by(account: &Arc<Account>, accepts_fds: bool, address: u64, left: u64) -> Staged {
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let memory = ClientMemory::of(std::process::id());
        let share = account.take(USER, DEVICE).unwrap();
        let sender = Sender { memory, pidfd: pidfd.as_fd(), accepts_fds, share: &share };
        Staged::copy(sender, address, left)
    }

    /// A transaction with this payload, and with buffers if they have a size.
    fn transaction(data: &[u8], offsets: &[u64], buffers_size: u64) -> (Staged, TransactionData) {
        let transaction = TransactionData {
            flags: TF_ACCEPT_FDS | TF_ONE_WAY,
            data_size: data.len() as u64,
            offsets_size: offsets.len() as u64 * 8,
            buffer: data.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            ..bytemuck::Zeroable::zeroed()
        };
        let mut commands = BC_TRANSACTION_SG.to_ne_bytes().to_vec();
        commands.extend(bytes_of(&TransactionDataSg { transaction, buffers_size }));
        let staged = copy(&commands);
        assert_eq!(staged.bytes, commands.len() as u64);
        let staged_transaction = value_at(&staged.commands, 4).unwrap();
        (staged, staged_transaction)
    }

    fn kept(staged: &Staged, address: u64) -> &[u8] {
        staged.payloads.iter().find(|bytes| bytes.as_ptr() as u64 == address).unwrap()
    }

    #[test]
    fn payloads_are_copied_and_accept_descriptors_where_those_can_come() {
        let object = FlatObject {
            kind: BINDER_TYPE_BINDER,
            flags: FLAT_BINDER_FLAG_ACCEPTS_FDS | 7,
            binder: 5,
            cookie: 6,
        };
        let sent = TransactionData {
            flags: TF_ACCEPT_FDS | TF_ONE_WAY,
            data_size: size_of::<FlatObject>() as u64,
            offsets_size: 8,
            buffer: std::ptr::from_ref(&object) as u64,
            offsets: std::ptr::from_ref(&0u64) as u64,
            ..bytemuck::Zeroable::zeroed()
        };
        let commands = [&BC_TRANSACTION.to_ne_bytes()[..], bytes_of(&sent)].concat();
        for (accepts_fds, flags, object_flags) in
            [(false, TF_ONE_WAY, 7), (true, sent.flags, object.flags)]
        {
            let staged = copy_for(accepts_fds, &commands);
            let found: TransactionData = value_at(&staged.commands, 4).unwrap();
            assert_eq!(found.flags, flags);
            let copied: FlatObject = value_at(kept(&staged, found.buffer), 0).unwrap();
            assert_eq!(copied, FlatObject { flags: object_flags, ..object });
        }
    }

    /// No address of a client's survives, in whatever order and place objects lie.
    #[test]
    fn every_address_is_that_of_a_copy() {
        let text = *b"sixteen letters.";
        let buffer = |length| BufferObject {
            kind: BINDER_TYPE_PTR,
            flags: 0,
            buffer: text.as_ptr() as u64,
            length,
            parent: 0,
            parent_offset: 0,
        };
        let mut data = bytes_of(&buffer(16)).to_vec();
        data.extend(bytes_of(&buffer(8)));
        for (offsets, sizes, n_in_place, n_copied) in [
            (&[0, 40][..], 24, 2, 2),
            (&[0, 40], 16, 2, 1), // No room for the second.
            (&[0, 0], 64, 1, 1),
            (&[0, 8, 40], 64, 1, 1),
            (&[40, 0], 64, 1, 1),
            (&[1 << 40], 64, 0, 0),
            (&[48], 64, 0, 0),
        ] {
            let (staged, found) = transaction(&data, offsets, sizes);
            let copied = kept(&staged, found.buffer);
            let places = kept(&staged, found.offsets).chunks_exact(8);
            let places: Vec<u64> = places.map(pod_read_unaligned).collect();
            assert_eq!(places.iter().filter(|at| **at != u64::MAX).count(), n_in_place);
            let mut n = 0;
            for &at in places.iter().filter(|at| **at != u64::MAX) {
                let object: BufferObject = value_at(copied, at as usize).unwrap();
                assert_ne!(object.buffer, text.as_ptr() as u64);
                if object.buffer != NOWHERE {
                    assert_eq!(kept(&staged, object.buffer), &text[..object.length as usize]);
                    n += 1;
                }
            }
            assert_eq!(n, n_copied, "{offsets:?}");
        }
    }

    #[test]
    fn descriptors_are_duplicated() {
        let null = std::fs::File::open("/dev/null").unwrap();
        for (fd, is_there) in [(null.as_raw_fd() as u64, true), (1 << 20, false)] {
            let object = FdObject { kind: BINDER_TYPE_FD, pad_flags: 0, fd, cookie: 0 };
            let (staged, found) = transaction(bytes_of(&object), &[0], 0);
            let copied: FdObject = value_at(kept(&staged, found.buffer), 0).unwrap();
            assert_ne!(copied.fd, fd);
            assert_eq!(copied.fd != u64::from(u32::MAX), is_there);
            assert_eq!(staged.fds.len(), usize::from(is_there));
        }
    }

    #[test]
    fn descriptors_are_bounded_by_chunk_and_by_user() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let fd = null.as_raw_fd() as u64;
        let objects = [FdObject { kind: BINDER_TYPE_FD, pad_flags: 0, fd, cookie: 0 }; 100];
        let offsets: Vec<u64> = (0..100).map(|n| n * size_of::<FdObject>() as u64).collect();
        let sent = TransactionData {
            data_size: size_of_val(&objects) as u64,
            offsets_size: 100 * 8,
            buffer: objects.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            ..bytemuck::Zeroable::zeroed()
        };
        let command = [&BC_TRANSACTION.to_ne_bytes()[..], bytes_of(&sent)].concat();
        let commands = command.repeat(200);
        let (address, bytes) = (commands.as_ptr() as u64, commands.len() as u64);
        for (limit, n_fds, n_commands) in [(1 << 20, 300, 3), (226, 67, 200)] {
            let account = Arc::new(Account::new(0, limit));
            let staged = copy_by(&account, false, address, bytes);
            assert_eq!(staged.fds.len(), n_fds);
            assert_eq!(staged.bytes, n_commands * command.len() as u64);
            drop(staged);
            assert!(account.take(USER, DEVICE).is_ok(), "all is given back");
        }
    }

    #[test]
    fn commands_that_cannot_be_read_lie_nowhere() {
        let looper = BC_ENTER_LOOPER.to_ne_bytes();
        assert_eq!(copy(&looper).commands, looper);
        let staged = copy_by(&Arc::new(Account::new(0, 1 << 20)), false, NOWHERE, 64);
        assert_eq!((staged.bytes, staged.address()), (64, NOWHERE));
        // A number that no command has ends the chunk, and is the driver's to refuse.
        let staged = copy(&[&looper[..], &[0xff; 4], &looper].concat());
        assert_eq!((staged.bytes, staged.commands.len()), (8, 8));
    }

    #[test]
    fn bad_payloads_lie_nowhere() {
        let transaction =
            TransactionData { data_size: 8, buffer: 16, ..bytemuck::Zeroable::zeroed() };
        let commands = [&BC_TRANSACTION.to_ne_bytes()[..], bytes_of(&transaction)].concat();
        let staged = copy(&commands);
        let found: TransactionData = value_at(&staged.commands, 4).unwrap();
        assert_eq!((found.buffer, found.offsets), (NOWHERE, NOWHERE));
    }
}
