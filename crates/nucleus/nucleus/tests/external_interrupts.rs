//! Kernels that other OS threads interrupt, and kernels that several OS threads run in turn.

use baton_nucleus::request::Request;
use baton_nucleus::variant::{DirectLazy, StrictPlus, Variant};
use baton_nucleus::{Kernel, Options, Portable, SignalStack, Source, Timeout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};

fn kernel<K: Variant>() -> Box<Kernel<K>> {
    Kernel::new(Options { n_threads: 8, tick: None, ..Options::default() }).unwrap()
}

#[test]
fn a_nudge_interrupts_threads_that_run() {
    fn interrupted_in<K: Variant>() {
        let mut kernel = kernel::<K>();
        let come = Arc::new(AtomicU64::new(0));
        let (raised, stop) = (Arc::clone(&come), Arc::new(AtomicBool::new(false)));
        kernel.set_external_interrupts(move || raised.swap(0, Ordering::Acquire));
        let stopped = Arc::clone(&stop);
        let runs = Arc::new(AtomicBool::new(false));
        let it_runs = Arc::clone(&runs);
        kernel
            .spawn(3, move |mut here| {
                while !stopped.load(Ordering::Relaxed) {
                    here.request(Request::Yield);
                    it_runs.store(true, Ordering::Release);
                }
            })
            .unwrap();
        kernel
            .spawn(200, move |mut here| {
                here.request(Request::Attach(7));
                here.receive(Source::Interrupt(7), Timeout::Never).unwrap();
                stop.store(true, Ordering::Relaxed);
            })
            .unwrap();
        let interrupter = kernel.interrupter();
        let other = thread::spawn(move || {
            while !runs.load(Ordering::Acquire) {
                thread::yield_now();
            }
            come.store(1 << 7, Ordering::Release);
            interrupter.interrupt();
            interrupter
        });
        let summary = kernel.run();
        assert_eq!((summary.failures.len(), summary.n_left), (0, 0), "{}", K::NAME);
        drop(kernel);
        // The kernel is gone, and nothing happens.
        other.join().unwrap().interrupt();
    }
    interrupted_in::<StrictPlus>();
    interrupted_in::<DirectLazy>();
}

fn recurse(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 64]);
    if depth == 0 { block[1] } else { recurse(depth - 1) + block[depth as usize % 64] }
}

#[test]
fn os_threads_run_a_kernel_in_turn() {
    let mut kernel = kernel::<StrictPlus>();
    let (sender, receiver) = std::sync::mpsc::channel::<ThreadId>();
    kernel.set_external_interrupts(|| 1 << 2);
    kernel
        .spawn(9, move |mut here| {
            here.request(Request::Attach(2));
            for turn in 0.. {
                here.receive(Source::Interrupt(2), Timeout::Never).unwrap();
                sender.send(thread::current().id()).unwrap();
                if turn == 3 {
                    // The overflow is handled on the signal stack of the OS thread that runs the
                    // kernel.
                    std::hint::black_box(recurse(1 << 30));
                }
            }
        })
        .unwrap();
    // SAFETY: the thread has only a `Sender`; the kernel has no tick, no timers and no cluster.
    let mut kernel = unsafe { Portable::new(kernel) };
    // In the first run the thread becomes the handler; it has received no interrupt yet.
    kernel.run_on(&SignalStack::install());
    for turn in 0..6 {
        let run = move || {
            kernel.run_on(&SignalStack::install_for_good());
            kernel
        };
        let runner = thread::spawn(run);
        let id = runner.thread().id();
        kernel = runner.join().unwrap();
        let served: Vec<ThreadId> = receiver.try_iter().collect();
        // The thread overflowed its stack in the fourth turn.
        assert_eq!(served, if turn < 4 { vec![id] } else { vec![] }, "{turn}");
    }
}
