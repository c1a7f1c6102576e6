//! The typed API over a real broker; every process has a device of its own.
#[path = "support/service.rs"]
mod service;
mod support;

use baton::{CallError, Parcel, Process, Received};
use baton_driver::observer::Observer;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd};
use service::{client_of, manage};
use std::sync::{Arc, mpsc};
use std::thread;
use support::Broker;

fn server(broker: &Broker) -> Process {
    manage(broker, |request| {
        let mut reply = Parcel::new();
        reply.write(request.data()).write(&request.code().to_ne_bytes());
        Ok(reply)
    })
}

#[test]
fn a_call_is_answered() {
    let broker = Broker::start();
    let server = server(&broker);
    let (_client, manager) = client_of(&broker);
    for bytes in [0, 1, 4, 124, 4096, 65536, 900_000] {
        let data: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
        let reply = manager.call(7, &data[..].into()).unwrap();
        assert_eq!(&reply.data()[..bytes], &data[..]);
        assert_eq!(&reply.data()[bytes..], &7u32.to_ne_bytes());
    }
    server.close();
}

#[test]
fn a_context_without_manager_has_none_and_too_much_fails() {
    let broker = Broker::start();
    let client = Process::open("binder", &broker.socket).unwrap();
    assert_eq!(client.context_manager().err(), Some(CallError::NoManager));
    let server = server(&broker);
    let manager = client.context_manager().unwrap();
    let too_much = vec![0; 2 << 20];
    let result = manager.call(1, &too_much[..].into()).map(drop);
    assert_eq!(result, Err(CallError::NoRoom));
    let result = manager.call(1, &vec![0; (4 << 20) + 1][..].into()).map(drop);
    assert_eq!(result, Err(CallError::TooLarge));
    assert!(manager.call(1, &Parcel::new()).is_ok());
    server.close();
}

#[test]
fn a_call_back_reaches_the_waiting_thread() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server
        .object(move |request| {
            let callback = request.received.handle(0).unwrap();
            let answer = callback.call(2, &request.data()[..4].into()).unwrap();
            Ok(answer.data().into())
        })
        .add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    thread::spawn(move || serving.serve());

    let client = Process::open("binder", &broker.socket).unwrap();
    let caller = thread::current().id();
    let callback = client
        .object(move |request| {
            assert_eq!(thread::current().id(), caller);
            Ok(request.data().iter().map(|byte| byte + 1).collect::<Vec<u8>>()[..].into())
        })
        .add();
    let manager = client.context_manager().unwrap();
    for _ in 0..100 {
        let mut parcel = Parcel::new();
        parcel.write(&[1, 2, 3, 4]).write_object(callback);
        let reply = manager.call(1, &parcel).unwrap();
        assert_eq!(reply.data(), [2, 3, 4, 5]);
    }
    server.close();
}

/// A calls B, B calls C, and C calls A: no lane of A's call ends at C, so the token in the chain
/// leads to the thread of A that waits, past A's idle looper.
#[test]
fn a_call_back_through_a_third_process_reaches_the_waiting_thread() {
    const REGISTER: u32 = 1;
    const CALL: u32 = 2;
    let broker = Broker::start();
    let service = std::sync::Mutex::new(None);
    let server = manage(&broker, move |request| {
        let handle = request.received.handle(0).unwrap();
        let mut service = service.lock().unwrap();
        match (request.code(), &*service) {
            (REGISTER, _) => *service = Some(handle),
            (_, Some(third)) => {
                let mut parcel = Parcel::new();
                parcel.write(&request.data()[..4]).write_handle(&handle);
                return Ok(third.call(CALL, &parcel).unwrap().data().into());
            }
            (_, None) => panic!("nobody has registered"),
        }
        Ok(Parcel::new())
    });
    let (third, to_server) = client_of(&broker);
    let object = third
        .object(|request| {
            let callback = request.received.handle(0).unwrap();
            Ok(callback.call(CALL, &request.data()[..4].into()).unwrap().data().into())
        })
        .add();
    to_server.call(REGISTER, Parcel::new().write_object(object)).unwrap();
    let (client, to_server) = client_of(&broker);
    for process in [&third, &client] {
        let process = process.clone();
        thread::spawn(move || process.serve());
    }

    let (tell, served_by) = mpsc::channel();
    let callback = client
        .object(move |request| {
            tell.send(thread::current().id()).unwrap();
            Ok(request.data().iter().map(|byte| byte + 1).collect::<Vec<u8>>()[..].into())
        })
        .add();
    for _ in 0..100 {
        let mut parcel = Parcel::new();
        parcel.write(&[1, 2, 3, 4]).write_object(callback);
        let reply = to_server.call(CALL, &parcel).unwrap();
        assert_eq!(reply.data(), [2, 3, 4, 5]);
        assert_eq!(served_by.recv().unwrap(), thread::current().id());
    }
    for process in [client, third, server] {
        process.close();
    }
}

#[test]
fn a_death_ends_calls_and_is_told() {
    let broker = Broker::start();
    let (entered, is_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = std::sync::Mutex::new(may_leave);
    let server = manage(&broker, move |_| {
        entered.send(()).unwrap();
        let _ = may_leave.lock().unwrap().recv();
        Ok(Parcel::new())
    });

    let (client, manager) = client_of(&broker);
    let (told, is_told) = mpsc::channel();
    manager.link_to_death(move || told.send(()).unwrap());
    let listening = client.clone();
    thread::spawn(move || listening.serve());
    let call = {
        let manager = manager.clone();
        thread::spawn(move || manager.call(1, &Parcel::new()).map(drop))
    };
    is_entered.recv().unwrap();
    server.close();
    assert_eq!(call.join().unwrap(), Err(CallError::DeadObject));
    is_told.recv().unwrap();
    drop(leave);
    client.close();
}

#[test]
fn a_link_to_a_death_is_taken_back() {
    let broker = Broker::start();
    let server = manage(&broker, |_| Ok(Parcel::new()));
    let (client, manager) = client_of(&broker);
    let (told, is_told) = mpsc::channel();
    let link = |name: &'static str| {
        let told = told.clone();
        manager.link_to_death(move || told.send(name).unwrap())
    };
    // A notice of one recipient goes with its link, and the next link has a notice again.
    let alone = link("alone");
    assert!(manager.unlink_to_death(alone) && !manager.unlink_to_death(alone));
    let (first, second, third) = (link("first"), link("second"), link("third"));
    assert!(manager.clone().unlink_to_death(second));
    assert!(!manager.unlink_to_death(alone));
    let listening = client.clone();
    let listener = thread::spawn(move || listening.serve());
    server.close();
    assert_eq!([is_told.recv(), is_told.recv()], [Ok("first"), Ok("third")]);
    assert!(!manager.unlink_to_death(first) && !manager.unlink_to_death(third));
    client.close();
    listener.join().unwrap();
    drop(told);
    assert!(is_told.recv().is_err(), "recipients are told once");
}

#[test]
fn a_recipient_goes_with_the_last_handle() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let inner = server.object(|_| Ok(Parcel::new())).add();
    let give = server.object(move |_| {
        let mut parcel = Parcel::new();
        parcel.write_object(inner);
        Ok(parcel)
    });
    server.become_context_manager(give.add()).unwrap();
    let serving = server.clone();
    let looper = thread::spawn(move || serving.serve());
    let (client, manager) = client_of(&broker);
    let captured = Arc::new(());
    let link = |answer: &Received<'_>| {
        let (handle, kept) = (answer.handle(0).unwrap(), Arc::clone(&captured));
        handle.link_to_death(move || drop(kept));
        handle
    };
    let answer = || manager.call(1, &Parcel::new()).unwrap();
    let handle = link(&answer());
    let second = handle.clone();
    drop(handle);
    assert_eq!(Arc::strong_count(&captured), 2, "there is another handle");
    drop(second);
    assert_eq!(Arc::strong_count(&captured), 1);
    // An answer that is dropped after the last handle has the reference until then.
    for _ in 0..100 {
        let answer = answer();
        drop(link(&answer));
    }
    assert!(Arc::strong_count(&captured) < 10);
    client.close();
    server.close();
    looper.join().unwrap();
}

#[test]
fn one_way_transactions_keep_their_order() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let (seen, is_seen) = mpsc::channel();
    let object = server
        .object(move |request| {
            seen.send(u32::from_ne_bytes(request.data().try_into().unwrap())).unwrap();
            Ok(Parcel::new())
        })
        .add();
    server.become_context_manager(object).unwrap();
    for _ in 0..3 {
        let serving = server.clone();
        thread::spawn(move || serving.serve());
    }
    let (_client, manager) = client_of(&broker);
    for number in 0..1000u32 {
        while manager.one_way(1, &number.to_ne_bytes()[..].into()).is_err() {
            thread::yield_now();
        }
    }
    for number in 0..1000 {
        assert_eq!(is_seen.recv().unwrap(), number);
    }
    server.close();
}

#[test]
fn a_descriptor_arrives_as_the_same_file() {
    let broker = Broker::start();
    let server = manage(&broker, |request| {
        let pipe = request.received.fd(0).unwrap();
        rustix::io::write(&pipe, b"through").unwrap();
        Ok(Parcel::new())
    });
    let (_client, manager) = client_of(&broker);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut parcel = Parcel::new();
    parcel.write_fd(writer.as_fd());
    drop(manager.call(1, &parcel).unwrap());
    drop((parcel, writer));
    let mut text = [0; 16];
    assert_eq!(rustix::io::read(&reader, &mut text).unwrap(), 7);
    // The server's copies are closed: the pipe ends.
    assert_eq!(rustix::io::read(&reader, &mut text).unwrap(), 0);
    server.close();
}

#[test]
fn a_descriptor_that_is_taken_stays_open_after_its_message() {
    let broker = Broker::start();
    let (keep, kept) = mpsc::channel();
    let server = manage(&broker, move |request| {
        let received = &request.received;
        let number = |at: usize| {
            let offset = 24 * at + 8;
            i32::from_ne_bytes(request.data()[offset..offset + 4].try_into().unwrap())
        };
        let taken = received.take_fd(1).unwrap();
        assert_eq!(taken.as_raw_fd(), number(1), "it is no duplicate");
        assert!(received.take_fd(1).is_none() && received.fd(1).is_none());
        assert_ne!(received.fd(0).unwrap().as_raw_fd(), number(0));
        keep.send(taken).unwrap();
        Ok(Parcel::new())
    });
    let (_client, manager) = client_of(&broker);
    let pipes = [rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap()];
    let mut parcel = Parcel::new();
    pipes.iter().for_each(|(_, writer)| _ = parcel.write_fd(writer.as_fd()));
    drop(manager.call(1, &parcel).unwrap());
    let [first, second] = pipes.map(|(reader, _)| reader);
    let mut text = [0; 16];
    assert_eq!(rustix::io::read(&first, &mut text).unwrap(), 0, "closed with its message");
    let taken = kept.recv().unwrap();
    rustix::io::write(&taken, b"through").unwrap();
    assert_eq!(rustix::io::read(&second, &mut text).unwrap(), 7);
    drop(taken);
    assert_eq!(rustix::io::read(&second, &mut text).unwrap(), 0);
    server.close();
}

#[test]
fn a_closed_process_keeps_no_descriptor_that_nobody_has_read() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server.object(|_| Ok(Parcel::new())).add();
    server.become_context_manager(object).unwrap();
    let (_client, manager) = client_of(&broker);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut parcel = Parcel::new();
    parcel.write_owned_fd(writer);
    manager.one_way(1, &parcel).unwrap();
    drop(parcel);
    // No thread serves: the control thread takes the transaction in.
    let observer = Observer::connect(&broker.socket).unwrap();
    let taken_in = || {
        let contexts = observer.report().unwrap().contexts;
        contexts.iter().flat_map(|context| &context.processes).any(|p| p.engine.buffers == 1)
    };
    while !taken_in() {
        thread::yield_now();
    }
    server.close();
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    let ended = rustix::event::poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&patience));
    assert_eq!(ended, Ok(1), "the pipe still has a writer");
}
