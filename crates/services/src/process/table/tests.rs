use super::*;
use crate::intent::{Program, ProgramForm};
use crate::process::class::MinFree;
use crate::process::killer::{Candidate, Memory, Stall, choose};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const ROOT: Caller = Caller { pid: 1, uid: 0 };
const MANAGER: u32 = 500;
const MINUTE: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

/// A package with one process for each component, of the same name. `uid` is 10,000 and more.
fn package(name: &str, uid: u32, components: &[(&str, ComponentKind)]) -> Package {
    let declared = |&(name, kind): &(&str, ComponentKind)| {
        (name.to_owned(), Declared { kind, process: name.to_owned(), exported: true })
    };
    let true_ = Program { form: ProgramForm::Executed, path: "true".into(), arguments: Vec::new() };
    let program = |&(name, _): &(&str, ComponentKind)| (name.to_owned(), true_.clone());
    Package {
        name: name.to_owned(),
        uid: Some(uid),
        persistent: false,
        is_home: false,
        real_time: false,
        components: components.iter().map(declared).collect(),
        programs: components.iter().map(program).collect(),
    }
}

fn target(text: &str) -> ComponentName {
    ComponentName::parse(text).unwrap()
}

/// A table whose processes run as soon as they are started: with their id as their pid.
struct Machine {
    table: Table,
    now: Time,
    said: Vec<String>,
}

impl Machine {
    fn new(packages: Vec<Package>) -> Machine {
        let mut machine = Machine { table: Table::new(MANAGER), now: at(0), said: Vec::new() };
        for package in packages {
            let effects = machine.table.add(package, at(0)).unwrap();
            machine.carry_out(effects);
        }
        machine
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start(id) => {
                    let more = self.table.started(id, id.0 as u32, self.now);
                    self.carry_out(more);
                }
                Effect::Kill(id, _) => {
                    let more = self.table.died(id, self.now);
                    self.carry_out(more);
                }
                Effect::Enter(_, name, state) => self.said.push(format!("{name} {}", state.name())),
                Effect::Adjust(..) => {}
            }
        }
    }

    fn start(&mut self, text: &str) -> u32 {
        let (id, effects) = self.table.start(ROOT, &target(text), self.now).unwrap();
        self.carry_out(effects);
        id.0 as u32
    }

    fn bind(&mut self, client: u32, text: &str) -> u32 {
        let caller = Caller { pid: client, uid: 0 };
        let (id, effects) = self.table.bind(caller, &target(text), self.now).unwrap();
        self.carry_out(effects);
        id.0 as u32
    }

    fn ask(&mut self, uid: u32, pid: u32, wanted: i32) -> Result<(), Refusal> {
        let wanted = Adjustment::new(wanted);
        let effects = self.table.ask(Caller { pid, uid }, pid, wanted, self.now)?;
        self.carry_out(effects);
        Ok(())
    }

    fn adjustment(&self, pid: u32) -> i32 {
        self.table.process(ProcessId(pid.into())).unwrap().adjustment.get()
    }

    fn tick_at(&mut self, now: Time) {
        self.now = now;
        let effects = self.table.tick(now);
        self.carry_out(effects);
    }

    fn dies(&mut self, pid: u32) {
        let effects = self.table.died(ProcessId(pid.into()), self.now);
        self.carry_out(effects);
    }
}

use ComponentKind::{Activity, Provider, Receiver, Service};

#[test]
fn a_class_comes_from_what_a_process_does() {
    let mut home = package("home", 10_001, &[("screen", Activity)]);
    home.is_home = true;
    let mut system = package("system", 10_002, &[("core", Service)]);
    system.persistent = true;
    let app = [("one", Activity), ("two", Activity), ("work", Service), ("data", Provider)];
    let mut machine = Machine::new(vec![home, system, package("app", 10_003, &app)]);
    // The persistent one runs already.
    assert_eq!(machine.adjustment(1), -12);
    let screen = machine.start("home/screen");
    assert_eq!(machine.adjustment(screen), 0);
    let one = machine.start("app/one");
    assert_eq!((machine.adjustment(screen), machine.adjustment(one)), (4, 0));
    let two = machine.start("app/two");
    assert_eq!((machine.adjustment(one), machine.adjustment(two)), (7, 0));
    let work = machine.start("app/work");
    assert_eq!(machine.adjustment(work), 2);
    let data = machine.bind(work, "app/data");
    assert_eq!(machine.adjustment(data), 2, "a provider is as important as its client");
    machine.dies(work);
    assert_eq!(machine.adjustment(data), 14);
    // The foreground's end brings the activity below it back.
    machine.dies(two);
    assert_eq!(machine.adjustment(one), 0);
    let effects = machine.table.stop(ROOT, &target("app/one"), machine.now).unwrap();
    machine.carry_out(effects);
    assert_eq!((machine.adjustment(one), machine.adjustment(screen)), (15, 0));
    let effects = machine.table.back_up(ROOT, "app", true, machine.now).unwrap();
    machine.carry_out(effects);
    assert_eq!((machine.adjustment(one), machine.adjustment(data)), (3, 3));
}

#[test]
fn a_process_with_several_components_has_the_class_of_the_best() {
    let mut app = package("app", 10_001, &[("work", Service), ("data", Provider)]);
    app.components.get_mut("data").unwrap().process = "work".to_owned();
    let mut machine = Machine::new(vec![app, package("b", 10_002, &[("client", Service)])]);
    let client = machine.start("b/client");
    let work = machine.bind(client, "app/data");
    machine.start("app/work");
    let caller = Caller { pid: client, uid: 0 };
    let effects = machine.table.unbind(caller, &target("app/data"), machine.now).unwrap();
    machine.carry_out(effects);
    assert_eq!(machine.adjustment(work), 2);
    let effects = machine.table.stop(ROOT, &target("app/work"), machine.now).unwrap();
    machine.carry_out(effects);
    assert_eq!(machine.adjustment(work), 14);
}

#[test]
fn an_activity_is_visible_until_the_one_above_it_runs() {
    let app = package("app", 10_001, &[("one", Activity), ("two", Activity)]);
    let mut machine = Machine::new(vec![app]);
    let one = machine.start("app/one");
    let (two, effects) = machine.table.start(ROOT, &target("app/two"), machine.now).unwrap();
    assert_eq!(machine.adjustment(one), 1);
    machine.carry_out(effects);
    assert_eq!(machine.adjustment(one), 7);
    assert_eq!(machine.adjustment(two.0 as u32), 0);
    let effects = machine.table.stop(ROOT, &target("app/two"), machine.now).unwrap();
    machine.carry_out(effects);
    let expected = [
        "one created",
        "one started",
        "one resumed",
        "one paused",
        "two created",
        "two started",
        "two resumed",
        "one stopped",
        "two paused",
        "two stopped",
        "two destroyed",
        "one started",
        "one resumed",
    ];
    assert_eq!(machine.said, expected);
}

#[test]
fn every_way_through_the_states_is_one_of_the_figure() {
    use State::*;
    let all = [Created, Started, Resumed, Paused, Stopped, Destroyed];
    let edges = [
        (Created, Started),
        (Created, Destroyed),
        (Started, Resumed),
        (Started, Stopped),
        (Resumed, Paused),
        (Paused, Resumed),
        (Paused, Stopped),
        (Stopped, Started),
        (Stopped, Destroyed),
    ];
    for from in all {
        for to in all {
            let way = from.way(to);
            let mut last = from;
            for state in &way {
                assert!(edges.contains(&(last, *state)), "{from:?} to {to:?}: {way:?}");
                last = *state;
            }
            let is_possible = from != to && from != Destroyed && to != Created;
            assert_eq!(way.last().copied(), is_possible.then_some(to), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn a_service_is_demoted_after_long_disuse_and_comes_back_by_use() {
    let app = package("app", 10_001, &[("work", Service), ("client", Service)]);
    let mut machine = Machine::new(vec![app]);
    let work = machine.start("app/work");
    let due = machine.table.next_tick(machine.now).unwrap();
    assert_eq!(due, 30 * MINUTE);
    machine.tick_at(due - Duration::from_nanos(1));
    assert_eq!(machine.adjustment(work), 2);
    machine.tick_at(due);
    assert_eq!(machine.adjustment(work), 7);
    assert_eq!(machine.table.next_tick(machine.now), None);
    machine.start("app/work");
    assert_eq!(machine.adjustment(work), 2);
    // A client keeps a service that it uses where the client is.
    let client = machine.start("app/client");
    machine.bind(client, "app/work");
    machine.tick_at(due + 10 * MINUTE);
    machine.start("app/client");
    machine.tick_at(due + 35 * MINUTE);
    assert_eq!((machine.adjustment(client), machine.adjustment(work)), (2, 2));
}

#[test]
fn hidden_processes_are_ordered_by_their_last_use() {
    let names = ["a", "b", "c", "top"];
    let app = package("app", 10_001, &names.map(|name| (name, Activity)));
    let mut machine = Machine::new(vec![app]);
    let pids = names.map(|name| {
        machine.now += MINUTE;
        machine.start(&format!("app/{name}"))
    });
    assert_eq!(pids.map(|pid| machine.adjustment(pid)), [9, 8, 7, 0]);
}

#[test]
fn bindings_hand_on_the_best_client_and_no_more_than_the_foreground() {
    let mut system = package("system", 10_001, &[("core", Service)]);
    system.persistent = true;
    let services = ["a", "b", "c"].map(|name| (name, Service));
    let mut machine = Machine::new(vec![system, package("app", 10_002, &services)]);
    let a = machine.bind(1, "app/a");
    let b = machine.bind(a, "app/b");
    let c = machine.bind(b, "app/c");
    assert_eq!([a, b, c].map(|pid| machine.adjustment(pid)), [0, 0, 0]);
    // A cycle keeps nobody up.
    machine.bind(c, "app/a");
    machine.dies(1);
    machine.tick_at(at(0));
    assert_eq!([a, b, c].map(|pid| machine.adjustment(pid)), [15, 15, 15]);
}

#[test]
fn a_service_that_nobody_has_started_ends_with_its_last_client() {
    let app = package("app", 10_001, &[("work", Service), ("client", Service)]);
    let mut machine = Machine::new(vec![app]);
    let client = machine.start("app/client");
    let work = machine.bind(client, "app/work");
    assert_eq!(machine.adjustment(work), 2);
    machine.dies(client);
    let process = machine.table.process(ProcessId(work.into())).unwrap();
    assert!(process.components.is_empty());
    assert_eq!(machine.adjustment(work), 15);
}

#[test]
fn a_receiver_is_in_the_foreground_while_it_works() {
    let app = package("app", 10_001, &[("news", Receiver), ("work", Service)]);
    let mut machine = Machine::new(vec![app]);
    let (id, effects) = machine.table.receive(&target("app/news"), machine.now).unwrap();
    machine.carry_out(effects);
    let (_, effects) = machine.table.receive(&target("app/news"), machine.now).unwrap();
    machine.carry_out(effects);
    let pid = id.0 as u32;
    assert_eq!(machine.adjustment(pid), 0);
    machine.table.received(id, "news", machine.now);
    assert_eq!(machine.adjustment(pid), 0, "another broadcast is not done with");
    machine.table.received(id, "news", machine.now);
    assert_eq!(machine.adjustment(pid), 15);
    let other = machine.table.receive_if_running(&target("app/news"), machine.now).unwrap();
    assert_eq!((other.0, machine.adjustment(pid)), (id, 0));
    machine.table.received(id, "news", machine.now);
    // A package that was stopped receives nothing, until somebody starts a component of it.
    machine.table.force_stop(ROOT, "app").unwrap();
    let refused = machine.table.receive(&target("app/news"), machine.now).unwrap_err();
    assert_eq!(refused, Refusal::Stopped("app".to_owned()));
    assert_eq!(machine.table.receive_if_running(&target("app/news"), machine.now), None);
    machine.start("app/work");
    assert!(machine.table.receive(&target("app/news"), machine.now).is_ok());
    // One that comes late is nobody's.
    machine.table.received(id, "news", machine.now);
    machine.table.received(ProcessId(99), "news", machine.now);
    assert_eq!(machine.adjustment(pid), 15);
}

#[test]
fn a_class_is_asked_for_within_ones_rights() {
    let mut precise = package("precise", 10_001, &[("work", Service)]);
    precise.real_time = true;
    let mut machine = Machine::new(vec![precise, package("app", 10_002, &[("work", Service)])]);
    let (precise, app) = (machine.start("precise/work"), machine.start("app/work"));
    let mut check = |uid: u32, pid: u32, wanted: i32, expected: Result<i32, &str>| {
        let asked = machine.ask(uid, pid, wanted);
        let found = asked.map(|()| machine.adjustment(pid)).map_err(|error| error.to_string());
        match expected {
            Ok(expected) => assert_eq!(found, Ok(expected), "{uid} asks for {wanted}"),
            Err(words) => {
                let error = found.unwrap_err();
                assert!(error.contains(words), "{uid} asks for {wanted}: {error}");
            }
        }
        machine.table.ask(ROOT, pid, None, at(0)).unwrap();
        assert_eq!(machine.adjustment(pid), 2, "{uid} has asked for {wanted}");
    };
    check(10_001, precise, -1, Ok(-1));
    check(10_001, precise, -11, Ok(-11));
    check(10_001, precise, -12, Err("for root"));
    check(10_002, app, -1, Err("right to real time"));
    check(10_002, app, 15, Ok(15));
    check(10_002, app, 0, Ok(2));
    check(10_002, precise, 15, Err("user of work"));
    check(0, app, -12, Ok(-12));
    check(0, app, 0, Ok(0));
    check(MANAGER, app, -1, Ok(-1));
    let stranger = machine.ask(0, 999, 3).unwrap_err();
    assert_eq!(stranger, Refusal::NoProcess(999));
}

#[test]
fn components_are_refused_that_are_not_there_or_not_for_the_caller() {
    let mut app = package("app", 10_001, &[("own", Activity), ("news", Receiver)]);
    app.components.get_mut("own").unwrap().exported = false;
    let mut machine = Machine::new(vec![app.clone()]);
    assert_eq!(machine.table.add(app, at(0)), Err(Refusal::Twice("app".to_owned())));
    let other = Caller { pid: 7, uid: 10_002 };
    let mut check = |caller, text: &str, words: &str| {
        let error = machine.table.start(caller, &target(text), at(0)).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    };
    check(ROOT, "none/own", "no package");
    check(ROOT, "app/none", "not in its package's manifest");
    check(ROOT, "app/news", "no activity or service");
    check(other, "app/own", "not exported");
    assert!(machine.table.stop(ROOT, &target("app/own"), at(0)).is_err(), "it does not run");
    assert!(machine.table.force_stop(other, "app").is_err());
    assert!(machine.table.kill(other, "app").is_err());
    let own = Caller { pid: 7, uid: 10_001 };
    assert!(machine.table.start(own, &target("app/own"), at(0)).is_ok());
}

#[test]
fn a_persistent_process_is_restarted_after_longer_and_longer_waits() {
    let mut system = package("system", 10_001, &[("core", Service)]);
    system.persistent = true;
    let mut machine = Machine::new(vec![system]);
    let mut pid = 1;
    for delay in [1, 2, 4, 8, 16, 32, 64, 64] {
        machine.dies(pid);
        let due = machine.table.next_tick(machine.now).unwrap();
        assert_eq!(due - machine.now, at(delay));
        machine.tick_at(due - Duration::from_nanos(1));
        assert_eq!(machine.table.processes().count(), 0, "it is not due yet");
        machine.tick_at(due);
        pid += 1;
        assert_eq!(machine.adjustment(pid), -12);
    }
    // Once it has run for a minute, the waits begin again.
    machine.now += STABLE;
    machine.dies(pid);
    assert_eq!(machine.table.next_tick(machine.now), Some(machine.now + FIRST_RESTART));
    // A forced stop is for good, until somebody starts a component.
    let effects = machine.table.force_stop(ROOT, "system").unwrap();
    machine.carry_out(effects);
    assert_eq!(machine.table.next_tick(machine.now), None);
    let pid = machine.start("system/core");
    assert_eq!(machine.adjustment(pid), -12);
}

#[test]
fn kill_spares_what_is_in_use_and_force_stop_does_not() {
    let app = package("app", 10_001, &[("one", Activity), ("work", Service)]);
    let mut machine = Machine::new(vec![app]);
    machine.start("app/one");
    machine.start("app/work");
    let effects = machine.table.kill(ROOT, "app").unwrap();
    assert_eq!(effects, [Effect::Kill(ProcessId(2), KillReason::Asked)]);
    machine.carry_out(effects);
    let effects = machine.table.force_stop(ROOT, "app").unwrap();
    assert_eq!(effects, [Effect::Kill(ProcessId(1), KillReason::ForceStop)]);
    machine.carry_out(effects);
    assert_eq!(machine.table.processes().count(), 0);
}

/// A process that is to end while it is being started ends as soon as it has a pid, and its
/// component runs in another one.
#[test]
fn a_stop_overtakes_a_start() {
    let mut machine = Machine::new(vec![package("app", 10_001, &[("work", Service)])]);
    let (first, _) = machine.table.start(ROOT, &target("app/work"), at(0)).unwrap();
    assert_eq!(machine.table.force_stop(ROOT, "app").unwrap(), []);
    let (second, _) = machine.table.start(ROOT, &target("app/work"), at(0)).unwrap();
    assert_ne!(first, second);
    let effects = machine.table.started(first, 77, at(0));
    assert!(effects.contains(&Effect::Kill(first, KillReason::Asked)), "{effects:?}");
}

/// Random numbers of one seed.
struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }
}

/// Processes come, change, use memory and go at random. Whenever memory is short, the killer's
/// choice is compared with all that live.
#[test]
fn no_process_is_killed_while_a_worse_one_lives_in_1000_histories() {
    const MIB: u64 = 1 << 20;
    const MEMORY: u64 = 200 * MIB;
    let (mut n_kills, mut n_spared) = (0, 0);
    for seed in 0..1000 {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let kinds = [("act", Activity), ("work", Service), ("data", Provider), ("news", Receiver)];
        let packages: Vec<Package> = (0..6)
            .map(|n| {
                let mut package = package(&format!("p{n}"), 10_000 + n, &kinds);
                package.persistent = n == 0;
                package.is_home = n == 1;
                package.real_time = n == 2;
                package
            })
            .collect();
        let mut machine = Machine::new(packages);
        let mut used: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for _ in 0..100 {
            machine.now += Duration::from_secs(dice.below(300) as u64);
            let all: Vec<ProcessId> = machine.table.processes().map(|(id, _)| id).collect();
            let one = all[dice.below(all.len())];
            let (pid, uid) = (one.0 as u32, machine.table.uid_of(one));
            let name = kinds[dice.below(4)].0;
            let to = target(&format!("p{}/{name}", dice.below(6)));
            let caller = Caller { pid, uid };
            let now = machine.now;
            let table = &mut machine.table;
            let effects = match dice.below(9) {
                0 | 1 => table.start(caller, &to, now).map(|(_, effects)| effects),
                2 => table.bind(caller, &to, now).map(|(_, effects)| effects),
                3 => table.unbind(caller, &to, now),
                4 => table.receive(&to, now).map(|(_, effects)| effects),
                5 => Ok(table.received(one, name, now)),
                6 => table.stop(caller, &to, now),
                7 => table.ask(caller, pid, Adjustment::new(dice.below(28) as i32 - 12), now),
                _ => Ok(table.tick(now)),
            };
            machine.carry_out(effects.unwrap_or_default());
            for (id, _) in machine.table.processes() {
                *used.entry(id).or_default() += dice.below(8) as u64 * MIB / 2;
            }
            loop {
                let living: Vec<(ProcessId, Adjustment)> =
                    machine.table.processes().map(|(id, it)| (id, it.adjustment)).collect();
                let rss = |id: &ProcessId| used.get(id).copied().unwrap_or_default();
                let total: u64 = living.iter().map(|(id, _)| rss(id)).sum();
                let free_bytes = MEMORY.saturating_sub(total);
                let candidates = living.iter().map(|(id, adjustment)| Candidate {
                    id: *id,
                    name: String::new(),
                    pid: 0,
                    adjustment: *adjustment,
                    rss_bytes: rss(id),
                });
                let stall = [Stall::None, Stall::Some, Stall::Full][dice.below(3)];
                let memory = Memory { free_bytes, stall };
                let chosen = choose(candidates.collect(), memory, &MinFree::default());
                n_spared += living.iter().filter(|(_, it)| it.is_protected()).count();
                let Some(chosen) = chosen else { break };
                let (id, adjustment) = (chosen.victim.id, chosen.victim.adjustment);
                let worst = living.iter().map(|(_, it)| *it).max().unwrap();
                assert_eq!(adjustment, worst, "seed {seed}: {chosen} while a worse one lives");
                assert!(!adjustment.is_protected(), "seed {seed}: {chosen} is protected");
                machine.dies(id.0 as u32);
                n_kills += 1;
            }
        }
    }
    assert!(n_kills > 10_000 && n_spared > 10_000, "{n_kills} kills, {n_spared} times spared");
}
