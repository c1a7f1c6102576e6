//! The manager beside real processes: services come, go and are waited for.

use baton::android::{Mark, Reader, Write};
use baton::service_manager::{INTERFACE, Protocol};
use baton::{CallError, Errno, Handle, NameError, Object, Parcel, Process, ServiceManager};
use baton_broker::{Config, Running};
use baton_manager::{Manager, Policy, Release};
use rustix::pipe::{fcntl_setpipe_size, pipe};
use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

/// Codes of Android 16.
const WATCH: u32 = 7;
const WATCH_CLIENTS: u32 = 14;
const TRY_UNREGISTER: u32 = 15;
const DEBUG_INFO: u32 = 16;
const DUMP: u32 = u32::from_be_bytes(*b"_DMP");
const EX_SECURITY: i32 = -1;
const EX_ILLEGAL_STATE: i32 = -5;

/// A broker, a manager, and whoever serves until the test ends.
struct World {
    serving: Vec<(Process, JoinHandle<()>)>,
    manager: Manager,
    broker: Running,
    _directory: tempfile::TempDir,
}

impl World {
    fn new(release: Release, policy: Policy) -> World {
        let directory = tempfile::tempdir().unwrap();
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let process = Process::open("binder", broker.socket()).unwrap();
        let manager = Manager::start(&process, release, policy).unwrap();
        let mut world = World { serving: Vec::new(), manager, broker, _directory: directory };
        world.serve(process);
        world
    }

    fn open(&self) -> Process {
        Process::open("binder", self.broker.socket()).unwrap()
    }

    fn serve(&mut self, process: Process) {
        let its = process.clone();
        let looper = std::thread::spawn(move || _ = its.serve());
        self.serving.push((process, looper));
    }

    /// A process that serves.
    fn server(&mut self) -> Process {
        let process = self.open();
        self.serve(process.clone());
        process
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for (process, looper) in self.serving.drain(..) {
            process.close();
            let _ = looper.join();
        }
    }
}

fn echo(process: &Process) -> Object {
    process.object(|request| Ok(Parcel::from(request.data()))).add()
}

/// A callback of a client, and the arguments behind the token of each call with its object.
fn callback<T: Send + 'static>(
    process: &Process,
    read: impl Fn(&mut Reader<'_>, Option<Handle>) -> T + Send + Sync + 'static,
) -> (Object, Receiver<T>) {
    let (tell, told) = mpsc::channel();
    let object = process.object(move |request| {
        let mut reader = Reader::new(request.data());
        reader.token().expect("a token");
        let _ = tell.send(read(&mut reader, request.received.handle(0)));
        Ok(Parcel::new())
    });
    (object.add(), told)
}

/// The code of the exception in the reply to a call of the manager; 0 for none.
fn call(process: &Process, code: u32, write: impl FnOnce(&mut Parcel)) -> i32 {
    let mut request = Parcel::new();
    request.write_token(INTERFACE);
    write(&mut request);
    let manager = process.context_manager().unwrap();
    let reply = manager.call(code, &request).unwrap();
    Reader::new(reply.data()).i32().expect("a status")
}

fn named(name: &str, objects: &[Object]) -> impl FnOnce(&mut Parcel) {
    move |parcel| {
        parcel.write_string(name);
        for object in objects {
            parcel.write_object(*object);
            parcel.write_i32(0);
        }
    }
}

#[test]
fn clients_of_every_release_publish_find_and_list() {
    for (release, protocol) in [
        (Release::Eleven, Protocol::Android11),
        (Release::Twelve, Protocol::Android11),
        (Release::Thirteen, Protocol::Android11),
        (Release::Fourteen, Protocol::Android11),
        // The client does not know this release, but the classic protocol.
        (Release::Fifteen, Protocol::Android10),
        (Release::Sixteen, Protocol::Android16),
    ] {
        let mut world = World::new(release, Policy::Everyone);
        let (server, client) = (world.server(), world.open());
        let theirs = ServiceManager::find(&server).unwrap();
        assert_eq!(theirs.protocol(), protocol, "{release:?}");
        theirs.publish("one", echo(&server)).unwrap();
        for classic in [Protocol::Android9, Protocol::Android10] {
            let classic = ServiceManager::speaking(&server, classic).unwrap();
            classic.publish("other", echo(&server)).unwrap();
        }
        for protocol in [protocol, Protocol::Android9, Protocol::Android10] {
            let ours = ServiceManager::speaking(&client, protocol).unwrap();
            assert_eq!(ours.list().unwrap(), ["manager", "one", "other"], "{release:?}");
            for name in ["one", "other"] {
                let service = ours.service(name).unwrap().expect("it is published");
                assert_eq!(service.call(1, &Parcel::from(&b"word"[..])).unwrap().data(), b"word");
            }
            assert_eq!(ours.service("none").unwrap(), None);
            let itself = ours.service("manager").unwrap().expect("its own object");
            assert_eq!(itself, client.context_manager().unwrap());
            let refused = ours.publish("no name", echo(&client));
            assert!(matches!(refused, Err(NameError::Refused { .. })), "{refused:?}");
        }
    }
}

/// Programs of Android 8 and older, and libgbinder unless told otherwise, write no flags.
#[test]
fn classic_clients_need_not_know_flags() {
    const CHECK: u32 = 2;
    const ADD: u32 = 3;
    const LIST: u32 = 4;
    let mut world = World::new(Release::Sixteen, Policy::Everyone);
    let server = world.server();
    let manager = server.context_manager().unwrap();
    let call = |code: u32, write: &dyn Fn(&mut Parcel)| {
        let mut request = Protocol::Android9.request(INTERFACE);
        write(&mut request);
        manager.call(code, &request)
    };
    let added = call(ADD, &|request| {
        request.write_string("old");
        request.write_object(echo(&server));
        request.write_i32(0);
    });
    assert_eq!(Reader::new(added.unwrap().data()).i32(), Some(0));
    assert!(call(CHECK, &|request| request.write_string("old")).is_ok());
    for (place, name) in [(0, "manager"), (1, "old")] {
        let listed = call(LIST, &|request| request.write_i32(place)).unwrap();
        assert_eq!(Reader::new(listed.data()).string().as_deref(), Some(name));
    }
    assert!(call(LIST, &|request| request.write_i32(2)).is_err());
    let found = ServiceManager::find(&world.open()).unwrap().service("old").unwrap();
    let service = found.expect("it is published");
    let reply = service.call(1, &Parcel::from(&b"word"[..])).unwrap();
    assert_eq!(reply.data(), b"word");
}

#[test]
fn a_service_that_dies_is_forgotten_and_another_one_may_follow() {
    let mut world = World::new(Release::Sixteen, Policy::Everyone);
    let (first, second, client) = (world.server(), world.server(), world.open());
    let publish = |server: &Process| {
        ServiceManager::find(server).unwrap().publish("echo", echo(server)).unwrap();
    };
    publish(&first);
    let ours = ServiceManager::find(&client).unwrap();
    assert!(ours.service("echo").unwrap().is_some());
    first.close();
    // The manager may learn of the death later than this.
    while ours.service("echo").unwrap().is_some() {}
    assert_eq!(ours.list().unwrap(), ["manager"]);
    publish(&second);
    assert!(ours.service("echo").unwrap().is_some());
}

#[test]
fn users_whom_the_policy_does_not_name_register_nothing() {
    let uid = rustix::process::geteuid().as_raw();
    let mut world = World::new(Release::Sixteen, Policy::Users([uid].into()));
    let server = world.server();
    let theirs = ServiceManager::find(&server).unwrap();
    theirs.publish("one", echo(&server)).unwrap();
    if uid != 0 {
        let mut world = World::new(Release::Sixteen, Policy::Users([uid + 1].into()));
        let server = world.server();
        let refused = ServiceManager::find(&server).unwrap().publish("one", echo(&server));
        assert!(matches!(refused, Err(NameError::Refused { code: EX_SECURITY, .. })));
    }
    let refused = theirs.publish("manager", echo(&server));
    assert_eq!(refused.is_ok(), uid == 0, "the manager's own name: {refused:?}");
}

#[test]
fn a_watcher_is_told_of_a_registration() {
    let mut world = World::new(Release::Sixteen, Policy::Everyone);
    let (server, client) = (world.server(), world.server());
    let (object, told) = callback(&client, |reader, service| (reader.string(), service));
    assert_eq!(call(&client, WATCH, named("echo", &[object])), 0);
    ServiceManager::find(&server).unwrap().publish("echo", echo(&server)).unwrap();
    let (name, service) = told.recv().unwrap();
    assert_eq!(name.as_deref(), Some("echo"));
    let service = service.expect("the service");
    assert_eq!(service.call(1, &Parcel::from(&b"word"[..])).unwrap().data(), b"word");
}

/// libbinder takes no request with another mark than its own.
#[test]
fn a_callback_is_called_with_the_mark_of_its_client() {
    for mark in Mark::ALL {
        let mut world = World::new(Release::Sixteen, Policy::Everyone);
        let (server, client) = (world.server(), world.server());
        let (tell, told) = mpsc::channel();
        let object = client.object(move |request| {
            let _ = tell.send(Reader::new(request.data()).marked_token());
            Ok(Parcel::new())
        });
        let mut request = Parcel::new();
        request.write_marked_token(mark, INTERFACE);
        named("echo", &[object.add()])(&mut request);
        client.context_manager().unwrap().call(WATCH, &request).unwrap();
        ServiceManager::find(&server).unwrap().publish("echo", echo(&server)).unwrap();
        let token = Some((mark, "android.os.IServiceCallback".to_owned()));
        assert_eq!(told.recv(), Ok(token));
    }
}

#[test]
fn a_lazy_service_learns_of_its_clients_and_leaves_when_it_has_none() {
    let mut world = World::new(Release::Sixteen, Policy::Everyone);
    let (server, client) = (world.server(), world.open());
    let service = echo(&server);
    ServiceManager::find(&server).unwrap().publish("lazy", service).unwrap();
    let (object, told) = callback(&server, |reader, _| {
        // The service comes home as an object of 24 bytes, with its stability.
        (0..8).filter_map(|_| reader.i32()).last()
    });
    assert_eq!(call(&server, WATCH_CLIENTS, named("lazy", &[service, object])), 0);
    let stranger = call(&client, TRY_UNREGISTER, named("lazy", &[echo(&client)]));
    assert_ne!(stranger, 0, "it is not its service");

    let ours = ServiceManager::find(&client).unwrap();
    let held = ours.service("lazy").unwrap().expect("it is published");
    assert_eq!(told.recv(), Ok(Some(1)));
    for _ in 0..2 {
        world.manager.poll();
        let refused = call(&server, TRY_UNREGISTER, named("lazy", &[service]));
        assert_eq!(refused, EX_ILLEGAL_STATE, "it has a client");
    }
    drop(held);
    // A handle that is dropped goes back within some milliseconds.
    while told.try_recv() != Ok(Some(0)) {
        world.manager.poll();
    }
    assert_eq!(call(&server, TRY_UNREGISTER, named("lazy", &[service])), 0);
    assert_eq!(ours.service("lazy").unwrap(), None);
}

/// Asks for a dump into a pipe that has room for `room_bytes`.
fn dump(client: &Process, room_bytes: usize) -> Result<File, CallError> {
    let (output, input) = pipe().unwrap();
    fcntl_setpipe_size(&input, room_bytes).unwrap();
    let mut request = Parcel::new();
    request.write_owned_fd(input);
    client.context_manager().unwrap().call(DUMP, &request).map(|_| File::from(output))
}

#[test]
fn a_dump_holds_up_nobody_who_does_not_ask_for_one() {
    const PAGE_BYTES: usize = 4096;
    let mut world = World::new(Release::Sixteen, Policy::Everyone);
    let (server, client) = (world.server(), world.open());
    let theirs = ServiceManager::find(&server).unwrap();
    let long = "x".repeat(100);
    // Their names fill a page.
    for n in 0..50 {
        theirs.publish(&format!("{n}-{long}"), echo(&server)).unwrap();
    }
    let mut unread: Vec<_> = (0..4).map(|_| dump(&client, PAGE_BYTES).unwrap()).collect();
    assert_eq!(dump(&client, PAGE_BYTES).err(), Some(CallError::Refused(Errno::BUSY)));
    assert_eq!(theirs.list().unwrap().len(), 51);
    let mut text = String::new();
    unread.remove(0).read_to_string(&mut text).unwrap();
    let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
    let line = format!("  0-{long}: pid {pid}, uid {uid}, clients 0\n");
    assert!(text.starts_with("Services: 51\n") && text.contains(&line), "{text}");
    drop(unread);
    // A writer whose reader has gone ends soon.
    while dump(&client, PAGE_BYTES).is_err() {}
    let request = client.context_manager().unwrap().call(DUMP, &Parcel::new()).err();
    assert_eq!(request, Some(CallError::Refused(Errno::INVAL)));
}

#[test]
fn debug_information_names_the_processes() {
    let mut world = World::new(Release::Sixteen, Policy::Everyone);
    let server = world.server();
    ServiceManager::find(&server).unwrap().publish("echo", echo(&server)).unwrap();
    let mut request = Parcel::new();
    request.write_token(INTERFACE);
    let manager = server.context_manager().unwrap();
    let reply = manager.call(DEBUG_INFO, &request).unwrap();
    let mut reader = Reader::new(reply.data());
    let mut next = || reader.i32().unwrap();
    assert_eq!([next(), next()], [0, 2], "no exception, two services");
    for name in ["echo", "manager"] {
        assert_eq!(reader.i32(), Some(1), "it is there");
        let size_bytes = reader.i32().unwrap();
        assert_eq!(reader.string().as_deref(), Some(name));
        assert_eq!(reader.i32(), Some(std::process::id() as i32));
        assert_eq!(size_bytes as usize, 12 + (2 * name.len() + 2).next_multiple_of(4));
    }
}
