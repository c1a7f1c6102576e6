//! Who receives what: registered receivers, the receivers of manifests, and sticky broadcasts.
//!
//! Senders read a snapshot of the receivers without a lock. Changes, and senders of sticky
//! broadcasts, take the lock of the rest, whose holder runs at the priority of a real-time thread
//! that waits for it.
//!
//! **Invariant**: a sticky broadcast is kept and its receivers are found under one lock, as a
//! receiver is registered and the sticky broadcasts for it are found. So the receiver gets it once,
//! in one of the two ways.
//!
//! Receivers and sticky broadcasts are kept in the journal. The receivers of an earlier service
//! match, too, and have no object until their processes have registered them again.

use super::account::{Accounts, Charge, Counted, Exhausted};
use super::journal::{Journal, Record};
use super::kept::{Callee, KeptReceiver, KeptSticky};
use super::level::{Receiver, Target};
use super::presence::Presence;
use super::priority::ORDINARY;
use super::protocol::Send;
use super::record::{Draft, Kind};
use crate::intent::flags::RECEIVER_REGISTERED_ONLY;
use crate::intent::{
    Component, ComponentKind, ComponentName, Entry, FilterError, Intent, IntentFilter, Key,
    Manifest, Owner, Policy, Resolver, SharedResolver,
};
use arc_swap::ArcSwapOption;
use baton_shm::lock::Lock;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

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
    #[error("no manifest that is installed has the receiver {0}")]
    NoComponent(ComponentName),
    /// The receiver is not registered.
    #[error("the receiver is not registered")]
    NotRegistered,
    /// The process has registered another object with the key.
    #[error("the argument key: another receiver of this process has it")]
    KeyInUse,
    /// The sender of a sticky broadcast asks its receivers for a permission.
    #[error("a sticky broadcast asks its receivers for no permission")]
    StickyWithPermission,
}

/// The tables. `R` is a reference to a receiver's object.
pub struct Tables<R> {
    policy: Policy,
    accounts: Accounts,
    journal: Option<Arc<Journal>>,
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
    /// The ids of registered receivers that have a key.
    keyed: HashMap<Callee, u64>,
    /// Callbacks of an earlier service's that have not come back.
    awaited: HashMap<Callee, Arc<Receiver<R>>>,
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
    /// Its key, or 0.
    key: u64,
    place: Place<R>,
    _charge: Charge,
    _record: Option<Record>,
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
    _record: Option<Record>,
}

impl Sticky {
    /// Whether an intent of a user takes this one's place: the two differ in extras and flags only.
    fn is_replaced_by(&self, intent: &Intent, uid: u32) -> bool {
        self.uid == uid && self.intent.filter_equals(intent)
    }
}

/// What a registration has led to.
#[derive(Debug)]
pub enum Registration<R> {
    /// A receiver, and the sticky broadcasts for it.
    New(Arc<Receiver<R>>, Vec<Arc<Sticky>>),
    /// A receiver of an earlier service's, which is back. It has had the sticky broadcasts.
    Back(Arc<Receiver<R>>),
    /// A receiver that the process has registered before, with the same key.
    Known(Arc<Receiver<R>>),
}

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
    pub fn new(policy: Policy, journal: Option<Arc<Journal>>) -> Tables<R> {
        let rest = Rest {
            next_id: 1,
            registered: BTreeMap::new(),
            packages: HashMap::new(),
            components: HashMap::new(),
            stickies: Vec::new(),
            keyed: HashMap::new(),
            awaited: HashMap::new(),
        };
        let (accounts, receivers) = (Accounts::default(), SharedResolver::default());
        Tables { policy, accounts, journal, receivers, rest: Lock::new(rest) }
    }

    /// The journal.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// Keeps a record in the journal, if there is one, on a user's account.
    ///
    /// # Errors
    /// The user has too much there.
    pub fn keep(
        &self,
        uid: u32,
        level: usize,
        draft: &Draft<'_>,
    ) -> Result<Option<Record>, Exhausted> {
        let Some(journal) = &self.journal else { return Ok(None) };
        journal.keep(&self.accounts, uid, level, draft).map(Some)
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
    /// is reported meanwhile finds the receiver. With a key it is kept for the next service. A key
    /// has one receiver: with that of a registered one, nothing changes and `link` is not called.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn register(
        &self,
        asked: KeptReceiver,
        link: impl FnOnce(u64) -> R,
    ) -> Result<Registration<R>, Refusal> {
        let callee = asked.callee;
        let mut rest = self.rest.lock();
        if let Some(receiver) = rest.awaited.remove(&callee) {
            let _ = receiver.object.set(link(receiver.id));
            return Ok(Registration::Back(receiver));
        }
        if let Some(id) = rest.keyed.get(&callee) {
            return Ok(Registration::Known(Arc::clone(&rest.registered[id].receiver)));
        }
        let charge = self.accounts.charge(callee.uid, Counted::Receiver)?;
        if let Some(package) = &asked.package {
            rest.check_package(package, callee.uid)?;
        }
        let record = match callee.key {
            0 => None,
            _ => {
                let body = asked.write();
                let (kind, id) = (Kind::Receiver, rest.next_id);
                let draft = Draft { kind, id, n_marks: 0, body: body.data() };
                self.keep(callee.uid, ORDINARY, &draft)?
            }
        };
        let caller = Caller { pid: callee.pid, uid: callee.uid };
        let receiver = rest.receiver(&caller, None, asked.permission, Some(link));
        let filter = asked.filter;
        let place = self.place(&receiver, &filter, asked.package)?;
        let (its, key) = (Arc::clone(&receiver), callee.key);
        rest.insert(Registered { receiver: its, key, place, _charge: charge, _record: record });
        let may_receive = |sticky: &&Arc<Sticky>| {
            filter.matches(&sticky.intent).is_ok() && self.takes(&receiver, sticky.uid, None)
        };
        let stickies = rest.stickies.iter().filter(may_receive).cloned().collect();
        Ok(Registration::New(receiver, stickies))
    }

    /// Senders find the receiver from now on.
    fn place(
        &self,
        receiver: &Arc<Receiver<R>>,
        filter: &IntentFilter,
        package: Option<String>,
    ) -> Result<Place<R>, FilterError> {
        let owner = package.map_or(Owner::Process, Owner::Package);
        let party = Party::Registered(Arc::clone(receiver));
        let insert = |resolver: &mut Resolver<_>| resolver.insert(owner, filter.clone(), party);
        let key = self.receivers.update(insert)?;
        Ok(Place::Filter(key, Box::new(filter.clone())))
    }

    /// A receiver of an earlier service's is here, and its object will be: see
    /// [`Tables::register`]. A second one with a key is dropped, with its record: its process can
    /// bring back one object for it.
    ///
    /// # Errors
    /// Its filter cannot be registered: the journal's fault.
    pub fn adopt_receiver(
        &self,
        id: u64,
        kept: KeptReceiver,
        record: Record,
    ) -> Result<(), FilterError> {
        let mut rest = self.rest.lock();
        if rest.keyed.contains_key(&kept.callee) {
            return Ok(());
        }
        rest.next_id = id;
        let caller = Caller { pid: kept.callee.pid, uid: kept.callee.uid };
        let link = None::<fn(u64) -> R>;
        let receiver = rest.receiver(&caller, None, kept.permission, link);
        let place = self.place(&receiver, &kept.filter, kept.package)?;
        let charge = self.accounts.adopt(caller.uid, Counted::Receiver);
        rest.awaited.insert(kept.callee, Arc::clone(&receiver));
        let (key, _record) = (kept.callee.key, Some(record));
        rest.insert(Registered { receiver, key, place, _charge: charge, _record });
        Ok(())
    }

    /// A sticky broadcast of an earlier service's is kept. The older ones come first.
    pub fn adopt_sticky(&self, level: usize, kept: KeptSticky, record: Record) {
        let KeptSticky { uid, intent } = kept;
        let _charge = self.accounts.adopt(uid, Counted::Sticky);
        let mut rest = self.rest.lock();
        rest.stickies.retain(|older| !older.is_replaced_by(&intent, uid));
        let _record = Some(record);
        rest.stickies.push(Arc::new(Sticky { intent, uid, level, _charge, _record }));
    }

    /// The receiver of the result of an earlier service's broadcast. Broadcasts with one key have
    /// one.
    pub fn adopt_result_receiver(&self, callee: Callee) -> Arc<Receiver<R>> {
        let mut rest = self.rest.lock();
        if let Some(receiver) = rest.awaited.get(&callee) {
            return Arc::clone(receiver);
        }
        let caller = Caller { pid: callee.pid, uid: callee.uid };
        let receiver = rest.receiver(&caller, None, None, None::<fn(u64) -> R>);
        rest.awaited.insert(callee, Arc::clone(&receiver));
        receiver
    }

    /// The receiver of a result is back. `None` if nobody waits for it.
    pub fn give_back(
        &self,
        callee: Callee,
        link: impl FnOnce(u64) -> R,
    ) -> Option<Arc<Receiver<R>>> {
        let receiver = self.rest.lock().awaited.remove(&callee)?;
        let _ = receiver.object.set(link(receiver.id));
        Some(receiver)
    }

    /// The callbacks of an earlier service's that have not come back. Nobody waits any more.
    pub fn give_up(&self) -> Vec<Arc<Receiver<R>>> {
        let mut rest = self.rest.lock();
        let awaited: Vec<_> = std::mem::take(&mut rest.awaited).into_values().collect();
        for receiver in &awaited {
            receiver.presence.end();
            drop(self.take(&mut rest, receiver.id));
        }
        awaited
    }

    /// A registered receiver.
    pub fn registered(&self, id: u64) -> Option<Arc<Receiver<R>>> {
        let rest = self.rest.lock();
        rest.registered.get(&id).map(|registered| Arc::clone(&registered.receiver))
    }

    /// Receivers with ids up to this one were an earlier service's.
    pub fn skip_ids(&self, last: u64) {
        let mut rest = self.rest.lock();
        rest.next_id = rest.next_id.max(last.saturating_add(1));
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
            return Err(Refusal::NoComponent(name.clone()));
        };
        let component = Arc::clone(&installed.receiver);
        rest.check_package(&name.package, caller.uid)?;
        let permission = component.component.permission.clone();
        let receiver = rest.receiver(caller, Some(name), permission, Some(link));
        component.attached.store(Some(Arc::clone(&receiver)));
        let place = Place::Component(component);
        let its = Arc::clone(&receiver);
        rest.insert(Registered { receiver: its, key: 0, place, _charge: charge, _record: None });
        Ok(receiver)
    }

    /// The receiver of a component whose process has attached it.
    pub fn attached(&self, name: &ComponentName) -> Option<Arc<Receiver<R>>> {
        self.rest.lock().components.get(name)?.receiver.attached.load_full()
    }

    /// Removes a receiver that is dead or unregistered. `None` if it is gone.
    pub fn remove(&self, id: u64) -> Option<Arc<Receiver<R>>> {
        let removed = self.take(&mut self.rest.lock(), id);
        // The object, whose last reference this may be, is dropped without the lock.
        removed.map(|registered| Arc::clone(&registered.receiver))
    }

    /// Takes a receiver out, which is gone from then on.
    fn take(&self, rest: &mut Rest<R>, id: u64) -> Option<Registered<R>> {
        let registered = rest.registered.remove(&id)?;
        registered.receiver.presence.end();
        rest.keyed.remove(&registered.callee());
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
        Some(registered)
    }

    /// The registrations of a process with an object like this.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, pid: u32, is_it: impl Fn(&R) -> bool) -> Result<Vec<u64>, Refusal> {
        let rest = self.rest.lock();
        let all = rest.registered.values().map(|registered| &registered.receiver);
        let ids: Vec<u64> = all
            .filter(|receiver| receiver.pid == pid && receiver.object.get().is_some_and(&is_it))
            .map(|receiver| receiver.id)
            .collect();
        if ids.is_empty() { Err(Refusal::NotRegistered) } else { Ok(ids) }
    }

    /// Finds the receivers of a broadcast with this id, in their order, and returns what `accept`
    /// makes of them. A sticky one is kept, and takes an older one's place, if that succeeds.
    ///
    /// # Errors
    /// See [`Refusal`]; those of `accept`. Nothing is changed then.
    pub fn resolve<T, E: From<Refusal>>(
        &self,
        send: &Send,
        uid: u32,
        level: usize,
        id: u64,
        accept: impl FnOnce(Vec<Target<R>>) -> Result<T, E>,
    ) -> Result<T, E> {
        if !send.is_sticky {
            return accept(self.targets(send, uid));
        }
        if send.permission.is_some() {
            return Err(Refusal::StickyWithPermission.into());
        }
        let intent = send.intent.clone();
        let body = KeptSticky::write(uid, &intent);
        let draft = Draft { kind: Kind::Sticky, id, n_marks: 0, body: body.data() };
        let mut rest = self.rest.lock();
        let is_older = |kept: &Arc<Sticky>| kept.is_replaced_by(&intent, uid);
        let older = rest.stickies.iter().position(is_older);
        let _charge = match older {
            Some(_) => self.accounts.adopt(uid, Counted::Sticky),
            None => self.accounts.charge(uid, Counted::Sticky).map_err(Refusal::from)?,
        };
        // The older record ends once the new one counts.
        let _record = self.keep(uid, level, &draft).map_err(Refusal::from)?;
        let accepted = accept(self.targets(send, uid))?;
        drop(older.map(|at| rest.stickies.remove(at)));
        rest.stickies.push(Arc::new(Sticky { intent, uid, level, _charge, _record }));
        Ok(accepted)
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
        let mut entries = resolver.query(&send.intent);
        // As on Android, registered receivers come first among those of a filter priority.
        let is_component = |entry: &&Entry<Party<R>>| matches!(entry.value, Party::Component(_));
        entries.sort_by_key(|entry| (Reverse(entry.filter.priority), is_component(entry)));
        for entry in entries {
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
            name: receiver.component.name.to_string(),
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
        let mut keys: Vec<Key> =
            receiver.component.filters.iter().map(insert).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            let name = receiver.component.name.clone();
            keys.push(resolver.insert_explicit(name, Party::Component(Arc::clone(&receiver))));
        }
        Ok(Installed { receiver, keys })
    }
}

impl<R> Registered<R> {
    fn callee(&self) -> Callee {
        Callee { pid: self.receiver.pid, uid: self.receiver.uid, key: self.key }
    }
}

impl<R> Rest<R> {
    fn insert(&mut self, registered: Registered<R>) {
        if registered.key != 0 {
            self.keyed.insert(registered.callee(), registered.receiver.id);
        }
        self.registered.insert(registered.receiver.id, registered);
    }

    fn receiver(
        &mut self,
        caller: &Caller,
        component: Option<&ComponentName>,
        permission: Option<String>,
        link: Option<impl FnOnce(u64) -> R>,
    ) -> Arc<Receiver<R>> {
        let id = self.next_id;
        self.next_id += 1;
        let Caller { pid, uid } = *caller;
        let name = match component {
            Some(name) => name.to_string(),
            None => format!("receiver {id} of process {pid}"),
        };
        let object = link.map_or_else(OnceLock::new, |link| OnceLock::from(link(id)));
        let (component, presence) = (component.cloned(), Presence::default());
        Arc::new(Receiver { id, object, pid, uid, name, component, permission, presence })
    }

    fn check_package(&self, package: &str, uid: u32) -> Result<(), Refusal> {
        if uid == 0 || self.packages.get(package) == Some(&uid) {
            return Ok(());
        }
        Err(Refusal::NotYourPackage { package: package.to_owned(), uid })
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::MAX_STICKIES;
    use super::*;

    const CALLEE: Callee = Callee { pid: 7, uid: 8, key: 9 };

    fn asked() -> KeptReceiver {
        let filter = IntentFilter::new("a");
        KeptReceiver { callee: CALLEE, filter, permission: None, package: None }
    }

    #[test]
    fn a_key_has_one_receiver_until_that_is_removed() {
        let tables = Tables::new(Policy::default(), None);
        let register = |object: u32| tables.register(asked(), |_| object).unwrap();
        let Registration::New(first, _) = register(1) else { panic!("nobody has the key") };
        let Registration::Known(again) = register(2) else { panic!("the key is the first one's") };
        assert_eq!((again.id, again.object.get()), (first.id, Some(&1)));
        assert_eq!(tables.describe().0.len(), 1);
        assert!(tables.remove(first.id).is_some());
        assert!(matches!(register(3), Registration::New(..)));
    }

    #[test]
    fn a_sticky_broadcast_that_is_refused_takes_no_ones_place() {
        let tables = Tables::<u32>::new(Policy::default(), None);
        let send = |action: &str, flags, accepted: Result<(), Refusal>| {
            let intent = Intent { flags, ..Intent::new(action) };
            let send = Send { intent, is_sticky: true, ..Send::default() };
            tables.resolve(&send, 7, ORDINARY, 1, |_| accepted)
        };
        let kept = || -> Vec<u32> {
            tables.describe().1.iter().map(|sticky| sticky.intent.flags).collect()
        };
        send("a", 1, Ok(())).unwrap();
        let refused = Err(Refusal::NotRegistered);
        assert_eq!(send("a", 2, refused.clone()), refused);
        assert_eq!(kept(), [1]);
        // Another identifier makes another broadcast.
        let identifier = Some("another".to_owned());
        let intent = Intent { identifier, flags: 9, ..Intent::new("a") };
        let other = Send { intent, is_sticky: true, ..Send::default() };
        tables.resolve(&other, 7, ORDINARY, 2, |_| Ok::<(), Refusal>(())).unwrap();
        assert_eq!(kept(), [1, 9]);
        assert!(tables.remove_sticky(&other.intent, 7));
        assert_eq!(kept(), [1]);
        // A user with all that it may have can replace one, and keeps its count.
        for n in 1..MAX_STICKIES {
            send(&n.to_string(), 1, Ok(())).unwrap();
        }
        for flags in 3..5 {
            send("a", flags, Ok(())).unwrap();
        }
        assert_eq!((kept().len(), kept().last()), (MAX_STICKIES as usize, Some(&4)));
        assert!(matches!(send("more", 1, Ok(())), Err(Refusal::Exhausted(_))));
    }

    #[test]
    fn a_receiver_and_results_with_one_key_come_back_together_or_are_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(&directory.path().join("journal")).unwrap().journal;
        for comes_back in [true, false] {
            let tables = Tables::new(Policy::default(), Some(Arc::clone(&journal)));
            for id in [3, 4] {
                let body = asked().write();
                let draft = Draft { kind: Kind::Receiver, id, n_marks: 0, body: body.data() };
                let record = tables.keep(CALLEE.uid, ORDINARY, &draft).unwrap().unwrap();
                tables.adopt_receiver(id, asked(), record).unwrap();
            }
            let results = [(); 2].map(|()| tables.adopt_result_receiver(CALLEE));
            assert!(tables.registered(4).is_none(), "a broadcast does not wait for it");
            let all = [tables.registered(3).unwrap()].into_iter().chain(results);
            if comes_back {
                assert!(matches!(tables.register(asked(), |_| 1), Ok(Registration::Back(_))));
                all.into_iter().for_each(|it| assert_eq!(it.object.get(), Some(&1)));
            } else {
                assert_eq!(tables.give_up().len(), 1);
                all.into_iter().for_each(|it| assert!(it.presence.is_gone()));
                assert!(matches!(tables.register(asked(), |_| 2), Ok(Registration::New(..))));
            }
        }
    }
}
