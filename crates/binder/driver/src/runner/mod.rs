//! The runner: the state under its lock, and the I/O that the state asks for.
//!
//! A hidden control thread takes the broker's events, and the messages of peers that no thread of
//! the program takes.

mod accept;
mod answer;
pub(crate) mod await_work;
mod channels;
mod control_thread;
mod describe_calls;
mod effects;
mod events;
mod leave;
mod rejoin;
pub(crate) mod send;
mod take_in;
#[cfg(test)]
pub(crate) mod tests;

use crate::engine::open_error::OpenError;
use crate::engine::{Engine, GreetedParts, Parts};
use crate::sys::thread::{self, tid};
use crate::wait::settings::Settings;
use baton_abi::control::{NodeId, ProcessId, Reply, Request, Strength};
use baton_shm::lock::Guard;
use baton_shm::sync::Ordering;
use baton_state::thread::Waiting;
use baton_state::work::Tid;
use baton_state::{Effect, State};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

impl Engine {
    /// [`Engine::open_with`] the environment's settings.
    pub fn open(context: &str, socket: &Path) -> Result<Arc<Engine>, OpenError> {
        Engine::open_with(context, socket, Settings::of_environment())
    }

    /// Connects to the broker at `socket` and starts the control thread.
    pub fn open_with(
        context: &str,
        socket: &Path,
        settings: Settings,
    ) -> Result<Arc<Engine>, OpenError> {
        let parts = Parts::new(socket, None)?.greet(context, None)?;
        let engine = Engine::connect_watched(parts, settings)?;
        let control = Arc::clone(&engine);
        thread::start("baton-control", move || control.run_control())
            .map_err(|errno| OpenError::System { operation: "start the control thread", errno })?;
        Ok(engine)
    }

    /// The engine of these parts, once the broker has answered. A thread of the caller's is to be
    /// the control thread: [`Engine::run_control`].
    pub(crate) fn connect_watched(
        parts: GreetedParts,
        settings: Settings,
    ) -> Result<Arc<Engine>, OpenError> {
        let engine = Arc::new(Engine::connect(parts, settings)?);
        engine
            .watch_events(&engine.broker.link())
            .map_err(|errno| OpenError::System { operation: "epoll_ctl", errno })?;
        thread::forget_in_children();
        Ok(engine)
    }

    /// Locks the state for `body`, then carries out the effects.
    pub fn with_state<T>(&self, body: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = body(&mut state);
        self.unlock(state);
        result
    }

    /// Carries out the state's effects, then unlocks it.
    pub fn unlock(&self, mut state: Guard<'_, State>) {
        self.carry_out(&mut state);
        if !state.closing.is_empty() {
            let closing = std::mem::take(&mut state.closing);
            drop(state);
            effects::close_installed(closing);
        }
    }

    /// Unlocks the state after changes that peers see by effects alone.
    pub(crate) fn unlock_if_changed(&self, state: Guard<'_, State>) {
        if self.has_changed(&state) {
            self.unlock(state);
        }
    }

    /// A descriptor that polls readable while the calling thread would find work. Polling threads
    /// cost the others a doorbell over the socket, so it begins with the first use.
    pub fn readable(&self) -> Result<Arc<OwnedFd>, Errno> {
        let pollable = self.pollables.of(tid())?;
        self.begin_polling()?;
        Ok(pollable)
    }

    /// Like [`Engine::readable`], for an epoll set of the program.
    pub fn readable_for_sets(&self) -> Result<Arc<OwnedFd>, Errno> {
        let pollable = self.pollables.for_sets(tid())?;
        self.begin_polling()?;
        Ok(pollable)
    }

    /// The program has this effective user from now on. Messages name it if it is another one than
    /// the broker has told peers of, which believe that only if root serves this device.
    pub fn set_user(&self, user: u32) {
        let mut state = self.lock();
        self.user.store(user, Ordering::Relaxed);
        // What goes past the state names no user.
        self.revoke(&mut state);
        self.unlock(state);
    }

    fn begin_polling(&self) -> Result<(), Errno> {
        let tid = tid();
        let mut state = self.lock();
        state.end_dedicated(tid);
        self.pollables.begin();
        self.revoke(&mut state);
        if let Some(calling) = state.thread(tid).calls_on()
            && let Some(channel) = self.channel(calling.via.channel)
        {
            channel.lane(calling.via.lane as usize)?.inbox().set_polling(true);
        }
        self.publish(&state);
        self.accept_first(&mut state);
        self.carry_out(&mut state);
        Ok(())
    }

    /// Counts the processes that hold the object of a handle strongly, and those that hold it
    /// weakly only. This one counts, too, and alone once the object's process has ended. `EPERM`
    /// unless this process is the context manager, `EINVAL` if it does not hold the object
    /// strongly.
    pub fn count_holders(&self, handle: u32) -> Result<(u32, u32), Errno> {
        let mut state = self.lock();
        let held = state.holds(handle, Strength::Strong);
        let reference = state.references.get(handle).filter(|_| held);
        let key = reference.map(|reference| (reference.owner, reference.node));
        drop(state);
        // The broker says first who may ask.
        let (owner, node) = key.unwrap_or((ProcessId::BROKER, NodeId(0)));
        match self.broker.ask(&Request::NodeInfo { owner, node }) {
            Ok(Reply::Counts { strong, weak }) => Ok((strong, weak)),
            Ok(_) => Err(Errno::PROTO),
            // The object is there no more, and only its process told the broker who holds it.
            Err(Errno::INVAL) if key.is_some() => Ok((1, 0)),
            Err(errno) => Err(errno),
        }
    }

    /// A thread uses the device no more: BINDER_THREAD_EXIT, or its end.
    pub fn forget_thread(&self, tid: Tid) {
        self.with_state(|state| {
            self.take_over_own(state);
            state.thread_exit(tid);
        });
        self.end_reservations(tid);
        self.own_words.lock().remove(&tid);
        self.pollables.forget(tid);
    }

    /// Each thread's read returns at once, if only with BR_NOOP: the one in which the thread waits,
    /// or its next one.
    pub fn end_reads(&self) {
        let mut state = self.lock();
        // Callers that wait past the state look at it once they are woken.
        self.revoke(&mut state);
        state.end_reads();
        let calls = state.threads.iter().filter_map(|(tid, thread)| {
            Some(Effect::Wake(tid, Waiting::Lane(thread.calls_on()?.via)))
        });
        for wake in calls.collect::<Vec<_>>() {
            self.carry_out_one(&mut state, wake);
        }
        self.pool.wake_loopers();
        for channel in self.pool.channels.all() {
            channel.nudge_pinned();
        }
        self.unlock(state);
    }

    /// Closes the device: the broker is told by the end of the connection.
    pub fn close(&self) {
        if self.begin_close() {
            self.control.stop();
            self.close_for_peers();
        }
    }

    /// Like [`Engine::close`], by the control thread, which need not be stopped.
    pub(crate) fn close_by_control_thread(&self) {
        if self.begin_close() {
            self.close_for_peers();
        }
    }

    /// Whether the device is open until now, and this process's.
    fn begin_close(&self) -> bool {
        !self.is_inherited() && !self.closed.swap(true, Ordering::AcqRel)
    }

    fn close_for_peers(&self) {
        self.wake_standby();
        self.broker.link().shut_down();
        let mut state = self.lock();
        self.revoke(&mut state);
        for channel in self.pool.channels.all() {
            state.fail_channel(channel.id);
            self.carry_out_effects(&mut state);
            self.remove_channel(&mut state, &channel, None);
        }
        state.close();
        self.carry_out(&mut state);
        let tids: Vec<Tid> = state.threads.iter().map(|(tid, _)| tid).collect();
        for tid in tids {
            let waiting = state.thread(tid).waiting;
            self.carry_out_one(&mut state, Effect::Wake(tid, waiting));
        }
        self.unlock(state);
        self.pollables.end();
    }

    /// Called in a child of fork, which shares nothing of the device: closes its copies of the
    /// sockets, so that peers see the parent's death.
    pub fn forked(&self) {
        self.closed.store(true, Ordering::Release);
        self.operations.revocation.revoke();
        let channels = self.pool.channels.lists_in_child();
        let sockets = channels.iter().flat_map(|lists| lists.all()).flat_map(|it| it.sockets());
        sockets.for_each(thread::close_in_child);
        self.broker.sockets_in_child(thread::close_in_child);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
