//! The runner with real sockets, and engines that are nothing but the control protocol.

mod fake;

use baton_abi::control::*;
use baton_abi::lane::{CHANNEL_BYTES, FRONT_BYTES, front};
use baton_shm::mapping::{Access, Mapping};
use fake::*;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

fn daemon(directory: &Directory) -> Daemon {
    Daemon::start(&directory.socket()).unwrap()
}

#[test]
fn a_hello_gets_an_identity_and_an_event_stream() {
    let directory = Directory::new();
    let daemon = daemon(&directory);
    let engine = Fake::open(&daemon.path, "binder").unwrap();
    assert_eq!(engine.identity.pid, std::process::id());
    assert_eq!(engine.identity.uid, rustix::process::geteuid().as_raw());
    assert!(!engine.identity.security_context.is_empty());
    assert_ne!(engine.id(), ProcessId::BROKER);
    assert_eq!(engine.events(), []);
    daemon.stop().unwrap();
    assert!(!directory.socket().exists());
}

#[test]
fn a_channel_is_shared_memory_a_socket_and_the_servers_front_page() {
    let directory = Directory::new();
    let daemon = daemon(&directory);
    let (manager, client) = manager_and_client(&daemon.path);
    assert_eq!(client.ask(Request::OpenChannel { target: manager.id() }), Some(Reply::Done));

    let (to_server, at_server) = manager.event_with_descriptors();
    let (to_client, at_client) = client.event_with_descriptors();
    let (Event::Channel { channel, end: End::Server, peer }, [memory, socket]) =
        (to_server, &at_server[..])
    else {
        panic!("no channel for the server")
    };
    assert_eq!(peer, client.identity);
    let (
        Event::Channel { channel: same, end: End::Client, peer },
        [client_memory, client_socket, page],
    ) = (to_client, &at_client[..])
    else {
        panic!("no channel for the client")
    };
    assert_eq!((same, peer), (channel, manager.identity.clone()));

    let ours = Mapping::new(memory, CHANNEL_BYTES, Access::ReadWrite).unwrap();
    let theirs = Mapping::new(client_memory, CHANNEL_BYTES, Access::ReadWrite).unwrap();
    ours.word(CHANNEL_BYTES - 4).store(7, Ordering::SeqCst);
    assert_eq!(theirs.word(CHANNEL_BYTES - 4).load(Ordering::SeqCst), 7);
    assert_eq!(rustix::fs::ftruncate(memory, 0), Err(Errno::PERM));
    send(client_socket, b"hello", &[]).unwrap();
    assert_eq!(receive(socket).unwrap().0, b"hello");

    manager.front.word(front::BELL).store(9, Ordering::SeqCst);
    let seen = Mapping::new(page, FRONT_BYTES, Access::Read).unwrap();
    assert_eq!(seen.word(front::BELL).load(Ordering::SeqCst), 9);
    assert_eq!(Mapping::new(page, FRONT_BYTES, Access::ReadWrite).unwrap_err(), Errno::PERM);
    assert!(rustix::io::pwrite(page, &[1], 0).is_err());
}
