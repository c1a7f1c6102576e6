//! The experiments themselves: threads of a kernel that exchange messages, and what an IPC took of
//! each batch, in picoseconds.

use super::batch::batches;
use crate::random;
use crate::service::now_ns;
use baton_nucleus::request::Request;
use baton_nucleus::variant::Variant;
use baton_nucleus::{
    CurrentThread, Ipc, IpcError, Kernel, Message, Options, Sender, Source, Tag, ThreadId, Timeout,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// Calls that are timed together.
const BATCH: u64 = 1000;
/// Threads of the hot potato's ring (section 4.3.2).
const RING: usize = 250;
const RING_BATCH: u64 = 25 * BATCH;
/// A label that ends a server.
const STOP: u32 = 1;

pub fn kernel<K: Variant>(n_threads: usize) -> io::Result<Box<Kernel<K>>> {
    // No tick: nothing here lasts as long, and what it costs is not what is asked.
    Kernel::new(Options { n_threads, tick: None, ..Options::default() })
}

/// What a thread of the experiment has found.
pub type Measured = Rc<RefCell<Vec<u64>>>;

pub fn found(found: &Measured) -> Vec<u64> {
    std::mem::take(&mut found.borrow_mut())
}

/// Answers each caller with what it has sent.
pub fn echo(mut here: CurrentThread) {
    let Ok((mut sender, mut message)) = here.receive(Source::Any, Timeout::Never) else { return };
    while let Sender::Thread(client) = sender
        && message.tag.label() != STOP
    {
        let Ok(next) = here.reply_and_wait(client, &mut message) else { return };
        sender = next;
    }
}

/// A client calls a server of the same priority (section 4.3.1); each time is that of one IPC, half
/// a call.
pub fn ping_pong<K: Variant>(n_words: u8, n_batches: u64) -> io::Result<Vec<u64>> {
    let mut kernel = kernel::<K>(2)?;
    let server = kernel.spawn(100, echo)?;
    let times = Measured::default();
    let ours = Rc::clone(&times);
    kernel.spawn(100, move |mut here| {
        let measured = call_in_batches(&mut here, server, n_words, (n_batches, BATCH));
        *ours.borrow_mut() = measured.unwrap_or_default();
        let _ = here.send(server, Timeout::Zero, &stop());
    })?;
    kernel.run();
    Ok(found(&times))
}

/// Calls a server that answers what it is sent, in batches of so many; each time is that of one
/// IPC, half a call. `None` if a call has failed.
pub fn call_in_batches(
    here: &mut CurrentThread,
    server: ThreadId,
    n_words: u8,
    (n_batches, n_calls): (u64, u64),
) -> Option<Vec<u64>> {
    // The loop is counted in instructions: its variables are its own.
    let in_a_row = |_| {
        let mut message = Message { tag: Tag::of_length(n_words), ..Message::default() };
        for call in 0..n_calls {
            message.words[0] = call;
            if here.call(server, &mut message).is_err() || message.words[0] != call {
                return Err(());
            }
        }
        Ok(())
    };
    batches(n_batches, 2 * n_calls, in_a_row).ok()
}

/// Ends [`echo`].
pub fn stop() -> Message {
    Message { tag: Tag::new(STOP, 0), ..Message::default() }
}

/// Numbers from 0 in an order that is always the same.
pub fn shuffled(n: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..n).collect();
    let mut random = 12345_u64;
    for last in (1..n).rev() {
        random = random::next(random, 1);
        numbers.swap(last, (random >> 33) as usize % (last + 1));
    }
    numbers
}

/// Threads of all priorities hand potatoes round a ring (section 4.3.2); each time is that of one
/// handing over.
pub fn hot_potato<K: Variant>(n_potatoes: usize, n_batches: u64) -> io::Result<Vec<u64>> {
    let mut kernel = kernel::<K>(256)?;
    let times = Measured::default();
    let ring = Rc::new(RefCell::new(Vec::<ThreadId>::new()));
    let n_handed = Rc::new(Cell::new(0_u64));
    let last = RING_BATCH * (n_batches + 1);
    for (place, priority) in shuffled(RING).into_iter().enumerate() {
        // Potatoes are spread over the ring.
        let has_potato = place * n_potatoes / RING != (place + 1) * n_potatoes / RING;
        let (all, count) = (Rc::clone(&ring), Rc::clone(&n_handed));
        let ours = (place == 0).then(|| Rc::clone(&times));
        let id = kernel.spawn(priority as u8 + 1, move |mut here| {
            let next = all.borrow()[(place + 1) % RING];
            let _ = hand_on(&mut here, next, has_potato, &count, last, ours.as_ref());
            // Who still waits would wait for ever.
            for &other in all.borrow().iter() {
                here.request(Request::Abort(other));
            }
        })?;
        ring.borrow_mut().push(id);
    }
    kernel.run();
    Ok(found(&times))
}

/// What each thread of the ring does; one of them looks at the clock.
fn hand_on(
    here: &mut CurrentThread,
    next: ThreadId,
    has_potato: bool,
    n_handed: &Cell<u64>,
    last: u64,
    times: Option<&Measured>,
) -> Result<(), IpcError> {
    let mut message = Message::of([7]);
    if !has_potato {
        here.receive(Source::Any, Timeout::Never)?;
    }
    // The first batch finds nothing in the caches.
    let mut begun = (RING_BATCH, 0);
    while n_handed.get() < last {
        let n = n_handed.get() + 1;
        n_handed.set(n);
        if let Some(times) = times
            && n >= begun.0 + RING_BATCH
        {
            times.borrow_mut().push((now_ns() - begun.1) * 1000 / (n - begun.0));
            begun = (n, now_ns());
        } else if begun.1 == 0 && n >= begun.0 {
            begun = (n, now_ns());
        }
        let receive = Some((Source::Any, Timeout::Never));
        here.ipc(Ipc { send: Some((next, Timeout::Never)), receive }, &mut message)?;
    }
    Ok(())
}

/// So many threads wait in one server's send queue, and then it takes them all (section 4.3.3);
/// each time is that of one sender: woken, queued, and served.
pub fn queueing<K: Variant>(n_senders: usize, n_batches: u64) -> io::Result<Vec<u64>> {
    let mut kernel = kernel::<K>(256)?;
    let times = Measured::default();
    let senders = Rc::new(RefCell::new(Vec::<ThreadId>::new()));
    let (ours, all) = (Rc::clone(&times), Rc::clone(&senders));
    // The server is below its senders, so each is queued as soon as it is woken.
    let server = kernel.spawn(1, move |mut here| {
        let measured = batches(n_batches, n_senders as u64, |_| {
            for &sender in all.borrow().iter() {
                here.send(sender, Timeout::Never, &Message::default())?;
            }
            for _ in 0..n_senders {
                let (sender, message) = here.receive(Source::Any, Timeout::Never)?;
                if let Sender::Thread(sender) = sender {
                    here.send(sender, Timeout::Zero, &message)?;
                }
            }
            Ok::<_, IpcError>(())
        });
        *ours.borrow_mut() = measured.unwrap_or_default();
        for &sender in all.borrow().iter() {
            here.request(Request::Abort(sender));
        }
    })?;
    for place in shuffled(n_senders) {
        let id = kernel.spawn(place as u8 + 2, move |mut here| {
            while here.receive(Source::Thread(server), Timeout::Never).is_ok() {
                if here.call(server, &mut Message::of([1])).is_err() {
                    return;
                }
            }
        })?;
        senders.borrow_mut().push(id);
    }
    kernel.run();
    Ok(found(&times))
}
