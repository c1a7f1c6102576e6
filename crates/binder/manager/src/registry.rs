//! The services by name, who may register them, and who is told of what: pure state.
//!
//! References are of any type `R`. Every entry has a number, by which the server reports the death
//! of its object.
//!
//! A lazy service asks to be told whether it has clients (`registerClientCallback`). It counts as
//! used from each lookup until the next poll, and as long as another process holds it. So does one
//! whose name somebody watched when it was registered. A process asks once for each name, and may
//! unregister the service and register it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// Most entries (services, callbacks) that one user's processes may have.
pub const MAX_ENTRIES_PER_USER: usize = 4096;
/// Longest name of a service, in bytes, as in Android.
pub const MAX_NAME_BYTES: usize = 127;
/// `FLAG_IS_LAZY_SERVICE` of IServiceManager.aidl (Android 15).
pub const FLAG_IS_LAZY_SERVICE: i32 = 1 << 30;

/// The users who may register services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All users.
    Everyone,
    /// Root and these users.
    Users(BTreeSet<u32>),
}

/// The process that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Process id; 0 if it has none in the broker's PID namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
}

impl Display for Caller {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, uid {}", self.pid, self.uid)
    }
}

/// Why a request is refused: the exceptions of AIDL, with a message for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `EX_SECURITY`
    Security(&'static str),
    /// `EX_ILLEGAL_ARGUMENT`
    IllegalArgument(&'static str),
    /// `EX_ILLEGAL_STATE`
    IllegalState(&'static str),
}

/// A call that the manager owes to a client's callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<R> {
    /// `IServiceCallback.onRegistration`
    Registered {
        /// The callback.
        callback: R,
        /// The service's name.
        name: String,
        /// The service.
        service: Found<R>,
    },
    /// `IClientCallback.onClients`
    Clients {
        /// The callback.
        callback: R,
        /// The service.
        service: Found<R>,
        /// Whether the service has clients.
        has_clients: bool,
    },
}

/// A service that has been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<R> {
    /// The service.
    pub reference: R,
    /// The stability that its process has declared.
    pub stability: i32,
    /// Whether it was registered with [`FLAG_IS_LAZY_SERVICE`].
    pub is_lazy: bool,
}

/// The number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(u64);

/// An object that a client has registered.
#[derive(Debug)]
struct Entry<R> {
    id: EntryId,
    reference: R,
    caller: Caller,
}

#[derive(Debug)]
struct Service<R> {
    entry: Entry<R>,
    stability: i32,
    flags: i32,
    has_clients: bool,
    /// A client has looked the service up since the last poll, or since the service was registered
    /// if its process is not told of clients yet.
    is_guaranteed: bool,
}

/// A service to register.
#[derive(Clone, Debug)]
pub struct NewService<R> {
    /// The service.
    pub reference: R,
    /// The stability that its process declares.
    pub stability: i32,
    /// `DUMP_FLAG_*`, [`FLAG_IS_LAZY_SERVICE`].
    pub flags: i32,
}

/// See the module.
#[derive(Debug)]
pub struct Registry<R> {
    policy: Policy,
    services: BTreeMap<String, Service<R>>,
    /// Callbacks for registrations, by the service's name.
    watchers: BTreeMap<String, Vec<Entry<R>>>,
    /// Callbacks for clients, by the service's name: of the process that registered the name last.
    client_callbacks: BTreeMap<String, Vec<Entry<R>>>,
    n_entries: BTreeMap<u32, usize>,
    last_id: u64,
}

impl<R> Entry<R> {
    fn is(&self, id: EntryId) -> bool {
        self.id == id
    }
}

impl<R: Clone> Service<R> {
    fn found(&self) -> Found<R> {
        Found {
            reference: self.entry.reference.clone(),
            stability: self.stability,
            is_lazy: self.flags & FLAG_IS_LAZY_SERVICE != 0,
        }
    }

    /// Tells these client callbacks, if the answer has changed.
    fn set_has_clients(
        &mut self,
        has_clients: bool,
        callbacks: &[Entry<R>],
        effects: &mut Vec<Effect<R>>,
    ) {
        if callbacks.is_empty() || self.has_clients == has_clients {
            return;
        }
        self.has_clients = has_clients;
        effects.extend(callbacks.iter().map(|callback| Effect::Clients {
            callback: callback.reference.clone(),
            service: self.found(),
            has_clients,
        }));
    }
}

impl<R: Clone + PartialEq> Registry<R> {
    /// A registry without services.
    pub fn new(policy: Policy) -> Registry<R> {
        Registry {
            policy,
            services: BTreeMap::new(),
            watchers: BTreeMap::new(),
            client_callbacks: BTreeMap::new(),
            n_entries: BTreeMap::new(),
            last_id: 0,
        }
    }

    /// The number of the next entry: the server links to the object's death by it, before it adds
    /// the entry.
    pub fn next_id(&mut self) -> EntryId {
        self.last_id += 1;
        EntryId(self.last_id)
    }

    /// Registers a service, in place of the one of this name. Tells those who watch the name.
    ///
    /// # Errors
    /// `Security`: the caller may not register services, or not replace this one. `IllegalState`:
    /// the user has too many entries. `IllegalArgument`: the name.
    pub fn add(
        &mut self,
        id: EntryId,
        name: &str,
        service: NewService<R>,
        caller: Caller,
    ) -> Result<Vec<Effect<R>>, Refusal> {
        if !is_valid(name) {
            let rule = "a name has 1 to 127 letters, digits and characters of -_./";
            return Err(Refusal::IllegalArgument(rule));
        }
        if let Policy::Users(users) = &self.policy
            && caller.uid != 0
            && !users.contains(&caller.uid)
        {
            return Err(Refusal::Security("this user may not register services"));
        }
        if let Some(old) = self.services.get(name)
            && caller.uid != 0
            && caller.uid != old.entry.caller.uid
        {
            return Err(Refusal::Security("another user has registered this name"));
        }
        self.count(caller)?;
        let gone = retain(&mut self.client_callbacks, |told, callback| {
            told != name || callback.caller == caller
        });
        gone.into_iter().for_each(|caller| self.uncount(caller));
        let old = self.services.remove(name);
        old.iter().for_each(|old| self.uncount(old.entry.caller));
        let (watchers, callbacks) = (of(&self.watchers, name), of(&self.client_callbacks, name));
        let mut service = Service {
            entry: Entry { id, reference: service.reference, caller },
            stability: service.stability,
            flags: service.flags,
            has_clients: !callbacks.is_empty() && old.is_some_and(|old| old.has_clients),
            is_guaranteed: !watchers.is_empty(),
        };
        let found = service.found();
        let mut effects = Vec::new();
        if service.is_guaranteed {
            service.set_has_clients(true, callbacks, &mut effects);
        }
        self.services.insert(name.to_owned(), service);
        let registered = watchers.iter().map(|watcher| Effect::Registered {
            callback: watcher.reference.clone(),
            name: name.to_owned(),
            service: found.clone(),
        });
        effects.extend(registered);
        Ok(effects)
    }

    /// Looks a service up for a client, which counts as one until the next poll.
    pub fn get(&mut self, name: &str) -> Option<(Found<R>, Vec<Effect<R>>)> {
        let service = self.services.get_mut(name)?;
        let mut effects = Vec::new();
        service.is_guaranteed = true;
        service.set_has_clients(true, of(&self.client_callbacks, name), &mut effects);
        Some((service.found(), effects))
    }

    /// The names of the services that were registered with one of these flags, sorted.
    pub fn names(&self, flags: i32) -> impl Iterator<Item = &str> {
        let shown = self.services.iter().filter(move |(_, service)| service.flags & flags != 0);
        shown.map(|(name, _)| name.as_str())
    }

    /// Names and the processes that have registered them.
    pub fn owners(&self) -> impl Iterator<Item = (&str, Caller)> {
        self.services.iter().map(|(name, service)| (name.as_str(), service.entry.caller))
    }

    /// The objects of all services, whose clients may be counted while nobody holds the registry.
    pub fn services(&self) -> Vec<(EntryId, R)> {
        let of = |service: &Service<R>| (service.entry.id, service.entry.reference.clone());
        self.services.values().map(of).collect()
    }

    /// The services, the processes that watch for names, and who owns each, as text. `n_clients`:
    /// how many processes use a service. It is not known of a service that is missing there.
    pub fn dump(&self, n_clients: &BTreeMap<EntryId, u32>) -> String {
        let mut text = format!("Services: {}\n", self.services.len());
        for (name, service) in &self.services {
            let clients = n_clients.get(&service.entry.id);
            let clients = clients.map_or_else(|| "?".to_owned(), |clients| clients.to_string());
            let lazy = if service.flags & FLAG_IS_LAZY_SERVICE != 0 { ", lazy" } else { "" };
            let caller = service.entry.caller;
            text += &format!("  {name}: {caller}, clients {clients}{lazy}\n");
            for callback in of(&self.client_callbacks, name) {
                text += &format!("    is told of clients: {}\n", callback.caller);
            }
        }
        let n_watchers: usize = self.watchers.values().map(Vec::len).sum();
        text += &format!("Notifications: {n_watchers}\n");
        for (name, watchers) in &self.watchers {
            for watcher in watchers {
                text += &format!("  {name}: {}\n", watcher.caller);
            }
        }
        text
    }

    /// Calls `callback` for each registration of a name, also for the one that there is.
    ///
    /// # Errors
    /// `IllegalArgument`: the name. `IllegalState`: the user has too many entries.
    pub fn watch(
        &mut self,
        id: EntryId,
        name: &str,
        callback: R,
        caller: Caller,
    ) -> Result<Option<Effect<R>>, Refusal> {
        if !is_valid(name) {
            return Err(Refusal::IllegalArgument("no service can have this name"));
        }
        self.count(caller)?;
        let entry = Entry { id, reference: callback.clone(), caller };
        self.watchers.entry(name.to_owned()).or_default().push(entry);
        let service = self.services.get(name).map(Service::found);
        let name = name.to_owned();
        Ok(service.map(|service| Effect::Registered { callback, name, service }))
    }

    /// Ends all watches of a name by this callback.
    ///
    /// # Errors
    /// `IllegalState`: there is none.
    pub fn unwatch(&mut self, name: &str, callback: &R) -> Result<(), Refusal> {
        let n_removed =
            self.retain_watchers(|watched, entry| watched != name || entry.reference != *callback);
        match n_removed {
            0 => Err(Refusal::IllegalState("this callback does not watch this name")),
            _ => Ok(()),
        }
    }

    /// Has a service's process told whether the service has clients.
    ///
    /// # Errors
    /// `Security`: the caller has not registered the service. `IllegalArgument`: it is another
    /// object. `IllegalState`: the user has too many entries.
    pub fn watch_clients(
        &mut self,
        id: EntryId,
        name: &str,
        reference: &R,
        callback: R,
        caller: Caller,
    ) -> Result<Vec<Effect<R>>, Refusal> {
        self.check_owner(name, reference, caller)?;
        self.count(caller)?;
        let service = self.services.get_mut(name).expect("it has been checked");
        let entry = Entry { id, reference: callback.clone(), caller };
        let callbacks = self.client_callbacks.entry(name.to_owned()).or_default();
        callbacks.push(entry);
        let mut effects = Vec::new();
        if service.has_clients {
            let (service, has_clients) = (service.found(), true);
            effects.push(Effect::Clients { callback, service, has_clients });
        } else if service.is_guaranteed {
            service.set_has_clients(true, callbacks, &mut effects);
        }
        Ok(effects)
    }

    /// Unregisters a service that nobody uses. `is_held`: whether another process than its own and
    /// the manager's holds it.
    ///
    /// # Errors
    /// `Security`, `IllegalArgument` as in [`Registry::watch_clients`]. `IllegalState`: the
    /// service has clients.
    pub fn try_unregister(
        &mut self,
        name: &str,
        reference: &R,
        caller: Caller,
        is_held: bool,
    ) -> Result<(), Refusal> {
        self.check_owner(name, reference, caller)?;
        if is_held || self.services[name].is_guaranteed {
            return Err(Refusal::IllegalState("the service has clients"));
        }
        self.remove_service(name);
        Ok(())
    }

    /// The objects of the services whose processes are told of clients: see [`Registry::poll`].
    pub fn told_of_clients(&self) -> Vec<(EntryId, R)> {
        let told = self.client_callbacks.keys().filter_map(|name| self.services.get(name));
        told.map(|service| (service.entry.id, service.entry.reference.clone())).collect()
    }

    /// One poll of the services whose processes are told of clients. `are_held` says of those that
    /// [`Registry::told_of_clients`] has just returned what `is_held` says in
    /// [`Registry::try_unregister`], or `None` if that is not known. A lookup since then counts.
    pub fn poll(&mut self, are_held: &BTreeMap<EntryId, Option<bool>>) -> Vec<Effect<R>> {
        let mut effects = Vec::new();
        for (name, callbacks) in &self.client_callbacks {
            if let Some(service) = self.services.get_mut(name)
                && let Some(is_held) = are_held.get(&service.entry.id)
            {
                let was_guaranteed = std::mem::take(&mut service.is_guaranteed);
                if let Some(is_held) = is_held {
                    let has_clients = *is_held || was_guaranteed;
                    service.set_has_clients(has_clients, callbacks, &mut effects);
                }
            }
        }
        effects
    }

    /// The object of an entry is dead.
    pub fn died(&mut self, id: EntryId) {
        self.retain_watchers(|_, entry| !entry.is(id));
        let gone = retain(&mut self.client_callbacks, |_, entry| !entry.is(id));
        gone.into_iter().for_each(|caller| self.uncount(caller));
        let dead = self.services.iter().find(|(_, service)| service.entry.is(id));
        if let Some(name) = dead.map(|(name, _)| name.clone()) {
            self.remove_service(&name);
        }
    }

    fn check_owner(&self, name: &str, reference: &R, caller: Caller) -> Result<(), Refusal> {
        let service = self.services.get(name);
        let service =
            service.ok_or(Refusal::IllegalArgument("there is no service of this name"))?;
        if service.entry.caller != caller {
            return Err(Refusal::Security("another process has registered this service"));
        }
        if service.entry.reference != *reference {
            return Err(Refusal::IllegalArgument("this name is another object's"));
        }
        Ok(())
    }

    fn remove_service(&mut self, name: &str) {
        if let Some(service) = self.services.remove(name) {
            self.uncount(service.entry.caller);
        }
    }

    /// Keeps the watchers that `keep` accepts. Returns how many have gone.
    fn retain_watchers(&mut self, keep: impl Fn(&str, &Entry<R>) -> bool) -> usize {
        let gone = retain(&mut self.watchers, keep);
        gone.iter().for_each(|caller| self.uncount(*caller));
        gone.len()
    }

    fn count(&mut self, caller: Caller) -> Result<(), Refusal> {
        let n_entries = self.n_entries.entry(caller.uid).or_default();
        if *n_entries == MAX_ENTRIES_PER_USER {
            return Err(Refusal::IllegalState("this user has too many services and callbacks"));
        }
        *n_entries += 1;
        Ok(())
    }

    fn uncount(&mut self, caller: Caller) {
        let n_entries = self.n_entries.get_mut(&caller.uid).expect("it has been counted");
        *n_entries -= 1;
        if *n_entries == 0 {
            self.n_entries.remove(&caller.uid);
        }
    }
}

/// The callbacks of a name.
fn of<'a, R>(callbacks: &'a BTreeMap<String, Vec<Entry<R>>>, name: &str) -> &'a [Entry<R>] {
    callbacks.get(name).map_or(&[], Vec::as_slice)
}

/// Keeps the callbacks that `keep` accepts. Returns the owners of those that have gone.
fn retain<R>(
    callbacks: &mut BTreeMap<String, Vec<Entry<R>>>,
    keep: impl Fn(&str, &Entry<R>) -> bool,
) -> Vec<Caller> {
    let mut gone = Vec::new();
    callbacks.retain(|name, entries| {
        gone.extend(entries.extract_if(.., |entry| !keep(name, entry)).map(|entry| entry.caller));
        !entries.is_empty()
    });
    gone
}

/// Whether a service may have this name: the rule of Android's service manager.
fn is_valid(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Caller = Caller { pid: 10, uid: 1000 };
    const OTHER: Caller = Caller { pid: 20, uid: 2000 };
    const ROOT: Caller = Caller { pid: 30, uid: 0 };
    const EVERY_FLAG: i32 = 15;

    type Small = Registry<u32>;

    fn new(policy: Policy) -> Small {
        Registry::new(policy)
    }

    fn add(registry: &mut Small, name: &str, caller: Caller) -> Result<EntryId, Refusal> {
        let id = registry.next_id();
        let service = NewService { reference: caller.pid, stability: 12, flags: 8 };
        registry.add(id, name, service, caller).map(|_| id)
    }

    fn found(reference: u32) -> Found<u32> {
        Found { reference, stability: 12, is_lazy: false }
    }

    #[test]
    fn names_follow_androids_rule() {
        let long = "a".repeat(127);
        for (name, valid) in [
            ("activity", true),
            ("android.hardware.light.ILights/default", true),
            ("A_b-9", true),
            (&*long, true),
            (&*(long.clone() + "a"), false),
            ("", false),
            ("two words", false),
            ("caf\u{e9}", false),
        ] {
            let added = add(&mut new(Policy::Everyone), name, OWNER);
            assert_eq!(added.is_ok(), valid, "{name:?}");
            let mut registry = new(Policy::Everyone);
            let id = registry.next_id();
            assert_eq!(registry.watch(id, name, 1, OWNER).is_ok(), valid, "{name:?}");
        }
    }

    #[test]
    fn a_user_registers_if_the_policy_lets_it() {
        let own = Policy::Users([1000].into());
        for (policy, caller, may) in [
            (&Policy::Everyone, OTHER, true),
            (&own, OWNER, true),
            (&own, ROOT, true),
            (&own, OTHER, false),
        ] {
            let added = add(&mut new(policy.clone()), "a", caller);
            assert_eq!(added.is_ok(), may, "{policy:?} {caller:?}");
        }
    }

    #[test]
    fn a_name_is_its_users_and_roots() {
        let again = Caller { pid: 11, uid: 1000 };
        for (caller, may) in [(OWNER, true), (again, true), (ROOT, true), (OTHER, false)] {
            let mut registry = new(Policy::Everyone);
            add(&mut registry, "a", OWNER).unwrap();
            assert_eq!(add(&mut registry, "a", caller).is_ok(), may, "{caller:?}");
            let expected = if may { caller.pid } else { OWNER.pid };
            assert_eq!(registry.get("a").unwrap().0, found(expected));
        }
    }

    #[test]
    fn names_are_listed_by_their_flags() {
        let mut registry = new(Policy::Everyone);
        for (name, flags) in [("b", 1), ("a", 8), ("c", 9)] {
            let id = registry.next_id();
            let service = NewService { reference: 1, stability: 0, flags };
            registry.add(id, name, service, OWNER).unwrap();
        }
        for (flags, names) in [(EVERY_FLAG, &["a", "b", "c"][..]), (1, &["b", "c"]), (4, &[])] {
            assert!(registry.names(flags).eq(names.iter().copied()), "{flags}");
        }
    }

    #[test]
    fn a_dump_tells_who_owns_what() {
        type Step = fn(&mut Small);
        let steps: [(Step, &str); 4] = [
            (|_| (), "Services: 0\nNotifications: 0\n"),
            (
                |registry| _ = add(registry, "a", OWNER).unwrap(),
                "Services: 1\n  a: pid 10, uid 1000, clients 2\nNotifications: 0\n",
            ),
            (
                |registry| {
                    let id = registry.next_id();
                    registry.watch_clients(id, "a", &OWNER.pid, 99, OWNER).unwrap();
                    for name in ["b", "a"] {
                        let id = registry.next_id();
                        registry.watch(id, name, 1, OTHER).unwrap();
                    }
                },
                "Services: 1\n  a: pid 10, uid 1000, clients 2\n    is told of clients: pid 10, \
                 uid 1000\nNotifications: 2\n  a: pid 20, uid 2000\n  b: pid 20, uid 2000\n",
            ),
            (
                |registry| {
                    let id = registry.next_id();
                    let flags = FLAG_IS_LAZY_SERVICE;
                    let service = NewService { reference: 7, stability: 0, flags };
                    registry.add(id, "a", service, ROOT).unwrap();
                    registry.unwatch("a", &1).unwrap();
                },
                "Services: 1\n  a: pid 30, uid 0, clients ?, lazy\nNotifications: 1\n  b: pid 20, \
                 uid 2000\n",
            ),
        ];
        let mut registry = new(Policy::Everyone);
        for (step, expected) in steps {
            step(&mut registry);
            let services = registry.services().into_iter();
            let counted = services.filter(|(_, reference)| *reference == OWNER.pid);
            let n_clients = counted.map(|(id, _)| (id, 2)).collect();
            assert_eq!(registry.dump(&n_clients), expected);
        }
    }

    #[test]
    fn watchers_are_told_of_each_registration_and_of_the_one_that_is_there() {
        let mut registry = new(Policy::Everyone);
        let told = |callback, reference| Effect::Registered {
            callback,
            name: "a".to_owned(),
            service: found(reference),
        };
        let first = registry.next_id();
        assert_eq!(registry.watch(first, "a", 1, OTHER), Ok(None));
        let (id, service) =
            (registry.next_id(), NewService { reference: 7, stability: 12, flags: 8 });
        assert_eq!(registry.add(id, "a", service.clone(), OWNER), Ok(vec![told(1, 7)]));
        let second = registry.next_id();
        assert_eq!(registry.watch(second, "a", 2, OTHER), Ok(Some(told(2, 7))));
        let id = registry.next_id();
        let both = vec![told(1, 7), told(2, 7)];
        assert_eq!(registry.add(id, "a", service.clone(), OWNER), Ok(both));
        registry.unwatch("a", &1).unwrap();
        assert!(matches!(registry.unwatch("a", &1), Err(Refusal::IllegalState(_))));
        registry.died(second);
        let id = registry.next_id();
        assert_eq!(registry.add(id, "a", service, OWNER), Ok(vec![]));
        assert_eq!(registry.n_entries, [(OWNER.uid, 1)].into());
    }

    #[test]
    fn a_dead_service_is_gone_and_its_successor_stays() {
        let mut registry = new(Policy::Everyone);
        let old = add(&mut registry, "a", OWNER).unwrap();
        let new = add(&mut registry, "a", OWNER).unwrap();
        registry.died(old);
        assert!(registry.get("a").is_some());
        registry.died(new);
        assert!(registry.get("a").is_none() && registry.n_entries.is_empty());
    }

    /// The life of a lazy service: each step with the answer that its callback gets.
    #[test]
    fn a_service_is_told_whether_it_has_clients() {
        let mut registry = new(Policy::Everyone);
        add(&mut registry, "a", OWNER).unwrap();
        let id = registry.next_id();
        let watched = registry.watch_clients(id, "a", &OWNER.pid, 99, OWNER);
        assert_eq!(watched, Ok(vec![]));
        let tell = |effects: Vec<Effect<u32>>| match &effects[..] {
            [] => None,
            [Effect::Clients { callback: 99, has_clients, .. }] => Some(*has_clients),
            other => panic!("{other:?}"),
        };
        let poll = |registry: &mut Small, is_held| {
            let told = registry.told_of_clients().into_iter();
            registry.poll(&told.map(|(id, _)| (id, is_held)).collect())
        };
        assert_eq!(tell(poll(&mut registry, Some(false))), None);
        assert_eq!(tell(registry.get("a").unwrap().1), Some(true));
        assert_eq!(tell(registry.get("a").unwrap().1), None);
        assert_eq!(tell(poll(&mut registry, Some(false))), None, "the lookup counts once more");
        assert_eq!(tell(poll(&mut registry, None)), None, "not known");
        assert_eq!(tell(poll(&mut registry, Some(false))), Some(false));
        assert_eq!(tell(poll(&mut registry, Some(true))), Some(true));
        registry.died(id);
        assert_eq!(tell(poll(&mut registry, Some(false))), None);
        assert_eq!(registry.n_entries, [(OWNER.uid, 1)].into());
    }

    /// Clients are counted while the registry is used.
    #[test]
    fn what_happens_while_clients_are_counted_counts_as_well() {
        let mut registry = new(Policy::Everyone);
        let watched = |registry: &mut Small, caller: Caller| {
            let service = add(registry, "a", caller).unwrap();
            let id = registry.next_id();
            registry.watch_clients(id, "a", &caller.pid, 99, caller).unwrap();
            service
        };
        let told = |effects: &[Effect<u32>]| effects.len();
        let first = watched(&mut registry, OWNER);
        assert_eq!(registry.told_of_clients(), [(first, OWNER.pid)]);
        let nobody = BTreeMap::from([(first, Some(false))]);
        assert_eq!(told(&registry.get("a").unwrap().1), 1);
        assert_eq!(told(&registry.poll(&nobody)), 0, "it was looked up");
        assert_eq!(told(&registry.poll(&nobody)), 1);
        // Another process's service of that name.
        let second = watched(&mut registry, ROOT);
        assert_eq!(told(&registry.get("a").unwrap().1), 1);
        assert_eq!(told(&registry.poll(&nobody)), 0);
        let unregistered = registry.try_unregister("a", &ROOT.pid, ROOT, false);
        assert!(unregistered.is_err(), "its lookup counts until its own poll");
        assert_eq!(told(&registry.poll(&BTreeMap::from([(second, Some(false))]))), 0);
        assert_eq!(registry.try_unregister("a", &ROOT.pid, ROOT, false), Ok(()));
        assert_eq!(registry.told_of_clients(), []);
    }

    /// The service's process asks before anybody can look the service up, and after that.
    #[test]
    fn a_service_for_which_somebody_waits_is_told_of_a_client() {
        for is_polled in [false, true] {
            let mut registry = new(Policy::Everyone);
            let id = registry.next_id();
            registry.watch(id, "a", 1, OTHER).unwrap();
            let service = add(&mut registry, "a", OWNER).unwrap();
            if is_polled {
                assert_eq!(registry.poll(&BTreeMap::new()), []);
            }
            let told = |has_clients| {
                let service = found(OWNER.pid);
                vec![Effect::Clients { callback: 99, service, has_clients }]
            };
            let id = registry.next_id();
            let watched = registry.watch_clients(id, "a", &OWNER.pid, 99, OWNER);
            assert_eq!(watched, Ok(told(true)), "{is_polled}");
            let nobody = BTreeMap::from([(service, Some(false))]);
            assert_eq!(registry.poll(&nobody), []);
            assert_eq!(registry.poll(&nobody), told(false));
        }
    }

    /// libbinder's registrar asks once, and registers a service again if another service of the
    /// process could not be unregistered.
    #[test]
    fn a_service_that_is_registered_again_is_told_of_clients() {
        for unregisters in [false, true] {
            let mut registry = new(Policy::Everyone);
            let callback = {
                add(&mut registry, "a", OWNER).unwrap();
                let id = registry.next_id();
                registry.watch_clients(id, "a", &OWNER.pid, 99, OWNER).unwrap();
                id
            };
            if unregisters {
                registry.try_unregister("a", &OWNER.pid, OWNER, false).unwrap();
            }
            let again = add(&mut registry, "a", OWNER).unwrap();
            assert_eq!(registry.get("a").unwrap().1.len(), 1, "{unregisters}");
            let third = add(&mut registry, "a", OWNER).unwrap();
            assert_eq!(registry.get("a").unwrap().1, [], "it was told");
            let nobody = BTreeMap::from([(third, Some(false))]);
            assert_eq!((registry.poll(&nobody).len(), registry.poll(&nobody).len()), (0, 1));
            registry.died(again);
            registry.died(third);
            registry.died(callback);
            assert!(registry.n_entries.is_empty() && registry.client_callbacks.is_empty());
        }
        // Another process's service is not told to this one's callback.
        let mut registry = new(Policy::Everyone);
        add(&mut registry, "a", OWNER).unwrap();
        let id = registry.next_id();
        registry.watch_clients(id, "a", &OWNER.pid, 99, OWNER).unwrap();
        add(&mut registry, "a", ROOT).unwrap();
        assert_eq!(registry.get("a").unwrap().1, []);
        assert_eq!(registry.n_entries, [(ROOT.uid, 1)].into());
    }

    #[test]
    fn only_its_own_process_unregisters_a_service_that_nobody_uses() {
        let mut registry = new(Policy::Everyone);
        add(&mut registry, "a", OWNER).unwrap();
        let sibling = Caller { pid: 11, ..OWNER };
        let mut check = |reference: u32, caller, is_held| {
            registry.try_unregister("a", &reference, caller, is_held)
        };
        assert!(matches!(check(OWNER.pid, sibling, false), Err(Refusal::Security(_))));
        assert!(matches!(check(7, OWNER, false), Err(Refusal::IllegalArgument(_))));
        assert!(matches!(check(OWNER.pid, OWNER, true), Err(Refusal::IllegalState(_))));
        assert_eq!(check(OWNER.pid, OWNER, false), Ok(()));
        assert!(matches!(check(OWNER.pid, OWNER, false), Err(Refusal::IllegalArgument(_))));
        add(&mut registry, "a", OWNER).unwrap();
        registry.get("a");
        let unregistered = registry.try_unregister("a", &OWNER.pid, OWNER, false);
        assert!(matches!(unregistered, Err(Refusal::IllegalState(_))), "it was just looked up");
    }

    #[test]
    fn a_user_has_a_bounded_number_of_entries() {
        let mut registry = new(Policy::Everyone);
        for _ in 0..MAX_ENTRIES_PER_USER {
            let id = registry.next_id();
            registry.watch(id, "a", 1, OTHER).unwrap();
        }
        assert!(matches!(add(&mut registry, "b", OTHER), Err(Refusal::IllegalState(_))));
        assert!(add(&mut registry, "b", OWNER).is_ok(), "another user is not concerned");
        registry.unwatch("a", &1).unwrap();
        assert!(add(&mut registry, "c", OTHER).is_ok());
    }
}
