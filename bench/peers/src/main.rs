//! Peers of the benchmarks that bring dependencies of their own. Started by `baton bench`, with the
//! words of one of its own parties.

#[cfg(feature = "others")]
mod bus;
#[cfg(feature = "others")]
mod capnp;
#[cfg(feature = "others")]
mod dbus;
#[cfg(feature = "others")]
mod grpc;
#[cfg(feature = "others")]
mod iceoryx2;
mod rsbinder_rpc;
mod rsbinder_rt;
#[cfg(feature = "others")]
mod zenoh;
#[cfg(feature = "others")]
mod zeromq;

use baton_bench::endpoint::{self, EndpointArgs, Side};
use baton_bench::rt::role::{self, RoleArgs};
use baton_bench::system::{Accept, Client, System, ready};
#[cfg(feature = "others")]
use bus::Kind;
use clap::Parser;
use std::io;
use std::path::Path;
use std::process::ExitCode;

#[derive(Parser)]
enum Command {
    Endpoint(EndpointArgs),
    RtRole(RoleArgs),
}

fn main() -> ExitCode {
    let args = match Command::parse() {
        Command::Endpoint(args) => args,
        Command::RtRole(args) => return role::run_with(&args, rsbinder_rt::ENDS),
    };
    endpoint::run_with(&args, || match args.side {
        Side::Client => endpoint::calls(connect(args.system, &args.directory)?),
        Side::Server => endpoint::serves(listen(args.system, &args.directory)?),
        Side::Idlers => Err(elsewhere()),
    })
}

fn connect(system: System, directory: &Path) -> io::Result<Box<dyn Client>> {
    Ok(match system {
        System::RsbinderRpc => Box::new(rsbinder_rpc::connect(directory)?),
        #[cfg(feature = "others")]
        System::Zeromq => Box::new(zeromq::connect(directory)?),
        #[cfg(feature = "others")]
        System::Iceoryx2 => Box::new(iceoryx2::connect(directory)?),
        #[cfg(feature = "others")]
        System::Grpc => Box::new(grpc::connect(directory)?),
        #[cfg(feature = "others")]
        System::DbusDaemon | System::DbusBroker => Box::new(dbus::connect(directory)?),
        #[cfg(feature = "others")]
        System::Capnp => Box::new(capnp::connect(directory)?),
        #[cfg(feature = "others")]
        System::Zenoh => Box::new(zenoh::connect(directory)?),
        _ => return Err(elsewhere()),
    })
}

fn listen(system: System, directory: &Path) -> io::Result<Accept> {
    Ok(match system {
        System::RsbinderRpc => ready(rsbinder_rpc::listen(directory)?),
        #[cfg(feature = "others")]
        System::Zeromq => ready(zeromq::listen(directory)?),
        #[cfg(feature = "others")]
        System::Iceoryx2 => ready(iceoryx2::listen(directory)?),
        #[cfg(feature = "others")]
        System::Grpc => ready(grpc::listen(directory)?),
        #[cfg(feature = "others")]
        System::DbusDaemon => ready(dbus::listen(directory, Kind::Daemon)?),
        #[cfg(feature = "others")]
        System::DbusBroker => ready(dbus::listen(directory, Kind::Broker)?),
        #[cfg(feature = "others")]
        System::Capnp => ready(capnp::listen(directory)?),
        #[cfg(feature = "others")]
        System::Zenoh => ready(zenoh::listen(directory)?),
        _ => return Err(elsewhere()),
    })
}

fn elsewhere() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a system of baton's own, or one that was not built: bench/peers/build",
    )
}
