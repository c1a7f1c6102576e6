//! Memory that callers grant, within a kernel and between two kernels.

use baton_nucleus::each_kernel;
use baton_nucleus::request::Request;
use baton_nucleus::variant::{StrictPlus, Variant};
use baton_nucleus::{
    Cause, Cluster, CurrentThread, Grant, GrantError, Ipc, Kernel, Message, Options, Sender,
    Source, ThreadId, Timeout,
};
use std::sync::mpsc::sync_channel;

/// More than one chunk of 4 KiB, and no multiple of it.
const BYTES: usize = 10_000;
const READ: u64 = 1;
const WRITE: u64 = 2;

fn options() -> Options {
    Options { tick: None, n_threads: 8, ..Options::default() }
}

fn byte(index: usize) -> u8 {
    (index * 7 % 251) as u8
}

/// Doubles granted bytes that it may read, or fills those that it may write, until an empty message
/// comes.
fn serve(mut here: CurrentThread) {
    let mut bytes = vec![0; BYTES];
    let (mut sender, mut message) = here.receive(Source::Any, Timeout::Never).unwrap();
    while message.tag.length() > 0 {
        let Sender::Thread(client) = sender else { panic!("{sender:?}") };
        match message.words[0] {
            READ => {
                assert_eq!(here.copy_from(client, 0, &mut bytes), Ok(()));
                assert!(bytes.iter().enumerate().all(|(index, it)| *it == byte(index)));
                assert_eq!(here.copy_from(client, BYTES - 1, &mut [0]), Ok(()));
                refuses(
                    &mut here,
                    client,
                    Err(GrantError::OutOfBounds),
                    Err(GrantError::NotGranted),
                );
            }
            WRITE => {
                bytes.iter_mut().enumerate().for_each(|(index, it)| *it = byte(index));
                assert_eq!(here.copy_to(client, 0, &bytes), Ok(()));
                refuses(
                    &mut here,
                    client,
                    Err(GrantError::NotGranted),
                    Err(GrantError::OutOfBounds),
                );
            }
            _ => {
                refuses(&mut here, client, Err(GrantError::NotGranted), Err(GrantError::NotGranted))
            }
        }
        here.send(client, Timeout::Zero, &message).unwrap();
        // The client may have called again, but this thread has not received that call.
        refuses(&mut here, client, Err(GrantError::NotGranted), Err(GrantError::NotGranted));
        (sender, message) = here.receive(Source::Any, Timeout::Never).unwrap();
    }
}

type Copied = Result<(), GrantError>;

fn refuses(here: &mut CurrentThread, client: ThreadId, read: Copied, write: Copied) {
    let mut bytes = vec![1; BYTES + 1];
    assert_eq!(here.copy_from(client, 0, &mut bytes), read);
    assert!(bytes.iter().all(|byte| *byte == 1), "nothing was copied");
    assert_eq!(here.copy_to(client, 0, &bytes), write);
    assert_eq!(here.copy_to(client, usize::MAX, &bytes), write);
}

fn call(mut here: CurrentThread, server: ThreadId) {
    let mut bytes: Vec<u8> = (0..BYTES).map(byte).collect();
    here.call_granting(server, &Grant::read(&bytes), &mut Message::of([READ])).unwrap();
    bytes.fill(0);
    here.call_granting(server, &Grant::write(&mut bytes), &mut Message::of([WRITE])).unwrap();
    assert!(bytes.iter().enumerate().all(|(index, it)| *it == byte(index)));
    here.call(server, &mut Message::of([0])).unwrap();
    here.send(server, Timeout::Never, &Message::default()).unwrap();
}

#[test]
fn a_server_reaches_what_its_caller_grants() {
    fn in_kernel<K: Variant>() {
        let mut kernel = Kernel::<K>::new(options()).unwrap();
        let server = kernel.spawn(5, serve).unwrap();
        kernel.spawn(5, move |here| call(here, server)).unwrap();
        let summary = kernel.run();
        assert_eq!((summary.failures, summary.n_left), (vec![], 0), "{}", K::NAME);
    }
    each_kernel!(K => in_kernel::<K>());
}

#[test]
fn a_server_reaches_what_a_caller_of_another_kernel_grants() {
    fn in_kernel<K: Variant>() {
        let mut memberships = Cluster::memberships(2, 4).unwrap();
        let (tell, told) = sync_channel(1);
        let theirs = memberships.remove(1);
        let other = std::thread::spawn(move || {
            let mut kernel = Kernel::<K>::join(theirs, options()).unwrap();
            tell.send(kernel.spawn(5, serve).unwrap()).unwrap();
            kernel.run()
        });
        let mut kernel = Kernel::<K>::join(memberships.remove(0), options()).unwrap();
        let server = told.recv().unwrap();
        kernel.spawn(5, move |here| call(here, server)).unwrap();
        for summary in [kernel.run(), other.join().unwrap()] {
            assert_eq!((summary.failures, summary.n_left), (vec![], 0), "{}", K::NAME);
        }
    }
    each_kernel!(K => in_kernel::<K>());
}

#[test]
fn a_grant_ends_when_its_call_is_aborted() {
    fn in_kernel<K: Variant>() {
        let mut kernel = Kernel::<K>::new(options()).unwrap();
        let server = |mut here: CurrentThread| {
            let (sender, _) = here.receive(Source::Any, Timeout::Never).unwrap();
            let Sender::Thread(client) = sender else { panic!("{sender:?}") };
            let mut word = [0; 2];
            assert_eq!(here.copy_from(client, 0, &mut word), Ok(()));
            assert_eq!(here.request(Request::Abort(client)), Request::Done);
            assert_eq!(here.copy_from(client, 0, &mut word), Err(GrantError::NotGranted));
        };
        let server = kernel.spawn(5, server).unwrap();
        let client = move |mut here: CurrentThread| {
            let error = here.call_granting(server, &Grant::read(&[1, 2]), &mut Message::of([1]));
            assert_eq!(error.unwrap_err().cause, Cause::Aborted);
        };
        kernel.spawn(5, client).unwrap();
        assert_eq!(kernel.run().failures, [], "{}", K::NAME);
    }
    each_kernel!(K => in_kernel::<K>());
}

/// A caller gives up again and again while a server of another kernel writes. After each wait its
/// memory does not change any more.
#[test]
fn memory_is_its_owners_again_when_its_wait_is_over() {
    const ROUNDS: u64 = 2000;
    let mut memberships = Cluster::memberships(2, 4).unwrap();
    let (tell, told) = sync_channel(1);
    let theirs = memberships.remove(1);
    let other = std::thread::spawn(move || {
        let mut kernel = Kernel::<StrictPlus>::join(theirs, options()).unwrap();
        let server = |mut here: CurrentThread| {
            let ones = [1; 4096];
            loop {
                let (sender, message) = here.receive(Source::Any, Timeout::Never).unwrap();
                let Sender::Thread(client) = sender else { panic!("{sender:?}") };
                if message.tag.length() == 0 {
                    return;
                }
                while here.copy_to(client, 0, &ones).is_ok() {}
            }
        };
        tell.send(kernel.spawn(5, server).unwrap()).unwrap();
        kernel.run()
    });
    let mut kernel = Kernel::<StrictPlus>::join(memberships.remove(0), options()).unwrap();
    let server = told.recv().unwrap();
    let client = move |mut here: CurrentThread| {
        let mut bytes = [0; 4096];
        for round in 0..ROUNDS {
            let until = Timeout::At(here.now_ns() + 20_000 + round * 7 % 5000);
            let ipc = Ipc {
                send: Some((server, Timeout::Never)),
                receive: Some((Source::Thread(server), until)),
            };
            let grant = Grant::write(&mut bytes);
            let error = here.ipc_granting(ipc, &grant, &mut Message::of([1])).unwrap_err();
            assert_eq!(error.cause, Cause::Timeout);
            bytes.fill(2);
            for _ in 0..10 {
                assert!(std::hint::black_box(&bytes).iter().all(|byte| *byte == 2));
            }
        }
        here.send(server, Timeout::Never, &Message::default()).unwrap();
    };
    kernel.spawn(5, client).unwrap();
    for summary in [kernel.run(), other.join().unwrap()] {
        assert_eq!((summary.failures, summary.n_left), (vec![], 0));
    }
}
