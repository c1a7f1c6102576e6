//! Broadcasts as signals of D-Bus, by libdbus, through a bus of the benchmark's own. Each sender
//! and each receiver has a connection; threads wait for the receivers' messages, as many as other
//! systems' receivers have.

use crate::bus::{Bus, Kind};
use crate::dbus::{BUS, BUS_OBJECT, PATIENCE, bytes, join, method};
use baton_bench::broadcast::parts::{Broadcaster, Part, Receive, Sender};
use baton_bench::system::System;
use dbus::channel::Channel;
use dbus::{Message, MessageType};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::any::Any;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const OBJECT: &str = "/baton/bench/Tick";
const INTERFACE: &str = "baton.bench.Tick";
const MEMBER: &str = "Tick";
/// The first receiver's.
const NAME: &str = "baton.bench.Receiver";
const N_THREADS: usize = 4;
/// Signals of a sender until it waits for a receiver. A hundred senders then have as many under way
/// as our service allows. A bus sets no such bound, and its queue would grow without end.
const MOST_UNDER_WAY: u32 = 10;

/// Starts the bus.
pub fn serve(part: &Part) -> io::Result<Box<dyn Any>> {
    allow_many_files()?;
    let kind = match part.design.system() {
        System::DbusBroker => Kind::Broker,
        _ => Kind::Daemon,
    };
    Ok(Box::new(Bus::start(&part.directory, kind)?))
}

/// A process at the bus.
pub fn connect(part: &Part) -> io::Result<Box<dyn Broadcaster>> {
    allow_many_files()?;
    Ok(Box::new(Signals(part.directory.clone())))
}

/// A connection takes a file, at both of its ends.
fn allow_many_files() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

struct Signals(PathBuf);

impl Broadcaster for Signals {
    fn sender(&self) -> io::Result<Box<dyn Sender + Send>> {
        let channel = join(&self.0).map_err(io::Error::other)?;
        Ok(Box::new(Emitter { channel, n_sent: 0 }))
    }

    fn receive(&self, n_receivers: u32, receive: Receive) -> io::Result<()> {
        let mut groups: [Vec<Channel>; N_THREADS] = Default::default();
        for number in 0..n_receivers as usize {
            groups[number % N_THREADS].push(self.subscribe()?);
        }
        if let Some(first) = groups[0].first() {
            let name = method(BUS, BUS_OBJECT, "RequestName")?.append2(NAME, 0_u32);
            first.send_with_reply_and_block(name, PATIENCE).map_err(io::Error::other)?;
        }
        for channels in groups.into_iter().filter(|channels| !channels.is_empty()) {
            let receive = Arc::clone(&receive);
            std::thread::spawn(move || {
                if let Err(error) = dispatch(&channels, &receive) {
                    eprintln!("receive signals: {error}");
                    std::process::exit(1);
                }
            });
        }
        Ok(())
    }
}

impl Signals {
    fn subscribe(&self) -> io::Result<Channel> {
        let mut channel = join(&self.0).map_err(io::Error::other)?;
        channel.set_watch_enabled(true);
        let rule = format!("type='signal',interface='{INTERFACE}',member='{MEMBER}'");
        let added = method(BUS, BUS_OBJECT, "AddMatch")?.append1(rule);
        channel.send_with_reply_and_block(added, PATIENCE).map_err(io::Error::other)?;
        Ok(channel)
    }
}

/// Hands over the signals of these connections as they come.
fn dispatch(channels: &[Channel], receive: &Receive) -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    for (number, channel) in channels.iter().enumerate() {
        // SAFETY: the connection keeps it open, and this function never drops a connection.
        let fd = unsafe { BorrowedFd::borrow_raw(channel.watch().fd) };
        epoll::add(&epoll, fd, EventData::new_u64(number as u64), EventFlags::IN)?;
    }
    let mut events = [MaybeUninit::uninit(); 64];
    loop {
        let (events, _) = epoll::wait(&epoll, &mut events, None)?;
        for event in events {
            let channel = &channels[event.data.u64() as usize];
            channel.read_write(Some(Duration::ZERO)).map_err(|()| io::ErrorKind::BrokenPipe)?;
            while let Some(message) = channel.pop_message() {
                let is_ours = message.interface().is_some_and(|name| &*name == INTERFACE);
                match message.msg_type() {
                    MessageType::Signal if is_ours => {
                        receive(bytes(&message).map_err(io::Error::other)?);
                    }
                    MessageType::MethodCall => {
                        let answered = channel.send(message.method_return());
                        answered.map_err(|()| io::ErrorKind::OutOfMemory)?;
                        channel.flush();
                    }
                    // The bus greets each connection by signals.
                    _ => {}
                }
            }
        }
    }
}

/// Emits messages.
struct Emitter {
    channel: Channel,
    n_sent: u32,
}

impl Sender for Emitter {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let signal = Message::new_signal(OBJECT, INTERFACE, MEMBER).map_err(io::Error::other)?;
        self.channel.send(signal.append1(message)).map_err(|()| io::ErrorKind::OutOfMemory)?;
        self.n_sent += 1;
        if self.n_sent.is_multiple_of(MOST_UNDER_WAY) {
            let received = method(NAME, OBJECT, "Await")?;
            let answer = self.channel.send_with_reply_and_block(received, PATIENCE);
            answer.map_err(io::Error::other)?;
        }
        Ok(())
    }
}
