//! Decimal numbers, and how they are rounded

use std::cmp::Ordering;

/// How a decimal number is rounded, as ICU numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rounding {
    Ceiling,
    Floor,
    Down,
    Up,
    HalfEven,
    HalfDown,
    HalfUp,
}

/// A decimal number: 0.d1d2d3... times ten to a power. No digits: zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    pub(super) negative: bool,
    pub(super) digits: Vec<u8>,
    pub(super) power: i32,
    /// How the value itself compares to its digits
    pub(super) beyond: Ordering,
}

impl Decimal {
    /// Reads what Java's and Rust's numbers print: digits, a point, an exponent.
    pub(super) fn parse(text: &str) -> Option<Decimal> {
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
    pub(super) fn of_double(value: f64) -> Decimal {
        let mut decimal = Decimal::parse(&format!("{value:e}")).expect("a number");
        decimal.negative = value.is_sign_negative();
        // More digits than any double has.
        let exact = Decimal::parse(&format!("{value:.800e}")).expect("a number");
        decimal.beyond = exact.digits.cmp(&decimal.digits);
        decimal
    }

    pub(super) fn trim(&mut self) {
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

    pub(super) fn times(&mut self, factor: i32) {
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
    pub(super) fn round(&mut self, count: i32, rounding: Rounding) {
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

    pub(super) fn digit(&self, place: i32) -> u8 {
        usize::try_from(place).ok().and_then(|at| self.digits.get(at)).copied().unwrap_or(0)
    }
}
