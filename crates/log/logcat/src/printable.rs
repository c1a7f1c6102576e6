//! `-v printable`: escapes for bytes that would move a terminal's cursor.

/// Appends a line of a message with escapes. Tabs and letters of any script stay as they are.
pub fn escape(line: &[u8], out: &mut Vec<u8>) {
    for chunk in line.utf8_chunks() {
        for letter in chunk.valid().chars() {
            escape_letter(letter, out);
        }
        chunk.invalid().iter().for_each(|&byte| escape_byte(byte, out));
    }
}

fn escape_letter(letter: char, out: &mut Vec<u8>) {
    let short = match letter {
        '\t' => None,
        '\x07' => Some(b'a'),
        '\x08' => Some(b'b'),
        '\n' => Some(b'n'),
        '\x0b' => Some(b'v'),
        '\x0c' => Some(b'f'),
        '\r' => Some(b'r'),
        '\\' => Some(b'\\'),
        '\0'..' ' | '\x7f' => return escape_byte(letter as u8, out),
        _ => None,
    };
    match short {
        Some(short) => out.extend([b'\\', short]),
        None => out.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |half: u8| DIGITS[usize::from(half)];
    out.extend([b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        for (line, expected) in [
            (&b"plain text, tab\there"[..], "plain text, tab\there"),
            (b"\x1b[31mred\x07\x08\x0b\x0c\r\n\x7f\0", "\\x1B[31mred\\a\\b\\v\\f\\r\\n\\x7F\\x00"),
            (br"a\b", r"a\\b"),
            ("größer 好 🦀".as_bytes(), "größer 好 🦀"),
            (b"\xff\xc3(\xe2\x82", "\\xFF\\xC3(\\xE2\\x82"),
            // An overlong form, half of a surrogate pair, and a number beyond the last character.
            (
                b"\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80",
                "\\xC0\\xAF\\xED\\xA0\\x80\\xF4\\x90\\x80\\x80",
            ),
        ] {
            let mut out = Vec::new();
            escape(line, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
