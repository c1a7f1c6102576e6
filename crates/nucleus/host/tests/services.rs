//! Hosted services as their clients see them, and as they see each other.
mod support;

use baton::android::Mark;
use baton::{CallError, Parcel, Process};
use baton_driver::observer::Observer;
use baton_host::{Call, Host, Running, Service, Stays, Target};
use rustix::io::Errno;
use std::sync::mpsc;
use std::thread;
use support::{Broker, find, serve_manager, serve_marked_manager};

/// Answers with the request, each byte plus one.
fn add_one(call: &mut Call<'_>) -> Result<Parcel, Errno> {
    let data: Vec<u8> = call.data().iter().map(|byte| byte.wrapping_add(1)).collect();
    Ok(data[..].into())
}

/// Passes a call on to the service `to`.
fn pass_on(to: &'static str) -> impl FnMut(&mut Call<'_>) -> Result<Parcel, Errno> + Send {
    let mut target: Option<Target> = None;
    move |call| {
        if target.is_none() {
            target = call.find(to).map_err(|_| Errno::NOENT)?;
        }
        let target = target.as_ref().ok_or(Errno::NOENT)?;
        let parcel = Parcel::from(call.data());
        let began = thread::current().id();
        let answer = call.call(target, call.code(), &parcel);
        assert_eq!(thread::current().id(), began, "a handler goes on elsewhere than it began");
        match answer {
            Ok(answer) => Ok(answer.data().into()),
            Err(CallError::DeadObject) => Ok(b"dead"[..].into()),
            Err(error) => Err(error.errno()),
        }
    }
}

/// A service that stays runs without the kernel's OS thread; another one runs on it.
fn boxed(service: impl Service, stays: bool) -> Box<dyn Service> {
    if stays { Box::new(Stays(service)) } else { Box::new(service) }
}

fn host(broker: &Broker, fill: impl FnOnce(&mut Host)) -> Running {
    let mut host = Host::new();
    fill(&mut host);
    let running = host.start("binder", &broker.socket).unwrap();
    running.publish().unwrap();
    running
}

fn call(client: &Process, name: &str, data: &[u8]) -> Result<Vec<u8>, CallError> {
    let handle = find(client, name);
    handle.call(1, &Parcel::from(data)).map(|answer| answer.data().to_vec())
}

#[test]
fn calls_of_any_length_from_clients_and_services_are_answered() {
    // A service that stays may be called by one that does not.
    for stays in [[false; 3], [true; 3], [true, false, false], [true, true, false]] {
        calls_of_any_length_are_answered(stays);
    }
}

fn calls_of_any_length_are_answered(stays: [bool; 3]) {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let mut running = host(&broker, |host| {
        host.add_boxed("one", boxed(add_one, stays[0])).unwrap();
        host.add_boxed("via", boxed(pass_on("one"), stays[1])).unwrap();
        host.add_boxed("far", boxed(pass_on("via"), stays[2])).unwrap();
    });
    let client = broker.open();
    for bytes in [0, 1, 32, 48, 49, 56, 57, 500, 70_000] {
        let data: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
        let expected: Vec<u8> = data.iter().map(|byte| byte.wrapping_add(1)).collect();
        for name in ["one", "via", "far"] {
            assert_eq!(call(&client, name, &data), Ok(expected.clone()), "{name}, {bytes}");
            assert_eq!(running.call(name, 1, &data).unwrap().data(), expected);
        }
    }
    running.close();
    manager.close();
}

#[test]
fn a_parcel_with_an_object_goes_through_the_driver() {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let mut running = host(&broker, |host| {
        host.add("callee", |call: &mut Call<'_>| {
            let handle = call.handle(0).ok_or(Errno::BADMSG)?;
            let target = Target::from(handle);
            let answer = call.call(&target, 9, &Parcel::new()).map_err(|_| Errno::IO)?;
            Ok(answer.data().into())
        })
        .unwrap();
        host.add("caller", |call: &mut Call<'_>| {
            let handle = call.handle(0).ok_or(Errno::BADMSG)?;
            let mut parcel = Parcel::new();
            parcel.write_handle(&handle);
            let callee = call.find("callee").map_err(|_| Errno::NOENT)?.ok_or(Errno::NOENT)?;
            assert!(callee.is_hosted());
            let answer = call.call(&callee, 1, &parcel).map_err(|_| Errno::IO)?;
            Ok(answer.data().into())
        })
        .unwrap();
    });
    let client = broker.open();
    let own = client.object(|request| Ok(request.code().to_ne_bytes()[..].into())).add();
    let mut parcel = Parcel::new();
    parcel.write_object(own);
    // The client's thread serves the call back.
    let caller = find(&client, "caller");
    let answer = caller.call(1, &parcel).unwrap();
    assert_eq!(answer.data(), 9u32.to_ne_bytes());
    running.close();
    manager.close();
}

#[test]
fn a_blocking_service_keeps_no_other_waiting() {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let (entered, is_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = std::sync::Mutex::new(may_leave);
    let slow = broker.open();
    let object = slow
        .object(move |_| {
            entered.send(()).unwrap();
            may_leave.lock().unwrap().recv().unwrap();
            Ok(b"at last"[..].into())
        })
        .add();
    let serving = slow.clone();
    thread::spawn(move || serving.serve());
    baton_host::manager::add(&slow, "slow", object).unwrap();

    let mut running = host(&broker, |host| {
        host.add("waits", pass_on("slow")).unwrap();
        host.add("one", Stays(add_one)).unwrap();
        host.add("via", pass_on("one")).unwrap();
        host.add("stays", Stays(pass_on("one"))).unwrap();
    });
    let client = broker.open();
    let waiting = client.clone();
    let waiter = thread::spawn(move || call(&waiting, "waits", b""));
    is_entered.recv().unwrap();
    for name in ["one", "via", "stays"] {
        assert_eq!(call(&client, name, b"a"), Ok(b"b".to_vec()), "{name}");
        assert_eq!(running.call(name, 1, b"b").unwrap().data(), b"c");
    }
    leave.send(()).unwrap();
    assert_eq!(waiter.join().unwrap(), Ok(b"at last".to_vec()));
    running.close();
    slow.close();
    manager.close();
}

fn recurse(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 64]);
    if depth == 0 { block[1] } else { recurse(depth - 1) + block[depth as usize % 64] }
}

/// Panics, overflows its stack or fails, as the request says.
fn fragile(call: &mut Call<'_>) -> Result<Parcel, Errno> {
    match call.data() {
        b"panic" => panic!("on purpose"),
        b"overflow" => Ok(recurse(std::hint::black_box(1 << 30)).to_ne_bytes()[..].into()),
        _ => Ok(b"fine"[..].into()),
    }
}

#[test]
fn a_service_dies_alone() {
    for how in [&b"panic"[..], b"overflow"] {
        for (via, stays) in [(false, false), (true, false), (false, true), (true, true)] {
            let broker = Broker::start();
            let manager = serve_manager(&broker);
            let mut running = host(&broker, |host| {
                host.add_boxed("fragile", boxed(fragile, stays)).unwrap();
                host.add_boxed("via", boxed(pass_on("fragile"), stays)).unwrap();
                host.add_boxed("one", boxed(add_one, stays)).unwrap();
            });
            let client = broker.open();
            let serving = client.clone();
            thread::spawn(move || serving.serve());
            let handle = find(&client, "fragile");
            let (told, is_told) = mpsc::channel();
            handle.link_to_death(move || told.send(()).unwrap());
            assert_eq!(call(&client, "fragile", b""), Ok(b"fine".to_vec()));
            assert_eq!(call(&client, "via", b""), Ok(b"fine".to_vec()));

            if via {
                assert_eq!(call(&client, "via", how), Ok(b"dead".to_vec()));
            } else {
                assert_eq!(call(&client, "fragile", how), Err(CallError::DeadObject));
            }
            is_told.recv().unwrap();
            let again = handle.call(1, &Parcel::new()).map(drop);
            assert_eq!(again, Err(CallError::DeadObject));
            assert_eq!(call(&client, "via", b""), Ok(b"dead".to_vec()));
            assert_eq!(running.call("fragile", 1, b"").map(drop), Err(CallError::DeadObject));
            assert_eq!(call(&client, "one", b"a"), Ok(b"b".to_vec()));
            running.close();
            client.close();
            manager.close();
        }
    }
}

#[test]
fn a_call_that_would_wait_for_itself_is_refused() {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let mut running = host(&broker, |host| {
        host.add("a", pass_on("b")).unwrap();
        host.add("b", pass_on("c")).unwrap();
        host.add("c", pass_on("a")).unwrap();
        host.add("self", pass_on("self")).unwrap();
        host.add("stays", Stays(pass_on("stays too"))).unwrap();
        host.add("stays too", Stays(pass_on("stays"))).unwrap();
    });
    let client = broker.open();
    for name in ["a", "b", "c", "self", "stays"] {
        let refused = Err(CallError::Refused(Errno::DEADLK));
        assert_eq!(call(&client, name, b""), refused, "{name}");
    }
    running.close();
    manager.close();
}

#[test]
fn a_closed_host_is_dead_and_its_services_are_dropped() {
    struct Dropped(mpsc::Sender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let (dropped, is_dropped) = mpsc::channel();
    let mut running = host(&broker, |host| {
        let kept = Dropped(dropped);
        host.add("kept", move |_: &mut Call<'_>| {
            let _ = &kept;
            Ok(Parcel::new())
        })
        .unwrap();
    });
    let client = broker.open();
    let handle = find(&client, "kept");
    assert!(handle.call(1, &Parcel::new()).is_ok());
    running.close();
    is_dropped.recv().unwrap();
    assert_eq!(handle.call(1, &Parcel::new()).map(drop), Err(CallError::DeadObject));
    assert_eq!(running.call("kept", 1, b"").map(drop), Err(CallError::DeadObject));
    manager.close();
}

#[test]
fn a_service_is_served_without_a_host() {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let process = broker.open();
    let serving = process.clone();
    thread::spawn(move || serving.serve());
    let object = baton_host::add_object(&process, pass_on("one"));
    baton_host::manager::add(&process, "via", object).unwrap();
    let mut running = host(&broker, |host| host.add("one", add_one).unwrap());
    let client = broker.open();
    assert_eq!(call(&client, "via", b"a"), Ok(b"b".to_vec()));
    running.close();
    process.close();
    manager.close();
}

fn transactions(broker: &Broker) -> u64 {
    let contexts = Observer::connect(&broker.socket).unwrap().report().unwrap().contexts;
    let processes = contexts.into_iter().flat_map(|context| context.processes);
    processes.map(|process| process.engine.transactions).sum()
}

#[test]
fn a_call_between_two_services_is_no_transaction() {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let mut running = host(&broker, |host| {
        host.add("one", add_one).unwrap();
        host.add("via", pass_on("one")).unwrap();
        host.add("far", pass_on("via")).unwrap();
    });
    let client = broker.open();
    let handle = find(&client, "far");
    let long = Parcel::from(&[7; 4000][..]);
    let call = |parcel: &Parcel| handle.call(1, parcel).unwrap().data().len();
    call(&long);
    let before = transactions(&broker);
    for _ in 0..10 {
        assert_eq!((call(&Parcel::new()), call(&long)), (0, 4000));
        running.call("far", 1, b"from within").unwrap();
    }
    // The transactions of the client's own calls.
    assert_eq!(transactions(&broker) - before, 20);
    running.close();
    manager.close();
}

#[test]
fn a_service_that_stays_may_not_block() {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let mut running = host(&broker, |host| {
        host.add("leaves", add_one).unwrap();
        host.add("calls one that leaves", Stays(pass_on("leaves"))).unwrap();
        host.add("asks outside", Stays(pass_on("elsewhere"))).unwrap();
        let outside = |call: &mut Call<'_>| {
            let target = Target::from(call.handle(0).ok_or(Errno::BADMSG)?);
            match call.call(&target, 1, &Parcel::new()) {
                Err(CallError::Refused(errno)) => Err(errno),
                _ => Ok(Parcel::new()),
            }
        };
        host.add("calls outside", Stays(outside)).unwrap();
        let leaves = |call: &mut Call<'_>| {
            call.run_blocking(|| ());
            Ok(Parcel::new())
        };
        host.add("leaves all the same", Stays(leaves)).unwrap();
    });
    let client = broker.open();
    let refused = Err(CallError::Refused(Errno::PERM));
    assert_eq!(call(&client, "calls one that leaves", b""), refused);
    assert_eq!(call(&client, "asks outside", b""), Err(CallError::Refused(Errno::NOENT)));
    let mut parcel = Parcel::new();
    parcel.write_object(client.object(|_| Ok(Parcel::new())).add());
    let called = find(&client, "calls outside").call(1, &parcel).map(drop);
    assert_eq!(called, Err(CallError::Refused(Errno::PERM)));
    assert_eq!(call(&client, "leaves all the same", b""), Err(CallError::DeadObject));
    assert_eq!(call(&client, "leaves", b"a"), Ok(b"b".to_vec()));
    running.close();
    manager.close();
}

#[test]
fn many_callers_of_all_kinds_are_answered() {
    let broker = Broker::start();
    let manager = serve_manager(&broker);
    let mut running = host(&broker, |host| {
        host.add("one", Stays(add_one)).unwrap();
        host.add("stays", Stays(pass_on("one"))).unwrap();
        host.add("leaves", pass_on("stays")).unwrap();
        host.add("goes away", |call: &mut Call<'_>| {
            let began = thread::current().id();
            let away = call.run_blocking(|| thread::current().id());
            assert_ne!(away, began, "the kernel's thread waits itself");
            assert_eq!(thread::current().id(), began, "a handler goes on elsewhere than it began");
            add_one(call)
        })
        .unwrap();
        host.add("far", pass_on("goes away")).unwrap();
    });
    let client = broker.open();
    thread::scope(|scope| {
        for (number, name) in
            ["one", "stays", "leaves", "goes away", "far"].iter().cycle().take(15).enumerate()
        {
            let (client, running) = (&client, &running);
            let byte = number as u8;
            let answer = [byte + 1];
            scope.spawn(move || {
                let handle = find(client, name);
                for _ in 0..200 {
                    let parcel = Parcel::from(&[byte][..]);
                    assert_eq!(handle.call(1, &parcel).unwrap().data(), answer);
                    assert_eq!(running.call(name, 1, &[byte]).unwrap().data(), answer);
                }
            });
        }
    });
    running.close();
    manager.close();
}

#[test]
fn services_are_found_at_a_manager_with_another_mark() {
    let broker = Broker::start();
    let manager = serve_marked_manager(&broker, Mark::Unknown);
    let (server, client) = (broker.open(), broker.open());
    let object = server.object(|_| Ok(Parcel::new())).add();
    baton_host::manager::add(&server, "a", object).unwrap();
    for (name, is_there) in [("a", true), ("b", false)] {
        let found = baton_host::manager::find(&client, name).unwrap();
        assert_eq!(found.is_some(), is_there, "{name}");
    }
    manager.close();
}
