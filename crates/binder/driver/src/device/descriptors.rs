//! Descriptors that have come for another process: they are this process's, and the program's copy
//! of each has another number.

use super::Device;
use baton_abi::uapi::*;
use bytemuck::{AnyBitPattern, NoUninit, Zeroable, bytes_of, bytes_of_mut};
use std::mem::offset_of;
use std::ops::Range;

/// A descriptor in a transaction or a reply that an ioctl has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDescriptor {
    /// Its number in this process.
    pub fd: i32,
    /// The place of its number in the receive buffer.
    at: usize,
    /// It lies in an array (BINDER_TYPE_FDA). The driver closes it when the program frees the
    /// buffer; any other is the caller's to close.
    pub is_in_array: bool,
}

impl ReceivedDescriptor {
    /// The bytes of the receive buffer that are its number.
    pub fn place(&self) -> Range<usize> {
        let bytes = if self.is_in_array { size_of::<i32>() } else { size_of::<u64>() };
        self.at..self.at + bytes
    }
}

impl Device {
    /// The descriptors of a message, which an ioctl has just returned to the calling thread.
    pub fn received_descriptors(&self, told: &TransactionData) -> Vec<ReceivedDescriptor> {
        let offsets = told.offsets_size / 8;
        let objects: Vec<usize> = (0..offsets).map(|nth| self.object_at(told, nth)).collect();
        let mut found = Vec::new();
        for &object in &objects {
            match self.read_buffer::<u32>(object) {
                BINDER_TYPE_FD => {
                    let FdObject { fd, .. } = self.read_buffer(object);
                    let at = object + offset_of!(FdObject, fd);
                    found.push(ReceivedDescriptor { fd: fd as i32, at, is_in_array: false });
                }
                BINDER_TYPE_FDA => {
                    let array: FdArrayObject = self.read_buffer(object);
                    let parent: BufferObject = self.read_buffer(objects[array.parent as usize]);
                    let first = self.offset_of(parent.buffer) + array.parent_offset as usize;
                    found.extend((0..array.num_fds as usize).map(|nth| {
                        let at = first + nth * size_of::<i32>();
                        ReceivedDescriptor { fd: self.read_buffer(at), at, is_in_array: true }
                    }));
                }
                _ => {}
            }
        }
        found
    }

    /// Puts another number in place of a descriptor's.
    pub fn renumber(&self, received: &ReceivedDescriptor, fd: i32) {
        match received.is_in_array {
            true => self.write_buffer(received.at, &fd),
            false => self.write_buffer(received.at, &u64::from(fd.cast_unsigned())),
        }
    }

    fn object_at(&self, told: &TransactionData, nth: u64) -> usize {
        let offset: u64 = self.read_buffer(self.offset_of(told.offsets + nth * 8));
        self.offset_of(told.buffer + offset)
    }

    /// The place in the receive buffer of what lies there for the program.
    fn offset_of(&self, address: u64) -> usize {
        address as usize - self.engine.buffer.program_map()
    }

    fn read_buffer<T: AnyBitPattern + NoUninit + Zeroable>(&self, at: usize) -> T {
        let mut value = T::zeroed();
        self.engine.buffer.view().read(at, bytes_of_mut(&mut value));
        value
    }

    fn write_buffer<T: NoUninit>(&self, at: usize, value: &T) {
        self.engine.buffer.view().write(at, bytes_of(value));
    }
}
