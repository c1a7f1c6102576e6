//! The service manager of a context, at handle 0, in the protocol of its Android release.
//!
//! | release | a request begins with | list | check | a reply begins with |
//! |---|---|---|---|---|
//! | up to 9 | policy, descriptor | 4: the number of one | 2 | what was asked for |
//! | 10 | policy, work source, descriptor | 4: the number of one | 2 | what was asked for |
//! | 11 to 14 | policy, work source, mark, descriptor | 4: all | 2 | a status |
//! | 16 | policy, work source, mark, descriptor | 6: all | 4: a union | a status |
//!
//! The protocol is found by trying requests that every other protocol refuses with a status of the
//! transport: codes change between releases, and a request with a wrong code may do something else.
//! A list request has a number where the other protocols expect a string, so they find it
//! malformed. A check request asks for a name, and comes last, when the manager has refused both
//! list requests.
//!
//! Source: `IServiceManager.aidl` of Android 11 to 16; `service_manager.c` of Android 9 and 10.

use crate::failure::Failure;
use crate::services::INTERFACE;
use baton::{CallError, Handle, Parcel, Process, Received};
use baton_host::format::{Exception, Reader, Write};
use baton_host::manager::{CHECK, INTERFACE as MANAGER, LIST, SERVICE_WITH_METADATA};
use std::path::Path;

/// `listServices` and `checkService` of Android 14 and older.
const OLD_LIST: u32 = 4;
const OLD_CHECK: u32 = 2;
/// DUMP_FLAG_PRIORITY_ALL.
const EVERY_PRIORITY: i32 = 15;
/// The caller's strict-mode policy: no policy.
const STRICT_MODE: i32 = i32::MIN;
/// The caller works for itself.
const NO_WORK_SOURCE: i32 = -1;
/// Flag of a reply that contains a transport status in place of data.
const TF_STATUS_CODE: u32 = 0x08;
/// Most services in a list. A manager that names them one by one might never end.
const MOST_SERVICES: i32 = 1 << 16;

/// The protocol of a service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// Up to Android 9.
    Plain,
    /// Android 10.
    WorkSource,
    /// Android 11 to 14.
    Aidl,
    /// Android 16.
    Union,
}

impl Protocol {
    fn request(self, descriptor: &str) -> Parcel {
        let mut parcel = Parcel::new();
        match self {
            Protocol::Aidl | Protocol::Union => parcel.write_token(descriptor),
            Protocol::Plain | Protocol::WorkSource => {
                parcel.write_i32(STRICT_MODE);
                if self == Protocol::WorkSource {
                    parcel.write_i32(NO_WORK_SOURCE);
                }
                parcel.write_string(descriptor);
            }
        }
        parcel
    }
}

/// The service manager of a context.
pub struct Manager {
    handle: Handle,
    context: String,
    protocol: Protocol,
}

/// The service manager's answer about a name.
pub enum Found {
    /// The service exists.
    Service(Handle),
    /// The service exists, but is not reached by Binder calls.
    Elsewhere,
    /// The service does not exist.
    Nothing,
}

impl Manager {
    /// Finds the manager of a context and its protocol.
    pub fn find(context: &str, socket: &Path, tried: &str) -> Result<Manager, Failure> {
        let process =
            Process::open(context, socket).map_err(|error| Failure::open(tried, socket, &error))?;
        let handle = process.context_manager().map_err(|error| match error {
            CallError::DeadObject => Failure::no_manager(tried, context),
            error => Failure::new(tried, error),
        })?;
        let (context, protocol) = (context.to_owned(), Protocol::Union);
        let mut manager = Manager { handle, context, protocol };
        for (protocol, code) in [
            (Protocol::Union, LIST),
            (Protocol::Aidl, OLD_LIST),
            (Protocol::WorkSource, OLD_CHECK),
            (Protocol::Plain, OLD_CHECK),
        ] {
            manager.protocol = protocol;
            let mut request = manager.request(MANAGER);
            match code {
                OLD_CHECK => request.write_string("manager"),
                _ => request.write_i32(EVERY_PRIORITY),
            }
            let answered = manager.call(tried, code, &request)?.map(|answer| answer.data().len());
            match answered {
                // No protocol has empty replies.
                Ok(0) => return Err(misunderstood(tried, "nothing")),
                Ok(_) => return Ok(manager),
                Err(_) => {}
            }
        }
        Err(misunderstood(tried, "a status to each protocol"))
    }

    /// The header of a request in the manager's protocol.
    pub fn request(&self, descriptor: &str) -> Parcel {
        self.protocol.request(descriptor)
    }

    /// Calls the manager. Returns its reply, or a status in its place.
    fn call(
        &self,
        tried: &str,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Result<Received<'_>, i32>, Failure> {
        let answer = match self.handle.call(code, parcel) {
            Ok(answer) => answer,
            Err(CallError::Refused(errno)) => return Ok(Err(-errno.raw_os_error())),
            Err(CallError::DeadObject) => return Err(Failure::no_manager(tried, &self.context)),
            Err(error) => {
                return Err(Failure::new(tried, format!("the service manager: {error}")));
            }
        };
        Ok(match transport_status(&answer) {
            Some(status) => Err(status),
            None => Ok(answer),
        })
    }

    fn answer(&self, tried: &str, code: u32, parcel: &Parcel) -> Result<Received<'_>, Failure> {
        self.call(tried, code, parcel)?
            .map_err(|status| misunderstood(tried, &format!("status {status}")))
    }

    /// The names of all services.
    pub fn names(&self, tried: &str) -> Result<Vec<String>, Failure> {
        let code = match self.protocol {
            Protocol::Union => LIST,
            Protocol::Aidl => OLD_LIST,
            Protocol::Plain | Protocol::WorkSource => return self.names_one_by_one(tried),
        };
        let mut request = self.request(MANAGER);
        request.write_i32(EVERY_PRIORITY);
        let answer = self.answer(tried, code, &request)?;
        let mut reader = Reader::new(answer.data());
        granted(tried, reader.status())?;
        reader.strings().ok_or_else(|| misunderstood(tried, "a reply of another form"))
    }

    /// Asks for names one by one, by index, until the manager replies with a status.
    fn names_one_by_one(&self, tried: &str) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for place in 0..MOST_SERVICES {
            let mut request = self.request(MANAGER);
            request.write_i32(place);
            request.write_i32(EVERY_PRIORITY);
            let Ok(answer) = self.call(tried, OLD_LIST, &request)? else { break };
            let name = Reader::new(answer.data()).string();
            names.push(name.ok_or_else(|| misunderstood(tried, "a reply of another form"))?);
        }
        Ok(names)
    }

    /// Looks a name up.
    pub fn check(&self, tried: &str, name: &str) -> Result<Found, Failure> {
        let mut request = self.request(MANAGER);
        request.write_string(name);
        let code = if self.protocol == Protocol::Union { CHECK } else { OLD_CHECK };
        let answer = self.answer(tried, code, &request)?;
        let mut reader = Reader::new(answer.data());
        if matches!(self.protocol, Protocol::Aidl | Protocol::Union) {
            granted(tried, reader.status())?;
        }
        if self.protocol == Protocol::Union {
            match (reader.i32(), reader.i32()) {
                (Some(1), Some(SERVICE_WITH_METADATA)) => {}
                (Some(1), Some(_)) => return Ok(Found::Elsewhere),
                _ => return Err(misunderstood(tried, "a reply of another form")),
            }
        }
        Ok(answer.handle(0).map_or(Found::Nothing, Found::Service))
    }

    /// Looks up a service that has to exist.
    pub fn service(&self, tried: &str, name: &str) -> Result<Handle, Failure> {
        match self.check(tried, name)? {
            Found::Service(handle) => Ok(handle),
            Found::Elsewhere => Err(Failure::new(tried, "it is reached through an accessor")),
            Found::Nothing => {
                Err(Failure::new(tried, "there is no service of this name")
                    .advice("see `baton list`"))
            }
        }
    }

    /// The interface descriptor of an object.
    pub fn interface(&self, handle: &Handle) -> Option<String> {
        let answer = handle.call(INTERFACE, &Parcel::new()).ok()?;
        Reader::new(answer.data()).string()
    }
}

/// The status of a reply that contains one in place of data.
pub fn transport_status(answer: &Received<'_>) -> Option<i32> {
    let is_status = answer.flags() & TF_STATUS_CODE != 0;
    is_status.then(|| Reader::new(answer.data()).i32().unwrap_or(0)).filter(|status| *status != 0)
}

fn misunderstood(tried: &str, how: &str) -> Failure {
    Failure::new(tried, format!("the service manager answers with {how}")).advice(
        "it speaks another protocol than those of Android 9 to 14 and 16, or the context is not \
         one of services",
    )
}

fn granted(tried: &str, status: Option<Result<(), Exception>>) -> Result<(), Failure> {
    match status {
        Some(Ok(())) => Ok(()),
        Some(Err(Exception { code, message })) => {
            let wrong = format!("the service manager refuses: {message} (exception {code})");
            Err(Failure::new(tried, wrong))
        }
        None => Err(misunderstood(tried, "nothing")),
    }
}
