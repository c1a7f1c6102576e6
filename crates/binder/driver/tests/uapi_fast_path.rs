//! The fast path behind the ioctl interface. A program sees the same bytes as on the general path.
//! An event between two ioctls of a looper finds its transaction in the state.
#[path = "support/program.rs"]
mod program;
mod support;

use baton_abi::control::ProcessReport;
use baton_abi::uapi::*;
use baton_driver::observer::Observer;
use bytemuck::{bytes_of, pod_read_unaligned};
use program::{Commands, Message, Program, Returned};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::sync::mpsc;
use std::thread;
use support::Broker;

/// Calls after which both threads use the fast path.
const WARM_UP: u32 = 4;
const PTR: u64 = 0x1000;
/// Time after which something that is to happen has not.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

fn none() -> Commands {
    Commands::default()
}

struct Stage {
    broker: Broker,
    server: Program,
    client: Program,
}

/// A context manager without a serving thread yet, and a client.
fn stage(server_bytes: usize) -> Stage {
    let broker = Broker::start();
    let server = Program::open_with(&broker.socket, server_bytes);
    server.become_manager();
    let client = Program::open(&broker.socket);
    Stage { broker, server, client }
}

/// The client frees each of these answers with its next call.
fn call_often(client: &Program, calls: u32) {
    let mut commands = none();
    for number in 0..calls {
        let reply = client.await_message(commands.call(0, &number.to_ne_bytes()));
        assert_eq!(reply.data, number.to_ne_bytes());
        commands = none().free(&reply);
    }
    client.exchange_in(&commands, &mut []).unwrap();
}

/// Echoes so many calls, and returns the call after them, unanswered.
fn serve_often(server: &Program, calls: u32) -> Message {
    let mut request = server.await_message(none().put(BC_ENTER_LOOPER, &[]));
    for _ in 0..calls {
        let data = request.data.clone();
        request = server.await_message(none().free(&request).reply(&data));
    }
    request
}

/// Starts the client's next call, which `server` holds, and returns the thread that waits for it.
fn held_call(stage: &Stage) -> thread::JoinHandle<Returned> {
    let client = stage.client.clone();
    thread::spawn(move || {
        call_often(&client, WARM_UP);
        client.exchange(none().call(0, b"held")).unwrap()
    })
}

fn reports(stage: &Stage) -> Vec<ProcessReport> {
    let contexts = Observer::connect(&stage.broker.socket).unwrap().report().unwrap().contexts;
    contexts.into_iter().flat_map(|context| context.processes).collect()
}

/// The path of a transcript's calls.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Fast,
    General,
}

/// When a server frees the calls of the script.
#[derive(Clone, Copy)]
enum Habit {
    BeforeTheReply,
    AfterTheReply,
    WithMore,
}

/// All bytes that both threads read.
fn transcript(way: Way, habit: Habit, sizes: &[usize]) -> [Vec<Vec<u8>>; 2] {
    let stage = stage(program::RECEIVE_BYTES);
    if way == Way::General {
        // A process that polls takes no fast path, and neither do its callers.
        stage.server.device.readable().unwrap();
        stage.client.device.readable().unwrap();
    }
    stage.server.device.ioctl(BINDER_SET_MAX_THREADS, &1u32 as *const u32 as usize, false).unwrap();
    let (server, calls) = (stage.server.clone(), sizes.len());
    let serving = thread::spawn(move || serve_script(&server, habit, calls));
    let calling = call_script(&stage.client, sizes);
    [serving.join().unwrap(), calling]
}

fn serve_script(server: &Program, habit: Habit, calls: usize) -> Vec<Vec<u8>> {
    // A thread's first ioctl does not wait.
    server.exchange_in(&none().put(BC_ENTER_LOOPER, &[]), &mut []).unwrap();
    let mut given = Vec::new();
    let mut exchange = |commands| {
        let returned: Returned = server.exchange(commands).unwrap();
        given.push(match habit {
            Habit::BeforeTheReply => returned.bytes.clone(),
            // The next call may come in before its room is free.
            Habit::AfterTheReply | Habit::WithMore => returned.without_addresses(),
        });
        returned
    };
    let mut next = none();
    for number in 0..calls {
        let mut returned = exchange(next);
        while returned.messages.is_empty() {
            returned = exchange(none());
        }
        let request = returned.messages.remove(0);
        let flags = [0, 8, TF_CLEAR_BUF][number % 3];
        let reply = none().send(BC_REPLY, 0, flags, &request.data);
        next = match habit {
            Habit::BeforeTheReply => {
                exchange(none().free(&request).send(BC_REPLY, 0, flags, &request.data));
                none()
            }
            Habit::AfterTheReply => {
                exchange(reply);
                none().free(&request)
            }
            Habit::WithMore => {
                exchange(reply);
                none().free(&request).put(BC_DEAD_BINDER_DONE, &[0; 8])
            }
        };
    }
    given
}

fn call_script(client: &Program, sizes: &[usize]) -> Vec<Vec<u8>> {
    client.exchange_in(&none(), &mut []).unwrap();
    let (mut given, mut next) = (Vec::new(), none());
    for (number, &bytes) in sizes.iter().enumerate() {
        let data: Vec<u8> = (0..bytes).map(|at| (at + number) as u8).collect();
        let flags = [0, TF_ACCEPT_FDS, TF_CLEAR_BUF][number % 3];
        let returned = client.exchange(next.send(BC_TRANSACTION, 0, flags, &data)).unwrap();
        given.push(returned.bytes.clone());
        assert_eq!(returned.messages[0].data, data, "call {number}");
        let mut error = [0u8; size_of::<ExtendedError>()];
        client.device.ioctl(BINDER_GET_EXTENDED_ERROR, error.as_mut_ptr() as usize, false).unwrap();
        given.push(error.to_vec());
        next = none().free(&returned.messages[0]);
    }
    given
}

#[test]
fn both_paths_give_the_same_bytes() {
    let sizes = [4, 4, 4, 0, 8, 31, 33, 128, 129, 4096, 65536, 65537, 4, 4, 4, 100_000, 0, 4];
    for habit in [Habit::BeforeTheReply, Habit::AfterTheReply, Habit::WithMore] {
        let [fast, general] = [Way::Fast, Way::General].map(|way| transcript(way, habit, &sizes));
        for (number, both) in fast.iter().flatten().zip(general.iter().flatten()).enumerate() {
            assert_eq!(both.0, both.1, "exchange {number}");
        }
        assert_eq!(fast.map(|given| given.len()), general.map(|given| given.len()));
    }
}

/// Nodes that the server and the client send again and again.
const OF_SERVER: u64 = 0x2000;
const OF_CLIENT: u64 = 0x3000;

fn object(kind: u32, binder: u64) -> FlatObject {
    FlatObject {
        kind,
        flags: 0x100,
        binder,
        cookie: if kind == BINDER_TYPE_HANDLE { 0 } else { 9 },
    }
}

/// Data of these objects, and their offsets.
fn laid_out(objects: &[FlatObject]) -> (Vec<u8>, Vec<u64>) {
    let data = objects.iter().flat_map(bytes_of).copied().collect();
    (data, (0..objects.len()).map(|index| (index * size_of::<FlatObject>()) as u64).collect())
}

/// The acknowledgements that these returns ask for.
fn acknowledged(returned: &Returned) -> Commands {
    program::returns(&returned.bytes).fold(none(), |commands, (command, payload)| match command {
        BR_INCREFS => commands.put(BC_INCREFS_DONE, payload),
        BR_ACQUIRE => commands.put(BC_ACQUIRE_DONE, payload),
        _ => commands,
    })
}

/// The objects that have come.
fn objects_in(message: &Message) -> Vec<FlatObject> {
    message.data.chunks_exact(size_of::<FlatObject>()).map(pod_read_unaligned).collect()
}

/// The handles that have come.
fn handles_in(message: &Message) -> impl Iterator<Item = u32> + use<> {
    let all = objects_in(message).into_iter();
    all.filter(|object| object.kind == BINDER_TYPE_HANDLE).map(|object| object.binder as u32)
}

/// Keeps the handles that have come: the time at which an owner hears of a release is nobody's.
fn take_handles(commands: Commands, message: &Message) -> Commands {
    handles_in(message).fold(commands, |commands, handle| {
        let handle = handle.to_ne_bytes();
        commands.put(BC_INCREFS, &handle).put(BC_ACQUIRE, &handle)
    })
}

/// All that both threads read of calls and replies that carry objects.
fn object_transcript(way: Way) -> [Vec<Vec<u8>>; 2] {
    const CALLS: u64 = 32;
    let stage = stage(program::RECEIVE_BYTES);
    if way == Way::General {
        stage.server.device.readable().unwrap();
        stage.client.device.readable().unwrap();
    }
    let server = stage.server.clone();
    let serving = thread::spawn(move || serve_objects(&server, CALLS));
    let calling = call_with_objects(&stage.client, CALLS);
    [serving.join().unwrap(), calling]
}

fn serve_objects(server: &Program, calls: u64) -> Vec<Vec<u8>> {
    server.exchange_in(&none().put(BC_ENTER_LOOPER, &[]), &mut []).unwrap();
    let (mut given, mut next) = (Vec::new(), none());
    for number in 0..calls {
        let mut returned = server.exchange(next).unwrap();
        while returned.messages.is_empty() {
            returned = server.exchange(acknowledged(&returned)).unwrap();
        }
        let request = returned.messages.remove(0);
        given.push(request.data.clone());
        let mut commands = acknowledged(&returned);
        commands = take_handles(commands, &request).free(&request);
        if let Some(handle) = handles_in(&request).next() {
            let handle = handle.to_ne_bytes();
            commands = commands.put(BC_ACQUIRE, &handle).put(BC_RELEASE, &handle);
        }
        let replied = if number % 2 == 0 { OF_SERVER } else { OF_SERVER + number * 0x10 };
        let all = [object(BINDER_TYPE_BINDER, replied), object(BINDER_TYPE_BINDER, OF_SERVER)];
        let (data, offsets) = laid_out(&all[..(number % 3) as usize]);
        let sent = commands.send_objects(BC_REPLY, 0, 0, &data, &offsets);
        let returned = server.exchange(sent).unwrap();
        given.push(returned.without_addresses());
        next = acknowledged(&returned);
    }
    given
}

fn call_with_objects(client: &Program, calls: u64) -> Vec<Vec<u8>> {
    client.exchange_in(&none(), &mut []).unwrap();
    let (mut given, mut next, mut kept) = (Vec::new(), none(), None);
    for number in 0..calls {
        let own = object(BINDER_TYPE_BINDER, OF_CLIENT);
        let all = match (number % 4, kept) {
            (0, _) | (_, None) => vec![own],
            (1, _) => vec![object(BINDER_TYPE_BINDER, OF_CLIENT + number * 0x10)],
            (2, _) => vec![object(BINDER_TYPE_WEAK_BINDER, OF_CLIENT), own],
            (_, Some(handle)) => vec![own, object(BINDER_TYPE_HANDLE, handle)],
        };
        let (data, offsets) = laid_out(&all);
        let sent = next.send_objects(BC_TRANSACTION, 0, 0, &data, &offsets);
        let returned = client.exchange(sent).unwrap();
        let reply = &returned.messages[0];
        given.extend([returned.without_addresses(), reply.data.clone()]);
        kept = kept.or(handles_in(reply).next().map(u64::from));
        next = take_handles(acknowledged(&returned), reply).free(reply);
    }
    assert!(kept.is_some(), "handles have come");
    given
}

#[test]
fn both_paths_give_the_same_objects() {
    let [fast, general] = [Way::Fast, Way::General].map(object_transcript);
    for (end, (fast, general)) in fast.iter().zip(&general).enumerate() {
        for (number, both) in fast.iter().zip(general).enumerate() {
            assert_eq!(both.0, both.1, "end {end}, message {number}");
        }
        assert_eq!(fast.len(), general.len());
    }
}

/// Descriptors of a server's and a client's messages, as all that both threads read of them.
fn descriptor_transcript(way: Way) -> [Vec<Vec<u8>>; 2] {
    const CALLS: u64 = 32;
    let broker = Broker::start();
    let [server, client] = [(); 2].map(|()| Program::open(&broker.socket));
    let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS;
    let manager = FlatObject { kind: BINDER_TYPE_BINDER, flags, binder: 0, cookie: 0 };
    let manager = std::ptr::from_ref(&manager) as usize;
    server.device.ioctl(BINDER_SET_CONTEXT_MGR_EXT, manager, false).unwrap();
    if way == Way::General {
        server.device.readable().unwrap();
        client.device.readable().unwrap();
    }
    let serving = thread::spawn(move || serve_descriptors(&server, CALLS));
    let calling = call_with_descriptors(&client, CALLS);
    [serving.join().unwrap(), calling]
}

/// A message's data, with the files of its descriptors, which are closed, in place of their
/// numbers.
fn files_in(message: &Message) -> Vec<u8> {
    let mut data = message.data.clone();
    for object in data.chunks_exact_mut(size_of::<FlatObject>()) {
        let mut parts: FlatObject = pod_read_unaligned(object);
        if parts.kind == BINDER_TYPE_FD {
            // SAFETY: it has come with the message, for this program.
            let fd = unsafe { OwnedFd::from_raw_fd(parts.binder as i32) };
            parts.binder = rustix::fs::fstat(fd).unwrap().st_rdev;
            object.copy_from_slice(bytes_of(&parts));
        }
    }
    data
}

/// Two files, and numbers that are none.
fn files() -> ([std::fs::File; 2], [FlatObject; 4]) {
    let files = ["/dev/null", "/dev/zero"].map(|path| std::fs::File::open(path).unwrap());
    let numbers = [files[0].as_raw_fd(), files[1].as_raw_fd(), -1, 1 << 20];
    let object = |fd: i32| object(BINDER_TYPE_FD, u64::from(fd as u32));
    (files, numbers.map(object))
}

fn serve_descriptors(server: &Program, calls: u64) -> Vec<Vec<u8>> {
    let (_files, [null, zero, negative, unopened]) = files();
    server.exchange_in(&none().put(BC_ENTER_LOOPER, &[]), &mut []).unwrap();
    let (mut given, mut next) = (Vec::new(), none());
    for number in 0..calls {
        let mut returned = server.exchange(next).unwrap();
        while returned.messages.is_empty() {
            returned = server.exchange(acknowledged(&returned)).unwrap();
        }
        let request = returned.messages.remove(0);
        given.push(files_in(&request));
        let own = self::object(BINDER_TYPE_BINDER, OF_SERVER);
        let all = match number % 7 {
            0 | 1 => vec![],
            2 | 3 => vec![null],
            4 => vec![own, zero, null],
            5 => vec![own, unopened],
            _ => vec![negative],
        };
        let (data, offsets) = laid_out(&all);
        let freed = take_handles(acknowledged(&returned), &request).free(&request);
        let sent = freed.send_objects(BC_REPLY, 0, 0, &data, &offsets);
        let returned = server.exchange(sent).unwrap();
        given.push(returned.without_addresses());
        next = acknowledged(&returned);
    }
    given
}

fn call_with_descriptors(client: &Program, calls: u64) -> Vec<Vec<u8>> {
    let (_files, [null, zero, _, unopened]) = files();
    client.exchange_in(&none(), &mut []).unwrap();
    let (mut given, mut next, mut served) = (Vec::new(), none(), 0);
    for number in 0.. {
        if served == calls {
            break;
        }
        let own = object(BINDER_TYPE_BINDER, OF_CLIENT);
        let all = match number % 5 {
            0 => vec![null],
            1 => vec![own, zero, null],
            2 => vec![null; 9],
            3 => vec![own, unopened],
            _ => vec![],
        };
        let (data, offsets) = laid_out(&all);
        let flags = [0, TF_ACCEPT_FDS][(number % 3 != 0) as usize];
        let sent = next.send_objects(BC_TRANSACTION, 0, flags, &data, &offsets);
        let returned = client.exchange(sent).unwrap();
        given.push(returned.without_addresses());
        served += u64::from(number % 5 != 3);
        next = acknowledged(&returned);
        for reply in &returned.messages {
            given.push(files_in(reply));
            next = take_handles(next, reply).free(reply);
        }
    }
    given
}

/// Some of them are open, some calls and nodes accept none, and some messages have too many for the
/// fast path.
#[test]
fn both_paths_give_the_same_descriptors() {
    let [fast, general] = [Way::Fast, Way::General].map(descriptor_transcript);
    for (end, (fast, general)) in fast.iter().zip(&general).enumerate() {
        for (number, both) in fast.iter().zip(general).enumerate() {
            assert_eq!(both.0, both.1, "end {end}, message {number}");
        }
        assert_eq!(fast.len(), general.len());
    }
}

/// A call and a free on the general path, because the process has no room, and then again on the
/// fast path.
#[test]
fn no_room_is_reported_as_on_the_general_path() {
    let stage = stage(4096);
    let server = stage.server.clone();
    let serving = thread::spawn(move || {
        let mut kept = vec![serve_often(&server, WARM_UP)];
        for _ in 0..3 {
            kept.push(server.await_message(none().reply(b"kept")));
        }
        // The fifth kilobyte finds no room until this buffer is freed.
        let commands = kept.iter().fold(none(), |commands, message| commands.free(message));
        let last = server.await_message(commands.reply(b"kept"));
        server.exchange(none().free(&last).reply(&last.data)).unwrap();
    });
    call_often(&stage.client, WARM_UP);
    let kilobyte = [7; 1024];
    let mut commands = none();
    for _ in 0..4 {
        let reply = stage.client.await_message(commands.call(0, &kilobyte));
        commands = none().free(&reply);
    }
    let last = stage.client.await_message(commands.call(0, &kilobyte));
    assert_eq!(last.data, kilobyte);
    serving.join().unwrap();
}

/// The caller's buffer is full: its answer is lost, as on the general path.
#[test]
fn an_answer_without_room_is_a_failure() {
    let stage = stage(program::RECEIVE_BYTES);
    let client = Program::open_with(&stage.broker.socket, 4096);
    let server = stage.server.clone();
    let serving = thread::spawn(move || serve_often(&server, WARM_UP + 3));
    call_often(&client, WARM_UP);
    let kept: Vec<_> = (0..2).map(|_| client.await_message(none().call(0, &[1; 2048]))).collect();
    let refused = client.exchange(none().call(0, &[2; 2048])).unwrap();
    assert_eq!(refused.commands(), [BR_NOOP, BR_TRANSACTION_COMPLETE, BR_FAILED_REPLY]);
    let calling = client.clone();
    thread::spawn(move || calling.exchange(none().free(&kept[0]).call(0, b"room again")));
    assert_eq!(serving.join().unwrap().data, b"room again");
}

/// The open transactions of the stage's two ends, as each reports them.
fn outstanding(stage: &Stage) -> Vec<u32> {
    reports(stage).iter().map(|report| report.engine.outstanding).collect()
}

#[test]
fn a_looper_that_leaves_is_dead_to_its_caller() {
    let stage = stage(program::RECEIVE_BYTES);
    let caller = held_call(&stage);
    assert_eq!(serve_often(&stage.server, WARM_UP).data, b"held");
    stage.server.leave();
    let returned = caller.join().unwrap();
    assert_eq!(returned.commands(), [BR_NOOP, BR_TRANSACTION_COMPLETE, BR_DEAD_REPLY]);
}

/// As in the kernel, the end of a thread without BINDER_THREAD_EXIT is not reported; the end of its
/// process is.
#[test]
fn a_thread_that_ends_leaves_its_transaction_to_the_process() {
    let stage = stage(program::RECEIVE_BYTES);
    let caller = held_call(&stage);
    let server = stage.server.clone();
    thread::spawn(move || serve_often(&server, WARM_UP)).join().unwrap();
    assert_eq!(outstanding(&stage), [1, 1]);
    drop(stage.server);
    let returned = caller.join().unwrap();
    assert_eq!(returned.commands(), [BR_NOOP, BR_TRANSACTION_COMPLETE, BR_DEAD_REPLY]);
}

#[test]
fn a_transaction_between_two_ioctls_is_counted_at_both_ends() {
    let stage = stage(program::RECEIVE_BYTES);
    let caller = held_call(&stage);
    let request = serve_often(&stage.server, WARM_UP);
    assert_eq!(outstanding(&stage), [1, 1]);
    let pid = std::process::id();
    let freeze = FreezeInfo { pid, enable: 1, timeout_ms: 1 };
    let freezer = Program::open(&stage.broker.socket);
    let frozen = freezer.device.ioctl(BINDER_FREEZE, &raw const freeze as usize, false);
    assert_eq!(frozen, Err(rustix::io::Errno::AGAIN));
    stage.server.exchange(none().free(&request).reply(b"late")).unwrap();
    assert_eq!(caller.join().unwrap().messages[0].data, b"late");
    assert_eq!(outstanding(&stage), [0, 0, 0]);
}

/// A call of the server before it answers is nested: it comes to the waiting thread.
#[test]
fn a_call_back_comes_to_the_thread_that_waits() {
    let stage = stage(program::RECEIVE_BYTES);
    let client = stage.client.clone();
    let caller = thread::spawn(move || {
        let object = FlatObject { kind: BINDER_TYPE_BINDER, flags: 0x100, binder: PTR, cookie: 9 };
        let first = none().send_objects(BC_TRANSACTION, 0, 0, bytes_of(&object), &[0]);
        let reply = client.await_message(first);
        client.exchange_in(&none().free(&reply), &mut []).unwrap();
        call_often(&client, WARM_UP);
        let inner = client.exchange(none().call(0, b"outer")).unwrap();
        let inner_commands = inner.commands();
        let answered = none().free(&inner.messages[0]).reply(b"inner");
        // The outer answer comes with the inner reply's completion, or after it.
        let outer = client.await_message(answered);
        (inner_commands, inner.messages[0].transaction.target, outer.data)
    });
    let server = &stage.server;
    let first = server.await_message(none().put(BC_ENTER_LOOPER, &[]));
    let handle = pod_read_unaligned::<FlatObject>(&first.data).binder as u32;
    let keep = none().put(BC_ACQUIRE, &handle.to_ne_bytes()).free(&first);
    let mut request = server.await_message(keep.reply(b""));
    while request.data != b"outer" {
        let data = request.data.clone();
        request = server.await_message(none().free(&request).reply(&data));
    }
    let answer = server.await_message(none().call(handle.into(), b"call back"));
    assert_eq!(answer.data, b"inner");
    server.exchange(none().free(&request).free(&answer).reply(&answer.data)).unwrap();
    let (commands, target, reply) = caller.join().unwrap();
    assert_eq!(commands, [BR_NOOP, BR_TRANSACTION_COMPLETE, BR_TRANSACTION]);
    assert_eq!((target, &reply[..]), (PTR, &b"inner"[..]));
}

/// A looper may run other commands before its answer.
#[test]
fn commands_before_the_answer_leave_it_as_it_was() {
    let stage = stage(program::RECEIVE_BYTES);
    let (client, tell) = (stage.client.clone(), mpsc::channel());
    let caller = thread::spawn(move || {
        call_often(&client, WARM_UP);
        for _ in 0..3 {
            let reply = client.await_message(none().call(0, b"call"));
            tell.0.send(reply.data).unwrap();
        }
    });
    let server = &stage.server;
    let request = serve_often(server, WARM_UP);
    server.exchange_in(&none().put(BC_INCREFS, &[0; 4]), &mut []).unwrap_err();
    let mut version = 0u32;
    server.device.ioctl(BINDER_VERSION, &raw mut version as usize, false).unwrap();
    let request = server.await_message(none().free(&request).reply(b"one"));
    server.exchange_in(&none().free(&request), &mut []).unwrap();
    let request = server.await_message(none().reply(b"two"));
    server.exchange_in(&none().free(&request).reply(b"three"), &mut []).unwrap();
    assert_eq!(tell.1.iter().collect::<Vec<_>>(), [&b"one"[..], b"two", b"three"]);
    caller.join().unwrap();
    // The next read returns the result of the last command.
    let returned = server.exchange(none()).unwrap();
    assert_eq!(returned.commands(), [BR_NOOP, BR_TRANSACTION_COMPLETE]);
}

/// Releasing a handle ends its cached route.
#[test]
fn a_handle_that_was_released_is_not_called() {
    let stage = stage(program::RECEIVE_BYTES);
    let server = stage.server.clone();
    thread::spawn(move || {
        let object = FlatObject { kind: BINDER_TYPE_BINDER, flags: 0x100, binder: PTR, cookie: 9 };
        let request = server.await_message(none().put(BC_ENTER_LOOPER, &[]));
        let give = none().free(&request).send_objects(BC_REPLY, 0, 0, bytes_of(&object), &[0]);
        let mut request = server.await_message(give);
        loop {
            request = server.await_message(none().free(&request).reply(b"served"));
        }
    });
    let client = &stage.client;
    let given = client.await_message(none().call(0, b""));
    let handle = pod_read_unaligned::<FlatObject>(&given.data).binder;
    let mut keep = none().put(BC_ACQUIRE, &(handle as u32).to_ne_bytes()).free(&given);
    for _ in 0..WARM_UP {
        let reply = client.await_message(keep.call(handle, b"call"));
        assert_eq!(reply.data, b"served");
        keep = none().free(&reply);
    }
    let release = keep.put(BC_RELEASE, &(handle as u32).to_ne_bytes());
    let returned = client.exchange(release.call(handle, b"no more")).unwrap();
    assert_eq!(returned.commands(), [BR_NOOP, BR_FAILED_REPLY]);
}

/// A looper has a cached route of a handle. A call by that handle while it serves is nested all the
/// same.
#[test]
fn a_cached_route_does_not_make_a_nested_call_an_outermost_one() {
    let stage = stage(program::RECEIVE_BYTES);
    let client = stage.client.clone();
    let caller = thread::spawn(move || {
        let object = FlatObject { kind: BINDER_TYPE_BINDER, flags: 0x100, binder: PTR, cookie: 9 };
        let first = none().send_objects(BC_TRANSACTION, 0, 0, bytes_of(&object), &[0]);
        let reply = client.await_message(first);
        // The looper's own calls are served by this thread.
        let mut request = client.await_message(none().free(&reply).put(BC_ENTER_LOOPER, &[]));
        for _ in 1..WARM_UP {
            request = client.await_message(none().free(&request).reply(b"outermost"));
        }
        client.exchange_in(&none().free(&request).reply(b"outermost"), &mut []).unwrap();
        call_often(&client, WARM_UP);
        let inner = client.exchange(none().call(0, b"outer")).unwrap();
        let inner_commands = inner.commands();
        let outer = client.await_message(none().free(&inner.messages[0]).reply(b"inner"));
        (inner_commands, outer.data)
    });
    let server = &stage.server;
    let first = server.await_message(none().put(BC_ENTER_LOOPER, &[]));
    let handle = pod_read_unaligned::<FlatObject>(&first.data).binder as u32;
    let keep = none().put(BC_ACQUIRE, &handle.to_ne_bytes()).free(&first);
    server.exchange_in(&keep.reply(b""), &mut []).unwrap();
    for _ in 0..WARM_UP {
        let answer = server.await_message(none().call(handle.into(), b"call"));
        server.exchange_in(&none().free(&answer), &mut []).unwrap();
    }
    let mut request = server.await_message(none());
    while request.data != b"outer" {
        let data = request.data.clone();
        request = server.await_message(none().free(&request).reply(&data));
    }
    let answer = server.await_message(none().call(handle.into(), b"call back"));
    assert_eq!(answer.data, b"inner");
    server.exchange(none().free(&request).free(&answer).reply(&answer.data)).unwrap();
    let (commands, reply) = caller.join().unwrap();
    assert_eq!(commands, [BR_NOOP, BR_TRANSACTION_COMPLETE, BR_TRANSACTION]);
    assert_eq!(reply, b"inner");
}

/// A looper that has answered owes nothing: another answer is an error, and nobody's.
#[test]
fn an_answer_to_nothing_is_refused() {
    let stage = stage(program::RECEIVE_BYTES);
    let client = stage.client.clone();
    let caller = thread::spawn(move || call_often(&client, WARM_UP + 2));
    let request = serve_often(&stage.server, WARM_UP);
    let data = request.data.clone();
    stage.server.exchange_in(&none().free(&request).reply(&data), &mut []).unwrap();
    let mut refused = stage.server.exchange(none().reply(b"to nothing")).unwrap().commands();
    refused.retain(|command| !matches!(*command, BR_NOOP | BR_TRANSACTION_COMPLETE));
    assert_eq!(refused, [BR_FAILED_REPLY]);
    let request = stage.server.await_message(none());
    let data = request.data.clone();
    let told = stage.server.exchange(none().free(&request).reply(&data)).unwrap();
    assert_eq!(told.commands(), [BR_NOOP, BR_TRANSACTION_COMPLETE]);
    let refused = stage.server.exchange(none().reply(b"to nothing")).unwrap();
    assert_eq!(refused.commands(), [BR_NOOP, BR_FAILED_REPLY]);
    caller.join().unwrap();
}

#[test]
fn an_answer_may_be_longer_than_its_call() {
    let stage = stage(program::RECEIVE_BYTES);
    let caller = held_call(&stage);
    let request = serve_often(&stage.server, WARM_UP);
    let long = vec![7; 100_000];
    stage.server.exchange(none().free(&request).reply(&long)).unwrap();
    assert_eq!(caller.join().unwrap().messages[0].data, long);
}

/// Another thread begins to poll between the looper's two ioctls: its transaction is the state's.
#[test]
fn a_transaction_that_is_taken_over_between_two_ioctls_is_answered_once() {
    let stage = stage(program::RECEIVE_BYTES);
    let caller = held_call(&stage);
    let request = serve_often(&stage.server, WARM_UP);
    thread::scope(|scope| {
        scope.spawn(|| stage.server.device.readable().map(drop).unwrap());
    });
    stage.server.exchange(none().free(&request).reply(b"late")).unwrap();
    assert_eq!(caller.join().unwrap().messages[0].data, b"late");
    assert_eq!(outstanding(&stage), [0, 0]);
}

/// Its answer comes by the fast path, and nobody in its process sleeps on the lane.
#[test]
fn a_caller_that_polls_is_told_of_its_answer() {
    let stage = stage(program::RECEIVE_BYTES);
    let (server, (polls, is_polling)) = (stage.server.clone(), mpsc::channel());
    let serving = thread::spawn(move || {
        let request = serve_often(&server, WARM_UP);
        is_polling.recv().unwrap();
        server.exchange(none().free(&request).reply(b"told")).unwrap();
    });
    let client = &stage.client;
    call_often(client, WARM_UP);
    client.exchange_in(&none().call(0, b"held"), &mut []).unwrap();
    let readable = client.device.readable().unwrap();
    polls.send(()).unwrap();
    let mut polled = [PollFd::new(&readable, PollFlags::IN)];
    assert_eq!(poll(&mut polled, Some(&PATIENCE)), Ok(1));
    assert_eq!(client.await_message(none()).data, b"told");
    serving.join().unwrap();
}

/// As the end of any process, its end drops what its thread has.
#[test]
fn a_child_of_fork_that_ends_leaves_its_parents_transaction_alone() {
    let stage = stage(program::RECEIVE_BYTES);
    let caller = held_call(&stage);
    let request = serve_often(&stage.server, WARM_UP);
    // SAFETY: the child ends, after a while in any case. What it runs meanwhile is what this test
    // is about.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(PATIENCE.tv_sec as u32);
            libc::exit(0);
        }
        Pid::from_raw(child).unwrap()
    };
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
    stage.server.exchange(none().free(&request).reply(b"served")).unwrap();
    assert_eq!(caller.join().unwrap().messages[0].data, b"served");
}
