//! Android's `Intent`, `IntentFilter` and `Bundle`, as far as the program of broadcasts has them:
//! an action, flags, a priority, and extras that are text. In the parcel layout of Android 16.

use rsbinder::{Parcel, Parcelable, Result, StatusCode};
use rsbinder::{impl_deserialize_for_parcelable, impl_serialize_for_parcelable};
use std::collections::BTreeMap;

const BUNDLE_MAGIC: i32 = i32::from_le_bytes(*b"BNDL");
/// The type of a value that is text.
const TEXT: i32 = 0;
const CURRENT_USER: i32 = -2;

/// Texts by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle(pub BTreeMap<String, String>);

/// What is broadcast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    pub action: String,
    pub flags: i32,
    pub extras: Bundle,
}

/// The broadcasts that a receiver gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentFilter {
    pub action: Option<String>,
    pub priority: i32,
}

impl_serialize_for_parcelable!(Bundle);
impl_deserialize_for_parcelable!(Bundle);
impl_serialize_for_parcelable!(Intent);
impl_deserialize_for_parcelable!(Intent);
impl_serialize_for_parcelable!(IntentFilter);
impl_deserialize_for_parcelable!(IntentFilter);

/// Fails unless the next word is this one: this program has no type for anything else.
fn expect(parcel: &mut Parcel, word: i32) -> Result<()> {
    if parcel.read_i32()? == word { Ok(()) } else { Err(StatusCode::BadType) }
}

/// Writes a string in UTF-8.
fn write_string8(parcel: &mut Parcel, text: &str) -> Result<()> {
    parcel.write_i32(text.len() as i32)?;
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((text.len() + 1).next_multiple_of(4), 0);
    bytes
        .chunks_exact(4)
        .try_for_each(|it| parcel.write_i32(i32::from_le_bytes([it[0], it[1], it[2], it[3]])))
}

/// Reads a string in UTF-8 that is not null.
fn read_string8(parcel: &mut Parcel) -> Result<String> {
    let length = usize::try_from(parcel.read_i32()?).map_err(|_| StatusCode::UnexpectedNull)?;
    let mut bytes = Vec::new();
    while bytes.len() <= length {
        bytes.extend(parcel.read_i32()?.to_le_bytes());
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| StatusCode::BadValue)
}

impl Parcelable for Bundle {
    fn write_to_parcel(&self, parcel: &mut Parcel) -> Result<()> {
        let begin = parcel.data_position();
        parcel.write_i32(0)?;
        if self.0.is_empty() {
            return Ok(());
        }
        parcel.write_i32(BUNDLE_MAGIC)?;
        let map = parcel.data_position();
        parcel.write_i32(self.0.len() as i32)?;
        for (key, value) in &self.0 {
            parcel.write(key)?;
            parcel.write_i32(TEXT)?;
            parcel.write(value)?;
        }
        let end = parcel.data_position();
        parcel.set_data_position(begin);
        parcel.write_i32((end - map) as i32)?;
        parcel.set_data_position(end);
        // Has an intent.
        parcel.write_i32(0)
    }

    fn read_from_parcel(&mut self, parcel: &mut Parcel) -> Result<()> {
        self.0.clear();
        if parcel.read_i32()? <= 0 {
            return Ok(());
        }
        expect(parcel, BUNDLE_MAGIC)?;
        for _ in 0..parcel.read_i32()? {
            let key: String = parcel.read()?;
            expect(parcel, TEXT)?;
            self.0.insert(key, parcel.read()?);
        }
        expect(parcel, 0)
    }
}

impl Parcelable for Intent {
    fn write_to_parcel(&self, parcel: &mut Parcel) -> Result<()> {
        write_string8(parcel, &self.action)?;
        // Data; MIME type; identifier; flags; package; component; source bounds; categories;
        // selector; clip data; the user.
        for word in [0, -1, -1, self.flags, 0, -1, -1, 0, 0, 0, 0, CURRENT_USER] {
            parcel.write_i32(word)?;
        }
        self.extras.write_to_parcel(parcel)?;
        // The original intent; creator token.
        parcel.write_i32(0)?;
        parcel.write_i32(0)
    }

    fn read_from_parcel(&mut self, parcel: &mut Parcel) -> Result<()> {
        self.action = read_string8(parcel)?;
        [0, -1, -1].into_iter().try_for_each(|word| expect(parcel, word))?;
        self.flags = parcel.read_i32()?;
        for word in [0, -1, -1, 0, 0, 0, 0, CURRENT_USER] {
            expect(parcel, word)?;
        }
        self.extras.read_from_parcel(parcel)?;
        expect(parcel, 0)?;
        expect(parcel, 0)
    }
}

impl Parcelable for IntentFilter {
    fn write_to_parcel(&self, parcel: &mut Parcel) -> Result<()> {
        parcel.write_i32(self.action.iter().len() as i32)?;
        self.action.iter().try_for_each(|action| parcel.write(action))?;
        // Categories, schemes, MIME types twice, MIME groups; parts, authorities, paths.
        (0..8).try_for_each(|_| parcel.write_i32(0))?;
        parcel.write_i32(self.priority)?;
        // Marks, the order, extras, groups of URIs.
        (0..7).try_for_each(|_| parcel.write_i32(0))
    }

    /// A receiver's filter goes to the service, and never back.
    fn read_from_parcel(&mut self, _: &mut Parcel) -> Result<()> {
        Err(StatusCode::InvalidOperation)
    }
}
