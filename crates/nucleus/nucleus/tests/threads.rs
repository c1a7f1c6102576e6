//! One kernel with real threads, on one OS thread or on several.

use baton_nucleus::each_kernel;
use baton_nucleus::request::Request;
use baton_nucleus::variant::{DirectLazy, StrictPlus, Variant};
use baton_nucleus::{
    Cause, CurrentThread, Failure, Kernel, Message, Options, Sender, Source, Tag, Timeout,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

fn kernel<K: Variant>(tick: Option<Duration>) -> Box<Kernel<K>> {
    Kernel::new(Options { n_threads: 16, tick, ..Options::default() }).unwrap()
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

fn calls_are_answered_in<K: Variant>() {
    let mut kernel = kernel::<K>(None);
    let server = kernel.spawn(5, serve).unwrap();
    let n_calls = Rc::new(Cell::new(0));
    for client in 0..3_u64 {
        let n_calls = Rc::clone(&n_calls);
        // One client below the server, one beside it, one above.
        kernel
            .spawn(4 + client as u8, move |mut here| {
                for call in 0..100 {
                    let mut message = Message::of([client, call, 2, 3, 4, 5, 6, 7]);
                    message.tag = Tag::new(call as u32, if call % 5 == 0 { 64 } else { 8 });
                    here.more_words().fill(client + call);
                    here.call(server, &mut message).unwrap();
                    assert_eq!(message.words, [client + 1, call + 1, 3, 4, 5, 6, 7, 8]);
                    assert_eq!(message.tag.label(), call as u32);
                    if call % 5 == 0 {
                        assert_eq!(here.more_words(), &[client + call + 1; 56]);
                    }
                    n_calls.set(n_calls.get() + 1);
                }
            })
            .unwrap();
    }
    let summary = kernel.run();
    assert_eq!(summary.failures, [], "{}", K::NAME);
    assert_eq!((n_calls.get(), summary.n_left), (300, 1), "{}", K::NAME);
}

#[test]
fn calls_are_answered() {
    each_kernel!(K => calls_are_answered_in::<K>());
}

fn recurse(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 64]);
    if depth == 0 { block[1] } else { recurse(depth - 1) + block[depth as usize % 64] }
}

#[test]
fn a_thread_that_fails_ends_alone_and_its_partners_are_told() {
    fn fails_in<K: Variant>(fail: fn(), expected: impl Fn(&Failure) -> bool) {
        let mut kernel = kernel::<K>(None);
        let told = Rc::new(RefCell::new(Vec::new()));
        let server = kernel
            .spawn(9, move |mut here| {
                here.receive(Source::Any, Timeout::Never).unwrap();
                fail();
            })
            .unwrap();
        for priority in [3, 4] {
            let told = Rc::clone(&told);
            kernel
                .spawn(priority, move |mut here| {
                    let error = here.call(server, &mut Message::of([1])).unwrap_err();
                    told.borrow_mut().push(error.cause);
                })
                .unwrap();
        }
        let summary = kernel.run();
        // The lower client calls when the server's id belongs to no thread any more.
        assert_eq!(*told.borrow(), [Cause::Ended, Cause::NoPartner], "{}", K::NAME);
        let [(id, failure)] = &summary.failures[..] else { panic!("{summary:?}") };
        assert!(*id == server && expected(failure), "{failure:?}");
        assert_eq!(summary.n_left, 0);
    }
    fn panics() {
        std::panic::resume_unwind(Box::new("enough"));
    }
    fn overflows() {
        std::hint::black_box(recurse(1 << 30));
    }
    each_kernel!(K => {
        fails_in::<K>(panics, |failure| *failure == Failure::Panic("enough".into()));
        fails_in::<K>(overflows, |failure| *failure == Failure::StackOverflow);
    });
}

/// Runs until each of two preemptible threads has seen the other run several times.
fn take_turns(here: &mut CurrentThread, turns: &[Cell<u64>; 2], number: usize) {
    // SAFETY: the loop adds to cells that live long enough, and calls nothing.
    unsafe {
        here.preemptible(|_| {
            let mut seen = 0;
            let mut n_changes = 0;
            while n_changes < 3 {
                turns[number].set(turns[number].get() + 1);
                let other = turns[1 - number].as_ptr().read_volatile();
                n_changes += u64::from(other != seen);
                seen = other;
                if other == u64::MAX {
                    break;
                }
            }
        });
    }
    turns[number].set(u64::MAX);
}

#[test]
fn the_tick_takes_the_processor_from_threads_that_allow_it() {
    fn taken_in<K: Variant>() {
        let mut kernel = kernel::<K>(Some(Duration::from_micros(200)));
        let turns: Rc<[Cell<u64>; 2]> = Rc::default();
        for number in 0..2 {
            let turns = Rc::clone(&turns);
            kernel.spawn(7, move |mut here| take_turns(&mut here, &turns, number)).unwrap();
        }
        let summary = kernel.run();
        assert_eq!((summary.failures.len(), summary.n_left), (0, 0), "{}", K::NAME);
    }
    each_kernel!(K => taken_in::<K>());
}

#[test]
fn timers_wake_a_higher_thread_out_of_a_loop() {
    let mut kernel = kernel::<StrictPlus>(None);
    let stop = Rc::new(Cell::new(false));
    let stopped = Rc::clone(&stop);
    kernel
        .spawn(3, move |mut here| {
            // SAFETY: the loop reads a cell, and calls nothing.
            unsafe { here.preemptible(|_| while !stopped.as_ptr().read_volatile() {}) }
        })
        .unwrap();
    kernel
        .spawn(200, move |mut here| {
            let at_ns = here.now_ns() + 300_000;
            here.set_timer(5, at_ns);
            let (sender, _) = here.receive(Source::Interrupt(5), Timeout::Never).unwrap();
            assert_eq!(sender, Sender::Interrupt(5));
            assert!(here.now_ns() >= at_ns);
            let until = here.now_ns() + 300_000;
            let error = here.receive(Source::Any, Timeout::At(until)).unwrap_err();
            assert_eq!(error.cause, Cause::Timeout);
            assert!(here.now_ns() >= until);
            stop.set(true);
        })
        .unwrap();
    let summary = kernel.run();
    assert_eq!((summary.failures.len(), summary.n_left), (0, 0));
}

#[test]
fn a_signal_that_came_before_a_thread_became_preemptible_is_not_forgotten() {
    use std::io::Write;
    let mut kernel = kernel::<StrictPlus>(None);
    let stop = Rc::new(Cell::new(false));
    let stopped = Rc::clone(&stop);
    let (reader, mut writer) = std::io::pipe().unwrap();
    kernel
        .spawn(3, move |mut here| {
            writer.write_all(&[1]).unwrap();
            // SAFETY: the thread is not preemptible, so the handler only sets `pending`.
            assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
            // SAFETY: the loop reads a cell, and calls nothing.
            unsafe { here.preemptible(|_| while !stopped.as_ptr().read_volatile() {}) }
        })
        .unwrap();
    kernel
        .spawn(200, move |mut here| {
            here.attach(5, reader.into()).unwrap();
            here.receive(Source::Interrupt(5), Timeout::Never).unwrap();
            stop.set(true);
        })
        .unwrap();
    let summary = kernel.run();
    assert_eq!((summary.failures.len(), summary.n_left), (0, 0));
}

#[test]
fn a_descriptor_that_becomes_readable_is_an_interrupt() {
    use std::io::{Read, Write};
    let mut kernel = kernel::<DirectLazy>(None);
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let other = std::thread::spawn(move || {
        for byte in 0..3 {
            writer.write_all(&[byte]).unwrap();
        }
        writer
    });
    kernel
        .spawn(1, move |mut here| {
            here.attach(2, reader.try_clone().unwrap().into()).unwrap();
            let mut bytes = Vec::new();
            while bytes.len() < 3 {
                let (sender, _) = here.receive(Source::Any, Timeout::Never).unwrap();
                assert_eq!(sender, Sender::Interrupt(2));
                let mut byte = [0];
                reader.read_exact(&mut byte).unwrap();
                bytes.extend(byte);
                here.acknowledge(2).unwrap();
            }
            assert_eq!(bytes, [0, 1, 2]);
        })
        .unwrap();
    assert_eq!(kernel.run().failures, []);
    drop(other.join());
}

#[test]
fn threads_are_started_by_threads_and_their_stacks_used_again() {
    let mut kernel = kernel::<StrictPlus>(None);
    let n_ended = Rc::new(Cell::new(0));
    let count = Rc::clone(&n_ended);
    kernel
        .spawn(5, move |mut here| {
            for _ in 0..1000 {
                let count = Rc::clone(&count);
                let id = here.spawn(6, move |_| count.set(count.get() + 1)).unwrap();
                assert_eq!(here.request(Request::Suspend(id)), Request::Refused);
            }
        })
        .unwrap();
    assert_eq!(kernel.run().n_left, 0);
    assert_eq!(n_ended.get(), 1000);
}

#[test]
fn a_thread_without_code_is_not_started() {
    let mut kernel = kernel::<StrictPlus>(None);
    kernel
        .spawn(5, |mut here| {
            let Request::Created(id) = here.request(Request::Create { priority: 6 }) else {
                panic!("there is room")
            };
            assert_eq!(here.request(Request::Start(id)), Request::Refused);
            assert!(!here.restart(id, |_| ()).unwrap());
        })
        .unwrap();
    let summary = kernel.run();
    assert_eq!((&summary.failures[..], summary.n_left), (&[][..], 1));
}

#[test]
fn kernels_of_several_os_threads_do_not_know_each_other() {
    let threads: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(|| (0..5).for_each(|_| calls_are_answered_in::<StrictPlus>())))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The control word of floating-point rounding, and its bits for "towards zero".
mod rounding {
    use std::arch::asm;

    #[cfg(target_arch = "x86_64")]
    pub const TOWARDS_ZERO: u64 = 3 << 13;
    #[cfg(target_arch = "aarch64")]
    pub const TOWARDS_ZERO: u64 = 3 << 22;

    #[cfg(target_arch = "x86_64")]
    pub fn get() -> u64 {
        let mut word = 0_u32;
        // SAFETY: the instruction stores into `word`.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word) };
        word.into()
    }

    #[cfg(target_arch = "aarch64")]
    pub fn get() -> u64 {
        let word;
        // SAFETY: the instruction reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) word) };
        word
    }

    /// Sets the word. No code of this test computes with floating-point numbers.
    pub fn set(word: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads a word that was read, with other rounding bits.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const word)
        };
        #[cfg(target_arch = "aarch64")]
        // SAFETY: loads a word that was read, with other rounding bits.
        unsafe {
            asm!("msr fpcr, {}", in(reg) word)
        };
    }
}

#[test]
fn rounding_is_each_threads_own() {
    use rounding::{TOWARDS_ZERO, get, set};
    fn in_kernel<K: Variant>() {
        let mut kernel = kernel::<K>(None);
        let server = kernel.spawn(5, serve).unwrap();
        for bits in [0, TOWARDS_ZERO] {
            kernel
                .spawn(5, move |mut here| {
                    set(get() | bits);
                    here.float_control_changed();
                    for _ in 0..10 {
                        here.call(server, &mut Message::of([1])).unwrap();
                        assert_eq!(get() & TOWARDS_ZERO, bits);
                        here.request(Request::Yield);
                        assert_eq!(get() & TOWARDS_ZERO, bits);
                    }
                })
                .unwrap();
        }
        assert_eq!(kernel.run().failures, []);
        assert_eq!(get() & TOWARDS_ZERO, 0);
    }
    each_kernel!(K => in_kernel::<K>());
}

/// The system gives the handler of the tick control words of its own.
#[test]
fn rounding_outlives_the_tick() {
    use rounding::{TOWARDS_ZERO, get, set};
    fn in_kernel<K: Variant>() {
        let mut kernel = kernel::<K>(Some(Duration::from_micros(200)));
        let turns: Rc<[Cell<u64>; 2]> = Rc::default();
        for (number, bits) in [0, TOWARDS_ZERO].into_iter().enumerate() {
            let turns = Rc::clone(&turns);
            kernel
                .spawn(7, move |mut here| {
                    set(get() | bits);
                    here.float_control_changed();
                    take_turns(&mut here, &turns, number);
                    for _ in 0..5 {
                        assert_eq!(get() & TOWARDS_ZERO, bits);
                        here.request(Request::Yield);
                    }
                })
                .unwrap();
        }
        assert_eq!(kernel.run().failures, [], "{}", K::NAME);
    }
    each_kernel!(K => in_kernel::<K>());
}
