//! Waiting until a thread's read has something to return.

use super::Engine;
use crate::state::State;
use crate::state::thread::Waiting;
use crate::state::work::Tid;
use baton_abi::lane::front;
use baton_shm::bell::{self, Bell};
use baton_shm::futex::{self, FAR_AHEAD, MAX_WORDS, Wait};
use baton_shm::mailbox::{Mailbox, Seen};
use baton_shm::sync::Ordering;
use rustix::io::Errno;
use std::sync::MutexGuard;

/// How long a call may lie in its lane before the server's control thread is asked to look: all
/// of the server's threads are busy, and there may be no room.
const UNTAKEN: std::time::Duration = std::time::Duration::from_millis(1);

impl Engine {
    /// Waits until a read by this thread has something to return. `EAGAIN` if it would not wait,
    /// `EINTR` after a signal.
    pub fn await_work<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        process_work: bool,
        nonblocking: bool,
    ) -> Result<MutexGuard<'a, State>, Errno> {
        loop {
            if self.has_events() {
                drop(state);
                self.take_events();
                state = self.lock();
            }
            let answered = self.accept_answer(&mut state, tid);
            let later = process_work.then(|| self.accept(&mut state, None)).flatten();
            self.carry_out(&mut state);
            if state.has_work(tid, process_work) {
                return Ok(state);
            }
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if !answered || later.is_some() {
                drop(state);
                state = self.catch_up(later, (!answered).then_some(tid));
                continue;
            }
            if nonblocking {
                self.hurry(&mut state, tid);
                return Err(Errno::AGAIN);
            }
            state = self.sleep(state, tid, process_work)?;
        }
    }

    /// A call that nobody has taken in yet: its server's control thread can tell whether it will
    /// be taken at all.
    pub(super) fn hurry(&self, state: &mut State, tid: Tid) {
        if let Some(calling) = state.thread(tid).calls_on()
            && let Some(channel) = self.channel(calling.via.channel)
            && let Ok(lane) = channel.lane(calling.via.lane as usize)
            && !lane.outbox().is_empty()
        {
            channel.ring_socket();
        }
    }

    pub(super) fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        process_work: bool,
    ) -> Result<MutexGuard<'a, State>, Errno> {
        let innermost = state.thread(tid).calls_on().map(|calling| calling.via);
        let outcome = if let Some(via) = innermost {
            let Some(channel) = self.channel(via.channel) else { return Ok(state) };
            let lane = channel.lane(via.lane as usize)?;
            state.set_waiting(tid, Waiting::Lane(via));
            drop(state);
            // A looper that has been woken for it takes it.
            let untaken = !channel.is_expected(via.lane) && !lane.outbox().is_empty();
            match lane.inbox().wait(Some(if untaken { UNTAKEN } else { FAR_AHEAD })) {
                Err(Wait::TimedOut) => {
                    if !lane.outbox().is_empty() {
                        channel.ring_socket();
                    }
                    lane.inbox().wait(Some(FAR_AHEAD))
                }
                outcome => outcome,
            }
        } else if process_work {
            state.set_waiting(tid, Waiting::Bell);
            match self.sleep_as_looper(state) {
                Wait::Woken => Ok(Seen::Nudge),
                other => Err(other),
            }
        } else {
            let word = self.own_word(tid);
            state.set_waiting(tid, Waiting::Own);
            drop(state);
            Mailbox::new(&word).wait(Some(FAR_AHEAD))
        };
        state = self.lock();
        state.set_waiting(tid, Waiting::No);
        match outcome {
            Err(Wait::Interrupted) if !state.has_work(tid, process_work) => {
                // An answer that came with the signal is left for the next read.
                Err(Errno::INTR)
            }
            _ => Ok(state),
        }
    }

    /// Sleeps until a client or this process wants a looper: on the bells of the clients that have
    /// wanted one lately. Of one client it is the bell alone, which costs the kernel least.
    fn sleep_as_looper(&self, state: MutexGuard<'_, State>) -> Wait {
        let incoming = self.incoming();
        let asleep = self.front.word(front::SLEEPERS);
        let sleeps = self.sleeps.fetch_add(1, Ordering::Relaxed);
        // Acquire pairs with the release in `wake_looper`.
        let own = (&self.any_work, self.any_work.load(Ordering::Acquire));
        let most = if futex::can_wait_any() { MAX_WORDS - 1 } else { 1 };
        asleep.fetch_add(1, Ordering::SeqCst);
        let hot = incoming.iter().filter(|channel| channel.is_hot(sleeps));
        let mut bells = [None; MAX_WORDS];
        let mut words = [own; MAX_WORDS];
        let mut n_words = 0;
        for bell in hot.filter_map(|channel| channel.bell()).take(most) {
            bells[n_words] = Some(bell);
            words[n_words] = bell.announce();
            n_words += 1;
        }
        if n_words != 1 {
            words[n_words] = own;
            n_words += 1;
        }
        bell::look_again();
        let news = incoming.iter().any(|channel| channel.has_news(&channel.ends()));
        drop(state);
        let outcome = if news { Wait::Woken } else { futex::wait_any(&words[..n_words]) };
        bells.into_iter().flatten().for_each(Bell::rise);
        asleep.fetch_sub(1, Ordering::SeqCst);
        outcome
    }
}
