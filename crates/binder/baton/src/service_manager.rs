//! Names: services of a context, by its service manager at handle 0, in the protocol of the
//! manager's release of Android.
//!
//! | release | a request begins with | list | check | add | a reply begins with |
//! |---|---|---|---|---|---|
//! | up to 9 | policy, descriptor | 4: the number of one | 2 | 3 | what was asked for |
//! | 10 | policy, work source, descriptor | 4: the number of one | 2 | 3 | what was asked for |
//! | 11 to 14 | policy, work source, mark, descriptor | 4: all | 2 | 3 | a status |
//! | 16 | policy, work source, mark, descriptor | 6: all | 4: a union | 5 | a status |
//!
//! The protocol of a manager is found by questions to which every other manager answers with a
//! status of the transport and nothing else: numbers change from release to release, and a request
//! with the wrong one may do something else. A question for a list has a number where others expect
//! a string, so that they find the request malformed. A question for a check asks for a name, and
//! comes last, when the manager has refused both lists.
//!
//! Source: `IServiceManager.aidl` of Android 11 to 16; `service_manager.c` of Android 9 and 10.

use crate::android::{Exception, Mark, Reader, SYSTEM_STABILITY, Write};
use crate::{CallError, Handle, Object, Parcel, Process, Received};
use std::time::Duration;

/// The descriptor of a service manager's interface.
pub const INTERFACE: &str = "android.os.IServiceManager";
/// `checkService2` of Android 16: a union of a service with metadata, and an accessor of one
/// elsewhere.
pub const CHECK: u32 = 4;
/// `addService` of Android 16.
pub const ADD: u32 = 5;
/// `listServices` of Android 16.
pub const LIST: u32 = 6;
/// Which member of the union follows.
pub const SERVICE_WITH_METADATA: i32 = 0;

/// The same methods of Android 14 and older.
const OLD_LIST: u32 = 4;
const OLD_CHECK: u32 = 2;
const OLD_ADD: u32 = 3;
/// DUMP_FLAG_PRIORITY_ALL.
pub const EVERY_PRIORITY: i32 = 15;
/// DUMP_FLAG_PRIORITY_DEFAULT.
pub const DUMP_PRIORITY: i32 = 1 << 3;
/// The caller's strict-mode policy: none.
const STRICT_MODE: i32 = i32::MIN;
/// Nobody else's work.
const NO_WORK_SOURCE: i32 = -1;
/// Flag of a reply that is a status of the transport, in place of data.
const TF_STATUS_CODE: u32 = 0x08;
/// More services than this are no list: a manager that names one after the other might never end.
const MOST_SERVICES: i32 = 1 << 16;

/// The protocol of a service manager, by the releases of Android that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Up to Android 9.
    Android9,
    /// Android 10.
    Android10,
    /// Android 11 to 14.
    Android11,
    /// Android 16.
    Android16,
}

/// The service manager of a context: services are published and found there by their names.
///
/// A context whose manager is no service manager has no names; its manager's object is
/// [`Process::context_manager`].
///
/// ```no_run
/// # let socket = baton::socket_path(1000);
/// use baton::{Parcel, Process, ServiceManager};
///
/// let process = Process::open("binder", &socket)?;
/// let names = ServiceManager::find(&process)?;
/// let echo = process.object(|request| Ok(Parcel::from(request.data())));
/// names.publish("echo", echo.add())?;
/// if let Some(service) = names.service("another")? {
///     service.call(1, &Parcel::new())?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServiceManager {
    handle: Handle,
    protocol: Protocol,
    mark: Mark,
    /// The longest time that a call of the manager may take.
    longest: Option<Duration>,
}

/// What a service manager says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is one.
    Service(Handle),
    /// There is one, of the process that asks.
    Own(Object),
    /// To be reached in a way that is no Binder call.
    Elsewhere,
    /// There is none.
    Nothing,
}

/// Why a service manager did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The call to it has failed; [`CallError::NoManager`] if the context has no manager.
    #[error("the service manager: {0}")]
    Call(#[from] CallError),
    /// It does not want that.
    #[error("the service manager refuses: {message} (exception {code})")]
    Refused {
        /// `EX_*`, or a status.
        code: i32,
        /// The manager's words.
        message: String,
    },
    /// It speaks another protocol, or is no service manager.
    #[error("the service manager answers with {0}")]
    Misunderstood(String),
}

impl Protocol {
    /// The beginning of a request to an interface, with the system's mark.
    pub fn request(self, descriptor: &str) -> Parcel {
        self.marked_request(Mark::System, descriptor)
    }

    /// The beginning of a request to an interface. Up to Android 10 there are no marks.
    pub fn marked_request(self, mark: Mark, descriptor: &str) -> Parcel {
        let mut parcel = Parcel::new();
        match self {
            Protocol::Android11 | Protocol::Android16 => {
                parcel.write_marked_token(mark, descriptor);
            }
            Protocol::Android9 | Protocol::Android10 => {
                parcel.write_i32(STRICT_MODE);
                if self == Protocol::Android10 {
                    parcel.write_i32(NO_WORK_SOURCE);
                }
                parcel.write_string(descriptor);
            }
        }
        parcel
    }

    /// Whether the release's services are as AIDL has them: a reply begins with a status, and an
    /// object's stability follows it.
    pub fn is_aidl(self) -> bool {
        matches!(self, Protocol::Android11 | Protocol::Android16)
    }
}

impl ServiceManager {
    /// The manager of a process's context, and the protocol and mark that it speaks, which are
    /// found by one to ten calls.
    pub fn find(process: &Process) -> Result<ServiceManager, NameError> {
        ServiceManager::speaking(process, Protocol::Android16)?.find_protocol()
    }

    /// Like [`ServiceManager::find`]; each call of the manager, these and later ones, takes at most
    /// this long, and then fails with [`CallError::TimedOut`].
    pub fn find_within(process: &Process, longest: Duration) -> Result<ServiceManager, NameError> {
        let manager = ServiceManager::speaking(process, Protocol::Android16)?;
        ServiceManager { longest: Some(longest), ..manager }.find_protocol()
    }

    fn find_protocol(mut self) -> Result<ServiceManager, NameError> {
        let aidl = [(Protocol::Android16, LIST), (Protocol::Android11, OLD_LIST)];
        let classic = [(Protocol::Android10, OLD_CHECK), (Protocol::Android9, OLD_CHECK)];
        // The most frequent ones first.
        let tried = [
            (&aidl, Mark::System),
            (&classic, Mark::System),
            (&aidl, Mark::Unknown),
            (&aidl, Mark::Vendor),
            (&aidl, Mark::Recovery),
        ];
        for (protocol, code, mark) in tried
            .into_iter()
            .flat_map(|(tried, mark)| tried.map(|(protocol, code)| (protocol, code, mark)))
        {
            (self.protocol, self.mark) = (protocol, mark);
            let mut request = self.request(INTERFACE);
            match code {
                OLD_CHECK => request.write_string("manager"),
                _ => request.write_i32(EVERY_PRIORITY),
            }
            let answered = self.call(code, &request)?.map(|answer| answer.data().len());
            match answered {
                // No protocol's answer is empty.
                Ok(0) => return Err(misunderstood("nothing")),
                Ok(_) => return Ok(self),
                Err(_) => {}
            }
        }
        Err(misunderstood("a status to each protocol"))
    }

    /// The manager of a process's context, which is known to speak this protocol.
    pub fn speaking(process: &Process, protocol: Protocol) -> Result<ServiceManager, NameError> {
        let (handle, mark) = (process.context_manager()?, Mark::System);
        Ok(ServiceManager { handle, protocol, mark, longest: None })
    }

    /// The protocol of the manager. Its services are called in the same form: see
    /// [`ServiceManager::request`].
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The beginning of a request to the manager or to a service, in the manager's protocol and
    /// with its mark.
    pub fn request(&self, descriptor: &str) -> Parcel {
        self.protocol.marked_request(self.mark, descriptor)
    }

    /// The manager's answer, or a status in its place.
    fn call(&self, code: u32, parcel: &Parcel) -> Result<Result<Received<'_>, i32>, CallError> {
        let answer = match self.longest {
            None => self.handle.call(code, parcel),
            Some(longest) => self.handle.call_within(code, parcel, longest),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(CallError::Refused(errno)) => return Ok(Err(-errno.raw_os_error())),
            Err(error) => return Err(error),
        };
        Ok(match transport_status(&answer) {
            Some(status) => Err(status),
            None => Ok(answer),
        })
    }

    fn answer(&self, code: u32, parcel: &Parcel) -> Result<Received<'_>, NameError> {
        self.call(code, parcel)?.map_err(|status| misunderstood(&format!("status {status}")))
    }

    /// Publishes an object of the process under a name. A name that is taken goes to the new one,
    /// if the manager lets it.
    pub fn publish(&self, name: &str, object: Object) -> Result<(), NameError> {
        let mut request = self.request(INTERFACE);
        request.write_string(name);
        request.write_object(object);
        if self.protocol.is_aidl() {
            request.write_i32(SYSTEM_STABILITY);
        }
        let is_for_isolated_processes = 0;
        request.write_i32(is_for_isolated_processes);
        request.write_i32(DUMP_PRIORITY);
        let code = if self.protocol == Protocol::Android16 { ADD } else { OLD_ADD };
        let answer = match self.call(code, &request)? {
            Ok(answer) => answer,
            Err(code) => {
                return Err(NameError::Refused { code, message: "the request failed".to_owned() });
            }
        };
        let mut reader = Reader::new(answer.data());
        match (self.protocol.is_aidl(), reader.clone().i32()) {
            (true, _) => granted(reader.status()),
            (false, Some(0)) => Ok(()),
            (false, _) => Err(misunderstood("a reply of another form")),
        }
    }

    /// The services' names.
    pub fn list(&self) -> Result<Vec<String>, NameError> {
        let code = match self.protocol {
            Protocol::Android16 => LIST,
            Protocol::Android11 => OLD_LIST,
            Protocol::Android9 | Protocol::Android10 => return self.list_one_by_one(),
        };
        let mut request = self.request(INTERFACE);
        request.write_i32(EVERY_PRIORITY);
        let answer = self.answer(code, &request)?;
        let mut reader = Reader::new(answer.data());
        granted(reader.status())?;
        reader.strings().ok_or_else(|| misunderstood("a reply of another form"))
    }

    /// The manager names one at a time, by its place, and answers with a status behind the last.
    fn list_one_by_one(&self) -> Result<Vec<String>, NameError> {
        let mut names = Vec::new();
        for place in 0..MOST_SERVICES {
            let mut request = self.request(INTERFACE);
            request.write_i32(place);
            request.write_i32(EVERY_PRIORITY);
            let Ok(answer) = self.call(OLD_LIST, &request)? else { break };
            let name = Reader::new(answer.data()).string();
            names.push(name.ok_or_else(|| misunderstood("a reply of another form"))?);
        }
        Ok(names)
    }

    /// What the manager knows of a name. It starts no service and waits for none.
    pub fn check(&self, name: &str) -> Result<Found, NameError> {
        let mut request = self.request(INTERFACE);
        request.write_string(name);
        let code = if self.protocol == Protocol::Android16 { CHECK } else { OLD_CHECK };
        let answer = self.answer(code, &request)?;
        let mut reader = Reader::new(answer.data());
        if self.protocol.is_aidl() {
            granted(reader.status())?;
        }
        if self.protocol == Protocol::Android16 {
            match (reader.i32(), reader.i32()) {
                (Some(1), Some(SERVICE_WITH_METADATA)) => {}
                (Some(1), Some(_)) => return Ok(Found::Elsewhere),
                _ => return Err(misunderstood("a reply of another form")),
            }
        }
        let own = || answer.own_object(0).map_or(Found::Nothing, Found::Own);
        Ok(answer.handle(0).map_or_else(own, Found::Service))
    }

    /// The service of a name; `None` if the manager knows none that is a Binder object of another
    /// process.
    pub fn service(&self, name: &str) -> Result<Option<Handle>, NameError> {
        Ok(match self.check(name)? {
            Found::Service(handle) => Some(handle),
            Found::Own(_) | Found::Elsewhere | Found::Nothing => None,
        })
    }
}

/// The status that an answer is, in place of data.
pub fn transport_status(answer: &Received<'_>) -> Option<i32> {
    let is_status = answer.flags() & TF_STATUS_CODE != 0;
    is_status.then(|| Reader::new(answer.data()).i32().unwrap_or(0)).filter(|status| *status != 0)
}

fn misunderstood(how: &str) -> NameError {
    NameError::Misunderstood(how.to_owned())
}

fn granted(status: Option<Result<(), Exception>>) -> Result<(), NameError> {
    match status {
        Some(Ok(())) => Ok(()),
        Some(Err(Exception { code, message, .. })) => Err(NameError::Refused { code, message }),
        None => Err(misunderstood("nothing")),
    }
}
