//! Peers of the benchmarks that bring dependencies of their own. Started by `baton bench`, with the
//! words of one of its own processes.

#[cfg(feature = "dbus")]
mod bus;
#[cfg(feature = "others")]
mod capnp;
#[cfg(feature = "dbus")]
mod dbus;
#[cfg(feature = "others")]
mod grpc;
#[cfg(feature = "others")]
mod iceoryx2;
mod rsbinder_rpc;
#[cfg(feature = "dbus")]
mod signals;
#[cfg(feature = "others")]
mod zenoh;
#[cfg(feature = "others")]
mod zeromq;

#[cfg(feature = "dbus")]
use baton_bench::broadcast::parts::{self, Means};
use baton_bench::object_client::{self, ObjectClient};
use baton_bench::order::{EndpointRole, Side};
use baton_bench::service::Service;
use baton_bench::system::{Accept, Client, System, ready};
use baton_bench::{RoleArgs, endpoint, rt};
#[cfg(feature = "dbus")]
use bus::Kind;
use clap::Parser;
use std::io;
use std::path::Path;
use std::process::ExitCode;

#[derive(Parser)]
enum Command {
    Endpoint(RoleArgs),
    #[cfg(feature = "dbus")]
    BroadcastRole(RoleArgs),
    RtRole(RoleArgs),
}

fn main() -> ExitCode {
    let args = match Command::parse() {
        Command::Endpoint(args) => args,
        #[cfg(feature = "dbus")]
        Command::BroadcastRole(args) => {
            let means = Means { serve: signals::serve, join: signals::connect };
            return parts::run_with(&args, means);
        }
        Command::RtRole(args) => {
            let connect = |directory: &Path| Ok(Box::new(rsbinder_rpc::connect(directory)?) as _);
            return rt::parts::run_with(&args, connect);
        }
    };
    args.run(|EndpointRole { system, side, directory, service, .. }| match side {
        Side::Client if service == Service::Objects => {
            object_client::calls(connect_objects(system, &directory)?)
        }
        Side::Client => endpoint::calls(connect(system, &directory)?),
        Side::Server | Side::Pool => endpoint::serves(listen(system, &directory, service)?),
        Side::Threads | Side::Idlers | Side::Owner | Side::Mount => Err(elsewhere()),
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
        #[cfg(feature = "dbus")]
        System::DbusDaemon | System::DbusBroker => Box::new(dbus::connect(directory)?),
        #[cfg(feature = "others")]
        System::Capnp => Box::new(capnp::connect(directory)?),
        #[cfg(feature = "others")]
        System::Zenoh => Box::new(zenoh::connect(directory)?),
        _ => return Err(elsewhere()),
    })
}

#[cfg_attr(not(feature = "others"), allow(unused_variables))]
fn connect_objects(system: System, directory: &Path) -> io::Result<Box<dyn ObjectClient>> {
    match system {
        #[cfg(feature = "others")]
        System::Capnp => Ok(Box::new(capnp::connect(directory)?)),
        _ => Err(elsewhere()),
    }
}

fn listen(system: System, directory: &Path, service: Service) -> io::Result<Accept> {
    Ok(match system {
        System::RsbinderRpc => ready(rsbinder_rpc::listen(directory, service)?),
        #[cfg(feature = "others")]
        System::Zeromq => ready(zeromq::listen(directory)?),
        #[cfg(feature = "others")]
        System::Iceoryx2 => ready(iceoryx2::listen(directory)?),
        #[cfg(feature = "others")]
        System::Grpc => ready(grpc::listen(directory)?),
        #[cfg(feature = "dbus")]
        System::DbusDaemon => ready(dbus::listen(directory, Kind::Daemon)?),
        #[cfg(feature = "dbus")]
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
