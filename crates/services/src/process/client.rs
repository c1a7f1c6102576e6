//! A client of the service `activity`.

use super::class::Adjustment;
use super::protocol::{ProcessInfo, Request, read_processes};
use baton::android::{Exception, Reader, SYSTEM_STABILITY, Write};
use baton::{CallError, Errno, Handle, Object, Parcel};
use std::time::Duration;

/// Why the service did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The call has failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The service refuses it.
    #[error("{}", .0.message)]
    Refused(Exception),
    /// There is no socket for the end of a child.
    #[error("no socket pair: {0}")]
    Line(Errno),
    /// The service answers in another form.
    #[error("the service answers in another form")]
    Misunderstood,
}

/// The service, by its handle.
#[derive(Clone, Debug)]
pub struct Client {
    service: Handle,
    /// The longest time that a call may take.
    longest: Option<Duration>,
}

impl Client {
    /// The service that the service manager knows as [`NAME`](super::protocol::NAME).
    pub fn new(service: Handle) -> Client {
        Client { service, longest: None }
    }

    /// Like [`Client::new`]; each call takes at most this long.
    pub fn within(service: Handle, longest: Duration) -> Client {
        Client { service, longest: Some(longest) }
    }

    /// Starts an activity or a service. Returns its process's pid.
    pub fn start(&self, component: &str) -> Result<u32, ClientError> {
        self.number(&Request::Start(component.to_owned()))
    }

    /// Stops a component.
    pub fn stop(&self, component: &str) -> Result<(), ClientError> {
        self.ask(&Request::Stop(component.to_owned()), |_| Some(()))
    }

    /// Binds this process to a service or a provider. Returns the pid of that one's.
    pub fn bind(&self, component: &str) -> Result<u32, ClientError> {
        self.number(&Request::Bind(component.to_owned()))
    }

    /// Ends a binding.
    pub fn unbind(&self, component: &str) -> Result<(), ClientError> {
        self.ask(&Request::Unbind(component.to_owned()), |_| Some(()))
    }

    /// All processes, the most important first.
    pub fn processes(&self) -> Result<Vec<ProcessInfo>, ClientError> {
        self.ask(&Request::Processes, read_processes)
    }

    /// The activities, the topmost first.
    pub fn stack(&self) -> Result<Vec<String>, ClientError> {
        self.ask(&Request::Stack, |reader| reader.strings())
    }

    /// Asks for an adjustment of a process, or none in particular.
    pub fn set_adjustment(&self, pid: u32, to: Option<Adjustment>) -> Result<(), ClientError> {
        let request = match to {
            Some(adjustment) => Request::SetAdjustment(pid, adjustment.get()),
            None => Request::ClearAdjustment(pid),
        };
        self.ask(&request, |_| Some(()))
    }

    /// Asks a process to give memory back.
    pub fn trim(&self, pid: u32, level: i32) -> Result<(), ClientError> {
        self.ask(&Request::Trim(pid, level), |_| Some(()))
    }

    /// Kills a package's background processes. Returns their number.
    pub fn kill(&self, package: &str) -> Result<u32, ClientError> {
        self.number(&Request::Kill(package.to_owned()))
    }

    /// Kills a package's processes. Returns their number.
    pub fn force_stop(&self, package: &str) -> Result<u32, ClientError> {
        self.number(&Request::ForceStop(package.to_owned()))
    }

    /// A backup of a package begins or ends.
    pub fn set_backup(&self, package: &str, is_running: bool) -> Result<(), ClientError> {
        self.ask(&Request::SetBackup(package.to_owned(), is_running), |_| Some(()))
    }

    /// Has this process's object, an `IApplication`, told of its components' states.
    pub fn attach(&self, application: Object) -> Result<(), ClientError> {
        let (code, mut parcel) = Request::Attach.encode();
        parcel.write_object(application);
        parcel.write_i32(SYSTEM_STABILITY);
        self.call(code, &parcel, |_| Some(()))
    }

    fn number(&self, request: &Request) -> Result<u32, ClientError> {
        self.ask(request, |reader| u32::try_from(reader.i32()?).ok())
    }

    fn ask<T>(
        &self,
        request: &Request,
        read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> Result<T, ClientError> {
        let (code, parcel) = request.encode();
        self.call(code, &parcel, read)
    }

    fn call<T>(
        &self,
        code: u32,
        parcel: &Parcel,
        read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> Result<T, ClientError> {
        let answer = match self.longest {
            None => self.service.call(code, parcel)?,
            Some(longest) => self.service.call_within(code, parcel, longest)?,
        };
        let mut reader = Reader::new(answer.data());
        match reader.status() {
            Some(Ok(())) => read(&mut reader).ok_or(ClientError::Misunderstood),
            Some(Err(exception)) => Err(ClientError::Refused(exception)),
            None => Err(ClientError::Misunderstood),
        }
    }
}
