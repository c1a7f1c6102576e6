//! Calls under way, as an observer sees them: who waits, who serves, and what.

use baton::{Handle, Parcel, Process};
use baton_abi::control::{CallReport, End, ProcessReport};
use baton_broker::{Config, Running};
use baton_driver::observer::Observer;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A handler waits until the test lets it go.
struct Gate {
    entered: Receiver<()>,
    leave: Sender<()>,
}

fn gate() -> (Gate, impl Fn() + Send + Sync + 'static) {
    let ((enter, entered), (leave, left)) = (channel(), channel());
    let left = Mutex::new(left);
    let pass = move || {
        enter.send(()).unwrap();
        left.lock().unwrap().recv().unwrap();
    };
    (Gate { entered, leave }, pass)
}

fn call(handle: &Handle, code: u32, bytes: usize) -> JoinHandle<()> {
    let handle = handle.clone();
    std::thread::spawn(move || {
        handle.call(code, &Parcel::from(&vec![0; bytes][..])).unwrap();
    })
}

/// All processes, once each has described its calls.
fn described(socket: &Path) -> Vec<ProcessReport> {
    let observer = Observer::connect(socket).unwrap();
    observer.describe_calls().unwrap();
    loop {
        let contexts = observer.report().unwrap().contexts;
        let all: Vec<_> = contexts.into_iter().flat_map(|context| context.processes).collect();
        if all.iter().all(|process| process.calls.is_some()) {
            return all;
        }
    }
}

fn calls(processes: &[ProcessReport], end: End) -> Vec<(u64, CallReport)> {
    let all = processes.iter().flat_map(|process| {
        process.calls.iter().flatten().map(|call| (process.process, call.clone()))
    });
    all.filter(|(_, call)| call.end == end).collect()
}

#[test]
fn a_hung_call_and_one_that_waits_are_seen_at_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
    let open = || Process::open("binder", broker.socket()).unwrap();
    let [server, client, other] = [(); 3].map(|()| open());
    let (gate, pass) = gate();
    let object = server.object(move |request| {
        if request.code() == 7 {
            pass();
        }
        Ok(Parcel::new())
    });
    server.become_context_manager(object.add()).unwrap();
    let looper = std::thread::spawn({
        let server = server.clone();
        move || server.serve()
    });
    let ours = client.context_manager().unwrap();
    // By the fast path, and on a looper that is pinned.
    (0..200).for_each(|_| drop(ours.call(1, &Parcel::new()).unwrap()));
    let hung = call(&ours, 7, 100);
    gate.entered.recv().unwrap();
    let theirs = other.context_manager().unwrap();
    let waiting = call(&theirs, 8, 4);

    let mut processes = described(broker.socket());
    // The other caller may not have sent yet, or not all of its request.
    let n_sent = |processes: &[ProcessReport]| {
        calls(processes, End::Client).iter().filter(|(_, call)| call.request.is_some()).count()
    };
    while n_sent(&processes) < 2 {
        processes = described(broker.socket());
    }
    let (waits, serves) = (calls(&processes, End::Client), calls(&processes, End::Server));
    let request = |call: &CallReport| call.request.clone().expect("it lies there");
    let codes: Vec<_> = waits.iter().map(|(_, call)| request(call).code).collect();
    assert!(codes == [7, 8] || codes == [8, 7], "{codes:?}");
    let (caller, hangs) = waits.iter().find(|(_, call)| request(call).code == 7).unwrap();
    let [(server_id, service)] = &serves[..] else { panic!("{serves:?}") };
    assert_eq!((hangs.peer, service.peer), (*server_id, *caller));
    assert_eq!((hangs.channel, hangs.lane), (service.channel, service.lane));
    for call in [hangs, service] {
        let request = request(call);
        assert_eq!((request.code, request.data_bytes), (7, 100));
    }
    let again = described(broker.socket());
    let age_us = |of: &[ProcessReport]| {
        let calls = calls(of, End::Server);
        request(&calls[0].1).age_us
    };
    assert!(age_us(&again) >= age_us(&processes), "it grows");

    gate.leave.send(()).unwrap();
    hung.join().unwrap();
    waiting.join().unwrap();
    let quiet = described(broker.socket());
    assert!(quiet.iter().all(|process| process.calls.as_deref() == Some(&[])), "{quiet:?}");
    server.close();
    looper.join().unwrap();
}

/// The client serves a nested call, on the lane of its own call, and the handler hangs there.
#[test]
fn a_nested_call_is_seen_with_the_one_that_it_came_from() {
    let directory = tempfile::tempdir().unwrap();
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
    let open = || Process::open("binder", broker.socket()).unwrap();
    let [server, client] = [(); 2].map(|()| open());
    let object = server.object(|request| {
        let callback = request.received.handle(0).expect("a callback");
        callback.call(2, &Parcel::new()).map_err(|error| error.errno())?;
        Ok(Parcel::new())
    });
    server.become_context_manager(object.add()).unwrap();
    let looper = std::thread::spawn({
        let server = server.clone();
        move || server.serve()
    });
    let (gate, pass) = gate();
    let callback = client.object(move |_| {
        pass();
        Ok(Parcel::new())
    });
    let mut request = Parcel::new();
    request.write_object(callback.add());
    let manager = Arc::new(client.context_manager().unwrap());
    let caller = std::thread::spawn({
        let manager = Arc::clone(&manager);
        move || drop(manager.call(1, &request).unwrap())
    });
    gate.entered.recv().unwrap();
    let processes = described(broker.socket());
    for (end, expected) in [(End::Client, [1, 2]), (End::Server, [1, 2])] {
        let calls = calls(&processes, end);
        let mut codes: Vec<_> =
            calls.iter().map(|(_, call)| call.request.as_ref().map(|it| it.code)).collect();
        codes.sort_unstable();
        assert_eq!(codes, expected.map(Some), "{end:?}: {calls:?}");
    }
    gate.leave.send(()).unwrap();
    caller.join().unwrap();
    server.close();
    looper.join().unwrap();
}

/// A call, a call back, and a call once more, all on one lane: the third request lies where the
/// first one lay, which is not shown as another one.
#[test]
fn a_request_that_a_nested_call_has_overwritten_is_not_shown_as_that() {
    let directory = tempfile::tempdir().unwrap();
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
    let open = || Process::open("binder", broker.socket()).unwrap();
    let [server, client] = [(); 2].map(|()| open());
    let (gate, pass) = gate();
    let object = server.object(move |request| {
        match request.code() {
            1 => {
                let callback = request.received.handle(0).expect("a callback");
                callback.call(2, &Parcel::new()).map_err(|error| error.errno())?;
            }
            _ => pass(),
        }
        Ok(Parcel::new())
    });
    server.become_context_manager(object.add()).unwrap();
    let looper = std::thread::spawn({
        let server = server.clone();
        move || server.serve()
    });
    let manager = client.context_manager().unwrap();
    let callback = client.object({
        let manager = manager.clone();
        move |_| {
            manager.call(3, &Parcel::new()).map_err(|error| error.errno())?;
            Ok(Parcel::new())
        }
    });
    let mut request = Parcel::new();
    request.write_object(callback.add());
    let caller = std::thread::spawn(move || drop(manager.call(1, &request).unwrap()));
    gate.entered.recv().unwrap();
    let processes = described(broker.socket());
    for end in [End::Client, End::Server] {
        let calls = calls(&processes, end);
        assert_eq!(calls.len(), 3, "{end:?}: {calls:?}");
        let mut codes: Vec<_> =
            calls.iter().filter_map(|(_, call)| Some(call.request.as_ref()?.code)).collect();
        codes.sort_unstable();
        assert!(codes == [2, 3] || codes == [1, 2, 3], "{end:?}: {calls:?}");
    }
    gate.leave.send(()).unwrap();
    caller.join().unwrap();
    client.close();
    server.close();
    looper.join().unwrap();
}
