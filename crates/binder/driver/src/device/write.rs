//! The write half of BINDER_WRITE_READ: the program's commands.

use super::Device;
use super::exchange::Written;
use super::fast::strength_of;
use crate::channel::payload::Payload;
use crate::runner::send::Outgoing;
use crate::sys::packet::borrowed;
use crate::sys::thread::tid;
use crate::sys::user::{self, Source};
use baton_abi::control::Strength;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use baton_shm::lock::Guard;
use baton_state::State;
use baton_state::parcel;
use baton_state::transaction::{Freer, Target};
use baton_state::work::Tid;
use bytemuck::AnyBitPattern;
use rustix::io::{Errno, fcntl_getfd};

/// A command that the program has written.
#[derive(Clone, Copy)]
struct Command {
    number: u32,
    /// The address of its payload.
    at: usize,
    /// The beginning of all commands of the exchange.
    commands: Source,
}

impl Command {
    /// The payload. `EFAULT` if that cannot be read.
    fn body<T: AnyBitPattern>(self) -> Result<T, Errno> {
        self.commands.read(self.at)
    }
}

/// The step of an exchange after a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The next command.
    Command,
    /// The read half.
    Read,
    /// The thread returns to its program.
    Program,
}

impl Device {
    /// The write half: commands until the end, an error, or a transaction that fails.
    pub(super) fn write<'a>(
        &'a self,
        exchange: &mut WriteRead,
        nonblocking: bool,
    ) -> Result<Written<'a>, Errno> {
        self.find_map();
        let tid = tid();
        let size = exchange.write_size;
        let commands = Source::beginning(exchange.write_buffer as usize, size as usize);
        let mut written = Written::Nothing;
        while exchange.write_consumed < size {
            if let Some(bytes) = self.run_fast(tid, commands, exchange, nonblocking, &mut written) {
                exchange.write_consumed += bytes;
                continue;
            }
            self.engine.settle();
            let Some(state) = self.lock_unless_failed(tid) else { return Ok(Written::Nothing) };
            let at = exchange.write_buffer.wrapping_add(exchange.write_consumed) as usize;
            let command = Command { number: commands.read(at)?, at: at + 4, commands };
            let bytes = 4 + payload_bytes(command.number);
            // As in the kernel: a command that is cut short is read all the same, if its bytes are
            // there.
            let is_last = exchange.write_consumed + bytes as u64 >= size;
            let next = match exchange.read_size {
                _ if !is_last => Next::Command,
                0 => Next::Program,
                _ => Next::Read,
            };
            written = self.run(state, tid, command, next)?;
            exchange.write_consumed += bytes as u64;
        }
        Ok(written)
    }

    /// Locks the state. `None` if a refusal is unread: until then no command runs.
    fn lock_unless_failed(&self, tid: Tid) -> Option<Guard<'_, State>> {
        let mut state = self.engine.lock();
        if state.thread(tid).calls_on().is_some() {
            self.engine.accept_answer(&mut state, tid);
            self.engine.carry_out(&mut state);
        }
        (!state.thread(tid).failed).then_some(state)
    }

    /// Runs a command.
    // Out of line: plain calls pass by here.
    #[inline(never)]
    fn run<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        command: Command,
        next: Next,
    ) -> Result<Written<'a>, Errno> {
        match command.number {
            BC_TRANSACTION | BC_REPLY | BC_TRANSACTION_SG | BC_REPLY_SG => {
                drop(state);
                return self.run_transaction(tid, command, next);
            }
            BC_INCREFS | BC_ACQUIRE => {
                drop(state);
                self.increase(command.number, command.body()?)?;
                return Ok(Written::Nothing);
            }
            BC_REQUEST_FREEZE_NOTIFICATION => {
                drop(state);
                self.request_freeze(command.body()?)?;
                return Ok(Written::Nothing);
            }
            BC_FREE_BUFFER | BC_REGISTER_LOOPER | BC_ENTER_LOOPER => {}
            _ => self.engine.accept_first(&mut state),
        }
        let reads_next = next == Next::Read;
        if let Err(errno) = self.run_locally(&mut state, tid, command, reads_next) {
            self.engine.unlock(state);
            return Err(errno);
        }
        // Descriptors of a buffer that is freed are closed by this thread, before it reads.
        if reads_next && !state.thread(tid).return_once {
            let process_work = state.takes_process_work(tid);
            if state.has_work(tid, process_work) {
                return Ok(Written::HasWork(state));
            }
        }
        let returns = next == Next::Program;
        if returns {
            state.thread(tid).return_once = false;
        }
        self.engine.unlock(state);
        Ok(if returns { Written::Over } else { Written::Nothing })
    }

    fn run_transaction(
        &self,
        tid: Tid,
        command: Command,
        next: Next,
    ) -> Result<Written<'_>, Errno> {
        let is_reply = matches!(command.number, BC_REPLY | BC_REPLY_SG);
        let (transaction, buffers_size): (TransactionData, _) = match command.number {
            BC_TRANSACTION | BC_REPLY => (command.body()?, 0),
            _ => {
                let scattered: TransactionDataSg = command.body()?;
                (scattered.transaction, scattered.buffers_size)
            }
        };
        self.transact(tid, is_reply, &transaction, buffers_size);
        let is_called = command.number == BC_TRANSACTION && next != Next::Command;
        Ok(match is_called {
            true => Written::Called(transaction.target as u32),
            false => Written::Nothing,
        })
    }

    /// BC_INCREFS and BC_ACQUIRE.
    fn increase(&self, command: u32, handle: u32) -> Result<(), Errno> {
        let strength = strength_of(command);
        if handle == 0 {
            return self.engine.increase_manager(strength, command);
        }
        self.engine.with_state(|state| {
            if !state.increase(handle, strength) {
                state.invalid_handle(command, handle);
            }
        });
        Ok(())
    }

    /// Runs the commands that need only the state.
    fn run_locally(
        &self,
        state: &mut State,
        tid: Tid,
        command: Command,
        reads_next: bool,
    ) -> Result<(), Errno> {
        match command.number {
            BC_RELEASE => {
                let handle = command.body()?;
                if let Some(owner) = state.owner_of_last(handle, 1) {
                    // Another thread's fast call by this handle may be under way.
                    self.engine.revoke_with(state, owner);
                }
                state.decrease(handle, Strength::Strong);
            }
            BC_DECREFS => state.decrease(command.body()?, Strength::Weak),
            BC_INCREFS_DONE | BC_ACQUIRE_DONE => {
                let node: PtrCookie = command.body()?;
                state.acknowledge(node.ptr, node.cookie, strength_of(command.number));
            }
            BC_FREE_BUFFER => self.free(state, tid, command.body()?, reads_next),
            BC_REGISTER_LOOPER => state.register_looper(tid),
            BC_ENTER_LOOPER => state.enter_looper(tid),
            BC_EXIT_LOOPER => state.exit_looper(tid),
            BC_REQUEST_DEATH_NOTIFICATION => {
                let HandleCookie { handle, cookie } = command.body()?;
                state.request_death(handle, cookie);
            }
            BC_CLEAR_DEATH_NOTIFICATION => {
                let HandleCookie { handle, cookie } = command.body()?;
                state.clear_death(tid, handle, cookie);
            }
            BC_DEAD_BINDER_DONE => state.death_done(tid, command.body()?),
            BC_CLEAR_FREEZE_NOTIFICATION => {
                let HandleCookie { handle, cookie } = command.body()?;
                state.clear_freeze(handle, cookie)?;
            }
            BC_FREEZE_NOTIFICATION_DONE => state.freeze_done(command.body()?)?,
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// `reads_next` as in [`Freer`].
    fn free(&self, state: &mut State, tid: Tid, address: u64, reads_next: bool) {
        let base = self.engine.buffer.program_map() as u64;
        let offset = address.checked_sub(base).filter(|_| base != 0).map(|offset| offset as usize);
        // A real-time thread leaves what others have sent to other threads.
        if state.frees_more(offset) && !self.engine.is_urgent(state) {
            self.engine.accept_first(state);
        }
        for owner in state.frees_last(offset) {
            self.engine.revoke_with(state, owner);
        }
        if state.frees_descriptors(offset) {
            // The kernel closes descriptors when the thread returns to its program.
            state.thread(tid).return_once = true;
        }
        self.engine.buffer.wipe(state.free(Freer { tid, reads_next }, offset, address));
    }

    fn transact(&self, tid: Tid, reply: bool, transaction: &TransactionData, buffers_size: u64) {
        if reply {
            self.leave_priority(|| self.engine.lock().thread(tid).served());
        }
        let target = if reply { Target::Reply } else { Target::Handle(transaction.target as u32) };
        let (mut data, mut offsets) = (Vec::new(), Vec::new());
        let outgoing = checked(transaction, buffers_size, &mut data, &mut offsets);
        let sizes = (transaction.data_size, transaction.offsets_size);
        if !reply && crate::sys::thread::is_real_time() {
            crate::engine::thread_end::remember_resources(&self.engine);
        }
        self.engine.send(tid, target, transaction.flags, sizes, outgoing);
    }
}

fn read_vec<T: AnyBitPattern + bytemuck::NoUninit>(
    address: u64,
    bytes: usize,
) -> Result<Vec<T>, Errno> {
    let mut values = vec![T::zeroed(); bytes / size_of::<T>()];
    user::copy_in(address as usize, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

/// The program's transaction: checked in place if it is plain, copied if it has objects.
fn checked<'a>(
    transaction: &TransactionData,
    buffers_size: u64,
    data: &'a mut Vec<u8>,
    offsets: &'a mut Vec<u64>,
) -> Result<Outgoing<'a>, Errno> {
    let parts = [transaction.data_size, transaction.offsets_size, buffers_size];
    let sum = |sum: u64, part: u64| sum.checked_add(part.checked_next_multiple_of(8)?);
    parts.into_iter().try_fold(0, sum).ok_or(Errno::INVAL)?;
    let limit = |bytes: u64| {
        usize::try_from(bytes).ok().filter(|&b| b <= MAX_PAYLOAD_BYTES).ok_or(Errno::NOSPC)
    };
    let (bytes, offsets_bytes) = (limit(transaction.data_size)?, limit(transaction.offsets_size)?);
    let buffers_size = limit(buffers_size)?;
    let address = transaction.buffer as usize;
    let (code, flags) = (transaction.code, transaction.flags);
    if offsets_bytes == 0 && buffers_size == 0 {
        let data = Payload::Program(Source::new(address, bytes)?);
        let sent = parcel::Sent::default();
        return Ok(Outgoing { code, flags, data, offsets: &[], sent });
    }
    if !offsets_bytes.is_multiple_of(8) || !buffers_size.is_multiple_of(8) {
        return Err(Errno::INVAL);
    }
    *data = read_vec(transaction.buffer, bytes)?;
    *offsets = read_vec(transaction.offsets, offsets_bytes)?;
    let mut sent =
        parcel::send(data, offsets, buffers_size, |at, into| user::copy_in(at as usize, into));
    let is_open = |&fd| borrowed(fd).and_then(fcntl_getfd).is_ok();
    sent.bad_fd = sent.fds.iter().position(|fd| !is_open(fd));
    // The receiver's buffer has the requested room, used or not.
    sent.buffers.resize(buffers_size, 0);
    Ok(Outgoing { code, flags, data: Payload::Bytes(data), offsets, sent })
}
