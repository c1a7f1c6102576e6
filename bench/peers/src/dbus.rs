//! D-Bus: a method call by libdbus, through a bus that the server's process starts on a private
//! address. The bus is on the server's processor. Bytes are read as one array where they lie, since
//! element by element they cost more than the bus.

use crate::bus::{Bus, Kind};
use baton_bench::payload;
use baton_bench::system::{Client, Server};
use dbus::arg::TypeMismatchError;
use dbus::channel::Channel;
use dbus::{Error, Message, MessageType};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The bus itself.
pub const BUS: &str = "org.freedesktop.DBus";
pub const BUS_OBJECT: &str = "/org/freedesktop/DBus";
const NAME: &str = "baton.bench.Echo";
const OBJECT: &str = "/baton/bench/echo";
pub const PATIENCE: Duration = Duration::from_secs(10);

pub fn join(directory: &Path) -> Result<Channel, Error> {
    let mut channel = Channel::open_private(&crate::bus::address(directory))?;
    channel.register()?;
    Ok(channel)
}

pub fn method(name: &str, object: &str, method: &str) -> io::Result<Message> {
    Message::new_method_call(name, object, name, method).map_err(io::Error::other)
}

/// A bus, with an object on it.
pub struct Owner {
    bus: Bus,
    channel: Channel,
}

pub fn listen(directory: &Path, kind: Kind) -> io::Result<Owner> {
    let bus = Bus::start(directory, kind)?;
    let channel = join(directory).map_err(io::Error::other)?;
    let name = method(BUS, BUS_OBJECT, "RequestName")?;
    let asked = channel.send_with_reply_and_block(name.append2(NAME, 0_u32), PATIENCE);
    asked.map_err(io::Error::other)?;
    Ok(Owner { bus, channel })
}

impl Owner {
    /// Answers a message; whether it was a call.
    fn answer(&self) -> io::Result<bool> {
        let message = self.channel.blocking_pop_message(PATIENCE).map_err(io::Error::other)?;
        // A long message comes in more than one piece.
        let Some(message) = message.filter(|it| it.msg_type() == MessageType::MethodCall) else {
            return Ok(false);
        };
        let data = bytes(&message).map_err(io::Error::other)?;
        payload::check(data).ok_or(io::ErrorKind::InvalidData)?;
        let sent = self.channel.send(message.method_return().append1(data));
        sent.map_err(|()| io::ErrorKind::OutOfMemory)?;
        self.channel.flush();
        Ok(true)
    }
}

pub fn bytes(message: &Message) -> Result<&[u8], TypeMismatchError> {
    message.read1()
}

impl Server for Owner {
    fn serve(&mut self, n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        self.bus.follow()?;
        let mut n_answered = 0;
        while n_answered < n_calls {
            n_answered += u32::from(self.answer()?);
        }
        Ok(())
    }
}

/// A connection to the bus.
pub struct Caller(Channel);

pub fn connect(directory: &Path) -> io::Result<Caller> {
    join(directory).map(Caller).map_err(io::Error::other)
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let message = method(NAME, OBJECT, "Echo")?.append1(request);
        let sent = self.0.send_with_reply_and_block(message, PATIENCE);
        let answer = sent.map_err(io::Error::other)?;
        consume(bytes(&answer).map_err(io::Error::other)?);
        Ok(())
    }
}
