//! Exchanges that bypass the state: a call and its answer, a reply, a buffer that is freed, counts
//! of handles.
//!
//! The program sees the same bytes as on the general path.

use super::Device;
use super::exchange::{LARGEST_NEWS, LARGEST_RETURN, Returns, What, Written};
use crate::channel::INLINE_BYTES;
use crate::channel::payload::Payload;
use crate::fast::{Buffered, Carries, FastRead, Nothing, Outcome, References, SHORT_BYTES};
use crate::sys::user::{self, Source};
use baton_abi::control::Strength;
use baton_abi::uapi::*;
use baton_shm::futex::Wait;
use baton_state::node::News;
use baton_state::parcel::{self, FEW, Few, FewObjects};
use baton_state::work::Tid;
use bytemuck::{bytes_of, cast_slice_mut};
use smallvec::SmallVec;

impl Device {
    /// Runs the next command without the state, if that is possible, and returns the command's
    /// size. `written` gets the result of the last command.
    pub(super) fn run_fast<'a>(
        &'a self,
        tid: Tid,
        commands: Source,
        exchange: &mut WriteRead,
        nonblocking: bool,
        written: &mut Written<'a>,
    ) -> Option<u64> {
        let at = exchange.write_buffer.wrapping_add(exchange.write_consumed) as usize;
        let command: u32 = commands.read(at).ok()?;
        let bytes = 4 + payload_bytes(command) as u64;
        let is_last = exchange.write_size - exchange.write_consumed == bytes;
        match command {
            BC_FREE_BUFFER => self.free_fast(tid, commands.read(at + 4).ok()?)?,
            BC_INCREFS | BC_ACQUIRE | BC_RELEASE | BC_DECREFS => {
                self.count_fast(tid, command, commands.read(at + 4).ok()?)?;
            }
            BC_INCREFS_DONE | BC_ACQUIRE_DONE => {
                let node: PtrCookie = commands.read(at + 4).ok()?;
                let strength = strength_of(command);
                self.engine.acknowledge_quietly(tid, node, strength).then_some(())?;
            }
            BC_TRANSACTION | BC_REPLY if is_last && has_room(exchange, 0) => {
                let transaction: TransactionData = commands.read(at + 4).ok()?;
                let payload = Payload::Program(source(&transaction, exchange)?);
                if command == BC_TRANSACTION && nonblocking {
                    return None;
                }
                *written = match transaction.offsets_size {
                    0 => self.send_fast(tid, command, exchange, &transaction, payload, Nothing)?,
                    _ => self.send_copied(tid, command, exchange, &transaction)?,
                };
            }
            _ => return None,
        }
        Some(bytes)
    }

    fn send_fast(
        &self,
        tid: Tid,
        command: u32,
        exchange: &mut WriteRead,
        transaction: &TransactionData,
        payload: Payload<'_>,
        carries: impl Carries,
    ) -> Option<Written<'_>> {
        match command {
            BC_REPLY => self.reply_fast(tid, exchange, transaction, payload, carries),
            _ => self.call_fast(tid, exchange, transaction, payload, carries),
        }
    }

    fn send_copied(
        &self,
        tid: Tid,
        command: u32,
        exchange: &mut WriteRead,
        transaction: &TransactionData,
    ) -> Option<Written<'_>> {
        let copied = Copied::of(transaction)?;
        let references = References { offsets: &copied.offsets, objects: &copied.objects };
        let has_room = has_room(exchange, copied.objects.named.len());
        let payload = Payload::Bytes(&copied.data);
        if !has_room {
            return None;
        }
        self.send_fast(tid, command, exchange, transaction, payload, references)
    }

    fn call_fast(
        &self,
        tid: Tid,
        exchange: &mut WriteRead,
        transaction: &TransactionData,
        payload: Payload<'_>,
        carries: impl Carries,
    ) -> Option<Written<'_>> {
        let (handle, named) = (transaction.target as u32, (transaction.code, transaction.flags));
        if transaction.flags & TF_ONE_WAY != 0 {
            return None;
        }
        let mut receiver = Buffered::new(tid);
        match self.engine.call_buffered(handle, named, payload, carries, &mut receiver) {
            Outcome::Answered => receiver.brought.map(|(reply, wants_looper)| {
                self.put_returns(exchange, What::Answer(reply), &receiver.news, wants_looper);
                Written::Over
            }),
            Outcome::Adopted(Err(Wait::Interrupted)) => Some(Written::Interrupted(handle)),
            Outcome::Adopted(_) => Some(Written::Called(handle)),
            Outcome::No => None,
        }
    }

    fn reply_fast(
        &self,
        tid: Tid,
        exchange: &mut WriteRead,
        transaction: &TransactionData,
        payload: Payload<'_>,
        carries: impl Carries,
    ) -> Option<Written<'_>> {
        let named = (transaction.code, transaction.flags);
        let (news, wants_looper) = self.engine.answer_fast(tid, named, payload, carries)?;
        self.put_returns(exchange, What::Complete, &news, wants_looper);
        Some(Written::Over)
    }

    fn count_fast(&self, tid: Tid, command: u32, handle: u32) -> Option<()> {
        let (strength, increases) =
            (strength_of(command), matches!(command, BC_INCREFS | BC_ACQUIRE));
        self.engine.count_handle(tid, handle, strength, increases).then_some(())
    }

    fn free_fast(&self, tid: Tid, address: u64) -> Option<()> {
        let base = self.engine.buffer.program_map() as u64;
        let offset = address.checked_sub(base).filter(|_| base != 0)?;
        self.engine.free_room(tid, offset as usize, address).then_some(())
    }

    /// Puts the returns of an exchange that bypasses the state into its read buffer, which has been
    /// found writable, and has the room: whether the program is asked for one more looper, the news
    /// of nodes that it has sent, and what has come.
    pub(super) fn put_returns(
        &self,
        exchange: &mut WriteRead,
        what: What,
        news: &[News],
        wants_looper: bool,
    ) {
        let start = exchange.read_buffer as usize;
        let mut out = Returns::at(start, exchange.read_size as usize);
        out.put(if wants_looper { BR_SPAWN_LOOPER } else { BR_NOOP }, &[]);
        news.iter().for_each(|news| out.put_news(news));
        if matches!(what, What::Complete | What::Answer(_)) {
            out.put(BR_TRANSACTION_COMPLETE, &[]);
        }
        match what {
            What::Complete => {}
            What::Answer(message) => out.put(BR_REPLY, bytes_of(&self.lay_out(message, (0, 0)))),
            What::Transaction(message, object) => {
                out.put(BR_TRANSACTION, bytes_of(&self.lay_out(message, object)));
            }
        }
        exchange.read_consumed = out.filled(start);
    }

    /// Waits as a looper that can take in plain transactions.
    pub(super) fn read_fast(
        &self,
        tid: Tid,
        exchange: &WriteRead,
        nonblocking: bool,
    ) -> FastRead<'_> {
        let (returns, size) = (exchange.read_buffer as usize, exchange.read_size as usize);
        if nonblocking || !has_room(exchange, 0) || user::writable(returns, size).is_err() {
            return FastRead::No;
        }
        self.engine.read_fast(tid)
    }
}

/// Whether the read buffer has room for all returns of an exchange that sends so many objects, as a
/// read of several items requires.
fn has_room(exchange: &WriteRead, n_objects: usize) -> bool {
    let least = 8 + LARGEST_RETURN + n_objects * LARGEST_NEWS;
    exchange.read_consumed == 0 && exchange.read_size >= least as u64
}

/// The strength that a command counts.
pub(super) fn strength_of(command: u32) -> Strength {
    match command {
        BC_ACQUIRE | BC_RELEASE | BC_ACQUIRE_DONE => Strength::Strong,
        _ => Strength::Weak,
    }
}

/// The bytes of a transaction, if its outcome can be returned in this exchange.
fn source(transaction: &TransactionData, exchange: &WriteRead) -> Option<Source> {
    let bytes = usize::try_from(transaction.data_size).ok()?;
    let source = Source::new(transaction.buffer as usize, bytes).ok()?;
    let returns = (exchange.read_buffer, exchange.read_size);
    // The check for write access overwrites bytes of the range, and the program may go on by the
    // state, which reads all of these again.
    let disjoint = [
        (exchange.write_buffer, exchange.write_size),
        (transaction.buffer, transaction.data_size),
        (transaction.offsets, transaction.offsets_size),
    ];
    let disjoint = disjoint.into_iter().all(|range| !user::overlap(range, returns));
    let is_writable = disjoint && user::writable(returns.0 as usize, returns.1 as usize).is_ok();
    is_writable.then_some(source)
}

/// A transaction with few references, copied from the program.
struct Copied {
    data: SmallVec<[u8; SHORT_BYTES]>,
    offsets: Few<u64>,
    objects: FewObjects,
}

impl Copied {
    /// `None` if the transaction is too large for the fast path, has other objects, or cannot be
    /// read.
    fn of(transaction: &TransactionData) -> Option<Copied> {
        let bytes = usize::try_from(transaction.data_size).ok()?;
        let n = usize::try_from(transaction.offsets_size / 8).ok()?;
        if bytes > INLINE_BYTES || n > FEW || !transaction.offsets_size.is_multiple_of(8) {
            return None;
        }
        let mut data = SmallVec::from_elem(0, bytes);
        let mut offsets: Few<u64> = SmallVec::from_elem(0, n);
        user::copy_in(transaction.buffer as usize, &mut data).ok()?;
        user::copy_in(transaction.offsets as usize, cast_slice_mut(&mut offsets)).ok()?;
        let objects = parcel::few_objects(&data, &offsets)?;
        Some(Copied { data, offsets, objects })
    }
}
