//! java.lang.Float, Double, RealToString and StringToReal

use super::values::{VOID, field, rust};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};

const FLOAT: &str = "Ljava/lang/Float;";
const DOUBLE: &str = "Ljava/lang/Double;";
const PARSE: &str = "Ljava/lang/StringToReal;";

pub(super) const TABLE: &[Native] = &[
    (FLOAT, "floatToRawIntBits", "(F)I", |_, a| Ok(Value::Int(a.float(0).to_bits() as i32))),
    (FLOAT, "floatToIntBits", "(F)I", |_, a| {
        let value = a.float(0);
        let bits = if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
        Ok(Value::Int(bits as i32))
    }),
    (FLOAT, "intBitsToFloat", "(I)F", |_, a| Ok(Value::Float(f32::from_bits(a.int(0) as u32)))),
    (DOUBLE, "doubleToRawLongBits", "(D)J", |_, a| Ok(Value::Long(a.double(0).to_bits() as i64))),
    (DOUBLE, "doubleToLongBits", "(D)J", |_, a| {
        let value = a.double(0);
        let bits = if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
        Ok(Value::Long(bits as i64))
    }),
    (DOUBLE, "longBitsToDouble", "(J)D", |_, a| {
        Ok(Value::Double(f64::from_bits(a.long(0) as u64)))
    }),
    // Digits and a decimal exponent. The Java half has taken one sign and one point away.
    (PARSE, "parseDblImpl", "(Ljava/lang/String;I)D", |t, a| Ok(Value::Double(parsed(t, a)?))),
    (PARSE, "parseFltImpl", "(Ljava/lang/String;I)F", |t, a| Ok(Value::Float(parsed(t, a)?))),
    ("Ljava/lang/RealToString;", "bigIntDigitGenerator", "(JIZI)V", put_digits),
];

fn parsed<T: std::str::FromStr>(t: &Thread, a: Args) -> Result<T, Thrown> {
    let digits = rust(t, a.reference(0))?;
    let text = format!("{digits}e{}", a.int(1));
    let value = digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok());
    value.flatten().ok_or_else(|| {
        let message = format!("Invalid real: \"{text}\"");
        super::values::throw(t, "java/lang/NumberFormatException", &message)
    })
}

/// The shortest decimal that rounds to the value, nearest to it among those with as many digits,
/// at least two: its digits without trailing zeros, and the exponent of the first.
fn digits<T: std::fmt::LowerExp + std::str::FromStr + PartialEq>(value: T) -> (Vec<u8>, i32) {
    let mut text = format!("{value:e}");
    if !text.contains('.') {
        let two = format!("{value:.1e}");
        if two.parse::<T>().is_ok_and(|parsed| parsed == value) {
            text = two;
        }
    }
    let (mantissa, exponent) = text.split_once('e').expect("an exponent");
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).map(|c| c - b'0');
    let mut digits: Vec<u8> = digits.collect();
    while digits.len() > 1 && digits.last() == Some(&0) {
        digits.pop();
    }
    (digits, exponent.parse().expect("a number"))
}

/// The value is mantissa times two to a power: a float's or a double's, by the power and the
/// number of the mantissa's bits.
fn put_digits(_: &Thread, a: Args) -> Result<Value, Thrown> {
    let (this, mantissa, power) = (a.reference(0), a.long(1), a.int(3));
    let (denormal, bits) = (a.boolean(4), a.int(5));
    let value = mantissa as f64 * 2f64.powi(power.max(-1022)) * 2f64.powi(power.min(-1022) + 1022);
    let is_float = if denormal { power >= -151 } else { bits == 23 };
    let (found, exponent) = if is_float { digits(value as f32) } else { digits(value) };
    let array = field(this, "digits", "[I").get_ref(this);
    for (index, digit) in (0..).zip(&found) {
        array.set_i32(index, i32::from(*digit));
    }
    field(this, "digitCount", "I").set32(this, found.len() as u32);
    field(this, "firstK", "I").set32(this, exponent as u32);
    VOID
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn digits_are_the_shortest_that_round_back() {
        let check = |value: f64, expect: &str, exponent| {
            let (found, at) = digits(value);
            let text: String = found.iter().map(|d| char::from(b'0' + d)).collect();
            assert_eq!((text.as_str(), at), (expect, exponent), "{value:e}");
        };
        check(1e23, "1", 23);
        check(f64::MAX, "17976931348623157", 308);
        check(5e-324, "49", -324);
        check(2.2250738585072014e-308, "22250738585072014", -308);
        assert_eq!(digits(f32::from_bits(1)), (vec![1, 4], -45));
        assert_eq!(digits(f32::MAX), (vec![3, 4, 0, 2, 8, 2, 3, 5], 38));
    }
}
