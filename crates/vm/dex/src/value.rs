//! Encoded values: constants of static fields, of annotations and of call sites.

use crate::cursor::Cursor;
use crate::error::DexError;
use crate::file::CHECKED;
use crate::ids::{FieldId, MethodHandleId, MethodId, ProtoId, StringId, TypeId};

/// Deeper arrays and annotations in each other are refused.
const MAX_DEPTH: usize = 32;

/// A constant.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each is the Java type of its name")]
pub enum Value<'a> {
    Byte(i8),
    Short(i16),
    Char(u16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    Null,
    String(StringId),
    Type(TypeId),
    MethodType(ProtoId),
    MethodHandle(MethodHandleId),
    Field(FieldId),
    Method(MethodId),
    /// A constant of an enumeration, by its static field.
    Enum(FieldId),
    Array(Values<'a>),
    Annotation(EncodedAnnotation<'a>),
}

impl<'a> Value<'a> {
    /// Reads a value with all values inside it.
    pub(crate) fn read(cursor: &mut Cursor<'a>, depth: usize) -> Result<Value<'a>, DexError> {
        let place = *cursor;
        let head = cursor.u8()?;
        let extra = usize::from(head >> 5);
        let limited = |most: usize| match extra <= most {
            true => Ok(extra + 1),
            false => place.error("a value no longer than its type"),
        };
        let mut id = || Ok(cursor.unsigned(limited(3)?)? as u32);
        Ok(match head & 0x1f {
            0x00 => Value::Byte(cursor.signed(limited(0)?)? as i8),
            0x02 => Value::Short(cursor.signed(limited(1)?)? as i16),
            0x03 => Value::Char(cursor.unsigned(limited(1)?)? as u16),
            0x04 => Value::Int(cursor.signed(limited(3)?)? as i32),
            0x06 => Value::Long(cursor.signed(limited(7)?)?),
            // The low bytes of floating-point numbers are left out, if they are zero.
            0x10 => {
                let bits = (cursor.unsigned(limited(3)?)? as u32) << (24 - 8 * extra);
                Value::Float(f32::from_bits(bits))
            }
            0x11 => {
                let bits = cursor.unsigned(limited(7)?)? << (56 - 8 * extra);
                Value::Double(f64::from_bits(bits))
            }
            0x15 => Value::MethodType(ProtoId(id()?)),
            0x16 => Value::MethodHandle(MethodHandleId(id()?)),
            0x17 => Value::String(StringId(id()?)),
            0x18 => Value::Type(TypeId(id()?)),
            0x19 => Value::Field(FieldId(id()?)),
            0x1a => Value::Method(MethodId(id()?)),
            0x1b => Value::Enum(FieldId(id()?)),
            0x1c | 0x1d if extra != 0 => return place.error("an array's or annotation's own head"),
            0x1c | 0x1d if depth == MAX_DEPTH => return place.error("values nested less deeply"),
            0x1c => Value::Array(Values::skip(cursor, depth + 1)?),
            0x1d => Value::Annotation(EncodedAnnotation::skip(cursor, depth + 1)?),
            0x1e if extra == 0 => Value::Null,
            0x1f if extra < 2 => Value::Boolean(extra == 1),
            _ => return place.error("a type of an encoded value"),
        })
    }
}

/// Values in a row: an encoded array.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    first: Cursor<'a>,
    count: u32,
}

impl<'a> Values<'a> {
    pub(crate) fn read(mut cursor: Cursor<'a>) -> Result<Values<'a>, DexError> {
        let count = cursor.uleb128()?;
        Ok(Values { first: cursor, count })
    }

    /// Reads an array, and moves the cursor behind it.
    pub(crate) fn skip(cursor: &mut Cursor<'a>, depth: usize) -> Result<Values<'a>, DexError> {
        let values = Values::read(*cursor)?;
        *cursor = values.first;
        for _ in 0..values.count {
            Value::read(cursor, depth)?;
        }
        Ok(values)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The values in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'a>> + use<'a> {
        let mut cursor = self.first;
        (0..self.count).map(move |_| Value::read(&mut cursor, 0).expect(CHECKED))
    }
}

/// An annotation's type, and its elements by name.
#[derive(Clone, Copy, Debug)]
pub struct EncodedAnnotation<'a> {
    /// The annotation's interface.
    pub type_id: TypeId,
    first: Cursor<'a>,
    count: u32,
}

impl<'a> EncodedAnnotation<'a> {
    pub(crate) fn read(mut cursor: Cursor<'a>) -> Result<EncodedAnnotation<'a>, DexError> {
        let type_id = TypeId(cursor.uleb128()?);
        let count = cursor.uleb128()?;
        Ok(EncodedAnnotation { type_id, first: cursor, count })
    }

    /// Reads an annotation, and moves the cursor behind it.
    pub(crate) fn skip(
        cursor: &mut Cursor<'a>,
        depth: usize,
    ) -> Result<EncodedAnnotation<'a>, DexError> {
        let annotation = EncodedAnnotation::read(*cursor)?;
        *cursor = annotation.first;
        for _ in 0..annotation.count {
            cursor.uleb128()?;
            Value::read(cursor, depth)?;
        }
        Ok(annotation)
    }

    /// The elements: names in ascending order, with their values.
    pub fn elements(&self) -> impl ExactSizeIterator<Item = (StringId, Value<'a>)> + use<'a> {
        let mut cursor = self.first;
        (0..self.count).map(move |_| {
            let name = StringId(cursor.uleb128().expect(CHECKED));
            (name, Value::read(&mut cursor, 0).expect(CHECKED))
        })
    }
}
