//! Who receives what: registered receivers, the receivers of manifests, and sticky broadcasts.
//!
//! Senders read a snapshot of the receivers without a lock. Changes, and senders of sticky
//! broadcasts, take the lock of the rest, whose holder runs at the priority of a real-time thread
//! that waits for it.
//!
//! **Invariant**: a sticky broadcast is kept and its receivers are found under one lock, as a
//! receiver is registered and the sticky broadcasts for it are found. So the receiver gets it once,
//! in one of the two ways.

use super::account::{Accounts, Charge, Counted, Exhausted};
use super::level::{Receiver, Target};
use super::protocol::Send;
use crate::intent::flags::RECEIVER_REGISTERED_ONLY;
use crate::intent::{
    Component, ComponentKind, ComponentName, FilterError, Intent, IntentFilter, Key, Manifest,
    Owner, Policy, Resolver, SharedResolver,
};
use arc_swap::ArcSwapOption;
use baton_shm::lock::Lock;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The user has too much of something.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// The filter cannot be registered.
    #[error("the argument filter: {0}")]
    Filter(#[from] FilterError),
    /// The package belongs to another user, or no manifest has it.
    #[error("package {package} is none of user {uid}'s by any manifest that is installed")]
    NotYourPackage {
        /// The package.
        package: String,
        /// The user.
        uid: u32,
    },
    /// No manifest has the component.
    #[error("no manifest that is installed has the receiver {package}/{class}")]
    NoComponent {
        /// The component's package.
        package: String,
        /// Its class.
        class: String,
    },
    /// The receiver is not registered.
    #[error("the receiver is not registered")]
    NotRegistered,
    /// The sender of a sticky broadcast asks its receivers for a permission.
    #[error("a sticky broadcast asks its receivers for no permission")]
    StickyWithPermission,
}

/// The tables. `R` is a reference to a receiver's object.
pub struct Tables<R> {
    policy: Policy,
    accounts: Accounts,
    receivers: SharedResolver<Party<R>>,
    rest: Lock<Rest<R>>,
}

/// Somebody who receives.
#[derive(Debug)]
pub enum Party<R> {
    /// A registered receiver.
    Registered(Arc<Receiver<R>>),
    /// A component of a manifest.
    Component(Arc<ManifestReceiver<R>>),
}

/// A receiver of a manifest.
#[derive(Debug)]
pub struct ManifestReceiver<R> {
    component: Component,
    uid: u32,
    /// The receiver that its process has attached.
    attached: ArcSwapOption<Receiver<R>>,
}

#[derive(Debug)]
struct Rest<R> {
    next_id: u64,
    registered: BTreeMap<u64, Registered<R>>,
    /// The users of packages.
    packages: HashMap<String, u32>,
    components: HashMap<ComponentName, Installed<R>>,
    stickies: Vec<Arc<Sticky>>,
}

/// A component, and its places among the receivers.
#[derive(Debug)]
struct Installed<R> {
    receiver: Arc<ManifestReceiver<R>>,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Registered<R> {
    receiver: Arc<Receiver<R>>,
    place: Place<R>,
    _charge: Charge,
}

#[derive(Debug)]
enum Place<R> {
    Filter(Key, Box<IntentFilter>),
    Component(Arc<ManifestReceiver<R>>),
}

/// A sticky broadcast that is kept.
#[derive(Debug)]
pub struct Sticky {
    /// The intent.
    pub intent: Intent,
    /// Its sender's user.
    pub uid: u32,
    /// Its level.
    pub level: usize,
    _charge: Charge,
}

impl Sticky {
    /// Whether an intent of a user takes this one's place: the two differ in extras and flags only.
    fn is_replaced_by(&self, intent: &Intent, uid: u32) -> bool {
        let Intent { action, data, mime_type, categories, package, component, .. } = &self.intent;
        self.uid == uid
            && *action == intent.action
            && *data == intent.data
            && *mime_type == intent.mime_type
            && *categories == intent.categories
            && *package == intent.package
            && *component == intent.component
    }
}

/// A receiver that has been registered, and the sticky broadcasts for it.
pub type NewReceiver<R> = (Arc<Receiver<R>>, Vec<Arc<Sticky>>);

/// A process that asks to receive.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// A receiver as it is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Its process; `None` for a component that does not run.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
    /// Its filters.
    pub filters: Vec<IntentFilter>,
    /// The permission that senders need.
    pub permission: Option<String>,
}

impl<R> Tables<R> {
    /// Tables without receivers.
    pub fn new(policy: Policy) -> Tables<R> {
        let rest = Rest {
            next_id: 1,
            registered: BTreeMap::new(),
            packages: HashMap::new(),
            components: HashMap::new(),
            stickies: Vec::new(),
        };
        let (accounts, receivers) = (Accounts::default(), SharedResolver::default());
        Tables { policy, accounts, receivers, rest: Lock::new(rest) }
    }

    /// The users' accounts.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Installs the receivers of a manifest, whose application belongs to a user. An older manifest
    /// of the package is replaced.
    ///
    /// # Errors
    /// A filter cannot be registered: the manifest's fault. Nothing is changed then.
    pub fn install(&self, manifest: &Manifest, uid: u32) -> Result<(), FilterError> {
        let mut rest = self.rest.lock();
        let is_of_package = |name: &ComponentName| name.package == manifest.package;
        let mut installed = Vec::new();
        self.receivers.update(|resolver| {
            let mut changed = resolver.clone();
            let older = rest.components.iter().filter(|(name, _)| is_of_package(name));
            older.flat_map(|(_, older)| &older.keys).for_each(|key| _ = changed.remove(*key));
            for component in &manifest.components {
                if component.kind == ComponentKind::Receiver {
                    installed.push(Installed::new(component, uid, &mut changed)?);
                }
            }
            *resolver = changed;
            Ok::<(), FilterError>(())
        })?;
        rest.components.retain(|name, _| !is_of_package(name));
        rest.packages.insert(manifest.package.clone(), uid);
        let by_name =
            |installed: Installed<R>| (installed.receiver.component.name.clone(), installed);
        rest.components.extend(installed.into_iter().map(by_name));
        Ok(())
    }

    /// Registers a receiver. `link` makes its object, and is told the receiver's id; a death that
    /// is reported meanwhile finds the receiver. Returns the sticky broadcasts for it.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn register(
        &self,
        caller: &Caller,
        filter: IntentFilter,
        permission: Option<String>,
        package: Option<String>,
        link: impl FnOnce(u64) -> R,
    ) -> Result<NewReceiver<R>, Refusal> {
        let charge = self.accounts.charge(caller.uid, Counted::Receiver)?;
        let mut rest = self.rest.lock();
        if let Some(package) = &package {
            rest.check_package(package, caller.uid)?;
        }
        let receiver = rest.receiver(caller, None, permission, link);
        let owner = package.map_or(Owner::Process, Owner::Package);
        let party = Party::Registered(Arc::clone(&receiver));
        let insert = |resolver: &mut Resolver<_>| resolver.insert(owner, filter.clone(), party);
        let key = self.receivers.update(insert)?;
        let place = Place::Filter(key, Box::new(filter.clone()));
        let registered = Registered { receiver: Arc::clone(&receiver), place, _charge: charge };
        rest.registered.insert(receiver.id, registered);
        let may_receive = |sticky: &&Arc<Sticky>| {
            filter.matches(&sticky.intent).is_ok() && self.takes(&receiver, sticky.uid, None)
        };
        let stickies = rest.stickies.iter().filter(may_receive).cloned().collect();
        Ok((receiver, stickies))
    }

    /// Attaches the receiver of a manifest's component. Returns that receiver.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn attach(
        &self,
        caller: &Caller,
        name: &ComponentName,
        link: impl FnOnce(u64) -> R,
    ) -> Result<Arc<Receiver<R>>, Refusal> {
        let charge = self.accounts.charge(caller.uid, Counted::Receiver)?;
        let mut rest = self.rest.lock();
        let Some(installed) = rest.components.get(name) else {
            let ComponentName { package, class } = name.clone();
            return Err(Refusal::NoComponent { package, class });
        };
        let component = Arc::clone(&installed.receiver);
        rest.check_package(&name.package, caller.uid)?;
        let permission = component.component.permission.clone();
        let receiver = rest.receiver(caller, Some(name), permission, link);
        component.attached.store(Some(Arc::clone(&receiver)));
        let place = Place::Component(component);
        let registered = Registered { receiver: Arc::clone(&receiver), place, _charge: charge };
        rest.registered.insert(receiver.id, registered);
        Ok(receiver)
    }

    /// The receiver of a component whose process has attached it.
    pub fn attached(&self, name: &ComponentName) -> Option<Arc<Receiver<R>>> {
        self.rest.lock().components.get(name)?.receiver.attached.load_full()
    }

    /// Removes a receiver that is dead or unregistered. False if it is gone.
    pub fn remove(&self, id: u64) -> bool {
        let mut rest = self.rest.lock();
        let Some(registered) = rest.registered.remove(&id) else { return false };
        registered.receiver.is_gone.store(true, Ordering::Relaxed);
        match &registered.place {
            Place::Filter(key, _) => {
                self.receivers.update(|resolver| resolver.remove(*key));
            }
            // A younger one that has taken its place stays.
            Place::Component(component) => {
                let attached = component.attached.load_full();
                if attached.is_some_and(|receiver| receiver.id == id) {
                    component.attached.store(None);
                }
            }
        }
        drop(rest);
        // The object, whose last reference this may be, is dropped without the lock.
        drop(registered);
        true
    }

    /// The registrations of a process with an object like this.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, pid: u32, is_it: impl Fn(&R) -> bool) -> Result<Vec<u64>, Refusal> {
        let rest = self.rest.lock();
        let all = rest.registered.values().map(|registered| &registered.receiver);
        let ids: Vec<u64> = all
            .filter(|receiver| receiver.pid == pid && is_it(&receiver.object))
            .map(|receiver| receiver.id)
            .collect();
        if ids.is_empty() { Err(Refusal::NotRegistered) } else { Ok(ids) }
    }

    /// The receivers of a broadcast, in their order. A sticky one is kept.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn resolve(&self, send: &Send, uid: u32, level: usize) -> Result<Vec<Target<R>>, Refusal> {
        if !send.is_sticky {
            return Ok(self.targets(send, uid));
        }
        if send.permission.is_some() {
            return Err(Refusal::StickyWithPermission);
        }
        let intent = send.intent.clone();
        let mut rest = self.rest.lock();
        let is_older = |kept: &Arc<Sticky>| kept.is_replaced_by(&intent, uid);
        // The older one's charge goes first: a user with all that it may have can replace it.
        let older = rest.stickies.iter().position(is_older).map(|at| rest.stickies.remove(at));
        drop(older);
        let _charge = self.accounts.charge(uid, Counted::Sticky)?;
        rest.stickies.push(Arc::new(Sticky { intent, uid, level, _charge }));
        Ok(self.targets(send, uid))
    }

    /// Forgets a sticky broadcast of a user. False if there is none.
    pub fn remove_sticky(&self, intent: &Intent, uid: u32) -> bool {
        let mut rest = self.rest.lock();
        let n_before = rest.stickies.len();
        rest.stickies.retain(|sticky| !sticky.is_replaced_by(intent, uid));
        rest.stickies.len() < n_before
    }

    fn targets(&self, send: &Send, uid: u32) -> Vec<Target<R>> {
        let resolver = self.receivers.snapshot();
        let mut components = HashSet::new();
        let mut targets = Vec::new();
        for entry in resolver.query(&send.intent) {
            let required = send.permission.as_deref();
            match &entry.value {
                Party::Registered(receiver) if self.takes(receiver, uid, required) => {
                    targets.push(Target::Registered(Arc::clone(receiver)));
                }
                Party::Registered(_) => {}
                Party::Component(receiver) => {
                    let name = &receiver.component.name;
                    let may = self.may_start(receiver, uid, required)
                        && send.intent.flags & RECEIVER_REGISTERED_ONLY == 0;
                    if !may || !components.insert(name) {
                        continue;
                    }
                    targets.push(match receiver.attached.load_full() {
                        Some(attached) => Target::Registered(attached),
                        None => Target::Component(name.clone()),
                    });
                }
            }
        }
        targets
    }

    fn takes(&self, receiver: &Receiver<R>, sender: u32, required: Option<&str>) -> bool {
        self.allows(sender, receiver.permission.as_deref()) && self.allows(receiver.uid, required)
    }

    fn may_start(
        &self,
        receiver: &ManifestReceiver<R>,
        sender: u32,
        required: Option<&str>,
    ) -> bool {
        let ManifestReceiver { component, uid, .. } = receiver;
        (component.exported || sender == *uid || sender == 0)
            && self.allows(sender, component.permission.as_deref())
            && self.allows(*uid, required)
    }

    fn allows(&self, uid: u32, permission: Option<&str>) -> bool {
        permission.is_none_or(|permission| self.policy.allows(uid, permission))
    }

    /// All receivers, and all sticky broadcasts.
    pub fn describe(&self) -> (Vec<Described>, Vec<Arc<Sticky>>) {
        let rest = self.rest.lock();
        let registered =
            rest.registered.values().filter_map(|Registered { receiver, place, .. }| {
                let Place::Filter(_, filter) = place else { return None };
                Some(Described {
                    name: receiver.name.clone(),
                    pid: Some(receiver.pid),
                    uid: receiver.uid,
                    filters: vec![IntentFilter::clone(filter)],
                    permission: receiver.permission.clone(),
                })
            });
        let mut components: Vec<_> =
            rest.components.values().map(|installed| &installed.receiver).collect();
        components.sort_by(|one, other| one.component.name.cmp(&other.component.name));
        let components = components.into_iter().map(|receiver| Described {
            name: text(&receiver.component.name),
            pid: receiver.attached.load().as_ref().map(|attached| attached.pid),
            uid: receiver.uid,
            filters: receiver.component.filters.clone(),
            permission: receiver.component.permission.clone(),
        });
        (registered.chain(components).collect(), rest.stickies.clone())
    }
}

impl<R> Installed<R> {
    fn new(
        component: &Component,
        uid: u32,
        resolver: &mut Resolver<Party<R>>,
    ) -> Result<Installed<R>, FilterError> {
        let component = component.clone();
        let receiver =
            Arc::new(ManifestReceiver { component, uid, attached: ArcSwapOption::empty() });
        let insert = |filter: &IntentFilter| {
            let owner = Owner::Component(receiver.component.name.clone());
            resolver.insert(owner, filter.clone(), Party::Component(Arc::clone(&receiver)))
        };
        let keys = receiver.component.filters.iter().map(insert).collect::<Result<_, _>>()?;
        Ok(Installed { receiver, keys })
    }
}

impl<R> Rest<R> {
    fn receiver(
        &mut self,
        caller: &Caller,
        component: Option<&ComponentName>,
        permission: Option<String>,
        link: impl FnOnce(u64) -> R,
    ) -> Arc<Receiver<R>> {
        let id = self.next_id;
        self.next_id += 1;
        let Caller { pid, uid } = *caller;
        let name = match component {
            Some(name) => text(name),
            None => format!("receiver {id} of process {pid}"),
        };
        let is_gone = AtomicBool::new(false);
        Arc::new(Receiver { id, object: link(id), pid, uid, name, permission, is_gone })
    }

    fn check_package(&self, package: &str, uid: u32) -> Result<(), Refusal> {
        if uid == 0 || self.packages.get(package) == Some(&uid) {
            return Ok(());
        }
        Err(Refusal::NotYourPackage { package: package.to_owned(), uid })
    }
}

/// A component's name as Android writes it.
pub fn text(name: &ComponentName) -> String {
    format!("{}/{}", name.package, name.class)
}
