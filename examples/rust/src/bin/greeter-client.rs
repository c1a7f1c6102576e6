//! A client by the typed API: finds a service by its name (the first argument) and calls it.
#![forbid(unsafe_code)]

use baton::{Parcel, Process, ServiceManager, socket_path};
use baton_example_rust::{GREET, SERVICE};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or(SERVICE.to_owned());
    let who = arguments.next().unwrap_or("world".to_owned());
    let uid = rustix::process::geteuid().as_raw();
    let process = Process::open("binder", &socket_path(uid))?;
    let names = ServiceManager::find(&process)?;
    let greeter = names.service(&name)?.ok_or_else(|| format!("there is no service {name}"))?;
    let reply = greeter.call(GREET, &Parcel::from(who.as_bytes()))?;
    println!("{}", str::from_utf8(reply.data())?);
    Ok(())
}
