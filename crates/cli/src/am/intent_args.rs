//! An intent on the command line, as Android's `am` takes it.

use crate::failure::{Failure, Kind};
use baton_services::intent::{Bundle, ComponentName, Intent, Uri, Value, flags};
use clap::Args;

/// The action in messages about a wrong extra.
const TRIED: &str = "make the intent";

/// The parts of an intent.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Intent")]
pub struct IntentArgs {
    /// Action
    #[arg(short, value_name = "ACTION")]
    action: Option<String>,
    /// URI of the data
    #[arg(short, value_name = "URI")]
    data: Option<String>,
    /// MIME type
    #[arg(short = 't', value_name = "TYPE")]
    mime_type: Option<String>,
    /// Identifier, which tells otherwise equal intents apart
    #[arg(short, value_name = "ID")]
    identifier: Option<String>,
    /// Category; may be given again
    #[arg(short = 'c', value_name = "CATEGORY")]
    categories: Vec<String>,
    /// Component that alone gets it, as org.example/.Class
    #[arg(short = 'n', value_name = "PACKAGE/CLASS", value_parser = parse_component)]
    component: Option<ComponentName>,
    /// Package whose components alone get it
    #[arg(short, value_name = "PACKAGE")]
    package: Option<String>,
    /// Flags, as a number: decimal, or hexadecimal behind 0x
    #[arg(short, value_name = "FLAGS", value_parser = parse_flags)]
    flags: Option<u32>,
    /// Set FLAG_RECEIVER_FOREGROUND
    #[arg(long)]
    receiver_foreground: bool,
    /// Set FLAG_RECEIVER_REGISTERED_ONLY
    #[arg(long)]
    receiver_registered_only: bool,
    /// Set FLAG_RECEIVER_REPLACE_PENDING
    #[arg(long)]
    receiver_replace_pending: bool,
    /// Set FLAG_RECEIVER_NO_ABORT
    #[arg(long)]
    receiver_no_abort: bool,
    /// Set FLAG_INCLUDE_STOPPED_PACKAGES
    #[arg(long)]
    include_stopped_packages: bool,
    /// Set FLAG_EXCLUDE_STOPPED_PACKAGES
    #[arg(long)]
    exclude_stopped_packages: bool,
    #[command(flatten)]
    extras: ExtraArgs,
}

/// The extras: pairs of a key and a value, by type.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Extras, each of which may be given again")]
struct ExtraArgs {
    /// Text
    #[arg(long, short_alias = 'e', num_args = 2, value_names = ["KEY", "TEXT"],
          allow_hyphen_values = true)]
    es: Vec<String>,
    /// No value
    #[arg(long, value_name = "KEY")]
    esn: Vec<String>,
    /// true or false
    #[arg(long, num_args = 2, value_names = ["KEY", "BOOLEAN"], allow_hyphen_values = true)]
    ez: Vec<String>,
    /// Number of 32 bits
    #[arg(long, num_args = 2, value_names = ["KEY", "INT"], allow_hyphen_values = true)]
    ei: Vec<String>,
    /// Number of 64 bits
    #[arg(long, num_args = 2, value_names = ["KEY", "LONG"], allow_hyphen_values = true)]
    el: Vec<String>,
    /// Number with a point, of 32 bits
    #[arg(long, num_args = 2, value_names = ["KEY", "FLOAT"], allow_hyphen_values = true)]
    ef: Vec<String>,
    /// Number with a point, of 64 bits
    #[arg(long, num_args = 2, value_names = ["KEY", "DOUBLE"], allow_hyphen_values = true)]
    ed: Vec<String>,
    /// URI
    #[arg(long, num_args = 2, value_names = ["KEY", "URI"], allow_hyphen_values = true)]
    eu: Vec<String>,
    /// Name of a component
    #[arg(long, num_args = 2, value_names = ["KEY", "PACKAGE/CLASS"], allow_hyphen_values = true)]
    ecn: Vec<String>,
    /// Numbers of 32 bits, with commas between them
    #[arg(long, num_args = 2, value_names = ["KEY", "INTS"], allow_hyphen_values = true)]
    eia: Vec<String>,
    /// Numbers of 64 bits, with commas between them
    #[arg(long, num_args = 2, value_names = ["KEY", "LONGS"], allow_hyphen_values = true)]
    ela: Vec<String>,
    /// Numbers with a point, with commas between them
    #[arg(long, num_args = 2, value_names = ["KEY", "FLOATS"], allow_hyphen_values = true)]
    efa: Vec<String>,
    /// Texts, with commas between them; \, is a comma within one
    #[arg(long, num_args = 2, value_names = ["KEY", "TEXTS"], allow_hyphen_values = true)]
    esa: Vec<String>,
}

/// A component's name.
pub fn parse_component(text: &str) -> Result<ComponentName, &'static str> {
    ComponentName::parse(text).ok_or("a component is PACKAGE/CLASS")
}

fn parse_flags(text: &str) -> Result<u32, &'static str> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "flags are a number of 32 bits: decimal, or hexadecimal behind 0x")
}

impl IntentArgs {
    /// The intent.
    ///
    /// # Errors
    /// Wrong usage: an extra's value is none of its type, its key is given twice, or nothing says
    /// what the intent is about.
    pub fn intent(&self) -> Result<Intent, Failure> {
        let extras = self.extras.bundle()?;
        let is_about = [&self.action, &self.data, &self.mime_type, &self.package];
        if is_about.iter().all(|part| part.is_none()) && self.component.is_none() {
            let wrong = "it has neither an action nor data nor somebody whom it is for";
            return Err(Failure::new(TRIED, wrong)
                .kind(Kind::Usage)
                .advice("give an action, as in -a org.example.NEWS"));
        }
        let flags = [
            (self.receiver_foreground, flags::RECEIVER_FOREGROUND),
            (self.receiver_registered_only, flags::RECEIVER_REGISTERED_ONLY),
            (self.receiver_replace_pending, flags::RECEIVER_REPLACE_PENDING),
            (self.receiver_no_abort, flags::RECEIVER_NO_ABORT),
            (self.include_stopped_packages, flags::INCLUDE_STOPPED_PACKAGES),
            (self.exclude_stopped_packages, flags::EXCLUDE_STOPPED_PACKAGES),
        ];
        let named = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
        Ok(Intent {
            action: self.action.clone(),
            data: self.data.as_deref().map(Uri::from),
            mime_type: self.mime_type.clone(),
            identifier: self.identifier.clone(),
            categories: self.categories.iter().cloned().collect(),
            package: self.package.clone(),
            component: self.component.clone(),
            flags: named.fold(self.flags.unwrap_or(0), |flags, flag| flags | flag),
            extras,
            ..Intent::default()
        })
    }
}

/// Reads a value. `None` if the text is none of the type.
type Read = fn(&str) -> Option<Value>;

impl ExtraArgs {
    /// Each option with its values, how they are read, and what they are.
    fn pairs(&self) -> [(&'static str, &[String], Read, &'static str); 12] {
        [
            ("--es", &self.es, |text| Some(text.into()), "a text"),
            ("--ez", &self.ez, |text| boolean(text).map(Value::Boolean), "true or false"),
            ("--ei", &self.ei, |text| number(text).map(Value::Integer), "a number of 32 bits"),
            ("--el", &self.el, |text| number(text).map(Value::Long), "a number of 64 bits"),
            ("--ef", &self.ef, |text| number(text).map(Value::Float), "a number"),
            ("--ed", &self.ed, |text| number(text).map(Value::Double), "a number"),
            ("--eu", &self.eu, |text| Some(Uri::from(text).into()), "a URI"),
            ("--ecn", &self.ecn, |text| Some(ComponentName::parse(text)?.into()), "PACKAGE/CLASS"),
            ("--eia", &self.eia, |text| numbers(text).map(Value::IntArray), "numbers of 32 bits"),
            ("--ela", &self.ela, |text| numbers(text).map(Value::LongArray), "numbers of 64 bits"),
            ("--efa", &self.efa, |text| numbers(text).map(Value::FloatArray), "numbers"),
            ("--esa", &self.esa, |text| Some(Value::StringArray(texts(text))), "texts"),
        ]
    }

    fn bundle(&self) -> Result<Bundle, Failure> {
        let usage = |wrong: String| Failure::new(TRIED, wrong).kind(Kind::Usage);
        let mut bundle = Bundle::new();
        let mut put = |key: &str, value: Value| match bundle.put(key, value) {
            None => Ok(()),
            Some(_) => Err(usage(format!("the extra {key:?} is given twice"))),
        };
        for key in &self.esn {
            put(key, Value::Null)?;
        }
        for (option, pairs, read, expected) in self.pairs() {
            for pair in pairs.chunks_exact(2) {
                let wrong = || usage(format!("{option} {} {:?}: not {expected}", pair[0], pair[1]));
                put(&pair[0], read(&pair[1]).ok_or_else(wrong)?)?;
            }
        }
        Ok(bundle)
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "t" | "1" => Some(true),
        "false" | "f" | "0" => Some(false),
        _ => None,
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn numbers<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').map(|part| number(part.trim())).collect()
}

/// Texts between commas that no backslash precedes.
fn texts(text: &str) -> Vec<Option<String>> {
    let mut texts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let last = texts.len() - 1;
        match letter {
            '\\' if letters.next_if_eq(&',').is_some() => texts[last].push(','),
            ',' => texts.push(String::new()),
            letter => texts[last].push(letter),
        }
    }
    texts.into_iter().map(Some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        intent: IntentArgs,
    }

    fn intent(words: &[&str]) -> Result<Intent, String> {
        let words = std::iter::once(&"am").chain(words);
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.intent.intent().map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn all_parts_of_an_intent() {
        let words = "-a VIEW -d http://h/p -t image/png -i id -c ONE -c TWO -n org.a/.B -p org.a \
                     -f 0x21 --receiver-foreground --receiver-no-abort";
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut expected = Intent::new("VIEW");
        expected.data = Some(Uri::from("http://h/p"));
        expected.mime_type = Some("image/png".to_owned());
        expected.identifier = Some("id".to_owned());
        expected.categories.extend(["ONE".to_owned(), "TWO".to_owned()]);
        expected.component = Some(ComponentName::new("org.a", "org.a.B"));
        expected.package = Some("org.a".to_owned());
        expected.flags = 0x1800_0021;
        assert_eq!(intent(&words), Ok(expected));
        for words in [&[][..], &["-f", "1"], &["--es", "key", "text", "-c", "ONE"]] {
            let wrong = intent(words).unwrap_err();
            assert!(wrong.contains("neither an action nor data"), "{wrong}");
        }
        let flags = [
            ("--receiver-foreground", 0x1000_0000),
            ("--receiver-registered-only", 0x4000_0000),
            ("--receiver-replace-pending", 0x2000_0000),
            ("--receiver-no-abort", 0x0800_0000),
            ("--include-stopped-packages", 0x20),
            ("--exclude-stopped-packages", 0x10),
        ];
        for (option, expected) in flags {
            assert_eq!(
                intent(&[option, "-f", "3", "-a", "A"]).unwrap().flags,
                expected | 3,
                "{option}"
            );
        }
    }

    #[test]
    fn extras_of_every_type() {
        let text = |text: &str| Some(text.to_owned());
        for (option, value, expected) in [
            ("--es", "a b", "a b".into()),
            ("-e", "-x", "-x".into()),
            ("--ez", "true", true.into()),
            ("--ez", "f", false.into()),
            ("--ei", "-5", Value::Integer(-5)),
            ("--el", "-9223372036854775808", Value::Long(i64::MIN)),
            ("--ef", "-1.5", Value::Float(-1.5)),
            ("--ed", "1e300", Value::Double(1e300)),
            ("--eu", "tel:1", Value::Uri(Uri::from("tel:1"))),
            ("--ecn", "p/.C", Value::Component(ComponentName::new("p", "p.C"))),
            ("--eia", "1,-2, 3", Value::IntArray(vec![1, -2, 3])),
            ("--ela", "4", Value::LongArray(vec![4])),
            ("--efa", "0.5,1", Value::FloatArray(vec![0.5, 1.0])),
            ("--esa", r"a,,b\,c\d", Value::StringArray(vec![text("a"), text(""), text(r"b,c\d")])),
        ] {
            let intent = intent(&[option, "key", value, "-a", "A"]).unwrap();
            assert_eq!(intent.extras.get("key"), Some(&expected), "{option}");
            assert_eq!(intent.action.as_deref(), Some("A"), "{option}");
        }
        let several =
            intent(&["-a", "A", "--ei", "a", "1", "--esn", "n", "--ei", "b", "2"]).unwrap().extras;
        let expected = [("a", &Value::Integer(1)), ("b", &Value::Integer(2)), ("n", &Value::Null)];
        assert_eq!(several.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, expected) in [
            (&["--ei", "k", "x"][..], r#"--ei k \"x\": not a number of 32 bits"#),
            (&["--ei", "k", "2147483648"], "not a number of 32 bits"),
            (&["--el", "k", "1.5"], "not a number of 64 bits"),
            (&["--ez", "k", "yes"], "not true or false"),
            (&["--ef", "k", ""], "not a number"),
            (&["--eia", "k", "1,,2"], "not numbers of 32 bits"),
            (&["--ecn", "k", "p"], "not PACKAGE/CLASS"),
            (&["--ei", "k", "1", "--es", "k", "x"], r#"the extra \"k\" is given twice"#),
            (&["--esn", "k", "--esn", "k"], r#"the extra \"k\" is given twice"#),
            (&["--ei", "k"], "2 values required"),
            (&["-n", "p"], "a component is PACKAGE/CLASS"),
            (&["-n", "/C"], "a component is PACKAGE/CLASS"),
            (&["-f", "0xx"], "flags are a number of 32 bits"),
            (&["-f", "4294967296"], "flags are a number of 32 bits"),
        ] {
            let wrong = intent(words).unwrap_err();
            assert!(wrong.contains(expected), "{words:?}: {wrong}");
        }
    }
}
