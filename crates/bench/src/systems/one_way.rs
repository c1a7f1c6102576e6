//! Messages without an answer, by each system that has them: ours; datagrams of a local socket,
//! with an ordinary thread that receives; POSIX message queues, each message at its sender's
//! priority, with a thread that receives at the highest.

use super::{Site, access, mqueue, typed, uapi};
use crate::arrivals;
use crate::service::{Service, now_ns};
use crate::system::System::*;
use crate::system::{Sender, Server};
use baton::{Handle, Parcel};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const CODE: u32 = 1;
/// How long a looper may take to come, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

impl Sender for Handle {
    fn prepare(&mut self) -> io::Result<()> {
        match Handle::prepare(self, PATIENCE).map_err(io::Error::other)? {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::TimedOut, "no looper comes")),
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.one_way(CODE, &Parcel::from(message)).map_err(io::Error::other)
    }
}

impl Sender for UnixDatagram {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        UnixDatagram::send(self, message).map(drop)
    }
}

/// So many sending ends of one process, for a thread each.
pub fn senders(site: Site<'_>, n_senders: usize) -> io::Result<Vec<Box<dyn Sender + Send>>> {
    let Site { system, directory, broker } = site;
    fn boxed(sender: impl Sender + Send + 'static) -> Box<dyn Sender + Send> {
        Box::new(sender)
    }
    let numbers = 0..n_senders;
    match system {
        BatonTyped => {
            let (_process, object) = typed::reach(broker, typed::CONTEXT)?;
            Ok(numbers.map(|_| boxed(object.clone())).collect())
        }
        BatonUapiLibc | KernelBinder => {
            let senders = uapi::callers(&access(site), n_senders)?;
            Ok(senders.into_iter().map(boxed).collect())
        }
        Unix => numbers
            .map(|_| {
                let socket = UnixDatagram::unbound()?;
                socket.connect(directory.join(SOCKET))?;
                Ok(boxed(socket))
            })
            .collect(),
        Mqueue => numbers.map(|_| Ok(boxed(mqueue::sender(directory)?))).collect(),
        _ => Err(super::elsewhere()),
    }
}

const SOCKET: &str = "datagrams";

/// Starts what receives messages and notes them; whoever keeps what is returned keeps it at work.
pub fn receive(site: Site<'_>, n_loopers: usize) -> io::Result<Box<dyn Server>> {
    let directory = site.directory;
    match site.system {
        Unix => {
            let socket = UnixDatagram::bind(directory.join(SOCKET))?;
            std::thread::spawn(move || {
                let mut message = [0; arrivals::BYTES + 1];
                while let Ok(bytes) = socket.recv(&mut message) {
                    arrivals::note(&message[..bytes], now_ns()).expect("a message");
                }
            });
            Ok(Box::new(()))
        }
        Mqueue => Ok(Box::new(mqueue::receive(directory)?)),
        BatonTyped => super::pool(site, Service::Arrivals, n_loopers),
        // All that it may ask for later: to start a thread takes milliseconds if its stack is
        // locked in memory, as a real-time program's is.
        _ => super::pool(site, Service::Arrivals, uapi::MOST_LOOPERS),
    }
}
