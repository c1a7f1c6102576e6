//! libcore.icu.NativeDecimalFormat: numbers by a pattern, and back

use super::handles::Handles;
use super::values::{
    Outcome, VOID, chars, construct, field, non_null, primitives, rust, text, throw,
};
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

const FORMAT: &str = "Llibcore/icu/NativeDecimalFormat;";
const ITERATOR: &str = "Llibcore/icu/NativeDecimalFormat$FieldPositionIterator;";

/// Characters and texts that stand for parts of a number.
#[derive(Clone, Debug)]
struct Symbols {
    zero: char,
    decimal: char,
    grouping: char,
    minus: char,
    percent: char,
    permille: char,
    exponent: String,
    infinity: String,
    nan: String,
    currency: String,
}

/// How a decimal number is rounded, as ICU numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rounding {
    Ceiling,
    Floor,
    Down,
    Up,
    HalfEven,
    HalfDown,
    HalfUp,
}

#[derive(Clone, Debug)]
struct Format {
    symbols: Symbols,
    positive: (String, String),
    negative: (String, String),
    min_integer: usize,
    max_integer: usize,
    min_fraction: usize,
    max_fraction: usize,
    grouping: usize,
    uses_grouping: bool,
    always_decimal: bool,
    integer_only: bool,
    multiplier: i32,
    /// The least number of digits of an exponent
    exponent: Option<usize>,
    exponent_sign: bool,
    rounding: Rounding,
}

/// A decimal number: 0.d1d2d3... times ten to a power. No digits: zero.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    power: i32,
    /// How the value itself compares to its digits
    beyond: Ordering,
}

static FORMATS: Handles<Mutex<Format>> = Handles::new();

/// As many integer digits as a number has.
const ANY: usize = i32::MAX as usize;

impl Decimal {
    /// Reads what Java's and Rust's numbers print: digits, a point, an exponent.
    fn parse(text: &str) -> Option<Decimal> {
        let (text, negative) = match text.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (text.strip_prefix('+').unwrap_or(text), false),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = integer.bytes().chain(fraction.bytes());
        let digits: Vec<u8> =
            all.map(|c| c.is_ascii_digit().then(|| c - b'0')).collect::<Option<_>>()?;
        let power = integer.len() as i32 + exponent;
        let mut decimal = Decimal { negative, digits, power, beyond: Ordering::Equal };
        decimal.trim();
        Some(decimal)
    }

    /// The shortest digits that mean this value.
    fn of_double(value: f64) -> Decimal {
        let mut decimal = Decimal::parse(&format!("{value:e}")).expect("a number");
        decimal.negative = value.is_sign_negative();
        // More digits than any double has.
        let exact = Decimal::parse(&format!("{value:.800e}")).expect("a number");
        decimal.beyond = exact.digits.cmp(&decimal.digits);
        decimal
    }

    fn trim(&mut self) {
        let leading = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..leading);
        self.power -= leading as i32;
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        if self.digits.is_empty() {
            self.power = 0;
        }
    }

    fn times(&mut self, factor: i32) {
        let mut carry = 0i64;
        for digit in self.digits.iter_mut().rev() {
            let value = i64::from(*digit) * i64::from(factor.unsigned_abs()) + carry;
            (*digit, carry) = ((value % 10) as u8, value / 10);
        }
        while carry > 0 {
            self.digits.insert(0, (carry % 10) as u8);
            self.power += 1;
            carry /= 10;
        }
        self.negative ^= factor < 0;
        self.trim();
    }

    /// Rounds to this many digits, counted from the first.
    fn round(&mut self, count: i32, rounding: Rounding) {
        let count = count.max(-1);
        if count >= self.digits.len() as i32 {
            return;
        }
        let kept = count.max(0) as usize;
        // The part that goes, against one half: with less than no digit kept it is less.
        let rest = &self.digits[kept..];
        let half = match count {
            ..0 => Ordering::Less,
            _ if rest.len() > 1 => rest[0].cmp(&5).then(Ordering::Greater),
            _ => rest[0].cmp(&5).then(self.beyond),
        };
        let odd = kept > 0 && self.digits[kept - 1] % 2 == 1;
        let away = match rounding {
            Rounding::Up => true,
            Rounding::Down => false,
            Rounding::Ceiling => !self.negative,
            Rounding::Floor => self.negative,
            Rounding::HalfUp => half.is_ge(),
            Rounding::HalfDown => half.is_gt(),
            Rounding::HalfEven => half.is_gt() || half.is_eq() && odd,
        };
        self.digits.truncate(kept);
        if away {
            match self.digits.iter().rposition(|digit| *digit < 9) {
                Some(at) => {
                    self.digits.truncate(at + 1);
                    self.digits[at] += 1;
                }
                None => {
                    self.power += 1 - count.min(0);
                    self.digits = vec![1];
                }
            }
        }
        self.trim();
    }

    fn digit(&self, place: i32) -> u8 {
        usize::try_from(place).ok().and_then(|at| self.digits.get(at)).copied().unwrap_or(0)
    }
}

/// A formatted number with the bounds of its integer, fraction and decimal separator.
#[derive(Default)]
struct Formatted {
    text: String,
    parts: Vec<(i32, usize, usize)>,
}

impl Format {
    /// # Errors
    /// What is wrong with the pattern.
    fn apply(&mut self, pattern: &str) -> Result<(), String> {
        let malformed = || format!("Malformed pattern \"{pattern}\"");
        let all: Vec<char> = pattern.chars().collect();
        let mut at = 0;
        self.multiplier = 1;
        let prefix = self.affix(&all, &mut at).ok_or_else(malformed)?;
        let (mut hashes, mut zeros, mut fraction_zeros, mut fraction_hashes) = (0, 0, 0, 0);
        let mut grouping = None;
        let mut point = false;
        self.exponent = None;
        self.exponent_sign = false;
        while let Some(&c) = all.get(at) {
            match c {
                '#' if point => fraction_hashes += 1,
                '0' if point && fraction_hashes > 0 => return Err(malformed()),
                '0' if point => fraction_zeros += 1,
                '#' if zeros > 0 => return Err(malformed()),
                '#' => hashes += 1,
                '0' => zeros += 1,
                ',' if !point => {
                    grouping = Some(0);
                    at += 1;
                    continue;
                }
                '.' if !point => {
                    point = true;
                    at += 1;
                    continue;
                }
                'E' => {
                    at += 1;
                    self.exponent_sign = all.get(at) == Some(&'+');
                    at += usize::from(self.exponent_sign);
                    let digits = all[at..].iter().take_while(|c| **c == '0').count();
                    if digits == 0 {
                        return Err(malformed());
                    }
                    at += digits;
                    self.exponent = Some(digits);
                    break;
                }
                _ => break,
            }
            if !point {
                grouping = grouping.map(|size| size + 1);
            }
            at += 1;
        }
        let suffix = self.affix(&all, &mut at).ok_or_else(malformed)?;
        self.positive = (prefix, suffix);
        self.negative =
            (format!("{}{}", self.symbols.minus, self.positive.0), self.positive.1.clone());
        if all.get(at) == Some(&';') {
            at += 1;
            let prefix = self.affix(&all, &mut at).ok_or_else(malformed)?;
            while all.get(at).is_some_and(|c| "#0,.".contains(*c)) {
                at += 1;
            }
            let suffix = self.affix(&all, &mut at).ok_or_else(malformed)?;
            self.negative = (prefix, suffix);
        }
        if at < all.len() || grouping == Some(0) {
            return Err(malformed());
        }
        self.grouping = grouping.unwrap_or(0);
        self.uses_grouping = grouping.is_some();
        self.min_fraction = fraction_zeros;
        self.max_fraction = fraction_zeros + fraction_hashes;
        // Without a zero in the pattern the last place before the point counts as one.
        let no_zeros = zeros == 0 && fraction_zeros == 0 && hashes > 0 && self.exponent.is_none();
        self.min_integer = if no_zeros { 1 } else { zeros };
        self.max_integer = if self.exponent.is_some() { hashes + zeros } else { ANY };
        self.always_decimal = point && self.max_fraction == 0;
        Ok(())
    }

    /// A prefix or suffix up to the number or the end.
    fn affix(&mut self, all: &[char], at: &mut usize) -> Option<String> {
        let mut affix = String::new();
        while let Some(&c) = all.get(*at) {
            *at += 1;
            match c {
                '\'' if all.get(*at) == Some(&'\'') => {
                    *at += 1;
                    affix.push('\'');
                }
                '\'' => loop {
                    let c = *all.get(*at)?;
                    *at += 1;
                    if c != '\'' {
                        affix.push(c);
                    } else if all.get(*at) == Some(&'\'') {
                        *at += 1;
                        affix.push('\'');
                    } else {
                        break;
                    }
                },
                '#' | '0' | ',' | '.' | ';' => {
                    *at -= 1;
                    break;
                }
                '%' => {
                    self.multiplier = 100;
                    affix.push(self.symbols.percent);
                }
                '\u{2030}' => {
                    self.multiplier = 1000;
                    affix.push(self.symbols.permille);
                }
                '\u{a4}' => affix.push_str(&self.symbols.currency),
                '-' => affix.push(self.symbols.minus),
                c => affix.push(c),
            }
        }
        Some(affix)
    }

    fn pattern(&self) -> String {
        let integer =
            self.min_integer.max(if self.exponent.is_some() { self.max_integer } else { 0 });
        let least =
            if self.uses_grouping { (self.grouping + 1).max(integer) } else { integer.max(1) };
        let mut body = String::new();
        for place in (1..=least).rev() {
            body.push(if place <= self.min_integer { '0' } else { '#' });
            if self.uses_grouping && place > 1 && (place - 1) % self.grouping.max(1) == 0 {
                body.push(',');
            }
        }
        if self.max_fraction > 0 || self.always_decimal {
            body.push('.');
            let optional = self.max_fraction.saturating_sub(self.min_fraction);
            body += &"0".repeat(self.min_fraction);
            body += &"#".repeat(optional.min(340));
        }
        if let Some(digits) = self.exponent {
            body += if self.exponent_sign { "E+" } else { "E" };
            body += &"0".repeat(digits);
        }
        let own_minus = format!("{}{}", self.symbols.minus, self.positive.0);
        let mut pattern = format!("{}{body}{}", self.positive.0, self.positive.1);
        if self.negative.0 != own_minus || self.negative.1 != self.positive.1 {
            let _ = write!(pattern, ";{}{body}{}", self.negative.0, self.negative.1);
        }
        pattern
    }

    fn special(&self, value: f64) -> Option<Formatted> {
        let text = if value.is_nan() {
            return Some(Formatted { text: self.symbols.nan.clone(), parts: Vec::new() });
        } else if value.is_infinite() {
            &self.symbols.infinity
        } else {
            return None;
        };
        let (prefix, suffix) = if value < 0.0 { &self.negative } else { &self.positive };
        Some(Formatted { text: format!("{prefix}{text}{suffix}"), parts: Vec::new() })
    }

    fn format(&self, mut number: Decimal) -> Formatted {
        number.times(self.multiplier);
        let mut body = Formatted::default();
        if let Some(least) = self.exponent {
            self.exponential(&mut number, least, &mut body);
        } else {
            number.round(number.power.saturating_add(self.max_fraction as i32), self.rounding);
            self.plain(&number, number.power, (self.min_integer, self.min_fraction), &mut body);
        }
        let (prefix, suffix) = if number.negative { &self.negative } else { &self.positive };
        let shift = prefix.encode_utf16().count();
        body.parts.iter_mut().for_each(|part| (part.1, part.2) = (part.1 + shift, part.2 + shift));
        Formatted { text: format!("{prefix}{}{suffix}", body.text), parts: body.parts }
    }

    fn exponential(&self, number: &mut Decimal, least: usize, to: &mut Formatted) {
        let engineering = self.max_integer > self.min_integer && self.max_integer > 1;
        let (integer, digits) = if engineering {
            (1, self.min_integer + self.max_fraction)
        } else {
            (self.min_integer.max(1), self.min_integer.max(1) + self.max_fraction)
        };
        number.round(digits as i32, self.rounding);
        let mut exponent = number.power - integer as i32;
        if engineering {
            let step = self.max_integer as i32;
            exponent = exponent.div_euclid(step) * step;
        }
        if number.digits.is_empty() {
            exponent = 0;
        }
        let point = number.power - exponent;
        self.plain(number, point, (self.min_integer, self.min_fraction), to);
        to.text += &self.symbols.exponent;
        if exponent < 0 {
            to.text.push(self.symbols.minus);
        } else if self.exponent_sign {
            to.text.push('+');
        }
        let _ = write!(to.text, "{:0least$}", exponent.unsigned_abs());
    }

    /// The digits with `point` of them before the decimal separator.
    fn plain(&self, number: &Decimal, point: i32, least: (usize, usize), to: &mut Formatted) {
        let show =
            |digit: u8| char::from_u32(self.symbols.zero as u32 + u32::from(digit)).unwrap_or('0');
        let n_fraction = (number.digits.len() as i32 - point).max(least.1 as i32).max(0);
        let mut n_integer = point.max(least.0 as i32);
        if self.exponent.is_none() {
            n_integer = n_integer.min(self.max_integer.min(ANY) as i32);
        }
        // Zero is shown as one digit if the pattern has none.
        if n_integer <= 0 && n_fraction == 0 {
            n_integer = 1;
        }
        for place in (0..n_integer).rev() {
            to.text.push(show(number.digit(point - 1 - place)));
            let size = self.grouping as i32;
            if self.uses_grouping && size > 0 && place > 0 && place % size == 0 {
                to.text.push(self.symbols.grouping);
            }
        }
        let end = to.text.encode_utf16().count();
        to.parts.push((0, 0, end));
        if n_fraction > 0 || self.always_decimal {
            to.text.push(self.symbols.decimal);
            to.parts.push((2, end, end + 1));
        }
        for place in 0..n_fraction {
            to.text.push(show(number.digit(point + place)));
        }
        if n_fraction > 0 {
            to.parts.push((1, end + 1, end + 1 + n_fraction as usize));
        }
    }

    /// Reads a number at a place of a text: its decimal text and where it ends.
    fn parse(&self, all: &[char]) -> Option<(String, usize)> {
        let starts = |affix: &str, at: usize| {
            let affix: Vec<char> = affix.chars().collect();
            all.get(at..).is_some_and(|rest| rest.starts_with(&affix)).then_some(at + affix.len())
        };
        let positive = starts(&self.positive.0, 0);
        let negative = starts(&self.negative.0, 0).filter(|_| self.negative != self.positive);
        let is_negative = match (positive, negative) {
            (Some(p), Some(n)) => n > p,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => return None,
        };
        let (mut at, suffix) = match is_negative {
            true => (negative?, &self.negative.1),
            false => (positive?, &self.positive.1),
        };
        let mut number = if is_negative { "-".to_owned() } else { String::new() };
        let (mut digits, mut point, mut end) = (0, false, at);
        while let Some(&c) = all.get(at) {
            let value = (c as u32).wrapping_sub(self.symbols.zero as u32);
            if value < 10 {
                number.push(char::from(b'0' + value as u8));
                digits += 1;
            } else if c == self.symbols.decimal && !point && !self.integer_only {
                number.push('.');
                point = true;
            } else if c != self.symbols.grouping || point || !self.uses_grouping {
                break;
            } else {
                at += 1;
                continue;
            }
            at += 1;
            end = at;
        }
        if digits == 0 {
            let after = starts(&self.symbols.infinity, at)?;
            number.push_str("inf");
            return Some((number, starts(suffix, after)?));
        }
        if let Some(mut after) = starts(&self.symbols.exponent, end) {
            let mut exponent = String::new();
            if all.get(after) == Some(&self.symbols.minus) {
                exponent.push('-');
                after += 1;
            }
            let rest = all[after..].iter().take_while(|c| c.is_ascii_digit());
            let before = exponent.len();
            exponent.extend(rest);
            if exponent.len() > before {
                end = after + exponent.len() - before;
                let _ = write!(number, "e{exponent}");
            }
        }
        Some((number, starts(suffix, end)?))
    }
}

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
        let mut format = Format {
            symbols: symbols(t, a, 1)?,
            positive: Default::default(),
            negative: Default::default(),
            min_integer: 1,
            max_integer: ANY,
            min_fraction: 0,
            max_fraction: 3,
            grouping: 0,
            uses_grouping: false,
            always_decimal: false,
            integer_only: false,
            multiplier: 1,
            exponent: None,
            exponent_sign: false,
            rounding: Rounding::HalfEven,
        };
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
        let data = primitives(t, "I", formatted.parts.len() * 3)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn format(pattern: &str, value: f64, rounding: Rounding) -> String {
        let symbols = Symbols {
            zero: '0',
            decimal: '.',
            grouping: ',',
            minus: '-',
            percent: '%',
            permille: '\u{2030}',
            exponent: "E".into(),
            infinity: "\u{221e}".into(),
            nan: "NaN".into(),
            currency: "$".into(),
        };
        let mut format = Format {
            symbols,
            positive: Default::default(),
            negative: Default::default(),
            min_integer: 1,
            max_integer: ANY,
            min_fraction: 0,
            max_fraction: 0,
            grouping: 0,
            uses_grouping: false,
            always_decimal: false,
            integer_only: false,
            multiplier: 1,
            exponent: None,
            exponent_sign: false,
            rounding,
        };
        match format.apply(pattern) {
            Ok(()) => format.format(Decimal::of_double(value)).text,
            Err(message) => message,
        }
    }

    #[test]
    fn patterns_format_as_java_does() {
        for (pattern, value, expect) in [
            ("#,##0.00", 1234.5678, "1,234.57"),
            ("0.###", -0.126, "-0.126"),
            ("#.##", 0.126, "0.13"),
            ("00.0", 1234.5678, "1234.6"),
            ("0.00E0", 1234.5678, "1.23E3"),
            ("##0.##E0", 12345.0, "12.3E3"),
            ("0.0E+00", 0.00012, "1.2E-04"),
            ("$#,##0;($#,##0)", -1234.0, "($1,234)"),
            ("0%", 0.256, "26%"),
            ("'a'0''", 7.0, "a7'"),
            ("000", 42.0, "042"),
            ("0.0#0", 1.0, "Malformed pattern \"0.0#0\""),
        ] {
            assert_eq!(format(pattern, value, Rounding::HalfEven), expect, "{pattern} {value}");
        }
    }

    #[test]
    fn rounding_looks_at_the_value_itself() {
        // 2.55 is a little less, 0.125 is exact.
        assert_eq!(format("0.0", 2.55, Rounding::HalfEven), "2.5");
        assert_eq!(format("0.0", 2.55, Rounding::HalfUp), "2.5");
        for (rounding, positive, negative) in [
            (Rounding::HalfEven, "0.12", "-0.12"),
            (Rounding::HalfUp, "0.13", "-0.13"),
            (Rounding::HalfDown, "0.12", "-0.12"),
            (Rounding::Up, "0.13", "-0.13"),
            (Rounding::Down, "0.12", "-0.12"),
            (Rounding::Ceiling, "0.13", "-0.12"),
            (Rounding::Floor, "0.12", "-0.13"),
        ] {
            assert_eq!(format("0.00", 0.125, rounding), positive, "{rounding:?}");
            assert_eq!(format("0.00", -0.125, rounding), negative, "{rounding:?}");
        }
        assert_eq!(format("0.0", 9.97, Rounding::HalfEven), "10.0");
        assert_eq!(format("0", 0.5, Rounding::HalfUp), "1");
    }
}
