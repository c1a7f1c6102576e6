//! The process manager with real processes: starts, deaths, restarts, and memory that is short.
#[path = "support/applications.rs"]
mod applications;

use applications::{Application, Applications, BATON, is_alive, package};
use baton_services::intent::ComponentName;
use baton_services::intent::manifest::{Program, ProgramForm};
use baton_services::process::class::{Adjustment, MinFree};
use baton_services::process::killer::Choice;
use baton_services::process::package::Package;
use baton_services::process::run::{Config, Event, ProcessManager, Report, StartRefused};
use baton_services::process::start::{Commands, Starter};
use baton_services::process::table::{Caller, ProcessId};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const ROOT: Caller = Caller { pid: 1, uid: 0 };
const MIB: u64 = 1 << 20;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn commands() -> Commands {
    Commands { helper: [BATON, "am", "helper"].map(Into::into).to_vec(), zygote: Vec::new() }
}

/// A manager that the test drives, round by round.
struct Driven {
    manager: Arc<ProcessManager>,
    dead: Arc<Mutex<Vec<ProcessId>>>,
    choices: Arc<Mutex<Vec<Choice>>>,
    /// Always readable, so that rounds do not wait.
    at_once: OwnedFd,
}

impl Driven {
    fn new(group: Option<&Path>) -> Driven {
        // No process is killed unless there is a group that is short of memory.
        let minfree = match group {
            Some(_) => MinFree::default(),
            None => MinFree::new([0; 6]).unwrap(),
        };
        let manager = ProcessManager::new(Config {
            group: group.map(Path::to_owned),
            minfree,
            commands: commands(),
            environment: Vec::new(),
        })
        .unwrap();
        let dead: Arc<Mutex<Vec<ProcessId>>> = Arc::default();
        let choices: Arc<Mutex<Vec<Choice>>> = Arc::default();
        let seen = (Arc::clone(&dead), Arc::clone(&choices));
        manager.listen(move |event| match event {
            Event::Died(id) => seen.0.lock().unwrap().push(*id),
            Event::Killed(choice) => seen.1.lock().unwrap().push(choice.clone()),
            Event::Entered(..) => {}
        });
        let at_once = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        Driven { manager, dead, choices, at_once }
    }

    fn start(&self, text: &str) -> Result<u32, StartRefused> {
        self.manager.start(ROOT, &ComponentName::parse(text).unwrap())
    }

    fn round(&self) {
        assert!(self.manager.round(self.at_once.as_fd()).unwrap());
    }

    fn report(&self, pid: u32) -> Option<Report> {
        self.manager.report().into_iter().find(|report| report.pid == Some(pid))
    }

    /// Rounds until the manager knows a process that it starts by itself.
    fn await_start(&self, pid: u32) {
        while self.report(pid).is_none() {
            self.round();
        }
    }

    /// Rounds until a process is buried.
    fn await_death(&self, pid: u32) {
        while self.report(pid).is_some() {
            self.round();
        }
    }

    /// Rounds until the killer has nobody to kill. Each choice is checked against all that live.
    fn settle(&self, history: &str) -> Vec<Report> {
        let mut killed: Vec<Report> = Vec::new();
        loop {
            self.round();
            if let Some(Choice { victim, .. }) = self.choices.lock().unwrap().pop() {
                // A round ends with the choice: the others are as they were then.
                let mut living = self.manager.report();
                living.retain(|it| killed.iter().all(|dead| dead.id != it.id));
                let worst = living.iter().map(|it| it.adjustment).max();
                assert_eq!(Some(victim.adjustment), worst, "{history}: {victim:?} of {living:#?}");
                assert!(!victim.adjustment.is_protected(), "{history}: {victim:?}");
                killed.push(living.into_iter().find(|it| it.id == victim.id).unwrap().clone());
            } else if killed.iter().all(|it| self.dead.lock().unwrap().contains(&it.id)) {
                return killed;
            }
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.manager.close();
    }
}

fn kill(pid: u32) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
}

#[test]
fn a_program_starts_plainly_and_a_shared_object_from_a_warm_parent() {
    let applications = Applications::new();
    let driven = Driven::new(None);
    let (plain, warm) = (applications.exec("plain"), applications.load("warm"));
    let components = format!(
        "<service android:name='.Plain' {plain}/>\
         <service android:name='.Warm' android:process=':one' {warm}/>\
         <service android:name='.Other' android:process=':other' {warm}/>"
    );
    let uid = if is_root() { "10077;" } else { "" };
    driven.manager.add(package("org.app", uid, &components)).unwrap();
    let own = rustix::process::geteuid().as_raw();
    let expected_uid = if is_root() { 10_077 } else { own };
    let mut all: Vec<Application> = Vec::new();
    for name in ["Plain", "Warm", "Other"] {
        let pid = driven.start(&format!("org.app/.{name}")).unwrap();
        let application = applications.accept();
        assert_eq!(application.pid, pid, "{name}");
        assert_eq!(application.uid, expected_uid, "{name}");
        assert_eq!(application.session, pid, "{name}: a session of its own");
        assert_eq!(driven.report(pid).unwrap().adjustment.get(), 2, "{name}: a service");
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(score.trim(), "117", "{name}");
        all.push(application);
    }
    assert_eq!(all[0].preloader, 0, "nothing is loaded for a program");
    assert_eq!(all[1].preloader, all[2].preloader, "one warm parent has loaded it for both");
    assert!(is_alive(all[1].preloader) && all[1].preloader != all[1].pid);
    // A second start finds the process.
    assert_eq!(driven.start("org.app/.Warm").unwrap(), all[1].pid);
    let pids: Vec<u32> = all.iter().map(|it| it.pid).collect();
    drop(driven);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "nothing is left");
    assert!(!is_alive(all[1].preloader));
}

#[test]
fn a_closed_starter_leaves_nothing_whoever_holds_a_process() {
    let applications = Applications::new();
    let starter = Starter::new(commands(), Vec::new());
    let program = Program {
        form: ProgramForm::Loaded,
        path: applications.object.clone(),
        arguments: vec![applications.socket.display().to_string(), "held".to_owned()],
    };
    let running = starter.start(&program, None).unwrap();
    let application = applications.accept();
    starter.close();
    assert!(!running.is_alive() && !is_alive(application.preloader));
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing() {
    let applications = Applications::new();
    let driven = Driven::new(None);
    let text = applications.directory.path().join("text.so");
    fs::write(&text, "no object").unwrap();
    let components = format!(
        "<service android:name='.Missing' android:process=':a' baton:exec='/nowhere/program'/>\
         <service android:name='.Text' android:process=':b' baton:load='{}'/>\
         <service android:name='.Symbol' android:process=':c' baton:load='libc.so.6'/>\
         <service android:name='.None' android:process=':d'/>",
        text.display()
    );
    driven.manager.add(package("org.app", "", &components)).unwrap();
    for (name, words) in [
        ("Missing", "/nowhere/program: No such file"),
        ("Text", "text.so"),
        ("Symbol", "baton_main"),
        ("None", "names no program"),
    ] {
        let error = driven.start(&format!("org.app/.{name}")).unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
    assert_eq!(driven.manager.report(), [], "no process is left");
}

#[test]
fn a_persistent_process_is_restarted_however_it_ends() {
    let applications = Applications::new();
    let driven = Driven::new(None);
    let components = format!("<service android:name='.Core' {}/>", applications.exec("core"));
    driven.manager.add(package("org.core", "android:persistent='true'", &components)).unwrap();
    let mut first = applications.accept();
    driven.await_start(first.pid);
    first.exit(3);
    driven.await_death(first.pid);
    let dead = driven.dead.lock().unwrap().clone();
    // The clock of the manager goes on by itself: the restart is due in a second.
    while driven.manager.report().is_empty() {
        driven.manager.round(eventfd(0, EventfdFlags::CLOEXEC).unwrap().as_fd()).unwrap();
    }
    let second = applications.accept();
    driven.await_start(second.pid);
    assert_ne!(second.pid, first.pid);
    let report = driven.report(second.pid).unwrap();
    assert_eq!(report.adjustment, Adjustment::BEST);
    assert!(!dead.contains(&report.id));
    // A forced stop is for good.
    assert_eq!(driven.manager.force_stop(ROOT, "org.core"), Ok(1));
    driven.await_death(second.pid);
    driven.round();
    assert_eq!(driven.manager.report(), []);
}

/// A shared object whose preload waits until somebody opens its gate for writing.
fn hanging(applications: &Applications) -> (PathBuf, PathBuf) {
    let [gate, source, object] =
        ["gate", "hanging.c", "hanging.so"].map(|name| applications.directory.path().join(name));
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RWXU).unwrap();
    let text = format!(
        "#include <fcntl.h>\n#include <unistd.h>\n\
         void baton_preload(void) {{ close(open(\"{}\", O_RDONLY)); }}\n\
         int baton_main(int argc, char **argv) {{ return pause(); }}\n",
        gate.display()
    );
    fs::write(&source, text).unwrap();
    let mut cc = std::process::Command::new("cc");
    let made = cc.args(["-shared", "-fPIC", "-o"]).args([&object, &source]).status().unwrap();
    assert!(made.success());
    (object, gate)
}

#[test]
fn a_start_that_hangs_holds_up_no_other_start_and_no_round() {
    let applications = Applications::new();
    let driven = Driven::new(None);
    let (object, gate) = hanging(&applications);
    let core = format!("<service android:name='.Core' baton:load='{}'/>", object.display());
    driven.manager.add(package("org.core", "android:persistent='true'", &core)).unwrap();
    add_plain_and_warm(&driven, &applications);
    let of_core = || driven.manager.report().into_iter().find(|it| it.package == "org.core");
    let mut last = None;
    for _ in 0..2 {
        // It is being started, the second time by the round that finds the restart due.
        while of_core().is_none() {
            driven.manager.round(eventfd(0, EventfdFlags::CLOEXEC).unwrap().as_fd()).unwrap();
        }
        for name in ["Plain", "Warm"] {
            let pid = driven.start(&format!("org.app/.{name}")).unwrap();
            assert_eq!(applications.accept().pid, pid, "{name}");
            kill(pid);
            driven.await_death(pid);
        }
        assert_eq!(of_core().unwrap().pid, None, "it hangs");
        fs::File::options().write(true).open(&gate).unwrap();
        let pid = loop {
            driven.round();
            if let Some(pid) = of_core().unwrap().pid {
                break pid;
            }
        };
        assert_ne!(last.replace(pid), Some(pid));
        // The warm parent dies with its process, and has to be started again.
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let parent = status.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
        kill(parent.parse().unwrap());
        driven.await_death(pid);
    }
}

/// Adds a package with a program that is started plainly, and one from a warm parent.
fn add_plain_and_warm(driven: &Driven, applications: &Applications) {
    let (plain, warm) = (applications.exec("plain"), applications.load("warm"));
    let components = format!(
        "<service android:name='.Plain' {plain}/>\
         <service android:name='.Warm' android:process=':warm' {warm}/>"
    );
    driven.manager.add(package("org.app", "", &components)).unwrap();
}

/// SIGKILL of each process at each time: the next start works, and nobody is left.
#[test]
fn processes_and_their_helpers_may_be_killed() {
    let applications = Applications::new();
    let driven = Driven::new(None);
    add_plain_and_warm(&driven, &applications);
    let start_both = || {
        let start = |name: &str| {
            let pid = driven.start(&format!("org.app/.{name}")).unwrap();
            let application = applications.accept();
            assert_eq!(application.pid, pid);
            application
        };
        [start("Plain"), start("Warm")]
    };
    for _ in 0..5 {
        let both = start_both();
        let pids = both.each_ref().map(|it| it.pid);
        pids.into_iter().for_each(kill);
        pids.into_iter().for_each(|pid| driven.await_death(pid));
    }
    let both = start_both();
    let helper = both[1].preloader;
    let pids = both.each_ref().map(|it| it.pid);
    kill(helper);
    // The warm one dies with its parent, the plain one stays.
    driven.await_death(pids[1]);
    driven.round();
    assert!(driven.report(pids[0]).is_some() && is_alive(pids[0]));
    let pid = driven.start("org.app/.Warm").unwrap();
    let again = applications.accept();
    assert_eq!(again.pid, pid);
    assert_ne!(again.preloader, helper);
    let last = [pids[0], again.pid, again.preloader];
    drop(driven);
    assert!(last.iter().all(|pid| !is_alive(*pid)));
}

/// The nice values of a process's threads follow its class, unless a thread has chosen another.
#[test]
fn classes_are_seen_by_the_system() {
    let applications = Applications::new();
    let driven = Driven::new(None);
    let one = applications.exec("one");
    let components = format!("<activity android:name='.One' {one}/>");
    driven.manager.add(package("org.app", "", &components)).unwrap();
    let pid = driven.start("org.app/.One").unwrap();
    let nice = || {
        let pid = Pid::from_raw(pid as i32);
        rustix::process::getpriority_process(pid).unwrap()
    };
    let score = || {
        let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        text.trim().parse::<i32>().unwrap()
    };
    let ask = |value: i32| driven.manager.ask(ROOT, pid, Adjustment::new(value)).unwrap();
    ask(15);
    assert_eq!((nice(), score()), (10, 1000));
    if !is_root() {
        eprintln!("skipped: better classes than the last one take root");
        return;
    }
    for (value, expected) in [(0, (-4, 0)), (1, (0, 58)), (7, (10, 411)), (2, (0, 117))] {
        ask(value);
        assert_eq!((nice(), score()), expected, "adjustment {value}");
    }
    // A real-time process sets its own. Without CAP_SYS_RESOURCE nothing is better than 0.
    ask(-1);
    let is_allowed = fs::write("/proc/self/oom_score_adj", "-58").is_ok();
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    assert_eq!((nice(), score()), (0, if is_allowed { -58 } else { 0 }));
    rustix::process::setpriority_process(Pid::from_raw(pid as i32), 5).unwrap();
    ask(15);
    ask(0);
    assert_eq!(nice(), -4, "what it has set as a real-time process is not its choice for others");
    rustix::process::setpriority_process(Pid::from_raw(pid as i32), 5).unwrap();
    ask(15);
    assert_eq!(nice(), 5);
}

/// A control group with the memory controller, below that of this test.
struct Group {
    path: PathBuf,
    limit: &'static str,
}

impl Group {
    /// `None` with a printed reason where the machine has none.
    fn new() -> Option<Group> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let place = |controller: &str, root: &str| {
            let line = own.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
            Some(PathBuf::from(format!("{root}{}", line.splitn(3, ':').nth(2)?)))
        };
        let v2 = place("", "/sys/fs/cgroup");
        let v1 = place("memory", "/sys/fs/cgroup/memory");
        let name =
            format!("baton-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        for (parent, limit) in [(v2, "memory.max"), (v1, "memory.limit_in_bytes")] {
            let Some(path) = parent.map(|parent| parent.join(&name)) else { continue };
            if fs::create_dir(&path).is_err() {
                continue;
            }
            if path.join(limit).exists() {
                return Some(Group { path, limit });
            }
            fs::remove_dir(&path).unwrap();
        }
        eprintln!("skipped: no control group with the memory controller can be made here");
        None
    }

    /// Leaves so many bytes free.
    fn leave_free(&self, driven: &Driven, bytes: u64) {
        let set = |limit: u64| fs::write(self.path.join(self.limit), limit.to_string()).unwrap();
        // No more than the machine has.
        let enough = 256 * MIB;
        set(enough);
        let (free, _) = driven.manager.memory().unwrap();
        set(enough - free + bytes);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has been waited for may be in its group for a moment.
        while let Err(error) = fs::remove_dir(&self.path) {
            assert_eq!(error.raw_os_error(), Some(16), "{error}");
            std::thread::yield_now();
        }
    }
}

const NORMAL: &str = "com.evaluation.memory/.OomNormal";
const REAL_TIME: &str = "com.evaluation.memory/.OomRealtime";

/// The packages of the experiments of section 5.4.1: two activities, and some that are hidden.
fn evaluation(applications: &Applications) -> Vec<Package> {
    let activity = |name: &str| {
        let load = applications.load(name);
        format!("<activity android:name='.{name}' android:process=':{name}' {load}/>")
    };
    let both = activity("OomNormal") + &activity("OomRealtime");
    let uid = if is_root() { "10088;" } else { "" };
    let evaluation =
        package("com.evaluation.memory", &format!("{uid}baton:realtime='true'"), &both);
    let names = ["keychain", "voicedialer", "gallery3d", "quicksearchbox"];
    let others: String = names.iter().map(|name| activity(name)).collect();
    vec![evaluation, package("com.android", "", &others)]
}

/// The experiment's beginning: hidden applications, and 40 MiB for others.
fn begin(group: &Group, applications: &Applications) -> (Driven, BTreeMap<u32, Application>) {
    let driven = Driven::new(Some(&group.path));
    for package in evaluation(applications) {
        driven.manager.add(package).unwrap();
    }
    let mut all = BTreeMap::new();
    for name in ["keychain", "voicedialer", "gallery3d", "quicksearchbox"] {
        let pid = driven.start(&format!("com.android/.{name}")).unwrap();
        let mut application = applications.accept();
        assert!(application.allocate(2));
        all.insert(pid, application);
    }
    group.leave_free(&driven, 40 * MIB);
    driven.settle("at the beginning");
    (driven, all)
}

/// Starts an activity, and has it allocate 30 arrays of 1 MiB. Returns it and how many it got.
fn allocate(
    driven: &Driven,
    applications: &Applications,
    name: &str,
    is_real_time: bool,
) -> (Application, u64, Vec<Report>) {
    let pid = driven.start(name).unwrap();
    let mut application = applications.accept();
    let mut killed = driven.settle(name);
    if is_real_time {
        let own = Caller { pid, uid: application.uid };
        driven.manager.ask(own, pid, Adjustment::new(-1)).unwrap();
    }
    for n_before in 0..30 {
        if !application.allocate(1) {
            return (application, n_before, killed);
        }
        killed.extend(driven.settle(name));
    }
    (application, 30, killed)
}

fn names(reports: &[Report]) -> Vec<&str> {
    reports.iter().map(|report| report.name.as_str()).collect()
}

/// Listing 5.2: the real-time activity gets its memory, and the normal one dies for it.
#[test]
fn the_normal_activity_ends_for_the_real_time_one() {
    let Some(group) = Group::new() else { return };
    let applications = Applications::new();
    let (driven, _others) = begin(&group, &applications);
    let (normal, n_allocated, killed) = allocate(&driven, &applications, NORMAL, false);
    assert_eq!(n_allocated, 30, "{killed:?}");
    assert!(normal.is_alive() && killed.iter().all(|it| it.package == "com.android"));
    let (precise, n_allocated, killed) = allocate(&driven, &applications, REAL_TIME, true);
    assert_eq!(n_allocated, 30, "{killed:?}");
    assert_eq!(names(&killed).last(), Some(&"com.evaluation.memory:OomNormal"));
    assert!(precise.is_alive());
    let pid = normal.pid;
    normal.await_end();
    assert!(driven.report(pid).is_none());
    drop(driven);
}

/// Listing 5.3: the normal activity in the foreground cannot have the real-time one's memory. Those
/// in the background die first, and then itself.
#[test]
fn the_real_time_activity_survives_one_in_the_foreground() {
    let Some(group) = Group::new() else { return };
    let applications = Applications::new();
    let (driven, _others) = begin(&group, &applications);
    let (precise, n_allocated, _) = allocate(&driven, &applications, REAL_TIME, true);
    assert_eq!(n_allocated, 30);
    let (normal, n_allocated, killed) = allocate(&driven, &applications, NORMAL, false);
    assert!(n_allocated < 30, "{killed:?}");
    let (last, others) = killed.split_last().unwrap();
    assert_eq!((last.name.as_str(), last.adjustment.get()), ("com.evaluation.memory:OomNormal", 0));
    assert!(others.iter().all(|it| it.package == "com.android"), "{others:?}");
    assert!(precise.is_alive());
    normal.await_end();
    assert_eq!(driven.manager.report().len(), 1);
    drop(driven);
}

/// The figures of docs/processes.md.
#[test]
#[ignore = "a measurement"]
fn a_warm_start_beside_a_plain_one() {
    let applications = Applications::new();
    let driven = Driven::new(None);
    add_plain_and_warm(&driven, &applications);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..500 {
        for (name, times) in ["Plain", "Warm"].iter().zip(&mut times) {
            let begin = std::time::Instant::now();
            let pid = driven.start(&format!("org.app/.{name}")).unwrap();
            let application = applications.accept();
            times.push(begin.elapsed());
            assert_eq!(application.pid, pid);
            driven.manager.force_stop(ROOT, "org.app").unwrap();
            driven.await_death(pid);
        }
    }
    for (name, times) in ["plain", "warm"].iter().zip(&mut times) {
        times.sort();
        println!("{name}: p50 {:?}, p99 {:?}", times[250], times[495]);
    }
}

/// Random numbers of one seed.
struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }
}

/// The two properties of the killer with real processes: no process is killed while a worse class
/// lives, and a protected one never.
#[test]
fn no_process_is_killed_while_a_worse_one_lives_in_random_histories() {
    play(0..50);
}

#[test]
#[ignore = "takes minutes"]
fn no_process_is_killed_while_a_worse_one_lives_in_1000_histories() {
    play(0..1000);
}

fn play(seeds: std::ops::Range<u64>) {
    let Some(group) = Group::new() else { return };
    let applications = Applications::new();
    let driven = Driven::new(Some(&group.path));
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        let component = |kind: &str, class: &str| {
            let load = applications.load(name);
            let more = if kind == "provider" { "android:authorities='x'" } else { "" };
            format!("<{kind} android:name='.{class}' {more} {load}/>")
        };
        let all =
            component("activity", "A") + &component("service", "S") + &component("provider", "P");
        driven.manager.add(package(name, "baton:realtime='true'", &all)).unwrap();
    }
    group.leave_free(&driven, 32 * MIB);
    let (mut n_kills, mut n_spared) = (0, 0);
    for seed in seeds.clone() {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let mut all: BTreeMap<u32, Application> = BTreeMap::new();
        let note = |reached: Result<u32, StartRefused>, all: &mut BTreeMap<u32, Application>| {
            let Ok(pid) = reached else { return };
            all.entry(pid).or_insert_with(|| {
                let application = applications.accept();
                assert_eq!(application.pid, pid);
                application
            });
        };
        for _ in 0..12 {
            let name = names[dice.below(names.len())];
            let target = |class: &str| ComponentName::parse(&format!("{name}/.{class}")).unwrap();
            let pids: Vec<u32> = all.keys().copied().collect();
            let pid = if pids.is_empty() { 0 } else { pids[dice.below(pids.len())] };
            let manager = &driven.manager;
            match dice.below(7) {
                0 | 1 => {
                    let target = target(["A", "S"][dice.below(2)]);
                    note(manager.start(ROOT, &target), &mut all);
                }
                2 => {
                    let target = target(["S", "P"][dice.below(2)]);
                    note(manager.bind(Caller { pid, uid: 0 }, &target), &mut all);
                }
                3 => _ = manager.ask(ROOT, pid, Adjustment::new(dice.below(28) as i32 - 12)),
                4 => _ = manager.ask(ROOT, pid, None),
                _ => {
                    for _ in 0..dice.below(16) {
                        if !all.get_mut(&pid).is_some_and(|it| it.allocate(1)) {
                            break;
                        }
                        n_kills += driven.settle(&format!("seed {seed}")).len();
                    }
                }
            }
            n_kills += driven.settle(&format!("seed {seed}")).len();
            let living = driven.manager.report();
            n_spared += living.iter().filter(|it| it.adjustment.is_protected()).count();
            all.retain(|pid, _| living.iter().any(|it| it.pid == Some(*pid)));
        }
        for name in names {
            driven.manager.force_stop(ROOT, name).unwrap();
        }
        while !driven.manager.report().is_empty() {
            driven.round();
        }
        driven.dead.lock().unwrap().clear();
        assert!(driven.choices.lock().unwrap().is_empty(), "seed {seed}: a choice was not checked");
    }
    println!("{seeds:?}: {n_kills} killed, {n_spared} times a protected one spared");
    assert!(n_kills > 20 && n_spared > 20, "{n_kills} kills, {n_spared} times spared");
    drop(driven);
}
