//! `baton list`, `check`, `ping` and `call`: Android's `service` tool.
//!
//! The commands use the protocol of the service manager at handle 0 ([`manager`](crate::manager)).

use crate::failure::{Failure, Kind};
use crate::manager::Manager;
use crate::stdout::show;
use baton::Parcel;
use baton::android::{Write, dump};
use baton::service_manager::{Found, transport_status};
use clap::{Args, Parser};
use rustix::fd::AsFd;
use std::fs::File;
use std::path::Path;

const fn special(letters: [u8; 4]) -> u32 {
    u32::from_be_bytes(letters)
}

/// The code that every object answers.
const PING: u32 = special(*b"_PNG");
/// Statuses of Android's `Errors.h`: negative errnos, and numbers of its own.
const UNKNOWN_TRANSACTION: i32 = -74;
const BAD_TYPE: i32 = i32::MIN + 1;
const PERMISSION_DENIED: i32 = -1;

/// The context of the service manager.
#[derive(Args)]
pub struct ContextArgs {
    /// The context to ask
    #[arg(long, default_value = "binder", value_name = "NAME")]
    context: String,
}

/// A service.
#[derive(Args)]
pub struct NameArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// The service's name
    name: String,
}

/// A call.
#[derive(Parser)]
#[command(after_help = "\
Arguments, each a kind and its value:
  i32 N, i64 N, f N, d N   a number: 32 and 64 bit, float, double
  s16 TEXT                 a string
  null                     no object
  fd PATH                  the file, opened to read

Example: baton call activity 1 i32 7 s16 hello")]
pub struct CallArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// The service's name
    name: String,
    /// The method's number, or four letters such as _PNG
    #[arg(value_parser = parse_code)]
    code: u32,
    /// Arguments of the call
    #[arg(allow_hyphen_values = true, trailing_var_arg = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// The service refused the call.
fn refusal(tried: &str, status: i32) -> Failure {
    let wrong = match status {
        UNKNOWN_TRANSACTION => "it does not know this method".to_owned(),
        BAD_TYPE => "the arguments are not what the method takes".to_owned(),
        PERMISSION_DENIED => "it does not permit this".to_owned(),
        status => format!("it answers with status {status}"),
    };
    Failure::new(tried, wrong)
}

/// Prints the services, with the interface of each.
pub fn list(args: &ContextArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "list the services";
    let manager = Manager::find(&args.context, socket, tried)?;
    let names = manager.names(tried)?;
    let mut text = format!("Found {} services:\n", names.len());
    for (number, name) in names.iter().enumerate() {
        let interface = match manager.check(tried, name)? {
            Found::Service(handle) => manager.interface(&handle).unwrap_or_default(),
            Found::Elsewhere => "through an accessor".to_owned(),
            // The service has disappeared since it was listed.
            Found::Nothing => continue,
        };
        text.push_str(&format!("{number}\t{name}: [{interface}]\n"));
    }
    show(&text)
}

/// Reports whether the service exists.
pub fn check(args: &NameArgs, socket: &Path) -> Result<(), Failure> {
    let name = &args.name;
    let tried = format!("check the service {name:?}");
    let manager = Manager::find(&args.place.context, socket, &tried)?;
    match manager.check(&tried, name)? {
        Found::Service(_) | Found::Elsewhere => show(&format!("Service {name}: found\n")),
        Found::Nothing => {
            show(&format!("Service {name}: not found\n"))?;
            Err(Failure::silent())
        }
    }
}

/// Makes a round trip.
pub fn ping(args: &NameArgs, socket: &Path) -> Result<(), Failure> {
    let name = &args.name;
    let tried = format!("ping the service {name:?}");
    let manager = Manager::find(&args.place.context, socket, &tried)?;
    let service = manager.service(&tried, name)?;
    let started = std::time::Instant::now();
    let answer = service.call(PING, &Parcel::new()).map_err(|error| Failure::new(&tried, error))?;
    let time_us = started.elapsed().as_secs_f64() * 1e6;
    match transport_status(&answer) {
        Some(status) => Err(refusal(&tried, status)),
        None => show(&format!("Service {name}: alive ({time_us:.1} us)\n")),
    }
}

/// Calls a method and dumps the reply.
pub fn call(args: &CallArgs, socket: &Path) -> Result<(), Failure> {
    let tried = format!("call the service {:?}", args.name);
    let arguments = parse_arguments(&args.arguments).map_err(|wrong| {
        Failure::new(&tried, wrong).kind(Kind::Usage).advice("see `baton call --help`")
    })?;
    let manager = Manager::find(&args.place.context, socket, &tried)?;
    let service = manager.service(&tried, &args.name)?;
    let descriptor = manager.interface(&service).unwrap_or_default();
    let mut parcel = manager.request(&descriptor);
    for argument in &arguments {
        argument.write(&mut parcel);
    }
    let answer = service.call(args.code, &parcel).map_err(|error| Failure::new(&tried, error))?;
    match transport_status(&answer) {
        Some(status) => Err(refusal(&tried, status)),
        None => show(&dump(answer.data())),
    }
}

fn parse_code(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let letters = || text.as_bytes().try_into().ok().filter(|letters: &[u8; 4]| letters[0] == b'_');
    number
        .or_else(|| letters().map(special))
        .ok_or_else(|| "neither a number nor four letters that begin with _".to_owned())
}

/// One argument of a call.
#[derive(Debug)]
enum Argument {
    Bytes(Vec<u8>),
    Text(String),
    Null,
    File(File),
}

impl Argument {
    fn write(&self, parcel: &mut Parcel) {
        match self {
            Argument::Bytes(bytes) => drop(parcel.write(bytes)),
            Argument::Text(text) => parcel.write_string(text),
            Argument::Null => parcel.write_null_object(),
            Argument::File(file) => drop(parcel.write_fd(file.as_fd())),
        }
    }
}

fn parse_arguments(words: &[String]) -> Result<Vec<Argument>, String> {
    let mut arguments = Vec::new();
    let mut words = words.iter();
    while let Some(kind) = words.next() {
        if kind == "null" {
            arguments.push(Argument::Null);
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
                arguments.push(Argument::Text(value.clone()));
                continue;
            }
            "fd" => {
                arguments.push(Argument::File(File::open(value).map_err(|e| wrong(&e))?));
                continue;
            }
            _ => Err(format!("{kind:?} is no kind of argument")),
        };
        arguments.push(Argument::Bytes(bytes?));
    }
    Ok(arguments)
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
        assert_eq!(parse_code("7"), Ok(7));
        assert_eq!(parse_code("0x10"), Ok(16));
        assert_eq!(parse_code("_PNG"), Ok(0x5f50_4e47));
        assert!(parse_code("ping").is_err() && parse_code("-1").is_err());
    }
}
