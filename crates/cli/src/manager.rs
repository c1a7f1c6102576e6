//! The service manager of a context, and what to say where it does not help.

use crate::failure::Failure;
use baton::android::Reader;
use baton::service_manager::Found;
use baton::{CallError, Handle, NameError, Parcel, Process, ServiceManager};
use std::path::Path;
use std::time::Duration;

/// The code by which an object tells its interface.
const INTERFACE: u32 = u32::from_be_bytes(*b"_NTF");

/// The service manager of a context.
pub struct Manager {
    manager: ServiceManager,
    context: String,
}

impl Manager {
    /// Finds the manager of a context and its protocol.
    pub fn find(context: &str, socket: &Path, tried: &str) -> Result<Manager, Failure> {
        Manager::find_within(context, socket, None, tried)
    }

    /// Like [`Manager::find`], with a bound for each call of the manager.
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
        Ok(Manager { manager, context: context.to_owned() })
    }

    /// The header of a request in the manager's protocol.
    pub fn request(&self, descriptor: &str) -> Parcel {
        self.manager.protocol().request(descriptor)
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

fn failure(tried: &str, context: &str, error: NameError) -> Failure {
    match error {
        NameError::Call(CallError::NoManager | CallError::DeadObject) => {
            Failure::no_manager(tried, context)
        }
        NameError::Misunderstood(_) => Failure::new(tried, error).advice(
            "it speaks another protocol than those of Android 9 to 14 and 16, or the context is \
             not one of services",
        ),
        error => Failure::new(tried, error),
    }
}
