//! Descriptions of values in the tags file, and amounts in their units.

use super::Value;

/// The description of one value.
pub(super) struct Description<'a> {
    pub name: &'a [u8],
    pub unit: Option<u8>,
    /// The descriptions of the following values.
    pub rest: Option<&'a [u8]>,
}

impl<'a> Description<'a> {
    /// Reads the first description. `None`: there is none, or the value has another type.
    pub fn read(format: &'a [u8], value: &Value<'_>) -> Option<Description<'a>> {
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
    /// The number of the value's type in the tags file.
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

/// The text after this byte, if only spaces come before it.
fn after(text: &[u8], byte: u8) -> Option<&[u8]> {
    text.trim_ascii_start().strip_prefix(&[byte])
}

/// The single letter after a bar, and the text after it.
fn field(text: &[u8]) -> Option<(&u8, &[u8])> {
    after(text, b'|')?.trim_ascii_start().split_first()
}

pub(super) fn kibibytes(mut bytes: i64) -> String {
    let mut unit = "KMGT".chars();
    loop {
        bytes /= 1024;
        let suffix = unit.next().unwrap_or('T');
        if bytes % 1024 != 0 || suffix == 'T' {
            return format!("{bytes}{suffix}B");
        }
    }
}

pub(super) fn seconds(milliseconds: i64) -> String {
    let sign = if milliseconds < 0 { "-" } else { "" };
    let amount = milliseconds.unsigned_abs();
    let text = format!("{sign}{}.{:03}", amount / 1000, amount % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + "s"
}

pub(super) fn since_boot(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let clock = format!("{}:{:02}:{:02}", hours % 24, minutes % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}:{:02}", seconds % 60),
        (0, ..) => clock,
        _ => format!("{days}d {clock}"),
    }
}
