//! Values of binary events, and their text.
//!
//! ```text
//!   int    00 | i32          long 01 | i64         float 04 | f32
//!   string 02 | u32 bytes | bytes                  list  03 | i8 count | values
//! ```
//!
//! Little-endian. A payload is one value, most often a list. The text is `5`, `words`,
//! `[0,words,[1]]`; with `-v descriptive` each value goes by what the tags file says of it:
//! `[User=0,PID=1234]`.
//!
//! A description is `(name|type|unit)`: type 1 to 5 for int, long, string, list and float, unit 2
//! for bytes, 3 for milliseconds, 6 for percent, s for seconds, and others without a text of their
//! own. The first value that is not of its description's type ends the descriptions, not the
//! values.

mod description;
mod text;

pub use text::{ROOM, Style, print};

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// 32 bits.
    Int(i32),
    /// 64 bits.
    Long(i64),
    /// Words, by custom in UTF-8.
    String(&'a [u8]),
    /// As many values follow; none for a negative number.
    List(i8),
    /// 32 bits.
    Float(f32),
}

/// There is no further value: the payload ends within it, or it is of no known type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Whether all of a value is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// It is.
    Complete,
    /// A string that is said to be longer than what is left of the payload.
    Cut,
}

/// Values of a payload, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    /// Of a payload without the event's number.
    pub fn new(payload: &'a [u8]) -> Values<'a> {
        Values { rest: payload }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next value, and whether it is whole.
    ///
    /// # Errors
    /// There is none.
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
