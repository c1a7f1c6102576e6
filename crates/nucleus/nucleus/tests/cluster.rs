//! Kernels of one process on an OS thread each, whose threads send to each other.

use baton_nucleus::each_kernel;
use baton_nucleus::request::Request;
use baton_nucleus::variant::{StrictPlus, Variant};
use baton_nucleus::{
    Cause, Cluster, CurrentThread, Failure, IpcError, Kernel, Membership, Message, Options, Phase,
    Sender, Source, Tag, ThreadId, Timeout,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

const N_THREADS: usize = 8;

fn two() -> [Membership; 2] {
    Cluster::memberships(2, N_THREADS).unwrap().try_into().unwrap()
}

fn kernel<K: Variant>(membership: Membership) -> Box<Kernel<K>> {
    Kernel::join(membership, Options { tick: None, ..Options::default() }).unwrap()
}

/// Runs a kernel on an OS thread of its own, with the threads that `add_threads` makes.
fn start<K: Variant>(
    membership: Membership,
    add_threads: impl FnOnce(&mut Kernel<K>) + Send + 'static,
) -> JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut kernel = kernel::<K>(membership);
        add_threads(&mut kernel);
        let summary = kernel.run();
        assert_eq!(summary.failures, [], "{}", K::NAME);
        summary.n_left
    })
}

/// A channel for ids of threads, between kernels that have to know each other's threads.
fn names() -> (SyncSender<ThreadId>, Receiver<ThreadId>) {
    sync_channel(64)
}

/// Answers with each word plus one, until an empty message comes.
fn serve(mut here: CurrentThread) {
    let (mut sender, mut message) = here.receive(Source::Any, Timeout::Never).unwrap();
    while message.tag.length() > 0 {
        let Sender::Thread(client) = sender else { panic!("{sender:?}") };
        message.words = message.words.map(|word| word.wrapping_add(1));
        for word in here.more_words() {
            *word += 1;
        }
        sender = here.reply_and_wait(client, &mut message).unwrap();
    }
}

fn call(here: &mut CurrentThread, server: ThreadId, n_calls: u64) {
    let own = u64::from(here.id().raw());
    for call in 0..n_calls {
        let mut message = Message::of([own, call, 2, 3, 4, 5, 6, 7]);
        message.tag = Tag::new(call as u32, if call % 5 == 0 { 64 } else { 8 });
        here.more_words().fill(own + call);
        here.call(server, &mut message).unwrap();
        assert_eq!(message.words, [own + 1, call + 1, 3, 4, 5, 6, 7, 8]);
        assert_eq!(message.tag.label(), call as u32);
        if call % 5 == 0 {
            assert_eq!(here.more_words(), &[own + call + 1; 56]);
        }
    }
}

fn calls_are_answered_between<K: Variant, L: Variant>() {
    let [here, there] = two();
    let (tell, told) = names();
    let servers = start::<K>(here, move |kernel| {
        tell.send(kernel.spawn(5, serve).unwrap()).unwrap();
    });
    let clients = start::<L>(there, move |kernel| {
        let server = told.recv().unwrap();
        assert_ne!(server.kernel(), 1);
        for priority in [4, 5, 6] {
            kernel.spawn(priority, move |mut here| call(&mut here, server, 200)).unwrap();
        }
        kernel.spawn(7, serve).unwrap();
    });
    assert_eq!((servers.join().unwrap(), clients.join().unwrap()), (1, 1), "{}", K::NAME);
}

#[test]
fn calls_are_answered() {
    each_kernel!(K => {
        calls_are_answered_between::<K, K>();
        calls_are_answered_between::<K, StrictPlus>();
    });
}

/// Every thread of each kernel calls a thread of the next kernel.
#[test]
fn kernels_in_a_ring_call_each_other() {
    fn in_kernel<K: Variant>() {
        let memberships = Cluster::memberships(3, N_THREADS).unwrap();
        let (tells, mut tolds): (Vec<_>, Vec<_>) = memberships.iter().map(|_| names()).unzip();
        tolds.rotate_left(1);
        let places = memberships.into_iter().zip(tells).zip(tolds);
        let handles: Vec<_> = places
            .map(|((membership, tell), told)| {
                start::<K>(membership, move |kernel| {
                    tell.send(kernel.spawn(9, serve).unwrap()).unwrap();
                    let server = told.recv().unwrap();
                    for priority in 3..6 {
                        kernel
                            .spawn(priority, move |mut here| call(&mut here, server, 100))
                            .unwrap();
                    }
                })
            })
            .collect();
        for handle in handles {
            assert_eq!(handle.join().unwrap(), 1, "{}", K::NAME);
        }
    }
    each_kernel!(K => in_kernel::<K>());
}

fn cause(result: Result<impl Sized, IpcError>) -> (Phase, Cause) {
    let Err(IpcError { phase, cause }) = result else { panic!("it was to fail") };
    (phase, cause)
}

/// The errors of a thread that waits for a thread of a kernel that never reads its inbox.
#[test]
fn waits_end_in_time_whatever_the_other_kernel_does() {
    fn in_kernel<K: Variant>() {
        let [here, there] = two();
        let (tell, told) = names();
        let (stop, stopped) = names();
        let deaf = start::<K>(here, move |kernel| {
            let id = kernel.spawn(5, move |_| assert!(stopped.recv().is_ok())).unwrap();
            tell.send(id).unwrap();
        });
        let waiting = start::<K>(there, move |kernel| {
            let other = told.recv().unwrap();
            let body = move |mut here: CurrentThread| {
                let soon = |here: &CurrentThread| Timeout::At(here.now_ns() + 200_000);
                let message = Message::of([1]);
                let timeout = soon(&here);
                let sent = here.send(other, timeout, &message);
                assert_eq!(cause(sent), (Phase::Send, Cause::Timeout));
                let timeout = soon(&here);
                let received = here.receive(Source::Thread(other), timeout);
                assert_eq!(cause(received), (Phase::Receive, Cause::Timeout));
                let received = here.receive(Source::Thread(other), Timeout::Zero);
                assert_eq!(cause(received), (Phase::Receive, Cause::Timeout));
                // A third thread aborts the wait, which has no timeout.
                let me = here.id();
                here.spawn(1, move |mut here| {
                    assert_eq!(here.request(Request::Abort(me)), Request::Done);
                })
                .unwrap();
                assert_eq!(
                    cause(here.call(other, &mut Message::of([2]))),
                    (Phase::Send, Cause::Aborted)
                );
                stop.send(me).unwrap();
                // The partner ends without having received.
                assert!(is_end(cause(here.call(other, &mut Message::of([3]))).1));
                assert_eq!(cause(here.call(other, &mut Message::of([4]))).1, Cause::NoPartner);
            };
            kernel.spawn(5, body).unwrap();
        });
        assert_eq!((deaf.join().unwrap(), waiting.join().unwrap()), (0, 0), "{}", K::NAME);
    }
    each_kernel!(K => in_kernel::<K>());
}

/// Whether the partner ended during the wait, or before the message was sent.
fn is_end(cause: Cause) -> bool {
    matches!(cause, Cause::Ended | Cause::NoPartner)
}

/// A server answers once and then fails. One client waits for its answer, and others wait for their
/// turn.
#[test]
fn partners_of_a_thread_that_fails_are_told_in_all_kernels() {
    fn in_kernel<K: Variant>(fail: fn(), expected: fn(&Failure) -> bool) {
        let [here, there] = two();
        let (tell, told) = names();
        let failing = std::thread::spawn(move || {
            let mut kernel = kernel::<K>(here);
            let body = move |mut here: CurrentThread| {
                for _ in 0..2 {
                    here.receive(Source::Any, Timeout::Never).unwrap();
                }
                fail();
            };
            tell.send(kernel.spawn(5, body).unwrap()).unwrap();
            let failures = kernel.run().failures;
            assert!(matches!(&failures[..], [(_, failure)] if expected(failure)), "{failures:?}");
        });
        let clients = start::<K>(there, move |kernel| {
            let server = told.recv().unwrap();
            for priority in 1..5 {
                let body = move |mut here: CurrentThread| {
                    let (_, cause) = cause(here.call(server, &mut Message::of([1])));
                    assert!(is_end(cause), "{cause}");
                };
                kernel.spawn(priority, body).unwrap();
            }
        });
        failing.join().unwrap();
        assert_eq!(clients.join().unwrap(), 0, "{}", K::NAME);
    }
    fn recurse(depth: u64) -> u64 {
        let block = std::hint::black_box([depth; 64]);
        if depth == 0 { block[1] } else { recurse(depth - 1) + block[depth as usize % 64] }
    }
    each_kernel!(K => {
        in_kernel::<K>(
            || std::panic::resume_unwind(Box::new("enough")),
            |failure| *failure == Failure::Panic("enough".into()),
        );
        in_kernel::<K>(
            || { std::hint::black_box(recurse(1 << 30)); },
            |failure| *failure == Failure::StackOverflow,
        );
    });
}

/// The threads of a dropped kernel end, wherever they wait.
#[test]
fn partners_in_a_kernel_that_goes_are_told() {
    let [here, there] = two();
    let (tell, told) = names();
    let client = start::<StrictPlus>(there, move |kernel| {
        let server = told.recv().unwrap();
        let body = move |mut here: CurrentThread| {
            let (_, cause) = cause(here.call(server, &mut Message::of([1])));
            assert!(is_end(cause), "{cause}");
        };
        kernel.spawn(1, body).unwrap();
    });
    let mut kernel = kernel::<StrictPlus>(here);
    tell.send(kernel.spawn(5, serve).unwrap()).unwrap();
    drop(kernel);
    assert_eq!(client.join().unwrap(), 0);
}

#[test]
fn notices_reach_threads_of_other_kernels() {
    fn in_kernel<K: Variant>() {
        let [here, there] = two();
        let (tell, told) = names();
        const ALL: u64 = 1 << 63 | 1 << 32 | 1 << 31 | 1;
        let target = start::<K>(here, move |kernel| {
            let body = |mut here: CurrentThread| {
                here.request(Request::AcceptNotices(ALL));
                let mut seen = 0;
                while seen != ALL {
                    let (sender, message) = here.receive(Source::Any, Timeout::Never).unwrap();
                    assert_eq!((sender, seen & message.words[0]), (Sender::Notices, 0));
                    seen |= message.words[0];
                }
            };
            tell.send(kernel.spawn(5, body).unwrap()).unwrap();
        });
        let notifier = start::<K>(there, move |kernel| {
            let target = told.recv().unwrap();
            let body = move |mut here: CurrentThread| {
                for bits in [1, 1 << 63 | 1 << 31, 1 << 32] {
                    assert_eq!(here.request(Request::Notify(target, bits)), Request::Done);
                }
                // The receiver ends when it has all notices.
                let gone = here.receive(Source::Thread(target), Timeout::Never);
                assert!(is_end(cause(gone).1));
                assert_eq!(here.request(Request::Notify(target, 1)), Request::Refused);
            };
            kernel.spawn(5, body).unwrap();
        });
        assert_eq!((target.join().unwrap(), notifier.join().unwrap()), (0, 0), "{}", K::NAME);
    }
    each_kernel!(K => in_kernel::<K>());
}

/// A call from another kernel interrupts a thread of lower priority that makes no system call.
#[test]
fn a_call_from_another_kernel_interrupts_a_lower_thread() {
    let [here, there] = two();
    let (tell, told) = names();
    let busy = start::<StrictPlus>(here, move |kernel| {
        let stop = Rc::new(Cell::new(false));
        let stopped = Rc::clone(&stop);
        let server = move |mut here: CurrentThread| {
            let (sender, message) = here.receive(Source::Any, Timeout::Never).unwrap();
            let Sender::Thread(client) = sender else { panic!("{sender:?}") };
            stop.set(true);
            here.send(client, Timeout::Zero, &message).unwrap();
        };
        let server = kernel.spawn(9, server).unwrap();
        let body = move |mut here: CurrentThread| {
            tell.send(server).unwrap();
            // SAFETY: the loop reads a cell, and calls nothing.
            unsafe { here.preemptible(|_| while !stopped.as_ptr().read_volatile() {}) }
        };
        kernel.spawn(3, body).unwrap();
    });
    let client = start::<StrictPlus>(there, move |kernel| {
        let server = told.recv().unwrap();
        kernel.spawn(5, move |mut here| here.call(server, &mut Message::of([1])).unwrap()).unwrap();
    });
    assert_eq!((busy.join().unwrap(), client.join().unwrap()), (0, 0));
}
