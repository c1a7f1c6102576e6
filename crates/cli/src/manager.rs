//! The service manager of a context, its services' answers, and what to say where these do not
//! help.

use crate::contexts::parse_name;
use crate::failure::{Failure, Kind};
use crate::timeout::timed_out;
use baton::android::{Mark, Reader};
use baton::service_manager::{Found, Protocol, transport_status};
use baton::{CallError, Handle, NameError, Object, Parcel, Process, Received, ServiceManager};
use clap::Args;
use std::path::Path;
use std::time::Duration;

/// The code by which an object tells its interface.
const INTERFACE: u32 = u32::from_be_bytes(*b"_NTF");
/// How long an object may take to tell something about itself.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Statuses of Android's `Errors.h`: negative errnos, and numbers of its own.
const UNKNOWN_TRANSACTION: i32 = -74;
const BAD_TYPE: i32 = i32::MIN + 1;
const UNEXPECTED_NULL: i32 = i32::MIN + 8;
const PERMISSION_DENIED: i32 = -1;

/// Advice for a service that a manager does not register.
pub const REGISTRARS: &str = "the service manager's user and root may register services, and those \
                              whom `baton manager --allow UID` names";

/// The context of the service manager.
#[derive(Args)]
pub struct ContextArgs {
    /// The context to ask
    #[arg(long, default_value = "binder", value_name = "NAME", value_parser = parse_name)]
    pub context: String,
}

/// The service manager of a context.
pub struct Manager {
    process: Process,
    manager: ServiceManager,
    context: String,
}

impl Manager {
    /// Finds the manager of a context and its protocol. Each call of the manager may take some
    /// seconds.
    pub fn find(context: &str, socket: &Path, tried: &str) -> Result<Manager, Failure> {
        Manager::find_within(context, socket, Some(PATIENCE), tried)
    }

    /// Like [`Manager::find`], with another bound for each call of the manager, or none.
    pub fn find_within(
        context: &str,
        socket: &Path,
        longest: Option<Duration>,
        tried: &str,
    ) -> Result<Manager, Failure> {
        let process =
            Process::open(context, socket).map_err(|error| Failure::open(tried, socket, &error))?;
        let manager = match longest {
            Some(longest) => ServiceManager::find_within(&process, longest),
            None => ServiceManager::find(&process),
        };
        let manager = manager.map_err(|error| failure(tried, context, error))?;
        Ok(Manager { process, manager, context: context.to_owned() })
    }

    /// The process that calls the manager and its services.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The manager's protocol, in which its services are called as well.
    pub fn protocol(&self) -> Protocol {
        self.manager.protocol()
    }

    /// The header of a request in the manager's protocol, with this mark or the manager's.
    pub fn request(&self, descriptor: &str, mark: Option<Mark>) -> Parcel {
        match mark {
            Some(mark) => self.protocol().marked_request(mark, descriptor),
            None => self.manager.request(descriptor),
        }
    }

    /// The names of all services.
    pub fn names(&self, tried: &str) -> Result<Vec<String>, Failure> {
        self.manager.list().map_err(|error| failure(tried, &self.context, error))
    }

    /// Looks a name up.
    pub fn check(&self, tried: &str, name: &str) -> Result<Found, Failure> {
        self.manager.check(name).map_err(|error| failure(tried, &self.context, error))
    }

    /// Looks up a service that has to exist.
    pub fn service(&self, tried: &str, name: &str) -> Result<Handle, Failure> {
        match self.check(tried, name)? {
            Found::Service(handle) => Ok(handle),
            Found::Elsewhere => Err(Failure::new(tried, "it is reached through an accessor")),
            // This process registers nothing, so no service is its own.
            Found::Own(_) | Found::Nothing => {
                Err(Failure::new(tried, "there is no service of this name")
                    .advice("see `baton list`"))
            }
        }
    }
}

/// Registers an object of this process under a name.
pub fn publish(
    tried: &str,
    process: &Process,
    context: &str,
    name: &str,
    object: Object,
) -> Result<(), Failure> {
    let published = ServiceManager::find(process).and_then(|it| it.publish(name, object));
    published.map_err(|error| match error {
        NameError::Call(CallError::NoManager | CallError::DeadObject) => {
            Failure::no_manager(tried, context)
        }
        error @ NameError::Refused { .. } => Failure::new(tried, error).advice(REGISTRARS),
        error => failure(tried, context, error),
    })
}

/// The interface descriptor of a service that is to be called. `None` of one that has none.
pub fn descriptor(
    tried: &str,
    service: &Handle,
    longest: Option<Duration>,
) -> Result<Option<String>, Failure> {
    match call(tried, service, INTERFACE, &Parcel::new(), longest) {
        Ok(answer) => Ok(name(&answer)),
        Err(failure) if failure.is(Kind::TimedOut) => Err(failure),
        Err(_) => Ok(None),
    }
}

/// The interface descriptor of an object. `None` of an object that has none or does not tell it in
/// time.
pub fn interface(handle: &Handle) -> Option<String> {
    interface_within(handle, PATIENCE)
}

/// Like [`interface`], in at most this time.
pub fn interface_within(handle: &Handle, longest: Duration) -> Option<String> {
    ask_interface(handle, longest).ok().flatten()
}

/// Like [`interface_within`], with the error of an object that does not answer.
pub fn ask_interface(handle: &Handle, longest: Duration) -> Result<Option<String>, CallError> {
    let answer = handle.call_within(INTERFACE, &Parcel::new(), longest)?;
    Ok(name(&answer))
}

fn name(answer: &Received<'_>) -> Option<String> {
    Reader::new(answer.data()).string().filter(|name| !name.is_empty())
}

/// Calls a service. Without `longest` the wait for its answer has no bound.
pub fn call<'a>(
    tried: &str,
    service: &'a Handle,
    code: u32,
    request: &Parcel,
    longest: Option<Duration>,
) -> Result<Received<'a>, Failure> {
    let answer = match longest {
        Some(longest) => service.call_within(code, request, longest),
        None => service.call(code, request),
    };
    let answer = answer.map_err(|error| match error {
        CallError::TimedOut => timed_out(tried),
        error => Failure::new(tried, error),
    })?;
    match transport_status(&answer) {
        Some(status) => Err(refusal(tried, status)),
        None => Ok(answer),
    }
}

fn refusal(tried: &str, status: i32) -> Failure {
    let wrong = match status {
        BAD_TYPE => {
            return Failure::new(tried, "the arguments are not what the method takes").advice(
                "or its libbinder takes requests with another mark: see `baton call --mark`",
            );
        }
        UNKNOWN_TRANSACTION => "it does not know this method".to_owned(),
        UNEXPECTED_NULL => "it takes no null here".to_owned(),
        PERMISSION_DENIED => "it does not permit this".to_owned(),
        status => format!("it answers with status {status}"),
    };
    Failure::new(tried, wrong)
}

fn failure(tried: &str, context: &str, error: NameError) -> Failure {
    match error {
        NameError::Call(CallError::NoManager | CallError::DeadObject) => {
            Failure::no_manager(tried, context)
        }
        NameError::Misunderstood(_) => Failure::new(tried, error).advice(
            "it speaks another protocol than those of Android 9 to 16, or the context is not one \
             of services",
        ),
        NameError::Call(CallError::TimedOut) => timed_out(tried).advice(
            "the service manager does not answer; `baton ps --calls` shows where the call hangs. \
             Commands that have --timeout can give it longer",
        ),
        error => Failure::new(tried, error),
    }
}
