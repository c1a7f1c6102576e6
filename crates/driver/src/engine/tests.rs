//! What an engine keeps, and when it lets go of it.

use super::{Engine, lock, tid};
use crate::channel::Channel;
use crate::thread_end::remember;
use baton_broker::{Config, Running};
use baton_shm::mailbox::Reader;
use rustix::io::Errno;
use std::sync::Arc;

fn broker() -> (Running, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let config = Config::at(directory.path().join("broker.sock"));
    (Running::start(config).unwrap(), directory)
}

#[test]
fn a_thread_that_ends_is_forgotten() {
    let (broker, _directory) = broker();
    let engine = Engine::open("binder", broker.socket()).unwrap();
    let known = || (engine.lock().threads.len(), lock(&engine.own_words).len());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            remember(&engine);
            remember(&engine);
            engine.lock().thread(tid());
            engine.own_word(tid());
            assert_eq!(known(), (1, 1));
        });
        // The scope's end waits for its body only, not for the thread's.
        thread.join().unwrap();
    });
    assert_eq!(known(), (0, 0));
}

#[test]
fn an_engine_may_go_before_its_threads_do() {
    let (broker, _directory) = broker();
    let engine = Engine::open("binder", broker.socket()).unwrap();
    let thread = std::thread::spawn(move || {
        remember(&engine);
        let gone = Arc::downgrade(&engine);
        engine.close();
        drop(engine);
        // The control thread has the last reference, and ends.
        while gone.strong_count() > 0 {
            std::thread::yield_now();
        }
    });
    thread.join().unwrap();
}

#[test]
fn a_node_that_may_not_manage_is_as_it_was() {
    let (broker, _directory) = broker();
    let manager = Engine::open("binder", broker.socket()).unwrap();
    manager.become_manager(0x10, 0x20, 0).unwrap();
    assert!(manager.lock().nodes.at(0x10).is_some());
    let other = Engine::open("binder", broker.socket()).unwrap();
    assert_eq!(other.become_manager(0x30, 0x40, 0), Err(Errno::BUSY));
    assert_eq!(other.lock().nodes.at(0x30), None);
    manager.close();
    other.close();
}

/// A client's channel to a server that nobody serves but its control thread.
fn channel(broker: &Running) -> (Arc<Engine>, Arc<Engine>, Arc<Channel>) {
    let server = Engine::open("binder", broker.socket()).unwrap();
    server.become_manager(0x10, 0, 0).unwrap();
    let client = Engine::open("binder", broker.socket()).unwrap();
    client.find_manager().unwrap();
    let channel = client.channel_to(server.identity.process).unwrap();
    (server, client, channel)
}

/// Whoever watched a lane may have taken what its client tells everybody of a millisecond later.
#[test]
fn what_has_been_taken_may_be_told_of() {
    let (broker, _directory) = broker();
    let (server, client, channel) = channel(&broker);
    let theirs = loop {
        if let Some(theirs) = server.channel(channel.id) {
            break theirs;
        }
        std::thread::yield_now();
    };
    for _ in 0..1000 {
        channel.tell_of_request(0, Reader::Elsewhere, true);
        let _ = server.accept(&mut server.lock(), None);
    }
    assert!(!theirs.ends().dead, "it is no violation");
    assert!(!theirs.has_news(), "and it is forgotten");
    assert!(theirs.start_serving(0), "nobody serves what is not there");
    client.close();
    server.close();
}
