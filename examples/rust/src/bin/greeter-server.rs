//! A service by the typed API: adds an object to this process, publishes it under a name (the
//! first argument), and serves it until a signal.
#![forbid(unsafe_code)]

use baton::{Errno, Parcel, Process, ServiceManager, socket_path};
use baton_example_rust::{GREET, SERVICE};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or(SERVICE.to_owned());
    let uid = rustix::process::geteuid().as_raw();
    let process = Process::open("binder", &socket_path(uid))?;
    let greeter = process.object(|request| match request.code() {
        GREET => {
            let who = str::from_utf8(request.data()).map_err(|_| Errno::INVAL)?;
            Ok(Parcel::from(format!("Hello, {who}, from Rust").as_bytes()))
        }
        _ => Err(Errno::NOSYS),
    });
    ServiceManager::find(&process)?.publish(&name, greeter.add())?;
    println!("greeter-server: serving {name}");
    Err(process.serve().into())
}
