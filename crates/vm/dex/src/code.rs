//! Code items: the instructions of a method with its registers and handlers.
//!
//! ```text
//!   0  u16 registers, of which the last are arguments   u16 argument registers
//!   4  u16 registers for arguments of calls             u16 count of tries
//!   8  u32 offset of debug information                  u32 count of units
//!   16 u16 units; u16 zero if tries follow an odd count
//!      tries: u32 first unit, u16 count of units, u16 offset of handlers
//!      handlers: lists of types and addresses, as LEB128 numbers
//! ```

use crate::class::EncodedMethod;
use crate::cursor::Cursor;
use crate::debug;
use crate::error::DexError;
use crate::file::{CHECKED, DexFile};
use crate::ids::TypeId;
use std::sync::Arc;

/// The code of a method.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The number of registers. Arguments come in the last ones.
    pub n_registers: u16,
    /// The number of registers of arguments, the receiver included.
    pub n_ins: u16,
    /// The most registers that a call passes.
    pub n_outs: u16,
    /// Two bytes for each unit.
    units: &'a [u8],
    n_tries: u16,
    /// At the first try.
    tries: Cursor<'a>,
    debug_info: u32,
    offset: u32,
}

/// Units whose exceptions have handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// The first unit.
    pub start: u32,
    /// The first unit behind.
    pub end: u32,
    /// The handlers, in the order in which they are asked.
    pub handlers: Arc<[Handler]>,
}

/// A handler of exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// The class of exceptions that it takes: all for `None`.
    pub exception: Option<TypeId>,
    /// Its first unit.
    pub address: u32,
}

impl<'a> Code<'a> {
    /// Reads a code item except its tries.
    pub(crate) fn read(file: &DexFile<'a>, offset: u32) -> Result<Code<'a>, DexError> {
        let mut cursor = file.cursor(offset);
        let [n_registers, n_ins, n_outs] = [cursor.u16()?, cursor.u16()?, cursor.u16()?];
        let n_tries = cursor.u16()?;
        let debug_info = cursor.u32()?;
        let n_units = cursor.u32()?;
        let units = cursor.bytes((n_units as usize).saturating_mul(2))?;
        if n_tries > 0 {
            cursor.align(4)?;
        }
        Ok(Code { n_registers, n_ins, n_outs, units, n_tries, tries: cursor, debug_info, offset })
    }

    /// The offset of the code item in the file, which identifies it.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// The number of 16-bit units of instructions.
    pub fn n_units(&self) -> u32 {
        (self.units.len() / 2) as u32
    }

    /// The units of instructions.
    pub fn units(&self) -> impl ExactSizeIterator<Item = u16> + 'a {
        self.units.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
    }

    /// The tries in ascending order, without overlaps.
    pub fn tries(&self) -> Vec<Try> {
        self.read_tries().expect(CHECKED).0
    }

    /// The tries, and the end of the code item.
    pub(crate) fn read_tries(&self) -> Result<(Vec<Try>, usize), DexError> {
        let mut cursor = self.tries;
        if self.n_tries == 0 {
            return Ok((Vec::new(), cursor.offset()));
        }
        let mut ranges = Vec::with_capacity(self.n_tries.into());
        let mut last_end = 0;
        for _ in 0..self.n_tries {
            let place = cursor;
            let start = cursor.u32()?;
            let end = start.saturating_add(cursor.u16()?.into());
            if start < last_end || end <= start || end > self.n_units() {
                return place.error("tries in ascending order, within the code");
            }
            last_end = end;
            ranges.push((place, start, end, cursor.u16()?));
        }
        let base = cursor;
        let mut lists = Vec::new();
        for _ in 0..cursor.uleb128()? {
            let offset = cursor.offset() - base.offset();
            lists.push((offset, self.read_handlers(&mut cursor)?));
        }
        let mut tries = Vec::with_capacity(ranges.len());
        for (place, start, end, offset) in ranges {
            let found = lists.binary_search_by_key(&usize::from(offset), |(offset, _)| *offset);
            let Ok(index) = found else {
                return place.error("the offset of a list of handlers");
            };
            tries.push(Try { start, end, handlers: lists[index].1.clone() });
        }
        Ok((tries, cursor.offset()))
    }

    fn read_handlers(&self, cursor: &mut Cursor) -> Result<Arc<[Handler]>, DexError> {
        let count = cursor.sleb128()?;
        let mut handlers = Vec::new();
        for index in 0..=count.unsigned_abs() {
            // A count of zero or less announces a handler of all exceptions at the end.
            if index == count.unsigned_abs() && count > 0 {
                break;
            }
            let is_typed = index < count.unsigned_abs();
            let exception = if is_typed { Some(TypeId(cursor.uleb128()?)) } else { None };
            let place = *cursor;
            let address = cursor.uleb128()?;
            if address >= self.n_units() {
                return place.error("the address of a handler within the code");
            }
            handlers.push(Handler { exception, address });
        }
        Ok(handlers.into())
    }

    pub(crate) fn debug_info(&self) -> u32 {
        self.debug_info
    }
}

impl<'a> DexFile<'a> {
    /// A method's code: none for an abstract or native method.
    pub fn code(&self, method: &EncodedMethod) -> Option<Code<'a>> {
        (method.code != 0).then(|| Code::read(self, method.code).expect(CHECKED))
    }

    /// Source lines in ascending order of addresses: each counts from its unit to the next one's.
    /// Empty without debug information.
    pub fn lines(&self, code: &Code<'a>) -> Vec<(u32, u32)> {
        if code.debug_info == 0 {
            return Vec::new();
        }
        debug::read(&mut self.cursor(code.debug_info), |_| Ok(())).expect(CHECKED)
    }

    /// The source line of the instruction at a unit.
    pub fn line(&self, code: &Code<'a>, unit: u32) -> Option<u32> {
        let lines = self.lines(code);
        let after = lines.partition_point(|(address, _)| *address <= unit);
        Some(lines[after.checked_sub(1)?].1)
    }
}
