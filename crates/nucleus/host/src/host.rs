//! A host: services by name, and the process in which they run.

use crate::directory::{Directory, HostedService, MAX_SERVICES};
use crate::incoming::Incoming;
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

/// The stack of a service, unless [`Host::stack_bytes`] sets it.
const STACK_BYTES: usize = 256 << 10;

/// Why a host could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Two services have the same name.
    #[error("there are two services of the name {0:?}")]
    Twice(String),
    /// A host has room for 100 services.
    #[error("a host has room for {MAX_SERVICES} services")]
    TooMany,
    /// A service's Binder process could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system refused a thread, a timer or a stack.
    #[error("the system: {0}")]
    System(#[from] io::Error),
}

/// The services of a host that has not started. Each service gets a Binder process of its own, with
/// one looper, so that it can die alone. All services are threads of one kernel.
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
    /// A host without services.
    pub fn new() -> Host {
        Host { stack_bytes: STACK_BYTES, services: Vec::new() }
    }

    /// Sets the stack of each service: 256 KiB unless set. A signal handler needs some 4 KiB of it.
    /// The system maps the pages when they are first used.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Host {
        self.stack_bytes = bytes;
        self
    }

    /// Adds a service under this name.
    ///
    /// # Errors
    /// `Twice`, `TooMany`.
    pub fn add(&mut self, name: &str, service: impl Service) -> Result<(), HostError> {
        self.add_boxed(name, Box::new(service))
    }

    /// Like [`Host::add`], for a service in a box.
    ///
    /// # Errors
    /// `Twice`, `TooMany`.
    pub fn add_boxed(&mut self, name: &str, service: Box<dyn Service>) -> Result<(), HostError> {
        if self.services.iter().any(|(other, _)| other == name) {
            return Err(HostError::Twice(name.to_owned()));
        }
        if self.services.len() == MAX_SERVICES {
            return Err(HostError::TooMany);
        }
        self.services.push((name.to_owned(), service));
        Ok(())
    }

    /// Opens a Binder process in `context` for each service, at the broker that listens at
    /// `socket`, and starts to serve. It registers nothing: see [`Running::publish`].
    ///
    /// # Errors
    /// `Open`, `System`.
    pub fn start(self, context: &str, socket: &Path) -> Result<Running, HostError> {
        let (names, services): (Vec<_>, Vec<_>) = self.services.into_iter().unzip();
        let hosted = names.into_iter().zip(&services).map(|(name, service)| {
            Ok(HostedService::new(name, Process::open(context, socket)?, service.stays()))
        });
        let hosted: Box<[HostedService]> = hosted.collect::<Result<_, OpenError>>()?;
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
    // Weak, since the process keeps the object, and the directory keeps the process.
    let weak: Weak<Directory> = Arc::downgrade(directory);
    let serve = move |request: &Request<'_>| {
        let directory = weak.upgrade().ok_or(Errno::BADF)?;
        let incoming = Incoming::Transaction(request);
        directory.call(number, &incoming, request.priority()).map_err(|error| match error {
            // The process is closed. Its caller gets a dead reply, whatever is returned here.
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
        let built = build_kernel(&directory, services, stack_bytes);
        let is_built = built.is_ok();
        let _ = tell.send(built);
        if is_built {
            directory.run();
        }
    };
    let kernel = thread::Builder::new().name("baton-host".into()).spawn(run)?;
    told.recv().expect("the thread says how it went")?;
    Ok(kernel)
}

/// Makes the kernel with its threads. Called on the OS thread that is to run it.
fn build_kernel(
    directory: &Arc<Directory>,
    services: Vec<Box<dyn Service>>,
    stack_bytes: usize,
) -> io::Result<()> {
    let n_threads = services.len() + threads::N_INTERNAL_THREADS;
    // Without a tick no handler is interrupted, and services of one priority take turns when they
    // wait.
    let options = Options { n_threads, stack_bytes, tick: None, ..Options::default() };
    let mut kernel: Box<Kernel<StrictPlus>> = Kernel::new(options)?;
    directory.queue.set_kernel_thread(kernel.interrupter());
    let its = Arc::clone(directory);
    kernel.set_external_interrupts(move || its.queue.take_interrupts());
    let its = Arc::clone(directory);
    let dispatcher =
        kernel.spawn(priority::DISPATCHER, move |here| threads::dispatch(here, &its))?;
    directory.set_dispatcher(dispatcher);
    for (number, service) in services.into_iter().enumerate() {
        let its = Arc::clone(directory);
        let serve = move |here| threads::serve(here, &its, number, service);
        directory.set_thread(number, Some(kernel.spawn(priority::SERVICE, serve)?));
    }
    // SAFETY: the kernel has no tick, no timers and no cluster. All values of its threads are
    // `Send`: services, and the directory. The threads wait in code of this crate, which uses
    // nothing that belongs to an OS thread, except for services that call others. Such a service
    // waits for a message that comes only while the kernel's own OS thread runs the kernel
    // (`Directory::run_kernel_for`), and goes on there.
    *directory.kernel.lock() = Some(unsafe { Portable::new(kernel) });
    Ok(())
}

/// A host that serves. Dropping it closes it.
pub struct Running {
    directory: Arc<Directory>,
    objects: Vec<Object>,
    kernel: Option<JoinHandle<()>>,
    loopers: Vec<JoinHandle<Errno>>,
}

/// Closes a host from any thread.
#[derive(Clone)]
pub struct Closer(Arc<Directory>);

impl Closer {
    /// Ends all services. Pending and new calls get `Dead`; [`Running::wait`] returns when the
    /// pending ones have ended.
    pub fn close(&self) {
        self.0.services().iter().for_each(|hosted| hosted.process.close());
    }

    /// The names of services whose handlers run at this moment. A handler that does not return
    /// keeps [`Running::wait`] from returning.
    pub fn handling(&self) -> Vec<&str> {
        self.0.handling()
    }
}

impl Running {
    /// A handle that closes this host from any thread.
    pub fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.directory))
    }

    /// Registers all services at the context's service manager.
    ///
    /// # Errors
    /// The manager's error, and the name of the first service that it refused.
    pub fn publish(&self) -> Result<(), (String, AddError)> {
        for (hosted, &object) in self.directory.services().iter().zip(&self.objects) {
            manager::add(&hosted.process, &hosted.name, object)
                .map_err(|error| (hosted.name.clone(), error))?;
        }
        Ok(())
    }

    /// The process of a service, and the object that others call. `None`: there is no such service.
    pub fn object(&self, name: &str) -> Option<(&Process, Object)> {
        let number = self.directory.number(name)?;
        Some((&self.directory.services()[number].process, self.objects[number]))
    }

    /// Calls a service of the host from an OS thread, without the driver, at that thread's
    /// priority.
    ///
    /// # Errors
    /// The errors of [`Call::call`](crate::Call::call), and `Dead` if there is no such service.
    pub fn call(&self, name: &str, code: u32, data: &[u8]) -> Result<Parcel, CallError> {
        let service = self.directory.number(name).ok_or(CallError::DeadObject)?;
        self.directory.call(service, &Incoming::Local { code, data }, own_priority())
    }

    /// Waits until all services have ended: see [`Closer::close`]. A handler that does not return
    /// keeps this from returning: [`Closer::handling`] names its service.
    pub fn wait(&mut self) {
        for looper in self.loopers.drain(..) {
            let _ = looper.join();
        }
        self.directory.queue.close();
        if let Some(kernel) = self.kernel.take() {
            let _ = kernel.join();
        }
    }

    /// Ends all services and waits for them. Pending calls end first, and clients get death
    /// notifications.
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
