//! What can be measured.

use crate::processors::Placement;
use crate::ratios::LARGE_BYTES;
use crate::service::Service;
use crate::systems::{futex, hosted, loan, pipe, typed, uapi, unix};
use baton_host::Stays;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The end that calls.
pub trait Client {
    /// Brings a request to where the call has it, if there is such a place. The time that counts.
    fn fill(&mut self, _request: &[u8]) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// One call. `consume` is shown the answer, where it has come to lie.
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()>;
}

/// The end that answers.
pub trait Server {
    /// Answers `n_calls` calls of `payload_bytes` each, with what they brought. A server whose
    /// threads answer by themselves returns at once.
    fn serve(&mut self, n_calls: u32, payload_bytes: usize) -> io::Result<()>;
}

/// A server that clients can begin to reach, and what waits for the first of them.
pub type Accept = Box<dyn FnOnce() -> io::Result<Box<dyn Server>>>;

/// A way to call another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum System {
    /// Baton's typed API.
    BatonTyped,
    /// The same call as the first, to a service that is a thread of a host's kernel.
    BatonHosted,
    /// The same of a service that may call others outside, and is so always served by the kernel's
    /// own thread.
    BatonHostedLeaving,
    /// A loan of Baton's typed API.
    BatonLoan,
    /// The floor of loans: a map beside Baton, a call of four bytes, one copy.
    Memcpy,
    /// A Binder program on Baton, by the C library's `ioctl`.
    BatonUapiLibc,
    /// A Binder program on Baton, by an inline system call.
    BatonUapiTrap,
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

impl System {
    /// All, ours first.
    pub const ALL: [System; 21] = [
        System::BatonTyped,
        System::BatonHosted,
        System::BatonHostedLeaving,
        System::BatonLoan,
        System::Memcpy,
        System::BatonUapiLibc,
        System::BatonUapiTrap,
        System::KernelBinder,
        System::Futex,
        System::FutexSpin,
        System::Pipe,
        System::Unix,
        System::UnixSeqpacket,
        System::RsbinderRpc,
        System::Zeromq,
        System::Iceoryx2,
        System::Grpc,
        System::DbusDaemon,
        System::DbusBroker,
        System::Capnp,
        System::Zenoh,
    ];

    /// As rows name it, and its case.
    pub fn row(self) -> (&'static str, &'static str) {
        match self {
            System::BatonLoan => (System::BatonTyped.name(), "loan"),
            System::Memcpy => (self.name(), "floor"),
            _ => (self.name(), "call"),
        }
    }

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            System::BatonTyped => "baton-typed",
            System::BatonHosted => "baton-hosted",
            System::BatonHostedLeaving => "baton-hosted-leaving",
            System::BatonLoan => "baton-loan",
            System::Memcpy => "memcpy",
            System::BatonUapiLibc => "baton-uapi-libc",
            System::BatonUapiTrap => "baton-uapi-trap",
            System::KernelBinder => "kernel-binder",
            System::Futex => "futex",
            System::FutexSpin => "futex-spin",
            System::Pipe => "pipe",
            System::Unix => "unix",
            System::UnixSeqpacket => "unix-seqpacket",
            System::RsbinderRpc => "rsbinder-rpc",
            System::Zeromq => "zeromq",
            System::Iceoryx2 => "iceoryx2",
            System::Grpc => "grpc",
            System::DbusDaemon => "dbus-daemon",
            System::DbusBroker => "dbus-broker",
            System::Capnp => "capnp",
            System::Zenoh => "zenoh",
        }
    }

    /// As ratios name it.
    pub fn key(self) -> String {
        self.name().replace('-', "_")
    }

    /// Whether it is somebody else's.
    pub fn is_peer(self) -> bool {
        !matches!(
            self,
            System::BatonTyped
                | System::BatonHosted
                | System::BatonHostedLeaving
                | System::BatonLoan
                | System::Memcpy
                | System::BatonUapiLibc
                | System::BatonUapiTrap
        )
    }

    /// Whether it brings dependencies of its own, and so is played by a program of its own.
    pub fn is_apart(self) -> bool {
        matches!(
            self,
            System::RsbinderRpc
                | System::Zeromq
                | System::Iceoryx2
                | System::Grpc
                | System::DbusDaemon
                | System::DbusBroker
                | System::Capnp
                | System::Zenoh
        )
    }

    /// Whether it can be measured so: two sides that spin on one processor wait for the end of
    /// each other's time slice, which tells nothing.
    pub fn runs(self, placement: Placement) -> bool {
        self != System::FutexSpin || placement == Placement::Different
    }

    /// Whether it is measured with so many bytes.
    pub fn carries(self, payload_bytes: usize) -> bool {
        match self {
            System::BatonLoan | System::Memcpy => payload_bytes >= LARGE_BYTES,
            _ => true,
        }
    }

    /// What its server does where most do this.
    pub fn service(self, most: Service) -> Service {
        match self {
            System::BatonLoan | System::Memcpy => Service::Number,
            _ => most,
        }
    }

    /// A calling end. The other one has begun to listen at `directory`; ours are brought together
    /// by the broker at `broker`.
    pub fn connect(self, directory: &Path, broker: &Path) -> io::Result<Box<dyn Client>> {
        Ok(match self {
            System::BatonTyped => Box::new(typed::connect(broker)?),
            System::BatonHosted | System::BatonHostedLeaving => {
                Box::new(typed::connect_in(broker, self.name())?)
            }
            System::BatonLoan => Box::new(loan::connect(broker)?),
            System::Memcpy => Box::new(loan::connect_floor(directory, broker)?),
            System::BatonUapiLibc | System::KernelBinder => {
                Box::new(uapi::connect(uapi::Form::Libc)?)
            }
            System::BatonUapiTrap => Box::new(uapi::connect(uapi::Form::Trap)?),
            System::Futex => Box::new(futex::connect(directory, futex::Waiting::Blocked)?),
            System::FutexSpin => Box::new(futex::connect(directory, futex::Waiting::Spinning)?),
            System::Pipe => Box::new(pipe::connect(directory)?),
            System::Unix => Box::new(unix::connect_stream(directory)?),
            System::UnixSeqpacket => Box::new(unix::connect_packets(directory)?),
            _ => return Err(elsewhere()),
        })
    }

    /// Whether it is Binder: one server answers all clients, with a pool of threads, and it can do
    /// more than echo.
    pub fn is_binder(self) -> bool {
        let interposed = matches!(self, System::BatonUapiLibc | System::BatonUapiTrap);
        interposed || matches!(self, System::BatonTyped | System::KernelBinder)
    }

    fn is_hosted(self) -> bool {
        matches!(self, System::BatonHosted | System::BatonHostedLeaving)
    }

    /// Most bytes that a call can carry, and why not more.
    pub fn most_bytes(self) -> (usize, &'static str) {
        match self {
            _ if self.is_binder() || self.is_hosted() => {
                (uapi::RECEIVE_BYTES, "a receive buffer has 1 MiB - 8 KiB")
            }
            System::UnixSeqpacket => (128 << 10, "a packet is no larger than the send buffer"),
            _ => (usize::MAX, ""),
        }
    }

    /// An answering end, at the same places.
    pub fn listen(self, directory: &Path, broker: &Path, service: Service) -> io::Result<Accept> {
        if service != Service::Echo && !self.is_binder() {
            return Err(elsewhere());
        }
        Ok(match self {
            System::BatonTyped => ready(typed::listen(broker, service, 1)?),
            System::BatonHosted => ready(hosted::listen(broker, self.name(), Stays(hosted::echo))?),
            System::BatonHostedLeaving => ready(hosted::listen(broker, self.name(), hosted::echo)?),
            System::BatonLoan => ready(loan::listen(broker)?),
            System::Memcpy => ready(loan::listen_floor(directory, broker)?),
            System::BatonUapiLibc | System::KernelBinder => {
                ready(uapi::listen(uapi::Form::Libc, service)?)
            }
            System::BatonUapiTrap => ready(uapi::listen(uapi::Form::Trap, service)?),
            System::Futex => ready(futex::listen(directory, futex::Waiting::Blocked)?),
            System::FutexSpin => ready(futex::listen(directory, futex::Waiting::Spinning)?),
            System::Pipe => ready(pipe::listen(directory)?),
            System::Unix => unix::listen_stream(directory)?,
            System::UnixSeqpacket => unix::listen_packets(directory)?,
            _ => return Err(elsewhere()),
        })
    }

    /// Starts the pool of threads of a server that echoes to as many clients as come; whoever
    /// keeps what is returned keeps it at work.
    pub fn pool(self, broker: &Path, n_loopers: usize) -> io::Result<Box<dyn Server>> {
        Ok(match self {
            System::BatonTyped => Box::new(typed::listen(broker, Service::Echo, n_loopers)?),
            System::BatonUapiTrap => Box::new(uapi::pool(uapi::Form::Trap, n_loopers)?),
            _ if self.is_binder() => Box::new(uapi::pool(uapi::Form::Libc, n_loopers)?),
            _ => return Err(elsewhere()),
        })
    }
}

fn elsewhere() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this program has no such system")
}

/// A server that needs nothing more of its client.
pub fn ready(server: impl Server + 'static) -> Accept {
    Box::new(|| Ok(Box::new(server)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn names_are_those_of_the_command_line() {
        for system in System::ALL {
            let value = system.to_possible_value().unwrap();
            assert_eq!(value.get_name(), system.name());
        }
    }
}
