//! java.lang.Character: Unicode's properties

use super::values::{Outcome, boolean};
use crate::stack::Value;
use crate::vm::Native;
use icu_properties::props::{BidiClass, BidiMirrored, Ideographic};
use icu_properties::{CodePointMapData, CodePointSetData};
use unicode_general_category::{GeneralCategory as Gc, get_general_category};

const CHARACTER: &str = "Ljava/lang/Character;";

pub(super) const TABLE: &[Native] = &[
    (CHARACTER, "digitImpl", "(II)I", |_, a| Ok(Value::Int(digit(a.int(0), a.int(1))))),
    (CHARACTER, "getNumericValueImpl", "(I)I", |_, a| Ok(Value::Int(numeric(a.int(0))))),
    (CHARACTER, "getDirectionalityImpl", "(I)B", |_, a| Ok(Value::Int(direction(a.int(0))))),
    (CHARACTER, "getTypeImpl", "(I)I", |_, a| Ok(Value::Int(icu_type(a.int(0))))),
    (CHARACTER, "isAlphabetic", "(I)Z", |_, a| holds(a.int(0), char::is_alphabetic)),
    (CHARACTER, "isDefinedImpl", "(I)Z", |_, a| boolean(java_type(a.int(0)) != 0)),
    (CHARACTER, "isDigitImpl", "(I)Z", |_, a| boolean(java_type(a.int(0)) == 9)),
    (CHARACTER, "isIdentifierIgnorableImpl", "(I)Z", |_, a| boolean(is_ignorable(a.int(0)))),
    (CHARACTER, "isLetterImpl", "(I)Z", |_, a| boolean(is_letter(a.int(0)))),
    (CHARACTER, "isLetterOrDigitImpl", "(I)Z", |_, a| {
        boolean(is_letter(a.int(0)) || java_type(a.int(0)) == 9)
    }),
    (CHARACTER, "isLowerCaseImpl", "(I)Z", |_, a| holds(a.int(0), char::is_lowercase)),
    (CHARACTER, "isUpperCaseImpl", "(I)Z", |_, a| holds(a.int(0), char::is_uppercase)),
    (CHARACTER, "isTitleCaseImpl", "(I)Z", |_, a| boolean(java_type(a.int(0)) == 3)),
    (CHARACTER, "isIdeographic", "(I)Z", |_, a| {
        holds(a.int(0), |c| CodePointSetData::new::<Ideographic>().contains(c))
    }),
    (CHARACTER, "isMirroredImpl", "(I)Z", |_, a| {
        holds(a.int(0), |c| CodePointSetData::new::<BidiMirrored>().contains(c))
    }),
    (CHARACTER, "isSpaceCharImpl", "(I)Z", |_, a| {
        boolean((12..=14).contains(&java_type(a.int(0))))
    }),
    (CHARACTER, "isUnicodeIdentifierPartImpl", "(I)Z", |_, a| {
        let c = a.int(0);
        let part = is_letter(c) || matches!(java_type(c), 6 | 8 | 9 | 10 | 23);
        boolean(part || is_ignorable(c))
    }),
    (CHARACTER, "isUnicodeIdentifierStartImpl", "(I)Z", |_, a| {
        boolean(is_letter(a.int(0)) || java_type(a.int(0)) == 10)
    }),
    (CHARACTER, "isWhitespaceImpl", "(I)Z", |_, a| {
        let c = a.int(0);
        let breaks = matches!(c, 0x09..=0x0d | 0x1c..=0x1f);
        let kept = matches!(c, 0xa0 | 0x2007 | 0x202f);
        boolean(breaks || !kept && (12..=14).contains(&java_type(c)))
    }),
    (CHARACTER, "toLowerCaseImpl", "(I)I", |_, a| Ok(Value::Int(mapped(a.int(0), lower)))),
    (CHARACTER, "toUpperCaseImpl", "(I)I", |_, a| Ok(Value::Int(mapped(a.int(0), upper)))),
    (CHARACTER, "toTitleCaseImpl", "(I)I", |_, a| {
        // The digraphs that have a title case of their own.
        Ok(Value::Int(mapped(a.int(0), |c| match c {
            '\u{1c4}'..='\u{1c6}' => Some('\u{1c5}'),
            '\u{1c7}'..='\u{1c9}' => Some('\u{1c8}'),
            '\u{1ca}'..='\u{1cc}' => Some('\u{1cb}'),
            '\u{1f1}'..='\u{1f3}' => Some('\u{1f2}'),
            // Georgian letters have capitals, which titles do not use.
            '\u{10d0}'..='\u{10ff}' => None,
            _ => upper(c),
        })))
    }),
];

fn holds(c: i32, property: fn(char) -> bool) -> Outcome {
    boolean(character(c).is_some_and(property))
}

fn character(c: i32) -> Option<char> {
    char::from_u32(c as u32)
}

fn mapped(c: i32, of: impl Fn(char) -> Option<char>) -> i32 {
    character(c).and_then(of).map_or(c, |mapped| mapped as i32)
}

/// The only character of a mapping.
fn single(mut mapping: impl Iterator<Item = char>) -> Option<char> {
    mapping.next().filter(|_| mapping.next().is_none())
}

/// Java's mapping to one character. The full one of this letter has two.
fn lower(c: char) -> Option<char> {
    if c == '\u{130}' { Some('i') } else { single(c.to_lowercase()) }
}

/// Java's mapping to one character. The full one of Greek letters with iota below has two.
fn upper(c: char) -> Option<char> {
    let distance = match c {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => 8,
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => 9,
        _ => return single(c.to_uppercase()),
    };
    char::from_u32(c as u32 + distance)
}

/// Bidirectional classes by ICU's number, which Java maps to its own
const BIDI_CLASSES: [BidiClass; 19] = [
    BidiClass::LeftToRight,
    BidiClass::RightToLeft,
    BidiClass::EuropeanNumber,
    BidiClass::EuropeanSeparator,
    BidiClass::EuropeanTerminator,
    BidiClass::ArabicNumber,
    BidiClass::CommonSeparator,
    BidiClass::ParagraphSeparator,
    BidiClass::SegmentSeparator,
    BidiClass::WhiteSpace,
    BidiClass::OtherNeutral,
    BidiClass::LeftToRightEmbedding,
    BidiClass::LeftToRightOverride,
    BidiClass::ArabicLetter,
    BidiClass::RightToLeftEmbedding,
    BidiClass::RightToLeftOverride,
    BidiClass::PopDirectionalFormat,
    BidiClass::NonspacingMark,
    BidiClass::BoundaryNeutral,
];

/// The number of a character's class. Unassigned characters, and classes that
/// Java came to know later, have none.
fn direction(c: i32) -> i32 {
    if java_type(c) == 0 {
        return -1;
    }
    let class = CodePointMapData::<BidiClass>::new().get32(c as u32);
    BIDI_CLASSES.iter().position(|it| *it == class).map_or(-1, |number| number as i32)
}

fn is_letter(c: i32) -> bool {
    (1..=5).contains(&java_type(c))
}

fn is_ignorable(c: i32) -> bool {
    matches!(c, 0..=8 | 0x0e..=0x1b | 0x7f..=0x9f) || java_type(c) == 16
}

/// The category by ICU's number. The library adds 1 to those above 16, as Java skips 17.
fn icu_type(c: i32) -> i32 {
    let number = java_type(c);
    if number > 16 { number - 1 } else { number }
}

/// The category by Java's number.
fn java_type(c: i32) -> i32 {
    let Some(c) = character(c) else {
        return if (0xd800..=0xdfff).contains(&c) { 19 } else { 0 };
    };
    match get_general_category(c) {
        Gc::UppercaseLetter => 1,
        Gc::LowercaseLetter => 2,
        Gc::TitlecaseLetter => 3,
        Gc::ModifierLetter => 4,
        Gc::OtherLetter => 5,
        Gc::NonspacingMark => 6,
        Gc::EnclosingMark => 7,
        Gc::SpacingMark => 8,
        Gc::DecimalNumber => 9,
        Gc::LetterNumber => 10,
        Gc::OtherNumber => 11,
        Gc::SpaceSeparator => 12,
        Gc::LineSeparator => 13,
        Gc::ParagraphSeparator => 14,
        Gc::Control => 15,
        Gc::Format => 16,
        Gc::PrivateUse => 18,
        Gc::Surrogate => 19,
        Gc::DashPunctuation => 20,
        Gc::OpenPunctuation => 21,
        Gc::ClosePunctuation => 22,
        Gc::ConnectorPunctuation => 23,
        Gc::OtherPunctuation => 24,
        Gc::MathSymbol => 25,
        Gc::CurrencySymbol => 26,
        Gc::ModifierSymbol => 27,
        Gc::OtherSymbol => 28,
        Gc::InitialPunctuation => 29,
        Gc::FinalPunctuation => 30,
        _ => 0,
    }
}

/// The value of a decimal digit. Digits of a script stand together, ten from zero to nine.
fn decimal(c: i32) -> Option<i32> {
    if java_type(c) != 9 {
        return None;
    }
    // Runs of several tens begin at a multiple of ten from their first member.
    let mut first = c;
    while java_type(first - 1) == 9 {
        first -= 1;
    }
    Some((c - first) % 10)
}

fn letter_value(c: i32) -> Option<i32> {
    match c {
        0x41..=0x5a => Some(c - 0x41 + 10),
        0x61..=0x7a => Some(c - 0x61 + 10),
        0xff21..=0xff3a => Some(c - 0xff21 + 10),
        0xff41..=0xff5a => Some(c - 0xff41 + 10),
        _ => None,
    }
}

fn digit(c: i32, radix: i32) -> i32 {
    let value = decimal(c).or_else(|| letter_value(c));
    value.filter(|value| (2..=36).contains(&radix) && *value < radix).unwrap_or(-1)
}

/// Numbers of Latin and East Asian texts that are no decimal digits: the first and last character,
/// the first one's value, and the step to the next one's.
const COUNTED: &[(i32, i32, i32, i32)] = &[
    (0x00b2, 0x00b3, 2, 1),
    (0x00b9, 0x00b9, 1, 1),
    (0x2070, 0x2070, 0, 1),
    (0x2074, 0x2079, 4, 1),
    (0x2080, 0x2089, 0, 1),
    (0x215f, 0x215f, 1, 1),
    (0x2160, 0x216b, 1, 1),
    (0x216c, 0x216d, 50, 50),
    (0x216e, 0x216f, 500, 500),
    (0x2170, 0x217b, 1, 1),
    (0x217c, 0x217d, 50, 50),
    (0x217e, 0x217f, 500, 500),
    (0x2180, 0x2181, 1000, 4000),
    (0x2182, 0x2182, 10000, 1),
    (0x2185, 0x2186, 6, 44),
    (0x2187, 0x2188, 50000, 50000),
    (0x2189, 0x2189, 0, 1),
    (0x2460, 0x2473, 1, 1),
    (0x2474, 0x2487, 1, 1),
    (0x2488, 0x249b, 1, 1),
    (0x24ea, 0x24ea, 0, 1),
    (0x24eb, 0x24f4, 11, 1),
    (0x24f5, 0x24fe, 1, 1),
    (0x24ff, 0x24ff, 0, 1),
    (0x2776, 0x277f, 1, 1),
    (0x2780, 0x2789, 1, 1),
    (0x278a, 0x2793, 1, 1),
    (0x3007, 0x3007, 0, 1),
    (0x3021, 0x3029, 1, 1),
    (0x3038, 0x303a, 10, 10),
    (0x3192, 0x3195, 1, 1),
    (0x3220, 0x3229, 1, 1),
    (0x3248, 0x324f, 10, 10),
    (0x3251, 0x325f, 21, 1),
    (0x3280, 0x3289, 1, 1),
    (0x32b1, 0x32bf, 36, 1),
];

fn numeric(c: i32) -> i32 {
    let counted = COUNTED.iter().find(|(first, last, ..)| (*first..=*last).contains(&c));
    let counted = counted.map(|(first, _, value, step)| value + (c - first) * step);
    // Numbers that are no integers
    let fraction = matches!(c, 0xbc..=0xbe | 0x2150..=0x215e).then_some(-2);
    let value = decimal(c).or_else(|| letter_value(c));
    value.or(counted).or(fraction).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_java_s() {
        assert_eq!((digit(0x37, 8), digit(0x38, 8), digit(0x7a, 36)), (7, -1, 35));
        assert_eq!(digit(0x0665, 10), 5);
        assert_eq!((java_type(0xd800), java_type(0x41), java_type(0x10_ffff)), (19, 1, 0));
        assert_eq!((numeric(0x2167), numeric(0xbd), numeric(0x24)), (8, -2, -1));
        assert_eq!((direction(0x41), direction(0x5d0), direction(0x20)), (0, 1, 9));
    }
}
