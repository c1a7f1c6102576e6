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
        let place = |address: u64| {
            let at = address.checked_sub(self.engine.buffer.program_map() as u64)?;
            usize::try_from(at).ok().filter(|at| *at <= MAX_PAYLOAD_BYTES)
        };
        let Some(start) = place(told.buffer) else { return 0..0 };
        let until = |address: u64, bytes: u64| {
            let end = place(address)?.checked_add(usize::try_from(bytes).ok()?)?;
            (end <= MAX_PAYLOAD_BYTES).then_some(end)
        };
        let data = until(told.buffer, told.data_size);
        let offsets = until(told.offsets, told.offsets_size);
        let mut end = start.max(data.unwrap_or(start)).max(offsets.unwrap_or(start));
        if let Some(offsets) = offsets.and(place(told.offsets)) {
            let objects = (offsets..end).step_by(size_of::<u64>());
            for at in objects.take((told.offsets_size / 8) as usize) {
                let mut offset = 0u64;
                self.read_receive_buffer(at, bytes_of_mut(&mut offset));
                end = end.max(self.buffer_end(start, offset, until).unwrap_or(start));
            }
        }
        if let Some(label) = label.and_then(place) {
            end = end.max(self.label_end(label));
        }
        start..end
    }

    /// The end of the buffer of the object at an offset of the data, if it is a PTR object.
    fn buffer_end(
        &self,
        data: usize,
        offset: u64,
        until: impl Fn(u64, u64) -> Option<usize>,
    ) -> Option<usize> {
        let at = data.checked_add(usize::try_from(offset).ok()?)?;
        let mut object = BufferObject::zeroed();
        // Objects of other kinds may be shorter, and end with the map.
        let end = at.checked_add(size_of::<BufferObject>())?;
        (end <= MAX_PAYLOAD_BYTES).then_some(())?;
        self.read_receive_buffer(at, bytes_of_mut(&mut object));
        (object.kind == BINDER_TYPE_PTR).then_some(())?;
        until(object.buffer, object.length)
    }

    /// The end of a label, with its zero byte.
    fn label_end(&self, label: usize) -> usize {
        let ends = |at: &usize| {
            let mut byte = [0];
            self.read_receive_buffer(*at, &mut byte);
            byte == [0]
        };
        (label..MAX_PAYLOAD_BYTES).find(ends).map_or(MAX_PAYLOAD_BYTES, |at| at + 1)
    }

    /// Copies bytes of the receive buffer.
    ///
    /// # Panics
    /// Panics if the range ends outside of the buffer.
    pub fn read_receive_buffer(&self, at: usize, into: &mut [u8]) {
        self.engine.buffer.view().read(at, into);
    }
}
