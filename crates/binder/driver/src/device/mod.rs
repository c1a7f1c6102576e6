//! The uapi front end: a program's replacement of an open `/dev/binder`.
//!
//! Command buffers in, command buffers out, byte for byte as the kernel's driver takes and gives
//! them: the order of returns, `BR_NOOP` first, when a command stops the rest, what is written
//! back to `binder_write_read`, and when.

pub mod descriptors;
mod exchange;
mod fast;
mod messages;
mod priorities;
mod read;
mod request;
#[cfg(test)]
mod tests;
mod write;

pub use crate::engine::open_error::OpenError;
pub use baton_state::description;

use crate::engine::{Engine, GreetedParts, Parts, thread_end};
use crate::sys::control_poll::{ControlPoll, Stopper};
use crate::sys::thread::tid;
use crate::sys::user;
use crate::wait::settings::Settings;
use baton_abi::control::CallReport;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use exchange::{Exchanged, Written};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// One opened device. Threads share it; it is closed when the last reference goes.
#[derive(Debug)]
pub struct Device {
    engine: Arc<Engine>,
    /// Dropped after `engine`, whose last reference is then the control thread's.
    closer: Closer,
}

/// The thread that closes a device once the last reference has gone.
#[derive(Debug)]
enum Closer {
    /// The thread that has had the last reference: all is over when it goes on.
    Dropper,
    /// The control thread, which this ends: nobody else waits.
    ControlThread(#[expect(dead_code, reason = "for its drop")] Stopper),
}

/// The descriptors that woke a control thread, which another one can use.
#[derive(Debug)]
pub struct SpareControl(ControlPoll);

/// The parts of a device that it has whosever it is, with a connection to the broker: made before a
/// program opens the device, they shorten that.
#[derive(Debug)]
pub struct PreparedDevice {
    parts: Parts,
}

impl PreparedDevice {
    /// Connects to the broker that listens at `socket`. `spare` saves making what it is.
    pub fn new(socket: &Path, spare: Option<SpareControl>) -> Result<PreparedDevice, OpenError> {
        let control = spare.map(|SpareControl(control)| control);
        Parts::new(socket, control).map(|parts| PreparedDevice { parts })
    }

    /// Asks the broker for a context on behalf of another process, by its pid, and does not wait
    /// for the answer. The broker accepts that from root, and from the process's own user.
    pub fn ask(self, context: &str, pid: u32) -> Result<AskedDevice, OpenError> {
        self.parts.greet(context, Some(pid)).map(|parts| AskedDevice { parts })
    }

    /// Whether the broker has ended or closed the connection: nothing can be opened with this.
    pub fn has_hung_up(&self) -> bool {
        self.parts.has_hung_up()
    }
}

/// A device for which the broker has been asked.
#[derive(Debug)]
pub struct AskedDevice {
    parts: GreetedParts,
}

/// A device's control thread, which is still to run: it takes the broker's events, and messages
/// that no thread of the program takes.
#[derive(Debug)]
pub struct ControlThread {
    engine: Arc<Engine>,
}

impl ControlThread {
    /// Makes the calling thread the control thread until the last reference to the device has gone.
    /// Then this thread closes the device. The descriptors that have woken it are returned, unless
    /// a part of the device is still in use.
    pub fn run(self) -> Option<SpareControl> {
        self.engine.run_control();
        let control = Arc::clone(&self.engine.control);
        drop(self);
        Arc::into_inner(control).map(ControlPoll::renew).map(SpareControl)
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.engine.close();
    }
}

impl Device {
    /// Opens a context at the broker that listens at `socket`.
    pub fn open(context: &str, socket: &Path) -> Result<Arc<Device>, OpenError> {
        let engine = Engine::open(context, socket)?;
        Ok(Arc::new(Device { engine, closer: Closer::Dropper }))
    }

    /// Opens a context on behalf of another process, once the broker has answered.
    ///
    /// Each thread of that process needs a thread of this one that makes its ioctls. Addresses in
    /// their arguments are of this process; [`Device::mapped`] takes the other's address.
    /// Descriptors that arrive would be this process's: objects and calls must not accept them.
    ///
    /// The caller needs a thread that runs the [`ControlThread`] from now on.
    pub fn open_on_behalf(asked: AskedDevice) -> Result<(Arc<Device>, ControlThread), OpenError> {
        let engine = Engine::connect_watched(asked.parts, Settings::of_environment())?;
        let control = ControlThread { engine: Arc::clone(&engine) };
        let closer = Closer::ControlThread(engine.control.stopper());
        Ok((Arc::new(Device { engine, closer }), control))
    }

    /// The program has this effective user from now on: receivers see it as `sender_euid`. They
    /// believe only a server that is root.
    pub fn set_user(&self, user: u32) {
        self.engine.set_user(user);
    }

    /// The engine behind the ioctls, for the simulator.
    #[cfg(simulated)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The file behind the receive buffer: a sealed memfd of 4 MiB. A duplicate of it is the
    /// program's descriptor; a map of it (`PROT_READ`, at offset 0) is the program's receive
    /// buffer.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.engine.buffer.file()
    }

    /// Checks an `mmap` of the device before it is done: the length to map, at most 4 MiB.
    /// `EPERM` if it would be writable, `EBUSY` if there is a map already.
    pub fn before_map(&self, bytes: usize, writable: bool) -> Result<usize, Errno> {
        if writable {
            return Err(Errno::PERM);
        }
        if self.engine.buffer.program_map() != 0 {
            return Err(Errno::BUSY);
        }
        Ok(bytes.min(MAX_PAYLOAD_BYTES))
    }

    /// Notes the address of the program's map. (A program that maps by inline system calls never
    /// calls this: the address is then found in /proc/self/maps when the first buffer is needed.)
    pub fn mapped(&self, address: usize, bytes: usize) {
        self.engine.with_state(|state| {
            if self.engine.buffer.set_program_map(address) {
                state.buffers.map(bytes.min(MAX_PAYLOAD_BYTES));
            }
        });
    }

    /// Notes that the program has unmapped its receive buffer, or a part of it. Nothing can be sent
    /// to the process any more, and it cannot map the device again. (A program that unmaps by
    /// inline system calls never calls this, and still receives.)
    pub fn unmapped(&self) {
        let mut state = self.engine.lock();
        state.unmap();
        self.engine.unlock(state);
    }

    /// Notes that one of several descriptors of the device has been closed, or the only one while
    /// threads use the device. As in the kernel's driver, each thread's read returns at once, if
    /// only with BR_NOOP: the one in which the thread waits, or its next one.
    pub fn descriptor_closed(&self) {
        self.engine.end_reads();
    }

    /// An ioctl on the device by the calling thread, with the kernel's errors.
    ///
    /// Bad addresses in the argument or in what it points to are `EFAULT`, not a fault.
    pub fn ioctl(&self, request: u32, argument: usize, nonblocking: bool) -> Result<i32, Errno> {
        if self.engine.is_closed() {
            return Err(Errno::BADF);
        }
        user::begin();
        let result = match request {
            BINDER_WRITE_READ => match self.write_read(argument, nonblocking) {
                Exchanged::Over(result) => return result.map(|()| 0),
                Exchanged::Returns(result) => result,
            },
            _ => {
                self.engine.settle();
                self.control(request, argument)
            }
        };
        // Every ioctl makes the thread known but the one by which it leaves.
        if request != BINDER_THREAD_EXIT {
            self.engine.lock().thread(tid()).return_once = false;
        }
        result.map(|()| 0)
    }

    /// Describes what the process has, and its calls: both ends of a call name its channel and
    /// lane. Fast calls that are under way go on by the state.
    pub fn snapshot(&self) -> (description::Description, Vec<CallReport>) {
        self.engine.describe()
    }

    /// The node of a handle, by its owner and the owner's name for it.
    pub fn node_of(&self, handle: u32) -> Option<(u64, u64)> {
        let state = self.engine.lock();
        let reference = state.references.get(handle)?;
        Some((reference.owner.0, reference.node.0))
    }

    /// The errno of the calling thread's last failure, as BINDER_GET_EXTENDED_ERROR has it.
    pub fn last_failure(&self) -> i32 {
        let state = self.engine.lock();
        state.threads.get(tid()).map_or(0, |thread| thread.error.param)
    }

    /// A descriptor that polls readable while the device would (`POLLIN`): level-triggered work of
    /// the process or of the calling thread. To be polled in place of the device's own.
    pub fn readable(&self) -> Result<Arc<OwnedFd>, Errno> {
        thread_end::remember_resources(&self.engine);
        self.engine.readable()
    }

    /// Like [`Device::readable`], to be put into an epoll set, which it leaves when the device is
    /// closed.
    pub fn readable_for_sets(&self) -> Result<Arc<OwnedFd>, Errno> {
        self.engine.readable_for_sets()
    }

    /// The descriptors that [`Device::readable_for_sets`] has returned: one for each thread.
    pub fn all_readable_for_sets(&self) -> Vec<Arc<OwnedFd>> {
        self.engine.pollables.in_sets()
    }

    /// Called in the child after fork. The device stays the parent's: the child's copy closes its
    /// connection to the broker, so that the parent's death is seen. ioctls of the child then fail
    /// with `EBADF`.
    pub fn forked(&self) {
        self.engine.forked();
    }

    #[inline(always)]
    fn write_read(&self, argument: usize, nonblocking: bool) -> Exchanged {
        let mut exchange: WriteRead = match user::read(argument) {
            Ok(exchange) => exchange,
            Err(errno) => return Exchanged::Returns(Err(errno)),
        };
        let mut written = Ok(Written::Nothing);
        if exchange.write_size > 0 {
            written = self.write(&mut exchange, nonblocking);
            if written.is_err() {
                exchange.read_consumed = 0;
            }
        }
        let exchanged = match written {
            Ok(Written::Over) => Exchanged::Over(Ok(())),
            Ok(written) if exchange.read_size > 0 => self.read(&mut exchange, nonblocking, written),
            Ok(_) => Exchanged::Returns(Ok(())),
            Err(errno) => Exchanged::Returns(Err(errno)),
        };
        let kept = user::write(argument, &exchange);
        match exchanged {
            Exchanged::Over(result) => Exchanged::Over(kept.and(result)),
            Exchanged::Returns(result) => Exchanged::Returns(kept.and(result)),
        }
    }

    /// Looks for the map of a program that maps by inline system calls.
    fn find_map(&self) {
        if self.engine.buffer.program_map() != 0 {
            return;
        }
        if let Some((address, bytes)) = crate::sys::maps::find_private(self.file()) {
            self.mapped(address, bytes);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Closer::Dropper = self.closer {
            self.engine.close();
        }
    }
}

/// Descriptors that devices of this process need from now on leave low numbers to the program.
pub fn leave_low_numbers() {
    baton_shm::fd_numbers::leave_low_numbers();
}

/// Notes that the program has installed a signal handler with SA_RESTART. The kernel's driver ends
/// its ioctls at every handler; waits that begin from now on do so too.
pub fn handlers_restart() {
    baton_shm::futex::handlers_restart();
}

/// Notes that a thread of the program has another scheduling policy, priority or nice value, so
/// that its next call reads it again.
pub fn priorities_change() {
    if !crate::sys::priority::is_at_it() {
        crate::sys::thread::priorities_changed();
    }
}

/// Notes that the program has unmapped or protected memory: cached checks of its pages are void.
pub fn memory_changes() {
    user::unmapped();
}
