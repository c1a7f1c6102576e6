//! libcore.icu.ICU: case mapping, currencies, and English names of locales

use super::locale;
use super::values::{NULL, Outcome, boolean, rust, strings, text, units, utf16};
use crate::stack::{Args, Value};
use crate::string;
use crate::vm::{Native, Thread, Thrown};

const ICU: &str = "Llibcore/icu/ICU;";

macro_rules! locales {
    ($name:literal) => {
        (ICU, $name, "()[Ljava/lang/String;", |t, _| Ok(Value::Ref(strings(t, locale::AVAILABLE)?)))
    };
}

macro_rules! version {
    ($name:literal, $text:expr) => {
        (ICU, $name, "()Ljava/lang/String;", |t, _| Ok(Value::Ref(text(t, $text)?)))
    };
}

pub(super) const TABLE: &[Native] = &[
    version!("getIcuVersion", "51.1"),
    version!("getCldrVersion", "23.0"),
    (ICU, "getUnicodeVersion", "()Ljava/lang/String;", |t, _| {
        let (major, minor, _) = char::UNICODE_VERSION;
        Ok(Value::Ref(text(t, &format!("{major}.{minor}"))?))
    }),
    (ICU, "toLowerCase", "(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        let (of, turkic) = (units(t, a.reference(0))?, is_turkic(t, a)?);
        map(t, &of, |text| if turkic { turkic_lower(text) } else { text.to_lowercase() })
    }),
    (ICU, "toUpperCase", "(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        let (of, turkic) = (units(t, a.reference(0))?, is_turkic(t, a)?);
        map(t, &of, |text| {
            if turkic { text.replace('i', "\u{130}").to_uppercase() } else { text.to_uppercase() }
        })
    }),
    locales!("getAvailableLocalesNative"),
    locales!("getAvailableBreakIteratorLocalesNative"),
    locales!("getAvailableCalendarLocalesNative"),
    locales!("getAvailableCollatorLocalesNative"),
    locales!("getAvailableDateFormatLocalesNative"),
    locales!("getAvailableNumberFormatLocalesNative"),
    (ICU, "initLocaleDataNative", "(Ljava/lang/String;Llibcore/icu/LocaleData;)Z", |t, a| {
        locale::fill(t, &rust(t, a.reference(0))?, a.reference(1))?;
        boolean(true)
    }),
    (
        ICU,
        "getBestDateTimePatternNative",
        "(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;",
        |t, a| {
            let skeleton = rust(t, a.reference(0))?;
            let pattern = PATTERNS.iter().find(|(of, _)| *of == skeleton);
            Ok(Value::Ref(text(t, pattern.map_or(skeleton.as_str(), |(_, pattern)| pattern))?))
        },
    ),
    (ICU, "getCurrencyCode", "(Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        let country = rust(t, a.reference(0))?;
        match CURRENCIES.iter().find(|(_, _, countries)| countries.contains(&country.as_str())) {
            Some((code, ..)) => Ok(Value::Ref(text(t, code)?)),
            None => NULL,
        }
    }),
    (ICU, "getAvailableCurrencyCodes", "()[Ljava/lang/String;", |t, _| {
        let codes: Vec<&str> = CURRENCIES.iter().map(|it| it.0).collect();
        Ok(Value::Ref(strings(t, &codes)?))
    }),
    (ICU, "getCurrencyFractionDigits", "(Ljava/lang/String;)I", |t, a| {
        let code = rust(t, a.reference(0))?;
        Ok(Value::Int(if matches!(code.as_str(), "JPY" | "KRW" | "CLP" | "VND") { 0 } else { 2 }))
    }),
    (
        ICU,
        "getCurrencySymbol",
        "(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;",
        |t, a| {
            let code = rust(t, a.reference(1))?;
            let known = CURRENCIES.iter().find(|(known, ..)| *known == code);
            Ok(Value::Ref(text(t, known.map_or(code.as_str(), |(_, symbol, _)| symbol))?))
        },
    ),
    (ICU, "getISO3LanguageNative", "(Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        Ok(Value::Ref(text(t, locale::language_of_three(&rust(t, a.reference(0))?))?))
    }),
    (ICU, "getISO3CountryNative", "(Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        Ok(Value::Ref(text(t, locale::country_of_three(&rust(t, a.reference(0))?))?))
    }),
    display("getDisplayLanguageNative", |t, a| {
        named(t, a, &[("en", "English"), ("de", "German"), ("fr", "French"), ("ja", "Japanese")])
    }),
    display("getDisplayCountryNative", |t, a| {
        named(
            t,
            a,
            &[
                ("US", "United States"),
                ("GB", "United Kingdom"),
                ("DE", "Germany"),
                ("FR", "France"),
                ("JP", "Japan"),
            ],
        )
    }),
    display("getDisplayVariantNative", |t, a| named(t, a, &[])),
];

const fn display(name: &'static str, function: crate::vm::NativeFn) -> Native {
    (ICU, name, "(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;", function)
}

/// The English name of a code, or the code.
fn named(t: &Thread, a: Args, names: &[(&str, &str)]) -> Outcome {
    let code = rust(t, a.reference(0))?;
    let known = names.iter().find(|(of, _)| *of == code);
    Ok(Value::Ref(text(t, known.map_or(code.as_str(), |(_, name)| name))?))
}

/// Patterns of dates by what they show.
const PATTERNS: &[(&str, &str)] = &[
    ("hm", "h:mm a"),
    ("Hm", "HH:mm"),
    ("hms", "h:mm:ss a"),
    ("Hms", "HH:mm:ss"),
    ("MMMd", "MMM d"),
    ("MMMMd", "MMMM d"),
    ("yMd", "M/d/yyyy"),
    ("yMMMd", "MMM d, yyyy"),
    ("yMMMM", "MMMM yyyy"),
];

/// Currencies with their symbol and their countries.
const CURRENCIES: &[(&str, &str, &[&str])] = &[
    ("USD", "$", &["US", "EC", "SV", "PR"]),
    ("EUR", "€", &["AT", "BE", "DE", "ES", "FI", "FR", "GR", "IE", "IT", "LU", "NL", "PT"]),
    ("GBP", "£", &["GB"]),
    ("JPY", "¥", &["JP"]),
    ("CHF", "CHF", &["CH", "LI"]),
    ("CAD", "CA$", &["CA"]),
    ("AUD", "A$", &["AU"]),
    ("CNY", "CN¥", &["CN"]),
    ("INR", "₹", &["IN"]),
    ("KRW", "₩", &["KR"]),
];

fn is_turkic(t: &Thread, a: Args) -> Result<bool, Thrown> {
    let locale = rust(t, a.reference(1))?;
    Ok(matches!(locale.split('_').next(), Some("tr" | "az")))
}

fn turkic_lower(text: &str) -> String {
    text.replace("I\u{307}", "i").replace('\u{130}', "i").replace('I', "ı").to_lowercase()
}

fn map(t: &Thread, of: &[u16], with: impl Fn(&str) -> String) -> Outcome {
    Ok(Value::Ref(utf16(t, &string::map_valid(of, with))?))
}
