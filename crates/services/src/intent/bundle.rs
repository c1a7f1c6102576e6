//! Typed values by their keys, in the layout of Android's `Bundle`.
//!
//! ```text
//! bundle   bytes of the map in 4; if not 0: magic 'BNDL', the map, has-intent in 4
//! map      number of entries in 4, entries
//! entry    key as string 16, type in 4, value
//! ```
//!
//! | type | value |
//! |---|---|
//! | -1 null | nothing |
//! | 0 string, 10 character sequence | string 16; 1 and a string 8 |
//! | 1 int, 5 short, 9 boolean, 20 byte, 29 char, 7 float | 4 |
//! | 6 long, 8 double | 8 |
//! | 3 bundle | a bundle |
//! | 13 bytes | their number, and the bytes, padded |
//! | 14 strings | their number, and a string 16 each |
//! | 18 ints, 23 booleans, 30 shorts, 31 chars, 32 floats | their number, and 4 each |
//! | 19 longs, 28 doubles | their number, and 8 each |
//! | 2 map, 4 parcelable, 11 list, 12 sparse array, 16 parcelables, 17 objects, 21 serializable | the bytes of the value in 4, the value |
//!
//! Types of the last row have had their bytes before them since Android 13, so that who does not
//! know a class passes over it: such a value is kept as [`Value::Raw`]. Up to Android 12 they had
//! not. The two forms cannot be told apart, and this module reads the newer one. All other types
//! are alike in all releases. The has-intent word came with Android 15.
//!
//! A parcelable is the name of its class as a string 16, and its fields. Of two classes the fields
//! are known: `Uri` and `ComponentName`. Objects (type 15) and descriptors cannot be in a bundle:
//! a copy of its bytes would not bring them along.
//!
//! Source: `BaseBundle`, `Parcel.writeValue` and `TextUtils.writeToParcel` of Android 16.

use super::decode::{DecodeError, MAX_DEPTH, field};
use super::intent::ComponentName;
use super::uri::Uri;
use baton::Parcel;
use baton::android::{Reader, Write};
use std::collections::BTreeMap;

const MAGIC: i32 = i32::from_le_bytes(*b"BNDL");

/// Types of values, by Android's names for them.
mod kind {
    pub const NULL: i32 = -1;
    pub const STRING: i32 = 0;
    pub const INTEGER: i32 = 1;
    pub const MAP: i32 = 2;
    pub const BUNDLE: i32 = 3;
    pub const PARCELABLE: i32 = 4;
    pub const SHORT: i32 = 5;
    pub const LONG: i32 = 6;
    pub const FLOAT: i32 = 7;
    pub const DOUBLE: i32 = 8;
    pub const BOOLEAN: i32 = 9;
    pub const CHARSEQUENCE: i32 = 10;
    pub const LIST: i32 = 11;
    pub const SPARSEARRAY: i32 = 12;
    pub const BYTEARRAY: i32 = 13;
    pub const STRINGARRAY: i32 = 14;
    pub const PARCELABLEARRAY: i32 = 16;
    pub const OBJECTARRAY: i32 = 17;
    pub const INTARRAY: i32 = 18;
    pub const LONGARRAY: i32 = 19;
    pub const BYTE: i32 = 20;
    pub const SERIALIZABLE: i32 = 21;
    pub const BOOLEANARRAY: i32 = 23;
    pub const DOUBLEARRAY: i32 = 28;
    pub const CHAR: i32 = 29;
    pub const SHORTARRAY: i32 = 30;
    pub const CHARARRAY: i32 = 31;
    pub const FLOATARRAY: i32 = 32;
}

/// The mark of a character sequence without styles.
const PLAIN: i32 = 1;
/// The class of a URI that is written as its text.
const URI_CLASS: &str = "android.net.Uri$StringUri";
/// The beginning of the names of all classes of URIs.
const URI_CLASSES: &str = "android.net.Uri$";
const COMPONENT_CLASS: &str = "android.content.ComponentName";

/// Typed values by their keys.
///
/// ```
/// use baton_services::intent::{Bundle, Value};
/// let mut bundle = Bundle::new();
/// bundle.put("level", 42);
/// bundle.put("name", "battery");
/// assert_eq!(bundle.get("level"), Some(&Value::Integer(42)));
///
/// let mut parcel = baton::Parcel::new();
/// bundle.write(&mut parcel);
/// let mut reader = baton::android::Reader::new(parcel.data());
/// assert_eq!(Bundle::read(&mut reader), Ok(bundle));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bundle {
    entries: BTreeMap<String, Value>,
}

/// A value of a bundle.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    Null,
    /// Text.
    String(String),
    /// 32 bits.
    Integer(i32),
    /// 64 bits.
    Long(i64),
    /// 16 bits.
    Short(i16),
    /// 8 bits.
    Byte(i8),
    /// A unit of UTF-16.
    Char(u16),
    /// 32 bits with a point.
    Float(f32),
    /// 64 bits with a point.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// Text whose writer has it as a `CharSequence`.
    CharSequence(String),
    /// A bundle.
    Bundle(Bundle),
    /// A URI.
    Uri(Uri),
    /// The name of a component.
    Component(ComponentName),
    /// Bytes.
    ByteArray(Vec<u8>),
    /// Texts, each of which may be null.
    StringArray(Vec<Option<String>>),
    /// Numbers of 32 bits.
    IntArray(Vec<i32>),
    /// Numbers of 64 bits.
    LongArray(Vec<i64>),
    /// Numbers of 16 bits.
    ShortArray(Vec<i16>),
    /// Units of UTF-16.
    CharArray(Vec<u16>),
    /// Floats.
    FloatArray(Vec<f32>),
    /// Doubles.
    DoubleArray(Vec<f64>),
    /// Truth values.
    BooleanArray(Vec<bool>),
    /// A value of a class that is not known here, to be passed on.
    Raw {
        /// The type, one of the last row of the module's table.
        kind: i32,
        /// The value's bytes.
        bytes: Vec<u8>,
    },
}

/// A value from what it consists of.
macro_rules! from {
    ($($source:ty => $variant:ident),* $(,)?) => {
        $(impl From<$source> for Value {
            fn from(value: $source) -> Value {
                Value::$variant(value.into())
            }
        })*
    };
}

from! {
    &str => String, String => String, i32 => Integer, i64 => Long, f32 => Float, f64 => Double,
    bool => Boolean, Bundle => Bundle, Uri => Uri, ComponentName => Component,
    Vec<u8> => ByteArray, Vec<i32> => IntArray, Vec<i64> => LongArray,
}

impl Bundle {
    /// An empty bundle.
    pub fn new() -> Bundle {
        Bundle::default()
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the value of a key and returns the one before.
    pub fn put(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.entries.insert(key.into(), value.into())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// Removes the value of a key and returns it.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.entries.remove(key)
    }

    /// All keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Writes the bundle: see the module.
    pub fn write(&self, parcel: &mut Parcel) {
        if self.entries.is_empty() {
            return parcel.write_i32(0);
        }
        let mut map = Parcel::new();
        map.write_i32(self.entries.len() as i32);
        for (key, value) in &self.entries {
            map.write_string(key);
            value.write(&mut map);
        }
        let has_intent = false;
        parcel.write_i32(map.data().len() as i32);
        parcel.write_i32(MAGIC);
        parcel.write(map.data());
        parcel.write_i32(has_intent.into());
    }

    /// Reads a bundle that is not null: see the module.
    ///
    /// # Errors
    /// The writer's fault.
    pub fn read(reader: &mut Reader<'_>) -> Result<Bundle, DecodeError> {
        field("the bundle", Bundle::read_nullable(reader)?)
    }

    /// Reads a bundle, which may be null: see the module.
    ///
    /// # Errors
    /// The writer's fault.
    pub fn read_nullable(reader: &mut Reader<'_>) -> Result<Option<Bundle>, DecodeError> {
        read_bundle(reader, 1)
    }
}

impl FromIterator<(String, Value)> for Bundle {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Bundle {
        Bundle { entries: entries.into_iter().collect() }
    }
}

/// Reads a bundle that stands within `depth - 1` others.
fn read_bundle(reader: &mut Reader<'_>, depth: usize) -> Result<Option<Bundle>, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep);
    }
    let malformed = "the bundle";
    let bytes = match field(malformed, reader.i32())? {
        -1 => return Ok(None),
        0 => return Ok(Some(Bundle::new())),
        bytes => field(malformed, usize::try_from(bytes).ok().filter(|bytes| bytes % 4 == 0))?,
    };
    let magic = field(malformed, reader.i32())?;
    field(malformed, (magic == MAGIC).then_some(()))?;
    let mut map = Reader::new(field(malformed, reader.packed(bytes))?);
    let _has_intent = field(malformed, reader.i32())?;
    let n_entries = field(malformed, map.i32().filter(|n| *n >= 0))?;
    let mut entries = BTreeMap::new();
    for _ in 0..n_entries {
        let key = field("a bundle's key", map.string())?;
        let value = Value::read(&mut map, depth)
            .map_err(|error| DecodeError::Value { key: key.clone(), error: Box::new(error) })?;
        let is_new = entries.insert(key, value).is_none();
        field("a bundle's key", is_new.then_some(()))?;
    }
    field(malformed, map.is_empty().then_some(Some(Bundle { entries })))
}

/// Writes the number of elements, and each in as many bytes as it has.
fn write_array<const N: usize>(
    parcel: &mut Parcel,
    elements: impl ExactSizeIterator<Item = [u8; N]>,
) {
    parcel.write_i32(elements.len() as i32);
    for element in elements {
        parcel.write(&element);
    }
}

/// Reads the number of elements, and each.
fn read_array<'a, T>(
    reader: &mut Reader<'a>,
    mut element: impl FnMut(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let n = reader.i32().filter(|n| *n >= 0)?;
    (0..n).map(|_| element(reader)).collect()
}

impl Value {
    /// The type and the value.
    fn write(&self, parcel: &mut Parcel) {
        let mut word = |kind: i32, word: i32| {
            parcel.write_i32(kind);
            parcel.write_i32(word);
        };
        match self {
            Value::Null => parcel.write_i32(kind::NULL),
            Value::Integer(value) => word(kind::INTEGER, *value),
            Value::Short(value) => word(kind::SHORT, (*value).into()),
            Value::Byte(value) => word(kind::BYTE, (*value).into()),
            Value::Char(value) => word(kind::CHAR, (*value).into()),
            Value::Boolean(value) => word(kind::BOOLEAN, (*value).into()),
            Value::Float(value) => word(kind::FLOAT, i32::from_le_bytes(value.to_le_bytes())),
            Value::Long(value) => {
                parcel.write_i32(kind::LONG);
                parcel.write(&value.to_le_bytes());
            }
            Value::Double(value) => {
                parcel.write_i32(kind::DOUBLE);
                parcel.write(&value.to_le_bytes());
            }
            Value::String(value) => {
                parcel.write_i32(kind::STRING);
                parcel.write_string(value);
            }
            Value::CharSequence(value) => {
                parcel.write_i32(kind::CHARSEQUENCE);
                parcel.write_i32(PLAIN);
                parcel.write_string8(value);
            }
            Value::Bundle(value) => {
                parcel.write_i32(kind::BUNDLE);
                value.write(parcel);
            }
            Value::Uri(value) => {
                write_parcelable(parcel, URI_CLASS, |fields| Uri::write(Some(value), fields));
            }
            Value::Component(value) => write_parcelable(parcel, COMPONENT_CLASS, |fields| {
                ComponentName::write(Some(value), fields);
            }),
            Value::ByteArray(values) => {
                parcel.write_i32(kind::BYTEARRAY);
                parcel.write_bytes(values);
            }
            Value::StringArray(values) => {
                parcel.write_i32(kind::STRINGARRAY);
                parcel.write_i32(values.len() as i32);
                for text in values {
                    match text {
                        Some(text) => parcel.write_string(text),
                        None => parcel.write_null_string(),
                    }
                }
            }
            Value::IntArray(values) => {
                parcel.write_i32(kind::INTARRAY);
                write_array(parcel, values.iter().map(|value| value.to_le_bytes()));
            }
            Value::ShortArray(values) => {
                parcel.write_i32(kind::SHORTARRAY);
                write_array(parcel, values.iter().map(|value| i32::from(*value).to_le_bytes()));
            }
            Value::CharArray(values) => {
                parcel.write_i32(kind::CHARARRAY);
                write_array(parcel, values.iter().map(|value| i32::from(*value).to_le_bytes()));
            }
            Value::BooleanArray(values) => {
                parcel.write_i32(kind::BOOLEANARRAY);
                write_array(parcel, values.iter().map(|value| i32::from(*value).to_le_bytes()));
            }
            Value::FloatArray(values) => {
                parcel.write_i32(kind::FLOATARRAY);
                write_array(parcel, values.iter().map(|value| value.to_le_bytes()));
            }
            Value::LongArray(values) => {
                parcel.write_i32(kind::LONGARRAY);
                write_array(parcel, values.iter().map(|value| value.to_le_bytes()));
            }
            Value::DoubleArray(values) => {
                parcel.write_i32(kind::DOUBLEARRAY);
                write_array(parcel, values.iter().map(|value| value.to_le_bytes()));
            }
            Value::Raw { kind, bytes } => {
                parcel.write_i32(*kind);
                parcel.write_bytes(bytes);
            }
        }
    }

    /// Reads a type and its value, in a bundle that stands within `depth - 1` others.
    fn read(reader: &mut Reader<'_>, depth: usize) -> Result<Value, DecodeError> {
        let kind = field("a value's type", reader.i32())?;
        if kind == kind::BUNDLE {
            let bundle = read_bundle(reader, depth + 1)?;
            return Ok(bundle.map_or(Value::Null, Value::Bundle));
        }
        if kind == kind::CHARSEQUENCE {
            // The sizes of styles are known to their classes only.
            let form = field("a value", reader.i32())?;
            if form != PLAIN {
                return Err(DecodeError::Unsupported("a text with styles"));
            }
            let text = field("a value", reader.nullable_string8())?;
            return Ok(text.map_or(Value::Null, Value::CharSequence));
        }
        match read_plain(kind, reader) {
            Some(value) => field("a value", value),
            None => Err(DecodeError::ValueType(kind)),
        }
    }
}

/// Reads a value that has no values within it. `None` if the type is not known, `Some(None)` if its
/// value is malformed.
fn read_plain(kind: i32, reader: &mut Reader<'_>) -> Option<Option<Value>> {
    Some(match kind {
        kind::NULL => Some(Value::Null),
        kind::STRING => {
            reader.nullable_string().map(|text| text.map_or(Value::Null, Value::String))
        }
        kind::INTEGER => reader.i32().map(Value::Integer),
        kind::SHORT => reader.i32().map(|word| Value::Short(word as i16)),
        kind::BYTE => reader.i32().map(|word| Value::Byte(word as i8)),
        kind::CHAR => reader.i32().map(|word| Value::Char(word as u16)),
        kind::BOOLEAN => reader.i32().map(|word| Value::Boolean(word != 0)),
        kind::FLOAT => reader.array().map(f32::from_le_bytes).map(Value::Float),
        kind::LONG => reader.array().map(i64::from_le_bytes).map(Value::Long),
        kind::DOUBLE => reader.array().map(f64::from_le_bytes).map(Value::Double),
        kind::BYTEARRAY => read_bytes(reader).map(|bytes| Value::ByteArray(bytes.to_vec())),
        kind::STRINGARRAY => read_array(reader, Reader::nullable_string).map(Value::StringArray),
        kind::INTARRAY => read_array(reader, Reader::i32).map(Value::IntArray),
        kind::SHORTARRAY => {
            read_array(reader, |reader| Some(reader.i32()? as i16)).map(Value::ShortArray)
        }
        kind::CHARARRAY => {
            read_array(reader, |reader| Some(reader.i32()? as u16)).map(Value::CharArray)
        }
        kind::BOOLEANARRAY => {
            read_array(reader, |reader| Some(reader.i32()? != 0)).map(Value::BooleanArray)
        }
        kind::FLOATARRAY => {
            let element = |reader: &mut Reader<'_>| reader.array().map(f32::from_le_bytes);
            read_array(reader, element).map(Value::FloatArray)
        }
        kind::LONGARRAY => {
            let element = |reader: &mut Reader<'_>| reader.array().map(i64::from_le_bytes);
            read_array(reader, element).map(Value::LongArray)
        }
        kind::DOUBLEARRAY => {
            let element = |reader: &mut Reader<'_>| reader.array().map(f64::from_le_bytes);
            read_array(reader, element).map(Value::DoubleArray)
        }
        kind::PARCELABLE => read_words(reader).map(read_parcelable),
        kind::MAP
        | kind::LIST
        | kind::SPARSEARRAY
        | kind::PARCELABLEARRAY
        | kind::OBJECTARRAY
        | kind::SERIALIZABLE => {
            read_words(reader).map(|bytes| Value::Raw { kind, bytes: bytes.to_vec() })
        }
        _ => return None,
    })
}

/// Bytes behind their number.
fn read_bytes<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = usize::try_from(reader.i32()?).ok()?;
    reader.packed(length)
}

/// Bytes of a value that is a parcel of its own, behind their number.
fn read_words<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    read_bytes(reader).filter(|bytes| bytes.len() % 4 == 0)
}

fn write_parcelable(parcel: &mut Parcel, class: &str, fields: impl FnOnce(&mut Parcel)) {
    let mut value = Parcel::new();
    value.write_string(class);
    fields(&mut value);
    parcel.write_i32(kind::PARCELABLE);
    parcel.write_bytes(value.data());
}

/// A parcelable of a known class, or its bytes.
fn read_parcelable(bytes: &[u8]) -> Value {
    let mut reader = Reader::new(bytes);
    let known = match reader.nullable_string().flatten() {
        Some(class) if class.starts_with(URI_CLASSES) => {
            Uri::read(&mut reader).ok().flatten().map(Value::Uri)
        }
        Some(class) if class == COMPONENT_CLASS => {
            ComponentName::read(&mut reader).ok().flatten().map(Value::Component)
        }
        _ => None,
    };
    let raw = || Value::Raw { kind: kind::PARCELABLE, bytes: bytes.to_vec() };
    known.filter(|_| reader.is_empty()).unwrap_or_else(raw)
}
