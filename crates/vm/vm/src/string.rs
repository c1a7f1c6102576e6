//! java.lang.String: UTF-16 units in a char[] with offset and count.

use crate::allocation::{self, OutOfMemory};
use crate::cards::note_root;
use crate::object::{Kind, Ref};
use crate::vm::Thread;

/// Makes a string. The caller keeps it.
///
/// # Errors
/// The heap is full.
pub fn from_utf16(t: &Thread, units: &[u16]) -> Result<Ref, OutOfMemory> {
    let known = t.vm.known();
    t.scope(|| {
        let chars = t.keep(allocation::array(t, known.array_of(Kind::Char), units.len() as u32)?);
        for (index, unit) in units.iter().enumerate() {
            chars.set_u16(index as u32, *unit);
        }
        let string = allocation::instance(t, known.string)?;
        known.string_value.set_ref(string, chars);
        known.string_count.set32(string, units.len() as u32);
        Ok(string)
    })
}

/// Makes a string. The caller keeps it.
///
/// # Errors
/// The heap is full.
pub fn new(t: &Thread, text: &str) -> Result<Ref, OutOfMemory> {
    from_utf16(t, &text.encode_utf16().collect::<Vec<_>>())
}

/// The units of a string.
///
/// # Panics
/// If the object is no string.
pub fn units(t: &Thread, string: Ref) -> Vec<u16> {
    let known = t.vm.known();
    let value = known.string_value.get_ref(string);
    let offset = known.string_offset.get32(string);
    let count = known.string_count.get32(string);
    (offset..offset + count).map(|index| value.get_u16(index)).collect()
}

/// A string's text; what is no valid UTF-16 is replaced.
///
/// # Panics
/// If the object is no string.
pub fn to_rust(t: &Thread, string: Ref) -> String {
    String::from_utf16_lossy(&units(t, string))
}

/// The one string with these units that constants and String.intern give. It is never freed.
///
/// # Errors
/// The heap is full.
pub fn intern(t: &Thread, units: &[u16]) -> Result<Ref, OutOfMemory> {
    if let Some(string) = t.lock(&t.vm.strings).get(units) {
        return Ok(*string);
    }
    let string = from_utf16(t, units)?;
    // Another thread may have been first.
    note_root(string.address());
    Ok(*t.lock(&t.vm.strings).entry(units.into()).or_insert(string))
}

/// Maps the valid parts of a text; surrogates that stand alone stay.
pub fn map_valid(of: &[u16], with: impl Fn(&str) -> String) -> Vec<u16> {
    let mut out = Vec::with_capacity(of.len());
    let mut part = String::new();
    for c in char::decode_utf16(of.iter().copied()) {
        match c {
            Ok(c) => part.push(c),
            Err(alone) => {
                out.extend(with(&part).encode_utf16());
                part.clear();
                out.push(alone.unpaired_surrogate());
            }
        }
    }
    out.extend(with(&part).encode_utf16());
    out
}
