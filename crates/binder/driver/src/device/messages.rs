//! The place of a message in the receive buffer, for a program that has a copy of the buffer.
//!
//! ```text
//!   data | offsets | buffers of PTR objects | security label
//! ```

use super::Device;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use bytemuck::{Zeroable, bytes_of_mut};
use std::ops::Range;

impl Device {
    /// The bytes of the receive buffer that a message takes, which an ioctl has just returned to
    /// the calling thread. `label` is the address of its security label.
    pub fn message_range(&self, told: &TransactionData, label: Option<u64>) -> Range<usize> {
        let read = |at: usize, into: &mut [u8]| self.read_receive_buffer(at, into);
        ReceivedBytes { map: self.engine.buffer.program_map() as u64, read }.range(told, label)
    }

    /// Copies bytes of the receive buffer.
    ///
    /// # Panics
    /// Panics if the range ends outside of the buffer.
    pub fn read_receive_buffer(&self, at: usize, into: &mut [u8]) {
        self.engine.buffer.view().read(at, into);
    }

    /// Clears bytes of a message that the program has and frees next. The driver frees by its own
    /// records.
    ///
    /// # Panics
    /// Panics if the range ends outside of the buffer.
    pub fn clear_receive_buffer(&self, range: Range<usize>) {
        self.engine.buffer.view().zero(range.start, range.len());
    }
}

/// A receive buffer: the address of the program's map, and how to read its bytes.
struct ReceivedBytes<R> {
    map: u64,
    read: R,
}

impl<R: Fn(usize, &mut [u8])> ReceivedBytes<R> {
    /// The bytes of a message. The range lies in the buffer, whatever the message names.
    fn range(&self, told: &TransactionData, label: Option<u64>) -> Range<usize> {
        let Some(start) = self.place(told.buffer) else { return 0..0 };
        let data = self.end(told.buffer, told.data_size);
        let offsets = self.end(told.offsets, told.offsets_size);
        let mut end = start.max(data.unwrap_or(start)).max(offsets.unwrap_or(start));
        if let Some(offsets) = offsets.and(self.place(told.offsets)) {
            let objects = (offsets..end).step_by(size_of::<u64>());
            for at in objects.take((told.offsets_size / 8) as usize) {
                let mut offset = 0u64;
                (self.read)(at, bytes_of_mut(&mut offset));
                end = end.max(self.buffer_end(start, offset).unwrap_or(start));
            }
        }
        if let Some(label) = label.and_then(|label| self.place(label)) {
            end = end.max(self.label_end(label));
        }
        start..end
    }

    /// The place of an address in the buffer, or of its end.
    fn place(&self, address: u64) -> Option<usize> {
        let at = usize::try_from(address.checked_sub(self.map)?).ok()?;
        (at <= MAX_PAYLOAD_BYTES).then_some(at)
    }

    /// The end of so many bytes from an address on, if that lies in the buffer.
    fn end(&self, address: u64, bytes: u64) -> Option<usize> {
        let end = self.place(address)?.checked_add(usize::try_from(bytes).ok()?)?;
        (end <= MAX_PAYLOAD_BYTES).then_some(end)
    }

    /// The end of the buffer of the object at an offset of the data, if it is a PTR object.
    fn buffer_end(&self, data: usize, offset: u64) -> Option<usize> {
        let at = data.checked_add(usize::try_from(offset).ok()?)?;
        let mut object = BufferObject::zeroed();
        // Objects of other kinds may be shorter, and end with the map.
        let end = at.checked_add(size_of::<BufferObject>())?;
        (end <= MAX_PAYLOAD_BYTES).then_some(())?;
        (self.read)(at, bytes_of_mut(&mut object));
        (object.kind == BINDER_TYPE_PTR).then_some(())?;
        self.end(object.buffer, object.length)
    }

    /// The end of a label, with its zero byte.
    fn label_end(&self, label: usize) -> usize {
        let ends = |at: &usize| {
            let mut byte = [0];
            (self.read)(*at, &mut byte);
            byte == [0]
        };
        (label..MAX_PAYLOAD_BYTES).find(ends).map_or(MAX_PAYLOAD_BYTES, |at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::bytes_of;

    const MAP: u64 = 0x7000_0000_0000;

    /// The range of a message: places of its data and offsets, with their lengths; what lies in the
    /// buffer; the place of its label.
    fn check(
        data: (u64, u64),
        offsets: (u64, u64),
        bytes: &[(usize, &[u8])],
        label: Option<u64>,
        expect: Range<usize>,
    ) {
        let mut buffer = vec![0xff; MAX_PAYLOAD_BYTES];
        bytes.iter().for_each(|(at, bytes)| buffer[*at..][..bytes.len()].copy_from_slice(bytes));
        let read = |at: usize, into: &mut [u8]| into.copy_from_slice(&buffer[at..][..into.len()]);
        let told = TransactionData {
            buffer: MAP.wrapping_add(data.0),
            data_size: data.1,
            offsets: MAP.wrapping_add(offsets.0),
            offsets_size: offsets.1,
            ..Zeroable::zeroed()
        };
        let label = label.map(|at| MAP.wrapping_add(at));
        let found = ReceivedBytes { map: MAP, read }.range(&told, label);
        assert_eq!(found, expect, "{data:?} {offsets:?} {label:?}");
    }

    /// A PTR object whose bytes are at this place, or an object of another kind.
    fn object(kind: u32, at: u64, length: u64) -> Vec<u8> {
        let buffer = MAP.wrapping_add(at);
        bytes_of(&BufferObject { kind, buffer, length, ..Zeroable::zeroed() }).to_vec()
    }

    #[test]
    fn a_message_ends_with_the_last_of_its_parts() {
        const END: u64 = MAX_PAYLOAD_BYTES as u64;
        const NOWHERE: u64 = MAP.wrapping_neg();
        let offset = 8u64.to_ne_bytes();
        let with = |object: &[u8], expect: Range<usize>| {
            let objects: [(usize, &[u8]); 2] = [(64 + 8, object), (128, &offset)];
            check((64, 56), (128, 8), &objects, None, expect);
        };
        check((64, 5), (72, 0), &[], None, 64..72);
        check((64, 0), (64, 0), &[], None, 64..64);
        check((0, END), (END, 0), &[], None, 0..MAX_PAYLOAD_BYTES);
        // Buffers of PTR objects, and objects of other kinds with the same bytes.
        with(&object(BINDER_TYPE_PTR, 136, 100), 64..236);
        with(&object(BINDER_TYPE_PTR, 136, 0), 64..136);
        with(&object(BINDER_TYPE_PTR, 72, 8), 64..136);
        with(&object(BINDER_TYPE_HANDLE, 136, 100), 64..136);
        // A buffer that would not end in the map.
        with(&object(BINDER_TYPE_PTR, 136, END), 64..136);
        with(&object(BINDER_TYPE_PTR, 136, u64::MAX), 64..136);
        with(&object(BINDER_TYPE_PTR, u64::MAX, 4), 64..136);
        // Offsets that lead out of the map.
        for offset in [END - 64, END, u64::MAX, u64::MAX - 64] {
            check((64, 56), (128, 8), &[(128, &offset.to_ne_bytes())], None, 64..136);
        }
        // The second of two objects; a rest of less than an offset names none.
        let objects = [object(BINDER_TYPE_FD, 0, 0), object(BINDER_TYPE_PTR, 200, 56)];
        let offsets = [0u64, 40].map(u64::to_ne_bytes).concat();
        let bytes: [(usize, &[u8]); 3] = [(0, &objects[0]), (40, &objects[1]), (80, &offsets)];
        check((0, 80), (80, 16), &bytes, None, 0..256);
        check((0, 80), (80, 12), &bytes, None, 0..92);
        // Labels, with their zero byte, or to the end of the map.
        check((64, 8), (72, 0), &[(72, b"label\0")], Some(72), 64..78);
        check((64, 8), (72, 0), &[], Some(72), 64..MAX_PAYLOAD_BYTES);
        check((64, 8), (72, 0), &[], Some(END), 64..MAX_PAYLOAD_BYTES);
        check((64, 8), (72, 0), &[], Some(u64::MAX), 64..72);
        // A message of another map, and parts that are none of this one.
        check((NOWHERE, 8), (72, 0), &[], Some(72), 0..0);
        check((END + 1, 8), (72, 0), &[], None, 0..0);
        check((64, END), (64, END), &[], None, 64..64);
        check((64, 8), (NOWHERE, 8), &[], None, 64..72);
    }
}
