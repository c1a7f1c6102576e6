//! A call that a service answers, and the calls that the service makes meanwhile.

use crate::answer::{Answer, Source};
use crate::host_context::HostContext;
use crate::incoming::Incoming;
use crate::manager;
use baton::{CallError, Handle, Parcel, Process};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A call that a service is answering.
pub struct Call<'a> {
    incoming: &'a Incoming<'a>,
    /// The service's own process.
    process: &'a Process,
    context: Option<HostContext<'a>>,
}

/// A service or an object that can be called.
#[derive(Clone, Debug)]
pub struct Target(Callee);

#[derive(Clone, Debug)]
enum Callee {
    /// A service of this host, by number.
    Hosted(usize),
    /// An object of another process.
    Remote(Handle),
}

impl From<Handle> for Target {
    fn from(handle: Handle) -> Target {
        Target(Callee::Remote(handle))
    }
}

impl Target {
    pub(crate) fn hosted(service: usize) -> Target {
        Target(Callee::Hosted(service))
    }

    /// Whether it is a service of this host, which is called without the driver.
    pub fn is_hosted(&self) -> bool {
        matches!(self.0, Callee::Hosted(_))
    }
}

impl<'a> Call<'a> {
    pub(crate) fn alone(incoming: &'a Incoming<'a>, process: &'a Process) -> Call<'a> {
        Call { incoming, process, context: None }
    }

    pub(crate) fn hosted(
        incoming: &'a Incoming<'a>,
        process: &'a Process,
        context: HostContext<'a>,
    ) -> Call<'a> {
        Call { incoming, process, context: Some(context) }
    }

    /// The transaction code.
    pub fn code(&self) -> u32 {
        match self.incoming {
            Incoming::Transaction(request) => request.code(),
            Incoming::Local { code, .. } => *code,
        }
    }

    /// The bytes of the request.
    pub fn data(&self) -> &[u8] {
        match self.incoming {
            Incoming::Transaction(request) => request.data(),
            Incoming::Local { data, .. } => data,
        }
    }

    /// The caller's pid, 0 for a one-way transaction, and effective user id. If the caller is a
    /// service of this host, both are the host's own.
    pub fn sender(&self) -> (u32, u32) {
        match self.incoming {
            Incoming::Transaction(request) => request.sender(),
            Incoming::Local { .. } => (std::process::id(), rustix::process::geteuid().as_raw()),
        }
    }

    /// A reference to the object with this index, from 0.
    pub fn handle(&self, index: usize) -> Option<Handle> {
        match self.incoming {
            Incoming::Transaction(request) => request.received.handle(index),
            Incoming::Local { .. } => None,
        }
    }

    /// A duplicate of the descriptor with this index, from 0.
    pub fn fd(&self, index: usize) -> Option<OwnedFd> {
        match self.incoming {
            Incoming::Transaction(request) => request.received.fd(index),
            Incoming::Local { .. } => None,
        }
    }

    /// The service's own process.
    pub fn process(&self) -> &'a Process {
        self.process
    }

    /// Finds a service by name: in this host, or else at the service manager. `None`: there is no
    /// such service.
    ///
    /// # Errors
    /// The errors of a call to the service manager; `Failed` with `EPERM` if this service stays
    /// ([`Service::stays`](crate::Service::stays)) and would have to ask the manager.
    pub fn find(&mut self, name: &str) -> Result<Option<Target>, CallError> {
        let hosted = self.context.as_ref().and_then(|context| context.directory.number(name));
        if let Some(service) = hosted {
            return Ok(Some(Target::hosted(service)));
        }
        self.check_may_block()?;
        let process = self.process;
        let found = self.run_blocking(|| manager::find(process, name))?;
        Ok(found.map(Target::from))
    }

    /// Makes a two-way call. A call to a service of this host is an IPC of the host's kernel. A
    /// call to any other object is made by the looper that brought this call, while the host's
    /// other services run. A parcel with objects goes through the driver, so the service manager
    /// has to know its target.
    ///
    /// # Errors
    /// The errors of [`Handle::call`]. For a service of this host, `Dead`: it has ended; `Failed`
    /// with `EDEADLK`: it waits for this very call; `Failed` with `EPERM`: this service stays and
    /// the other one may wait outside.
    pub fn call<'t>(
        &mut self,
        target: &'t Target,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Answer<'t>, CallError>
    where
        'a: 't,
    {
        match (&target.0, &mut self.context) {
            (Callee::Hosted(service), Some(context)) if !parcel.has_objects() => {
                context.call(*service, code, parcel)
            }
            (Callee::Hosted(service), Some(context)) if !context.stays => {
                let name = context.directory.name(*service).to_owned();
                let process = self.process;
                let found = self
                    .run_blocking(|| manager::find(process, &name))?
                    .ok_or(CallError::DeadObject)?;
                let received =
                    self.run_blocking(|| found.call(code, parcel))?.borrowed_from(process);
                Ok(Answer(Source::Received(received)))
            }
            (Callee::Hosted(_), Some(_)) => Err(CallError::Refused(Errno::PERM)),
            (Callee::Hosted(_), None) => Err(CallError::DeadObject),
            (Callee::Remote(handle), _) => self.call_remote(handle, code, parcel),
        }
    }

    fn call_remote<'t>(
        &mut self,
        handle: &'t Handle,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Answer<'t>, CallError> {
        self.check_may_block()?;
        self.run_blocking(|| {
            let received = handle.call(code, parcel)?;
            Ok(Answer(Source::Received(received)))
        })
    }

    fn check_may_block(&self) -> Result<(), CallError> {
        match &self.context {
            Some(HostContext { stays: true, .. }) => Err(CallError::Refused(Errno::PERM)),
            _ => Ok(()),
        }
    }

    /// Runs `work`, which may block, on the OS thread of the looper that brought this call. The
    /// host's other services run meanwhile; other callers of this service wait.
    ///
    /// # Panics
    /// If this service stays ([`Service::stays`](crate::Service::stays)).
    pub fn run_blocking<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> R {
        let Some(context) = &mut self.context else { return work() };
        assert!(!context.stays, "a service that stays does not block");
        let mut result = None;
        let mut work = Some(work);
        let mut once = || {
            let work = work.take().expect("done once");
            result = Some(catch_unwind(AssertUnwindSafe(work)));
        };
        context.run_on_looper(&mut once);
        match result.expect("it has been done") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }
}
