//! The grammar of names and of types' descriptors.

use crate::string::Mutf8;

/// Whether a string is the descriptor of a type, `V` included.
pub(super) fn is_type(descriptor: Mutf8) -> bool {
    let bytes = descriptor.as_bytes();
    let n_dimensions = bytes.iter().take_while(|byte| **byte == b'[').count();
    match &bytes[n_dimensions..] {
        b"V" => n_dimensions == 0,
        [b'Z' | b'B' | b'S' | b'C' | b'I' | b'J' | b'F' | b'D'] => n_dimensions <= 255,
        [b'L', name @ .., b';'] => {
            n_dimensions <= 255 && name.split(|byte| *byte == b'/').all(is_simple_name)
        }
        _ => false,
    }
}

/// Whether a type is a class or an interface.
pub(super) fn is_class(descriptor: Mutf8) -> bool {
    descriptor.as_bytes().starts_with(b"L")
}

/// Whether a string is the name of a field or of a method.
pub(super) fn is_member_name(name: Mutf8) -> bool {
    match name.as_bytes() {
        [b'<', inner @ .., b'>'] => is_simple_name(inner),
        name => is_simple_name(name),
    }
}

/// Whether well-formed bytes are a name without punctuation.
fn is_simple_name(name: &[u8]) -> bool {
    let is_allowed = |character| match character {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '$' | '-' | '_' => true,
        '\u{a1}'..='\u{1fff}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{ffef}' => true,
        other => other >= '\u{10000}',
    };
    let characters = char::decode_utf16(Mutf8::accepted(name).utf16());
    !name.is_empty() && characters.into_iter().all(|character| character.is_ok_and(is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_follow_the_grammar() {
        let deep = "[".repeat(256) + "I";
        for (descriptor, expected) in [
            ("V", true),
            ("I", true),
            ("[[J", true),
            ("LFoo;", true),
            ("[La/b$c/D-_1;", true),
            ("L\u{e9}t\u{e9};", true),
            ("[V", false),
            ("", false),
            ("[", false),
            ("X", false),
            ("II", false),
            ("L;", false),
            ("La//b;", false),
            ("L/a;", false),
            ("La.b;", false),
            ("La;b;", false),
            ("L[a;", false),
            ("LFoo", false),
            (&deep[1..], true),
            (&deep, false),
        ] {
            let string = Mutf8::new(descriptor.as_bytes()).unwrap();
            assert_eq!(is_type(string), expected, "{descriptor}");
        }
    }

    #[test]
    fn names_follow_the_grammar() {
        for (name, expected) in [
            (&b"main"[..], true),
            (b"<init>", true),
            (b"access$000", true),
            (b"\xed\xa0\xbd\xed\xb8\x80", true),
            (b"\xed\xa0\xbd", false),
            (b"", false),
            (b"<>", false),
            (b"<init", false),
            (b"a b", false),
            (b"a/b", false),
        ] {
            assert_eq!(is_member_name(Mutf8::new(name).unwrap()), expected, "{name:?}");
        }
    }
}
