//! Sizes in bytes, as text.

/// Parses the size of `-G`: a number, then K, M, G or T for a power of 1024, and an optional B.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let (digits, power) = match text.char_indices().last()? {
        (at, suffix) if suffix.is_ascii_alphabetic() => {
            (&text[..at], "kmgt".find(suffix.to_ascii_lowercase())? as u32 + 1)
        }
        _ => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1024_u64.checked_pow(power)?)?;
    (bytes > 0).then_some(bytes)
}

/// Formats a size as `-g` does: in whole units, rounded down.
pub fn show(mut bytes: u64) -> String {
    const UNITS: [&str; 4] = ["", "Ki", "Mi", "Gi"];
    let mut unit = 0;
    while bytes >= 1024 && unit + 1 < UNITS.len() {
        bytes /= 1024;
        unit += 1;
    }
    format!("{bytes} {}B", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1M", Some(1 << 20)),
            ("64k", Some(65536)),
            ("256KB", Some(1 << 18)),
            ("4096", Some(4096)),
            ("2G", Some(2 << 30)),
            ("0", None),
            ("", None),
            ("M", None),
            ("1X", None),
            ("-1K", None),
            ("18446744073709551615K", None),
            ("é", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        for (bytes, expected) in
            [(5, "5 B"), (1024, "1 KiB"), (1_048_575, "1023 KiB"), (5 << 40, "5120 GiB")]
        {
            assert_eq!(show(bytes), expected);
        }
    }
}
