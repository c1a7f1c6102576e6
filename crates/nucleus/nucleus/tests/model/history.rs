//! Random histories from a seed: the next step of the current thread, and events from outside.

use super::{Model, Step};
use baton_nucleus::request::Request;
use baton_nucleus::tcb::Status;
use baton_nucleus::{Ipc, Source, Tag, ThreadId, Timeout};

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Threads at once, at most.
pub const N_THREADS: usize = 6;
const N_PRIORITIES: usize = 4;

pub fn priority(random: &mut Random) -> u8 {
    // Priorities in different words of the bitmaps.
    [3, 4, 70, 255][random.below(N_PRIORITIES)]
}

fn thread(model: &Model, random: &mut Random) -> ThreadId {
    let n = model.threads.len();
    *model.threads.keys().nth(random.below(n)).unwrap()
}

fn timeout(now_ns: u64, random: &mut Random) -> Timeout {
    match random.below(8) {
        0 | 1 => Timeout::Zero,
        2 => Timeout::At(now_ns + random.below(20) as u64),
        _ => Timeout::Never,
    }
}

/// A random IPC: mostly calls, and answers to callers.
fn ipc(model: &Model, now_ns: u64, random: &mut Random) -> Ipc {
    let me = model.current.unwrap();
    let waits = |id: &&ThreadId| {
        let thread = &model.threads[*id];
        thread.status == Status::Receiving && **id != me
    };
    let waiting: Vec<&ThreadId> = model.threads.keys().filter(waits).collect();
    let partner = |random: &mut Random| match waiting.len() {
        n if n > 0 && !random.one_in(3) => *waiting[random.below(n)],
        _ => thread(model, random),
    };
    let source = |random: &mut Random| match random.below(8) {
        0 => Source::Interrupt(random.below(3) as u8),
        1 | 2 => Source::Thread(thread(model, random)),
        _ => Source::Any,
    };
    match random.below(8) {
        0 | 1 => Ipc::call(partner(random)),
        2 | 3 => Ipc::reply_and_wait(partner(random)),
        4 => Ipc { send: Some((partner(random), timeout(now_ns, random))), receive: None },
        5 => Ipc { send: None, receive: Some((source(random), timeout(now_ns, random))) },
        6 => {
            let to = partner(random);
            Ipc {
                send: Some((to, timeout(now_ns, random))),
                receive: Some((Source::Thread(to), timeout(now_ns, random))),
            }
        }
        _ => Ipc {
            send: Some((partner(random), timeout(now_ns, random))),
            receive: Some((source(random), timeout(now_ns, random))),
        },
    }
}

fn request(model: &Model, random: &mut Random) -> Request {
    let id = thread(model, random);
    match random.below(12) {
        0 => Request::Suspend(id),
        1 | 2 => Request::Resume(id),
        3 => Request::SetPriority(id, priority(random)),
        4 => Request::Abort(id),
        5 => Request::SwitchTo(id),
        6 => Request::Yield,
        7 | 8 => Request::Notify(id, 1 << random.below(4)),
        9 => Request::AcceptNotices(random.below(16) as u64),
        10 => Request::ExchangeUserWord(id, random.below(100) as u64),
        _ if model.threads.len() > 2 && random.one_in(4) => Request::End,
        _ => Request::Start(id),
    }
}

/// The next step of the history.
pub fn step(model: &Model, now_ns: u64, number: u64, random: &mut Random) -> Step {
    if model.continues() {
        return Step::Continue;
    }
    match random.below(16) {
        _ if model.current.is_none() && random.one_in(2) => Step::Expire(now_ns),
        0 => Step::Interrupt(random.below(3) as u8),
        1 => Step::Expire(now_ns),
        2 => Step::Tick,
        _ if model.current.is_none() => Step::Interrupt(random.below(3) as u8),
        _ => own_step(model, now_ns, number, random),
    }
}

/// The next step of the current thread.
pub fn own_step(model: &Model, now_ns: u64, number: u64, random: &mut Random) -> Step {
    if random.one_in(5) {
        return Step::Request(request(model, random));
    }
    let length = if random.one_in(4) { random.below(65) } else { random.below(10) };
    let words = (0..length as u64).map(|word| number << 8 | word).collect();
    let tag = Tag::new(number as u32, length as u8);
    Step::Ipc(ipc(model, now_ns, random), tag, words)
}
