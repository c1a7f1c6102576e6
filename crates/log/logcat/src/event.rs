//! The values of binary events, and their text.
//!
//! ```text
//!   int    00 | i32          long 01 | i64         float 04 | f32
//!   string 02 | u32 bytes | bytes                  list  03 | i8 count | values
//! ```
//!
//! All values are little-endian. A payload is one value, mostly a list. Its text is `5`, `words`,
//! `[0,words,[1]]`. With `-v descriptive`, each value is shown with its description from the tags
//! file: `[User=0,PID=1234]`.
//!
//! A description is `(name|type|unit)`. Types 1 to 5 are int, long, string, list and float. Unit 2
//! is bytes, 3 is milliseconds, 6 is percent, s is seconds; others are not shown. From the first
//! value of another type than its description's on, values are shown without descriptions.

mod description;
mod text;

pub use text::{ROOM, Style, print};

/// A value of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// 32 bits.
    Int(i32),
    /// 64 bits.
    Long(i64),
    /// Bytes, by custom in UTF-8.
    String(&'a [u8]),
    /// The number of values that follow; none if it is negative.
    List(i8),
    /// 32 bits.
    Float(f32),
}

/// There is no further value: the payload ends within it, or its type is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Whether the payload has all bytes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// It has all.
    Complete,
    /// It has only a part of a string.
    Cut,
}

/// Reads the values of a payload, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    /// Begins at the first value of a payload without the event's number.
    pub fn new(payload: &'a [u8]) -> Values<'a> {
        Values { rest: payload }
    }

    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads the next value, and says whether it is complete.
    ///
    /// # Errors
    /// There is no further value.
    pub fn read(&mut self) -> Result<(Value<'a>, Whole), Malformed> {
        let [kind] = self.take()?;
        let value = match kind {
            0 => Value::Int(i32::from_le_bytes(self.take()?)),
            1 => Value::Long(i64::from_le_bytes(self.take()?)),
            2 => {
                let said = u32::from_le_bytes(self.take()?) as usize;
                let (string, rest) = self.rest.split_at(said.min(self.rest.len()));
                self.rest = rest;
                let whole = if string.len() < said { Whole::Cut } else { Whole::Complete };
                return Ok((Value::String(string), whole));
            }
            3 => Value::List(i8::from_le_bytes(self.take()?)),
            4 => Value::Float(f32::from_le_bytes(self.take()?)),
            _ => return Err(Malformed),
        };
        Ok((value, Whole::Complete))
    }
}
