use super::*;

fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

/// All matches of a pattern as text, groups separated by `,` and matches by `;`.
fn all(pattern: &str, flags: u32, text: &str) -> String {
    let pattern = match Pattern::compile(&units(pattern), flags) {
        Ok(pattern) => pattern,
        Err(error) => return format!("{} at {}", error.description, error.index),
    };
    let text = units(text);
    let mut input = Input {
        units: &text,
        region: 0..text.len(),
        anchoring: true,
        transparent: false,
        last_end: 0,
    };
    let mut found = Vec::new();
    let mut from = 0;
    while from <= text.len() {
        let Some(groups) = pattern.find(&input, from).groups else { break };
        let whole = groups[0].clone().unwrap();
        let show = |group: &Option<std::ops::Range<usize>>| match group {
            Some(range) => String::from_utf16_lossy(&text[range.clone()]),
            None => "-".to_owned(),
        };
        found.push(groups.iter().map(show).collect::<Vec<_>>().join(","));
        input.last_end = whole.end;
        from = if whole.is_empty() { whole.end + 1 } else { whole.end };
    }
    found.join(";")
}

#[test]
fn matches_are_java_s() {
    // `java` finds these matches; texts and places of errors are ours.
    for (pattern, text, expect) in [
        ("a|ab", "ab", "a"),
        ("(a|ab)(c|bcd)(d*)", "abcd", "abcd,a,bcd,"),
        ("a*", "aab", "aa;;"),
        ("a*?b", "aab", "aab"),
        ("(a+)+b", "aaab", "aaab,aaa"),
        ("a{2,3}", "aaaaa", "aaa;aa"),
        ("a{2,3}?", "aaaaa", "aa;aa"),
        ("a++a", "aaa", ""),
        ("(?>a|ab)c", "abc", ""),
        ("(?:ab){2}", "ababab", "abab"),
        ("(ab)*+c", "ababc", "ababc,ab"),
        ("(x?)*", "xx", "xx,;,"),
        ("(a|b)*c", "abac", "abac,a"),
        (r"(\w)\1", "abccd", "cc,c"),
        (r"(?<q>[*x]).*?\k<q>", "*abc*", "*abc*,*"),
        ("[a-c&&[^b]]+", "abcca", "a;cca"),
        ("[^a-y]", "xyz", "z"),
        ("[a[xy]]+", "bxay", "xay"),
        ("[]a]", "]", "]"),
        (r"[\d-]+", "1-2", "1-2"),
        (r"\p{Lu}\p{javaLowerCase}+", "Äpfel Birne", "Äpfel;Birne"),
        (r"\P{L}", "a1", "1"),
        (r"\bis\b", "this is", "is"),
        ("(?i)äB", "ÄbäB", "Äb;äB"),
        ("(?i:a)b", "AbAB", "Ab"),
        ("foo(?=bar)", "foobaz foobar", "foo"),
        ("foo(?!bar)", "foobar foobaz", "foo"),
        ("(?<=a|bc)d", "ad bcd cd", "d;d"),
        (r"(?<!\d)x", "1x x", "x"),
        ("(?<=a+)b", "ab", "Look-behind group does not have an obvious maximum length at 7"),
        ("^b", "a\nb", ""),
        ("(?m)^b$", "a\nb\n", "b"),
        ("b$", "a\nb\n", "b"),
        (r"b\z", "b\n", ""),
        ("(?s).", "\n", "\n"),
        (".", "\r", ""),
        ("(?d).", "\r", "\r"),
        ("(?x) a b # c", "ab", "ab"),
        (r"\Qa.b\E+", "a.bb a+b", "a.bb"),
        (r"\x41\u0042\x{43}\0104\cA", "ABCD\u{1}", "ABCD\u{1}"),
        (r"\Ga", "aaba", "a;a"),
        (".", "𝒳", "𝒳"),
        ("[𝒳-𝒵]+", "𝒳𝒴a", "𝒳𝒴"),
        (r"\R", "a\r\nb\n", "\r\n;\n"),
        ("(", "", "Unclosed group at 1"),
        ("a)", "", "Unmatched closing ')' at 1"),
        ("*a", "", "Dangling meta character at 0"),
        ("[a", "", "Unclosed character class at 2"),
        ("a{3,2}", "", "Illegal repetition range at 6"),
        (r"\i", "", "Illegal/unsupported escape sequence at 1"),
    ] {
        assert_eq!(all(pattern, 0, text), expect, "{pattern:?} on {text:?}");
    }
}

#[test]
fn a_long_input_needs_no_stack() {
    let text = "ab".repeat(200_000);
    assert_eq!(all("(?:a|b)*", 0, &text).len(), text.len() + 1);
}

#[test]
fn deep_nesting_is_an_error() {
    let pattern = "(".repeat(10_000);
    assert!(all(&pattern, 0, "").starts_with("Groups nest too deep"));
}

#[test]
fn regions_and_ends() {
    let text = units("xabcx");
    let mut input =
        Input { units: &text, region: 1..4, anchoring: true, transparent: false, last_end: 0 };
    let find = |pattern: &str, input: &Input<'_>| {
        let outcome = Pattern::compile(&units(pattern), 0).unwrap().find(input, 1);
        (outcome.groups.map(|g| g[0].clone().unwrap()), outcome.hit_end, outcome.require_end)
    };
    assert_eq!(find("^abc$", &input), (Some(1..4), true, true));
    assert_eq!(find("ab", &input), (Some(1..3), false, false));
    assert_eq!(find("abc+", &input), (Some(1..4), true, false));
    assert_eq!(find("abcx", &input), (None, true, false));
    assert_eq!(find("c(?=x)", &input).0, None);
    input.transparent = true;
    assert_eq!(find("c(?=x)", &input).0, Some(3..4));
    assert_eq!(find("(?<=x)a", &input).0, Some(1..2));
    input.anchoring = false;
    assert_eq!(find("^abc", &input).0, None);
}
