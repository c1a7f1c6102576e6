//! Intents within a process: from just before they are sent until their receiver runs, of one
//! real-time sender, alone or among ordinary ones that send the same way as fast as they can.

use crate::arrivals::{self, UNNOTED};
use crate::broadcast::client;
use crate::broadcast::designs::{Design, LEVEL};
use crate::broadcast::processes::Processes;
use crate::broadcast::role::{Local, Method, Role};
use crate::child::{await_begin, forever, tell};
use crate::report::RowKey;
use crate::rt::caller;
use crate::service::{now_ns, sleep_until};
use baton_rt::SchedPriority;
use baton_rt::schedule::set_priority;
use baton_services::intent::Intent;
use baton_services::local::{LocalBroadcastManager, LocalDesign};
use baton_services::looper::Looper;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Numbers of senders, one of them a real-time one.
pub const SENDERS: [usize; 2] = [1, 10];
/// Time from one asynchronous intent to the next. Synchronous ones follow each other.
const PERIOD_NS: u64 = 500_000;
const N_WARM_UP: u32 = 200;
/// Intents that may be pending: ordinary senders wait beyond.
const MOST_PENDING: u64 = 100;
const PAUSE: Duration = Duration::from_micros(100);

impl Local {
    pub(crate) fn key(self) -> RowKey {
        let (senders, method) = (self.senders, self.method.into());
        let many = if senders == 1 { "sender" } else { "senders" };
        RowKey::new("baton", "local")
            .with("method", method)
            .with("senders", senders)
            .heading(format!("an intent within a process with {senders} {many}"))
            .label(method)
    }
}

/// A round of so many intents.
pub fn measure(local: Local, n_intents: u32) -> io::Result<Vec<u64>> {
    let mut processes = Processes::new(Design::Ours)?;
    let process = processes.start(Role::Local { local, n_intents })?;
    Ok(processes.get(process).ask("send", Duration::ZERO)?)
}

/// Sends, and tells how long each intent took.
pub fn run(Local { method, senders }: Local, n_intents: u32) -> io::Result<()> {
    caller::stay_in_memory();
    arrivals::expect(n_intents as usize);
    let looper = Looper::new(0..=LEVEL.into());
    let design = match method {
        Method::Original => LocalDesign::Original,
        Method::Asynchronous | Method::Synchronous => LocalDesign::Prioritized,
    };
    let manager = LocalBroadcastManager::new(looper.handler(), design);
    let [sent, received] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&received);
    let receive = move |intent: &Intent| {
        client::note(client::message(intent));
        counted.fetch_add(1, Ordering::Relaxed);
    };
    manager.register(client::filter(), receive).map_err(io::Error::other)?;
    thread::spawn(move || looper.run());
    let send = move |number: u64| {
        // What is noted is the time of its arrival.
        let intent = client::intent(&arrivals::message(0, number));
        sent.fetch_add(1, Ordering::Relaxed);
        let begin_ns = now_ns();
        let is_received = match method {
            Method::Synchronous => manager.send_sync(&intent),
            Method::Original | Method::Asynchronous => manager.send(intent),
        };
        assert_eq!(is_received, Ok(true), "a receiver is registered");
        let n_received = received.load(Ordering::Relaxed);
        (begin_ns, sent.load(Ordering::Relaxed).saturating_sub(n_received))
    };
    for _ in 1..senders {
        let send = send.clone();
        thread::spawn(move || {
            loop {
                let (_, n_pending) = send(UNNOTED);
                if n_pending > MOST_PENDING {
                    thread::sleep(PAUSE);
                }
            }
        });
    }
    await_begin()?;
    set_priority(SchedPriority::fifo(LEVEL), None).map_err(io::Error::other)?;
    let mut due_ns = now_ns();
    let mut next = |number| {
        if method != Method::Synchronous {
            due_ns = now_ns().max(due_ns + PERIOD_NS);
            sleep_until(due_ns);
        }
        send(number).0
    };
    (0..N_WARM_UP).for_each(|_| _ = next(UNNOTED));
    let begun_ns: Vec<u64> = (0..u64::from(n_intents)).map(&mut next).collect();
    let arrived_ns = arrivals::await_all()?;
    tell(&arrived_ns.iter().zip(&begun_ns).map(|(end, begin)| end - begin).collect::<Vec<_>>())?;
    forever()
}
