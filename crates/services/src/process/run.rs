//! The process manager at work: the table under its lock, and the I/O that its effects ask for.
//!
//! - **Locks**: the table's lock is held for a command, and for the killer's choice with its
//!   signal, never while a process starts, a file is written or a client is called. `applied` is
//!   held while a process's adjustment is written, and while its pid is given up. The adjustment is
//!   read from the table under it, so that the last writer writes the newest one.
//! - One thread runs [`ProcessManager::round`]: deaths, what is due, and memory. The killer waits
//!   for its victim's end before it chooses again.
//! - **Invariant**: a start may take long, and holds up those who wait for it alone. The round and
//!   [`ProcessManager::add`] have each start carried out by a thread of its own.

use super::class::{Adjustment, Class, MinFree, Nice, Share};
use super::group::Group;
use super::killer::{Candidate, Choice, Memory, Stall, choose, limit};
use super::package::Package;
use super::pressure::{Gauge, LONGEST_LOOK, Triggers, next_look, rss_bytes};
use super::start::{Commands, Running, StartError, Starter};
use super::table::{Caller, Effect, ProcessId, Refusal, State, Table, Time};
use crate::intent::{ComponentName, Program};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, getpriority_process, setpriority_process};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The longest wait for the end of a process that the killer has killed. One that is stuck in the
/// kernel keeps its memory, and another one has to go.
const LONGEST_DEATH: Duration = Duration::from_secs(1);
/// The decisions of the killer that a report has.
const N_CHOICES: usize = 100;

/// Starts that have failed and whose reasons are kept for those who wait.
const N_FAILURES: usize = 100;

/// The settings of a process manager.
#[derive(Debug)]
pub struct Config {
    /// The control group of its processes. Without one, memory is the machine's.
    pub group: Option<PathBuf>,
    /// The killer's thresholds.
    pub minfree: MinFree,
    /// The commands of helpers.
    pub commands: Commands,
    /// Variables for the processes.
    pub environment: Vec<(OsString, OsString)>,
}

/// Something that has happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A component has a new state.
    Entered(ProcessId, String, State),
    /// The process has ended.
    Died(ProcessId),
    /// The low-memory killer has killed a process.
    Killed(Choice),
}

/// Why a component was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartRefused {
    /// It may not be, or is not there.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The process could not be started.
    #[error("{0} cannot be started: {1}")]
    NotStarted(String, String),
}

/// A process as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The incarnation.
    pub id: ProcessId,
    /// The pid. `None` while it is being started.
    pub pid: Option<u32>,
    /// The user.
    pub uid: u32,
    /// The package.
    pub package: String,
    /// The package and the process.
    pub name: String,
    /// The adjustment.
    pub adjustment: Adjustment,
    /// The class.
    pub class: Class,
    /// The resident set.
    pub rss_bytes: u64,
    /// Its components, and the state of each.
    pub components: Vec<(String, State)>,
}

/// A process manager.
pub struct ProcessManager {
    /// For the threads that carry out starts.
    own: Weak<ProcessManager>,
    state: Mutex<Managed>,
    /// A process runs, or could not be started.
    settled: Condvar,
    applied: Mutex<BTreeMap<ProcessId, Adjustment>>,
    starter: Starter,
    group: Option<Group>,
    gauge: Gauge,
    /// Whether the last look at free memory has failed.
    is_blind: AtomicBool,
    triggers: Option<Triggers>,
    minfree: MinFree,
    wake: OwnedFd,
    begin: Instant,
    listeners: Mutex<Vec<Listener>>,
    /// Notices are given once.
    noticed: Mutex<BTreeSet<&'static str>>,
}

type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// What the lock of the table guards.
struct Managed {
    table: Table,
    running: BTreeMap<ProcessId, Arc<Running>>,
    /// Why processes that somebody waits for were not started.
    failures: BTreeMap<ProcessId, String>,
    /// The killer's last victim, if it has not ended.
    victim: Option<(ProcessId, Time)>,
    /// The killer's last decisions.
    choices: VecDeque<Choice>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessManager {
    /// A manager without packages. What it has to do without is said in the log.
    ///
    /// # Errors
    /// The group is none, or free memory cannot be read.
    pub fn new(config: Config) -> Result<Arc<ProcessManager>, Error> {
        let gauge = Gauge::new(config.group.as_deref())?;
        let group = match &config.group {
            None => None,
            Some(path) => {
                let (group, missing) = Group::new(path)?;
                if let Some(why) = missing {
                    warn!("background processes have no share of their own: {why}");
                }
                Some(group)
            }
        };
        let triggers = Triggers::new(config.group.as_deref())
            .inspect_err(|why| warn!("stalls for memory are not reported: {why}"))
            .ok();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new_cyclic(|own| ProcessManager {
            own: Weak::clone(own),
            state: Mutex::new(Managed {
                table: Table::new(geteuid().as_raw()),
                running: BTreeMap::new(),
                failures: BTreeMap::new(),
                victim: None,
                choices: VecDeque::new(),
            }),
            settled: Condvar::new(),
            applied: Mutex::default(),
            starter: Starter::new(config.commands, config.environment),
            group,
            gauge,
            is_blind: AtomicBool::new(false),
            triggers,
            minfree: config.minfree,
            wake,
            begin: Instant::now(),
            listeners: Mutex::default(),
            noticed: Mutex::default(),
        }))
    }

    /// Has a function called for every event, by the thread that has caused it, without a lock.
    pub fn listen(&self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        lock(&self.listeners).push(Arc::new(listener));
    }

    /// Adds a package. The processes of a persistent one, and the warm parents, are started, and
    /// this does not wait for them.
    pub fn add(&self, package: Package) -> Result<(), Refusal> {
        let programs: Vec<_> = package.programs.values().cloned().collect();
        let effects = self.with_table(|table, now| table.add(package, now))?;
        self.carry_out_apart(effects);
        let prepare = move |manager: &ProcessManager| {
            for program in programs {
                if let Err(error) = manager.prepare(&program) {
                    warn!("{error}");
                }
            }
        };
        // Without a thread, the first start prepares the parent.
        let _ = self.run_apart(prepare);
        Ok(())
    }

    /// Starts an activity or a service. Returns its process's pid.
    pub fn start(&self, caller: Caller, target: &ComponentName) -> Result<u32, StartRefused> {
        let id = self.command(|table, now| table.start(caller, target, now))?;
        self.await_pid(id, target)
    }

    /// Stops a component.
    pub fn stop(&self, caller: Caller, target: &ComponentName) -> Result<(), Refusal> {
        self.command(|table, now| Ok(((), table.stop(caller, target, now)?)))
    }

    /// Binds the caller's process to a service or a provider. Returns the pid of that one's.
    pub fn bind(&self, caller: Caller, target: &ComponentName) -> Result<u32, StartRefused> {
        let id = self.command(|table, now| table.bind(caller, target, now))?;
        self.await_pid(id, target)
    }

    /// Ends a binding.
    pub fn unbind(&self, caller: Caller, target: &ComponentName) -> Result<(), Refusal> {
        self.command(|table, now| Ok(((), table.unbind(caller, target, now)?)))
    }

    /// A receiver begins with a broadcast: its process is started. Returns the process and its pid.
    pub fn receive(&self, target: &ComponentName) -> Result<(ProcessId, u32), StartRefused> {
        let id = self.command(|table, now| table.receive(target, now))?;
        Ok((id, self.await_pid(id, target)?))
    }

    /// A receiver begins with a broadcast if its process is there. None is started.
    pub fn receive_if_running(&self, target: &ComponentName) -> Option<ProcessId> {
        let (id, effects) = self.with_table(|table, now| table.receive_if_running(target, now))?;
        self.carry_out(effects);
        Some(id)
    }

    /// A receiver has done with a broadcast.
    pub fn received(&self, id: ProcessId, component: &str) {
        let effects = self.with_table(|table, now| table.received(id, component, now));
        self.carry_out(effects);
    }

    /// Sets or clears the adjustment of a process.
    pub fn ask(&self, caller: Caller, pid: u32, wanted: Option<Adjustment>) -> Result<(), Refusal> {
        self.command(|table, now| Ok(((), table.ask(caller, pid, wanted, now)?)))
    }

    /// A backup of a package begins or ends.
    pub fn back_up(&self, caller: Caller, package: &str, is_running: bool) -> Result<(), Refusal> {
        self.command(|table, now| Ok(((), table.back_up(caller, package, is_running, now)?)))
    }

    /// Kills a package's background processes. Returns their number.
    pub fn kill(&self, caller: Caller, package: &str) -> Result<usize, Refusal> {
        self.command(|table, _| {
            let effects = table.kill(caller, package)?;
            Ok((effects.len(), effects))
        })
    }

    /// Kills all of a package's processes. Returns their number.
    pub fn force_stop(&self, caller: Caller, package: &str) -> Result<usize, Refusal> {
        self.command(|table, _| {
            let effects = table.force_stop(caller, package)?;
            Ok((effects.len(), effects))
        })
    }

    /// The process with this pid, if the caller may command it.
    pub fn own_process(&self, caller: Caller, pid: u32) -> Result<ProcessId, Refusal> {
        self.with_table(|table, _| table.own_process(caller, pid))
    }

    /// All processes, the most important first.
    pub fn report(&self) -> Vec<Report> {
        let state = lock(&self.state);
        let mut all: Vec<Report> = state
            .table
            .processes()
            .map(|(id, process)| Report {
                id,
                pid: process.pid,
                uid: state.table.uid_of(id),
                package: process.package.name.clone(),
                name: process.name.clone(),
                adjustment: process.adjustment,
                class: process.adjustment.class(),
                rss_bytes: 0,
                components: process
                    .components
                    .iter()
                    .map(|(name, component)| (name.clone(), component.state))
                    .collect(),
            })
            .collect();
        drop(state);
        for report in &mut all {
            report.rss_bytes = report.pid.and_then(rss_bytes).unwrap_or_default();
        }
        all.sort_by_key(|report| (report.adjustment, report.id));
        all
    }

    /// The activities, the topmost first, as components.
    pub fn stack(&self) -> Vec<ComponentName> {
        self.with_table(|table, _| {
            let stack = table.stack();
            let target = |(id, name): (ProcessId, &str)| {
                let package = table.process(id)?.package.name.clone();
                Some(ComponentName { package, class: name.to_owned() })
            };
            stack.filter_map(target).collect()
        })
    }

    /// The killer's last decisions, the oldest first.
    pub fn choices(&self) -> Vec<Choice> {
        lock(&self.state).choices.iter().cloned().collect()
    }

    /// The free memory, and the killer's thresholds.
    pub fn memory(&self) -> Result<(u64, MinFree), Error> {
        Ok((self.gauge.free_bytes()?, self.minfree))
    }

    /// Waits for something to do, and does it: deaths, restarts, demotions, the killer. Returns
    /// whether `end` is readable. Where free memory cannot be read, nobody is killed, and the next
    /// look is a second later.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn round(&self, end: BorrowedFd<'_>) -> Result<bool, Error> {
        let running: Vec<(ProcessId, Arc<Running>)> =
            lock(&self.state).running.iter().map(|(id, it)| (*id, Arc::clone(it))).collect();
        let triggers = self.triggers.as_ref().map(Triggers::fds);
        let stalls = triggers.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::PRI));
        let mut fds: Vec<PollFd<'_>> =
            vec![PollFd::new(&end, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        fds.extend(running.iter().map(|(_, it)| PollFd::new(&it.pidfd, PollFlags::IN)));
        fds.extend(stalls);
        match poll(&mut fds, Some(&self.patience())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let conditions: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let (processes, stalls) = conditions[2..].split_at(running.len());
        if !conditions[1].is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        for (id, process) in
            running.iter().zip(processes).filter(|(_, it)| !it.is_empty()).map(|(it, _)| it)
        {
            self.bury(*id, process);
        }
        let effects = self.with_table(|table, now| table.tick(now));
        self.carry_out_apart(effects);
        self.look_at_memory(stalls.try_into().map_or(Stall::None, Triggers::stall));
        Ok(!conditions[0].is_empty())
    }

    /// Ends all processes and the helpers. To be called once no command comes any more.
    pub fn close(&self) {
        let running = std::mem::take(&mut lock(&self.state).running);
        for process in running.values() {
            let _ = process.kill();
        }
        self.starter.close();
        drop(running);
    }

    fn now(&self) -> Time {
        self.begin.elapsed()
    }

    fn with_table<R>(&self, body: impl FnOnce(&mut Table, Time) -> R) -> R {
        body(&mut lock(&self.state).table, self.now())
    }

    fn command<R>(
        &self,
        body: impl FnOnce(&mut Table, Time) -> Result<(R, Vec<Effect>), Refusal>,
    ) -> Result<R, Refusal> {
        let (result, effects) = self.with_table(body)?;
        self.carry_out(effects);
        Ok(result)
    }

    /// The time until the next round that has something to do, if nothing else happens.
    fn patience(&self) -> Timespec {
        let next = |free_bytes| next_look(free_bytes, self.minfree.most_bytes());
        let look = self.free_bytes().map_or(LONGEST_LOOK, next);
        let due = self.with_table(|table, now| {
            table.next_tick(now).map_or(Duration::MAX, |due| due.saturating_sub(now))
        });
        let patience = look.min(due);
        Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() }
    }

    /// The free memory, if it can be read. The log says when that begins to fail.
    fn free_bytes(&self) -> Option<u64> {
        let free_bytes = self.gauge.free_bytes();
        let was_blind = self.is_blind.swap(free_bytes.is_err(), Ordering::Relaxed);
        if let (Err(error), false) = (&free_bytes, was_blind) {
            warn!("nobody is killed for memory, as it cannot be read: {error}");
        }
        free_bytes.ok()
    }

    /// The pid of a process that is being started by this thread or another one.
    fn await_pid(&self, id: ProcessId, target: &ComponentName) -> Result<u32, StartRefused> {
        let is_starting =
            |it: &mut Managed| it.table.process(id).is_some_and(|process| process.pid.is_none());
        let state = self.settled.wait_while(lock(&self.state), is_starting);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.table.process(id).and_then(|process| process.pid).ok_or_else(|| {
            let why = state.failures.get(&id).map_or("it has ended at once", String::as_str);
            StartRefused::NotStarted(target.to_string(), why.to_owned())
        })
    }

    /// Carries effects out, each start by a thread of its own: the caller waits for no process.
    fn carry_out_apart(&self, effects: Vec<Effect>) {
        let is_start = |effect: &Effect| matches!(effect, Effect::Start(_));
        let (starts, others): (Vec<_>, Vec<_>) = effects.into_iter().partition(is_start);
        self.carry_out(others);
        for effect in starts {
            let Effect::Start(id) = effect else { continue };
            if let Err(error) = self.run_apart(move |manager| manager.carry_out(vec![effect])) {
                let effects = self.begun(id, Err(error.to_string()));
                self.carry_out_apart(effects);
            }
        }
    }

    fn run_apart(&self, run: impl FnOnce(&ProcessManager) + Send + 'static) -> Result<(), Error> {
        let Some(manager) = self.own.upgrade() else { return Ok(()) };
        Builder::new().name("baton-start".to_owned()).spawn(move || run(&manager)).map(drop)
    }

    fn carry_out(&self, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Start(id) => effects.extend(self.start_process(id)),
                Effect::Adjust(id, _) => self.apply(id),
                Effect::Enter(id, name, state) => self.tell(&Event::Entered(id, name, state)),
                Effect::Kill(id, reason) => {
                    let running = lock(&self.state).running.get(&id).cloned();
                    if let Some(running) = running {
                        info!("killing {}: {}", running.pid, reason.name());
                        if let Err(errno) = running.kill() {
                            warn!("{} cannot be killed: {errno}", running.pid);
                        }
                    }
                }
            }
        }
    }

    fn tell(&self, event: &Event) {
        let listeners = lock(&self.listeners).clone();
        listeners.iter().for_each(|listener| listener(event));
    }

    fn start_process(&self, id: ProcessId) -> Vec<Effect> {
        let Some((program, uid)) = self.with_table(|table, _| {
            let process = table.process(id)?;
            let program = process.package.programs.get(&process.name).cloned();
            Some((program, process.package.uid))
        }) else {
            return Vec::new();
        };
        let uid = uid.filter(|_| {
            let is_root = geteuid().is_root();
            if !is_root {
                self.notice("packages have no users of their own: that takes root");
            }
            is_root
        });
        let started = match &program {
            None => Err("its package names no program for it".to_owned()),
            Some(program) => self
                .prepare(program)
                .and_then(|()| self.starter.start(program, uid))
                .map_err(|error| error.to_string()),
        };
        self.begun(id, started)
    }

    /// A process runs, or does not and here is why.
    fn begun(&self, id: ProcessId, started: Result<Running, String>) -> Vec<Effect> {
        let mut state = lock(&self.state);
        let name = state.table.process(id).map(|process| process.name.clone()).unwrap_or_default();
        let effects = match started {
            Ok(running) => {
                info!("started {} ({name})", running.pid);
                let pid = running.pid;
                state.running.insert(id, Arc::new(running));
                state.table.started(id, pid, self.now())
            }
            Err(why) => {
                warn!("{name} cannot be started: {why}");
                state.failures.insert(id, why);
                // Of restarts, for which nobody waits.
                if state.failures.len() > N_FAILURES {
                    state.failures.pop_first();
                }
                state.table.died(id, self.now())
            }
        };
        drop(state);
        self.settled.notify_all();
        self.wake();
        effects
    }

    /// Has the helper of a program, in the group of the processes that it will fork.
    fn prepare(&self, program: &Program) -> Result<(), StartError> {
        if let Some(pid) = self.starter.prepare(program)? {
            // Where this is not allowed, its processes are told of it.
            let _ = set_score(pid, Adjustment::BEST.oom_score_adj());
            self.join(pid, Share::Full);
        }
        Ok(())
    }

    fn join(&self, pid: u32, share: Share) {
        let Some(group) = &self.group else { return };
        if group.join(pid, share).is_err() {
            self.notice("processes stay out of the control group: it is not to be written to");
        }
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Writes the adjustment of a process where the system sees it.
    fn apply(&self, id: ProcessId) {
        let mut applied = lock(&self.applied);
        let state = lock(&self.state);
        let Some(process) = state.table.process(id) else { return };
        let Some(running) = state.running.get(&id) else { return };
        let (adjustment, pid) = (process.adjustment, running.pid);
        drop(state);
        let before = applied.insert(id, adjustment);
        if before == Some(adjustment) {
            return;
        }
        let score = adjustment.oom_score_adj();
        if set_score(pid, score).is_err() {
            self.notice("no process is protected from the kernel's killer: CAP_SYS_RESOURCE");
            let _ = set_score(pid, score.max(0));
        }
        let (class, before) = (adjustment.class(), before.map(Adjustment::class));
        if before != Some(class) {
            self.set_nice(pid, class, before);
            if before.map(Class::share) != Some(class.share()) {
                self.join(pid, class.share());
            }
        }
    }

    /// Gives the threads of a process the nice values of its class. A thread that has chosen
    /// another one than its last class has keeps it.
    fn set_nice(&self, pid: u32, class: Class, before: Option<Class>) {
        let Some(nice) = class.nice() else { return };
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        for thread in threads.flatten() {
            let number: Option<i32> = thread.file_name().to_str().and_then(|it| it.parse().ok());
            let Some(tid) = number.and_then(Pid::from_raw) else { continue };
            let of = |nice: Nice| match number == i32::try_from(pid).ok() {
                true => nice.main,
                false => nice.others,
            };
            let last = before.and_then(Class::nice).map(of);
            let present = getpriority_process(Some(tid)).ok();
            if (last.is_none() || present == last)
                && present != Some(of(nice))
                && matches!(
                    setpriority_process(Some(tid), of(nice)),
                    Err(Errno::PERM | Errno::ACCESS)
                )
            {
                self.notice("nice values of classes are not set: that takes CAP_SYS_NICE");
            }
        }
    }

    fn notice(&self, text: &'static str) {
        if lock(&self.noticed).insert(text) {
            warn!("{text}");
        }
    }

    /// A process has ended.
    fn bury(&self, id: ProcessId, running: &Running) {
        // Nobody writes to what its pid names from here on.
        let mut applied = lock(&self.applied);
        let how = running.reap();
        applied.remove(&id);
        let mut state = lock(&self.state);
        drop(applied);
        state.running.remove(&id);
        state.victim = state.victim.filter(|(victim, _)| *victim != id);
        let name = state.table.process(id).map(|process| process.name.clone()).unwrap_or_default();
        let effects = state.table.died(id, self.now());
        drop(state);
        info!("process {} ({name}) has died: {how}", running.pid);
        self.settled.notify_all();
        self.tell(&Event::Died(id));
        self.carry_out_apart(effects);
    }

    /// Kills a process if there is too little memory, unless the last one has yet to end.
    fn look_at_memory(&self, stall: Stall) {
        let Some(free_bytes) = self.free_bytes() else { return };
        let memory = Memory { free_bytes, stall };
        if limit(memory, &self.minfree).is_none() {
            return;
        }
        let mut state = lock(&self.state);
        let now = self.now();
        if state.victim.is_some_and(|(_, since)| now.saturating_sub(since) < LONGEST_DEATH) {
            return;
        }
        let running = state.table.processes().filter(|(_, process)| !process.is_dying);
        let candidates = running.filter_map(|(id, process)| {
            let pid = process.pid?;
            Some(Candidate {
                id,
                name: process.name.clone(),
                pid,
                adjustment: process.adjustment,
                rss_bytes: rss_bytes(pid).unwrap_or_default(),
            })
        });
        let Some(choice) = choose(candidates.collect(), memory, &self.minfree) else {
            return;
        };
        let id = choice.victim.id;
        let killed = state.running.get(&id).map_or(Ok(()), |running| running.kill());
        state.table.doom(id);
        state.victim = Some((id, now));
        if state.choices.len() == N_CHOICES {
            state.choices.pop_front();
        }
        state.choices.push_back(choice.clone());
        drop(state);
        warn!("{choice}");
        if let Err(errno) = killed {
            warn!("{} cannot be killed: {errno}", choice.victim.pid);
        }
        self.tell(&Event::Killed(choice));
    }
}

fn set_score(pid: u32, score: i32) -> Result<(), Error> {
    let mut file = File::options().write(true).open(format!("/proc/{pid}/oom_score_adj"))?;
    file.write_all(score.to_string().as_bytes())
}

impl std::fmt::Debug for ProcessManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessManager").field("group", &self.group).finish_non_exhaustive()
    }
}
