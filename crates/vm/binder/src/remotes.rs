//! Binder objects of other processes: the driver's handles, counted.
//!
//! The driver counts one strong reference for each handle here. Parcels and Java's BinderProxy
//! objects count further ones, and the last of them gives the handle back. While the handle is
//! held, its number means no other object.

use crate::driver::Commands;
use baton_abi::uapi::*;
use baton_vm::globals::Global;
use baton_vm::object::Ref;
use rustc_hash::FxHashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The remote objects of the process.
#[derive(Debug, Default)]
pub struct Remotes {
    by_handle: FxHashMap<u32, Remote>,
    last_cookie: u64,
}

#[derive(Debug)]
struct Remote {
    count: usize,
    /// The proxy's own weak reference to itself, mSelf. The proxy may be gone.
    proxy: Option<Global>,
    /// Those who wait for the death
    recipients: Vec<Recipient>,
    /// By which the driver tells of the death
    cookie: u64,
    is_dead: bool,
}

/// One who waits for a death.
#[derive(Debug)]
struct Recipient {
    /// mSelf of the proxy by which it waits
    proxy: Ref,
    recipient: Global,
}

/// A strong reference to an object of another process.
#[derive(Debug)]
pub struct RemoteRef(u32);

/// How a request for an object's death went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linked {
    /// The recipient will be told, or will be no longer
    Done,
    /// The object is dead already
    Dead,
    /// No such recipient waits
    Unknown,
}

static REMOTES: LazyLock<Mutex<Remotes>> = LazyLock::new(Mutex::default);

/// The remote objects. The lock is never held while Java runs or an object is allocated.
pub fn remotes() -> MutexGuard<'static, Remotes> {
    REMOTES.lock().expect("no holder panics")
}

impl Remotes {
    /// A reference to the object of a handle, which the driver holds at this moment.
    pub fn get(&mut self, handle: u32) -> RemoteRef {
        let remote = self.by_handle.entry(handle).or_insert_with(|| {
            Commands::new().handle(BC_ACQUIRE, handle).write();
            Remote { count: 0, proxy: None, recipients: Vec::new(), cookie: 0, is_dead: false }
        });
        remote.count += 1;
        RemoteRef(handle)
    }

    fn of(&mut self, remote: &RemoteRef) -> &mut Remote {
        self.by_handle.get_mut(&remote.0).expect("a reference that is counted")
    }

    /// mSelf of the object's proxy.
    pub fn proxy(&mut self, remote: &RemoteRef) -> Option<Ref> {
        self.of(remote).proxy.as_ref().map(Global::get)
    }

    /// Makes a proxy, by its mSelf, the object's, unless another one is by now.
    pub fn set_proxy(&mut self, remote: &RemoteRef, old: Option<Ref>, new: Global) -> bool {
        let slot = &mut self.of(remote).proxy;
        let is_old = slot.as_ref().map(Global::get) == old;
        if is_old {
            *slot = Some(new);
        }
        is_old
    }

    /// A proxy is gone, and those who waited by it. The caller drops its reference.
    pub fn forget_proxy(&mut self, remote: &RemoteRef, proxy: Ref) {
        let it = self.of(remote);
        if it.proxy.as_ref().is_some_and(|slot| slot.get() == proxy) {
            it.proxy = None;
        }
        it.recipients.retain(|recipient| recipient.proxy != proxy);
        self.await_nobody(remote);
    }

    /// Ends the driver's notice if nobody waits for the death.
    fn await_nobody(&mut self, remote: &RemoteRef) {
        let it = self.of(remote);
        if it.recipients.is_empty() && it.cookie != 0 && !it.is_dead {
            let cookie = std::mem::take(&mut it.cookie);
            Commands::new().death(BC_CLEAR_DEATH_NOTIFICATION, remote.0, cookie).write();
        }
    }

    /// Has a recipient told of the death.
    pub fn link(&mut self, remote: &RemoteRef, proxy: Ref, recipient: Global) -> Linked {
        let cookie = self.last_cookie + 1;
        let it = self.of(remote);
        if it.is_dead {
            return Linked::Dead;
        }
        it.recipients.push(Recipient { proxy, recipient });
        if it.cookie == 0 {
            it.cookie = cookie;
            Commands::new().death(BC_REQUEST_DEATH_NOTIFICATION, remote.0, cookie).write();
            self.last_cookie = cookie;
        }
        Linked::Done
    }

    /// Ends what `link` began. A recipient that was linked several times loses one link.
    pub fn unlink(&mut self, remote: &RemoteRef, recipient: Ref) -> Linked {
        let it = self.of(remote);
        let Some(at) = it.recipients.iter().rposition(|it| it.recipient.get() == recipient) else {
            return if it.is_dead { Linked::Dead } else { Linked::Unknown };
        };
        it.recipients.remove(at);
        self.await_nobody(remote);
        Linked::Done
    }

    /// The driver tells of a death: returns those who wait for it.
    pub fn died(&mut self, cookie: u64) -> Vec<Global> {
        let Some(it) = self.by_handle.values_mut().find(|it| it.cookie == cookie) else {
            return Vec::new();
        };
        it.is_dead = true;
        std::mem::take(&mut it.recipients).into_iter().map(|it| it.recipient).collect()
    }

    /// A call has found the object of a handle dead. The context manager's handle stands for the
    /// next one.
    pub fn found_dead(&mut self, handle: u32) {
        if let Some(it) = self.by_handle.get_mut(&handle)
            && handle != 0
            && it.cookie == 0
        {
            it.is_dead = true;
        }
    }

    /// Whether the object's process is known to be dead.
    pub fn is_dead(&mut self, remote: &RemoteRef) -> bool {
        self.of(remote).is_dead
    }

    fn decrease(&mut self, handle: u32) -> Option<Remote> {
        let it = self.by_handle.get_mut(&handle).expect("a reference that is counted");
        it.count -= 1;
        if it.count > 0 {
            return None;
        }
        let mut commands = Commands::new();
        if it.cookie != 0 {
            commands = commands.death(BC_CLEAR_DEATH_NOTIFICATION, handle, it.cookie);
        }
        commands.handle(BC_RELEASE, handle).write();
        self.by_handle.remove(&handle)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.by_handle.len()
    }
}

impl RemoteRef {
    /// The driver's handle.
    pub fn handle(&self) -> u32 {
        self.0
    }

    /// Leaves the reference to a BinderProxy, which keeps it as a number.
    pub fn into_number(self) -> u32 {
        std::mem::ManuallyDrop::new(self).0 + 1
    }

    /// The driver's handle of a BinderProxy with this number. None for 0.
    pub fn handle_of_number(number: u32) -> Option<u32> {
        number.checked_sub(1)
    }

    /// The reference of a BinderProxy, which ends now. The number comes from
    /// [`RemoteRef::into_number`], and is not used again.
    pub fn from_number(number: u32) -> RemoteRef {
        RemoteRef(number - 1)
    }

    /// A further reference, while the BinderProxy with this number has its own.
    pub fn of_number(number: u32) -> Option<RemoteRef> {
        let handle = RemoteRef::handle_of_number(number)?;
        let mut remotes = remotes();
        remotes.by_handle.get_mut(&handle)?.count += 1;
        Some(RemoteRef(handle))
    }
}

impl Clone for RemoteRef {
    fn clone(&self) -> RemoteRef {
        remotes().of(self).count += 1;
        RemoteRef(self.0)
    }
}

impl Drop for RemoteRef {
    fn drop(&mut self) {
        // Without the lock: it has references of its own.
        let gone = remotes().decrease(self.0);
        drop(gone);
    }
}
