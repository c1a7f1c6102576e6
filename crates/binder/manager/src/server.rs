//! The context manager's object: requests come in, the registry answers, callbacks are called.

use crate::protocol::{self, Family, Lookup, Release, Request, decode};
use crate::registry::{Caller, Effect, EntryId, Found, NewService, Policy, Refusal, Registry};
use baton::android::{Mark, Write};
use baton::service_manager::{DUMP_PRIORITY, INTERFACE};
use baton::{DeathLink, Errno, Handle, Object, Parcel, Process, Received};
use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

/// The name under which the manager registers itself, as Android's does.
pub const NAME: &str = "manager";

const PING: u32 = u32::from_be_bytes(*b"_PNG");
const DESCRIPTOR: u32 = u32::from_be_bytes(*b"_NTF");
const DUMP: u32 = u32::from_be_bytes(*b"_DMP");
/// Most dumps at a time: a thread counts and writes each, for as long as broker and reader take.
const MAX_DUMPS: usize = 4;
/// The first method of a callback interface.
const FIRST_CALL: u32 = 1;
const SERVICE_CALLBACK: &str = "android.os.IServiceCallback";
const CLIENT_CALLBACK: &str = "android.os.IClientCallback";
/// The stability of objects of the system: callers of any version may pass them on.
const SYSTEM: i32 = 0b00_1100;

/// A service manager in its process.
#[derive(Debug)]
pub struct Manager {
    registry: Arc<Mutex<Registry<Reference>>>,
}

/// An object that is registered.
#[derive(Clone, Debug)]
enum Reference {
    /// The manager's own.
    Own(Object),
    /// Another process's.
    Other(Arc<Linked>),
}

/// A reference. The death of a registered object is reported to the registry.
#[derive(Debug)]
struct Linked {
    handle: Handle,
    /// The mark of requests that its process takes.
    mark: Mark,
    link: Option<DeathLink>,
}

impl Drop for Linked {
    fn drop(&mut self) {
        if let Some(link) = self.link {
            self.handle.unlink_to_death(link);
        }
    }
}

impl Reference {
    fn handle(&self) -> Option<&Handle> {
        match self {
            Reference::Own(_) => None,
            Reference::Other(linked) => Some(&linked.handle),
        }
    }

    /// The mark of requests that the object takes.
    fn mark(&self) -> Mark {
        match self {
            Reference::Own(_) => Mark::System,
            Reference::Other(linked) => linked.mark,
        }
    }

    /// Writes the object, with its stability if the family has that.
    fn write(found: &Found<Reference>, family: Family, parcel: &mut Parcel) {
        match &found.reference {
            Reference::Own(object) => parcel.write_object(*object),
            Reference::Other(linked) => parcel.write_handle(&linked.handle),
        };
        if family.is_aidl() {
            parcel.write_i32(found.stability);
        }
    }

    /// How many processes hold the object, besides its owner and the manager. `None` if that is not
    /// known.
    fn count_clients(&self) -> Option<u32> {
        const MANAGER: u32 = 1;
        Some(self.handle()?.count_holders().ok()?.saturating_sub(MANAGER))
    }

    /// Whether the object has clients. `None` if that is not known.
    fn is_held(&self) -> Option<bool> {
        self.count_clients().map(|n_clients| n_clients > 0)
    }
}

impl PartialEq for Reference {
    fn eq(&self, other: &Reference) -> bool {
        match (self, other) {
            (Reference::Own(own), Reference::Own(other)) => own == other,
            _ => self.handle().is_some() && self.handle() == other.handle(),
        }
    }
}

/// Why a request has no reply of its own.
enum Failure {
    /// An exception of AIDL.
    Refused(Refusal),
    /// A failed transaction.
    Failed(Errno),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

impl Manager {
    /// Makes a process the manager of its context. Threads of the program serve it:
    /// [`Process::serve`].
    ///
    /// # Errors
    /// `EBUSY`: the context has a manager. `EPERM`: the context is another user's.
    pub fn start(process: &Process, release: Release, policy: Policy) -> Result<Manager, Errno> {
        let registry = Arc::new(Mutex::new(Registry::new(policy)));
        // Weak: the handles in the registry keep the device open, which keeps this handler.
        let weak = Arc::downgrade(&registry);
        let dumps = Arc::new(());
        let object = process.object(move |request| {
            let registry = weak.upgrade().ok_or(Errno::BADF)?;
            if request.code() == DUMP {
                return dump(&registry, &dumps, &request.received);
            }
            let (pid, uid) = request.sender();
            let caller = Caller { pid, uid };
            serve(&registry, release, request.code(), &request.received, caller)
        });
        let object = object.add();
        let own = NewService {
            reference: Reference::Own(object),
            stability: SYSTEM,
            flags: DUMP_PRIORITY,
        };
        let caller = Caller {
            pid: std::process::id(),
            // The manager's own registration is nobody else's to replace, but root's.
            uid: 0,
        };
        let mut locked = lock(&registry);
        let id = locked.next_id();
        let added = locked.add(id, NAME, own, caller);
        added.expect("root may register a service, and this is the first");
        drop(locked);
        process.become_context_manager(object)?;
        Ok(Manager { registry })
    }

    /// Tells lazy services whether they still have clients: to be called every few seconds, as
    /// Android's manager does.
    pub fn poll(&self) {
        // The broker answers for each, and nobody waits for the registry meanwhile.
        let told = lock(&self.registry).told_of_clients();
        let are_held = told.iter().map(|(id, reference)| (*id, reference.is_held())).collect();
        let effects = lock(&self.registry).poll(&are_held);
        carry_out(effects);
    }
}

/// Writes the registry's text into the descriptor of a request. The reader may be slow, and so may
/// the broker, which counts the clients of each service: no looper waits for them.
///
/// # Errors
/// `EINVAL`: no descriptor. `EBUSY`: too many others still write.
fn dump(
    registry: &Arc<Mutex<Registry<Reference>>>,
    dumps: &Arc<()>,
    received: &Received<'_>,
) -> Result<Parcel, Errno> {
    let mut output = File::from(received.take_fd(0).ok_or(Errno::INVAL)?);
    // One count is the manager's own. The lock keeps two loopers from the last place.
    let locked = lock(registry);
    if Arc::strong_count(dumps) > MAX_DUMPS {
        return Err(Errno::BUSY);
    }
    let (place, services) = (Arc::clone(dumps), locked.services());
    drop(locked);
    let registry = Arc::clone(registry);
    let writing = thread::Builder::new().name("dump".to_owned()).spawn(move || {
        let _place = place;
        let counted =
            services.iter().map(|(id, reference)| Some((*id, reference.count_clients()?)));
        let n_clients = counted.flatten().collect();
        let text = lock(&registry).dump(&n_clients);
        // A reader that has gone wants no more.
        let _ = output.write_all(text.as_bytes());
    });
    writing.map(|_| Parcel::new()).map_err(|_| Errno::AGAIN)
}

fn lock<R>(registry: &Mutex<Registry<R>>) -> MutexGuard<'_, Registry<R>> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    registry: &Arc<Mutex<Registry<Reference>>>,
    release: Release,
    code: u32,
    received: &Received<'_>,
    caller: Caller,
) -> Result<Parcel, Errno> {
    match code {
        PING => return Ok(Parcel::new()),
        DESCRIPTOR => {
            let mut reply = Parcel::new();
            reply.write_string(INTERFACE);
            return Ok(reply);
        }
        _ => {}
    }
    let (family, request) = decode(release, code, received.data())?;
    match answer(registry, family, request, received, caller) {
        Ok(reply) => Ok(reply),
        Err(Failure::Refused(refusal)) if family.is_aidl() => Ok(match refusal {
            Refusal::Security(message) => protocol::exception(-1, message),
            Refusal::IllegalArgument(message) => protocol::exception(-3, message),
            Refusal::IllegalState(message) => protocol::exception(-5, message),
        }),
        Err(Failure::Refused(Refusal::Security(_))) => Err(Errno::PERM),
        Err(Failure::Refused(_)) => Err(Errno::INVAL),
        Err(Failure::Failed(errno)) => Err(errno),
    }
}

fn answer(
    registry: &Arc<Mutex<Registry<Reference>>>,
    family: Family,
    request: Request,
    received: &Received<'_>,
    caller: Caller,
) -> Result<Parcel, Failure> {
    let mut reply = protocol::success(family);
    match request {
        Request::Get(lookup, name) => {
            let found = lock(registry).get(&name);
            let (found, effects) = found.map_or((None, Vec::new()), |(it, all)| (Some(it), all));
            write_found(&mut reply, family, lookup, found.as_ref());
            carry_out(effects);
        }
        Request::Add { name, stability, flags } => {
            let mut locked = lock(registry);
            let id = locked.next_id();
            let reference = linked(registry, id, received, 0, family)?;
            let service = NewService { reference, stability, flags };
            let effects = locked.add(id, &name, service, caller)?;
            drop(locked);
            carry_out(effects);
            if family == Family::Classic {
                reply.write_i32(0);
            }
        }
        Request::List(flags) => {
            let locked = lock(registry);
            let names: Vec<&str> = locked.names(flags).collect();
            reply.write_i32(names.len() as i32);
            names.iter().for_each(|name| reply.write_string(name));
        }
        Request::ListOne(place, flags) => {
            let locked = lock(registry);
            // There is no reply behind the last one.
            let name = locked.names(flags).nth(place).ok_or(Failure::Failed(Errno::NOENT))?;
            reply.write_string(name);
        }
        Request::Watch(name) => {
            let mut locked = lock(registry);
            let id = locked.next_id();
            let callback = linked(registry, id, received, 0, family)?;
            let effect = locked.watch(id, &name, callback, caller)?;
            drop(locked);
            carry_out(effect);
        }
        Request::Unwatch(name) => {
            let callback = reference(received, 0)?;
            lock(registry).unwatch(&name, &callback)?;
        }
        Request::WatchClients(name) => {
            let service = reference(received, 0)?;
            let mut locked = lock(registry);
            let id = locked.next_id();
            let callback = linked(registry, id, received, 1, family)?;
            let effects = locked.watch_clients(id, &name, &service, callback, caller)?;
            drop(locked);
            carry_out(effects);
        }
        Request::TryUnregister(name) => {
            let service = reference(received, 0)?;
            let is_held = service.is_held().unwrap_or(true);
            lock(registry).try_unregister(&name, &service, caller, is_held)?;
        }
        Request::IsDeclared | Request::NoNames | Request::NoConnection => reply.write_i32(0),
        Request::NoName => reply.write_null_string(),
        Request::DebugInfo => {
            let locked = lock(registry);
            reply.write_i32(locked.owners().count() as i32);
            for (name, owner) in locked.owners() {
                protocol::write_debug_info(&mut reply, name, owner.pid);
            }
        }
    }
    Ok(reply)
}

fn write_found(
    reply: &mut Parcel,
    family: Family,
    lookup: Lookup,
    found: Option<&Found<Reference>>,
) {
    let write = |reply: &mut Parcel| match (found, family) {
        (Some(found), _) => Reference::write(found, family, reply),
        (None, Family::Aidl(_)) => reply.write_null_object(),
        (None, Family::Classic) => reply.write_i32(0),
    };
    match lookup {
        Lookup::Object => write(reply),
        Lookup::Union => {
            let is_lazy = found.is_some_and(|found| found.is_lazy);
            protocol::write_union(reply, is_lazy, write);
        }
    }
}

/// An object of a request.
fn handle(received: &Received<'_>, index: usize) -> Result<Handle, Refusal> {
    received
        .handle(index)
        .ok_or(Refusal::IllegalArgument("an object of another process is missing"))
}

/// An object of a request, to be compared with those that are registered.
fn reference(received: &Received<'_>, index: usize) -> Result<Reference, Refusal> {
    let linked = Linked { handle: handle(received, index)?, mark: Mark::System, link: None };
    Ok(Reference::Other(Arc::new(linked)))
}

/// An object of a request, to be registered as this entry. The caller holds the registry's lock, so
/// that a death that is reported at once finds the entry.
fn linked(
    registry: &Arc<Mutex<Registry<Reference>>>,
    id: EntryId,
    received: &Received<'_>,
    index: usize,
    family: Family,
) -> Result<Reference, Refusal> {
    let handle = handle(received, index)?;
    let mark = if let Family::Aidl(mark) = family { mark } else { Mark::System };
    let registry: Weak<Mutex<Registry<Reference>>> = Arc::downgrade(registry);
    let link = handle.link_to_death(move || {
        if let Some(registry) = registry.upgrade() {
            lock(&registry).died(id);
        }
    });
    Ok(Reference::Other(Arc::new(Linked { handle, mark, link: Some(link) })))
}

/// Calls the callbacks. A callback that fails is its client's concern.
fn carry_out(effects: impl IntoIterator<Item = Effect<Reference>>) {
    for effect in effects {
        let mut parcel = Parcel::new();
        let callback = match effect {
            Effect::Registered { callback, name, service } => {
                parcel.write_marked_token(callback.mark(), SERVICE_CALLBACK);
                parcel.write_string(&name);
                Reference::write(&service, Family::Aidl(callback.mark()), &mut parcel);
                callback
            }
            Effect::Clients { callback, service, has_clients } => {
                parcel.write_marked_token(callback.mark(), CLIENT_CALLBACK);
                Reference::write(&service, Family::Aidl(callback.mark()), &mut parcel);
                parcel.write_i32(i32::from(has_clients));
                callback
            }
        };
        if let Some(handle) = callback.handle() {
            let _ = handle.one_way(FIRST_CALL, &parcel);
        }
    }
}
