//! Calls of plain values: by lines and without, of functions and of objects that answer with
//! parcels.
#[path = "support/service.rs"]
mod service;
mod support;

use baton_driver::process::{CallError, Handle, Object, Parcel, Process, priority_changed};
use bytemuck::{Pod, Zeroable};
use rustix::io::Errno;
use service::{client_of, manage};
use std::sync::{Mutex, mpsc};
use std::thread;
use support::Broker;

/// Calls after which a looper dwells at its only caller's lane, and more.
const MANY: u32 = 200;

/// A function answers with twice the value, ...
const DOUBLE: u32 = 0;
/// when it is let go, ...
const HOLD: u32 = 1;
/// with an error, ...
const REFUSE: u32 = 2;
/// or not at all.
const PANIC: u32 = 3;

struct Stage {
    broker: Broker,
    server: Process,
    entered: Mutex<mpsc::Receiver<()>>,
    leave: mpsc::Sender<()>,
}

/// A server that has the object which `make` makes of what its handler does.
fn stage(make: impl FnOnce(&Process, Body) -> Object) -> Stage {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let (enter, entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = Mutex::new(may_leave);
    let body = move |code: u32, value: u32| {
        match code {
            HOLD => {
                enter.send(()).unwrap();
                may_leave.lock().unwrap().recv().unwrap();
            }
            REFUSE => return Err(Errno::DOM),
            PANIC => panic!("as the test wants"),
            _ => {}
        }
        Ok(value.wrapping_mul(2))
    };
    let object = make(&server, Box::new(body));
    serve(&server, object);
    Stage { broker, server, entered: Mutex::new(entered), leave }
}

fn serve(server: &Process, object: Object) {
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    thread::spawn(move || serving.serve());
}

type Body = Box<dyn Fn(u32, u32) -> Result<u32, Errno> + Send + Sync>;

fn function(server: &Process, body: Body) -> Object {
    server.add_function(body)
}

fn parcels(server: &Process, body: Body) -> Object {
    server.add_object(move |request| {
        let value = bytemuck::try_pod_read_unaligned(request.data()).map_err(|_| Errno::INVAL)?;
        Ok(Parcel::from(&body(request.code(), value)?.to_ne_bytes()[..]))
    })
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.close();
    }
}

fn each_kind(test: fn(&Stage, &Process, &Handle)) {
    for stage in [stage(function), stage(parcels)] {
        let (client, manager) = client_of(&stage.broker);
        test(&stage, &client, &manager);
    }
}

/// A parcel's call of the same.
fn call(client: &Process, manager: &Handle, code: u32, value: &[u8]) -> Result<u32, CallError> {
    let answer = client.call(manager, code, &Parcel::from(value))?;
    Ok(bytemuck::pod_read_unaligned(answer.data()))
}

#[test]
fn values_go_there_and_back_whoever_calls() {
    each_kind(|_, client, manager| {
        let mut line = client.line(manager).unwrap();
        for value in 0..MANY {
            assert_eq!(line.call(DOUBLE, &value), Ok(2 * value));
            if value % 16 == 0 {
                assert_eq!(call(client, manager, DOUBLE, &value.to_ne_bytes()), Ok(2 * value));
            }
        }
    });
}

#[test]
fn two_lines_of_a_thread_share_its_lane() {
    each_kind(|_, client, manager| {
        let [mut one, mut other] = [(); 2].map(|()| client.line(manager).unwrap());
        for value in 0..MANY {
            assert_eq!(one.call(DOUBLE, &value), Ok(2 * value));
            assert_eq!(other.call(DOUBLE, &(value + 1)), Ok(2 * value + 2));
        }
    });
}

#[test]
fn what_the_program_refuses_fails_and_the_next_call_does_not() {
    each_kind(|_, client, manager| {
        let mut line = client.line(manager).unwrap();
        for value in 0..MANY {
            let (code, wanted) = match value % 50 {
                30 => (REFUSE, Err(CallError::Failed(Errno::DOM))),
                40 => (PANIC, Err(CallError::Failed(Errno::FAULT))),
                _ => (DOUBLE, Ok(2 * value)),
            };
            assert_eq!(line.call(code, &value), wanted);
        }
        // After so many that are served at one go, too.
        (0..MANY).for_each(|value| assert_eq!(line.call(DOUBLE, &value), Ok(2 * value)));
        let panics: Result<u32, _> = line.call(PANIC, &0_u32);
        assert_eq!(panics, Err(CallError::Failed(Errno::FAULT)));
        assert_eq!(line.call(DOUBLE, &4), Ok(8));
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Long([u64; 16]);

#[test]
fn values_of_another_length_are_refused() {
    each_kind(|_, client, manager| {
        let mut line = client.line(manager).unwrap();
        let refused = CallError::Failed(Errno::INVAL);
        for value in 0..MANY {
            match value % 50 {
                20 => assert_eq!(line.call::<u64, u32>(DOUBLE, &1), Err(refused)),
                30 => assert_eq!(line.call::<Long, u32>(DOUBLE, &Long([0; 16])), Err(refused)),
                // What is answered is another thing than what is asked for.
                35 => assert_eq!(
                    line.call::<u32, u16>(DOUBLE, &value),
                    Err(CallError::Failed(Errno::PROTO))
                ),
                40 => assert_eq!(
                    line.call::<u32, u64>(DOUBLE, &value),
                    Err(CallError::Failed(Errno::PROTO))
                ),
                _ => assert_eq!(line.call(DOUBLE, &value), Ok(2 * value)),
            }
            if value % 64 == 0 {
                assert_eq!(call(client, manager, DOUBLE, &[]), Err(refused));
            }
        }
    });
}

#[test]
fn a_function_sees_no_part_of_a_longer_value() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server.add_function(|_, value: [u64; 4]| Ok(value));
    serve(&server, object);
    let (client, manager) = client_of(&broker);
    let mut line = client.line(&manager).unwrap();
    let refused: Result<[u64; 4], _> = Err(CallError::Failed(Errno::INVAL));
    for number in 0..u64::from(MANY) {
        assert_eq!(line.call(0, &[number; 4]), Ok([number; 4]));
        if number % 70 == 69 {
            assert_eq!(line.call(0, &[number; 5]), refused);
        }
    }
    // After so many that are served at one go.
    (0..100_u64).for_each(|number| assert_eq!(line.call(0, &[number; 4]), Ok([number; 4])));
    assert_eq!(line.call(0, &[1_u64; 5]), refused);
    server.close();
}

#[test]
fn long_values_go_by_a_line_as_well() {
    let broker = Broker::start();
    let server = manage(&broker, |request| Ok(request.data().into()));
    let (client, manager) = client_of(&broker);
    let mut line = client.line(&manager).unwrap();
    for number in 0..u64::from(MANY) {
        let value = Long(std::array::from_fn(|index| number * index as u64));
        assert_eq!(line.call(0, &value), Ok(value));
        assert_eq!(line.call(0, &()), Ok(()));
    }
    server.close();
}

#[test]
fn a_line_outlives_a_change_of_priority() {
    each_kind(|_, client, manager| {
        let mut line = client.line(manager).unwrap();
        for value in 0..MANY {
            assert_eq!(line.call(DOUBLE, &value), Ok(2 * value));
            if value % 16 == 0 {
                priority_changed();
            }
        }
    });
}

#[test]
fn a_server_that_goes_fails_the_call_and_those_after_it() {
    each_kind(|stage, client, manager| {
        let mut line = client.line(manager).unwrap();
        (0..MANY).for_each(|value| assert_eq!(line.call(DOUBLE, &value), Ok(2 * value)));
        thread::scope(|scope| {
            scope.spawn(|| {
                stage.entered.lock().unwrap().recv().unwrap();
                stage.server.close();
            });
            assert_eq!(line.call::<u32, u32>(HOLD, &1), Err(CallError::Dead));
        });
        stage.leave.send(()).unwrap();
        assert_eq!(line.call::<u32, u32>(DOUBLE, &1), Err(CallError::Dead));
        drop(line);
        client.close();
        assert_eq!(client.line(manager).err(), Some(CallError::Failed(Errno::BADF)));
    });
}

#[test]
fn a_call_back_comes_to_the_thread_that_waits_for_its_line() {
    let broker = Broker::start();
    let callback = Mutex::new(None);
    let server = manage(&broker, move |request| {
        let mut callback = callback.lock().unwrap();
        if let Some(handle) = request.received.handle(0) {
            *callback = Some(handle);
            return Ok(Parcel::new());
        }
        let (serving, failed) = (request.received.process(), |_| Errno::IO);
        let mut line = serving.line(callback.as_ref().unwrap()).map_err(failed)?;
        let value: u32 = bytemuck::pod_read_unaligned(request.data());
        let answer: u32 = line.call(7, &value).map_err(failed)?;
        Ok(answer.to_ne_bytes()[..].into())
    });
    let (client, manager) = client_of(&broker);
    let ours = thread::current().id();
    let object = client.add_function(move |_, value: u32| {
        // Nobody else serves in the client.
        assert_eq!(thread::current().id(), ours);
        Ok(value + 1)
    });
    let mut parcel = Parcel::new();
    parcel.write_object(object);
    client.call(&manager, 0, &parcel).unwrap();
    let mut line = client.line(&manager).unwrap();
    (0..MANY).for_each(|value| assert_eq!(line.call(0, &value), Ok(value + 1)));
    server.close();
}

#[test]
fn a_line_to_another_processs_handle_is_refused() {
    let stage = stage(function);
    let [(_, manager), (other, _)] = [(); 2].map(|()| client_of(&stage.broker));
    assert_eq!(other.line(&manager).err(), Some(CallError::Failed(Errno::INVAL)));
}
