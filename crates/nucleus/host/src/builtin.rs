//! The services that come with the host. Requests and replies have AIDL's format: an interface
//! token and the arguments, and a status and the result.
//!
//! | service | interface | methods, from 1 |
//! |---|---|---|
//! | `echo` | `baton.IEcho` | `String echo(String)` |
//! | `clock` | `baton.IClock` | `long realtimeNanos()`, `long monotonicNanos()` |
//! | `properties` | `baton.IProperties` | `get`, `set` and `list` of strings |

use crate::call::Call;
use crate::service::{Service, Stays};
use baton::Parcel;
use baton::android::{LAST_CALL, Reader, Write};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;

/// The names of the services.
pub const NAMES: [&str; 3] = ["echo", "clock", "properties"];

/// The interfaces of the services: file names and AIDL.
pub const INTERFACES: [(&str, &str); 3] = [
    ("baton/IEcho.aidl", include_str!("../aidl/baton/IEcho.aidl")),
    ("baton/IClock.aidl", include_str!("../aidl/baton/IClock.aidl")),
    ("baton/IProperties.aidl", include_str!("../aidl/baton/IProperties.aidl")),
];

/// Makes a service by its name.
pub fn service(name: &str) -> Option<Box<dyn Service>> {
    Some(match name {
        "echo" => Box::new(Stays(Echo)),
        "clock" => Box::new(Stays(Clock)),
        "properties" => Box::new(Stays(Properties::default())),
        _ => return None,
    })
}

/// The exceptions of AIDL, `EX_*`, with which these services answer.
enum Exception {
    IllegalArgument = -3,
    UnsupportedOperation = -7,
}

type Answer = Result<Parcel, Exception>;

/// A dump, of which these services have none.
const DUMP: u32 = u32::from_be_bytes(*b"_DMP");

/// Checks the token, lets the method answer, and writes the status.
///
/// # Errors
/// `ENOSYS`: no method of an interface has this code.
fn answer(
    call: &Call<'_>,
    interface: &str,
    method: impl FnOnce(u32, &mut Reader<'_>) -> Answer,
) -> Result<Parcel, Errno> {
    match call.code() {
        DUMP => return Ok(Parcel::new()),
        code if code > LAST_CALL => return Err(Errno::NOSYS),
        _ => {}
    }
    let mut reader = Reader::new(call.data());
    let answer = match reader.token().as_deref() {
        Some(token) if token == interface => method(call.code(), &mut reader),
        _ => Err(Exception::IllegalArgument),
    };
    Ok(answer.unwrap_or_else(|exception| {
        let mut reply = Parcel::new();
        reply.write_exception(exception as i32, "");
        reply
    }))
}

fn fine() -> Parcel {
    let mut reply = Parcel::new();
    reply.write_i32(0);
    reply
}

fn text(reader: &mut Reader<'_>) -> Result<String, Exception> {
    reader.string().ok_or(Exception::IllegalArgument)
}

struct Echo;

impl Service for Echo {
    fn interface(&self) -> &str {
        "baton.IEcho"
    }

    fn handle(&mut self, call: &mut Call<'_>) -> Result<Parcel, Errno> {
        answer(call, "baton.IEcho", |code, reader| match code {
            1 => {
                let mut reply = fine();
                reply.write_string(&text(reader)?);
                Ok(reply)
            }
            _ => Err(Exception::UnsupportedOperation),
        })
    }
}

struct Clock;

impl Service for Clock {
    fn interface(&self) -> &str {
        "baton.IClock"
    }

    fn handle(&mut self, call: &mut Call<'_>) -> Result<Parcel, Errno> {
        answer(call, "baton.IClock", |code, _| {
            let clock = match code {
                1 => ClockId::Realtime,
                2 => ClockId::Monotonic,
                _ => return Err(Exception::UnsupportedOperation),
            };
            let now = clock_gettime(clock);
            let mut reply = fine();
            reply.write(&(now.tv_sec * 1_000_000_000 + now.tv_nsec).to_le_bytes());
            Ok(reply)
        })
    }
}

/// Names and values. They live as long as the host.
#[derive(Default)]
struct Properties(BTreeMap<String, String>);

impl Service for Properties {
    fn interface(&self) -> &str {
        "baton.IProperties"
    }

    fn handle(&mut self, call: &mut Call<'_>) -> Result<Parcel, Errno> {
        answer(call, "baton.IProperties", |code, reader| {
            let mut reply = fine();
            match code {
                1 => match self.0.get(&text(reader)?) {
                    Some(value) => reply.write_string(value),
                    None => reply.write_null_string(),
                },
                2 => drop(self.0.insert(text(reader)?, text(reader)?)),
                3 => {
                    reply.write_i32(self.0.len() as i32);
                    self.0.keys().for_each(|name| reply.write_string(name));
                }
                _ => return Err(Exception::UnsupportedOperation),
            }
            Ok(reply)
        })
    }
}
