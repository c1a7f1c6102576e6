//! The order in which callers of different priorities are served, and the priority of the kernel's
//! OS thread.
mod support;

use baton::{Parcel, Process, priority_changed};
use baton_host::{Call, Host, Running};
use baton_shm::schedule;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use support::{Broker, find, serve_manager};

/// The priority of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    Nice(i32),
    Fifo(i32),
}

impl Caller {
    /// Gives the calling thread this priority. False if the system refuses.
    fn apply(self) -> bool {
        let became = match self {
            Caller::Nice(value) => rustix::process::setpriority_process(None, value).is_ok(),
            Caller::Fifo(priority) => schedule::set(0, libc::SCHED_FIFO, priority).is_ok(),
        };
        priority_changed();
        became
    }

    fn is_permitted(self) -> bool {
        thread::spawn(move || self.apply()).join().unwrap()
    }
}

/// A service that all callers call. It keeps them waiting, and then records the order in which it
/// serves them.
struct Contention {
    broker: Broker,
    manager: Process,
    running: Arc<Running>,
    served: Arc<Mutex<Vec<u8>>>,
    is_held: mpsc::Receiver<()>,
    release: mpsc::Sender<()>,
    is_calling: mpsc::Receiver<()>,
    nice: i32,
}

/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(600);

const HOLD: u32 = 1;
const SERVE: u32 = 2;

/// The services through which the callers call: each caller has its own, as a service answers one
/// call at a time.
const RELAYS: [&str; 4] = ["relay0", "relay1", "relay2", "relay3"];

fn relay(calling: mpsc::Sender<()>) -> impl FnMut(&mut Call<'_>) -> Result<Parcel, Errno> + Send {
    move |call| {
        let target = call.find("server").map_err(|_| Errno::IO)?.ok_or(Errno::NOENT)?;
        calling.send(()).unwrap();
        // No other thread runs on the kernel's OS thread between this message and the call.
        let parcel = Parcel::from(call.data());
        call.call(&target, SERVE, &parcel).map_err(|_| Errno::IO)?;
        Ok(Parcel::new())
    }
}

impl Contention {
    /// `nice`: the nice value of the caller that holds the server.
    fn set(nice: i32) -> Contention {
        let broker = Broker::start();
        let manager = serve_manager(&broker);
        let served = Arc::<Mutex<Vec<u8>>>::default();
        let (held, is_held) = mpsc::channel();
        let (release, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let (calling, is_calling) = mpsc::channel();
        let mut host = Host::new();
        let writes = Arc::clone(&served);
        let server = move |call: &mut Call<'_>| {
            match call.code() {
                HOLD => call.run_blocking(|| {
                    held.send(()).unwrap();
                    may_go_on.lock().unwrap().recv().unwrap();
                }),
                _ => writes.lock().unwrap().push(call.data()[0]),
            }
            Ok(Parcel::new())
        };
        host.add("server", server).unwrap();
        host.add("probe", |_: &mut Call<'_>| Ok(Parcel::new())).unwrap();
        RELAYS.iter().for_each(|name| host.add(name, relay(calling.clone())).unwrap());
        let running = host.start("binder", &broker.socket).unwrap();
        running.publish().unwrap();
        let running = Arc::new(running);
        Contention { broker, manager, running, served, is_held, release, is_calling, nice }
    }

    /// Calls with a priority. A real-time caller calls through the driver, which serves it at its
    /// priority. Other callers are threads of the host's process, as the driver serves nobody at a
    /// worse nice value than a looper's own.
    fn call(&self, name: &'static str, code: u32, data: u8, caller: Caller) -> JoinHandle<()> {
        let (client, running) = (self.broker.open(), Arc::clone(&self.running));
        thread::spawn(move || {
            assert!(caller.apply());
            match caller {
                Caller::Nice(_) => drop(running.call(name, code, &[data]).unwrap()),
                Caller::Fifo(_) => {
                    let handle = find(&client, name);
                    assert!(handle.prepare(LONG).unwrap(), "it has no looper of its own");
                    drop(handle.call(code, &Parcel::from(&[data][..])).unwrap());
                }
            }
        })
    }

    /// Starts these callers one after the other while the server is held, and returns the order in
    /// which they are served.
    fn order(self, callers: &[Caller]) -> Vec<Caller> {
        let mut calls = vec![self.call("server", HOLD, 0, Caller::Nice(self.nice))];
        self.is_held.recv().unwrap();
        for (number, &caller) in callers.iter().enumerate() {
            calls.push(self.call(RELAYS[number], SERVE, number as u8, caller));
            self.is_calling.recv().unwrap();
            // The caller waits for the server by the time the kernel has served this call.
            self.running.call("probe", SERVE, b"").unwrap();
        }
        self.release.send(()).unwrap();
        calls.into_iter().for_each(|call| call.join().unwrap());
        let served = self.served.lock().unwrap().clone();
        self.manager.close();
        served.into_iter().map(|number| callers[usize::from(number)]).collect()
    }
}

#[test]
fn the_most_urgent_caller_is_served_first() {
    use Caller::{Fifo, Nice};
    // An ordinary user's thread can only lower its priority.
    let own = rustix::process::getpriority_process(None).unwrap();
    if own > 9 {
        println!("skipped: the_most_urgent_caller_is_served_first (at nice {own} all are alike)");
        return;
    }
    let [urgent, middling, least] = [0, 5, 10].map(|more| Nice(own + more));
    let order = Contention::set(own).order(&[least, urgent, middling]);
    assert_eq!(order, [urgent, middling, least]);
    if !Fifo(30).is_permitted() {
        println!("skipped: the_most_urgent_caller_is_served_first (no real-time priority here)");
        return;
    }
    let order = Contention::set(own).order(&[urgent, Fifo(20), urgent, Fifo(30)]);
    assert_eq!(order, [Fifo(30), Fifo(20), urgent, urgent]);
}

/// The priority at which the system schedules the calling thread: below -1 for a real-time one, or
/// one that inherits a real-time priority.
fn scheduled_at() -> i32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().nth(15).unwrap().parse().unwrap()
}

#[test]
fn the_kernels_thread_inherits_its_callers_priority() {
    if !Caller::Fifo(30).is_permitted() {
        println!(
            "skipped: the_kernels_thread_inherits_its_callers_priority (no real-time priority here)"
        );
        return;
    }
    let broker = Broker::start();
    let mut host = Host::new();
    // The caller may not be asleep yet.
    let inherits = |_: &mut Call<'_>| {
        while scheduled_at() != -31 {
            thread::yield_now();
        }
        Ok(Parcel::new())
    };
    host.add("inherits", inherits).unwrap();
    host.add("has", |_: &mut Call<'_>| Ok(Parcel::from(&scheduled_at().to_ne_bytes()[..])))
        .unwrap();
    let running = Arc::new(host.start("binder", &broker.socket).unwrap());
    let theirs = Arc::clone(&running);
    let caller = thread::spawn(move || {
        assert!(Caller::Fifo(30).apply());
        for _ in 0..100 {
            theirs.call("inherits", 1, b"").unwrap();
        }
    });
    caller.join().unwrap();
    // The thread has its own priority again.
    let has = running.call("has", 1, b"").unwrap();
    assert!(i32::from_ne_bytes(has.data().try_into().unwrap()) >= 0);
}
