//! A call as its service sees it, and calls that a service makes itself.

use crate::directory::Directory;
use crate::manager;
use crate::threads;
use baton::{CallError, Handle, Parcel, Process, Received, Request};
use baton_nucleus::CurrentThread;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What was asked, wherever it lies.
pub(crate) enum Asked<'a> {
    /// A transaction of another process.
    Transaction(&'a Request<'a>),
    /// Of this one.
    Local { code: u32, data: &'a [u8] },
}

const _: () = is_sync::<Asked<'static>>();
const fn is_sync<T: Sync>() {}

/// A call, for as long as it is being answered.
pub struct Call<'a> {
    asked: &'a Asked<'a>,
    /// The service's own.
    process: &'a Process,
    inside: Option<Inside<'a>>,
}

/// Where a hosted service is.
pub(crate) struct Inside<'a> {
    pub(crate) here: &'a mut CurrentThread,
    pub(crate) directory: &'a Directory,
    /// Whether the service waits for nobody outside.
    pub(crate) stays: bool,
    /// Whose call from outside this is, or is made for.
    pub(crate) slot: usize,
}

/// Somebody who can be called.
#[derive(Clone, Debug)]
pub struct Target(Who);

#[derive(Clone, Debug)]
enum Who {
    /// A service of the same host, by number.
    Inside(usize),
    /// An object of another process.
    Outside(Handle),
}

impl From<Handle> for Target {
    fn from(handle: Handle) -> Target {
        Target(Who::Outside(handle))
    }
}

impl Target {
    pub(crate) fn inside(service: usize) -> Target {
        Target(Who::Inside(service))
    }

    /// Whether it is reached without the driver.
    pub fn is_inside(&self) -> bool {
        matches!(self.0, Who::Inside(_))
    }
}

/// What a service was answered.
pub struct Answer<'a>(pub(crate) Answered<'a>);

pub(crate) enum Answered<'a> {
    Received(Received<'a>),
    Parcel(Parcel),
    Short { bytes: [u8; SHORT_BYTES], length: usize },
}

/// Bytes of an answer that travels in registers.
pub(crate) const SHORT_BYTES: usize = 56;

impl Answer<'_> {
    /// The bytes.
    pub fn data(&self) -> &[u8] {
        match &self.0 {
            Answered::Received(received) => received.data(),
            Answered::Parcel(parcel) => parcel.data(),
            Answered::Short { bytes, length } => &bytes[..*length],
        }
    }

    /// The object with this index as a reference, which belongs to the process that received it:
    /// the answering service's, if that is hosted here.
    pub fn handle(&self, index: usize) -> Option<Handle> {
        match &self.0 {
            Answered::Received(received) => received.handle(index),
            Answered::Parcel(parcel) => parcel.handle(index),
            Answered::Short { .. } => None,
        }
    }

    /// A duplicate of the descriptor with this index.
    pub fn fd(&self, index: usize) -> Option<OwnedFd> {
        match &self.0 {
            Answered::Received(received) => received.fd(index),
            Answered::Parcel(parcel) => parcel.owned_fd(index),
            Answered::Short { .. } => None,
        }
    }
}

impl<'a> Call<'a> {
    pub(crate) fn alone(asked: &'a Asked<'a>, process: &'a Process) -> Call<'a> {
        Call { asked, process, inside: None }
    }

    pub(crate) fn hosted(
        asked: &'a Asked<'a>,
        process: &'a Process,
        inside: Inside<'a>,
    ) -> Call<'a> {
        Call { asked, process, inside: Some(inside) }
    }

    /// What is asked.
    pub fn code(&self) -> u32 {
        match self.asked {
            Asked::Transaction(request) => request.code(),
            Asked::Local { code, .. } => *code,
        }
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        match self.asked {
            Asked::Transaction(request) => request.data(),
            Asked::Local { data, .. } => data,
        }
    }

    /// The caller's pid, 0 of a one-way transaction, and effective user id. Of a service of the
    /// same host these are the host's own.
    pub fn sender(&self) -> (u32, u32) {
        match self.asked {
            Asked::Transaction(request) => request.sender(),
            Asked::Local { .. } => (std::process::id(), rustix::process::geteuid().as_raw()),
        }
    }

    /// The object with this index as a reference.
    pub fn handle(&self, index: usize) -> Option<Handle> {
        match self.asked {
            Asked::Transaction(request) => request.received.handle(index),
            Asked::Local { .. } => None,
        }
    }

    /// A duplicate of the descriptor with this index.
    pub fn fd(&self, index: usize) -> Option<OwnedFd> {
        match self.asked {
            Asked::Transaction(request) => request.received.fd(index),
            Asked::Local { .. } => None,
        }
    }

    /// The process that the service has for itself.
    pub fn process(&self) -> &'a Process {
        self.process
    }

    /// A service by name: of the same host, or else one that the service manager knows. `None`:
    /// there is none.
    ///
    /// # Errors
    /// Those of a call to the service manager.
    pub fn find(&mut self, name: &str) -> Result<Option<Target>, CallError> {
        let hosted = self.inside.as_ref().and_then(|inside| inside.directory.number(name));
        if let Some(service) = hosted {
            return Ok(Some(Target::inside(service)));
        }
        self.check_leaves()?;
        let process = self.process;
        let found = self.away(|| manager::find(process, name))?;
        Ok(found.map(Target::from))
    }

    /// A two-way call. To a service of the same host it is an IPC of their kernel; another one is
    /// called by the OS thread that brought this call, and the host's other services run meanwhile.
    /// A parcel with objects goes by the driver, in which the other service must be one that the
    /// service manager knows.
    ///
    /// # Errors
    /// As [`Process::call`]'s. `Dead` of a service of the same host: it has ended, or just has.
    /// `Failed` with `EDEADLK`: that service is waiting for this very call; with `EPERM`: this
    /// service stays, and that one may not.
    pub fn call<'t>(
        &mut self,
        target: &'t Target,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Answer<'t>, CallError>
    where
        'a: 't,
    {
        match (&target.0, &mut self.inside) {
            (Who::Inside(service), Some(inside)) if !parcel.has_objects() => {
                threads::call(inside, *service, code, parcel)
            }
            (Who::Inside(service), Some(inside)) if !inside.stays => {
                let name = inside.directory.name(*service).to_owned();
                let process = self.process;
                let found =
                    self.away(|| manager::find(process, &name))?.ok_or(CallError::DeadObject)?;
                let received = self.away(|| found.call(code, parcel))?.borrowed_from(process);
                Ok(Answer(Answered::Received(received)))
            }
            (Who::Inside(_), Some(_)) => Err(CallError::Refused(Errno::PERM)),
            (Who::Inside(_), None) => Err(CallError::DeadObject),
            (Who::Outside(handle), _) => self.call_outside(handle, code, parcel),
        }
    }

    fn call_outside<'t>(
        &mut self,
        handle: &'t Handle,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Answer<'t>, CallError> {
        self.check_leaves()?;
        self.away(|| {
            let received = handle.call(code, parcel)?;
            Ok(Answer(Answered::Received(received)))
        })
    }

    fn check_leaves(&self) -> Result<(), CallError> {
        match &self.inside {
            Some(Inside { stays: true, .. }) => Err(CallError::Refused(Errno::PERM)),
            _ => Ok(()),
        }
    }

    /// Does something that may block, on the OS thread that brought this call. The host's other
    /// services run meanwhile, and this one's further callers wait.
    ///
    /// # Panics
    /// The service has said that it stays.
    pub fn away<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> R {
        let Some(inside) = &mut self.inside else { return work() };
        assert!(!inside.stays, "a service that stays has nothing done elsewhere");
        let mut result = None;
        let mut work = Some(work);
        let mut once = || {
            let work = work.take().expect("done once");
            result = Some(catch_unwind(AssertUnwindSafe(work)));
        };
        threads::away(inside, &mut once);
        match result.expect("it has been done") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }
}
