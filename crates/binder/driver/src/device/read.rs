//! The read half of BINDER_WRITE_READ: the returns.

use super::Device;
use super::exchange::{Exchanged, LARGEST_RETURN, Returns, What, Written};
use crate::fast::FastRead;
use crate::runner::await_work::Until;
use crate::sys::thread::tid;
use baton_abi::uapi::*;
use baton_shm::lock::Guard;
use baton_state::priority::RequestedPriority;
use baton_state::transaction::{BufferedMessage, Incoming, LaneId};
use baton_state::work::Tid;
use baton_state::{Return, State};
use bytemuck::bytes_of;
use rustix::io::Errno;

impl Device {
    /// The read half: waits for work, then writes all returns up to one transaction.
    pub(super) fn read(
        &self,
        exchange: &mut WriteRead,
        nonblocking: bool,
        written: Written<'_>,
    ) -> Exchanged {
        let tid = tid();
        if let Written::HasWork(state) = written {
            return self.read_state(state, tid, exchange, nonblocking, None);
        }
        self.engine.settle_answer();
        let called = match written {
            Written::Called(handle) => Some(handle),
            Written::Interrupted(_) if !self.has_work(tid) => {
                exchange.read_consumed = 0;
                return Exchanged::Returns(Err(Errno::INTR));
            }
            Written::Interrupted(handle) => Some(handle),
            _ => None,
        };
        while called.is_none() {
            match self.read_fast(tid, exchange, nonblocking) {
                FastRead::PendingReturn((message, wants_looper), object) => {
                    let what = What::Transaction(message, object);
                    self.put_returns(exchange, what, &[], wants_looper);
                    return Exchanged::Over(Ok(()));
                }
                FastRead::Interrupted => return Exchanged::Returns(Err(Errno::INTR)),
                FastRead::Look(state) => match self.read_state(state, tid, exchange, true, None) {
                    Exchanged::Returns(Err(Errno::AGAIN)) => {}
                    exchanged => return exchanged,
                },
                FastRead::Relieved => {}
                FastRead::No => break,
            }
        }
        // The thread may still bypass the state, which has to know of its next steps.
        self.engine.settle();
        self.read_state(self.engine.lock(), tid, exchange, nonblocking, called)
    }

    fn has_work(&self, tid: Tid) -> bool {
        let mut state = self.engine.lock();
        let process_work = state.takes_process_work(tid);
        state.has_work(tid, process_work)
    }

    /// Reads the state's work for the thread, and waits for it. `called` is the handle by which the
    /// thread has just called. `state` may have changes that are still to be carried out.
    // Out of line: plain calls pass by here.
    #[inline(never)]
    fn read_state<'a>(
        &'a self,
        state: Guard<'a, State>,
        tid: Tid,
        exchange: &mut WriteRead,
        nonblocking: bool,
        called: Option<u32>,
    ) -> Exchanged {
        let state = self.leave_priorities(state, tid);
        let mut out = match Returns::of(exchange) {
            Ok(out) => out,
            Err(errno) => {
                self.engine.unlock(state);
                return Exchanged::Returns(Err(errno));
            }
        };
        let start = exchange.read_buffer as usize;
        match self.collect(state, tid, &mut out, nonblocking, called) {
            Ok(mut state) => {
                exchange.read_consumed = out.filled(start);
                let wants_looper = state.wants_looper(tid);
                if let Some(serves) = out.serves {
                    self.take_priority(&mut state, tid, serves);
                }
                state.thread(tid).return_once = false;
                self.engine.unlock(state);
                if wants_looper {
                    Returns::at(start, 4).put(BR_SPAWN_LOOPER, &[]);
                }
                Exchanged::Over(Ok(()))
            }
            Err(errno) => Exchanged::Returns(Err(errno)),
        }
    }

    fn collect<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        out: &mut Returns,
        nonblocking: bool,
        called: Option<u32>,
    ) -> Result<Guard<'a, State>, Errno> {
        let (engine, first) = (&self.engine, out.at);
        let via = state.thread(tid).calls_on().map(|calling| calling.via);
        let called = called.zip(via);
        let until = if nonblocking { Until::Now } else { Until::News };
        loop {
            engine.end_raise(&mut state);
            engine.end_dedication(&mut state, tid);
            if !nonblocking {
                state = engine.become_dedicated(state, tid);
            }
            let process_work = state.takes_process_work(tid);
            state = engine.await_work(state, tid, process_work, until, None)?;
            while out.room() >= LARGEST_RETURN {
                let Some(item) = state.next_return(tid, process_work) else { break };
                let last = ends_read(&item);
                self.learn(&mut state, tid, &item, called);
                out.serves = out.serves.or(serves(&mut state, tid, &item));
                self.give(out, item);
                if last {
                    return Ok(state);
                }
            }
            let nothing = out.at == first && out.room() >= LARGEST_RETURN;
            let is_to_ask = process_work && state.is_to_ask(tid);
            if !nothing || is_to_ask || state.thread(tid).return_once {
                return Ok(state);
            }
        }
    }

    /// Caches this item for the fast path, so that similar ones bypass the state.
    fn learn(&self, state: &mut State, tid: Tid, item: &Return, called: Option<(u32, LaneId)>) {
        match item {
            Return::Reply(_) => {
                if let Some((handle, via)) = called {
                    self.engine.remember_route(state, tid, handle, via);
                }
            }
            Return::Transaction(incoming, object) => {
                self.engine.cache_client(state, incoming, *object);
            }
            _ => {}
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
            Return::Node(news) => out.put_news(&news),
            Return::Reply(incoming) => {
                out.put(BR_REPLY, bytes_of(&self.describe(&incoming, (0, 0))));
            }
            Return::Transaction(incoming, object) => {
                let transaction = self.describe(&incoming, object);
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

    fn describe(&self, incoming: &Incoming, object: (u64, u64)) -> TransactionData {
        let Incoming { buffer, sizes, code, flags, sender: (pid, uid), .. } = *incoming;
        let left = incoming.serving.as_ref().is_some_and(|s| self.engine.has_left(s.via));
        let sender = (if left { 0 } else { pid }, uid);
        self.lay_out(BufferedMessage { buffer, sizes, code, flags, sender }, object)
    }

    pub(super) fn lay_out(
        &self,
        message: BufferedMessage,
        (ptr, cookie): (u64, u64),
    ) -> TransactionData {
        let (data_bytes, offsets_bytes) = message.sizes;
        let buffer = self.address(message.buffer);
        TransactionData {
            target: ptr,
            cookie,
            code: message.code,
            flags: message.flags,
            sender_pid: message.sender.0 as i32,
            sender_euid: message.sender.1,
            data_size: data_bytes as u64,
            offsets_size: offsets_bytes as u64,
            buffer,
            offsets: buffer + data_bytes.next_multiple_of(8) as u64,
        }
    }

    fn address(&self, offset: usize) -> u64 {
        (self.engine.buffer.program_map() + offset) as u64
    }
}

/// Whether the read ends after this return, because the program may make a call because of it.
fn ends_read(item: &Return) -> bool {
    matches!(
        item,
        Return::Transaction(..)
            | Return::Reply(_)
            | Return::Cookie(BR_DEAD_BINDER, _)
            | Return::Frozen(..)
    )
}

fn serves(state: &mut State, tid: Tid, item: &Return) -> Option<(usize, RequestedPriority)> {
    let Return::Transaction(incoming, _) = item else { return None };
    let depth = incoming.serving.as_ref().map_or(0, |_| state.thread(tid).served());
    Some((depth, incoming.requested_priority()))
}
