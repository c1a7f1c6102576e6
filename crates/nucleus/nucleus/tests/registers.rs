//! Threads whose registers other threads change.

use baton_nucleus::each_kernel;
use baton_nucleus::request::Request;
use baton_nucleus::variant::{StrictPlus, Variant};
use baton_nucleus::{Cause, CurrentThread, Kernel, Message, Options, Phase, Source, Timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

fn kernel<K: Variant>() -> Box<Kernel<K>> {
    Kernel::new(Options { n_threads: 8, tick: None, ..Options::default() }).unwrap()
}

struct Dropped(Rc<Cell<bool>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// A thread is restarted while it waits in a call. Its server gets nothing more from it, and the
/// values on its old stack are not dropped.
#[test]
fn a_thread_that_is_restarted_leaves_its_ipc() {
    fn in_kernel<K: Variant>() {
        let mut kernel = kernel::<K>();
        let told = Rc::new(RefCell::new(Vec::new()));
        let is_dropped = Rc::new(Cell::new(false));
        let deaf = |mut here: CurrentThread| {
            // Nobody raises this interrupt.
            let _ = here.receive(Source::Interrupt(0), Timeout::Never);
        };
        let deaf = kernel.spawn(3, deaf).unwrap();
        let (theirs, dropped) = (Rc::clone(&told), Dropped(Rc::clone(&is_dropped)));
        let caller = kernel
            .spawn(9, move |mut here| {
                let _dropped = dropped;
                let _ = here.call(deaf, &mut Message::of([1]));
                theirs.borrow_mut().push("answered");
            })
            .unwrap();
        let told_last = Rc::clone(&told);
        kernel
            .spawn(5, move |mut here| {
                let theirs = Rc::clone(&told_last);
                let again = move |mut here: CurrentThread| {
                    theirs.borrow_mut().push("restarted");
                    here.request(Request::Yield);
                    assert_eq!(here.request(Request::Notify(deaf, 1)), Request::Done);
                    theirs.borrow_mut().push("again");
                };
                assert!(here.restart(caller, again).unwrap());
                told_last.borrow_mut().push("restarts");
            })
            .unwrap();
        let summary = kernel.run();
        assert_eq!((summary.failures, summary.n_left), (vec![], 1), "{}", K::NAME);
        assert_eq!(*told.borrow(), ["restarted", "again", "restarts"], "{}", K::NAME);
        assert!(!is_dropped.get());
    }
    each_kernel!(K => in_kernel::<K>());
}

#[test]
fn a_thread_that_is_suspended_stays_so_when_it_is_restarted() {
    fn in_kernel<K: Variant>() {
        let mut kernel = kernel::<K>();
        let n_runs = Rc::new(Cell::new(0));
        let runs = Rc::clone(&n_runs);
        let sleeper = kernel
            .spawn(9, |mut here| {
                let me = here.id();
                here.request(Request::Suspend(me));
                unreachable!("it is restarted")
            })
            .unwrap();
        kernel
            .spawn(5, move |mut here| {
                let count = Rc::clone(&runs);
                assert!(here.restart(sleeper, move |_| count.set(count.get() + 1)).unwrap());
                here.request(Request::Yield);
                assert_eq!(runs.get(), 0);
                here.request(Request::Resume(sleeper));
                assert_eq!(runs.get(), 1);
            })
            .unwrap();
        assert_eq!(kernel.run().failures, [], "{}", K::NAME);
        assert_eq!(n_runs.get(), 1);
    }
    each_kernel!(K => in_kernel::<K>());
}

/// A thread is taken out of a loop without system calls, again and again. It would run out of
/// stacks if one were used twice.
#[test]
fn a_thread_that_was_interrupted_is_restarted() {
    let tick = Some(Duration::from_micros(200));
    let options = Options { n_threads: 4, tick, ..Options::default() };
    let mut kernel = Kernel::<StrictPlus>::new(options).unwrap();
    let is_over = Rc::new(Cell::new(false));
    let looping = |is_over: &Rc<Cell<bool>>| {
        let is_over = Rc::clone(is_over);
        move |mut here: CurrentThread| {
            // SAFETY: the loop reads a cell, and calls nothing.
            unsafe { here.preemptible(|_| while !is_over.as_ptr().read_volatile() {}) }
        }
    };
    let looper = kernel.spawn(3, looping(&is_over)).unwrap();
    kernel
        .spawn(9, move |mut here| {
            for _ in 0..20 {
                let until = here.now_ns() + 300_000;
                let error = here.receive(Source::Any, Timeout::At(until)).unwrap_err();
                assert_eq!((error.phase, error.cause), (Phase::Receive, Cause::Timeout));
                assert!(here.restart(looper, looping(&is_over)).unwrap());
            }
            is_over.set(true);
        })
        .unwrap();
    let summary = kernel.run();
    assert_eq!((summary.failures, summary.n_left), (vec![], 0));
}

/// A thread goes on where it was, with its IPC aborted.
#[test]
fn registers_are_read_and_set() {
    fn in_kernel<K: Variant>() {
        let mut kernel = kernel::<K>();
        let cause = Rc::new(Cell::new(None));
        let theirs = Rc::clone(&cause);
        let waiting = kernel
            .spawn(9, move |mut here| {
                let error = here.receive(Source::Any, Timeout::Never).unwrap_err();
                theirs.set(Some(error.cause));
            })
            .unwrap();
        kernel
            .spawn(5, move |mut here| {
                let me = here.id();
                assert_eq!(here.registers(me), None);
                let registers = here.registers(waiting).unwrap();
                // SAFETY: the thread has not run since `registers`.
                let old = unsafe { here.exchange_registers(waiting, registers) };
                assert_eq!(old, Some(registers));
                // The thread has ended.
                assert_eq!(here.registers(waiting), None);
                // SAFETY: the kernel refuses, as the thread has ended.
                assert_eq!(unsafe { here.exchange_registers(waiting, registers) }, None);
                // SAFETY: the kernel refuses, as this is the current thread.
                assert_eq!(unsafe { here.exchange_registers(me, registers) }, None);
                assert!(!here.restart(me, |_| unreachable!()).unwrap());
                assert!(!here.restart(waiting, |_| unreachable!()).unwrap());
            })
            .unwrap();
        assert_eq!(kernel.run().failures, [], "{}", K::NAME);
        assert_eq!(cause.get(), Some(Cause::Aborted));
    }
    each_kernel!(K => in_kernel::<K>());
}
