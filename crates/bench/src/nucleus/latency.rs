//! How late the highest thread runs after a timer that it has set to a random time, while others
//! make the kernel do what it cannot interrupt (Greenaway 2007, section 4.4).

use super::ipc::{kernel, shuffled};
use super::signalled;
use crate::random;
use crate::service::now_ns;
use baton_nucleus::request::Request;
use baton_nucleus::variant::Variant;
use baton_nucleus::{
    CurrentThread, Ipc, IpcError, Kernel, Message, Sender, Source, ThreadId, Timeout,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// What the others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Each is put on the ready queue, and then blocks (figure 4.1).
    Elevator,
    /// All are stopped while they are on the ready queue.
    StartStop,
    /// All wait to send to the next, which waits to send to the next.
    Chaining,
}

/// Latencies in picoseconds: since the timer's signal came to the kernel's OS thread, and since the
/// time that the timer was set to.
pub type Latencies = [Vec<u64>; 2];

/// Who measures, and those above and below the load's threads.
const MEASURING: u8 = 255;
const ABOVE: u8 = 254;
const BELOW: u8 = 1;
/// The timer is set to at least this, and less than twice this, from now.
const PERIOD_NS: u64 = 30_000;

type Stop = Rc<Cell<bool>>;
type Threads = Rc<RefCell<Vec<ThreadId>>>;

/// So many latencies among so many threads.
pub fn latencies<K: Variant>(load: Load, n_threads: usize, n: u64) -> io::Result<Latencies> {
    let mut kernel = kernel::<K>(256)?;
    let stop = Stop::default();
    match load {
        Load::Elevator => elevator(&mut kernel, n_threads, &stop)?,
        Load::StartStop => start_stop(&mut kernel, n_threads, &stop)?,
        Load::Chaining => chaining(&mut kernel, n_threads, &stop)?,
    }
    let found = Rc::<RefCell<Latencies>>::default();
    let theirs = Rc::clone(&found);
    kernel.spawn(MEASURING, move |here| {
        *theirs.borrow_mut() = measure(here, n);
        stop.set(true);
    })?;
    kernel.run();
    Ok(found.take())
}

fn measure(mut here: CurrentThread, n: u64) -> Latencies {
    signalled::watch();
    let mut latencies = Latencies::default();
    let mut random = 98765_u64;
    // The first find nothing in the caches.
    for number in 0..n + n / 10 {
        random = random::next(random, 1);
        let due_ns = now_ns() + PERIOD_NS + (random >> 33) % PERIOD_NS;
        here.set_timer(0, due_ns);
        if here.receive(Source::Interrupt(0), Timeout::Never).is_err() {
            break;
        }
        let now_ns = now_ns();
        if number < n / 10 {
            continue;
        }
        // Somebody may have looked at the clock before the signal came.
        let signalled_ns = signalled::last_ns().max(due_ns).min(now_ns);
        latencies[0].push((now_ns - signalled_ns) * 1000);
        latencies[1].push((now_ns - due_ns) * 1000);
    }
    latencies
}

/// The lowest of the load's threads: what it does is over when the measurement is.
fn drive<K: Variant>(
    kernel: &mut Kernel<K>,
    threads: &Threads,
    stop: &Stop,
    mut act: impl FnMut(&mut CurrentThread, &[ThreadId]) -> Result<(), IpcError> + 'static,
) -> io::Result<ThreadId> {
    let (threads, stop) = (Rc::clone(threads), Rc::clone(stop));
    kernel.spawn(BELOW, move |mut here| {
        let threads = threads.borrow();
        while !stop.get() && act(&mut here, &threads).is_ok() {}
        for &thread in threads.iter() {
            here.request(Request::Abort(thread));
        }
    })
}

fn elevator<K: Variant>(kernel: &mut Kernel<K>, n_threads: usize, stop: &Stop) -> io::Result<()> {
    let threads = Threads::default();
    let above = kernel.spawn(
        ABOVE,
        |mut here| {
            while here.receive(Source::Any, Timeout::Never).is_ok() {}
        },
    )?;
    let below = drive(kernel, &threads, stop, move |here, floors| {
        // The first sets the elevator going; the last one sends it back.
        here.send(floors[0], Timeout::Never, &Message::default())?;
        here.send(floors[n_threads - 1], Timeout::Never, &Message::default())
    })?;
    for place in 0..n_threads {
        let floors = Rc::clone(&threads);
        let body = move |mut here: CurrentThread| {
            let next = floors.borrow().get(place + 1).filter(|_| place + 1 < n_threads).copied();
            let _ = ride(&mut here, above, below, next);
        };
        let floor = kernel.spawn(place as u8 + 2, body)?;
        threads.borrow_mut().push(floor);
    }
    threads.borrow_mut().push(above);
    Ok(())
}

fn ride(
    here: &mut CurrentThread,
    above: ThreadId,
    below: ThreadId,
    next: Option<ThreadId>,
) -> Result<(), IpcError> {
    let (mut sender, mut message) = here.receive(Source::Any, Timeout::Never)?;
    loop {
        here.send(above, Timeout::Never, &message)?;
        match next {
            Some(next) => here.call(next, &mut message)?,
            None => drop(here.receive(Source::Thread(below), Timeout::Never)?),
        }
        sender = match sender {
            Sender::Thread(caller) if caller != below => {
                here.reply_and_wait(caller, &mut message)?
            }
            _ => here.receive(Source::Any, Timeout::Never)?.0,
        };
    }
}

fn start_stop<K: Variant>(kernel: &mut Kernel<K>, n_threads: usize, stop: &Stop) -> io::Result<()> {
    let stop = Rc::clone(stop);
    let threads =
        shuffled(n_threads).into_iter().map(|place| kernel.spawn(place as u8 + 2, |_| {}));
    let threads = threads.collect::<io::Result<Vec<ThreadId>>>()?;
    kernel.spawn(ABOVE, move |mut here| {
        let me = here.id();
        while !stop.get() {
            for &thread in &threads {
                here.request(Request::Suspend(thread));
            }
            here.request(Request::SetPriority(me, BELOW));
            here.request(Request::SetPriority(me, ABOVE));
            for &thread in &threads {
                here.request(Request::Resume(thread));
            }
        }
    })?;
    Ok(())
}

fn chaining<K: Variant>(kernel: &mut Kernel<K>, n_threads: usize, stop: &Stop) -> io::Result<()> {
    let threads = Threads::default();
    let mut before = drive(kernel, &threads, stop, |here, links| {
        here.receive(Source::Thread(links[0]), Timeout::Never).map(drop)
    })?;
    for place in 0..n_threads {
        let receive = (place + 1 < n_threads).then_some((Source::Any, Timeout::Never));
        let ipc = Ipc { send: Some((before, Timeout::Never)), receive };
        let stop = Rc::clone(stop);
        before = kernel.spawn(place as u8 + 2, move |mut here| {
            while !stop.get() && here.ipc(ipc, &mut Message::of([1])).is_ok() {}
        })?;
        threads.borrow_mut().push(before);
    }
    Ok(())
}
