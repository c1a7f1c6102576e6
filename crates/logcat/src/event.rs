//! Values of binary events, and their text.
//!
//! ```text
//!   int    00 | i32          long 01 | i64         float 04 | f32
//!   string 02 | u32 bytes | bytes                  list  03 | i8 count | values
//! ```
//!
//! Little-endian. A payload is one value, most often a list. The text is `5`, `words`, `[0,words,[1]]`;
//! with `-v descriptive` each value goes by what the tags file says of it: `[User=0,PID=1234]`.
//!
//! A description is `(name|type|unit)`: type 1 to 5 for int, long, string, list and float, unit 2 for
//! bytes, 3 for milliseconds, 6 for percent, s for seconds, and others without a text of their own.
//! The first value that is not of its description's type ends the descriptions, not the values.

/// As long a text, with the event's number if it has no name, as Android's logcat has room for.
pub const ROOM: usize = 1023;
/// Lists within lists that are followed: more than liblog writes.
const MAX_DEPTH: usize = 16;

/// How values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Values alone.
    Plain,
    /// With what the tags file says of them.
    Descriptive,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// 32 bits.
    Int(i32),
    /// 64 bits.
    Long(i64),
    /// Words, by custom in UTF-8.
    String(&'a [u8]),
    /// As many values follow; none for a negative number.
    List(i8),
    /// 32 bits.
    Float(f32),
}

/// There is no further value: the payload ends within it, or it is of no known type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Whether all of a value is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// It is.
    Complete,
    /// A string that is said to be longer than what is left of the payload.
    Cut,
}

/// Values of a payload, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    /// Of a payload without the event's number.
    pub fn new(payload: &'a [u8]) -> Values<'a> {
        Values { rest: payload }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next value, and whether it is whole.
    ///
    /// # Errors
    /// There is none.
    pub fn read(&mut self) -> Result<(Value<'a>, Whole), Malformed> {
        let [kind] = self.take()?;
        let value = match kind {
            0 => Value::Int(i32::from_le_bytes(self.take()?)),
            1 => Value::Long(i64::from_le_bytes(self.take()?)),
            2 => {
                let said = u32::from_le_bytes(self.take()?) as usize;
                let (string, rest) = self.rest.split_at(said.min(self.rest.len()));
                self.rest = rest;
                let whole = if string.len() < said { Whole::Cut } else { Whole::Complete };
                return Ok((Value::String(string), whole));
            }
            3 => Value::List(i8::from_le_bytes(self.take()?)),
            4 => Value::Float(f32::from_le_bytes(self.take()?)),
            _ => return Err(Malformed),
        };
        Ok((value, Whole::Complete))
    }
}

/// The text of a payload (without the event's number), at most `room` bytes; one that is longer ends
/// in `^`. `None` if the payload is broken.
pub fn print(payload: &[u8], style: Style, format: &[u8], room: usize) -> Option<Vec<u8>> {
    if payload.is_empty() {
        return Some(Vec::new());
    }
    let format = Some(format).filter(|format| style == Style::Descriptive && !format.is_empty());
    if format.is_some() {
        // What has no room with its descriptions is shown without.
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

/// A text that is being made.
struct Text<'a> {
    values: Values<'a>,
    /// Descriptions of the values to come.
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
            // Its values begin at the description that the list itself was tried against.
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

    /// A number must leave room for one byte more.
    fn number(&mut self, digits: &str) -> Result<(), Stop> {
        if self.out.len() + digits.len() >= self.room {
            return Err(Stop::Full);
        }
        self.push(digits.as_bytes())
    }

    /// Shows the amount, whose text begins at `start`, in its unit.
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
    /// What a unit is for.
    fn amount(&self) -> i64 {
        match self {
            Value::Int(number) => i64::from(*number),
            Value::Long(number) => *number,
            _ => 0,
        }
    }
}

/// As C's `%f`.
fn float(number: f32) -> String {
    let sign = if number.is_sign_negative() { "-" } else { "" };
    match number.is_nan() {
        true => format!("{sign}nan"),
        false => format!("{:.6}", f64::from(number)),
    }
}

fn kibibytes(mut bytes: i64) -> String {
    let mut unit = "KMGT".chars();
    loop {
        bytes /= 1024;
        let suffix = unit.next().unwrap_or('T');
        if bytes % 1024 != 0 || suffix == 'T' {
            return format!("{bytes}{suffix}B");
        }
    }
}

fn seconds(milliseconds: i64) -> String {
    let sign = if milliseconds < 0 { "-" } else { "" };
    let amount = milliseconds.unsigned_abs();
    let text = format!("{sign}{}.{:03}", amount / 1000, amount % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + "s"
}

fn since_boot(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let clock = format!("{}:{:02}:{:02}", hours % 24, minutes % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}:{:02}", seconds % 60),
        (0, ..) => clock,
        _ => format!("{days}d {clock}"),
    }
}

/// What the tags file says of one value.
struct Description<'a> {
    name: &'a [u8],
    unit: Option<u8>,
    /// What it says of those that follow.
    rest: Option<&'a [u8]>,
}

impl<'a> Description<'a> {
    /// The first one of these; `None` if there is none, or if the value is of another type.
    fn read(format: &'a [u8], value: &Value<'_>) -> Option<Description<'a>> {
        let inside = after(format, b'(')?.trim_ascii_start();
        let end = inside.iter().position(|byte| b"|)".contains(byte)).unwrap_or(inside.len());
        let (name, mut rest) = inside.split_at(end);
        if let Some((&kind, more)) = field(rest) {
            if (b'1'..=b'5').contains(&kind) && kind != value.described_as() {
                return None;
            }
            rest = more;
        }
        let unit = field(rest).map(|(unit, more)| {
            rest = more;
            *unit
        });
        let rest = after(rest, b')').and_then(|rest| after(rest, b','));
        Some(Description { name: name.strip_suffix(b" ").unwrap_or(name), unit, rest })
    }
}

impl Value<'_> {
    /// Its type as the tags file writes it.
    fn described_as(&self) -> u8 {
        match self {
            Value::Int(_) => b'1',
            Value::Long(_) => b'2',
            Value::String(_) => b'3',
            Value::List(_) => b'4',
            Value::Float(_) => b'5',
        }
    }
}

/// What follows this byte, if that is the next one but blanks.
fn after(text: &[u8], byte: u8) -> Option<&[u8]> {
    text.trim_ascii_start().strip_prefix(&[byte])
}

/// The one letter behind a bar, and what follows it.
fn field(text: &[u8]) -> Option<(&u8, &[u8])> {
    after(text, b'|')?.trim_ascii_start().split_first()
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
            // The second value is said to be a string, and is not: no word about the others.
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
