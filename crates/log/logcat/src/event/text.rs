//! The text of a payload.

use super::description::{Description, kibibytes, seconds, since_boot};
use super::{Malformed, Value, Values, Whole};

/// The most bytes of a text in Android's logcat, with the event's number if it has no name.
pub const ROOM: usize = 1023;
/// Nested lists that are shown: more than liblog writes.
const MAX_DEPTH: usize = 16;

/// The style in which values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Only the values.
    Plain,
    /// With their descriptions from the tags file.
    Descriptive,
}

/// The text of a payload (without the event's number), of at most `room` bytes. A longer one is cut
/// and ends in `^`. `None`: the payload is broken.
pub fn print(payload: &[u8], style: Style, format: &[u8], room: usize) -> Option<Vec<u8>> {
    if payload.is_empty() {
        return Some(Vec::new());
    }
    let format = Some(format).filter(|format| style == Style::Descriptive && !format.is_empty());
    if format.is_some() {
        // A text that is too long with descriptions is shown without them.
        let mut text = Text::new(payload, format, room);
        match text.value(0) {
            Ok(()) => return Some(text.out),
            Err(Stop::Broken) => return None,
            Err(Stop::Full) => {}
        }
    }
    let mut text = Text::new(payload, None, room);
    match text.value(0) {
        Ok(()) => {}
        Err(Stop::Broken) => return None,
        Err(Stop::Full) => {
            text.out.truncate(room - 1);
            text.out.push(b'^');
        }
    }
    Some(text.out)
}

/// Why a text ends before its values do.
enum Stop {
    Full,
    Broken,
}

/// A text that is being written.
struct Text<'a> {
    values: Values<'a>,
    /// The descriptions of the following values.
    format: Option<&'a [u8]>,
    out: Vec<u8>,
    room: usize,
}

impl<'a> Text<'a> {
    fn new(payload: &'a [u8], format: Option<&'a [u8]>, room: usize) -> Text<'a> {
        Text { values: Values::new(payload), format, out: Vec::new(), room }
    }

    fn value(&mut self, depth: usize) -> Result<(), Stop> {
        let (value, whole) = self.values.read().map_err(|Malformed| Stop::Broken)?;
        let description = self.format.and_then(|format| Description::read(format, &value));
        if let Some(description) = &description
            && !description.name.is_empty()
            && value != Value::String(b"")
        {
            self.push(description.name)?;
            self.push(b"=")?;
        }
        let start = self.out.len();
        match value {
            Value::Int(number) => self.number(&number.to_string())?,
            Value::Long(number) => self.number(&number.to_string())?,
            Value::Float(number) => self.number(&float(number))?,
            Value::String(string) => self.string(string, whole)?,
            // The first value of the list uses the description that the list itself was compared
            // with.
            Value::List(count) => self.list(count, depth)?,
        }
        self.format = description.as_ref().and_then(|description| description.rest);
        match (description.and_then(|description| description.unit), value) {
            (Some(unit), Value::String(_) | Value::List(_)) => self.unit(unit, 0, self.out.len()),
            (Some(unit), _) => self.unit(unit, value.amount(), start),
            (None, _) => Ok(()),
        }
    }

    fn string(&mut self, string: &[u8], whole: Whole) -> Result<(), Stop> {
        let free = self.room - self.out.len();
        self.out.extend(&string[..string.len().min(free)]);
        match whole {
            Whole::Cut => Err(Stop::Broken),
            Whole::Complete if string.len() < free => Ok(()),
            Whole::Complete => Err(Stop::Full),
        }
    }

    fn list(&mut self, count: i8, depth: usize) -> Result<(), Stop> {
        if depth == MAX_DEPTH {
            return Err(Stop::Broken);
        }
        self.push(b"[")?;
        for index in 0..count {
            if index > 0 {
                self.push(b",")?;
            }
            self.value(depth + 1)?;
        }
        self.push(b"]")
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if self.out.len() + bytes.len() > self.room {
            return Err(Stop::Full);
        }
        self.out.extend(bytes);
        Ok(())
    }

    /// Appends a number, which has to leave room for one more byte.
    fn number(&mut self, digits: &str) -> Result<(), Stop> {
        if self.out.len() + digits.len() >= self.room {
            return Err(Stop::Full);
        }
        self.push(digits.as_bytes())
    }

    /// Replaces an amount, whose text begins at `start`, by its text with a unit.
    fn unit(&mut self, unit: u8, amount: i64, start: usize) -> Result<(), Stop> {
        let (instead, text) = match unit {
            b'2' if amount != 0 && amount % 1024 == 0 => (true, kibibytes(amount)),
            b'2' => (false, "B".to_owned()),
            b'3' if amount.unsigned_abs() >= 1000 => (true, seconds(amount)),
            b'3' => (false, "ms".to_owned()),
            b'6' => (false, "%".to_owned()),
            b's' => (true, since_boot(amount as u64)),
            _ => return Ok(()),
        };
        if instead {
            self.out.truncate(start);
        }
        self.number(&text)
    }
}

impl Value<'_> {
    /// The amount to which a unit applies.
    fn amount(&self) -> i64 {
        match self {
            Value::Int(number) => i64::from(*number),
            Value::Long(number) => *number,
            _ => 0,
        }
    }
}

/// Formats a number as C's `%f`.
fn float(number: f32) -> String {
    let sign = if number.is_sign_negative() { "-" } else { "" };
    match number.is_nan() {
        true => format!("{sign}nan"),
        false => format!("{:.6}", f64::from(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(number: i32) -> Vec<u8> {
        [&[0][..], &number.to_le_bytes()].concat()
    }
    fn long(number: i64) -> Vec<u8> {
        [&[1][..], &number.to_le_bytes()].concat()
    }
    fn string(words: &str) -> Vec<u8> {
        [&[2][..], &(words.len() as u32).to_le_bytes(), words.as_bytes()].concat()
    }
    fn list(values: &[Vec<u8>]) -> Vec<u8> {
        [&[3, values.len() as u8][..], &values.concat()].concat()
    }

    fn described(payload: &[u8], format: &str) -> String {
        let text = print(payload, Style::Descriptive, format.as_bytes(), ROOM);
        String::from_utf8(text.unwrap()).unwrap()
    }

    #[test]
    fn descriptions_go_with_values() {
        let started = list(&[int(0), int(9227), int(10002), string("com.android.browser")]);
        for (payload, format, expected) in [
            (
                &started,
                "(User|1|5),(PID|1|5),(UID|1|5),(Process Name|3)",
                "[User=0,PID=9227,UID=10002,Process Name=com.android.browser]",
            ),
            // The description of the second value says string. It and those after it are not used.
            (&started, "(User|1|5),(PID|3),(UID|1|5)", "[User=0,9227,10002,com.android.browser]"),
            (&started, "no description", "[0,9227,10002,com.android.browser]"),
            (&list(&[int(1), string("")]), "(a|1),(b|3)", "[a=1,]"),
            (&list(&[int(1), int(2)]), "(a |1) , ( b|1)", "[a=1,b=2]"),
            (&int(5), "(name)", "name=5"),
            (&int(5), "(|1|6)", "5%"),
            (&list(&[list(&[int(1)]), int(2)]), "(l|4),(n|1)", "l=[l=[1],n=2]"),
        ] {
            assert_eq!(described(payload, format), expected, "{format}");
        }
    }

    #[test]
    fn units() {
        for (amount, unit, expected) in [
            (1024, '2', "1KB"),
            (1025, '2', "1025B"),
            (0, '2', "0B"),
            (3 << 20, '2', "3MB"),
            (1 << 50, '2', "1024TB"),
            (999, '3', "999ms"),
            (1000, '3', "1s"),
            (-1530, '3', "-1.53s"),
            (59, 's', "59s"),
            (61, 's', "1:01"),
            (3661, 's', "1:01:01"),
            (90_061, 's', "1d 1:01:01"),
            (86_400, 's', "1d 0:00:00"),
            (50, '6', "50%"),
            (50, '1', "50"),
            (50, '4', "50"),
            (50, '5', "50"),
        ] {
            assert_eq!(described(&long(amount), &format!("(v|2|{unit})")), format!("v={expected}"));
        }
    }

    #[test]
    fn what_has_no_room_with_descriptions_is_shown_without() {
        let payload = list(&[int(1), int(2)]);
        let text = print(&payload, Style::Descriptive, b"(first|1),(second|1)", 10);
        assert_eq!(text.as_deref(), Some(&b"[1,2]"[..]));
    }

    #[test]
    fn what_has_no_room_at_all_says_so() {
        let check = |payload: &[u8], room, expected: &str| {
            let text = print(payload, Style::Plain, b"", room).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        };
        check(&string("abcdef"), 7, "abcdef");
        check(&string("abcdef"), 6, "abcde^");
        check(&string("abcdef"), 3, "ab^");
        check(&list(&[int(12), int(345)]), 7, "[12,^");
        check(&list(&[int(12), int(345)]), 8, "[12,345]");
    }

    #[test]
    fn broken_payloads_have_no_text() {
        let mut deep = [3, 1].repeat(MAX_DEPTH + 1);
        deep.extend(int(1));
        for broken in [
            &[0, 1, 2, 3][..],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 255, 255, 255, 255, 1],
            &[2, 1, 0],
            &[3],
            &[3, 1],
            &[4, 0],
            &[5, 0, 0, 0, 0],
            &deep,
        ] {
            assert_eq!(print(broken, Style::Plain, b"", ROOM), None, "{broken:?}");
        }
    }
}
