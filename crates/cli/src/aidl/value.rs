//! Values of AIDL's types as JSON, which is how the user writes and reads them.
//!
//! | type | JSON |
//! |---|---|
//! | boolean, numbers | true, false, numbers; `"NaN"`, `"inf"` and `"-inf"` of a float or double |
//! | char | a string of one UTF-16 unit, or that unit's number |
//! | String | a string |
//! | enumeration | a name; the number of a value without a name |
//! | array, List | an array |
//! | parcelable | an object with a member for each field |
//! | union | an object with one member |
//! | IBinder, interface | the name of a service; of a reply the interface's descriptor |
//! | ParcelFileDescriptor | a path |
//! | null of any type that may be null | null |

use super::error::AidlError;
use super::interface::{Sources, Type, Typed};
use super::syntax::{Body, Field};
use serde_json::{Number, Value as Json};

/// The JSON that a word of the command line stands for. A word is what the user would write for a
/// plain value, and JSON for one of several parts.
pub fn of_word(typed: &Typed, word: &str) -> Json {
    if word == "null" && (typed.nullable || matches!(typed.kind, Type::Object(_))) {
        return Json::Null;
    }
    let plain = || Json::from(word);
    let parsed = || serde_json::from_str(word).unwrap_or_else(|_| plain());
    match &typed.kind {
        // A quoted "null" is no null.
        Type::String if typed.nullable && word.starts_with('"') => parsed(),
        Type::String | Type::File | Type::Object(_) => plain(),
        Type::Char if word.encode_utf16().count() == 1 => plain(),
        Type::Float | Type::Double => word.parse().map_or_else(|_| plain(), real),
        Type::Byte | Type::Char | Type::Int | Type::Long | Type::Enumeration(_) => {
            integer(word).map_or_else(plain, Json::from)
        }
        Type::Boolean | Type::Parcelable(_) | Type::Union(_) | Type::Array(..) => parsed(),
    }
}

fn integer(word: &str) -> Option<i64> {
    match word.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// A number of any size, by words where JSON has no number.
pub fn real(number: f64) -> Json {
    Number::from_f64(number).map_or_else(|| Json::from(number.to_string()), Json::from)
}

/// A float, with as many digits as tell it from its neighbours.
pub fn short_real(number: f32) -> Json {
    real(number.to_string().parse().unwrap_or_else(|_| f64::from(number)))
}

/// The number that JSON says, also by words.
pub fn to_real(json: &Json) -> Option<f64> {
    json.as_f64().or_else(|| json.as_str().and_then(|word| word.parse().ok()))
}

/// The UTF-16 unit that JSON says.
pub fn to_unit(json: &Json) -> Option<u16> {
    if let Some(number) = json.as_u64() {
        return u16::try_from(number).ok();
    }
    let mut units = json.as_str()?.encode_utf16();
    units.next().filter(|_| units.next().is_none())
}

/// A UTF-16 unit as JSON.
pub fn unit(unit: u16) -> Json {
    let letter = char::from_u32(u32::from(unit));
    letter.map_or_else(|| Json::from(unit), |letter| Json::from(letter.to_string()))
}

/// What JSON a type takes, in words.
pub fn expected(sources: &Sources, typed: &Typed) -> String {
    let names = |fields: &[Field]| {
        fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let text = match &typed.kind {
        Type::Boolean => "boolean (true or false)".to_owned(),
        Type::Byte => format!("byte ({} to {})", i8::MIN, i8::MAX),
        Type::Char => "char (one UTF-16 unit, or its number)".to_owned(),
        Type::Int => format!("int ({} to {})", i32::MIN, i32::MAX),
        Type::Long => format!("long ({} to {})", i64::MIN, i64::MAX),
        Type::Float => "float".to_owned(),
        Type::Double => "double".to_owned(),
        Type::String => "String".to_owned(),
        Type::Object(_) => "an object: null, or the name of a service".to_owned(),
        Type::File => "a file: the path of one that can be read".to_owned(),
        Type::Enumeration(declared) => {
            let values =
                sources.enumeration(declared).map(|(_, values)| values).unwrap_or_default();
            let names: Vec<_> = values.into_iter().map(|(name, _)| name).collect();
            format!("{} ({})", declared.name, names.join(", "))
        }
        Type::Parcelable(declared) | Type::Union(declared) => match &declared.body {
            Body::Union(fields) => {
                format!("{}: a JSON object with one of {}", declared.name, names(fields))
            }
            Body::Parcelable(fields) => {
                format!("{}: a JSON object with {}", declared.name, names(fields))
            }
            _ => declared.name.clone(),
        },
        Type::Array(element, length) => {
            let length = length.map_or_else(String::new, |length| format!(" of {length}"));
            format!("a JSON array{length}, each {}", expected(sources, element))
        }
    };
    if typed.nullable { format!("{text}, or null") } else { text }
}

/// The error of a value that is none of its type.
pub fn mismatch(sources: &Sources, typed: &Typed, found: impl std::fmt::Display) -> AidlError {
    let (expected, found) = (expected(sources, typed), found.to_string());
    AidlError::Mismatch { place: String::new(), expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_become_json_by_the_type() {
        let typed = |kind, nullable| Typed { kind, nullable };
        let array = || Type::Array(Box::new(typed(Type::Int, false)), None);
        for (kind, nullable, word, value) in [
            (Type::Boolean, false, "true", json!(true)),
            (Type::Int, false, "-7", json!(-7)),
            (Type::Int, false, "0x10", json!(16)),
            (Type::Int, false, "seven", json!("seven")),
            (Type::Char, false, "7", json!("7")),
            (Type::Char, false, "65", json!(65)),
            (Type::Double, false, "1e3", json!(1000.0)),
            (Type::Double, false, "NaN", json!("NaN")),
            (Type::String, false, "null", json!("null")),
            (Type::String, true, "null", json!(null)),
            (Type::String, true, "\"null\"", json!("null")),
            (Type::String, false, "\"a\"", json!("\"a\"")),
            (Type::Object(None), false, "null", json!(null)),
            (array(), false, "[1, 2]", json!([1, 2])),
            (array(), true, "null", json!(null)),
            (array(), false, "[1,", json!("[1,")),
        ] {
            assert_eq!(of_word(&typed(kind.clone(), nullable), word), value, "{kind:?} {word}");
        }
    }

    #[test]
    fn numbers_beyond_json_have_words() {
        assert_eq!(real(f64::NEG_INFINITY), json!("-inf"));
        assert_eq!(to_real(&json!("-inf")), Some(f64::NEG_INFINITY));
        assert_eq!(to_real(&json!("many")), None);
        assert_eq!(short_real(0.1), json!(0.1));
        assert_eq!((to_unit(&json!("a")), to_unit(&json!("ab"))), (Some(97), None));
        assert_eq!((unit(97), unit(0xd800)), (json!("a"), json!(0xd800)));
        assert_eq!(to_unit(&json!(65536)), None);
    }
}
