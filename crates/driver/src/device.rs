//! The uapi front end: what a program has instead of an open `/dev/binder`.
//!
//! Command buffers in, command buffers out, byte for byte as the kernel's driver takes and gives
//! them: the order of returns, `BR_NOOP` first, when a command stops the rest, what is written
//! back to `binder_write_read`, and when.

use crate::channel::duplicate;
use crate::engine::{Engine, tid};
use crate::parcel;
use crate::send::{Data, Outgoing};
use crate::state::transaction::{Incoming, Target};
use crate::state::work::Tid;
use crate::state::{Return, State};
use crate::user;
use baton_abi::control::{Reply, Request, Strength};
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use baton_shm::sync::Ordering;
use bytemuck::{AnyBitPattern, bytes_of};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, MutexGuard};

/// One opened device. Threads share it; it is closed when the last reference goes.
#[derive(Debug)]
pub struct Device {
    engine: Arc<Engine>,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody listens at the broker's socket.
    #[error("no broker listens at {socket}: {errno}")]
    NoBroker {
        /// The socket that was tried.
        socket: String,
        /// What connect said.
        errno: Errno,
    },
    /// The broker refused.
    #[error("the broker refused context {context:?}: {errno}")]
    Refused {
        /// The context.
        context: String,
        /// Its reason.
        errno: Errno,
    },
    /// A system call failed.
    #[error("{operation}: {errno}")]
    System {
        /// Which.
        operation: &'static str,
        /// How.
        errno: Errno,
    },
}

impl OpenError {
    /// What `open("/dev/binder")` fails with.
    pub fn errno(&self) -> Errno {
        match self {
            OpenError::NoBroker { errno, .. }
            | OpenError::Refused { errno, .. }
            | OpenError::System { errno, .. } => *errno,
        }
    }
}

/// How many times in a row, 1 ms apart, a process has to be found idle to count as frozen.
const SETTLING_LOOKS: u32 = 3;

/// Room that the kernel asks for before it takes an item: its largest return, with the command.
const LARGEST_RETURN: usize = 4 + size_of::<TransactionDataSecctx>();

impl Device {
    /// Opens a context at the broker that listens at `socket`.
    pub fn open(context: &str, socket: &Path) -> Result<Arc<Device>, OpenError> {
        Ok(Arc::new(Device { engine: Engine::open(context, socket)? }))
    }

    /// The file behind the receive buffer: a sealed memfd of 4 MiB. A duplicate of it is the
    /// program's descriptor; a map of it (`PROT_READ`, at offset 0) is the program's receive buffer.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.engine.memory_file()
    }

    /// Checks an `mmap` of the device before it is done: the length to map, at most 4 MiB.
    /// `EPERM` if it would be writable, `EBUSY` if there is a map already.
    pub fn before_map(&self, bytes: usize, writable: bool) -> Result<usize, Errno> {
        if writable {
            return Err(Errno::PERM);
        }
        if self.engine.program_map.load(Ordering::Acquire) != 0 {
            return Err(Errno::BUSY);
        }
        Ok(bytes.min(MAX_PAYLOAD_BYTES))
    }

    /// The program's map is at this address. (A program that maps by inline system calls never
    /// says so: the address is then found in /proc/self/maps when the first buffer is needed.)
    pub fn mapped(&self, address: usize, bytes: usize) {
        let mut state = self.engine.lock();
        if self.engine.program_map.swap(address, Ordering::AcqRel) == 0 {
            state.buffers.map(bytes.min(MAX_PAYLOAD_BYTES));
        }
        self.engine.unlock(state);
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
            BINDER_WRITE_READ => self.write_read(argument, nonblocking),
            _ => self.control(request, argument),
        };
        // Every ioctl makes the thread known but the one by which it leaves.
        if request != BINDER_THREAD_EXIT {
            self.engine.lock().thread(tid()).return_once = false;
        }
        result.map(|()| 0)
    }

    fn control(&self, request: u32, argument: usize) -> Result<(), Errno> {
        let engine = &*self.engine;
        // For these the kernel says EINVAL of a bad address.
        let invalid = |_| Errno::INVAL;
        engine.lock().thread(tid());
        match request {
            BINDER_SET_MAX_THREADS => {
                engine.lock().pool.max = user::read(argument).map_err(invalid)?;
            }
            BINDER_SET_CONTEXT_MGR => self.become_manager(FlatObject {
                kind: BINDER_TYPE_BINDER,
                flags: 0,
                binder: 0,
                cookie: 0,
            })?,
            BINDER_SET_CONTEXT_MGR_EXT => {
                self.become_manager(user::read(argument).map_err(invalid)?)?;
            }
            BINDER_THREAD_EXIT => {
                let mut state = engine.lock();
                state.thread_exit(tid());
                engine.unlock(state);
            }
            BINDER_VERSION => user::write(argument, &PROTOCOL_VERSION).map_err(invalid)?,
            BINDER_GET_NODE_INFO_FOR_REF => self.node_info(argument)?,
            BINDER_GET_NODE_DEBUG_INFO => self.node_debug_info(argument)?,
            BINDER_FREEZE => self.freeze(user::read(argument)?)?,
            BINDER_GET_FROZEN_INFO => self.frozen_info(argument)?,
            BINDER_ENABLE_ONEWAY_SPAM_DETECTION => {
                let enable: u32 = user::read(argument)?;
                engine.lock().spam_detection = enable != 0;
            }
            BINDER_GET_EXTENDED_ERROR => {
                user::readable(argument, size_of::<ExtendedError>())?;
                let mut state = engine.lock();
                let error = std::mem::take(&mut state.thread(tid()).error);
                let command = if error.command == 0 { BR_OK } else { error.command };
                let told = ExtendedError { id: error.id, command, param: error.param };
                drop(state);
                user::write(argument, &told)?;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// A descriptor that polls readable while the device would (`POLLIN`): level-triggered work of
    /// the process or of the calling thread. To be polled in place of the device's own.
    pub fn readable(&self) -> Result<BorrowedFd<'static>, Errno> {
        self.engine.readable()
    }

    /// In the child after fork: the device stays the parent's; the child's copy lets go of the
    /// broker, so that its life is not taken for the parent's. ioctls then fail with `EBADF`.
    pub fn forked(&self) {
        self.engine.forked();
    }

    // ---- BINDER_WRITE_READ ------------------------------------------------------------------

    fn write_read(&self, argument: usize, nonblocking: bool) -> Result<(), Errno> {
        let mut exchange: WriteRead = user::read(argument)?;
        let mut result = Ok(());
        if exchange.write_size > 0 {
            result = self.write(&mut exchange);
            if result.is_err() {
                exchange.read_consumed = 0;
            }
        }
        if result.is_ok() && exchange.read_size > 0 {
            result = self.read(&mut exchange, nonblocking);
        }
        user::write(argument, &exchange)?;
        result
    }

    /// The write half: commands until the end, an error, or a transaction that fails.
    fn write(&self, exchange: &mut WriteRead) -> Result<(), Errno> {
        self.find_map();
        let tid = tid();
        let size = exchange.write_size;
        while exchange.write_consumed < size {
            if self.has_failed(tid) {
                return Ok(());
            }
            let at = exchange.write_buffer.wrapping_add(exchange.write_consumed) as usize;
            let command: u32 = user::read(at)?;
            let bytes = 4 + payload_bytes(command);
            // As the kernel: what is cut short is read all the same, if it is there.
            self.run(tid, command, at + 4)?;
            exchange.write_consumed += bytes as u64;
        }
        Ok(())
    }

    /// Whether no command runs until the thread has read of a refusal.
    fn has_failed(&self, tid: Tid) -> bool {
        let mut state = self.engine.lock();
        if state.thread(tid).calls_on().is_some() {
            self.engine.accept_answer(&mut state, tid);
            let failed = state.thread(tid).failed;
            self.engine.unlock(state);
            return failed;
        }
        state.thread(tid).failed
    }

    fn run(&self, tid: Tid, command: u32, at: usize) -> Result<(), Errno> {
        let engine = &*self.engine;
        match command {
            BC_TRANSACTION | BC_REPLY => {
                let transaction: TransactionData = user::read(at)?;
                self.transact(tid, command == BC_REPLY, &transaction, 0);
                return Ok(());
            }
            BC_TRANSACTION_SG | BC_REPLY_SG => {
                let scattered: TransactionDataSg = user::read(at)?;
                let reply = command == BC_REPLY_SG;
                self.transact(tid, reply, &scattered.transaction, scattered.buffers_size);
                return Ok(());
            }
            BC_INCREFS | BC_ACQUIRE => {
                let handle = user::read(at)?;
                let strength =
                    if command == BC_ACQUIRE { Strength::Strong } else { Strength::Weak };
                if handle == 0 {
                    return engine.increase_manager(strength, command);
                }
                let mut state = engine.lock();
                if !state.increase(handle, strength) {
                    state.invalid_handle(command, handle);
                }
                engine.unlock(state);
                return Ok(());
            }
            _ => {}
        }
        let frozen = match command {
            BC_REQUEST_FREEZE_NOTIFICATION => self.is_owner_frozen(user::read(at)?),
            _ => false,
        };
        let mut state = engine.lock();
        let result = self.run_locally(&mut state, tid, command, at, frozen);
        engine.unlock(state);
        result
    }

    /// Commands that need nothing but the state.
    fn run_locally(
        &self,
        state: &mut State,
        tid: Tid,
        command: u32,
        at: usize,
        frozen: bool,
    ) -> Result<(), Errno> {
        match command {
            BC_RELEASE => state.decrease(user::read(at)?, Strength::Strong),
            BC_DECREFS => state.decrease(user::read(at)?, Strength::Weak),
            BC_INCREFS_DONE | BC_ACQUIRE_DONE => {
                let node: PtrCookie = user::read(at)?;
                let strength =
                    if command == BC_ACQUIRE_DONE { Strength::Strong } else { Strength::Weak };
                state.acknowledge(node.ptr, node.cookie, strength);
            }
            BC_FREE_BUFFER => self.free(state, user::read(at)?),
            BC_REGISTER_LOOPER => state.register_looper(tid),
            BC_ENTER_LOOPER => state.enter_looper(tid),
            BC_EXIT_LOOPER => state.thread(tid).looper.exited = true,
            BC_REQUEST_DEATH_NOTIFICATION => {
                let HandleCookie { handle, cookie } = user::read(at)?;
                state.request_death(handle, cookie);
            }
            BC_CLEAR_DEATH_NOTIFICATION => {
                let HandleCookie { handle, cookie } = user::read(at)?;
                state.clear_death(tid, handle, cookie);
            }
            BC_DEAD_BINDER_DONE => state.death_done(tid, user::read(at)?),
            BC_REQUEST_FREEZE_NOTIFICATION => {
                let HandleCookie { handle, cookie } = user::read(at)?;
                state.request_freeze(handle, cookie, frozen)?;
            }
            BC_CLEAR_FREEZE_NOTIFICATION => {
                let HandleCookie { handle, cookie } = user::read(at)?;
                state.clear_freeze(tid, handle, cookie)?;
            }
            BC_FREEZE_NOTIFICATION_DONE => state.freeze_done(tid, user::read(at)?)?,
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn free(&self, state: &mut State, address: u64) {
        let base = self.engine.program_map.load(Ordering::Acquire) as u64;
        let offset = address.checked_sub(base).filter(|_| base != 0).map(|offset| offset as usize);
        if let Some((offset, bytes)) = state.free(offset, address) {
            self.engine.memory.zero(offset, bytes);
        }
        self.engine.freed(state);
    }

    fn transact(&self, tid: Tid, reply: bool, transaction: &TransactionData, buffers_size: u64) {
        let target = if reply { Target::Reply } else { Target::Handle(transaction.target as u32) };
        let (mut data, mut offsets) = (Vec::new(), Vec::new());
        let outgoing = gather(transaction, buffers_size, &mut data, &mut offsets);
        self.engine.send(tid, target, transaction.flags, outgoing);
    }

    /// The read half: waits for something, then gives all there is, up to one transaction.
    fn read(&self, exchange: &mut WriteRead, nonblocking: bool) -> Result<(), Errno> {
        let tid = tid();
        let (start, size) = (exchange.read_buffer as usize, exchange.read_size as usize);
        let consumed = usize::try_from(exchange.read_consumed).map_err(|_| Errno::INVAL)?;
        let mut out = Returns { at: start.wrapping_add(consumed), end: start.wrapping_add(size) };
        user::writable(out.at, out.end.saturating_sub(out.at).max(4))?;
        if consumed == 0 {
            out.put(BR_NOOP, &[]);
        }
        let first = out.at;
        let result = self.collect(tid, &mut out, first, nonblocking);
        exchange.read_consumed = (out.at - start) as u64;
        match result {
            Ok(mut state) => {
                let wants_looper = state.wants_looper(tid);
                self.engine.unlock(state);
                if wants_looper {
                    Returns { at: start, end: start + 4 }.put(BR_SPAWN_LOOPER, &[]);
                }
                Ok(())
            }
            Err(errno) => {
                if consumed == 0 {
                    exchange.read_consumed = 0;
                }
                Err(errno)
            }
        }
    }

    fn collect(
        &self,
        tid: Tid,
        out: &mut Returns,
        first: usize,
        nonblocking: bool,
    ) -> Result<MutexGuard<'_, State>, Errno> {
        let engine = &*self.engine;
        let mut state = engine.lock();
        loop {
            let process_work = state.takes_process_work(tid);
            state = engine.await_work(state, tid, process_work, nonblocking)?;
            while out.room() >= LARGEST_RETURN {
                let Some(item) = state.next_return(tid, process_work) else { break };
                let last = ends_read(&item);
                self.give(out, item);
                if last {
                    return Ok(state);
                }
            }
            let nothing = out.at == first && out.room() >= LARGEST_RETURN;
            if !nothing || state.thread(tid).return_once {
                return Ok(state);
            }
        }
    }

    fn give(&self, out: &mut Returns, item: Return) {
        match item {
            Return::Nothing => {}
            Return::Bare(command) => out.put(command, &[]),
            Return::Cookie(command, cookie) => out.put(command, bytes_of(&cookie)),
            Return::Frozen(cookie, frozen) => {
                let state = FrozenStateInfo { cookie, is_frozen: frozen.into(), reserved: 0 };
                out.put(BR_FROZEN_BINDER, bytes_of(&state));
            }
            Return::Node(news) => {
                let (ptr, cookie) = news.subject;
                for command in news.returns {
                    out.put(command, bytes_of(&PtrCookie { ptr, cookie }));
                }
            }
            Return::Reply(incoming) => {
                out.put(BR_REPLY, bytes_of(&self.describe(&incoming, (0, 0))));
            }
            Return::Transaction(incoming, subject) => {
                let transaction = self.describe(&incoming, subject);
                match incoming.label {
                    None => out.put(BR_TRANSACTION, bytes_of(&transaction)),
                    Some(label) => {
                        let secctx = self.address(label);
                        let labelled = TransactionDataSecctx { transaction, secctx };
                        out.put(BR_TRANSACTION_SEC_CTX, bytes_of(&labelled));
                    }
                }
            }
        }
    }

    fn describe(&self, incoming: &Incoming, (ptr, cookie): (u64, u64)) -> TransactionData {
        let (data_bytes, offsets_bytes) = incoming.sizes;
        let buffer = self.address(incoming.buffer);
        let left = incoming.serving.as_ref().is_some_and(|s| self.engine.has_left(s.via));
        TransactionData {
            target: ptr,
            cookie,
            code: incoming.code,
            flags: incoming.flags,
            sender_pid: if left { 0 } else { incoming.sender.0 as i32 },
            sender_euid: incoming.sender.1,
            data_size: data_bytes as u64,
            offsets_size: offsets_bytes as u64,
            buffer,
            offsets: buffer + data_bytes.next_multiple_of(8) as u64,
        }
    }

    fn address(&self, offset: usize) -> u64 {
        (self.engine.program_map.load(Ordering::Acquire) + offset) as u64
    }

    /// A program that maps by inline system calls: look where.
    fn find_map(&self) {
        if self.engine.program_map.load(Ordering::Acquire) != 0 {
            return;
        }
        if let Some((address, bytes)) = crate::maps::find_private(self.file()) {
            self.mapped(address, bytes);
        }
    }

    // ---- the other ioctls -------------------------------------------------------------------

    fn become_manager(&self, object: FlatObject) -> Result<(), Errno> {
        let engine = &*self.engine;
        let node = {
            let mut state = engine.lock();
            let node = state.context_manager_node(object.binder, object.cookie, object.flags);
            engine.unlock(state);
            node
        };
        let request = Request::BecomeContextManager { node, flags: object.flags };
        engine.broker.ask(&request).map(drop).inspect_err(|_| {
            let mut state = engine.lock();
            state.not_context_manager(node);
            engine.unlock(state);
        })
    }

    fn node_info(&self, argument: usize) -> Result<(), Errno> {
        let info: NodeInfoForRef = user::read(argument)?;
        if info.strong_count | info.weak_count | info.reserved1 | info.reserved2 | info.reserved3
            != 0
        {
            return Err(Errno::INVAL);
        }
        let handle = info.handle;
        let held = self.engine.lock().holds(handle, Strength::Strong);
        match self.engine.broker.ask(&Request::NodeInfo { handle })? {
            _ if !held => Err(Errno::INVAL),
            Reply::Counts { strong, weak } => {
                let told = NodeInfoForRef { strong_count: strong, weak_count: weak, ..info };
                user::write(argument, &told)
            }
            _ => Err(Errno::PROTO),
        }
    }

    fn node_debug_info(&self, argument: usize) -> Result<(), Errno> {
        let asked: NodeDebugInfo = user::read(argument)?;
        let state = self.engine.lock();
        let told = state.nodes.after(asked.ptr).map(|node| {
            let (strong, weak) = node.told();
            NodeDebugInfo {
                ptr: node.ptr,
                cookie: node.cookie,
                has_strong_ref: strong.into(),
                has_weak_ref: weak.into(),
            }
        });
        drop(state);
        let none = NodeDebugInfo { ptr: 0, cookie: 0, has_strong_ref: 0, has_weak_ref: 0 };
        user::write(argument, &told.unwrap_or(none))
    }

    fn freeze(&self, info: FreezeInfo) -> Result<(), Errno> {
        let ask =
            |frozen| match self.engine.broker.ask(&Request::Freeze { pid: info.pid, frozen })? {
                Reply::Freeze { outstanding, .. } => Ok(outstanding),
                _ => Err(Errno::PROTO),
            };
        let mut outstanding = ask(info.enable != 0)?;
        if info.enable == 0 {
            return Ok(());
        }
        // The target's control thread, told of the freeze, takes in what lies in the lanes; it says
        // nothing when it is done, nor does a looper with its call: look again.
        let mut looks = SETTLING_LOOKS.max(info.timeout_ms);
        let mut settled = 0;
        while looks > 0 && settled < SETTLING_LOOKS {
            let tick = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&tick));
            outstanding = ask(true)?;
            settled = if outstanding == 0 { settled + 1 } else { 0 };
            looks -= 1;
        }
        if outstanding > 0 {
            ask(false)?;
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    fn frozen_info(&self, argument: usize) -> Result<(), Errno> {
        let info: FrozenStatusInfo = user::read(argument)?;
        match self.engine.broker.ask(&Request::FrozenInfo { pid: info.pid })? {
            Reply::Freeze { outstanding, two_way_received, one_way_received } => {
                let pending = u32::from(outstanding > 0) << 1;
                let told = FrozenStatusInfo {
                    pid: info.pid,
                    sync_recv: u32::from(two_way_received) | pending,
                    async_recv: one_way_received.into(),
                };
                user::write(argument, &told)
            }
            _ => Err(Errno::PROTO),
        }
    }

    fn is_owner_frozen(&self, HandleCookie { handle, .. }: HandleCookie) -> bool {
        let owner = self.engine.lock().references.get(handle).map(|reference| reference.owner);
        let Some(target) = owner else { return false };
        let answer = self.engine.broker.ask(&Request::IsFrozen { target });
        matches!(answer, Ok(Reply::Frozen { frozen: true }))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.engine.close();
    }
}

/// The program has unmapped or protected memory: what was known of its pages is not any more.
pub fn memory_changes() {
    user::unmapped();
}

/// Whether the read ends after this return: it may lead to a call of the program's.
fn ends_read(item: &Return) -> bool {
    matches!(item, Return::Transaction(..) | Return::Reply(_) | Return::Cookie(BR_DEAD_BINDER, _))
}

/// Room in the program's read buffer, which has been found writable.
struct Returns {
    at: usize,
    end: usize,
}

impl Returns {
    fn room(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    fn put(&mut self, command: u32, payload: &[u8]) {
        user::copy_out(self.at, bytes_of(&command));
        user::copy_out(self.at + 4, payload);
        self.at += 4 + payload.len();
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
fn gather<'a>(
    transaction: &TransactionData,
    buffers_size: u64,
    data: &'a mut Vec<u8>,
    offsets: &'a mut Vec<u64>,
) -> Result<Outgoing<'a>, Errno> {
    let limit = |bytes: u64| {
        usize::try_from(bytes).ok().filter(|&b| b <= MAX_PAYLOAD_BYTES).ok_or(Errno::NOSPC)
    };
    let (bytes, offsets_bytes) = (limit(transaction.data_size)?, limit(transaction.offsets_size)?);
    let buffers_size = limit(buffers_size)?;
    let address = transaction.buffer as usize;
    let (code, flags) = (transaction.code, transaction.flags);
    if offsets_bytes == 0 && buffers_size == 0 {
        user::readable(address, bytes)?;
        let sent = parcel::Sent::default();
        return Ok(Outgoing {
            code,
            flags,
            data: Data::Program { address, bytes },
            offsets: &[],
            sent,
        });
    }
    if !offsets_bytes.is_multiple_of(8) || !buffers_size.is_multiple_of(8) {
        return Err(Errno::INVAL);
    }
    *data = read_vec(transaction.buffer, bytes)?;
    *offsets = read_vec(transaction.offsets, offsets_bytes)?;
    let mut sent =
        parcel::send(data, offsets, buffers_size, |at, into| user::copy_in(at as usize, into));
    sent.bad_fd = sent.fds.iter().position(|fd| duplicate(*fd).is_err());
    // The receiver's buffer has the room that was asked for, used or not.
    sent.buffers.resize(buffers_size, 0);
    Ok(Outgoing { code, flags, data: Data::Bytes(data), offsets, sent })
}
