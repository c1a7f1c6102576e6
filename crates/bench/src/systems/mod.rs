//! The systems, one each, and the ends of those that this program has.

mod futex;
pub mod hosted;
mod loan;
pub mod mount;
pub mod mqueue;
pub mod one_way;
mod pipe;
mod stream;
pub mod typed;
mod typed_objects;
mod uapi;
mod unix;
pub mod unix_descriptors;

use crate::object_client::ObjectClient;
use crate::order;
use crate::payload::SMALL_BYTES;
use crate::service::Service;
use crate::system::System::{self, *};
use crate::system::{Accept, Client, Server, ready};
use baton_host::Stays;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::mpsc::channel;

/// A system, where its ends find each other, and the broker that brings those of ours together.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub system: System,
    pub directory: &'a Path,
    pub broker: &'a Path,
}

/// How a system's Binder program comes to its device.
fn access(Site { system, broker, .. }: Site<'_>) -> uapi::Access {
    let form = if system == BatonUapiTrap { uapi::Form::Trap } else { uapi::Form::Libc };
    let device = match system {
        BatonMounted | BatonMountedStored => mount::directory(system, broker).join(system.name()),
        _ => "/dev/binder".into(),
    };
    let device = CString::new(device.into_os_string().into_vec()).expect("a path");
    uapi::Access { form, device }
}

fn waiting(system: System) -> futex::Waiting {
    if system == FutexSpin { futex::Waiting::Spinning } else { futex::Waiting::Blocked }
}

/// A calling end. The other one has begun to listen.
pub fn connect(site: Site<'_>) -> io::Result<Box<dyn Client>> {
    let Site { system, directory, broker } = site;
    Ok(match system {
        BatonTyped => Box::new(typed::reach(broker, typed::CONTEXT)?.1),
        BatonHosted | BatonHostedLeaving => Box::new(typed::reach(broker, system.name())?.1),
        BatonLoan => Box::new(loan::connect(broker)?),
        Memcpy => Box::new(loan::connect_floor(directory, broker)?),
        BatonMounted | BatonMountedStored | BatonUapiLibc | BatonUapiTrap | KernelBinder => {
            Box::new(uapi::connect(&access(site))?)
        }
        Futex | FutexSpin => Box::new(futex::connect(directory, waiting(system))?),
        Pipe => Box::new(pipe::connect(directory)?),
        Unix => Box::new(unix::connect_stream(directory)?),
        UnixSeqpacket => Box::new(unix::connect_packets(directory)?),
        _ => return Err(elsewhere()),
    })
}

/// An answering end.
pub fn listen(site: Site<'_>, service: Service) -> io::Result<Accept> {
    let Site { system, directory, broker } = site;
    if service != Service::Echo && !system.is_binder() {
        return Err(elsewhere());
    }
    Ok(match system {
        BatonTyped => ready(typed::listen(broker, service, 1)?),
        BatonHosted => ready(hosted::listen(broker, system.name(), Stays(hosted::echo))?),
        BatonHostedLeaving => ready(hosted::listen(broker, system.name(), hosted::echo)?),
        BatonLoan => ready(loan::listen(broker)?),
        Memcpy => ready(loan::listen_floor(directory, broker)?),
        BatonMounted | BatonMountedStored | BatonUapiLibc | BatonUapiTrap | KernelBinder => {
            ready(uapi::listen(&access(site), service)?)
        }
        Futex | FutexSpin => ready(futex::listen(directory, waiting(system))?),
        Pipe => ready(pipe::listen(directory)?),
        Unix => unix::listen_stream(directory)?,
        UnixSeqpacket => unix::listen_packets(directory)?,
        _ => return Err(elsewhere()),
    })
}

/// Starts threads that answer as many clients as come, of a Binder server so many at first;
/// whoever keeps what is returned keeps them at work.
pub fn pool(site: Site<'_>, service: Service, n_loopers: usize) -> io::Result<Box<dyn Server>> {
    let Site { system, directory, broker } = site;
    Ok(match system {
        BatonTyped => Box::new(typed::listen(broker, service, n_loopers)?),
        Mqueue => Box::new(mqueue::pool(directory, service)?),
        Unix => Box::new(unix::pool(directory, service)?),
        _ if system.is_binder() => Box::new(uapi::pool(&access(site), service, n_loopers)?),
        _ => return Err(elsewhere()),
    })
}

/// Starts a thread for each of so many clients, which meets its client at a place of its own and
/// does what the server of a single client does, with the smallest payload.
pub fn threads(site: Site<'_>, n_clients: usize) -> io::Result<Box<dyn Server>> {
    let Site { system, directory, broker } = site;
    let (tell, told) = channel();
    for client in 0..n_clients {
        let (directory, broker) = (order::place(directory, client), broker.to_owned());
        let tell = tell.clone();
        std::thread::spawn(move || {
            let site = Site { system, directory: &directory, broker: &broker };
            let listening = listen(site, Service::Echo);
            let (heard, accept) = match listening {
                Ok(accept) => (Ok(()), Some(accept)),
                Err(error) => (Err(error), None),
            };
            // Nobody hears of it if the process ends.
            let _ = tell.send(heard);
            // It ends with its client.
            let served = accept.map(|accept| accept()?.serve(u32::MAX, SMALL_BYTES));
            drop(served);
        });
    }
    told.iter().take(n_clients).collect::<io::Result<()>>()?;
    Ok(Box::new(()))
}

/// So many calling ends of one process, for a thread each, of a server that is a pool.
pub fn clients(site: Site<'_>, n_clients: usize) -> io::Result<Vec<Box<dyn Client + Send>>> {
    let Site { system, directory, broker } = site;
    fn boxed(client: impl Client + Send + 'static) -> Box<dyn Client + Send> {
        Box::new(client)
    }
    let numbers = 0..n_clients;
    match system {
        BatonTyped => {
            let (_, object) = typed::reach(broker, typed::CONTEXT)?;
            Ok(numbers.map(|_| boxed(object.clone())).collect())
        }
        Mqueue => numbers.map(|number| mqueue::connect(directory, number).map(boxed)).collect(),
        Unix => numbers.map(|_| unix::connect_stream(directory).map(boxed)).collect(),
        _ if system.is_binder() => {
            Ok(uapi::callers(&access(site), n_clients)?.into_iter().map(boxed).collect())
        }
        _ => Err(elsewhere()),
    }
}

/// A calling end whose calls carry objects and descriptors.
pub(crate) fn connect_objects(site: Site<'_>) -> io::Result<Box<dyn ObjectClient>> {
    let Site { system, directory, broker } = site;
    match system {
        BatonTyped => typed_objects::connect(broker),
        Unix => unix_descriptors::connect(directory),
        _ if system.is_binder() => uapi::objects::connect(&access(site)),
        _ => Err(elsewhere()),
    }
}

/// Its answering end, of a Binder server with so many threads.
pub fn listen_objects(site: Site<'_>, n_loopers: usize) -> io::Result<Accept> {
    let Site { system, directory, broker } = site;
    Ok(match system {
        BatonTyped => ready(typed_objects::listen(broker, n_loopers)?),
        Unix => unix_descriptors::listen(directory)?,
        _ if system.is_binder() => ready(uapi::objects::pool(&access(site), n_loopers)?),
        _ => return Err(elsewhere()),
    })
}

/// A third end, whose service the answering one has.
pub fn own_service(site: Site<'_>) -> io::Result<Box<dyn Server>> {
    Ok(match site.system {
        BatonTyped => Box::new(typed_objects::own(site.broker)?),
        system if system.is_binder() => Box::new(uapi::objects::own(&access(site))?),
        _ => return Err(elsewhere()),
    })
}

fn elsewhere() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this program has no such system")
}
