//! What can be measured.

use crate::payload::LARGE_BYTES;
use crate::processors::Placement;
use crate::service::Service;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

/// Size of a Binder program's receive buffer, as libbinder has it.
pub(crate) const RECEIVE_BYTES: usize = (1 << 20) - 8192;
const MOST_BYTES: (usize, &str) = (RECEIVE_BYTES, "a receive buffer has 1 MiB - 8 KiB");

/// What to measure beside Baton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(pub Vec<System>);

/// Who is shown an answer, where it has come to lie.
pub type Consume<'a> = &'a mut dyn FnMut(&[u8]);

/// The end that calls.
pub trait Client {
    /// Brings a request to where the call has it, if there is such a place. The time that counts.
    fn fill(&mut self, _request: &[u8]) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// One call.
    fn call(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()>;
}

/// The end that answers.
pub trait Server {
    /// Answers `n_calls` calls of `payload_bytes` each, with what they brought. A server whose
    /// threads answer by themselves returns at once.
    fn serve(&mut self, _n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

/// A server whose threads answer by themselves as long as the process lives.
impl Server for () {}

/// An end that sends messages without an answer.
pub trait Sender {
    /// Makes a real-time thread's first message as quick as all others.
    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends a message. An error if there is no room, where the system does not wait for it.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;
}

/// A server that clients can begin to reach, and what waits for the first of them.
pub type Accept = Box<dyn FnOnce() -> io::Result<Box<dyn Server>>>;

/// A way to call another process, ours first.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum System {
    /// Baton's typed API.
    BatonTyped,
    /// The call of the typed API to a service that is a thread of a host's kernel.
    BatonHosted,
    /// A hosted service that may call others outside, and is so always served by the kernel's own
    /// thread.
    BatonHostedLeaving,
    /// A loan of Baton's typed API.
    BatonLoan,
    /// The floor of loans: a map beside Baton, a call of four bytes, one copy.
    Memcpy,
    /// A Binder program on Baton, by the C library's `ioctl`.
    BatonUapiLibc,
    /// A Binder program on Baton, by an inline system call.
    BatonUapiTrap,
    /// A Binder program on a mounted binderfs, with nothing loaded into it.
    BatonMounted,
    /// A Binder program on a mounted binderfs with stored pages: no maps are passed through.
    BatonMountedStored,
    /// The same Binder program on the kernel's own driver.
    KernelBinder,
    /// Two words of shared memory, both sides asleep on them.
    Futex,
    /// Two words of shared memory, both sides spinning.
    FutexSpin,
    /// Two pipes.
    Pipe,
    /// A stream socket.
    Unix,
    /// A socket of packets.
    UnixSeqpacket,
    /// POSIX message queues with priorities, and one thread that serves all clients.
    Mqueue,
    /// rsbinder's RPC over a stream socket.
    RsbinderRpc,
    /// ZeroMQ's request and reply over a local socket.
    Zeromq,
    /// iceoryx2's request and response in shared memory, both sides asleep on its events.
    Iceoryx2,
    /// gRPC over a stream socket.
    Grpc,
    /// A method call through `dbus-daemon`.
    DbusDaemon,
    /// A method call through `dbus-broker`.
    DbusBroker,
    /// Cap'n Proto's RPC over a stream socket.
    Capnp,
    /// A query of zenoh, from peer to peer over a stream socket.
    Zenoh,
}

use System::*;

impl System {
    /// Those that the benchmark `rpc` measures, in their order.
    pub(crate) fn called() -> impl Iterator<Item = System> {
        System::VARIANTS.iter().copied().filter(|&system| system != Mqueue)
    }

    /// As the command line and rows name it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// As rows name it, and its case.
    pub(crate) fn row(self) -> (&'static str, &'static str) {
        match self {
            BatonLoan => (BatonTyped.name(), "loan"),
            Memcpy => (self.name(), "floor"),
            _ => (self.name(), "call"),
        }
    }

    /// As ratios name it.
    pub(crate) fn key(self) -> String {
        self.name().replace('-', "_")
    }

    /// Whether it is somebody else's.
    pub(crate) fn is_peer(self) -> bool {
        self >= KernelBinder
    }

    /// Whether it brings dependencies of its own, and so a program of its own.
    pub(crate) fn is_apart(self) -> bool {
        self >= RsbinderRpc
    }

    /// Whether it is Binder: one server answers all clients, with a pool of threads, and it can do
    /// more than echo.
    pub(crate) fn is_binder(self) -> bool {
        self.is_mounted()
            || matches!(self, BatonTyped | BatonUapiLibc | BatonUapiTrap | KernelBinder)
    }

    /// Whether its programs open a mounted binderfs.
    pub(crate) fn is_mounted(self) -> bool {
        matches!(self, BatonMounted | BatonMountedStored)
    }

    /// Whether it can be measured so: two sides that spin on one processor wait for the end of
    /// each other's time slice, which tells nothing.
    pub(crate) fn runs(self, placement: Placement) -> bool {
        self != FutexSpin || placement == Placement::Different
    }

    /// Whether it is measured with so many bytes.
    pub(crate) fn carries(self, payload_bytes: usize) -> bool {
        !matches!(self, BatonLoan | Memcpy) || payload_bytes >= LARGE_BYTES
    }

    /// What its server does where most do this.
    pub(crate) fn service(self, most: Service) -> Service {
        if matches!(self, BatonLoan | Memcpy) { Service::Number } else { most }
    }

    /// Most bytes that a call can carry, and why not more.
    pub(crate) fn most_bytes(self) -> (usize, &'static str) {
        match self {
            BatonHosted | BatonHostedLeaving => MOST_BYTES,
            _ if self.is_binder() => MOST_BYTES,
            UnixSeqpacket => (128 << 10, "a packet is no larger than the send buffer"),
            _ => (usize::MAX, ""),
        }
    }
}

/// A server that needs nothing more of its client.
pub fn ready(server: impl Server + 'static) -> Accept {
    Box::new(|| Ok(Box::new(server)))
}
