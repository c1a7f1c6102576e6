//! Reads little-endian numbers, one after the other.

use crate::error::DexError;

/// A position in a file. Each reading function moves it behind the value that it returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], offset: usize) -> Cursor<'a> {
        Cursor { bytes, offset }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// An error at this position, or at the end of the file before it.
    pub(crate) fn error<T>(&self, expected: &'static str) -> Result<T, DexError> {
        Err(DexError { offset: self.offset.min(self.bytes.len()), expected })
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], DexError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let Some(taken) = rest.get(..count) else {
            return self.error("more bytes before the end of the file");
        };
        self.offset += count;
        Ok(taken)
    }

    /// The bytes before the next zero byte, which is skipped.
    pub(crate) fn until_zero(&mut self) -> Result<&'a [u8], DexError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let Some(length) = rest.iter().position(|byte| *byte == 0) else {
            return self.error("a zero byte at the end of the string");
        };
        self.offset += length + 1;
        Ok(&rest[..length])
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DexError> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DexError> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DexError> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// An unsigned number of 1 to 5 bytes with 7 bits each, low bits first.
    pub(crate) fn uleb128(&mut self) -> Result<u32, DexError> {
        Ok(self.leb128()?.0)
    }

    /// Like `uleb128`, of a number plus one: `None` stands for the encoded zero.
    pub(crate) fn uleb128p1(&mut self) -> Result<Option<u32>, DexError> {
        Ok(self.uleb128()?.checked_sub(1))
    }

    /// Like `uleb128`, with the sign in the highest bit.
    pub(crate) fn sleb128(&mut self) -> Result<i32, DexError> {
        let (value, n_bits) = self.leb128()?;
        let spare = 32u32.saturating_sub(n_bits);
        Ok((value << spare) as i32 >> spare)
    }

    /// The number's bits, and their count.
    fn leb128(&mut self) -> Result<(u32, u32), DexError> {
        let mut value = 0;
        for n_bits in [0, 7, 14, 21, 28] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << n_bits;
            if byte & 0x80 == 0 {
                return Ok((value, n_bits + 7));
            }
        }
        self.error("at most 5 bytes of a LEB128 number")
    }

    /// A number of `count` bytes, at most 8, with the sign in the highest bit.
    pub(crate) fn signed(&mut self, count: usize) -> Result<i64, DexError> {
        let spare = 64 - 8 * count as u32;
        Ok((self.unsigned(count)? << spare) as i64 >> spare)
    }

    /// A number of `count` bytes, at most 8.
    pub(crate) fn unsigned(&mut self, count: usize) -> Result<u64, DexError> {
        let mut bytes = [0; 8];
        bytes[..count].copy_from_slice(self.bytes(count)?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Skips zero bytes up to a multiple of `alignment`.
    pub(crate) fn align(&mut self, alignment: usize) -> Result<(), DexError> {
        while !self.offset.is_multiple_of(alignment) {
            if self.u8()? != 0 {
                self.offset -= 1;
                return self.error("zero bytes before an aligned item");
            }
        }
        Ok(())
    }
}
