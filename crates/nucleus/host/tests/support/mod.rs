//! A broker for one test, and a service manager.
#![allow(dead_code)]

use baton::android::{Mark, Reader, Write};
use baton::{Handle, Parcel, Process, Request};
use baton_broker::{Config, Running};
use baton_host::manager;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

pub struct Broker {
    pub socket: PathBuf,
    _running: Running,
    _directory: tempfile::TempDir,
}

impl Broker {
    pub fn start() -> Broker {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("broker.sock");
        let running = Running::start(Config::at(&socket)).unwrap();
        Broker { socket, _running: running, _directory: directory }
    }

    pub fn open(&self) -> Process {
        Process::open("binder", &self.socket).unwrap()
    }
}

/// Serves `addService` and `checkService2` until its process is closed.
pub fn serve_manager(broker: &Broker) -> Process {
    serve_marked_manager(broker, Mark::System)
}

/// Like [`serve_manager`], for requests with this mark alone.
pub fn serve_marked_manager(broker: &Broker, mark: Mark) -> Process {
    let process = broker.open();
    let services: Mutex<HashMap<String, Handle>> = Mutex::default();
    let object = process
        .object(move |request: &Request<'_>| {
            let mut reader = Reader::new(request.data());
            let (its, interface) = reader.marked_token().ok_or(Errno::INVAL)?;
            if its != mark {
                return Err(Errno::PERM);
            }
            assert_eq!(interface, manager::INTERFACE);
            let mut reply = Parcel::new();
            reply.write_i32(0);
            let mut services = services.lock().unwrap();
            if request.code() == manager::LIST {
                reply.write_i32(services.len() as i32);
                services.keys().for_each(|name| reply.write_string(name));
                return Ok(reply);
            }
            let name = reader.string().ok_or(Errno::INVAL)?;
            match request.code() {
                manager::ADD => {
                    let handle = request.received.handle(0).ok_or(Errno::INVAL)?;
                    services.insert(name, handle);
                }
                manager::CHECK => {
                    reply.write_i32(1);
                    reply.write_i32(manager::SERVICE_WITH_METADATA);
                    match services.get(&name) {
                        Some(handle) => _ = reply.write_handle(handle),
                        None => reply.write_null_object(),
                    }
                }
                _ => return Err(Errno::NOSYS),
            }
            Ok(reply)
        })
        .add();
    process.become_context_manager(object).unwrap();
    let thread = process.clone();
    thread::spawn(move || thread.serve());
    process
}

/// A client's reference to a service.
pub fn find(client: &Process, name: &str) -> Handle {
    manager::find(client, name).unwrap().expect("it is registered")
}
