//! A transaction's objects: found in the sender's data, put in place in the receiver's.
//!
//! Both directions are pure functions over copies. The sender's pass gives the errors that the
//! kernel's driver gives. The receiver's pass trusts no byte of the sender's engine: every place is
//! checked again, and references come from what the state has counted, and
//! descriptors from the socket.

use crate::message::HeldObject;
use baton_abi::control::{MAX_OBJECTS, NodeId, Strength};
use baton_abi::lane::MAX_FDS;
use baton_abi::uapi::*;
use bytemuck::{AnyBitPattern, NoUninit, bytes_of, pod_read_unaligned};
use rustix::io::Errno;
use smallvec::SmallVec;

/// Most objects of a message that takes the fast path.
pub const FEW: usize = 8;

/// Something of each of these objects. Most messages have one or two, and a list is moved often.
pub type Few<T> = SmallVec<[T; 2]>;

/// The objects of a message that takes the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FewObjects {
    /// Nodes and handles, in order.
    pub named: Few<Named>,
    /// Descriptors, in order.
    pub fds: Few<i32>,
}

/// An object that names a node or a handle of the sender's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// BINDER, WEAK_BINDER.
    Binder {
        /// `flat_binder_object.binder`.
        ptr: u64,
        /// `flat_binder_object.cookie`.
        cookie: u64,
        /// `flat_binder_object.flags`.
        flags: u32,
        /// Strong or weak.
        strength: Strength,
    },
    /// HANDLE, WEAK_HANDLE.
    Handle {
        /// `flat_binder_object.handle`.
        handle: u32,
        /// Strong or weak.
        strength: Strength,
    },
}

/// The findings of the sender's pass.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// In the order of the objects.
    pub objects: Vec<Named>,
    /// Descriptors, in the order of the objects and within arrays.
    pub fds: Vec<i32>,
    /// How many of `objects` come before each descriptor; beyond the end it is all of them.
    pub before_fd: Vec<usize>,
    /// The first of the descriptors that is not open, by its index.
    pub bad_fd: Option<usize>,
    /// The error that ended the pass early. Findings until then come first.
    pub failed: Option<Errno>,
    /// The scatter-gather buffers, each padded to 8 bytes.
    pub buffers: Vec<u8>,
}

/// The bytes are not a valid transaction: the sending engine's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn read<T: AnyBitPattern>(data: &[u8], at: usize) -> Option<T> {
    data.get(at..at.checked_add(size_of::<T>())?).map(pod_read_unaligned)
}

fn write<T: NoUninit>(data: &mut [u8], at: usize, value: &T) -> Option<()> {
    data.get_mut(at..at.checked_add(size_of::<T>())?)?.copy_from_slice(bytes_of(value));
    Some(())
}

/// Kind, start and end of the object at an offset: within the data, aligned to 4, known.
fn object_at(data: &[u8], offset: u64) -> Option<(u32, usize, usize)> {
    let at = usize::try_from(offset).ok()?;
    let kind: u32 = read(data, at).filter(|_| at.is_multiple_of(4))?;
    let bytes = match kind {
        BINDER_TYPE_BINDER
        | BINDER_TYPE_WEAK_BINDER
        | BINDER_TYPE_HANDLE
        | BINDER_TYPE_WEAK_HANDLE => size_of::<FlatObject>(),
        BINDER_TYPE_FD => size_of::<FdObject>(),
        BINDER_TYPE_PTR => size_of::<BufferObject>(),
        BINDER_TYPE_FDA => size_of::<FdArrayObject>(),
        _ => return None,
    };
    let end = at.checked_add(bytes)?;
    (end <= data.len()).then_some((kind, at, end))
}

/// A PTR that later objects may point into: its object's index, where its bytes lie in the buffers,
/// and where the object lies in the data.
#[derive(Clone, Copy)]
struct Placed {
    index: u64,
    object: BufferObject,
    at: usize,
    object_at: usize,
}

/// The PTR that is the object of this index, if it is one. They lie in the order of their indices.
fn placed_at(placed: &[Placed], index: u64) -> Option<&Placed> {
    let found = placed.binary_search_by_key(&index, |placed| placed.index).ok()?;
    placed.get(found)
}

/// The rule that pointers are fixed up depth first, front to back. A later object may point only
/// into the buffer that was placed last, or into a buffer above it, past the last fix-up there.
#[derive(Default)]
struct FixUps {
    placed: Vec<Placed>,
    /// Index of the innermost open PTR, and the first byte in it that is not fixed up yet.
    last: Option<(u64, u64)>,
    /// PTRs whose bytes cannot be read: as in the kernel that matters once all objects have been
    /// looked at.
    unread: Vec<u64>,
}

impl FixUps {
    fn parent(&self, index: u64) -> Option<Placed> {
        placed_at(&self.placed, index).copied()
    }

    fn allows(&self, parent: u64, offset: u64) -> bool {
        let Some((mut index, mut least)) = self.last else { return false };
        // The kernel takes an object at offset 0 for none at all.
        if self.parent(index).is_none_or(|last| last.object_at == 0) {
            return false;
        }
        while index != parent {
            let Some(open) =
                self.parent(index).filter(|p| p.object.flags & BUFFER_FLAG_HAS_PARENT != 0)
            else {
                return false;
            };
            (index, least) = (open.object.parent, open.object.parent_offset.saturating_add(8));
        }
        offset >= least
    }
}

/// Whether `bytes` at `offset` lie inside a buffer of `length`.
fn lies_within(offset: u64, bytes: u64, length: u64) -> bool {
    length >= bytes && offset <= length - bytes
}

/// The objects of `data` that takes the fast path. `None` if they are too many, if some object is a
/// buffer or an array, or if [`send`] would find them invalid.
pub fn few_objects(data: &[u8], offsets: &[u64]) -> Option<FewObjects> {
    let mut few = FewObjects::default();
    for_each_few(data, offsets, |kind, at| {
        match kind {
            BINDER_TYPE_FD => few.fds.push(number(read(data, at)?)),
            _ => few.named.push(named(kind, read(data, at)?)),
        }
        Some(())
    })?;
    Some(few)
}

/// How many nodes and handles [`few_objects`] finds.
pub fn count_few_named(data: &[u8], offsets: &[u64]) -> Option<usize> {
    let mut n_named = 0;
    for_each_few(data, offsets, |kind, _| {
        n_named += usize::from(kind != BINDER_TYPE_FD);
        Some(())
    })?;
    Some(n_named)
}

/// Calls `each` with the kind and the start of every object of [`few_objects`].
#[inline(always)]
fn for_each_few(
    data: &[u8],
    offsets: &[u64],
    mut each: impl FnMut(u32, usize) -> Option<()>,
) -> Option<()> {
    if offsets.len() > FEW {
        return None;
    }
    let mut end_of_last = 0;
    for &offset in offsets {
        let (kind, at, end) = object_at(data, offset).filter(|(_, at, _)| *at >= end_of_last)?;
        end_of_last = end;
        if matches!(kind, BINDER_TYPE_PTR | BINDER_TYPE_FDA) {
            return None;
        }
        each(kind, at)?;
    }
    Some(())
}

fn number(object: FdObject) -> i32 {
    object.fd as u32 as i32
}

/// The sender's pass over `data`. PTR objects are rewritten to hold, in place of an address, the
/// offset of their bytes in the buffers; everything else stays as the program wrote it.
///
/// `copy` reads the sender's memory. Errors ([`Sent::failed`]) are those of
/// `binder_extended_error.param`.
pub fn send(
    data: &mut [u8],
    offsets: &[u64],
    buffers_size: usize,
    mut copy: impl FnMut(u64, &mut [u8]) -> Result<(), Errno>,
) -> Sent {
    let mut sent = Sent::default();
    let is_valid = pass(data, offsets, buffers_size, &mut copy, &mut sent).is_some();
    let is_small = sent.fds.len() <= MAX_FDS && sent.objects.len() <= MAX_OBJECTS;
    sent.failed = match is_valid {
        true => (!is_small).then_some(Errno::NOMEM),
        false => Some(Errno::INVAL),
    };
    sent
}

/// Like [`send`]. `None` stands for `EINVAL`.
fn pass(
    data: &mut [u8],
    offsets: &[u64],
    buffers_size: usize,
    copy: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Errno>,
    sent: &mut Sent,
) -> Option<()> {
    let mut fix_ups = FixUps::default();
    let mut end_of_last = 0;
    for (index, &offset) in offsets.iter().enumerate() {
        let (kind, at, end) = object_at(data, offset).filter(|(_, at, _)| *at >= end_of_last)?;
        end_of_last = end;
        match kind {
            BINDER_TYPE_FD => sent.push_fd(number(read(data, at)?)),
            BINDER_TYPE_PTR => {
                send_buffer(data, at, index as u64, buffers_size, sent, &mut fix_ups, copy)?;
            }
            BINDER_TYPE_FDA => send_array(data, at, sent, &mut fix_ups)?,
            _ => sent.objects.push(named(kind, read(data, at)?)),
        }
    }
    // `EINVAL` is the kernel's error here as well, though an address is at fault.
    fix_ups.unread.is_empty().then_some(())
}

impl Sent {
    fn push_fd(&mut self, fd: i32) {
        self.fds.push(fd);
        self.before_fd.push(self.objects.len());
    }
}

fn named(kind: u32, object: FlatObject) -> Named {
    let strength = match kind {
        BINDER_TYPE_BINDER | BINDER_TYPE_HANDLE => Strength::Strong,
        _ => Strength::Weak,
    };
    let FlatObject { binder, cookie, flags, .. } = object;
    match kind {
        BINDER_TYPE_BINDER | BINDER_TYPE_WEAK_BINDER => {
            Named::Binder { ptr: binder, cookie, flags, strength }
        }
        _ => Named::Handle { handle: binder as u32, strength },
    }
}

fn send_buffer(
    data: &mut [u8],
    at: usize,
    index: u64,
    buffers_size: usize,
    sent: &mut Sent,
    fix_ups: &mut FixUps,
    copy: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Errno>,
) -> Option<()> {
    let mut object: BufferObject = read(data, at)?;
    let from = sent.buffers.len();
    let length = usize::try_from(object.length).ok()?;
    if length > buffers_size - from.min(buffers_size) {
        return None;
    }
    sent.buffers.resize(from + length.next_multiple_of(8), 0);
    if copy(object.buffer, &mut sent.buffers[from..from + length]).is_err() {
        fix_ups.unread.push(index);
    }
    if object.flags & BUFFER_FLAG_HAS_PARENT != 0 {
        let parent = fix_ups.parent(object.parent)?;
        if !fix_ups.allows(object.parent, object.parent_offset)
            || !lies_within(object.parent_offset, 8, parent.object.length)
            || !object.parent_offset.is_multiple_of(4)
        {
            return None;
        }
    }
    object.buffer = from as u64;
    write(data, at, &object)?;
    fix_ups.placed.push(Placed { index, object, at: from, object_at: at });
    fix_ups.last = Some((index, 0));
    Some(())
}

fn send_array(data: &[u8], at: usize, sent: &mut Sent, fix_ups: &mut FixUps) -> Option<()> {
    let array: FdArrayObject = read(data, at)?;
    let parent = fix_ups.parent(array.parent)?;
    let bytes = array.num_fds.checked_mul(4)?;
    if !fix_ups.allows(array.parent, array.parent_offset) {
        return None;
    }
    // As in the kernel, an array of none may lie anywhere.
    if array.num_fds > 0 {
        let lies = lies_within(array.parent_offset, bytes, parent.object.length)
            && array.parent_offset.is_multiple_of(4);
        if !lies || fix_ups.unread.contains(&array.parent) {
            return None;
        }
        let from = parent.at + array.parent_offset as usize;
        for at in (from..from + bytes as usize).step_by(4) {
            let fd = read(&sent.buffers, at)?;
            sent.push_fd(fd);
        }
    }
    fix_ups.last = Some((array.parent, array.parent_offset + bytes));
    Some(())
}

/// The parts of a delivery besides its bytes.
pub struct Delivery<'a> {
    /// The message's references.
    pub held: &'a [HeldObject],
    /// The descriptors as they were installed here.
    pub fds: &'a [i32],
    /// Address, in the program, of the first byte of the buffers.
    pub buffers_address: u64,
}

/// The receiver's pass: puts handles, addresses and descriptors of this process in place.
///
/// `local_object` returns the (ptr, cookie) of a node of this process. The references and the
/// descriptors must match the objects one to one, and no object may lie before the end of the last
/// one: a later object would change an earlier one after that was put in place.
///
/// Returns the descriptors in arrays.
pub fn receive(
    data: &mut [u8],
    offsets: &[u64],
    buffers: &mut [u8],
    delivery: &Delivery<'_>,
    mut local_object: impl FnMut(NodeId) -> Option<(u64, u64)>,
) -> Result<Vec<i32>, Malformed> {
    put_in_place(data, offsets, buffers, delivery, &mut local_object).ok_or(Malformed)
}

/// Like [`receive`].
fn put_in_place(
    data: &mut [u8],
    offsets: &[u64],
    buffers: &mut [u8],
    delivery: &Delivery<'_>,
    local_object: &mut impl FnMut(NodeId) -> Option<(u64, u64)>,
) -> Option<Vec<i32>> {
    let mut held = delivery.held.iter();
    let mut fds = delivery.fds.iter();
    let mut array_fds = Vec::new();
    let mut placed: Vec<Placed> = Vec::new();
    let mut end_of_last = 0;
    for (index, &offset) in offsets.iter().enumerate() {
        let (kind, at, end) = object_at(data, offset).filter(|(_, at, _)| *at >= end_of_last)?;
        end_of_last = end;
        match kind {
            BINDER_TYPE_FD => {
                let object: FdObject = read(data, at)?;
                write(data, at, &FdObject { fd: *fds.next()? as u64, ..object })?;
            }
            BINDER_TYPE_PTR => {
                let mut object: BufferObject = read(data, at)?;
                let from = object.buffer;
                if !lies_within(from, object.length, buffers.len() as u64) {
                    return None;
                }
                object.buffer = delivery.buffers_address + from;
                place_pointer(&object, &placed, buffers)?;
                write(data, at, &object)?;
                let (index, from) = (index as u64, from as usize);
                placed.push(Placed { index, object, at: from, object_at: at });
            }
            BINDER_TYPE_FDA => {
                let array: FdArrayObject = read(data, at)?;
                for place in array_places(&array, &placed)? {
                    let fd = *fds.next()?;
                    write(buffers, place, &fd)?;
                    array_fds.push(fd);
                }
            }
            _ => {
                let object = installed(read(data, at)?, held.next()?, local_object)?;
                write(data, at, &object)?;
            }
        }
    }
    (held.next().is_none() && fds.next().is_none()).then_some(array_fds)
}

fn installed(
    sent: FlatObject,
    held: &HeldObject,
    local_object: &mut impl FnMut(NodeId) -> Option<(u64, u64)>,
) -> Option<FlatObject> {
    let (kind, binder, cookie) = match *held {
        HeldObject::Handle { handle, strength: Strength::Strong } => {
            (BINDER_TYPE_HANDLE, u64::from(handle), 0)
        }
        HeldObject::Handle { handle, strength: Strength::Weak } => {
            (BINDER_TYPE_WEAK_HANDLE, u64::from(handle), 0)
        }
        HeldObject::Own { node, strength } => {
            let (ptr, cookie) = local_object(node)?;
            let kind = match strength {
                Strength::Strong => BINDER_TYPE_BINDER,
                Strength::Weak => BINDER_TYPE_WEAK_BINDER,
            };
            (kind, ptr, cookie)
        }
    };
    Some(FlatObject { kind, flags: sent.flags, binder, cookie })
}

fn place_pointer(object: &BufferObject, placed: &[Placed], buffers: &mut [u8]) -> Option<()> {
    if object.flags & BUFFER_FLAG_HAS_PARENT == 0 {
        return Some(());
    }
    let parent = placed_at(placed, object.parent)?;
    if !lies_within(object.parent_offset, 8, parent.object.length) {
        return None;
    }
    write(buffers, parent.at + object.parent_offset as usize, &object.buffer)
}

fn array_places(
    array: &FdArrayObject,
    placed: &[Placed],
) -> Option<impl Iterator<Item = usize> + use<>> {
    let parent = placed_at(placed, array.parent)?;
    let bytes = array.num_fds.checked_mul(4)?;
    if bytes > 0 && !lies_within(array.parent_offset, bytes, parent.object.length) {
        return None;
    }
    let from = if bytes > 0 { parent.at + array.parent_offset as usize } else { parent.at };
    Some((from..from + bytes as usize).step_by(4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[test]
    fn objects_behind_a_buffer_that_cannot_be_read_are_looked_at() {
        let buffer = BufferObject { kind: BINDER_TYPE_PTR, length: 8, ..Zeroable::zeroed() };
        let binder = FlatObject { kind: BINDER_TYPE_BINDER, binder: 1, ..Zeroable::zeroed() };
        let mut data = [bytes_of(&buffer), bytes_of(&binder)].concat();
        let offsets = [0, size_of::<BufferObject>() as u64];
        let sent = send(&mut data, &offsets, 8, |_, _| Err(Errno::FAULT));
        assert_eq!((sent.failed, sent.objects.len()), (Some(Errno::INVAL), 1));
    }

    #[test]
    fn objects_of_a_hostile_sender_may_not_overlap() {
        let handle = FlatObject { kind: BINDER_TYPE_HANDLE, ..Zeroable::zeroed() };
        let strength = Strength::Strong;
        let held = [1, 2].map(|handle| HeldObject::Handle { handle, strength });
        let delivery = Delivery { held: &held, fds: &[], buffers_address: 0 };
        for (offsets, expect) in [([0, 24], Some([1, 2])), ([0, 0], None), ([24, 0], None)] {
            let mut data = [bytes_of(&handle), bytes_of(&handle)].concat();
            let received = receive(&mut data, &offsets, &mut [], &delivery, |_| None);
            let handles = [8, 32].map(|at| data[at]);
            assert_eq!(received.is_ok().then_some(handles), expect, "{offsets:?}");
        }
    }

    /// The sender's pass over objects, each with its offset. Descriptors, or the error.
    fn sent(objects: &[(u64, &[u8])]) -> Result<Vec<i32>, Errno> {
        let mut data = vec![0; 256];
        for (offset, bytes) in objects {
            data[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let offsets: Vec<u64> = objects.iter().map(|(offset, _)| *offset).collect();
        let sent = send(&mut data, &offsets, 64, |from, to| {
            to.fill(from as u8);
            if from == 0 { Err(Errno::FAULT) } else { Ok(()) }
        });
        sent.failed.map_or(Ok(sent.fds), Err)
    }

    #[test]
    fn objects_stand_one_after_the_other() {
        let fd = |fd| FdObject { kind: BINDER_TYPE_FD, fd, ..Zeroable::zeroed() };
        let (first, second) = (fd(3), fd(4));
        for (offsets, expected) in [
            ([0, 24], Ok(vec![3, 4])),
            ([8, 64], Ok(vec![3, 4])),
            ([24, 0], Err(Errno::INVAL)),
            ([0, 20], Err(Errno::INVAL)),
            ([0, 26], Err(Errno::INVAL)),
        ] {
            let objects = [(offsets[0], bytes_of(&first)), (offsets[1], bytes_of(&second))];
            assert_eq!(sent(&objects), expected, "{offsets:?}");
        }
    }

    /// An array of descriptors in a buffer of 8 bytes, each of which is 1.
    #[test]
    fn an_array_lies_within_a_buffer_that_can_be_read() {
        const FD: i32 = i32::from_ne_bytes([1; 4]);
        // Where the program has the buffer, how many descriptors, from where in the buffer.
        for (buffer, num_fds, parent_offset, expected) in [
            (1, 2, 0, Ok(vec![FD, FD])),
            (1, 1, 4, Ok(vec![FD])),
            (1, 2, 4, Err(Errno::INVAL)),
            (1, 1, 2, Err(Errno::INVAL)),
            (1, 0, 99, Ok(vec![])),
            (1, u64::MAX / 2, 0, Err(Errno::INVAL)),
            (0, 1, 0, Err(Errno::INVAL)),
        ] {
            let kind = BINDER_TYPE_PTR;
            let bytes = BufferObject { kind, buffer, length: 8, ..Zeroable::zeroed() };
            let kind = BINDER_TYPE_FDA;
            let array = FdArrayObject { kind, num_fds, parent_offset, ..Zeroable::zeroed() };
            // The kernel takes a buffer object at offset 0 for none.
            for (at, expected) in [(8, expected), (0, Err(Errno::INVAL))] {
                let objects = [(at, bytes_of(&bytes)), (at + 40, bytes_of(&array))];
                assert_eq!(sent(&objects), expected, "{buffer} {num_fds} {parent_offset} {at}");
            }
        }
    }
}
