//! The ioctls other than BINDER_WRITE_READ.

use super::Device;
use crate::sys::thread::tid;
use crate::sys::user;
use baton_abi::control::{Reply, Request};
use baton_abi::uapi::*;
use baton_shm::blocking::pause;
use rustix::io::Errno;
use std::time::Duration;

/// How many times in a row, 1 ms apart, a process has to be found idle to count as frozen.
const SETTLING_LOOKS: u32 = 3;

impl Device {
    pub(super) fn control(&self, request: u32, argument: usize) -> Result<(), Errno> {
        let engine = &*self.engine;
        // For these ioctls the kernel answers EINVAL for a bad address.
        let invalid = |_| Errno::INVAL;
        engine.lock().thread(tid());
        match request {
            BINDER_SET_MAX_THREADS => {
                let max = user::read(argument).map_err(invalid)?;
                engine.with_state(|state| state.pool.max = max);
            }
            BINDER_SET_CONTEXT_MGR => engine.become_manager(0, 0, 0)?,
            BINDER_SET_CONTEXT_MGR_EXT => {
                let object: FlatObject = user::read(argument).map_err(invalid)?;
                engine.become_manager(object.binder, object.cookie, object.flags)?;
            }
            BINDER_THREAD_EXIT => {
                engine.forget_thread(tid());
                self.leave_priority(|| 0);
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
                // As in the kernel: the error is consumed even if it cannot be written.
                let mut state = engine.lock();
                let error = std::mem::take(&mut state.thread(tid()).error);
                let command = if error.command == 0 { BR_OK } else { error.command };
                let answer = ExtendedError { id: error.id, command, param: error.param };
                drop(state);
                user::write(argument, &answer)?;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn node_info(&self, argument: usize) -> Result<(), Errno> {
        let info: NodeInfoForRef = user::read(argument)?;
        if info.strong_count | info.weak_count | info.reserved1 | info.reserved2 | info.reserved3
            != 0
        {
            return Err(Errno::INVAL);
        }
        let (strong_count, weak_count) = self.engine.count_holders(info.handle)?;
        user::write(argument, &NodeInfoForRef { strong_count, weak_count, ..info })
    }

    fn node_debug_info(&self, argument: usize) -> Result<(), Errno> {
        let asked: NodeDebugInfo = user::read(argument)?;
        let state = self.engine.lock();
        let answer = state.nodes.after(asked.ptr).map(|node| {
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
        user::write(argument, &answer.unwrap_or(none))
    }

    fn freeze(&self, info: FreezeInfo) -> Result<(), Errno> {
        let pid = info.pid;
        let ask = |request| match self.engine.broker.ask(&request)? {
            Reply::Freeze { outstanding, .. } => Ok(outstanding),
            _ => Err(Errno::PROTO),
        };
        let mut outstanding = ask(Request::Freeze { pid, frozen: info.enable != 0 })?;
        if info.enable == 0 {
            return Ok(());
        }
        // The target's control thread takes in the messages that lie in the lanes, and a looper may
        // still take in a call. Neither announces the end: look again.
        let mut looks = SETTLING_LOOKS.max(info.timeout_ms);
        let mut settled = 0;
        while looks > 0 && settled < SETTLING_LOOKS {
            pause(Duration::from_millis(1));
            outstanding = ask(Request::FrozenInfo { pid })?;
            settled = if outstanding == 0 { settled + 1 } else { 0 };
            looks -= 1;
        }
        if outstanding > 0 {
            ask(Request::Freeze { pid, frozen: false })?;
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    fn frozen_info(&self, argument: usize) -> Result<(), Errno> {
        let info: FrozenStatusInfo = user::read(argument)?;
        match self.engine.broker.ask(&Request::FrozenInfo { pid: info.pid })? {
            Reply::Freeze { outstanding, two_way_received, one_way_received } => {
                let pending = u32::from(outstanding > 0) << 1;
                let answer = FrozenStatusInfo {
                    pid: info.pid,
                    sync_recv: u32::from(two_way_received) | pending,
                    async_recv: one_way_received.into(),
                };
                user::write(argument, &answer)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// Registers the listener before it asks the broker, so that no change is missed.
    pub(super) fn request_freeze(
        &self,
        HandleCookie { handle, cookie }: HandleCookie,
    ) -> Result<(), Errno> {
        let owner = self.engine.with_state(|state| {
            state.listen_for_freeze(handle, cookie)?;
            Ok(state.references.get(handle).map(|reference| reference.owner))
        })?;
        let Some(target) = owner else { return Ok(()) };
        let answer = self.engine.broker.ask(&Request::IsFrozen { target });
        let frozen = matches!(answer, Ok(Reply::Frozen { frozen: true }));
        self.engine.with_state(|state| state.freeze_known(handle, cookie, frozen));
        Ok(())
    }
}
