//! libcore.icu.LocaleData: names, patterns and symbols of a locale
//!
//! The data are the C library's (`pure-rust-locales`), which has one pattern for dates, where Java
//! wants four: the others follow its order. American English has the patterns of the Unicode CLDR.

use super::values::{call, field, non_null, strings, text};
use crate::object::Ref;
use crate::stack::Value;
use crate::vm::{Thread, Thrown};

/// The data of a locale that the VM uses, by the names of the C library.
struct Data {
    name: &'static str,
    days: &'static [&'static str],
    short_days: &'static [&'static str],
    months: &'static [&'static str],
    short_months: &'static [&'static str],
    halves: &'static [&'static str],
    date: &'static str,
    week: Option<&'static [i64]>,
    first_weekday: Option<i64>,
    decimal: &'static str,
    grouping: &'static str,
    monetary: &'static str,
    currency: &'static str,
    international_currency: &'static str,
    currency_first: i64,
    language: Option<&'static str>,
    language_of_three: Option<&'static str>,
    country: Option<&'static str>,
    country_of_three: Option<&'static str>,
}

macro_rules! data {
    ($($name:ident),+) => {
        /// The locales that have data.
        pub(super) const AVAILABLE: &[&str] = &[$(stringify!($name)),+];

        const DATA: &[Data] = &[$({
            use pure_rust_locales::$name::{LC_ADDRESS, LC_MONETARY, LC_NUMERIC, LC_TIME};
            Data {
                name: stringify!($name),
                days: LC_TIME::DAY,
                short_days: LC_TIME::ABDAY,
                months: LC_TIME::MON,
                short_months: LC_TIME::ABMON,
                halves: LC_TIME::AM_PM,
                date: LC_TIME::D_FMT,
                week: LC_TIME::WEEK,
                first_weekday: LC_TIME::FIRST_WEEKDAY,
                decimal: LC_NUMERIC::DECIMAL_POINT,
                grouping: LC_NUMERIC::THOUSANDS_SEP,
                monetary: LC_MONETARY::MON_DECIMAL_POINT,
                currency: LC_MONETARY::CURRENCY_SYMBOL,
                international_currency: LC_MONETARY::INT_CURR_SYMBOL,
                currency_first: LC_MONETARY::P_CS_PRECEDES,
                language: LC_ADDRESS::LANG_AB,
                language_of_three: LC_ADDRESS::LANG_TERM,
                country: LC_ADDRESS::COUNTRY_ABTWO,
                country_of_three: LC_ADDRESS::COUNTRY_AB3,
            }
        }),+];
    };
}

// The first of a language is the one for the language alone, and the first of all for others.
data!(
    en_US, da_DK, de_DE, de_AT, de_CH, en_CA, en_GB, es_ES, fi_FI, fr_FR, fr_CA, fr_CH, it_IT,
    ja_JP, ko_KR, nl_NL, pl_PL, pt_BR, pt_PT, ru_RU, sv_SE, zh_CN, zh_TW
);

/// The data for Java's name of a locale.
fn data(name: &str) -> &'static Data {
    let language = name.split('_').next().unwrap_or_default();
    let country = name.split('_').nth(1).unwrap_or_default();
    let exact = DATA.iter().find(|it| it.name == format!("{language}_{country}"));
    let of_language = || DATA.iter().find(|it| it.name.split('_').next() == Some(language));
    exact.or_else(of_language).unwrap_or(&DATA[0])
}

/// The code with three letters of a locale's language (ISO 639-2).
pub(super) fn language_of_three(name: &str) -> &str {
    let language = name.split('_').next().unwrap_or_default();
    let known = DATA.iter().find(|it| it.language == Some(language));
    match known.and_then(|it| it.language_of_three) {
        Some(three) => three,
        None if language.len() == 3 => language,
        None => "",
    }
}

/// The code with three letters of a locale's country (ISO 3166).
pub(super) fn country_of_three(name: &str) -> &'static str {
    let country = name.split('_').nth(1).unwrap_or_default();
    let known = DATA.iter().find(|it| it.country == Some(country));
    known.and_then(|it| it.country_of_three).unwrap_or_default()
}

/// Fills a LocaleData.
pub(super) fn fill(t: &Thread, name: &str, data: Ref) -> Result<(), Thrown> {
    non_null(t, data, "result")?;
    let locale = self::data(name);
    names(t, locale, data)?;
    week(t, locale, data)?;
    texts(t, locale, data)?;
    symbols(locale, data);
    Ok(())
}

const STRINGS: &str = "[Ljava/lang/String;";

fn names(t: &Thread, locale: &'static Data, data: Ref) -> Result<(), Thrown> {
    let months = locale.months.to_vec();
    let short_months = locale.short_months.to_vec();
    // Java counts days from one.
    let from_one = |days: &[&'static str]| [&[""], days].concat();
    let days = from_one(locale.days);
    let short_days = from_one(locale.short_days);
    for (what, long, short) in
        [("MonthNames", months, short_months), ("WeekdayNames", days, short_days)]
    {
        let tiny = long.iter().map(|name| name.chars().take(1).collect::<String>().to_uppercase());
        let tiny: Vec<String> = tiny.collect();
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (size, names) in [("long", owned(&long)), ("short", owned(&short)), ("tiny", tiny)] {
            let names: Vec<String> = names;
            for alone in ["", "StandAlone"] {
                let array = strings(t, &names)?;
                field(data, &format!("{size}{alone}{what}"), STRINGS).set_ref(data, array);
            }
        }
    }
    let halves = locale.halves;
    let halves = if halves.iter().all(|half| half.is_empty()) { &["AM", "PM"] } else { halves };
    for (name, names) in [("amPm", halves), ("eras", &["BC", "AD"])] {
        field(data, name, STRINGS).set_ref(data, strings(t, names)?);
    }
    Ok(())
}

fn week(t: &Thread, locale: &'static Data, data: Ref) -> Result<(), Thrown> {
    let week = locale.week.unwrap_or(&[]);
    // Days count from the one that has this date, which was a Sunday or a Monday.
    let monday = i64::from(week.get(1) == Some(&19_971_201));
    let first = locale.first_weekday.unwrap_or(1);
    let first = (first - 1 + monday).rem_euclid(7) + 1;
    let least = week.get(2).copied().unwrap_or(1);
    for (name, value) in [("firstDayOfWeek", first), ("minimalDaysInFirstWeek", least)] {
        let signature = "(I)Ljava/lang/Integer;";
        let value = [Value::Int(value as i32)];
        let made = call(t, "java/lang/Integer", "valueOf", signature, &value)?;
        field(data, name, "Ljava/lang/Integer;").set_ref(data, made.reference());
    }
    Ok(())
}

fn texts(t: &Thread, locale: &'static Data, data: Ref) -> Result<(), Thrown> {
    let american = locale.name == "en_US";
    let short = java_pattern(locale.date);
    let [full_date, long_date, medium_date, short_date] = match short.chars().next() {
        _ if american => ["EEEE, MMMM d, y", "MMMM d, y", "MMM d, y", "M/d/yy"],
        Some('y') => ["EEEE y MMMM d", "y MMMM d", "y MMM d", &short],
        _ => ["EEEE d MMMM y", "d MMMM y", "d MMM y", &short],
    };
    let [full_time, long_time, medium_time, short_time] = match american {
        true => ["h:mm:ss a zzzz", "h:mm:ss a z", "h:mm:ss a", "h:mm a"],
        false => ["HH:mm:ss zzzz", "HH:mm:ss z", "HH:mm:ss", "HH:mm"],
    };
    let currency_pattern = match locale.currency_first {
        0 => "#,##0.00\u{a0}\u{a4}",
        _ if american => "\u{a4}#,##0.00;(\u{a4}#,##0.00)",
        _ => "\u{a4}#,##0.00",
    };
    for (name, value) in [
        ("yesterday", "yesterday"),
        ("today", "today"),
        ("tomorrow", "tomorrow"),
        ("fullTimeFormat", full_time),
        ("longTimeFormat", long_time),
        ("mediumTimeFormat", medium_time),
        ("shortTimeFormat", short_time),
        ("fullDateFormat", full_date),
        ("longDateFormat", long_date),
        ("mediumDateFormat", medium_date),
        ("shortDateFormat", short_date),
        ("exponentSeparator", "E"),
        ("infinity", "\u{221e}"),
        ("NaN", "NaN"),
        ("currencySymbol", locale.currency),
        ("internationalCurrencySymbol", locale.international_currency.trim_end()),
        ("numberPattern", "#,##0.###"),
        ("currencyPattern", currency_pattern),
        ("percentPattern", "#,##0%"),
    ] {
        field(data, name, "Ljava/lang/String;").set_ref(data, text(t, value)?);
    }
    Ok(())
}

fn symbols(locale: &'static Data, data: Ref) {
    let first = |text: &str, otherwise| text.chars().next().unwrap_or(otherwise);
    let decimal = first(locale.decimal, '.');
    let monetary = first(locale.monetary, decimal);
    let grouping = match first(locale.grouping, ',') {
        // As Java had it before the narrow one.
        '\u{202f}' => '\u{a0}',
        grouping => grouping,
    };
    for (name, value) in [
        ("zeroDigit", '0'),
        ("decimalSeparator", decimal),
        ("groupingSeparator", grouping),
        ("patternSeparator", ';'),
        ("percent", '%'),
        ("perMill", '\u{2030}'),
        ("monetarySeparator", monetary),
        ("minusSign", '-'),
    ] {
        field(data, name, "C").set32(data, value as u32);
    }
}

/// Java's pattern of a date for the one of C's strftime.
fn java_pattern(c: &str) -> String {
    let mut java = String::new();
    let mut chars = c.chars();
    while let Some(at) = chars.next() {
        if at != '%' {
            // Letters are fields.
            match at.is_ascii_alphabetic() {
                true => java.extend(['\'', at, '\'']),
                false => java.push(at),
            }
            continue;
        }
        let (field, padded) = match chars.next() {
            Some('-' | 'E' | 'O') => (chars.next(), false),
            field => (field, true),
        };
        java += match (field, padded) {
            (Some('d'), true) => "dd",
            (Some('d' | 'e'), _) => "d",
            (Some('m'), true) => "MM",
            (Some('m'), false) => "M",
            (Some('y'), true) => "yy",
            (Some('y' | 'Y'), _) => "yyyy",
            (Some('b' | 'h'), _) => "MMM",
            (Some('B'), _) => "MMMM",
            (Some('a'), _) => "EEE",
            (Some('A'), _) => "EEEE",
            _ => "",
        };
    }
    java
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_locale() {
        for (name, found) in [
            ("fr", "fr_FR"),
            ("fr_CA", "fr_CA"),
            ("sv", "sv_SE"),
            ("de_DE_EURO", "de_DE"),
            ("en_XX", "en_US"),
            ("xx", "en_US"),
            ("", "en_US"),
            ("_", "en_US"),
        ] {
            assert_eq!(data(name).name, found, "{name}");
        }
        assert_eq!((language_of_three("fr_FR"), language_of_three("eng_USA")), ("fra", "eng"));
        assert_eq!((country_of_three("de_AT"), country_of_three("de")), ("AUT", ""));
    }

    #[test]
    fn patterns_become_java_s() {
        for (c, java) in [
            ("%d/%m/%Y", "dd/MM/yyyy"),
            ("%Y-%m-%d", "yyyy-MM-dd"),
            ("%-d.%-m.%y", "d.M.yy"),
            ("%a%d%b%Y", "EEEddMMMyyyy"),
            ("%d h %", "dd 'h' "),
        ] {
            assert_eq!(java_pattern(c), java, "{c}");
        }
    }
}
