//! libcore.icu.NativeDecimalFormat: numbers by a pattern, and back

mod decimal;
mod format;

use self::decimal::{Decimal, Rounding};
use self::format::{Format, Formatted, Symbols};
use super::handles::Handles;
use super::values::{
    Outcome, VOID, chars, construct, field, non_null, primitives, rust, text, throw,
};
use crate::object::{Kind, Ref};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use std::sync::{Arc, Mutex};

const FORMAT: &str = "Llibcore/icu/NativeDecimalFormat;";
const ITERATOR: &str = "Llibcore/icu/NativeDecimalFormat$FieldPositionIterator;";

static FORMATS: Handles<Mutex<Format>> = Handles::new();

/// The parameters that are symbols.
macro_rules! symbols_signature {
    () => {
        concat!(
            "Ljava/lang/String;CCLjava/lang/String;CLjava/lang/String;",
            "Ljava/lang/String;CCLjava/lang/String;CCCC"
        )
    };
}

/// The signature of a method that formats a value of a type.
macro_rules! concat_signature {
    ($type:literal) => {
        concat!("(J", $type, "Llibcore/icu/NativeDecimalFormat$FieldPositionIterator;)[C")
    };
}

pub(super) const TABLE: &[Native] = &[
    (FORMAT, "open", concat!("(Ljava/lang/String;", symbols_signature!(), ")J"), |t, a| {
        let pattern = rust(t, a.reference(0))?;
        let mut format = Format::new(symbols(t, a, 1)?, Rounding::HalfEven);
        format.apply(&pattern).map_err(|message| illegal(t, &message))?;
        Ok(Value::Long(FORMATS.add(Arc::new(Mutex::new(format)))))
    }),
    (FORMAT, "close", "(J)V", |_, a| {
        FORMATS.remove(a.long(0));
        VOID
    }),
    (FORMAT, "cloneImpl", "(J)J", |t, a| {
        let copy = with(t, a, |format| format.clone())?;
        Ok(Value::Long(FORMATS.add(Arc::new(Mutex::new(copy)))))
    }),
    (FORMAT, "setDecimalFormatSymbols", concat!("(J", symbols_signature!(), ")V"), |t, a| {
        let symbols = symbols(t, a, 2)?;
        with(t, a, |format| format.symbols = symbols)?;
        VOID
    }),
    (FORMAT, "setSymbol", "(JILjava/lang/String;)V", |t, a| {
        let value = rust(t, a.reference(3))?;
        with(t, a, |format| match a.int(2) {
            8 => format.symbols.currency = value,
            11 => format.symbols.exponent = value,
            14 => format.symbols.infinity = value,
            15 => format.symbols.nan = value,
            _ => {}
        })?;
        VOID
    }),
    (FORMAT, "applyPatternImpl", "(JZLjava/lang/String;)V", |t, a| {
        let pattern = rust(t, a.reference(3))?;
        let applied = with(t, a, |format| format.apply(&pattern))?;
        applied.map_err(|message| illegal(t, &message))?;
        VOID
    }),
    (FORMAT, "toPatternImpl", "(JZ)Ljava/lang/String;", |t, a| {
        let pattern = with(t, a, |format| format.pattern())?;
        Ok(Value::Ref(text(t, &pattern)?))
    }),
    (FORMAT, "setRoundingMode", "(JID)V", |t, a| {
        const MODES: [Rounding; 7] = [
            Rounding::Ceiling,
            Rounding::Floor,
            Rounding::Down,
            Rounding::Up,
            Rounding::HalfEven,
            Rounding::HalfDown,
            Rounding::HalfUp,
        ];
        let mode = MODES.get(a.int(2) as usize).copied().unwrap_or(Rounding::HalfEven);
        with(t, a, |format| format.rounding = mode)?;
        VOID
    }),
    (FORMAT, "getAttribute", "(JI)I", |t, a| {
        let value = with(t, a, |format| match a.int(2) {
            0 => i32::from(format.integer_only),
            1 => i32::from(format.uses_grouping),
            2 => i32::from(format.always_decimal),
            3 => format.max_integer as i32,
            4 => format.min_integer as i32,
            6 => format.max_fraction as i32,
            7 => format.min_fraction as i32,
            9 => format.multiplier,
            10 => format.grouping as i32,
            _ => 0,
        })?;
        Ok(Value::Int(value))
    }),
    (FORMAT, "setAttribute", "(JII)V", |t, a| {
        let value = a.int(3);
        let count = value.max(0) as usize;
        with(t, a, |format| match a.int(2) {
            0 => format.integer_only = value != 0,
            1 => format.uses_grouping = value != 0,
            2 => format.always_decimal = value != 0,
            3 => (format.max_integer, format.min_integer) = (count, format.min_integer.min(count)),
            4 => (format.min_integer, format.max_integer) = (count, format.max_integer.max(count)),
            6 => {
                (format.max_fraction, format.min_fraction) = (count, format.min_fraction.min(count))
            }
            7 => {
                (format.min_fraction, format.max_fraction) = (count, format.max_fraction.max(count))
            }
            9 => format.multiplier = value,
            10 => format.grouping = count,
            _ => {}
        })?;
        VOID
    }),
    (FORMAT, "getTextAttribute", "(JI)Ljava/lang/String;", |t, a| {
        let value = with(t, a, |format| match a.int(2) {
            0 => format.positive.0.clone(),
            1 => format.positive.1.clone(),
            2 => format.negative.0.clone(),
            3 => format.negative.1.clone(),
            _ => String::new(),
        })?;
        Ok(Value::Ref(text(t, &value)?))
    }),
    (FORMAT, "setTextAttribute", "(JILjava/lang/String;)V", |t, a| {
        let value = rust(t, a.reference(3))?;
        with(t, a, |format| match a.int(2) {
            0 => format.positive.0 = value,
            1 => format.positive.1 = value,
            2 => format.negative.0 = value,
            3 => format.negative.1 = value,
            _ => {}
        })?;
        VOID
    }),
    (FORMAT, "formatLong", concat_signature!("J"), |t, a| {
        let number = Decimal::parse(&a.long(2).to_string()).expect("a number");
        let formatted = with(t, a, |format| format.format(number))?;
        give(t, formatted, a.reference(4))
    }),
    (FORMAT, "formatDouble", concat_signature!("D"), |t, a| {
        let value = a.double(2);
        let formatted = with(t, a, |format| {
            format.special(value).unwrap_or_else(|| format.format(Decimal::of_double(value)))
        })?;
        give(t, formatted, a.reference(4))
    }),
    (FORMAT, "formatDigitList", concat_signature!("Ljava/lang/String;"), |t, a| {
        let digits = rust(t, a.reference(2))?;
        let number = Decimal::parse(&digits).ok_or_else(|| illegal(t, &digits))?;
        let formatted = with(t, a, |format| format.format(number))?;
        give(t, formatted, a.reference(3))
    }),
    (FORMAT, "parse", "(JLjava/lang/String;Ljava/text/ParsePosition;Z)Ljava/lang/Number;", parse),
];

fn illegal(t: &Thread, message: &str) -> Thrown {
    throw(t, "java/lang/IllegalArgumentException", message)
}

fn with<R>(t: &Thread, a: Args, run: impl FnOnce(&mut Format) -> R) -> Result<R, Thrown> {
    let format = FORMATS.get(a.long(0)).ok_or_else(|| illegal(t, "closed"))?;
    Ok(run(&mut format.lock().expect("no holder panics")))
}

fn symbols(t: &Thread, a: Args, first: usize) -> Result<Symbols, Thrown> {
    let c = |at: usize| char::from_u32(a.int(first + at) as u32).unwrap_or('?');
    Ok(Symbols {
        currency: rust(t, a.reference(first))?,
        decimal: c(1),
        exponent: rust(t, a.reference(first + 3))?,
        grouping: c(4),
        infinity: rust(t, a.reference(first + 5))?,
        minus: c(7),
        nan: rust(t, a.reference(first + 9))?,
        percent: c(11),
        permille: c(12),
        zero: c(13),
    })
}

/// A formatted number as a `char[]`; an iterator over its parts gets them as triples.
fn give(t: &Thread, formatted: Formatted, iterator: Ref) -> Outcome {
    if !iterator.is_null() {
        let data = primitives(t, Kind::Int, formatted.parts.len() * 3)?;
        for (at, (part, start, end)) in (0..).step_by(3).zip(&formatted.parts) {
            data.set_i32(at, *part);
            data.set_i32(at + 1, *start as i32);
            data.set_i32(at + 2, *end as i32);
        }
        debug_assert_eq!(crate::class::Class::of(iterator).descriptor, ITERATOR);
        field(iterator, "data", "[I").set_ref(iterator, data);
    }
    let units: Vec<u16> = formatted.text.encode_utf16().collect();
    Ok(Value::Ref(chars(t, &units)?))
}

fn parse(t: &Thread, a: Args) -> Outcome {
    let (string, position) = (rust(t, a.reference(2))?, non_null(t, a.reference(3), "position")?);
    let index = field(position, "currentPosition", "I");
    let start = index.get32(position) as i32;
    let all: Vec<char> = string.chars().skip(start.max(0) as usize).collect();
    let parsed = with(t, a, |format| (format.parse(&all), format.multiplier))?;
    let (Some((number, end)), multiplier) = parsed else {
        field(position, "errorIndex", "I").set32(position, start as u32);
        return super::values::NULL;
    };
    let units: usize = all[..end].iter().map(|c| c.len_utf16()).sum();
    index.set32(position, (start + units as i32) as u32);
    if a.boolean(4) {
        let args = [Value::Ref(text(t, &number)?)];
        let made = construct(t, "java/math/BigDecimal", "(Ljava/lang/String;)V", &args)?;
        return Ok(Value::Ref(made));
    }
    if multiplier == 1
        && number != "-0"
        && let Ok(value) = number.parse::<i64>()
    {
        let boxed = crate::boxing::boxed(t, crate::object::Kind::Long, Value::Long(value))?;
        return Ok(Value::Ref(boxed));
    }
    let value = number.parse::<f64>().unwrap_or(f64::NAN) / f64::from(multiplier);
    let integral =
        value.fract() == 0.0 && value.abs() < 9e18 && !(value == 0.0 && value.is_sign_negative());
    let (kind, value) = match integral {
        true => (crate::object::Kind::Long, Value::Long(value as i64)),
        false => (crate::object::Kind::Double, Value::Double(value)),
    };
    Ok(Value::Ref(crate::boxing::boxed(t, kind, value)?))
}
