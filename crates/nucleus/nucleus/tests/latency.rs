//! The work of a kernel before it looks for interrupts, in counts and not in time.

use baton_nucleus::request::Request;
use baton_nucleus::state::State;
use baton_nucleus::statistics::Event;
use baton_nucleus::variant::{Counted, Preemption, StrictEager, StrictPlus, Variant};
use baton_nucleus::variant::{DirectLazy, Fastpath, StrictLazy};
use baton_nucleus::{CurrentThread, Ipc, Kernel, Message, Options, Source, Tag, ThreadId, Timeout};
use baton_nucleus::{Sender, each_kernel};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;

const N_LINKS: usize = 20;

/// Sends to the previous thread of the chain, and receives from the next.
fn link(before: ThreadId) -> impl FnOnce(CurrentThread) {
    move |mut here| {
        let ipc = Ipc {
            send: Some((before, Timeout::Never)),
            receive: Some((Source::Any, Timeout::Never)),
        };
        let _ = here.ipc(ipc, &mut Message::of([1]));
    }
}

/// The IPCs of a chain that are still to come when an interrupt's handler runs. The interrupt
/// becomes due just before the chain is released.
fn left_of_a_chain<K: Variant>() -> usize {
    let options = Options { n_threads: 32, tick: None, ..Options::default() };
    let mut kernel = Kernel::<K>::new(options).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let links = Rc::new(RefCell::new(Vec::new()));
    let n_left = Rc::new(Cell::new(usize::MAX));
    let (all, ours, count) = (Rc::clone(&links), Rc::clone(&links), Rc::clone(&n_left));
    let releaser = kernel
        .spawn(1, move |mut here| {
            writer.write_all(&[1]).unwrap();
            // SAFETY: the thread is not preemptible, so the handler only sets `pending`.
            assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
            here.receive(Source::Any, Timeout::Never).unwrap();
            // The last threads would wait for ever, as nobody sends to them.
            for &link in ours.borrow().iter() {
                here.request(Request::Abort(link));
            }
        })
        .unwrap();
    let mut before = releaser;
    for priority in 0..N_LINKS {
        before = kernel.spawn(10 + priority as u8, link(before)).unwrap();
        links.borrow_mut().push(before);
    }
    kernel
        .spawn(250, move |mut here| {
            here.attach(0, reader.into()).unwrap();
            let (sender, _) = here.receive(Source::Interrupt(0), Timeout::Never).unwrap();
            assert_eq!(sender, Sender::Interrupt(0));
            // A thread that waits can be aborted. So can the last one, at the chain's end, too.
            let others = all.borrow()[..N_LINKS - 1].to_vec();
            let waits = |id: &&ThreadId| here.request(Request::Abort(**id)) == Request::Done;
            count.set(others.iter().filter(waits).count());
        })
        .unwrap();
    let summary = kernel.run();
    assert_eq!((summary.failures, summary.n_left), (Vec::new(), 0), "{}", K::NAME);
    n_left.get()
}

#[test]
fn an_interrupt_is_found_between_the_ipcs_of_a_chain() {
    each_kernel!(K => {
        let n_left = left_of_a_chain::<K>();
        match K::PREEMPTION {
            Preemption::AtExit => assert_eq!(n_left, 0, "{}", K::NAME),
            Preemption::BetweenIpcs => assert!(n_left >= N_LINKS - 2, "{}: {n_left}", K::NAME),
        }
    });
}

/// A kernel's state, and the most operations of one kind that one step has taken.
struct Counting<K: Variant> {
    state: State<Counted<K>>,
    most_dequeued: u64,
}

impl<K: Variant> Counting<K> {
    fn spawn(&mut self, priority: u8) -> ThreadId {
        let id = self.state.create(priority).unwrap();
        self.state.start(id);
        id
    }

    /// Makes an IPC of the running thread, after which another one has to run.
    fn step(&mut self, id: ThreadId, ipc: Ipc, next: ThreadId) {
        assert_eq!(self.state.current(), Some(id), "{}", K::NAME);
        let before = self.state.statistics().of(Event::Dequeued);
        self.state.set_ipc(ipc, Tag::default(), &[]);
        self.state.ipc();
        assert_eq!(self.state.current(), Some(next), "{}", K::NAME);
        let n_dequeued = self.state.statistics().of(Event::Dequeued) - before;
        self.most_dequeued = self.most_dequeued.max(n_dequeued);
    }
}

/// The IPC elevator of `n_threads` threads: each is put on the ready queue, and then blocks.
fn most_dequeued_in_an_elevator<K: Variant>(n_threads: usize) -> u64 {
    let receive = Ipc { send: None, receive: Some((Source::Any, Timeout::Never)) };
    let send = |to| Ipc { send: Some((to, Timeout::Never)), receive: None };
    let mut kernel = Counting::<K> { state: State::new(512, 10), most_dequeued: 0 };
    let below = kernel.spawn(0);
    let floors: Vec<ThreadId> = (1..=n_threads).map(|place| kernel.spawn(place as u8)).collect();
    let above = kernel.spawn(255);
    let down: Vec<ThreadId> =
        [above].into_iter().chain(floors.iter().rev().copied()).chain([below]).collect();
    for pair in down.windows(2) {
        kernel.step(pair[0], receive, pair[1]);
    }
    kernel.step(below, send(floors[0]), floors[0]);
    for (place, &floor) in floors.iter().enumerate() {
        kernel.step(floor, send(above), above);
        kernel.step(above, receive, floor);
        match floors.get(place + 1) {
            Some(&next) => kernel.step(floor, Ipc::call(next), next),
            None => kernel.step(floor, receive, below),
        }
    }
    kernel.most_dequeued
}

#[test]
fn what_lazy_queueing_puts_off_grows_with_the_threads_and_strict_plus_puts_off_nothing() {
    let most = |n_threads| {
        [
            most_dequeued_in_an_elevator::<Fastpath>(n_threads),
            most_dequeued_in_an_elevator::<DirectLazy>(n_threads),
            most_dequeued_in_an_elevator::<StrictLazy>(n_threads),
            most_dequeued_in_an_elevator::<StrictEager>(n_threads),
            most_dequeued_in_an_elevator::<StrictPlus>(n_threads),
        ]
    };
    assert_eq!(most(25), [25, 25, 25, 1, 1]);
    assert_eq!(most(250), [250, 250, 250, 1, 1]);
}
