//! java.lang.String and java.nio.charset.Charsets

use super::values::{VOID, bytes, char_range, check_range, non_null};
use crate::exception::OrThrow;
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::string;
use crate::vm::{Native, Thread, Thrown};

const CHARSETS: &str = "Ljava/nio/charset/Charsets;";

pub(super) const TABLE: &[Native] = &[
    ("Ljava/lang/String;", "intern", "()Ljava/lang/String;", |t, a| {
        let units = string::units(t, a.reference(0));
        Ok(Value::Ref(string::intern(t, &units).or_throw(t)?))
    }),
    (CHARSETS, "asciiBytesToChars", "([BII[C)V", |t, a| {
        widen(t, a, |byte| if byte < 0x80 { u16::from(byte) } else { 0xfffd })
    }),
    (CHARSETS, "isoLatin1BytesToChars", "([BII[C)V", |t, a| widen(t, a, u16::from)),
    (CHARSETS, "toAsciiBytes", "([CII)[B", |t, a| narrow(t, a, 0x7f)),
    (CHARSETS, "toIsoLatin1Bytes", "([CII)[B", |t, a| narrow(t, a, 0xff)),
    (CHARSETS, "toUtf8Bytes", "([CII)[B", |t, a| {
        let units = char_range(t, a.reference(0), a.int(1), a.int(2))?;
        Ok(Value::Ref(bytes(t, &utf8(&units))?))
    }),
];

/// Stores bytes as characters at the start of an array.
fn widen(t: &Thread, a: Args, of: impl Fn(u8) -> u16) -> Result<Value, Thrown> {
    let (from, offset, count, to): (Ref, _, _, Ref) =
        (a.reference(0), a.int(1), a.int(2), a.reference(3));
    check_range(t, from, offset, count)?;
    check_range(t, non_null(t, to, "chars")?, 0, count)?;
    for index in 0..count as u32 {
        to.set_u16(index, of(from.get_i8(offset as u32 + index) as u8));
    }
    VOID
}

/// Bytes of characters up to `most`; others become question marks.
fn narrow(t: &Thread, a: Args, most: u16) -> Result<Value, Thrown> {
    let units = char_range(t, a.reference(0), a.int(1), a.int(2))?;
    let narrow = units.iter().map(|&unit| if unit <= most { unit as u8 } else { b'?' });
    Ok(Value::Ref(bytes(t, &narrow.collect::<Vec<_>>())?))
}

/// UTF-8 with a question mark for each surrogate that has no partner.
fn utf8(units: &[u16]) -> Vec<u8> {
    let decoded = char::decode_utf16(units.iter().copied()).map(|c| c.unwrap_or('?'));
    decoded.collect::<String>().into_bytes()
}
