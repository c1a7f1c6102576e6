//! Formats: a pattern, and the numbers that it prints and reads

use super::decimal::{Decimal, Rounding};
use std::fmt::Write;

/// Characters and texts that stand for parts of a number.
#[derive(Clone, Debug)]
pub(super) struct Symbols {
    pub(super) zero: char,
    pub(super) decimal: char,
    pub(super) grouping: char,
    pub(super) minus: char,
    pub(super) percent: char,
    pub(super) permille: char,
    pub(super) exponent: String,
    pub(super) infinity: String,
    pub(super) nan: String,
    pub(super) currency: String,
}

#[derive(Clone, Debug)]
pub(super) struct Format {
    pub(super) symbols: Symbols,
    pub(super) positive: (String, String),
    pub(super) negative: (String, String),
    pub(super) min_integer: usize,
    pub(super) max_integer: usize,
    pub(super) min_fraction: usize,
    pub(super) max_fraction: usize,
    pub(super) grouping: usize,
    pub(super) uses_grouping: bool,
    pub(super) always_decimal: bool,
    pub(super) integer_only: bool,
    pub(super) multiplier: i32,
    /// The least number of digits of an exponent
    pub(super) exponent: Option<usize>,
    pub(super) exponent_sign: bool,
    pub(super) rounding: Rounding,
}

/// As many integer digits as a number has.
const ANY: usize = i32::MAX as usize;

/// A formatted number with the bounds of its integer, fraction and decimal separator.
#[derive(Default)]
pub(super) struct Formatted {
    pub(super) text: String,
    pub(super) parts: Vec<(i32, usize, usize)>,
}

impl Format {
    /// A format without a pattern.
    pub fn new(symbols: Symbols, rounding: Rounding) -> Format {
        Format {
            symbols,
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
            rounding,
        }
    }

    /// # Errors
    /// What is wrong with the pattern.
    pub(super) fn apply(&mut self, pattern: &str) -> Result<(), String> {
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
    pub(super) fn affix(&mut self, all: &[char], at: &mut usize) -> Option<String> {
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

    pub(super) fn pattern(&self) -> String {
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

    pub(super) fn special(&self, value: f64) -> Option<Formatted> {
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

    pub(super) fn format(&self, mut number: Decimal) -> Formatted {
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

    pub(super) fn exponential(&self, number: &mut Decimal, least: usize, to: &mut Formatted) {
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
    pub(super) fn plain(
        &self,
        number: &Decimal,
        point: i32,
        least: (usize, usize),
        to: &mut Formatted,
    ) {
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
    pub(super) fn parse(&self, all: &[char]) -> Option<(String, usize)> {
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
        let mut format = Format::new(symbols, rounding);
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
