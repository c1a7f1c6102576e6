//! Datagrams of syslog, as programs send them to `/dev/log`.
//!
//! ```text
//!   RFC 3164   <34>Oct 11 22:14:15 [host] su[1024]: words
//!   RFC 5424   <34>1 2003-10-11T22:14:15.003Z host su 1024 ID47 [data]... words
//! ```
//!
//! Any other datagram is a text without a tag. The sender's time and host are ignored: the log has
//! its own clock, and one machine.

use baton_log::{Buffer, Priority};

/// The most bytes of a tag.
const MAX_TAG_BYTES: usize = 48;
/// The tag of a datagram without a name.
const NO_TAG: &[u8] = b"syslog";
/// The priority number of a datagram without one: a user's notice.
const NO_NUMBER: u32 = 13;
const MAX_NUMBER: u32 = 23 * 8 + 7;

/// The content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The buffer for the facility: `main` for users' programs, `system` for others.
    pub buffer: Buffer,
    /// The priority for the severity.
    pub priority: Priority,
    /// The program, as it calls itself.
    pub tag: &'a [u8],
    /// The process, as the program says.
    pub process: Option<u32>,
    /// The text.
    pub text: &'a [u8],
}

/// Parses a datagram. Any bytes give a message.
pub fn parse(datagram: &[u8]) -> Message<'_> {
    let end = datagram.iter().rposition(|byte| !b"\n\0".contains(byte)).map_or(0, |at| at + 1);
    let (number, rest) = number(&datagram[..end]).unwrap_or((NO_NUMBER, &datagram[..end]));
    let said = version_1(rest).unwrap_or_else(|| by_custom(rest));
    let (tag, process, text) = said;
    let (buffer, priority) = (buffer(number / 8), priority(number % 8));
    Message { buffer, priority, tag, process, text }
}

fn buffer(facility: u32) -> Buffer {
    match facility {
        1 | 16..=23 => Buffer::Main,
        _ => Buffer::System,
    }
}

fn priority(severity: u32) -> Priority {
    match severity {
        0..=2 => Priority::Fatal,
        3 => Priority::Error,
        4 => Priority::Warn,
        5 | 6 => Priority::Info,
        _ => Priority::Debug,
    }
}

/// Parses `<34>`, and returns the rest.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let inside = bytes.strip_prefix(b"<")?;
    let digits = inside.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = inside.split_at(digits);
    let number = decimal(digits).filter(|number| *number <= MAX_NUMBER)?;
    Some((number, rest.strip_prefix(b">")?))
}

fn decimal(digits: &[u8]) -> Option<u32> {
    let all = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()
}

type Said<'a> = (&'a [u8], Option<u32>, &'a [u8]);

/// Parses the rest of a datagram of RFC 5424.
fn version_1(bytes: &[u8]) -> Option<Said<'_>> {
    let rest = bytes.strip_prefix(b"1 ")?;
    let (_time, rest) = word(rest)?;
    let (_host, rest) = word(rest)?;
    let (tag, rest) = word(rest)?;
    let (process, rest) = word(rest)?;
    let (_id, rest) = word(rest)?;
    let text = after_data(rest)?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let tag = if tag == b"-" { NO_TAG } else { &tag[..tag.len().min(MAX_TAG_BYTES)] };
    Some((tag, decimal(process), text))
}

/// Splits off a word that is not empty and the space after it.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b' ').filter(|end| *end > 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Skips `-` or `[id name="value"]...`. In values a backslash precedes a bracket.
fn after_data(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = match bytes.strip_prefix(b"-") {
        Some(rest) => rest,
        None => bytes,
    };
    while let Some(inside) = rest.strip_prefix(b"[") {
        let mut escaped = false;
        let end = inside.iter().position(|&byte| {
            let ends = byte == b']' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        rest = &inside[end + 1..];
    }
    match rest {
        [] => Some(rest),
        [b' ', text @ ..] => Some(text),
        _ => None,
    }
}

/// Parses the rest of a datagram of RFC 3164, or of the C library's syslog(3).
fn by_custom(bytes: &[u8]) -> Said<'_> {
    let rest = after_time(bytes);
    let known = tagged(rest).or_else(|| {
        // The tag may follow a host's name.
        word(rest).filter(|_| rest.len() < bytes.len()).and_then(|(_, rest)| tagged(rest))
    });
    known.unwrap_or((NO_TAG, None, rest))
}

/// Skips `Oct 11 22:14:15 `, if it is there.
fn after_time(bytes: &[u8]) -> &[u8] {
    const FORM: &[u8; 16] = b"Aaa 09 00:00:00 ";
    let matches = |(byte, form): (&u8, &u8)| match form {
        b'A' => byte.is_ascii_uppercase(),
        b'a' => byte.is_ascii_lowercase(),
        b'0' => byte.is_ascii_digit(),
        // The first of a day's two digits may be a space.
        b'9' => byte.is_ascii_digit(),
        same => byte == same,
    };
    let Some((time, rest)) = bytes.split_first_chunk::<16>() else { return bytes };
    let day = time[4] == b' ' || time[4].is_ascii_digit();
    let others = time.iter().zip(FORM).enumerate().all(|(at, pair)| at == 4 || matches(pair));
    if day && others { rest } else { bytes }
}

/// Parses `su[1024]: words` or `su: words`.
fn tagged(bytes: &[u8]) -> Option<Said<'_>> {
    let end = bytes.iter().position(|byte| b"[: ".contains(byte))?;
    let (tag, mut rest) = bytes.split_at(end);
    let mut process = None;
    if let Some(inside) = rest.strip_prefix(b"[") {
        let digits = inside.iter().position(|&byte| byte == b']')?;
        process = decimal(&inside[..digits]);
        rest = &inside[digits + 1..];
    }
    let text = rest.strip_prefix(b":")?;
    let sound =
        !tag.is_empty() && tag.len() <= MAX_TAG_BYTES && tag.iter().all(u8::is_ascii_graphic);
    sound.then(|| (tag, process, text.strip_prefix(b" ").unwrap_or(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Buffer::{Main, System};
    use Priority::{Debug, Error, Fatal, Info, Warn};

    fn check(
        datagram: &str,
        buffer: Buffer,
        priority: Priority,
        (tag, process, text): (&str, Option<u32>, &str),
    ) {
        let (tag, text) = (tag.as_bytes(), text.as_bytes());
        let expected = Message { buffer, priority, tag, process, text };
        assert_eq!(parse(datagram.as_bytes()), expected, "{datagram}");
    }

    /// The first three are the examples of RFC 3164, section 5.4.
    #[test]
    fn by_custom() {
        let words = "'su root' failed for lonvick on /dev/pts/8";
        check(
            &format!("<34>Oct 11 22:14:15 mymachine su: {words}"),
            System,
            Fatal,
            ("su", None, words),
        );
        check("Use the BFG!", Main, Info, ("syslog", None, "Use the BFG!"));
        let words = "%% It's time to make the do-nuts.";
        check(
            &format!("<165>Aug 24 05:34:00 CST 1987 mymachine myproc[10]: {words}"),
            Main,
            Info,
            ("syslog", None, &format!("CST 1987 mymachine myproc[10]: {words}")),
        );
        check("<13>Feb  5 17:32:18 sshd[77]: in", Main, Info, ("sshd", Some(77), "in"));
        check("<27>Feb  5 17:32:18 dhcpd: out\n\0", System, Error, ("dhcpd", None, "out"));
        check("<15>app: x", Main, Debug, ("app", None, "x"));
        check("<12>two words: x", Main, Warn, ("syslog", None, "two words: x"));
        check("<13>Feb  5 17:32:18 host words", Main, Info, ("syslog", None, "host words"));
        check("", Main, Info, ("syslog", None, ""));
        check("<192>x: y", Main, Info, ("<192>x", None, "y"));
        check("<>x", Main, Info, ("syslog", None, "<>x"));
    }

    /// Examples of RFC 5424, section 6.5.
    #[test]
    fn version_1() {
        let words = "'su root' failed for lonvick on /dev/pts/8";
        check(
            &format!(
                "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}{words}"
            ),
            System,
            Fatal,
            ("su", None, words),
        );
        let words = "%% It's time to make the do-nuts.";
        check(
            &format!("<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - {words}"),
            Main,
            Info,
            ("myproc", Some(8710), words),
        );
        let data = concat!(
            r#"[exampleSDID@32473 iut="3" eventSource="App\]" eventID="1011"]"#,
            r#"[examplePriority@32473 class="high"]"#
        );
        let head = "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47";
        check(&format!("{head} {data} words"), Main, Info, ("evntslog", None, "words"));
        check(&format!("{head} {data}"), Main, Info, ("evntslog", None, ""));
        check("<13>1 - - - - - - x", Main, Info, ("syslog", None, "x"));
        check("<13>1 - - - - - [open", Main, Info, ("syslog", None, "1 - - - - - [open"));
    }
}
