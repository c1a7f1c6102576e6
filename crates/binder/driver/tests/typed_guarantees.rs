//! Guarantees of the typed API beyond a successful call.
#[path = "support/service.rs"]
mod service;
mod support;

use baton::{CallError, Handle, Parcel, Process};
use baton_abi::control::ProcessReport;
use baton_driver::observer::Observer;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use service::{client_of, manage};
use std::sync::{Barrier, mpsc};
use std::thread;
use support::Broker;

extern "C" fn nothing(_: libc::c_int) {}

#[test]
fn a_signal_changes_nothing_of_a_call() {
    let broker = Broker::start();
    let (entered, is_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = std::sync::Mutex::new(may_leave);
    let server = manage(&broker, move |request| {
        if request.code() == 1 {
            entered.send(()).unwrap();
            may_leave.lock().unwrap().recv().unwrap();
        }
        Ok(request.code().to_ne_bytes()[..].into())
    });

    let (_client, manager) = client_of(&broker);
    let (known, is_known) = mpsc::channel();
    let caller = thread::spawn(move || {
        // SAFETY: the calling thread's own name.
        known.send(unsafe { libc::pthread_self() }).unwrap();
        for code in [1, 2] {
            let reply = manager.call(code, &Parcel::new()).unwrap();
            assert_eq!(reply.data(), code.to_ne_bytes());
        }
    });
    let thread = is_known.recv().unwrap();
    is_entered.recv().unwrap();
    // SAFETY: a handler without SA_RESTART that does nothing, and a thread that still runs.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        for _ in 0..20 {
            libc::pthread_kill(thread, libc::SIGUSR1);
            thread::yield_now();
        }
    }
    leave.send(()).unwrap();
    caller.join().unwrap();
    server.close();
}

#[test]
fn every_recipient_hears_of_the_death() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server.object(|_| Ok(Parcel::new())).add();
    server.become_context_manager(object).unwrap();
    let (client, manager) = client_of(&broker);
    let again = manager.clone();
    let (told, is_told) = mpsc::channel();
    let link = |handle: &Handle, name| {
        let told = told.clone();
        handle.link_to_death(move || told.send(name).unwrap());
    };
    link(&manager, "first");
    link(&again, "second");
    let listening = client.clone();
    thread::spawn(move || listening.serve());
    server.close();
    let mut names = [is_told.recv().unwrap(), is_told.recv().unwrap()];
    names.sort_unstable();
    assert_eq!(names, ["first", "second"]);
    link(&manager, "late");
    assert_eq!(is_told.recv().unwrap(), "late");
    client.close();
}

#[test]
fn a_panic_of_a_handler_is_a_failed_reply() {
    let broker = Broker::start();
    let server = manage(&broker, |request| match request.code() {
        1 => panic!("a handler's bug, on purpose"),
        _ => Ok(Parcel::new()),
    });
    let (_client, manager) = client_of(&broker);
    let failed = Err(CallError::Refused(Errno::FAULT));
    assert_eq!(manager.call(1, &Parcel::new()).map(drop), failed);
    assert!(manager.call(2, &Parcel::new()).is_ok());
    server.close();
}

#[test]
fn a_reply_may_carry_a_descriptor_of_its_own() {
    let broker = Broker::start();
    let server = manage(&broker, |_| {
        let (reader, writer) = rustix::pipe::pipe()?;
        rustix::io::write(&writer, b"through")?;
        let mut reply = Parcel::new();
        reply.write_owned_fd(reader);
        Ok(reply)
    });
    let (_client, manager) = client_of(&broker);
    let reader: OwnedFd = manager.call(1, &Parcel::new()).unwrap().fd(0).unwrap();
    let mut text = [0; 16];
    assert_eq!(rustix::io::read(&reader, &mut text).unwrap(), 7);
    // The writer's last copy is closed.
    assert_eq!(rustix::io::read(&reader, &mut text).unwrap(), 0);
    server.close();
}

#[test]
fn a_parcel_with_a_handle_of_another_device_is_refused() {
    let broker = Broker::start();
    let server = manage(&broker, |_| Ok(Parcel::new()));
    let client = Process::open("binder", &broker.socket).unwrap();
    let other = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    let theirs = other.context_manager().unwrap();
    let mut parcel = Parcel::new();
    parcel.write_handle(&manager);
    let refused = Err(CallError::ForeignHandle);
    assert_eq!(theirs.call(1, &parcel).map(drop), refused);
    assert_eq!(theirs.one_way(1, &parcel), refused);
    assert!(manager.call(1, &parcel).is_ok());
    server.close();
}

fn processes(broker: &Broker) -> Vec<ProcessReport> {
    let contexts = Observer::connect(&broker.socket).unwrap().report().unwrap().contexts;
    contexts.into_iter().flat_map(|context| context.processes).collect()
}

/// Calls on twenty threads, which have ended when this returns.
fn call_at_once(manager: &Handle) {
    let start = Barrier::new(20);
    thread::scope(|scope| {
        let call = || {
            start.wait();
            drop(manager.call(1, &Parcel::new()).unwrap());
        };
        let callers: Vec<_> = (0..20).map(|_| scope.spawn(call)).collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}

#[test]
fn threads_that_have_called_are_forgotten() {
    let broker = Broker::start();
    let server = manage(&broker, |_| Ok(Parcel::new()));
    let (_client, manager) = client_of(&broker);
    call_at_once(&manager);
    // The server's looper remains.
    let threads = processes(&broker).iter().map(|process| process.engine.threads).sum::<u32>();
    assert_eq!(threads, 1);
    server.close();
}

#[test]
fn threads_that_call_at_once_share_a_channel() {
    let broker = Broker::start();
    let server = manage(&broker, |_| Ok(Parcel::new()));
    for _ in 0..20 {
        let (client, manager) = client_of(&broker);
        call_at_once(&manager);
        let channels = processes(&broker).iter().map(|process| process.channels.len()).max();
        assert_eq!(channels, Some(1));
        client.close();
        while processes(&broker).len() > 1 {
            thread::yield_now();
        }
    }
    server.close();
}
