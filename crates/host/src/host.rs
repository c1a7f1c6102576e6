//! A host: services by name, and the process in which they run.

use crate::call::Asked;
use crate::directory::{Directory, Hosted, MOST_SERVICES};
use crate::manager::{self, AddError};
use crate::priority;
use crate::service::Service;
use crate::threads;
use baton::OpenError;
use baton::{CallError, Object, Parcel, Process, Request, own_priority};
use baton_nucleus::variant::StrictPlus;
use baton_nucleus::{Kernel, Options, Portable};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};

/// Of a service, unless it is said: a signal needs some 4 KiB of it.
const STACK_BYTES: usize = 256 << 10;

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Two services have the same name.
    #[error("there are two services of the name {0:?}")]
    Twice(String),
    /// There are more services than a host has room for.
    #[error("a host has room for {MOST_SERVICES} services")]
    TooMany,
    /// A service's process could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system has no thread or timer for it.
    #[error("the system: {0}")]
    System(#[from] io::Error),
}

/// Services that are to be hosted. Each has a Binder process of its own, so that it can die alone,
/// with a thread of the system that takes its calls in; all are threads of one kernel.
pub struct Host {
    stack_bytes: usize,
    services: Vec<(String, Box<dyn Service>)>,
}

impl Default for Host {
    fn default() -> Host {
        Host::new()
    }
}

impl Host {
    /// An empty one.
    pub fn new() -> Host {
        Host { stack_bytes: STACK_BYTES, services: Vec::new() }
    }

    /// How much stack each service has: 256 KiB unless set. It is not touched before it is used.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Host {
        self.stack_bytes = bytes;
        self
    }

    /// A service of this name.
    ///
    /// # Errors
    /// `Twice`, `TooMany`.
    pub fn add(&mut self, name: &str, service: impl Service) -> Result<(), HostError> {
        self.add_boxed(name, Box::new(service))
    }

    /// The same.
    ///
    /// # Errors
    /// `Twice`, `TooMany`.
    pub fn add_boxed(&mut self, name: &str, service: Box<dyn Service>) -> Result<(), HostError> {
        if self.services.iter().any(|(other, _)| other == name) {
            return Err(HostError::Twice(name.to_owned()));
        }
        if self.services.len() == MOST_SERVICES {
            return Err(HostError::TooMany);
        }
        self.services.push((name.to_owned(), service));
        Ok(())
    }

    /// Opens a context at the broker that listens at `socket`, for each service, and starts to
    /// serve. No service manager is told: see [`Running::publish`].
    ///
    /// # Errors
    /// `Open`, `System`.
    pub fn start(self, context: &str, socket: &Path) -> Result<Running, HostError> {
        let (names, services): (Vec<_>, Vec<_>) = self.services.into_iter().unzip();
        let hosted = names.into_iter().zip(&services).map(|(name, service)| {
            Ok(Hosted::new(name, Process::open(context, socket)?, service.stays()))
        });
        let hosted: Box<[Hosted]> = hosted.collect::<Result<_, OpenError>>()?;
        let directory = Arc::new(Directory::new(hosted));
        let objects = (0..services.len()).map(|number| add_object(&directory, number)).collect();
        let kernel = start_kernel(&directory, services, self.stack_bytes)?;
        let mut running = Running { directory, objects, kernel: Some(kernel), loopers: Vec::new() };
        for hosted in running.directory.services() {
            let process = hosted.process.clone();
            let looper = thread::Builder::new().name("baton-looper".into());
            running.loopers.push(looper.spawn(move || process.serve())?);
        }
        Ok(running)
    }
}

fn add_object(directory: &Arc<Directory>, number: usize) -> Object {
    // The process has the object, and the directory the process.
    let weak: Weak<Directory> = Arc::downgrade(directory);
    let serve = move |request: &Request<'_>| {
        let directory = weak.upgrade().ok_or(Errno::BADF)?;
        let asked = Asked::Transaction(request);
        directory.enter(number, &asked, request.priority()).map_err(|error| match error {
            // The process is closed: this answer goes nowhere, and its caller is told that it is
            // dead.
            CallError::DeadObject | CallError::Frozen => Errno::NXIO,
            error => error.errno(),
        })
    };
    directory.services()[number].process.object(serve).add()
}

fn start_kernel(
    directory: &Arc<Directory>,
    services: Vec<Box<dyn Service>>,
    stack_bytes: usize,
) -> Result<JoinHandle<()>, HostError> {
    let directory = Arc::clone(directory);
    let (tell, told) = mpsc::channel();
    let run = move || {
        let furnished = furnish(&directory, services, stack_bytes);
        let is_furnished = furnished.is_ok();
        let _ = tell.send(furnished);
        if is_furnished {
            directory.run();
        }
    };
    let kernel = thread::Builder::new().name("baton-host".into()).spawn(run)?;
    told.recv().expect("the thread says how it went")?;
    Ok(kernel)
}

/// On the kernel's own OS thread.
fn furnish(
    directory: &Arc<Directory>,
    services: Vec<Box<dyn Service>>,
    stack_bytes: usize,
) -> io::Result<()> {
    let n_threads = services.len() + threads::N_OTHERS;
    // Without ticks: no handler is interrupted, so equals take turns when they wait.
    let options = Options { n_threads, stack_bytes, tick: None, ..Options::default() };
    let mut kernel: Box<Kernel<StrictPlus>> = Kernel::new(options)?;
    directory.desk.serve(kernel.nudge());
    let its = Arc::clone(directory);
    kernel.listen(move || its.desk.take_interrupts());
    let its = Arc::clone(directory);
    let reception = kernel.spawn(priority::RECEPTION, move |here| threads::receive(here, &its))?;
    directory.set_reception(reception);
    for (number, service) in services.into_iter().enumerate() {
        let its = Arc::clone(directory);
        let serve = move |here| threads::serve(here, &its, number, service);
        directory.set_thread(number, Some(kernel.spawn(priority::SERVICE, serve)?));
    }
    // SAFETY: all that the threads have is `Send`: services, and the directory. They wait in code
    // of this crate, which has nothing of an OS thread's, but for services that wait for somebody:
    // when a looper runs the kernel those wait for a message that only the kernel's OS thread lets
    // come (`Directory::run_for`), and there they go on.
    *directory.kernel.lock() = Some(unsafe { Portable::new(kernel) });
    Ok(())
}

/// A host that serves. Dropped, it is closed.
pub struct Running {
    directory: Arc<Directory>,
    objects: Vec<Object>,
    kernel: Option<JoinHandle<()>>,
    loopers: Vec<JoinHandle<Errno>>,
}

/// Ends a host's services, from any thread.
#[derive(Clone)]
pub struct Closer(Arc<Directory>);

impl Closer {
    /// Calls under way are dead, new ones too; [`Running::wait`] returns when the former have
    /// ended.
    pub fn close(&self) {
        self.0.services().iter().for_each(|hosted| hosted.process.close());
    }
}

impl Running {
    /// What ends it.
    pub fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.directory))
    }

    /// Registers all services at the context's service manager.
    ///
    /// # Errors
    /// The manager's, with the name of the first service that it did not take.
    pub fn publish(&self) -> Result<(), (String, AddError)> {
        for (hosted, &object) in self.directory.services().iter().zip(&self.objects) {
            manager::add(&hosted.process, &hosted.name, object)
                .map_err(|error| (hosted.name.clone(), error))?;
        }
        Ok(())
    }

    /// A service's process, and the object that others call. `None`: there is no such service.
    pub fn object(&self, name: &str) -> Option<(&Process, Object)> {
        let number = self.directory.number(name)?;
        Some((&self.directory.services()[number].process, self.objects[number]))
    }

    /// Calls a service of the host from a thread of the system, without the driver and at that
    /// thread's priority.
    ///
    /// # Errors
    /// As for [`Call::call`](crate::Call::call); `Dead` also if there is no such service.
    pub fn call(&self, name: &str, code: u32, data: &[u8]) -> Result<Parcel, CallError> {
        let service = self.directory.number(name).ok_or(CallError::DeadObject)?;
        self.directory.enter(service, &Asked::Local { code, data }, own_priority())
    }

    /// Waits until all services have ended.
    pub fn wait(&mut self) {
        for looper in self.loopers.drain(..) {
            let _ = looper.join();
        }
        self.directory.desk.close();
        if let Some(kernel) = self.kernel.take() {
            let _ = kernel.join();
        }
    }

    /// Ends all services: their clients are told, and calls under way are ended first.
    pub fn close(&mut self) {
        self.closer().close();
        self.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}
