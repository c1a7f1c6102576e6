//! libcore.icu.NativeNormalizer: Unicode's normal forms

use super::values::{boolean, units, utf16};
use crate::stack::{Args, Value};
use crate::string;
use crate::vm::{Native, Thread, Thrown};
use unicode_normalization::UnicodeNormalization;

const NORMALIZER: &str = "Llibcore/icu/NativeNormalizer;";

pub(super) const TABLE: &[Native] = &[
    (NORMALIZER, "normalizeImpl", "(Ljava/lang/String;I)Ljava/lang/String;", |t, a| {
        let normalized = normalized(t, a)?;
        Ok(Value::Ref(utf16(t, &normalized)?))
    }),
    (NORMALIZER, "isNormalizedImpl", "(Ljava/lang/String;I)Z", |t, a| {
        boolean(normalized(t, a)? == units(t, a.reference(0))?)
    }),
];

/// The first argument in the form of the second one, whose number is ICU's.
fn normalized(t: &Thread, a: Args) -> Result<Vec<u16>, Thrown> {
    let form = a.int(1);
    Ok(string::map_valid(&units(t, a.reference(0))?, |text| match form {
        2 => text.nfd().collect(),
        3 => text.nfkd().collect(),
        4 => text.nfc().collect(),
        _ => text.nfkc().collect(),
    }))
}
