//! Large payloads: a loan of the typed API, and what it cannot be faster than.
//!
//! Both write the payload where its receiver copies it from, before the clock runs, and both are
//! answered with the number that the receiver has read in it. The floor is a payload in a map that
//! the two programs share beside Baton, a call of four bytes that says it is there, and one
//! `memcpy` by the receiver. Making a loan counts; the floor has nothing of the kind.

use super::typed;
use crate::service::Service;
use crate::shared_map::SharedMap;
use crate::system::{Client, Consume, System};
use baton::{Handle, Loan, Options, Parcel, Process};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const ROOM_BYTES: usize = 2 << 20;
const READ: u32 = 1;

fn listen_with(
    broker: &Path,
    system: System,
    read: impl Fn(&[u8]) -> Result<Parcel, Errno> + Send + Sync + 'static,
) -> io::Result<Process> {
    let process = Options::new()
        .receive_bytes(ROOM_BYTES)
        .open(system.name(), broker)
        .map_err(typed::opened)?;
    let object = process.object(move |request| read(request.data())).add();
    typed::manage(process, object, 1)
}

/// The lender. Its handle lives as long as the program, as its loans refer to it.
pub struct Lender {
    object: &'static Handle,
    filled: Option<Loan<'static>>,
}

pub fn connect(broker: &Path) -> io::Result<Lender> {
    let (_, object) = typed::reach(broker, System::BatonLoan.name())?;
    let object = Box::leak(Box::new(object));
    Ok(Lender { object, filled: None })
}

pub fn listen(broker: &Path) -> io::Result<Process> {
    listen_with(broker, System::BatonLoan, |payload| typed::reply(Service::Number, payload))
}

impl Client for Lender {
    fn fill(&mut self, request: &[u8]) -> io::Result<Duration> {
        let start = Instant::now();
        let loan = self.object.loan(request.len()).map_err(io::Error::other)?;
        let time = start.elapsed();
        self.filled.insert(loan).write(0, request);
        Ok(time)
    }

    fn call(&mut self, _request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        let loan = self.filled.take().ok_or(io::ErrorKind::InvalidInput)?;
        consume(loan.call(READ).map_err(io::Error::other)?.data());
        Ok(())
    }
}

/// Who calls by four bytes, with a map beside.
pub struct Sharer {
    object: Handle,
    shared: SharedMap<ROOM_BYTES>,
}

pub fn connect_floor(directory: &Path, broker: &Path) -> io::Result<Sharer> {
    let (_, object) = typed::reach(broker, System::Memcpy.name())?;
    Ok(Sharer { object, shared: SharedMap::find_in(directory)? })
}

pub fn listen_floor(directory: &Path, broker: &Path) -> io::Result<Process> {
    let shared = SharedMap::<ROOM_BYTES>::make_in(directory)?;
    let buffer = Mutex::new(vec![0; ROOM_BYTES]);
    listen_with(broker, System::Memcpy, move |request| {
        let bytes = request.try_into().map(u32::from_ne_bytes).map_err(|_| Errno::BADMSG)?;
        let mut buffer = buffer.lock().map_err(|_| Errno::FAULT)?;
        let copy = buffer.get_mut(..bytes as usize).ok_or(Errno::BADMSG)?;
        shared.view().read(0, copy);
        typed::reply(Service::Number, copy)
    })
}

impl Client for Sharer {
    fn fill(&mut self, request: &[u8]) -> io::Result<Duration> {
        self.shared.view().write(0, request);
        Ok(Duration::ZERO)
    }

    fn call(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        let bytes = (request.len() as u32).to_ne_bytes();
        let answer = self.object.call(READ, &Parcel::from(&bytes[..]));
        consume(answer.map_err(io::Error::other)?.data());
        Ok(())
    }
}
