//! What a process keeps, and that it goes.

use baton::{CallError, Parcel, Process};
use baton_broker::{Config, Running};
use std::sync::{Arc, Mutex};

/// A process that serves an object, and two whose handlers keep what would keep them.
fn with_broker(body: impl FnOnce(&dyn Fn() -> Process)) {
    let directory = tempfile::tempdir().unwrap();
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
    body(&|| Process::open("binder", broker.socket()).unwrap());
}

#[test]
fn handlers_that_keep_handles_go_with_their_process() {
    with_broker(|open| {
        let server = open();
        server.become_context_manager(server.object(|_| Ok(Parcel::new())).add()).unwrap();
        let client = open();
        let (manager, kept) = (client.context_manager().unwrap(), Arc::new(()));
        let token = Arc::clone(&kept);
        let object = client.object(move |_| {
            let _ = (&token, &manager);
            Ok(Parcel::new())
        });
        let _ = object.add();
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(client);
        assert_eq!(Arc::strong_count(&kept), 1, "nobody has closed it, and nobody has it");
    });
}

#[test]
fn a_closed_process_is_freed_though_its_handlers_keep_it() {
    with_broker(|open| {
        let process = open();
        let (own, kept) = (process.clone(), Arc::new(()));
        let token = Arc::clone(&kept);
        let object = process.object(move |_| {
            let _ = &token;
            own.close();
            Ok(Parcel::new())
        });
        process.become_context_manager(object.add()).unwrap();
        process.close();
        assert_eq!(Arc::strong_count(&kept), 1);
    });
}

#[test]
fn recipients_go_with_their_process() {
    with_broker(|open| {
        let server = open();
        server.become_context_manager(server.object(|_| Ok(Parcel::new())).add()).unwrap();
        let client = open();
        let (manager, kept) = (client.context_manager().unwrap(), Arc::new(()));
        let (own, token) = (manager.clone(), Arc::clone(&kept));
        manager.link_to_death(move || drop((own, token)));
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(client);
        assert_eq!(Arc::strong_count(&kept), 1);
    });
}

/// A handle is enough to call by, without the process that it came from.
#[test]
fn a_handle_keeps_its_device_open() {
    with_broker(|open| {
        let server = open();
        let calls = Arc::new(Mutex::new(0));
        let count = Arc::clone(&calls);
        let object = server.object(move |_| {
            *count.lock().unwrap() += 1;
            Ok(Parcel::new())
        });
        server.become_context_manager(object.add()).unwrap();
        let looper = std::thread::spawn({
            let server = server.clone();
            move || server.serve()
        });
        let manager = open().context_manager().unwrap();
        assert!(manager.process().is_none());
        assert!(manager.call(1, &Parcel::new()).is_ok());
        assert_eq!(*calls.lock().unwrap(), 1);
        server.close();
        assert_eq!(manager.call(1, &Parcel::new()).err(), Some(CallError::DeadObject));
        looper.join().unwrap();
    });
}

/// A sender reckons with what the receiver shows, and the looper sleeps after its handler.
#[test]
fn the_room_of_a_one_way_transaction_is_free_while_the_looper_sleeps() {
    /// More than half of the room for such transactions.
    const LARGE: usize = 300 << 10;
    const ATTEMPTS: u32 = 200_000;
    with_broker(|open| {
        let server = open();
        let (serves, served) = std::sync::mpsc::channel();
        let serves = Mutex::new(serves);
        let object = server.object(move |request| {
            let _ = serves.lock().unwrap().send(request.data().len());
            Ok(Parcel::new())
        });
        server.become_context_manager(object.add()).unwrap();
        let looper = std::thread::spawn({
            let server = server.clone();
            move || server.serve()
        });
        let client = open();
        let (manager, large) = (client.context_manager().unwrap(), Parcel::from(&[1; LARGE][..]));
        for _ in 0..10 {
            let is_sent = (0..ATTEMPTS).any(|_| {
                std::thread::yield_now();
                manager.one_way(0, &large).is_ok()
            });
            assert!(is_sent, "its room is still taken");
            assert_eq!(served.recv(), Ok(LARGE));
        }
        server.close();
        looper.join().unwrap();
    });
}
