//! The process that most scenarios call: `suite.IPeer`.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use baton_rsbinder_programs::suite::IListener::IListener;
use baton_rsbinder_programs::suite::IPeer::BnPeer;
pub use baton_rsbinder_programs::suite::IPeer::IPeer;
use rsbinder::shared_memory::SharedMemory;
use rsbinder::{
    BinderResult, DeathRecipient, Interface, ParcelFileDescriptor, ProcessState, StatusCode,
    Strong, WIBinder, hub,
};

use crate::check::{Outcome, PATIENCE};
use crate::child::{self, Child, Loopers};
use crate::listener::Counted;
use crate::scheduling;

/// State that callers wait for and with which they wake each other.
#[derive(Default)]
struct Shared {
    waiting: i32,
    received: Vec<i64>,
    stalled: bool,
    loaded: i32,
    held: Option<Strong<dyn IListener>>,
}

#[derive(Default)]
struct Peer {
    own: Arc<OnceLock<Strong<dyn IPeer>>>,
    shared: Mutex<Shared>,
    changed: Condvar,
    posting: AtomicI32,
    alive: Arc<AtomicI32>,
    mourners: Mutex<Vec<Arc<Mourner>>>,
}

/// Notifies `obituary` of a death.
struct Mourner {
    obituary: Strong<dyn IListener>,
    source: i32,
    /// A death notification needs a reference to the dead process's object.
    _watched: Strong<dyn IListener>,
}

impl DeathRecipient for Mourner {
    fn binder_died(&self, _who: &WIBinder) {
        // The scenario notices an obituary that never comes.
        let _ = self.obituary.event(self.source, 0);
    }
}

/// The service's own failure, as a caller sees it.
fn failed<E>(_: E) -> StatusCode {
    StatusCode::Unknown
}

impl Peer {
    fn make() -> Strong<dyn IPeer> {
        let own = Arc::new(OnceLock::new());
        let peer = BnPeer::new_binder(Self { own: own.clone(), ..Self::default() });
        own.get_or_init(|| peer.clone());
        peer
    }

    fn own(&self) -> &Strong<dyn IPeer> {
        self.own.get().expect("set before the peer is offered to anybody")
    }

    /// Waits until `done`, and returns whether that happened in time.
    fn wait(&self, done: impl Fn(&Shared) -> bool) -> (std::sync::MutexGuard<'_, Shared>, bool) {
        let shared = self.shared.lock().unwrap();
        let (shared, late) =
            self.changed.wait_timeout_while(shared, PATIENCE, |shared| !done(shared)).unwrap();
        (shared, !late.timed_out())
    }

    fn change(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut self.shared.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Interface for Peer {
    fn dump(&self, writer: &mut dyn Write, arguments: &[String]) -> rsbinder::Result<()> {
        writeln!(writer, "{}", arguments.join(" ")).map_err(failed)
    }
}

impl IPeer for Peer {
    fn pid(&self) -> BinderResult<i32> {
        Ok(std::process::id() as i32)
    }

    fn callerPid(&self) -> BinderResult<i32> {
        Ok(rsbinder::get_calling_pid())
    }

    fn callerUid(&self) -> BinderResult<i32> {
        Ok(rsbinder::get_calling_uid() as i32)
    }

    fn scheduling(&self) -> BinderResult<Vec<i32>> {
        Ok(scheduling::of_this_thread().map_err(failed)?.to_vec())
    }

    fn echo(&self, data: &[u8]) -> BinderResult<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn fill(&self, size: i32) -> BinderResult<Vec<u8>> {
        Ok(vec![7; size as usize])
    }

    fn callBack(&self, listener: &Strong<dyn IListener>, value: i32) -> BinderResult<i32> {
        listener.call(value)
    }

    fn bounce(&self, other: &Strong<dyn IPeer>, depth: i32) -> BinderResult<i32> {
        if depth == 0 {
            return Ok(0);
        }
        Ok(other.bounce(self.own(), depth - 1)? + 1)
    }

    fn relay(
        &self,
        path: &[Strong<dyn IPeer>],
        listener: &Strong<dyn IListener>,
        value: i32,
    ) -> BinderResult<i32> {
        match path {
            [] => listener.call(value),
            [next, rest @ ..] => next.relay(rest, listener, value + 1),
        }
    }

    fn watch(
        &self,
        listener: &Strong<dyn IListener>,
        obituary: &Strong<dyn IListener>,
        source: i32,
    ) -> BinderResult<()> {
        let mourner =
            Arc::new(Mourner { obituary: obituary.clone(), source, _watched: listener.clone() });
        let recipient: Arc<dyn DeathRecipient> = mourner.clone();
        listener.as_binder().link_to_death(Arc::downgrade(&recipient))?;
        self.mourners.lock().unwrap().push(mourner);
        Ok(())
    }

    fn hold(&self, listener: Option<&Strong<dyn IListener>>) -> BinderResult<()> {
        // rsbinder tells the driver about a new object with its thread's next exchange, and another
        // thread may release the object before. So this makes an exchange, answered or not.
        if let Some(listener) = listener {
            let _ = listener.as_binder().ping_binder();
        }
        self.change(|shared| shared.held = listener.cloned());
        Ok(())
    }

    fn send(&self, source: i32, count: i32) -> BinderResult<()> {
        let held = self.shared.lock().unwrap().held.clone().ok_or(StatusCode::BadValue)?;
        (0..count).try_for_each(|sequence| held.event(source, sequence))
    }

    fn post(&self, source: i32, sequence: i32) -> BinderResult<()> {
        // One-way calls to one object run one after the other. A second one at the same time would
        // appear as a message from no source.
        let alone = self.posting.fetch_add(1, Ordering::SeqCst) == 0;
        let source = if alone { i64::from(source) } else { -1 };
        self.change(|shared| shared.received.push(source << 32 | i64::from(sequence)));
        self.posting.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn received(&self, count: i32) -> BinderResult<Vec<i64>> {
        let (mut shared, _) = self.wait(|shared| shared.received.len() >= count as usize);
        Ok(std::mem::take(&mut shared.received))
    }

    fn stall(&self, on: bool) -> BinderResult<()> {
        self.change(|shared| shared.stalled = on);
        Ok(())
    }

    fn load(&self, data: &[u8]) -> BinderResult<()> {
        let (mut shared, _) = self.wait(|shared| !shared.stalled);
        shared.loaded += data.len() as i32;
        drop(shared);
        self.changed.notify_all();
        Ok(())
    }

    fn loaded(&self, least: i32) -> BinderResult<i32> {
        let (mut shared, _) = self.wait(|shared| shared.loaded >= least);
        Ok(std::mem::take(&mut shared.loaded))
    }

    fn meet(&self, count: i32) -> BinderResult<i32> {
        self.change(|shared| shared.waiting += 1);
        let (shared, _) = self.wait(|shared| shared.waiting >= count);
        Ok(shared.waiting)
    }

    fn sleep(&self) -> BinderResult<()> {
        child::say("sleeping").map_err(failed)?;
        loop {
            std::thread::park();
        }
    }

    fn make(&self) -> BinderResult<Strong<dyn IListener>> {
        Ok(Counted::make(&self.alive))
    }

    fn alive(&self) -> BinderResult<i32> {
        Ok(self.alive.load(Ordering::SeqCst))
    }

    fn openFiles(&self) -> BinderResult<i32> {
        Ok(open_files().map_err(failed)?)
    }

    fn copy(
        &self,
        mut from: &ParcelFileDescriptor,
        mut to: &ParcelFileDescriptor,
    ) -> BinderResult<i64> {
        Ok(std::io::copy(&mut from, &mut to).map_err(failed)? as i64)
    }

    fn closesOnExec(&self, file: &ParcelFileDescriptor) -> BinderResult<bool> {
        let flags = rustix::io::fcntl_getfd(file.as_ref()).map_err(failed)?;
        Ok(flags.contains(rustix::io::FdFlags::CLOEXEC))
    }

    fn socket(&self) -> BinderResult<ParcelFileDescriptor> {
        let (own, theirs) = UnixStream::pair().map_err(failed)?;
        std::thread::spawn(move || {
            let (mut reader, mut writer) = (&own, &own);
            let mut byte = [0];
            while reader.read_exact(&mut byte).is_ok() {
                if writer.write_all(&[byte[0].wrapping_add(1)]).is_err() {
                    break;
                }
            }
        });
        Ok(ParcelFileDescriptor::new(OwnedFd::from(theirs)))
    }

    fn increment(&self, region: &ParcelFileDescriptor) -> BinderResult<i64> {
        let memory = SharedMemory::from_fd(region.try_clone()?.into())?;
        let mut bytes = vec![0; memory.size()];
        memory.read_at(0, &mut bytes)?;
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        memory.write_at(0, &bytes)?;
        Ok(bytes.iter().map(|byte| i64::from(*byte)).sum())
    }
}

/// Number of descriptors that this process has open.
pub fn open_files() -> std::io::Result<i32> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as i32)
}

/// A peer in this process.
pub fn local() -> Strong<dyn IPeer> {
    Peer::make()
}

/// Starts a peer and finds it by its name.
pub fn start(name: &str) -> Outcome<(Child, Strong<dyn IPeer>)> {
    find("peer", name)
}

/// Starts a peer that has one looper and never gets more.
pub fn start_without_pool(name: &str) -> Outcome<(Child, Strong<dyn IPeer>)> {
    find("peer-without-pool", name)
}

fn find(role: &str, name: &str) -> Outcome<(Child, Strong<dyn IPeer>)> {
    let child = Child::start(role, &[name])?;
    Ok((child, hub::check_interface(name)?))
}

/// Role `peer NAME`; the peer has an IListener for its extension.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    let peer = Peer::make().as_binder();
    peer.set_extension(&Counted::make(&Arc::default()).as_binder())?;
    child::serve(&arguments[0], peer)
}

/// Role `peer-without-pool NAME`.
pub fn serve_without_pool(arguments: &[String]) -> Outcome {
    child::open(Loopers::None)?;
    std::thread::spawn(|| {
        let ended = child::until_end();
        std::process::exit(i32::from(ended.is_err()));
    });
    hub::add_service(&arguments[0], Peer::make().as_binder())?;
    child::say("ready")?;
    Ok(ProcessState::join_thread_pool()?)
}
