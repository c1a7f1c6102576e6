//! Services by their names, at managers of each release's protocol.

use baton::android::{Mark, Reader, Write};
use baton::service_manager::{ADD, CHECK, Found, INTERFACE, LIST, Protocol, SERVICE_WITH_METADATA};
use baton::{
    CallError, Errno, Handle, NameError, Object, Parcel, Process, Request, ServiceManager,
};
use baton_broker::{Config, Running};
use std::collections::BTreeMap;
use std::sync::Mutex;

const OLD_CHECK: u32 = 2;
const OLD_ADD: u32 = 3;
const OLD_LIST: u32 = 4;
/// EX_SECURITY.
const SECURITY: i32 = -1;
/// A name that no manager gives away.
const RESERVED: &str = "reserved";

/// A manager of one protocol, as its release of Android answers; a status of the transport
/// (`EBADMSG`) to all that it does not understand.
struct Manager {
    protocol: Protocol,
    mark: Mark,
    services: Mutex<BTreeMap<String, Handle>>,
}

impl Manager {
    /// Whether the request begins as the protocol has it.
    fn arguments<'a>(&self, data: &'a [u8]) -> Option<Reader<'a>> {
        let mut reader = Reader::new(data);
        let descriptor = match self.protocol {
            Protocol::Android11 | Protocol::Android16 => {
                let (mark, descriptor) = reader.marked_token()?;
                (mark == self.mark).then_some(descriptor)?
            }
            Protocol::Android10 => {
                reader.i32()?;
                (reader.i32()? == -1).then(|| reader.string())??
            }
            Protocol::Android9 => {
                reader.i32()?;
                reader.string()?
            }
        };
        (descriptor == INTERFACE).then_some(reader)
    }

    fn answer(&self, request: &Request<'_>) -> Option<Parcel> {
        let mut arguments = self.arguments(request.data())?;
        let mut services = self.services.lock().unwrap();
        let has_status = matches!(self.protocol, Protocol::Android11 | Protocol::Android16);
        let mut answer = Parcel::new();
        if has_status {
            answer.write_i32(0);
        }
        let is_new = self.protocol == Protocol::Android16;
        match request.code() {
            code if code == if is_new { CHECK } else { OLD_CHECK } => {
                let name = arguments.string()?;
                if is_new {
                    answer.write_i32(1);
                    answer.write_i32(SERVICE_WITH_METADATA);
                }
                match services.get(&name) {
                    Some(service) => _ = answer.write_handle(service),
                    None => answer.write_null_object(),
                }
            }
            code if code == if is_new { ADD } else { OLD_ADD } => {
                let name = arguments.string()?;
                match (name == RESERVED, has_status) {
                    (true, false) => return None,
                    (true, true) => {
                        answer = Parcel::new();
                        answer.write_i32(SECURITY);
                        answer.write_string("not yours");
                    }
                    (false, _) => {
                        services.insert(name, request.received.handle(0)?);
                        if !has_status {
                            answer.write_i32(0);
                        }
                    }
                }
            }
            code if has_status && code == if is_new { LIST } else { OLD_LIST } => {
                arguments.i32()?;
                answer.write_i32(services.len() as i32);
                services.keys().for_each(|name| answer.write_string(name));
            }
            OLD_LIST if !has_status => {
                let place = usize::try_from(arguments.i32()?).ok()?;
                answer.write_string(services.keys().nth(place)?);
            }
            _ => return None,
        }
        Some(answer)
    }
}

fn echo(process: &Process) -> Object {
    process.object(|request| Ok(Parcel::from(request.data()))).add()
}

#[test]
fn names_are_published_and_found_at_managers_of_each_protocol() {
    let marked = [Protocol::Android11, Protocol::Android16]
        .into_iter()
        .flat_map(|protocol| Mark::ALL.map(|mark| (protocol, mark)));
    let unmarked = [Protocol::Android9, Protocol::Android10].map(|it| (it, Mark::System));
    for (protocol, mark) in marked.chain(unmarked) {
        let directory = tempfile::tempdir().unwrap();
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let open = || Process::open("binder", broker.socket()).unwrap();
        let [manager, server, client] = [(); 3].map(|()| open());
        assert_eq!(
            ServiceManager::find(&client).err(),
            Some(NameError::Call(CallError::NoManager))
        );
        let names = Manager { protocol, mark, services: Mutex::default() };
        let object = manager.object(move |request| names.answer(request).ok_or(Errno::BADMSG));
        manager.become_context_manager(object.add()).unwrap();
        let loopers = [&manager, &server].map(|process| {
            let process = process.clone();
            std::thread::spawn(move || process.serve())
        });

        let theirs = ServiceManager::find(&server).unwrap();
        assert_eq!(theirs.protocol(), protocol);
        for name in ["one", "other"] {
            theirs.publish(name, echo(&server)).unwrap();
        }
        let own = theirs.check("other").unwrap();
        assert!(matches!(own, Found::Own(_)), "{protocol:?}: {own:?}");
        let refused = theirs.publish(RESERVED, echo(&server));
        assert!(matches!(refused, Err(NameError::Refused { .. })), "{refused:?}");

        let ours = ServiceManager::find(&client).unwrap();
        assert_eq!(ours.list().unwrap(), ["one", "other"], "{protocol:?}");
        let service = ours.service("other").unwrap().expect("it is published");
        assert_eq!(service.call(1, &Parcel::from(&b"word"[..])).unwrap().data(), b"word");
        assert_eq!(ours.check("none").unwrap(), Found::Nothing);
        drop(service);
        [&client, &server, &manager].into_iter().for_each(Process::close);
        loopers.into_iter().for_each(|looper| _ = looper.join());
    }
}

#[test]
fn a_manager_of_something_else_is_told_from_a_service_manager() {
    let directory = tempfile::tempdir().unwrap();
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
    let [manager, client] = [(); 2].map(|()| Process::open("binder", broker.socket()).unwrap());
    let object = manager.object(|_| Err(Errno::NOSYS));
    manager.become_context_manager(object.add()).unwrap();
    let looper = std::thread::spawn({
        let manager = manager.clone();
        move || manager.serve()
    });
    let found = ServiceManager::find(&client);
    assert!(matches!(found, Err(NameError::Misunderstood(_))), "{found:?}");
    manager.close();
    looper.join().unwrap();
}
