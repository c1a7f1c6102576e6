//! The broadcast service and its clients.

use baton::android::{Reader, Write};
use baton::{CallError, CountedObject, Errno, Parcel, Process, SchedPriority, ServiceManager};
use baton_broker::{Config, Running};
use baton_manager::{Manager, Policy as Registrars, Release};
use baton_rt::schedule::set_priority;
use baton_services::broadcast::account::{MAX_RECEIVERS, MAX_UNDER_WAY};
use baton_services::broadcast::client::{BroadcastError, Delivery};
use baton_services::broadcast::components::{Components, Held};
use baton_services::broadcast::level::{Limits, Outcome, Skip};
use baton_services::broadcast::priority::EXTRA_PRIORITY;
use baton_services::broadcast::protocol::{self, Send};
use baton_services::broadcast::stats::LevelStats;
use baton_services::broadcast::{BroadcastManager, Server, Settings};
use baton_services::intent::{Component, ComponentKind, ComponentName};
use baton_services::intent::{Intent, IntentFilter, Manifest, Value};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The program's argument by which a test makes this file the program of another process.
const ROLE: &str = "BROADCAST_TEST_ROLE";

/// The index of the service among the processes that are served.
const SERVICE: usize = 1;

/// A broker, a service manager, the broadcast service, and the threads that serve until the test
/// ends.
struct World {
    serving: Vec<(Process, JoinHandle<()>)>,
    server: Option<Server>,
    service: Process,
    _manager: Manager,
    broker: Running,
    _directory: tempfile::TempDir,
}

impl World {
    fn new(settings: Settings) -> World {
        let directory = tempfile::tempdir().unwrap();
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let open = || Process::open("binder", broker.socket()).unwrap();
        let (context, service) = (open(), open());
        let manager = Manager::start(&context, Release::Sixteen, Registrars::Everyone).unwrap();
        let mut serving = Vec::new();
        serve(&mut serving, &context);
        let server = Server::start(&service, settings).unwrap();
        serve(&mut serving, &service);
        let names = ServiceManager::find(&service).unwrap();
        names.publish(protocol::NAME, server.object()).unwrap();
        let server = Some(server);
        World { serving, server, service, _manager: manager, broker, _directory: directory }
    }

    /// Ends the service, and starts the next one.
    fn restart(&mut self, settings: Settings) {
        self.server = None;
        let (process, looper) = self.serving.remove(SERVICE);
        process.close();
        looper.join().unwrap();
        self.service = Process::open("binder", self.broker.socket()).unwrap();
        let server = Server::start(&self.service, settings).unwrap();
        server.go_on().unwrap();
        serve(&mut self.serving, &self.service);
        let last = self.serving.pop().unwrap();
        self.serving.insert(SERVICE, last);
        let names = ServiceManager::find(&self.service).unwrap();
        names.publish(protocol::NAME, server.object()).unwrap();
        self.server = Some(server);
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// A process of its own, as the broker sees it.
    fn client(&mut self) -> BroadcastManager {
        let process = Process::open("binder", self.broker.socket()).unwrap();
        serve(&mut self.serving, &process);
        BroadcastManager::find(&process).unwrap()
    }
}

fn serve(serving: &mut Vec<(Process, JoinHandle<()>)>, process: &Process) {
    let its = process.clone();
    serving.push((process.clone(), std::thread::spawn(move || _ = its.serve())));
}

impl Drop for World {
    fn drop(&mut self) {
        for (process, looper) in self.serving.drain(..) {
            process.close();
            let _ = looper.join();
        }
    }
}

/// A receiver that tells the action, and the data of the result so far.
fn tell(
    tell: &Sender<(String, Option<String>)>,
) -> impl Fn(Delivery) + std::marker::Send + Sync + use<> {
    let tell = Mutex::new(tell.clone());
    move |delivery| {
        let action = delivery.intent().action.clone().unwrap();
        let _ = tell.lock().unwrap().send((action, delivery.outcome().data.clone()));
    }
}

fn filter(action: &str, priority: i32) -> IntentFilter {
    IntentFilter { priority, ..IntentFilter::new(action) }
}

fn next<T>(told: &Receiver<T>) -> T {
    told.recv().expect("somebody tells")
}

#[test]
fn a_parallel_broadcast_reaches_all_that_match_and_nobody_else() {
    let mut world = World::new(Settings::default());
    let (one, other, sender) = (world.client(), world.client(), world.client());
    let (teller, told) = mpsc::channel();
    one.register(filter("a", 0), None, None, tell(&teller)).unwrap();
    let registered = other.register(filter("a", 0), None, None, tell(&teller)).unwrap();
    other.register(filter("b", 0), None, None, tell(&teller)).unwrap();
    let mut intent = Intent::new("a");
    intent.extras.put("text", "äöü");
    assert_eq!(sender.send(&intent).unwrap(), 2);
    assert_eq!([next(&told).0, next(&told).0], ["a", "a"]);
    assert_eq!(sender.send(&Intent::new("nobody's")).unwrap(), 0);
    other.unregister(&registered).unwrap();
    assert_eq!(sender.send(&intent).unwrap(), 1);
    assert_eq!(sender.send(&Intent::new("b")).unwrap(), 1);
    let mut rest = [next(&told).0, next(&told).0];
    rest.sort();
    assert_eq!(rest, ["a", "b"]);
    assert!(matches!(other.unregister(&registered), Err(BroadcastError::Refused(_))));
    let report = sender.report().unwrap();
    assert_eq!(report.receivers.len(), 2);
    assert_eq!(report, world.server().report());
}

#[test]
fn receivers_and_sticky_broadcasts_outlive_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let settings =
        || Settings { journal: Some(directory.path().join("journal")), ..Settings::default() };
    let mut world = World::new(settings());
    let (one, sender) = (world.client(), world.client());
    let (teller, told) = mpsc::channel();
    let kept = |text: &str| {
        let mut intent = Intent::new("kept");
        intent.extras.put("text", text);
        Send { intent, is_sticky: true, ..Send::default() }
    };
    let tell_text = |name: &'static str| {
        let teller = Mutex::new(teller.clone());
        move |delivery: Delivery| {
            let text = delivery.intent().extras.get("text").cloned();
            let _ = teller.lock().unwrap().send((name, delivery.is_sticky(), text));
        }
    };
    let text = |text: &str| Some(Value::String(text.to_owned()));
    for sent in ["older", "newer"] {
        sender.send_with(&kept(sent)).unwrap();
    }
    one.register(filter("kept", 0), None, None, tell_text("one")).unwrap();
    assert_eq!(next(&told), ("one", true, text("newer")));

    world.restart(settings());
    // Accepted before the receiver is back, or after it.
    let other = world.client();
    let process = Process::open("binder", world.broker.socket()).unwrap();
    serve(&mut world.serving, &process);
    let sender = BroadcastManager::find(&process).unwrap();
    let mut again = kept("again");
    again.is_sticky = false;
    assert_eq!(sender.send_with(&again), Ok(1));
    assert_eq!(next(&told), ("one", false, text("again")), "and the sticky one once");
    other.register(filter("kept", 0), None, None, tell_text("other")).unwrap();
    assert_eq!(next(&told), ("other", true, text("newer")));
    assert_eq!(world.server().report().stickies.len(), 1);
    assert_eq!(world.server().report().receivers.len(), 2);
}

#[test]
fn an_ordered_broadcast_goes_by_filter_priority_and_passes_its_result_on() {
    let mut world = World::new(Settings::default());
    let (receiver, sender) = (world.client(), world.client());
    let seen = Arc::new(Mutex::new(Vec::<(i32, Option<String>)>::new()));
    for priority in [-5, 100, 7] {
        let seen = Arc::clone(&seen);
        let receive = move |mut delivery: Delivery| {
            let before = delivery.outcome().clone();
            assert!(delivery.is_ordered() && !delivery.is_sticky());
            seen.lock().unwrap().push((priority, before.data));
            let data = Some(format!("after {priority}"));
            delivery.set_outcome(Outcome { code: before.code + 1, data, extras: None });
            if priority == 7 && delivery.intent().extras.get("abort").is_some() {
                delivery.abort();
            }
        };
        receiver.register(filter("a", priority), None, None, receive).unwrap();
    }
    for (aborts, code, last) in [(false, 13, "after -5"), (true, 12, "after 7")] {
        let (teller, told) = mpsc::channel();
        let teller = Mutex::new(teller);
        let result = move |delivery: Delivery| {
            teller.lock().unwrap().send(delivery.outcome().clone()).unwrap();
        };
        let mut intent = Intent::new("a");
        if aborts {
            intent.extras.put("abort", true);
        }
        let initial = Outcome { code: 10, data: Some("first".to_owned()), extras: None };
        let send = Send { intent, initial, ..Send::default() };
        assert_eq!(sender.send_ordered(&send, result).unwrap(), 3);
        let outcome = next(&told);
        assert_eq!((outcome.code, outcome.data.as_deref()), (code, Some(last)));
        let expected = [(100, "first"), (7, "after 100"), (-5, "after 7")];
        let expected = expected.map(|(priority, data)| (priority, Some(data.to_owned())));
        let n_seen = if aborts { 2 } else { 3 };
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), expected[..n_seen]);
    }
}

#[test]
fn a_sticky_broadcast_is_there_for_later_receivers_until_it_is_removed() {
    let mut world = World::new(Settings::default());
    let (receiver, sender) = (world.client(), world.client());
    let (teller, told) = mpsc::channel();
    let teller = Mutex::new(teller);
    let teller = Arc::new(teller);
    let register = || {
        let teller = Arc::clone(&teller);
        let receive = move |delivery: Delivery| {
            let value = delivery.intent().extras.get("value").cloned();
            teller.lock().unwrap().send((delivery.is_sticky(), value)).unwrap();
        };
        receiver.register(filter("a", 0), None, None, receive).unwrap();
    };
    let intent = |value: i32| {
        let mut intent = Intent::new("a");
        intent.extras.put("value", value);
        intent
    };
    for value in [1, 2] {
        let send = Send { intent: intent(value), is_sticky: true, ..Send::default() };
        assert_eq!(sender.send_with(&send).unwrap(), 0);
    }
    register();
    assert_eq!(next(&told), (true, Some(2.into())), "the newer one");
    let send = Send { intent: intent(3), is_sticky: true, ..Send::default() };
    assert_eq!(sender.send_with(&send).unwrap(), 1);
    assert_eq!(next(&told), (false, Some(3.into())));
    assert_eq!(sender.report().unwrap().stickies.len(), 1);
    sender.remove_sticky(&Intent::new("a")).unwrap();
    register();
    sender.send(&intent(4)).unwrap();
    assert_eq!([next(&told), next(&told)], [(false, Some(4.into())), (false, Some(4.into()))]);
}

#[test]
fn a_receiver_that_hangs_or_dies_is_skipped_and_named_and_holds_up_nobody_else() {
    let limits = Limits { receive_ns: 20_000_000, ..Settings::default().limits };
    let mut world = World::new(Settings { limits, ..Settings::default() });
    let (hanging, panicking, good, sender) =
        (world.client(), world.client(), world.client(), world.client());
    let (teller, told) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let hang = move |_| _ = held.lock().unwrap().recv();
    hanging.register(filter("a", 100), None, None, hang).unwrap();
    // Without a message: the panic's hook may take longer than the time-out.
    let panic = |_| std::panic::resume_unwind(Box::new("this receiver dies in onReceive"));
    panicking.register(filter("a", 50), None, None, panic).unwrap();
    good.register(filter("a", 0), None, None, tell(&teller)).unwrap();
    good.register(filter("b", 0), None, None, tell(&teller)).unwrap();
    let ordered = Send { intent: Intent::new("a"), ..Send::default() };
    let result = tell(&teller);
    assert_eq!(sender.send_ordered(&ordered, result).unwrap(), 3);
    // The hanging receiver's own broadcast waits. This one may come before it or after it.
    sender.send(&Intent::new("b")).unwrap();
    let mut actions = [next(&told).0, next(&told).0, next(&told).0];
    actions.sort();
    assert_eq!(actions, ["a", "a", "b"]);
    let skipped = world.server().report().skipped;
    assert_eq!((skipped[0].why, skipped[0].action.as_deref()), (Skip::Slow, Some("a")));
    assert!(skipped[0].receiver.starts_with("receiver 1 of process "), "{skipped:?}");
    drop(release);
}

#[test]
fn a_user_who_floods_the_service_or_registers_without_end_is_refused() {
    let mut world = World::new(Settings::default());
    let (receiver, sender) = (world.client(), world.client());
    let message = |refused: Result<i32, BroadcastError>| refused.unwrap_err().to_string();
    let (teller, told) = mpsc::channel();
    // Ordered broadcasts to a receiver that does not finish are under way until the time-out.
    let kept: Arc<Mutex<Vec<Delivery>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let first = receiver
        .register(filter("kept", 0), None, None, move |delivery| {
            keep.lock().unwrap().push(delivery);
        })
        .unwrap();
    let send = Send { intent: Intent::new("kept"), is_ordered: true, ..Send::default() };
    for _ in 0..MAX_UNDER_WAY {
        assert_eq!(sender.send_with(&send).unwrap(), 1);
    }
    let refused = message(sender.send_with(&send));
    assert!(refused.contains("1000 ordinary broadcasts under way"), "{refused}");
    receiver.unregister(&first).unwrap();
    for _ in 0..MAX_RECEIVERS {
        receiver.register(filter("b", 0), None, None, tell(&teller)).unwrap();
    }
    let refused = receiver.register(filter("b", 0), None, None, tell(&teller)).unwrap_err();
    assert!(refused.to_string().contains("1000 receivers registered"), "{refused}");
    // Unregistered receivers are skipped: the broadcasts come to their ends.
    while sender.report().unwrap().priorities[0].pending != 0 {
        std::thread::yield_now();
    }
    assert_eq!(sender.send(&Intent::new("b")).unwrap(), MAX_RECEIVERS as i32);
    (0..MAX_RECEIVERS).for_each(|_| assert_eq!(next(&told).0, "b"));
    kept.lock().unwrap().clear();
}

#[test]
fn a_registration_that_is_refused_leaves_no_receiver() {
    let mut world = World::new(Settings::default());
    let (receiver, sender) = (world.client(), world.client());
    let sticky = Send { intent: Intent::new("sticky"), is_sticky: true, ..Send::default() };
    sender.send_with(&sticky).unwrap();
    let kept: Arc<Mutex<Vec<Delivery>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let keeps = move |delivery| keep.lock().unwrap().push(delivery);
    let first = receiver.register(filter("kept", 0), None, None, keeps).unwrap();
    let send = Send { intent: Intent::new("kept"), is_ordered: true, ..Send::default() };
    (0..MAX_UNDER_WAY).for_each(|_| assert_eq!(sender.send_with(&send), Ok(1)));
    // The sticky broadcast would be one more.
    let refused = receiver.register(filter("sticky", 0), None, None, |_| {}).unwrap_err();
    assert!(refused.to_string().contains("broadcasts under way"), "{refused}");
    assert_eq!(sender.report().unwrap().receivers.len(), 1);
    receiver.unregister(&first).unwrap();
    kept.lock().unwrap().clear();
}

#[test]
fn malformed_requests_are_refused_by_what_is_wrong_with_them() {
    let mut world = World::new(Settings::default());
    let client = world.client();
    let process = Process::open("binder", world.broker.socket()).unwrap();
    let names = ServiceManager::find(&process).unwrap();
    let service = names.service(protocol::NAME).unwrap().unwrap();
    let call = |code: u32, interface: &str| {
        let mut request = Parcel::new();
        request.write_token(interface);
        let answer = service.call(code, &request).unwrap();
        let status = Reader::new(answer.data()).status();
        status.unwrap().unwrap_err().message
    };
    for (code, interface, wrong) in [
        (3, protocol::RECEIVER, "none of baton.app.IBroadcastManager"),
        (99, protocol::MANAGER, "no method 99"),
        (3, protocol::MANAGER, "the argument intent is missing"),
        (1, protocol::MANAGER, "the argument receiver is missing"),
        (5, protocol::MANAGER, "the argument token is missing"),
    ] {
        let said = call(code, interface);
        assert!(said.contains(wrong), "{code}: {said}");
    }
    // Android's `cmd` takes a reply for success, and waits for a result.
    let shell_command = service.call(u32::from_be_bytes(*b"_CMD"), &Parcel::new());
    assert_eq!(shell_command.err(), Some(CallError::Refused(Errno::NOSYS)));
    let refused = client.register(IntentFilter::default(), None, None, |_| {}).unwrap_err();
    assert!(refused.to_string().contains("no action"), "{refused}");
    let mut intent = Intent::new("a");
    intent.extras.put(EXTRA_PRIORITY, 100);
    let refused = client.send(&intent).unwrap_err();
    assert!(refused.to_string().contains("not within 0 to 99"), "{refused}");
    let nobody = ComponentName { package: "p".to_owned(), class: "C".to_owned() };
    let refused = client.attach(nobody, |_| {}).unwrap_err();
    assert!(refused.to_string().contains("no manifest"), "{refused}");
    // Nothing of it keeps lower levels waiting.
    let (teller, told) = mpsc::channel();
    client.register(filter("a", 0), None, None, tell(&teller)).unwrap();
    client.send(&Intent::new("a")).unwrap();
    assert_eq!(next(&told).0, "a");
}

/// Each ordered broadcast has a receiver of its result.
#[test]
fn receivers_that_have_done_their_work_go() {
    let mut world = World::new(Settings::default());
    let client = world.client();
    let (token, gone) = mpsc::channel::<()>();
    let kept = token.clone();
    let receiver = client.register(filter("a", 0), None, None, move |_| drop(kept.clone()));
    for _ in 0..3 {
        let kept = token.clone();
        let send = Send { intent: Intent::new("a"), ..Send::default() };
        assert_eq!(client.send_ordered(&send, move |_| drop(kept.clone())).unwrap(), 1);
    }
    client.unregister(&receiver.unwrap()).unwrap();
    drop(token);
    assert!(gone.recv().is_err(), "no receiver has a sender any more");
}

#[test]
fn a_receiver_that_is_registered_twice_with_one_key_is_there_once() {
    let world = World::new(Settings::default());
    let process = Process::open("binder", world.broker.socket()).unwrap();
    let names = ServiceManager::find(&process).unwrap();
    let service = names.service(protocol::NAME).unwrap().unwrap();
    let objects = [(); 2].map(|()| process.object(|_| Ok(Parcel::new())).add_counted());
    let (filter, permission, package) = (IntentFilter::new("a"), None, None);
    let request = protocol::Request::Register { filter, permission, package, key: 7 };
    let register = |object: &CountedObject| {
        let (code, parcel) = protocol::encode(&request, Some(object));
        let answer = service.call(code, &parcel).unwrap();
        Reader::new(answer.data()).status().unwrap()
    };
    assert_eq!([register(&objects[0]), register(&objects[0])], [Ok(()), Ok(())]);
    let refused = register(&objects[1]).unwrap_err();
    assert!(refused.message.contains("another receiver of this process"), "{refused:?}");
    assert_eq!(world.server().report().receivers.len(), 1);
}

fn manifest(filter: IntentFilter) -> Manifest {
    let component = Component {
        name: ComponentName { package: "p".to_owned(), class: "p.C".to_owned() },
        kind: ComponentKind::Receiver,
        process: "p".to_owned(),
        exported: true,
        permission: None,
        filters: vec![filter],
        authorities: Default::default(),
        meta_data: Default::default(),
        program: None,
    };
    Manifest {
        package: "p".to_owned(),
        uid: None,
        persistent: false,
        real_time: false,
        components: vec![component],
    }
}

#[test]
fn a_receiver_of_a_manifest_is_started_for_its_first_broadcast() {
    let (ask, asked) = mpsc::channel();
    let ask = Mutex::new(ask);
    // The process manager's part: here the test starts the component.
    let start = move |name: &ComponentName| {
        let asked = ask.lock().unwrap().send(name.clone());
        asked.map(|()| Box::new(()) as Held).map_err(|error| error.to_string())
    };
    let components = Components { start: Box::new(start), ..Components::default() };
    let settings = Settings { components, ..Settings::default() };
    let mut world = World::new(settings);
    let uid = rustix::process::geteuid().as_raw();
    world.server().install(&manifest(filter("a", 0)), uid).unwrap();
    let (component, sender) = (world.client(), world.client());
    assert_eq!(sender.send(&Intent::new("a")).unwrap(), 1);
    let name = next(&asked);
    assert_eq!(name.class, "p.C");
    let (teller, told) = mpsc::channel();
    component.attach(name.clone(), tell(&teller)).unwrap();
    assert_eq!(next(&told).0, "a", "the one that it was started for");
    assert_eq!(sender.send(&Intent::new("a")).unwrap(), 1);
    assert_eq!(next(&told).0, "a");
    // An explicit intent needs no filter.
    let explicit = Intent { component: Some(name.clone()), ..Intent::new("other") };
    assert_eq!(sender.send(&explicit).unwrap(), 1);
    assert_eq!(next(&told).0, "other");
    assert!(asked.try_recv().is_err(), "it runs");
    // Nor does a component.
    let mut without = manifest(filter("a", 0));
    without.components[0].filters.clear();
    world.server().install(&without, uid).unwrap();
    assert_eq!(sender.send(&Intent::new("a")).unwrap(), 0);
    assert_eq!(sender.send(&explicit).unwrap(), 1);
    assert_eq!(next(&asked), name);
    component.attach(name, tell(&teller)).unwrap();
    assert_eq!(next(&told).0, "other");
    // One that does not start is skipped.
    world.server().install(&manifest(filter("b", 0)), uid).unwrap();
    let result = tell(&teller);
    let ordered = Send { intent: Intent::new("b"), ..Send::default() };
    sender.send_ordered(&ordered, result).unwrap();
    world.server().not_started(&next(&asked));
    assert_eq!(next(&told).0, "b", "the result");
    assert_eq!(world.server().report().skipped[0].why, Skip::NotStarted);
}

#[test]
fn registered_receivers_come_before_a_manifests_of_the_same_priority() {
    let mut world = World::new(Settings::default());
    let uid = rustix::process::geteuid().as_raw();
    world.server().install(&manifest(filter("a", 0)), uid).unwrap();
    let (component, registered, sender) = (world.client(), world.client(), world.client());
    let (teller, told) = mpsc::channel();
    let note = |name: &'static str| {
        let teller = Mutex::new(teller.clone());
        move |_| teller.lock().unwrap().send(name).unwrap()
    };
    let name = ComponentName { package: "p".to_owned(), class: "p.C".to_owned() };
    component.attach(name, note("component")).unwrap();
    for (name, priority) in [("low", -1), ("same", 0), ("high", 1)] {
        registered.register(filter("a", priority), None, None, note(name)).unwrap();
    }
    let ordered = Send { intent: Intent::new("a"), ..Send::default() };
    assert_eq!(sender.send_ordered(&ordered, note("result")), Ok(4));
    assert!(told.iter().take(5).eq(["high", "same", "component", "low", "result"]));
}

/// The levels' counts once nothing is under way: a receiver may come before its delivery counts.
fn at_rest(sender: &BroadcastManager) -> Vec<LevelStats> {
    loop {
        let stats = sender.report().unwrap().priorities;
        if stats.iter().all(|stats| stats.pending == 0) {
            return stats;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_broadcast_has_its_senders_priority_or_a_lower_one() {
    let mut world = World::new(Settings::default());
    let (receiver, sender) = (world.client(), world.client());
    let (teller, told) = mpsc::channel();
    receiver.register(filter("a", 0), None, None, tell(&teller)).unwrap();
    let sending = std::thread::spawn(move || {
        if set_priority(SchedPriority::fifo(2), None).is_err() {
            return None;
        }
        baton::priority_changed();
        for (extra, _) in EXTRAS {
            let mut intent = Intent::new("a");
            if let Some(extra) = extra {
                intent.extras.put(EXTRA_PRIORITY, extra);
            }
            sender.send(&intent).unwrap();
        }
        Some(sender)
    });
    const EXTRAS: [(Option<i32>, usize); 4] =
        [(None, 2), (Some(1), 1), (Some(80), 2), (Some(0), 0)];
    let Some(sender) = sending.join().unwrap() else {
        return println!("skipped: no real-time priority here");
    };
    EXTRAS.iter().for_each(|_| assert_eq!(next(&told).0, "a"));
    let stats = at_rest(&sender);
    let counts: Vec<_> = stats.iter().map(|stats| (stats.priority, stats.ended)).collect();
    assert_eq!(counts, [(2, 2), (1, 1), (0, 1)]);
}

/// A broadcast of a test of the order: its level, and when its call began and ended, by a counter.
struct Sent {
    number: i32,
    level: i32,
    began: u32,
    ended: u32,
}

/// Table 7.1 of the thesis: senders at priority 9 give their broadcasts random ones.
#[test]
fn later_and_less_urgent_broadcasts_of_many_senders_arrive_later() {
    const N_SENDERS: i32 = 4;
    const N_EACH: i32 = 100;
    let mut world = World::new(Settings::default());
    let (receiver, sender) = (world.client(), world.client());
    let arrived: Arc<Mutex<Vec<i32>>> = Arc::default();
    let (teller, told) = mpsc::channel();
    let (arrivals, teller) = (Arc::clone(&arrived), Mutex::new(teller));
    let receive = move |delivery: Delivery| {
        let Some(Value::Integer(number)) = delivery.intent().extras.get("number") else { return };
        let mut arrived = arrivals.lock().unwrap();
        arrived.push(*number);
        if arrived.len() == (N_SENDERS * N_EACH) as usize {
            teller.lock().unwrap().send(()).unwrap();
        }
    };
    receiver.register(filter("a", 0), None, None, receive).unwrap();
    let clock = Arc::new(AtomicU32::new(0));
    let senders = (0..N_SENDERS).map(|first| {
        let (sender, clock) = (sender.clone(), Arc::clone(&clock));
        std::thread::spawn(move || {
            set_priority(SchedPriority::fifo(9), None).ok()?;
            baton::priority_changed();
            let mut random = ChaCha8Rng::seed_from_u64(first as u64);
            let sent = (0..N_EACH).map(|number| {
                let (number, level) = (first * N_EACH + number, (random.next_u32() % 10) as i32);
                let mut intent = Intent::new("a");
                intent.extras.put("number", number);
                intent.extras.put(EXTRA_PRIORITY, level);
                let began = clock.fetch_add(1, Ordering::SeqCst);
                sender.send(&intent).unwrap();
                Sent { number, level, began, ended: clock.fetch_add(1, Ordering::SeqCst) }
            });
            Some(sent.collect::<Vec<Sent>>())
        })
    });
    let senders: Vec<_> = senders.collect();
    let sent: Vec<_> = senders.into_iter().map(|thread| thread.join().unwrap()).collect();
    let Some(sent) = sent.into_iter().collect::<Option<Vec<_>>>() else {
        return println!("skipped: no real-time priority here");
    };
    next(&told);
    let arrived = arrived.lock().unwrap();
    let place: HashMap<i32, usize> =
        arrived.iter().enumerate().map(|(place, number)| (*number, place)).collect();
    assert_eq!(place.len(), arrived.len(), "none comes twice");
    let sent: Vec<Sent> = sent.into_iter().flatten().collect();
    for stats in at_rest(&sender) {
        let n_sent = sent.iter().filter(|sent| sent.level as usize == stats.priority).count();
        assert_eq!(
            stats.delivered, n_sent as u64,
            "each has the level that it asks for: {stats:?}"
        );
    }
    for high in &sent {
        for low in sent.iter().filter(|low| low.level < high.level && low.began > high.ended) {
            assert!(place[&high.number] < place[&low.number], "{} {}", high.number, low.number);
        }
    }
}

#[test]
fn receivers_come_back_when_the_service_does() {
    let mut world = World::new(Settings::default());
    let receiver = world.client();
    let (teller, told) = mpsc::channel();
    receiver.register(filter("a", 0), None, None, tell(&teller)).unwrap();
    world.server = None;
    world.service.close();
    let process = Process::open("binder", world.broker.socket()).unwrap();
    let server = Server::start(&process, Settings::default()).unwrap();
    serve(&mut world.serving, &process);
    let names = ServiceManager::find(&process).unwrap();
    names.publish(protocol::NAME, server.object()).unwrap();
    let sender = world.client();
    while sender.send(&Intent::new("a")).unwrap() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(next(&told).0, "a");
    world.server = Some(server);
}

/// Another process, which registers receivers and says so.
fn child(role: &str, socket: &Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_process_of_another_test", "--exact", "--nocapture", "--ignored"])
        .env(ROLE, role)
        .env("BATON_SOCKET", socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "ready" {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the child has ended");
    }
    (child, lines)
}

#[test]
#[ignore = "it is run by other tests"]
fn a_process_of_another_test() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let process = Process::open("binder", &baton::socket_path(0)).unwrap();
    let manager = BroadcastManager::find(&process).unwrap();
    let serving = process.clone();
    let looper = std::thread::spawn(move || serving.serve());
    let receive = move |_| match role.as_str() {
        "hangs" => loop {
            std::thread::park();
        },
        "dies" => std::process::abort(),
        _ => {}
    };
    for _ in 0..20 {
        manager.register(filter("a", 10), None, None, receive.clone()).unwrap();
    }
    println!("ready");
    let _ = looper.join();
}

#[test]
fn the_registrations_of_a_killed_process_are_dropped() {
    let mut world = World::new(Settings::default());
    let sender = world.client();
    let (mut killed, _lines) = child("waits", world.broker.socket());
    assert_eq!(sender.report().unwrap().receivers.len(), 20);
    killed.kill().unwrap();
    killed.wait().unwrap();
    while !sender.report().unwrap().receivers.is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(sender.send(&Intent::new("a")).unwrap(), 0);
}

#[test]
fn processes_that_hang_or_die_in_a_receiver_keep_nobody_from_anything() {
    let mut world = World::new(Settings::default());
    let (receiver, sender) = (world.client(), world.client());
    let (teller, told) = mpsc::channel();
    receiver.register(filter("a", 0), None, None, tell(&teller)).unwrap();
    let (mut hanging, _hanging) = child("hangs", world.broker.socket());
    let (mut dying, _dying) = child("dies", world.broker.socket());
    let ordered = Send { intent: Intent::new("a"), ..Send::default() };
    sender.send_ordered(&ordered, tell(&teller)).unwrap();
    // A parallel one passes the ordered one, which waits for a receiver that hangs.
    sender.send(&Intent::new("a")).unwrap();
    assert_eq!(next(&told).0, "a");
    dying.wait().unwrap();
    hanging.kill().unwrap();
    hanging.wait().unwrap();
    // Now the ordered one comes to its receiver and its end.
    assert_eq!([next(&told).0, next(&told).0], ["a", "a"]);
}
