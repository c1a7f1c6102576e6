//! The table of processes: their components, and the class that each has by what it does.
//!
//! Pure: the clock is passed in, and what there is to do comes out as [`Effect`]s.
//!
//! ```text
//!  created --> started --> resumed <--> paused --> stopped --> destroyed
//!                 ^                                   |
//!                 +-----------------------------------+        and from everywhere by a kill
//! ```
//!
//! - An **activity** goes the whole way. The topmost one of the stack is resumed; the one below is
//!   paused, and so visible, until the new one's process runs, and stopped then.
//! - A **service** is started, and destroyed when it is stopped; a **provider** and a **receiver**
//!   are created.
//! - The **adjustment** of a process is the best that one of its components gives it, or one of its
//!   clients by a binding, but none better than the foreground's by a client. What the process has
//!   asked for comes last.
//!
//! Source: *RTAndroid*, figure 2.5 and section 5.3.

use super::class::{Adjustment, Class};
use super::package::{Declared, Package};
use crate::intent::{ComponentKind, ComponentName};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A service that nobody has used for so long is no reason any more to keep its process.
pub const DISUSE: Duration = Duration::from_secs(30 * 60);
/// The wait before the first restart of a persistent process; it doubles with each further one.
pub const FIRST_RESTART: Duration = Duration::from_secs(1);
/// The longest wait before a restart.
pub const LAST_RESTART: Duration = Duration::from_secs(64);
/// A process that has run for so long has its restarts forgotten.
pub const STABLE: Duration = Duration::from_secs(60);

/// A time of the clock that is passed in, from its beginning.
pub type Time = Duration;

/// One incarnation of a process. A process that is started again has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ProcessId(pub u64);

/// The caller of a command, by what the driver says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The process.
    pub pid: u32,
    /// The user.
    pub uid: u32,
}

/// The state of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its process is there, or is being started.
    Created,
    /// It works.
    Started,
    /// An activity that the user works with.
    Resumed,
    /// An activity that is to be seen, but has not the user's attention.
    Paused,
    /// An activity that is not to be seen.
    Stopped,
    /// It is gone.
    Destroyed,
}

impl State {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            State::Created => "created",
            State::Started => "started",
            State::Resumed => "resumed",
            State::Paused => "paused",
            State::Stopped => "stopped",
            State::Destroyed => "destroyed",
        }
    }

    /// The states on the way to another one, which is the last. Empty if there is no way.
    fn way(self, to: State) -> Vec<State> {
        use State::*;
        let next = match (self, to) {
            (from, to) if from == to => return Vec::new(),
            (Destroyed, _) | (_, Created) => return Vec::new(),
            (Created, Destroyed) | (Stopped, Destroyed) => Destroyed,
            (Created, _) | (Stopped, _) => Started,
            (Started, Resumed | Paused) => Resumed,
            (Paused, Resumed) => Resumed,
            (Started | Paused, _) => Stopped,
            (Resumed, _) => Paused,
        };
        let mut way = vec![next];
        way.extend(next.way(to));
        way
    }
}

/// What the I/O has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start the process, and report [`Table::started`] or [`Table::died`].
    Start(ProcessId),
    /// The process has another adjustment.
    Adjust(ProcessId, Adjustment),
    /// A component has another state, of which its process is to be told.
    Enter(ProcessId, String, State),
    /// End the process. [`Table::died`] follows.
    Kill(ProcessId, KillReason),
}

/// Why a process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// `am kill`.
    Asked,
    /// `am force-stop`.
    ForceStop,
}

impl KillReason {
    /// The reason in the log.
    pub fn name(self) -> &'static str {
        match self {
            KillReason::Asked => "somebody asked for it",
            KillReason::ForceStop => "its package is stopped by force",
        }
    }
}

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no manifest of this package.
    #[error("no package {0:?} is known")]
    NoPackage(String),
    /// The package declares no such component.
    #[error("{0} is not in its package's manifest")]
    NoComponent(ComponentName),
    /// The component is of another kind.
    #[error("{target} is no {wanted}")]
    WrongKind {
        /// The component.
        target: ComponentName,
        /// The kinds for which the command is.
        wanted: &'static str,
    },
    /// The manager has not started a process with this pid.
    #[error("the manager has no process {0}")]
    NoProcess(u32),
    /// The component does not run.
    #[error("{0} does not run")]
    NotRunning(ComponentName),
    /// The component is for its own user only.
    #[error("{0} is not exported: only its own user and root may use it")]
    NotExported(ComponentName),
    /// The process belongs to another user.
    #[error("this is for the user of {0} and for root")]
    OtherUser(String),
    /// A class better than the foreground's.
    #[error(
        "adjustment {0} is for root, and down to -11 for processes of packages with the right \
             to real time"
    )]
    Protected(Adjustment),
    /// The package was stopped by force, and nobody has started a component of it since.
    #[error("{0} was stopped by force")]
    Stopped(String),
    /// The package is there already.
    #[error("there are two manifests of the package {0:?}")]
    Twice(String),
}

/// An adjustment that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// By one who may give it.
    Exactly(Adjustment),
    /// By one who may only step back.
    NoBetterThan(Adjustment),
}

/// A component that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its kind.
    pub kind: ComponentKind,
    /// Its state.
    pub state: State,
    /// When it was last used: started, bound, or left by a client.
    pub used: Time,
    /// Broadcasts that a receiver is working on.
    pub n_receiving: u32,
    /// Whether a service was started, and is not there for its clients only.
    is_wanted: bool,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its package.
    pub package: Arc<Package>,
    /// Its name, `PACKAGE` or `PACKAGE:NAME` unless the manifest has another.
    pub name: String,
    /// Its pid. `None` while it is being started.
    pub pid: Option<u32>,
    /// Its components by their names.
    pub components: BTreeMap<String, Component>,
    /// Its adjustment.
    pub adjustment: Adjustment,
    /// Whether its end has been asked for.
    pub is_dying: bool,
    asked: Option<Asked>,
    /// When it was last used, for the order of hidden processes.
    used: Time,
    since: Time,
}

/// A client that uses a service or a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Binding {
    client: ProcessId,
    server: ProcessId,
    component: String,
}

/// The restarts of a persistent process.
#[derive(Clone, Copy, Debug, Default)]
struct Restarts {
    n: u32,
    /// When the next one is due.
    at: Option<Time>,
}

/// The name of a process: its package's and its own.
type Name = (String, String);

/// The processes of the manager.
#[derive(Debug)]
pub struct Table {
    manager_uid: u32,
    next_id: u64,
    packages: BTreeMap<String, Arc<Package>>,
    processes: BTreeMap<ProcessId, Process>,
    bindings: BTreeSet<Binding>,
    /// Activities, the topmost last.
    stack: Vec<(ProcessId, String)>,
    restarts: BTreeMap<Name, Restarts>,
    /// Packages that have been stopped by force, until somebody starts a component of theirs.
    stopped: BTreeSet<String>,
    /// Packages whose data is being backed up.
    backups: BTreeSet<String>,
}

impl Table {
    /// A table without processes. Root and the manager's user may do everything.
    pub fn new(manager_uid: u32) -> Table {
        Table {
            manager_uid,
            next_id: 0,
            packages: BTreeMap::new(),
            processes: BTreeMap::new(),
            bindings: BTreeSet::new(),
            stack: Vec::new(),
            restarts: BTreeMap::new(),
            stopped: BTreeSet::new(),
            backups: BTreeSet::new(),
        }
    }

    /// Adds a package. The processes of a persistent one are started.
    pub fn add(&mut self, package: Package, now: Time) -> Result<Vec<Effect>, Refusal> {
        if self.packages.contains_key(&package.name) {
            return Err(Refusal::Twice(package.name));
        }
        let package = Arc::new(package);
        self.packages.insert(package.name.clone(), Arc::clone(&package));
        let mut effects = Vec::new();
        if package.persistent {
            for process in package.programs.keys() {
                self.ensure(&package, process, now, &mut effects);
            }
        }
        Ok(effects)
    }

    /// All processes, dying ones included.
    pub fn processes(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.processes.iter().map(|(id, process)| (*id, process))
    }

    /// A process.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    /// The process with this pid.
    pub fn by_pid(&self, pid: u32) -> Result<ProcessId, Refusal> {
        let found = self.processes.iter().find(|(_, process)| process.pid == Some(pid));
        found.map(|(id, _)| *id).ok_or(Refusal::NoProcess(pid))
    }

    /// The activities of the stack, the topmost first.
    pub fn stack(&self) -> impl Iterator<Item = (ProcessId, &str)> {
        self.stack.iter().rev().map(|(id, name)| (*id, name.as_str()))
    }

    /// Starts an activity or a service, and its process before that.
    pub fn start(
        &mut self,
        caller: Caller,
        target: &ComponentName,
        now: Time,
    ) -> Result<(ProcessId, Vec<Effect>), Refusal> {
        let (package, declared) = self.declared(caller, target)?;
        if !matches!(declared.kind, ComponentKind::Activity | ComponentKind::Service) {
            let wanted = "activity or service";
            return Err(Refusal::WrongKind { target: target.clone(), wanted });
        }
        self.stopped.remove(&package.name);
        let mut effects = Vec::new();
        let id = self.create(&package, &declared, &target.class, now, &mut effects);
        self.component(id, &target.class).expect("just created").is_wanted = true;
        if declared.kind == ComponentKind::Activity {
            self.stack.retain(|(of, name)| (*of, name) != (id, &target.class));
            self.stack.push((id, target.class.clone()));
        }
        self.settle(now, &mut effects);
        Ok((id, effects))
    }

    /// Stops a component: an activity leaves the stack, a service is destroyed.
    pub fn stop(
        &mut self,
        caller: Caller,
        target: &ComponentName,
        now: Time,
    ) -> Result<Vec<Effect>, Refusal> {
        let (_, declared) = self.declared(caller, target)?;
        let id = self.running(target, &declared)?;
        let mut effects = Vec::new();
        self.stack.retain(|(of, name)| (*of, name) != (id, &target.class));
        self.enter(id, &target.class, State::Destroyed, now, &mut effects);
        self.bindings.retain(|it| it.server != id || it.component != target.class);
        self.settle(now, &mut effects);
        Ok(effects)
    }

    /// Binds the caller's process to a service or a provider, whose process is started.
    pub fn bind(
        &mut self,
        caller: Caller,
        target: &ComponentName,
        now: Time,
    ) -> Result<(ProcessId, Vec<Effect>), Refusal> {
        let (package, declared) = self.declared(caller, target)?;
        let client = self.by_pid(caller.pid)?;
        if !matches!(declared.kind, ComponentKind::Service | ComponentKind::Provider) {
            let wanted = "service or provider";
            return Err(Refusal::WrongKind { target: target.clone(), wanted });
        }
        self.stopped.remove(&package.name);
        let mut effects = Vec::new();
        let server = self.create(&package, &declared, &target.class, now, &mut effects);
        let component = target.class.clone();
        self.bindings.insert(Binding { client, server, component });
        self.settle(now, &mut effects);
        Ok((server, effects))
    }

    /// Ends a binding of the caller's process.
    pub fn unbind(
        &mut self,
        caller: Caller,
        target: &ComponentName,
        now: Time,
    ) -> Result<Vec<Effect>, Refusal> {
        let (_, declared) = self.declared(caller, target)?;
        let (client, server) = (self.by_pid(caller.pid)?, self.running(target, &declared)?);
        let component = target.class.clone();
        if !self.bindings.remove(&Binding { client, server, component }) {
            return Err(Refusal::NotRunning(target.clone()));
        }
        self.use_component(server, &target.class, now);
        let mut effects = Vec::new();
        self.settle(now, &mut effects);
        Ok(effects)
    }

    /// A receiver begins to work on a broadcast. Its process is started, and is as important as the
    /// foreground's until [`Table::received`]. A package that was stopped by force receives
    /// nothing.
    pub fn receive(
        &mut self,
        target: &ComponentName,
        now: Time,
    ) -> Result<(ProcessId, Vec<Effect>), Refusal> {
        let caller = Caller { pid: 0, uid: self.manager_uid };
        let (package, declared) = self.declared(caller, target)?;
        if declared.kind != ComponentKind::Receiver {
            return Err(Refusal::WrongKind { target: target.clone(), wanted: "receiver" });
        }
        if self.stopped.contains(&package.name) {
            return Err(Refusal::Stopped(package.name.clone()));
        }
        let mut effects = Vec::new();
        let id = self.create(&package, &declared, &target.class, now, &mut effects);
        if let Some(component) = self.component(id, &target.class) {
            component.n_receiving += 1;
        }
        self.settle(now, &mut effects);
        Ok((id, effects))
    }

    /// As [`Table::receive`], if the receiver's process is there.
    pub fn receive_if_running(
        &mut self,
        target: &ComponentName,
        now: Time,
    ) -> Option<(ProcessId, Vec<Effect>)> {
        let declared = self.packages.get(&target.package)?.components.get(&target.class)?;
        self.find(&target.package, &declared.process)?;
        self.receive(target, now).ok()
    }

    /// A receiver has done with a broadcast. Nothing happens if its process is another one by now.
    pub fn received(&mut self, id: ProcessId, component: &str, now: Time) -> Vec<Effect> {
        if let Some(component) = self.component(id, component) {
            component.n_receiving = component.n_receiving.saturating_sub(1);
        }
        self.tick(now)
    }

    /// Sets or clears the adjustment of a process. Root and the manager's user may give any, a
    /// process's own user those from the foreground's on, as a bound, and a package with the right
    /// to real time those of that class.
    pub fn ask(
        &mut self,
        caller: Caller,
        pid: u32,
        wanted: Option<Adjustment>,
        now: Time,
    ) -> Result<Vec<Effect>, Refusal> {
        let is_trusted = self.is_trusted(caller.uid);
        let id = self.own_process(caller, pid)?;
        let process = self.processes.get_mut(&id).expect("just found");
        process.asked = match wanted {
            None => None,
            Some(wanted) if is_trusted => Some(Asked::Exactly(wanted)),
            Some(wanted) if !wanted.is_protected() => Some(Asked::NoBetterThan(wanted)),
            Some(wanted) if process.package.real_time && wanted.class() == Class::RealTime => {
                Some(Asked::Exactly(wanted))
            }
            Some(wanted) => return Err(Refusal::Protected(wanted)),
        };
        Ok(self.tick(now))
    }

    /// A package's data is being backed up, or not any more.
    pub fn back_up(
        &mut self,
        caller: Caller,
        package: &str,
        is_running: bool,
        now: Time,
    ) -> Result<Vec<Effect>, Refusal> {
        let package = self.own_package(caller, package)?;
        match is_running {
            true => self.backups.insert(package.name.clone()),
            false => self.backups.remove(&package.name),
        };
        Ok(self.tick(now))
    }

    /// Kills a package's processes that are in the background: those that nobody would miss.
    pub fn kill(&mut self, caller: Caller, package: &str) -> Result<Vec<Effect>, Refusal> {
        let package = self.own_package(caller, package)?;
        let background = Class::SecondaryServer.adjustment();
        Ok(self.end(&package.name, KillReason::Asked, |it| it.adjustment >= background))
    }

    /// Kills all processes of a package, and starts none again before somebody asks for one.
    pub fn force_stop(&mut self, caller: Caller, package: &str) -> Result<Vec<Effect>, Refusal> {
        let package = self.own_package(caller, package)?;
        self.stopped.insert(package.name.clone());
        self.restarts.retain(|(of, _), _| *of != package.name);
        Ok(self.end(&package.name, KillReason::ForceStop, |_| true))
    }

    /// The low-memory killer has chosen this process: it is not chosen again.
    pub fn doom(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.is_dying = true;
        }
    }

    /// A process runs. Its components enter their states.
    pub fn started(&mut self, id: ProcessId, pid: u32, now: Time) -> Vec<Effect> {
        let Some(process) = self.processes.get_mut(&id) else { return Vec::new() };
        process.pid = Some(pid);
        process.since = now;
        let mut effects = vec![Effect::Adjust(id, process.adjustment)];
        if process.is_dying {
            // Its end was asked for before there was a pid.
            effects.push(Effect::Kill(id, KillReason::Asked));
        }
        for (name, component) in &process.components {
            effects.push(Effect::Enter(id, name.clone(), component.state));
        }
        self.settle(now, &mut effects);
        effects
    }

    /// A process has ended, or could not be started. A persistent one is due for a restart.
    pub fn died(&mut self, id: ProcessId, now: Time) -> Vec<Effect> {
        let Some(process) = self.processes.remove(&id) else { return Vec::new() };
        self.bindings.retain(|it| it.client != id && it.server != id);
        self.stack.retain(|(of, _)| *of != id);
        let package = &process.package;
        if package.persistent && !self.stopped.contains(&package.name) {
            let name = (package.name.clone(), process.name.clone());
            let restarts = self.restarts.entry(name).or_default();
            if process.pid.is_some() && now.saturating_sub(process.since) >= STABLE {
                restarts.n = 0;
            }
            restarts.at = Some(now + restart_delay(restarts.n));
            restarts.n += 1;
        }
        self.tick(now)
    }

    /// Does what is due: restarts, and demotions of services that nobody uses.
    pub fn tick(&mut self, now: Time) -> Vec<Effect> {
        let mut effects = Vec::new();
        let is_due =
            |(_, restarts): &(&Name, &mut Restarts)| restarts.at.is_some_and(|at| at <= now);
        let due: Vec<Name> = self
            .restarts
            .iter_mut()
            .filter(is_due)
            .map(|(name, restarts)| {
                restarts.at = None;
                name.clone()
            })
            .collect();
        for (package, process) in due {
            if let Some(package) = self.packages.get(&package).cloned() {
                self.ensure(&package, &process, now, &mut effects);
            }
        }
        self.settle(now, &mut effects);
        effects
    }

    /// The time of the next [`Table::tick`] that has something to do.
    pub fn next_tick(&self, now: Time) -> Option<Time> {
        let restarts = self.restarts.values().filter_map(|restarts| restarts.at);
        let services = self.processes.values().flat_map(|process| process.components.values());
        let demotions = services
            .filter(|it| it.kind == ComponentKind::Service && it.state == State::Started)
            .map(|it| it.used + DISUSE)
            .filter(|at| *at > now);
        restarts.chain(demotions).min()
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.manager_uid
    }

    fn uid_of_package(&self, package: &Package) -> u32 {
        package.uid.unwrap_or(self.manager_uid)
    }

    /// The user of a process.
    ///
    /// # Panics
    /// If there is no such process: the caller's bug.
    pub fn uid_of(&self, id: ProcessId) -> u32 {
        self.uid_of_package(&self.processes[&id].package)
    }

    /// The process with this pid, if it is the caller's to command.
    pub fn own_process(&self, caller: Caller, pid: u32) -> Result<ProcessId, Refusal> {
        let id = self.by_pid(pid)?;
        let is_own = self.is_trusted(caller.uid) || caller.uid == self.uid_of(id);
        is_own.then_some(id).ok_or_else(|| Refusal::OtherUser(self.processes[&id].name.clone()))
    }

    /// A package that the caller may command.
    fn own_package(&self, caller: Caller, name: &str) -> Result<Arc<Package>, Refusal> {
        let package = self.package(name)?;
        let is_own = self.is_trusted(caller.uid) || caller.uid == self.uid_of_package(&package);
        is_own.then_some(package).ok_or_else(|| Refusal::OtherUser(name.to_owned()))
    }

    fn package(&self, name: &str) -> Result<Arc<Package>, Refusal> {
        self.packages.get(name).cloned().ok_or_else(|| Refusal::NoPackage(name.to_owned()))
    }

    /// A component that the caller may use.
    fn declared(
        &self,
        caller: Caller,
        target: &ComponentName,
    ) -> Result<(Arc<Package>, Declared), Refusal> {
        let package = self.package(&target.package)?;
        let declared = package.components.get(&target.class).cloned();
        let declared = declared.ok_or_else(|| Refusal::NoComponent(target.clone()))?;
        let may_use = declared.exported
            || self.is_trusted(caller.uid)
            || caller.uid == self.uid_of_package(&package);
        may_use.then_some((package, declared)).ok_or_else(|| Refusal::NotExported(target.clone()))
    }

    /// The process in which a component runs.
    fn running(&self, target: &ComponentName, declared: &Declared) -> Result<ProcessId, Refusal> {
        self.find(&target.package, &declared.process)
            .filter(|id| self.processes[id].components.contains_key(&target.class))
            .ok_or_else(|| Refusal::NotRunning(target.clone()))
    }

    /// The process of this name that is not dying.
    fn find(&self, package: &str, process: &str) -> Option<ProcessId> {
        let is_it = |it: &Process| it.package.name == package && it.name == process && !it.is_dying;
        self.processes.iter().find(|(_, process)| is_it(process)).map(|(id, _)| *id)
    }

    /// The process of this name, which is started if it is not there.
    fn ensure(
        &mut self,
        package: &Arc<Package>,
        name: &str,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> ProcessId {
        if let Some(id) = self.find(&package.name, name) {
            return id;
        }
        self.next_id += 1;
        let id = ProcessId(self.next_id);
        let process = Process {
            package: Arc::clone(package),
            name: name.to_owned(),
            pid: None,
            components: BTreeMap::new(),
            adjustment: match package.persistent {
                true => Adjustment::BEST,
                false => Adjustment::WORST,
            },
            is_dying: false,
            asked: None,
            used: now,
            since: now,
        };
        self.processes.insert(id, process);
        effects.push(Effect::Start(id));
        id
    }

    /// Has a component in its process, used now.
    fn create(
        &mut self,
        package: &Arc<Package>,
        declared: &Declared,
        name: &str,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> ProcessId {
        let id = self.ensure(package, &declared.process, now, effects);
        let process = self.processes.get_mut(&id).expect("just ensured");
        if !process.components.contains_key(name) {
            let (kind, state) = (declared.kind, State::Created);
            let component = Component { kind, state, used: now, n_receiving: 0, is_wanted: false };
            process.components.insert(name.to_owned(), component);
            if process.pid.is_some() {
                effects.push(Effect::Enter(id, name.to_owned(), state));
            }
        }
        self.use_component(id, name, now);
        id
    }

    fn component(&mut self, id: ProcessId, name: &str) -> Option<&mut Component> {
        self.processes.get_mut(&id)?.components.get_mut(name)
    }

    fn use_component(&mut self, id: ProcessId, name: &str, now: Time) {
        if let Some(component) = self.component(id, name) {
            component.used = now;
            self.processes.get_mut(&id).expect("it has the component").used = now;
        }
    }

    /// Takes a component to a state, through those on the way.
    fn enter(
        &mut self,
        id: ProcessId,
        name: &str,
        to: State,
        now: Time,
        effects: &mut Vec<Effect>,
    ) {
        let Some(component) = self.component(id, name) else { return };
        for state in component.state.way(to) {
            component.state = state;
            effects.push(Effect::Enter(id, name.to_owned(), state));
        }
        if to == State::Destroyed {
            let process = self.processes.get_mut(&id).expect("it has the component");
            process.components.remove(name);
            process.used = now;
        }
    }

    fn end(
        &mut self,
        package: &str,
        reason: KillReason,
        is_meant: impl Fn(&Process) -> bool,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (id, process) in &mut self.processes {
            if process.package.name == package && !process.is_dying && is_meant(process) {
                process.is_dying = true;
                if process.pid.is_some() {
                    effects.push(Effect::Kill(*id, reason));
                }
            }
        }
        effects
    }

    /// Has every component in the state and every process at the adjustment that it is due.
    fn settle(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.settle_services(now, effects);
        self.settle_stack(now, effects);
        for (id, adjustment) in self.adjustments(now) {
            let process = self.processes.get_mut(&id).expect("computed from the table");
            if process.adjustment != adjustment {
                process.adjustment = adjustment;
                if process.pid.is_some() {
                    effects.push(Effect::Adjust(id, adjustment));
                }
            }
        }
        // A start takes long.
        effects.sort_by_key(|effect| matches!(effect, Effect::Start(_)));
    }

    /// A service that somebody has started is started once its process runs. One that is there for
    /// its clients only ends with the last of them.
    fn settle_services(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let mut due = Vec::new();
        for (id, process) in &self.processes {
            let services =
                process.components.iter().filter(|(_, it)| it.kind == ComponentKind::Service);
            for (name, service) in services {
                let is_client = |it: &Binding| it.server == *id && it.component == *name;
                match service.is_wanted {
                    true if service.state == State::Created && process.pid.is_some() => {
                        due.push((*id, name.clone(), State::Started));
                    }
                    false if !self.bindings.iter().any(is_client) => {
                        due.push((*id, name.clone(), State::Destroyed));
                    }
                    _ => {}
                }
            }
        }
        for (id, name, state) in due {
            self.enter(id, &name, state, now, effects);
        }
    }

    /// The topmost activity is resumed, if its process runs. While that is being started, the next
    /// one below is paused. All others are stopped.
    fn settle_stack(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let mut above = State::Resumed;
        for (id, name) in self.stack.clone().into_iter().rev() {
            if self.processes.get(&id).is_none_or(|process| process.pid.is_none()) {
                above = State::Paused;
                continue;
            }
            let Some(component) = self.component(id, &name) else { continue };
            let state = match (above, component.state) {
                // Not shown yet: there is nothing to be paused.
                (State::Paused, State::Created | State::Stopped) => component.state,
                (state, _) => state,
            };
            if state == State::Resumed {
                self.use_component(id, &name, now);
            }
            self.enter(id, &name, state, now, effects);
            above = State::Stopped;
        }
    }

    /// The adjustment that each process is due.
    fn adjustments(&self, now: Time) -> BTreeMap<ProcessId, Adjustment> {
        let mut own: BTreeMap<ProcessId, Adjustment> =
            self.processes.iter().map(|(id, it)| (*id, self.own(it, now))).collect();
        let mut hidden: Vec<ProcessId> =
            own.iter().filter(|(_, it)| it.class() == Class::Hidden).map(|(id, _)| *id).collect();
        hidden.sort_by_key(|id| std::cmp::Reverse((self.processes[id].used, *id)));
        for (n_later, id) in hidden.into_iter().enumerate() {
            own.insert(id, Adjustment::of_hidden(n_later));
        }
        let mut all = own.clone();
        self.apply_asked(&mut all);
        // Each round hands adjustments on by one binding; a cycle has no more to hand on.
        loop {
            let mut next = own.clone();
            for binding in &self.bindings {
                let given = all[&binding.client].max(Class::Foreground.adjustment());
                let server = next.get_mut(&binding.server).expect("bindings end with processes");
                *server = given.min(*server);
            }
            self.apply_asked(&mut next);
            if next == all {
                return all;
            }
            all = next;
        }
    }

    /// What processes have asked for comes before what they do.
    fn apply_asked(&self, adjustments: &mut BTreeMap<ProcessId, Adjustment>) {
        for (id, adjustment) in adjustments {
            *adjustment = match self.processes[id].asked {
                None => *adjustment,
                Some(Asked::Exactly(wanted)) => wanted,
                Some(Asked::NoBetterThan(wanted)) => wanted.max(*adjustment),
            };
        }
    }

    /// The adjustment by what a process does itself.
    fn own(&self, process: &Process, now: Time) -> Adjustment {
        if process.package.persistent {
            return Adjustment::BEST;
        }
        let is_home = process.package.is_home;
        let of = |component: &Component| match (component.kind, component.state) {
            (ComponentKind::Receiver, _) if component.n_receiving > 0 => Class::Foreground,
            (ComponentKind::Activity, State::Resumed) => Class::Foreground,
            // Its process is being started because the user waits for it.
            (ComponentKind::Activity, State::Created) if process.pid.is_none() => Class::Foreground,
            (ComponentKind::Activity, State::Started | State::Paused) => Class::Visible,
            (ComponentKind::Activity, _) if is_home => Class::Home,
            (ComponentKind::Activity, _) => Class::Hidden,
            (ComponentKind::Service, State::Started) => {
                match now.saturating_sub(component.used) < DISUSE {
                    true => Class::SecondaryServer,
                    false => Class::Hidden,
                }
            }
            (ComponentKind::Service, _) if process.pid.is_none() => Class::SecondaryServer,
            (ComponentKind::Provider, _) => Class::ContentProvider,
            (ComponentKind::Service | ComponentKind::Receiver, _) => Class::Empty,
        };
        let backup = self.backups.contains(&process.package.name).then_some(Class::Backup);
        let best = process.components.values().map(of).chain(backup).min();
        best.unwrap_or(Class::Empty).adjustment()
    }
}

/// The wait before the restart of a process that has been restarted `n_before` times in a row.
fn restart_delay(n_before: u32) -> Duration {
    let doubled = 1u32.checked_shl(n_before).unwrap_or(u32::MAX);
    FIRST_RESTART.saturating_mul(doubled).min(LAST_RESTART)
}

#[cfg(test)]
mod tests;
