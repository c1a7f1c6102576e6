//! `baton call`: one call of a service, by AIDL or by numbers.

use crate::aidl::error::AidlError;
use crate::aidl::interface::{Declared, Sources, Type, Typed};
use crate::aidl::parcel::{Replied, Writer};
use crate::aidl::syntax::{Argument, Direction, Method};
use crate::aidl::{self, FormArgs, value};
use crate::failure::{Failure, Kind};
use crate::manager::{self, ContextArgs, Manager, interface};
use crate::stdout::{show, show_json};
use crate::timeout::TimeoutArgs;
use baton::android::{self, Exception, Reader, Write, dump};
use baton::{Handle, Parcel, Received};
use clap::{Args, ValueEnum};
use rustix::fd::AsFd;
use serde::Serialize;
use serde_json::{Map, Value as Json};
use std::fs::File;
use std::path::Path;

/// A call.
#[derive(Args)]
#[command(after_help = "\
METHOD is a method's name in the files of --aidl, or of a service that comes with baton, and each \
ARGUMENT is the value of one parameter:
  boolean, numbers           true, false, 7, -1, 0xff, 1.5
  char                       a character, or its number
  String                     the text itself
  enumeration                a name of it, or a number
  array, List                JSON: [1, 2, 3]
  parcelable, union          JSON: {\"x\": 1, \"y\": 2}, with a union's one member
  IBinder, interface         null, or the name of a service
  ParcelFileDescriptor       a path: the file is opened to read
  out parameter              none; of an array the length that the service finds
  what is @nullable          also null
Printed are the result and the out parameters. With --json:
  {\"service\", \"interface\", \"method\", \"code\", \"result\", \"out\": {NAME: VALUE},
  \"exception\": {\"name\", \"code\", \"service_specific\", \"message\"}}

Without --aidl, METHOD may be a number, or four letters such as _PNG, and each argument is a kind
and its value:
  i32 N, i64 N, f N, d N   a number: 32 and 64 bit, float, double
  s16 TEXT                 a string
  null                     no object
  fd PATH                  the file, opened to read
Printed are the reply's bytes. With --json: {\"service\", \"interface\", \"code\", \"reply\"}, where
the reply is a string of hexadecimal digits.

An argument that begins with a hyphen and is no number comes behind `--`.

Examples:
  baton call echo echo hello
  baton call weather forecast '{\"city\": \"Oslo\"}' 3 --aidl aidl/
  baton call activity 1 i32 7 s16 hello")]
pub struct CallArgs {
    #[command(flatten)]
    place: ContextArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    limit: TimeoutArgs,
    /// The mark of the service's libbinder, if it is not the service manager's
    #[arg(long, value_enum)]
    mark: Option<Mark>,
    /// The service's name
    name: String,
    /// The method
    method: String,
    /// Arguments of the call
    #[arg(allow_negative_numbers = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// A mark of requests: a build of libbinder takes no other than its own.
#[derive(Clone, Copy, ValueEnum)]
enum Mark {
    /// Android's system, rsbinder, libgbinder, Baton
    System,
    /// Android's vendor processes
    Vendor,
    /// Android's recovery
    Recovery,
    /// libbinder as built for a Linux host
    Unknown,
}

impl From<Mark> for android::Mark {
    fn from(mark: Mark) -> android::Mark {
        match mark {
            Mark::System => android::Mark::System,
            Mark::Vendor => android::Mark::Vendor,
            Mark::Recovery => android::Mark::Recovery,
            Mark::Unknown => android::Mark::Unknown,
        }
    }
}

/// Calls a method and prints the reply.
pub fn call(args: &CallArgs, socket: &Path) -> Result<(), Failure> {
    match code(&args.method).filter(|_| args.form.aidl.is_empty()) {
        Some(code) => by_number(args, code, socket),
        None => by_aidl(args, socket),
    }
}

/// A reply to a call by its number.
#[derive(Serialize)]
struct Bytes<'a> {
    service: &'a str,
    interface: &'a str,
    code: u32,
    reply: String,
}

fn by_number(args: &CallArgs, code: u32, socket: &Path) -> Result<(), Failure> {
    let tried = format!("call the service {:?}", args.name);
    let arguments = parse_arguments(&args.arguments).map_err(|wrong| {
        Failure::new(&tried, wrong).kind(Kind::Usage).advice("see `baton call --help`")
    })?;
    let longest = args.limit.timeout;
    let manager = Manager::find_within(&args.place.context, socket, longest, &tried)?;
    let service = manager.service(&tried, &args.name)?;
    let descriptor = manager::descriptor(&tried, &service, longest)?.unwrap_or_default();
    let mut parcel = manager.request(&descriptor, args.mark.map(Into::into));
    for argument in &arguments {
        argument.write(&mut parcel);
    }
    let answer = manager::call(&tried, &service, code, &parcel, longest)?;
    if !args.form.json {
        return show(&dump(answer.data()));
    }
    let reply = answer.data().iter().map(|byte| format!("{byte:02x}")).collect();
    show_json(&Bytes { service: &args.name, interface: &descriptor, code, reply })
}

fn code(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let letters = || text.as_bytes().try_into().ok().filter(|letters: &[u8; 4]| letters[0] == b'_');
    number.or_else(|| letters().map(u32::from_be_bytes))
}

/// One argument of a call by its number.
#[derive(Debug)]
enum Plain {
    Bytes(Vec<u8>),
    Text(String),
    Null,
    File(File),
}

impl Plain {
    fn write(&self, parcel: &mut Parcel) {
        match self {
            Plain::Bytes(bytes) => drop(parcel.write(bytes)),
            Plain::Text(text) => parcel.write_string(text),
            Plain::Null => parcel.write_null_object(),
            Plain::File(file) => drop(parcel.write_fd(file.as_fd())),
        }
    }
}

fn parse_arguments(words: &[String]) -> Result<Vec<Plain>, String> {
    let mut arguments = Vec::new();
    let mut words = words.iter();
    while let Some(kind) = words.next() {
        if kind == "null" {
            arguments.push(Plain::Null);
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{kind:?} has no value"))?;
        let wrong = |why: &dyn std::fmt::Display| format!("{kind} {value:?}: {why}");
        let bytes = match kind.as_str() {
            "i32" => value.parse::<i32>().map(|n| n.to_le_bytes().to_vec()).map_err(|e| wrong(&e)),
            "i64" => value.parse::<i64>().map(|n| n.to_le_bytes().to_vec()).map_err(|e| wrong(&e)),
            "f" => value.parse::<f32>().map(|n| n.to_le_bytes().to_vec()).map_err(|e| wrong(&e)),
            "d" => value.parse::<f64>().map(|n| n.to_le_bytes().to_vec()).map_err(|e| wrong(&e)),
            "s16" => {
                arguments.push(Plain::Text(value.clone()));
                continue;
            }
            "fd" => {
                arguments.push(Plain::File(File::open(value).map_err(|e| wrong(&e))?));
                continue;
            }
            _ => Err(format!("{kind:?} is no kind of argument")),
        };
        arguments.push(Plain::Bytes(bytes?));
    }
    Ok(arguments)
}

/// A reply to a call by AIDL.
#[derive(Serialize)]
struct Values<'a> {
    service: &'a str,
    interface: &'a str,
    method: &'a str,
    code: u32,
    /// None of a method without a result, of a one-way one, and beside an exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Json>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    out: Map<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<Thrown>,
}

/// The service's exception.
#[derive(Serialize)]
struct Thrown {
    name: String,
    code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_specific: Option<i32>,
    message: String,
}

fn by_aidl(args: &CallArgs, socket: &Path) -> Result<(), Failure> {
    let CallArgs { name, method: wanted, .. } = args;
    let tried = format!("call {wanted:?} of the service {name:?}");
    let wrong = |error| aidl::failure(&tried, &error);
    let sources = Sources::at(&args.form.aidl).map_err(wrong)?;
    let longest = args.limit.timeout;
    let manager = Manager::find_within(&args.place.context, socket, longest, &tried)?;
    let service = manager.service(&tried, name)?;
    let descriptor = manager::descriptor(&tried, &service, longest)?
        .ok_or_else(|| Failure::new(&tried, "it does not tell the name of its interface"))?;
    let declared = aidl::declared(&tried, &sources, &descriptor).map_err(|failure| {
        let wrong = format!("a method's name needs the AIDL of its interface, {descriptor}");
        let advice = "give it by --aidl FILE_OR_DIRECTORY, or the method's number";
        match args.form.aidl.is_empty() {
            true => Failure::new(&tried, wrong).kind(Kind::Usage).advice(advice),
            false => failure,
        }
    })?;
    let (code, method) = find(&tried, &declared, wanted)?;
    let mut parcel = manager.request(&descriptor, args.mark.map(Into::into));
    let find_service = |name: &str| manager.service(&tried, name).ok();
    let has_stability = manager.protocol().is_aidl();
    let writer = Writer { sources: &sources, has_stability, service: &find_service };
    write_arguments(&tried, &writer, &mut parcel, &declared, method, &args.arguments)?;
    let mut values = Values {
        service: name,
        interface: &descriptor,
        method: wanted,
        code,
        result: None,
        out: Map::new(),
        exception: None,
    };
    if method.oneway {
        service.one_way(code, &parcel).map_err(|error| Failure::new(&tried, error))?;
    } else {
        let answer = manager::call(&tried, &service, code, &parcel, longest)?;
        let read = Reply { sources: &sources, declared: &declared, has_stability };
        match read.read(&answer, method, &mut values).map_err(wrong)? {
            Ok(()) => {}
            Err(exception) if args.form.json => {
                let Exception { code, ref message, service_specific } = exception;
                let (name, message) = (exception.name().into_owned(), message.clone());
                values.exception = Some(Thrown { name, code, service_specific, message });
                show_json(&values)?;
                return Err(Failure::silent());
            }
            Err(exception) => return Err(Failure::new(&tried, thrown(&exception))),
        }
    }
    if args.form.json { show_json(&values) } else { show(&lines(&values)) }
}

fn thrown(exception: &Exception) -> String {
    let number = exception.service_specific.map_or_else(String::new, |n| format!(" {n}"));
    format!("it throws {}{number}: {}", exception.name(), exception.message)
}

/// The result and the out parameters, each on a line.
fn lines(values: &Values<'_>) -> String {
    let result = values.result.iter().map(|value| format!("result: {value}\n"));
    result.chain(values.out.iter().map(|(name, value)| format!("{name}: {value}\n"))).collect()
}

/// The method of a name, with its transaction code.
fn find<'a>(tried: &str, declared: &'a Declared, name: &str) -> Result<(u32, &'a Method), Failure> {
    let methods = declared.methods().map_err(|error| aidl::failure(tried, &error))?;
    if let Some(found) = methods.iter().find(|(_, method)| method.name == name) {
        return Ok(*found);
    }
    let names = methods.iter().map(|(_, method)| method.name.as_str());
    let advice = aidl::like(name, names)
        .unwrap_or_else(|| "`baton introspect NAME --aidl PATH` shows its methods".to_owned());
    Err(Failure::new(tried, format!("{} has no method of this name", declared.name)).advice(advice))
}

/// Writes the parameters that go to the service.
fn write_arguments(
    tried: &str,
    writer: &Writer<'_>,
    parcel: &mut Parcel,
    declared: &Declared,
    method: &Method,
    words: &[String],
) -> Result<(), Failure> {
    let usage = |wrong: String| {
        Failure::new(tried, wrong).kind(Kind::Usage).advice(format_args!("it is: {method}"))
    };
    let mut given = words.iter();
    for Argument { direction, of_type, name } in &method.arguments {
        let wrong = |error| aidl::failure(tried, &error);
        let typed = writer.sources.resolve(declared, of_type).map_err(wrong)?;
        let is_array = matches!(of_type.dimensions.first(), Some(None));
        let (typed, place) = match direction {
            Direction::In | Direction::InOut => (typed, format!("the argument {name}")),
            // The service makes an array of this length.
            Direction::Out if is_array => {
                let length = Typed { kind: Type::Int, nullable: false };
                (length, format!("the argument {name}, an array's length,"))
            }
            Direction::Out => continue,
        };
        let word = given.next().ok_or_else(|| usage(format!("{place} is missing")))?;
        let json = value::of_word(&typed, word);
        writer.write(parcel, &typed, &json).map_err(|error| match error.within(&place) {
            error @ AidlError::Mismatch { .. } => usage(error.to_string()),
            error => wrong(error),
        })?;
    }
    match given.next() {
        Some(word) => Err(usage(format!("the argument {word:?} is one too many"))),
        None => Ok(()),
    }
}

/// How replies of an interface are read.
struct Reply<'a> {
    sources: &'a Sources,
    declared: &'a Declared,
    has_stability: bool,
}

impl Reply<'_> {
    /// Reads a reply into `values`, or the service's exception.
    fn read(
        &self,
        answer: &Received<'_>,
        method: &Method,
        values: &mut Values<'_>,
    ) -> Result<Result<(), Exception>, AidlError> {
        let mut reader = Reader::new(answer.data());
        let why = "has no status";
        let status = reader.status();
        if let Err(exception) = status.ok_or(AidlError::Garbled { place: String::new(), why })? {
            return Ok(Err(exception));
        }
        let interface = |handle: &Handle| interface(handle);
        let mut replied =
            Replied::new(self.sources, reader, answer, self.has_stability, &interface);
        if method.result.name != "void" {
            let typed = self.sources.resolve(self.declared, &method.result)?;
            values.result = Some(replied.read(&typed).map_err(|e| e.within("the result"))?);
        }
        for Argument { direction, of_type, name } in &method.arguments {
            if *direction != Direction::In {
                let typed = self.sources.resolve(self.declared, of_type)?;
                let value = replied.read(&typed).map_err(|e| e.within(name))?;
                values.out.insert(name.clone(), value);
            }
        }
        replied.end()?;
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_parcels() {
        let words = ["i32", "-1", "s16", "a", "null", "d", "1"].map(str::to_owned);
        let mut parcel = Parcel::new();
        for argument in parse_arguments(&words).unwrap() {
            argument.write(&mut parcel);
        }
        let data = parcel.data();
        assert_eq!(data.len(), 4 + 8 + 28 + 8);
        assert_eq!(data[..4], [0xff; 4]);
        assert_eq!(data[12..16], *b"\x85*bs");
        assert_eq!(data[40..], 1f64.to_le_bytes());
        for bad in [&["i32"][..], &["i32", "x"], &["i16", "1"], &["fd", "/nonexistent"]] {
            let words: Vec<_> = bad.iter().map(|word| (*word).to_owned()).collect();
            assert!(parse_arguments(&words).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn codes() {
        assert_eq!(code("7"), Some(7));
        assert_eq!(code("0x10"), Some(16));
        assert_eq!(code("_PNG"), Some(0x5f50_4e47));
        assert!(code("ping").is_none() && code("-1").is_none());
    }
}
