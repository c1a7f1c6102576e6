//! Typed values by their keys, in the layout of Android's `Bundle`.

use super::decode::DecodeError;
use baton::Parcel;
use baton::android::Reader;
use std::collections::BTreeMap;

/// Typed values by their keys.
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
    /// A float.
    Float(f32),
    /// A double.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// A bundle.
    Bundle(Bundle),
    /// Bytes.
    ByteArray(Vec<u8>),
    /// Numbers of 32 bits.
    IntArray(Vec<i32>),
    /// Numbers of 64 bits.
    LongArray(Vec<i64>),
    /// Texts, each of which may be null.
    StringArray(Vec<Option<String>>),
}

impl Bundle {
    /// An empty bundle.
    pub fn new() -> Bundle {
        Bundle::default()
    }

    /// Sets the value of a key and returns the one before.
    pub fn put(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.entries.insert(key.into(), value.into())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// Writes the bundle in Android's layout.
    pub fn write(&self, _parcel: &mut Parcel) {
        todo!()
    }

    /// Reads a bundle in Android's layout.
    ///
    /// # Errors
    /// The writer's fault: see [`DecodeError`].
    pub fn read(_reader: &mut Reader<'_>) -> Result<Bundle, DecodeError> {
        todo!()
    }
}
