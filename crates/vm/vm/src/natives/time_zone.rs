//! libcore.icu.TimeZoneNames: English names of time zones

use super::values::{VOID, non_null, rust, text};
use crate::object::Ref;
use crate::vm::{Native, Thread, Thrown};

const NAMES: &str = "Llibcore/icu/TimeZoneNames;";

/// Where the class library has the zones from.
const DIRECTORY: &str = "/usr/share/zoneinfo";

pub(super) const TABLE: &[Native] = &[(
    NAMES,
    "fillZoneStrings",
    "(Ljava/lang/String;[[Ljava/lang/String;)V",
    // Rows have the zone's id first. A name that is missing stays null: Java forms GMT+01:00 then.
    |t, a| {
        let rows = non_null(t, a.reference(1), "result")?;
        for row in (0..rows.length()).map(|index| rows.get_ref(index)) {
            let id = t.scope(|| rust(t, row.get_ref(0)))?;
            if let Some(names) = names(&id) {
                fill(t, row, names)?;
            }
        }
        VOID
    },
)];

/// The long and the short name of a zone, then those of its daylight saving time.
type Names = [&'static str; 4];

fn fill(t: &Thread, row: Ref, names: &Names) -> Result<(), Thrown> {
    for (index, name) in (1..).zip(names).filter(|(_, name)| !name.is_empty()) {
        let name = t.scope(|| text(t, name))?;
        row.set_ref(index, name);
    }
    Ok(())
}

fn names(id: &str) -> Option<&'static Names> {
    let file = std::fs::read(format!("{DIRECTORY}/{id}")).ok()?;
    let rule = rule(&file)?;
    ZONES.iter().find(|(of, _)| *of == rule).map(|(_, names)| names)
}

/// The rule of a zone for times after its table, such as `CET-1CEST`, without dates.
///
/// It is the last line of the file (RFC 8536).
fn rule(file: &[u8]) -> Option<&str> {
    let line = file.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').next()?;
    str::from_utf8(line).ok()?.split(',').next()
}

/// Names by a zone's rule, as the Unicode CLDR has them.
#[rustfmt::skip]
const ZONES: &[(&str, Names)] = &[
    ("ACST-9:30", ["Australian Central Standard Time", "ACST", "", ""]),
    ("ACST-9:30ACDT", ["Australian Central Standard Time", "ACST",
        "Australian Central Daylight Time", "ACDT"]),
    ("AEST-10", ["Australian Eastern Standard Time", "AEST", "", ""]),
    ("AEST-10AEDT", ["Australian Eastern Standard Time", "AEST",
        "Australian Eastern Daylight Time", "AEDT"]),
    ("AKST9AKDT", ["Alaska Standard Time", "AKST", "Alaska Daylight Time", "AKDT"]),
    ("AST4", ["Atlantic Standard Time", "AST", "", ""]),
    ("AST4ADT", ["Atlantic Standard Time", "AST", "Atlantic Daylight Time", "ADT"]),
    ("AWST-8", ["Australian Western Standard Time", "AWST", "", ""]),
    ("CAT-2", ["Central Africa Time", "CAT", "", ""]),
    ("CET-1", ["Central European Standard Time", "CET", "", ""]),
    ("CET-1CEST", ["Central European Standard Time", "CET",
        "Central European Summer Time", "CEST"]),
    ("CST-8", ["China Standard Time", "CST", "", ""]),
    ("CST6", ["Central Standard Time", "CST", "", ""]),
    ("CST6CDT", ["Central Standard Time", "CST", "Central Daylight Time", "CDT"]),
    ("ChST-10", ["Chamorro Standard Time", "ChST", "", ""]),
    ("EAT-3", ["East Africa Time", "EAT", "", ""]),
    ("EET-2", ["Eastern European Standard Time", "EET", "", ""]),
    ("EET-2EEST", ["Eastern European Standard Time", "EET",
        "Eastern European Summer Time", "EEST"]),
    ("EST5", ["Eastern Standard Time", "EST", "", ""]),
    ("EST5EDT", ["Eastern Standard Time", "EST", "Eastern Daylight Time", "EDT"]),
    ("GMT0", ["Greenwich Mean Time", "GMT", "", ""]),
    ("GMT0BST", ["Greenwich Mean Time", "GMT", "British Summer Time", "BST"]),
    ("HKT-8", ["Hong Kong Standard Time", "HKT", "", ""]),
    ("HST10", ["Hawaii-Aleutian Standard Time", "HST", "", ""]),
    ("HST10HDT", ["Hawaii-Aleutian Standard Time", "HST",
        "Hawaii-Aleutian Daylight Time", "HDT"]),
    ("IST-1GMT0", ["Greenwich Mean Time", "GMT", "Irish Standard Time", "IST"]),
    ("IST-2IDT", ["Israel Standard Time", "IST", "Israel Daylight Time", "IDT"]),
    ("IST-5:30", ["India Standard Time", "IST", "", ""]),
    ("JST-9", ["Japan Standard Time", "JST", "", ""]),
    ("KST-9", ["Korean Standard Time", "KST", "", ""]),
    ("MSK-3", ["Moscow Standard Time", "MSK", "", ""]),
    ("MST7", ["Mountain Standard Time", "MST", "", ""]),
    ("MST7MDT", ["Mountain Standard Time", "MST", "Mountain Daylight Time", "MDT"]),
    ("NST3:30NDT", ["Newfoundland Standard Time", "NST", "Newfoundland Daylight Time", "NDT"]),
    ("NZST-12NZDT", ["New Zealand Standard Time", "NZST", "New Zealand Daylight Time", "NZDT"]),
    ("PKT-5", ["Pakistan Standard Time", "PKT", "", ""]),
    ("PST-8", ["Philippine Standard Time", "PST", "", ""]),
    ("PST8PDT", ["Pacific Standard Time", "PST", "Pacific Daylight Time", "PDT"]),
    ("SAST-2", ["South Africa Standard Time", "SAST", "", ""]),
    ("SST11", ["Samoa Standard Time", "SST", "", ""]),
    ("UTC0", ["Coordinated Universal Time", "UTC", "", ""]),
    ("WAT-1", ["West Africa Standard Time", "WAT", "", ""]),
    ("WET0WEST", ["Western European Standard Time", "WET",
        "Western European Summer Time", "WEST"]),
    ("WIB-7", ["Western Indonesia Time", "WIB", "", ""]),
    ("WIT-9", ["Eastern Indonesia Time", "WIT", "", ""]),
    ("WITA-8", ["Central Indonesia Time", "WITA", "", ""]),
];

#[cfg(test)]
mod tests {
    use super::rule;

    #[test]
    fn the_last_line_has_the_rule() {
        assert_eq!(rule(b"TZif2...\0\nCET-1CEST,M3.5.0,M10.5.0/3\n"), Some("CET-1CEST"));
        assert_eq!(rule(b"TZif2...\0\n<+03>-3\n"), Some("<+03>-3"));
        assert_eq!(rule(b"TZif, cut off"), None);
        assert_eq!(rule(b""), None);
    }
}
