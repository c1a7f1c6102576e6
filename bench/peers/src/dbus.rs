//! D-Bus: a method call by libdbus, through a bus that the server's process starts on a private
//! address. The bus is on the server's processor.

use crate::bus::{Bus, Kind};
use baton_bench::payload;
use baton_bench::system::{Client, Server};
use dbus::blocking::Connection;
use dbus::channel::Channel;
use dbus::{Error, MethodErr};
use dbus_crossroads::Crossroads;
use std::io;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "baton.bench.Echo";
const OBJECT: &str = "/baton/bench/echo";
const PATIENCE: Duration = Duration::from_secs(10);

fn join(directory: &Path) -> Result<Connection, Error> {
    let mut channel = Channel::open_private(&crate::bus::address(directory))?;
    channel.register()?;
    Ok(channel.into())
}

fn answer(request: Vec<u8>) -> Result<(Vec<u8>,), MethodErr> {
    payload::check(&request).ok_or_else(|| MethodErr::invalid_arg("data"))?;
    Ok((request,))
}

/// A bus, with an object whose thread answers by itself.
pub struct Owner {
    bus: Bus,
}

pub fn listen(directory: &Path, kind: Kind) -> io::Result<Owner> {
    let bus = Bus::start(directory, kind)?;
    let connection = join(directory).map_err(io::Error::other)?;
    connection.request_name(NAME, false, false, true).map_err(io::Error::other)?;
    let mut objects = Crossroads::new();
    let interface = objects.register(NAME, |methods| {
        let (asked, answered) = (("data",), ("data",));
        methods.method("Echo", asked, answered, |_, _: &mut (), (data,)| answer(data));
    });
    objects.insert(OBJECT, &[interface], ());
    std::thread::spawn(move || objects.serve(&connection));
    Ok(Owner { bus })
}

impl Server for Owner {
    fn serve(&mut self, _n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        self.bus.follow()
    }
}

/// A connection to the bus.
pub struct Caller(Connection);

pub fn connect(directory: &Path) -> io::Result<Caller> {
    join(directory).map(Caller).map_err(io::Error::other)
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let object = self.0.with_proxy(NAME, OBJECT, PATIENCE);
        let (answer,): (Vec<u8>,) =
            object.method_call(NAME, "Echo", (request,)).map_err(io::Error::other)?;
        consume(&answer);
        Ok(())
    }
}
