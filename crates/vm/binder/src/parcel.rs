//! The contents of an android.os.Parcel: bytes in Android's format, and objects at places in them.
//!
//! Each value takes a multiple of four bytes. An object takes 24 bytes, a `flat_binder_object`;
//! after a Binder object come four bytes with its stability. A parcel owns what its objects stand
//! for. A write over an object drops that object.
//!
//! Reads believe no length: what a parcel does not have reads as zero or as nothing.

use crate::nodes::NodeRef;
use crate::remotes::RemoteRef;
use baton::android::SYSTEM_STABILITY;
use baton_abi::uapi::*;
use bytemuck::bytes_of;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

/// The size of an object.
const OBJECT_BYTES: usize = size_of::<FlatObject>();
/// As much memory an empty parcel may keep.
const KEPT_BYTES: usize = 4096;
/// The minimum priority of an object: it asks for none, and takes over that of real-time callers.
const NODE_FLAGS: u32 = 19 | FLAT_BINDER_FLAG_ACCEPTS_FDS | FLAT_BINDER_FLAG_INHERIT_RT;

/// The contents of a parcel.
#[derive(Debug, Default)]
pub struct Parcel {
    bytes: Vec<u8>,
    position: usize,
    /// By their offsets, in ascending order
    objects: Vec<(usize, Object)>,
    /// Descriptors are refused
    refuses_descriptors: bool,
}

/// An object in a parcel.
#[derive(Debug)]
pub enum Object {
    /// A Binder of this process
    Own(NodeRef),
    /// A Binder of another process
    Remote(RemoteRef),
    /// A descriptor
    Descriptor(OwnedFd),
}

impl Object {
    /// The object as the driver takes it.
    fn flat(&self) -> FlatObject {
        match self {
            Object::Own(node) => FlatObject {
                kind: BINDER_TYPE_BINDER,
                flags: NODE_FLAGS,
                binder: node.number().into(),
                cookie: 0,
            },
            Object::Remote(remote) => FlatObject {
                kind: BINDER_TYPE_HANDLE,
                flags: 0,
                binder: remote.handle().into(),
                cookie: 0,
            },
            Object::Descriptor(fd) => FlatObject {
                kind: BINDER_TYPE_FD,
                flags: 0,
                binder: fd.as_raw_fd() as u64,
                cookie: 0,
            },
        }
    }

    /// The Binder object once more. None if it is a descriptor.
    fn binder(&self) -> Option<Object> {
        match self {
            Object::Own(node) => Some(Object::Own(node.clone())),
            Object::Remote(remote) => Some(Object::Remote(remote.clone())),
            Object::Descriptor(_) => None,
        }
    }

    /// The object once more; a duplicate of a descriptor.
    fn duplicate(&self) -> Result<Object, Errno> {
        match self {
            Object::Descriptor(fd) => Ok(Object::Descriptor(fcntl_dupfd_cloexec(fd, 0)?)),
            binder => Ok(binder.binder().expect("all others are Binder objects")),
        }
    }
}

impl Parcel {
    /// Replaces the contents by those of a message. Objects come in ascending order.
    pub fn refill(&mut self, bytes: &[u8], objects: impl Iterator<Item = (usize, Object)>) {
        self.clear();
        self.bytes.extend_from_slice(bytes);
        self.objects.extend(objects);
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where objects stand.
    pub fn offsets(&self) -> Vec<u64> {
        self.objects.iter().map(|(at, _)| *at as u64).collect()
    }

    /// Forgets the contents. Keeps memory for the next ones, if they are small.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.objects.clear();
        self.position = 0;
        self.refuses_descriptors = false;
    }

    /// Where the next value is read or written.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Moves there. Bytes between the end and a later write are zero.
    pub fn set_position(&mut self, position: usize) {
        self.position = position;
    }

    /// How many bytes are left to read.
    pub fn available(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// How many bytes it has room for.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes room for so many bytes.
    pub fn reserve(&mut self, capacity: usize) {
        self.bytes.reserve(capacity.saturating_sub(self.bytes.len()));
    }

    /// Cuts off bytes, or adds zeros.
    pub fn set_len(&mut self, len: usize) {
        self.objects.retain(|(at, _)| at + OBJECT_BYTES <= len);
        self.bytes.resize(len, 0);
        self.position = self.position.min(len);
    }

    /// Sets whether descriptors are refused; returns what was set.
    pub fn refuse_descriptors(&mut self, refuses: bool) -> bool {
        std::mem::replace(&mut self.refuses_descriptors, refuses)
    }

    /// Whether descriptors are refused.
    pub fn refuses_descriptors(&self) -> bool {
        self.refuses_descriptors
    }

    /// Whether it has objects.
    pub fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether it has descriptors.
    pub fn has_descriptors(&self) -> bool {
        self.objects.iter().any(|(_, object)| matches!(object, Object::Descriptor(_)))
    }

    /// Writes bytes, padded to a multiple of four.
    pub fn write(&mut self, bytes: &[u8]) {
        let (start, padded) = (self.position, bytes.len().next_multiple_of(4));
        let end = start + padded;
        if !self.objects.is_empty() {
            self.objects.retain(|(at, _)| at + OBJECT_BYTES <= start || *at >= end);
        }
        if start == self.bytes.len() {
            self.bytes.extend_from_slice(bytes);
            self.bytes.resize(end, 0);
        } else {
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
            self.bytes[start + bytes.len()..end].fill(0);
        }
        self.position = end;
    }

    /// Writes a number of 32 bits.
    pub fn write_i32(&mut self, value: i32) {
        self.write(&value.to_le_bytes());
    }

    /// Writes an array: its length, and each element's bytes in turn.
    pub fn write_elements<const N: usize>(
        &mut self,
        elements: impl ExactSizeIterator<Item = [u8; N]>,
    ) {
        // One growth, in place of one for each doubling.
        self.bytes.reserve(size_of::<i32>() + N * elements.len());
        self.write_i32(elements.len() as i32);
        if self.position == self.bytes.len() && N.is_multiple_of(4) {
            elements.for_each(|element| self.bytes.extend_from_slice(&element));
            self.position = self.bytes.len();
        } else {
            elements.for_each(|element| self.write(&element));
        }
    }

    /// Writes a string: the count of units, the units and a zero; -1 for none.
    pub fn write_string(&mut self, units: Option<&[u16]>) {
        let Some(units) = units else { return self.write_i32(-1) };
        self.write_i32(units.len() as i32);
        let mut bytes = Vec::with_capacity(size_of::<u16>() * (units.len() + 1));
        bytes.extend(units.iter().chain(&[0]).flat_map(|unit| unit.to_le_bytes()));
        self.write(&bytes);
    }

    /// Writes an object. None is a Binder object that is null.
    pub fn write_object(&mut self, object: Option<Object>) {
        let flat = object.as_ref().map(Object::flat).unwrap_or(FlatObject {
            kind: BINDER_TYPE_BINDER,
            flags: 0,
            binder: 0,
            cookie: 0,
        });
        let at = self.position.next_multiple_of(4);
        self.position = at;
        self.write(bytes_of(&flat));
        let is_binder = !matches!(object, Some(Object::Descriptor(_)));
        let stability = if object.is_some() { SYSTEM_STABILITY } else { 0 };
        if let Some(object) = object {
            let index = self.objects.partition_point(|(other, _)| *other < at);
            self.objects.insert(index, (at, object));
        }
        if is_binder {
            self.write_i32(stability);
        }
    }

    /// Appends a part of another parcel, with the objects that lie in it.
    ///
    /// # Errors
    /// `EINVAL` if the part leaves the other parcel; the errno if a descriptor has no duplicate.
    pub fn append(&mut self, from: &Parcel, start: usize, len: usize) -> Result<(), Errno> {
        let end = start.checked_add(len).ok_or(Errno::INVAL)?;
        let part = from.bytes.get(start..end).ok_or(Errno::INVAL)?;
        let inside = from.objects.iter().filter(|(at, _)| *at >= start && at + OBJECT_BYTES <= end);
        let place = self.position;
        let objects = inside.map(|(at, object)| Ok((place + at - start, object.duplicate()?)));
        let objects = objects.collect::<Result<Vec<_>, Errno>>()?;
        self.write(part);
        for (at, object) in objects {
            // The bytes name a duplicate of a descriptor by its own number.
            self.bytes[at..at + OBJECT_BYTES].copy_from_slice(bytes_of(&object.flat()));
            let index = self.objects.partition_point(|(other, _)| *other < at);
            self.objects.insert(index, (at, object));
        }
        Ok(())
    }

    /// Reads bytes, and passes over their padding. None if there are fewer.
    pub fn read(&mut self, len: usize) -> Option<&[u8]> {
        let start = self.position;
        let end = start.checked_add(len.checked_next_multiple_of(4)?)?;
        if end > self.bytes.len() {
            return None;
        }
        self.position = end;
        Some(&self.bytes[start..start + len])
    }

    /// Reads a number. Zero if there are fewer bytes.
    pub fn read_number<const N: usize>(&mut self) -> [u8; N] {
        self.read(N).map_or([0; N], |bytes| bytes.try_into().expect("as many bytes"))
    }

    /// Reads a number of 32 bits. Zero if there is none.
    pub fn read_i32(&mut self) -> i32 {
        i32::from_le_bytes(self.read_number())
    }

    /// Reads the length of an array whose elements take so many bytes each. None if the array is
    /// null, or if the parcel ends before it.
    pub fn read_length(&mut self, element_bytes: usize) -> Option<usize> {
        let length = usize::try_from(self.read_i32()).ok()?;
        (length.checked_mul(element_bytes)? <= self.available()).then_some(length)
    }

    /// Reads bytes with their length before them. None if they are null or cut off.
    pub fn read_bytes(&mut self) -> Option<&[u8]> {
        let length = self.read_length(1)?;
        self.read(length)
    }

    /// Reads a string. None if it is null or cut off.
    pub fn read_string(&mut self) -> Option<Vec<u16>> {
        let length = usize::try_from(self.read_i32()).ok()?;
        let bytes = self.read(length.checked_add(1)?.checked_mul(2)?)?;
        let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        Some(units.take(length).collect())
    }

    fn read_object(&mut self) -> Option<&Object> {
        let at = self.position;
        self.read(OBJECT_BYTES)?;
        let index = self.objects.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(&self.objects[index].1)
    }

    /// Reads a Binder object. None if it is null, or something else.
    pub fn read_binder(&mut self) -> Option<Object> {
        let object = self.read_object().and_then(Object::binder);
        let _stability = self.read_i32();
        object
    }

    /// The first Binder object, wherever it stands.
    pub fn first_binder(&self) -> Option<Object> {
        self.objects.iter().find_map(|(_, object)| object.binder())
    }

    /// Reads a descriptor: a duplicate. None if there is something else.
    pub fn read_descriptor(&mut self) -> Option<OwnedFd> {
        match self.read_object()? {
            Object::Descriptor(fd) => fcntl_dupfd_cloexec(fd, 0).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were_written() {
        let mut parcel = Parcel::default();
        parcel.write_i32(-7);
        parcel.write_string(Some(&[0x61, 0xd83d]));
        parcel.write_string(None);
        parcel.write_elements([1i64, -1].map(i64::to_le_bytes).into_iter());
        parcel.write_i32(3);
        parcel.write(b"abc");
        parcel.write_object(None);
        assert_eq!(parcel.bytes().len(), 4 + 12 + 4 + 20 + 8 + 28);
        parcel.set_position(0);
        assert_eq!(parcel.read_i32(), -7);
        assert_eq!(parcel.read_string(), Some(vec![0x61, 0xd83d]));
        assert_eq!(parcel.read_string(), None);
        assert_eq!(parcel.read_length(8), Some(2));
        assert_eq!(i64::from_le_bytes(parcel.read_number()), 1);
        assert_eq!(i64::from_le_bytes(parcel.read_number()), -1);
        assert_eq!(parcel.read_bytes(), Some(&b"abc"[..]));
        assert!(parcel.read_binder().is_none());
        assert_eq!((parcel.available(), parcel.read_i32()), (0, 0));
    }

    #[test]
    fn a_length_beyond_the_end_reads_as_nothing() {
        for length in [-2, 3, i32::MAX, i32::MIN] {
            let mut parcel = Parcel::default();
            parcel.write_i32(length);
            parcel.write_i32(0);
            let reads: [fn(&mut Parcel) -> bool; 3] = [
                |parcel| parcel.read_string().is_none(),
                |parcel| parcel.read_length(4).is_none(),
                |parcel| parcel.read_bytes().is_none_or(|bytes| bytes.len() == 3),
            ];
            for read in reads {
                parcel.set_position(0);
                assert!(read(&mut parcel), "{length}");
            }
        }
    }

    #[test]
    fn a_write_over_an_object_drops_the_object() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut parcel = Parcel::default();
        parcel.write_i32(1);
        parcel.write_object(Some(Object::Descriptor(writer)));
        parcel.set_position(4);
        assert!(parcel.read_descriptor().is_some());
        assert!(parcel.has_descriptors());
        parcel.set_position(0);
        parcel.write_i32(2);
        assert!(parcel.has_descriptors(), "the object begins behind it");
        parcel.write_i32(3);
        assert!(!parcel.has_objects());
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "its descriptor is closed");
        parcel.set_position(4);
        assert!(parcel.read_descriptor().is_none());
    }

    #[test]
    fn a_part_is_appended_with_its_objects() {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let mut from = Parcel::default();
        from.write_i32(1);
        from.write_object(Some(Object::Descriptor(writer)));
        let mut parcel = Parcel::default();
        parcel.write_i32(2);
        assert_eq!(parcel.append(&from, 4, 24), Ok(()));
        assert_eq!(parcel.offsets(), [4]);
        assert_eq!(parcel.append(&from, 8, 16), Ok(()));
        assert_eq!(parcel.offsets(), [4], "a part of an object is none");
        assert_eq!(parcel.append(&from, 8, 24), Err(Errno::INVAL));
        assert_eq!(parcel.append(&from, usize::MAX, 4), Err(Errno::INVAL));
    }
}
