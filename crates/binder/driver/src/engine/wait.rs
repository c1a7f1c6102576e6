//! Waiting until a thread's read has something to return.

use super::Engine;
use super::accept::{Among, Look};
use super::fast::{Served, Server};
use super::spin::{Spun, may_spin};
use super::wait_policy::{WaitMode, WaitPolicy};
use crate::channel::{Channel, Lane, Placed, RECENT_REQUESTS};
use crate::clock::{now, now_ns, stamp};
use baton_abi::lane::status;
use baton_shm::bell::{self, OwnBell, Sleep};
use baton_shm::futex::{self, MAX_WORDS, Wait};
use baton_shm::lock::Guard;
use baton_shm::mailbox::{Mailbox, Seen};
use baton_shm::sync::{AtomicU32, Ordering};
use baton_state::State;
use baton_state::thread::Waiting;
use baton_state::work::Tid;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After this time a caller whose request still lies in its lane rings the doorbell: all loopers of
/// the server are busy, and its control thread has to look.
const UNTAKEN: Duration = Duration::from_millis(1);

/// How long a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until there is work.
    News,
    /// Until there is work, or this time has come.
    Deadline(Instant),
    /// Not at all.
    Now,
}

impl Engine {
    /// Waits until a read by this thread has something to return. `EAGAIN` if the read may not
    /// wait,
    /// `ETIMEDOUT` once the deadline has passed, `EINTR` after a signal. Meanwhile `server` serves
    /// plain calls past the state.
    pub fn await_work<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        process_work: bool,
        until: Until,
        mut server: Option<&mut dyn Server>,
    ) -> Result<Guard<'a, State>, Errno> {
        if !process_work && let Some(via) = state.idle_dedicated_to(tid) {
            return self.await_dedicated_lane(state, (tid, via), until == Until::Now);
        }
        // Requests that `server` can take in must not come in by the state.
        if server.is_some() && process_work && !state.has_work(tid, true) && !self.is_closed() {
            state = self.sleep(state, tid, process_work, until, &mut server)?;
        }
        loop {
            if self.has_events() {
                drop(state);
                self.take_events();
                state = self.lock();
            }
            let answered = self.accept_answer(&mut state, tid);
            let look =
                if process_work { self.accept(&mut state, Among::Watched) } else { Look::All };
            self.carry_out(&mut state);
            if state.has_work(tid, process_work) {
                return Ok(state);
            }
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if let Look::Cut { .. } = look {
                drop(state);
                state = self.lock();
                continue;
            }
            let later = look.later();
            if !answered || later.is_some() {
                drop(state);
                state = self.catch_up(later, (!answered).then_some(tid));
                continue;
            }
            match until {
                Until::Now => {
                    self.hurry(&mut state, tid);
                    return Err(Errno::AGAIN);
                }
                Until::Deadline(deadline) if deadline <= now() => {
                    return Err(Errno::TIMEDOUT);
                }
                Until::News | Until::Deadline(_) => {}
            }
            state = self.sleep(state, tid, process_work, until, &mut server)?;
            if process_work && server.is_none() && state.pool.wants_dedicated() {
                // This thread may have been woken for it.
                return Ok(state);
            }
        }
    }

    /// Rings the doorbell for the thread's call, if the server has not taken it in yet: the
    /// server's control thread finds out whether it will.
    pub(super) fn hurry(&self, state: &mut State, tid: Tid) {
        if let Some(calling) = state.thread(tid).calls_on()
            && let Some(channel) = self.channel(calling.via.channel)
        {
            channel.hurry(calling.via.lane as usize);
        }
    }

    pub(super) fn sleep<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        process_work: bool,
        until: Until,
        server: &mut Option<&mut dyn Server>,
    ) -> Result<Guard<'a, State>, Errno> {
        let innermost = state.thread(tid).calls_on().map(|calling| calling.via);
        let deadline = match until {
            Until::Deadline(deadline) => Some(deadline),
            Until::News | Until::Now => None,
        };
        let outcome = if let Some(via) = innermost {
            let Some(channel) = self.channel(via.channel) else { return Ok(state) };
            let lane = channel.lane(via.lane as usize)?;
            state.set_waiting(tid, Waiting::Lane(via));
            drop(state);
            let policy = WaitPolicy::of_one(self, &channel, via.lane);
            let posted = stamp(self.broker.stamps);
            let is_there = || (!lane.inbox().is_empty()).then_some(posted);
            match self.lets_by(&policy, &channel, via.lane, is_there) {
                true => Ok(Seen::Message),
                false => self.await_answer_by(&channel, via.lane, lane, &policy, deadline),
            }
        } else if process_work {
            state.set_waiting(tid, Waiting::Bell);
            // Acquire pairs with the release in `wake_looper`.
            let any_work = self.any_work.load(Ordering::Acquire);
            drop(state);
            match self.await_client(any_work, server) {
                Wait::Woken => Ok(Seen::Nudge),
                other => Err(other),
            }
        } else {
            let word = self.own_word(tid);
            state.set_waiting(tid, Waiting::Own);
            drop(state);
            Mailbox::new(&word).wait(deadline.map(left_until))
        };
        state = self.lock();
        state.set_waiting(tid, Waiting::No);
        match outcome {
            Err(Wait::Interrupted) if !state.has_work(tid, process_work) => {
                // The next read takes an answer that came with the signal.
                Err(Errno::INTR)
            }
            _ => Ok(state),
        }
    }

    /// Waits for a message on the lane of a call, until the deadline if there is one.
    #[inline(always)]
    pub(super) fn await_answer_by(
        &self,
        channel: &Channel,
        number: u32,
        lane: Lane<'_>,
        policy: &WaitPolicy,
        deadline: Option<Instant>,
    ) -> Result<Seen, Wait> {
        match deadline {
            None => self.await_answer(channel, number, lane, policy),
            Some(deadline) => self.await_answer_until(channel, number, lane, policy, deadline),
        }
    }

    /// Waits for a message on the lane of a call until the deadline. The caller does not lend its
    /// priority: the lock that lends it has no time-out.
    #[cold]
    fn await_answer_until(
        &self,
        channel: &Channel,
        number: u32,
        lane: Lane<'_>,
        policy: &WaitPolicy,
        deadline: Instant,
    ) -> Result<Seen, Wait> {
        self.spin_or_sleep(channel, lane, policy, || {
            // The looper that has been woken takes the request.
            if !channel.is_expected(number) && !lane.outbox().is_empty() {
                match lane.inbox().wait(Some(UNTAKEN.min(left_until(deadline)))) {
                    Err(Wait::TimedOut) => channel.hurry(number as usize),
                    outcome => return outcome,
                }
            }
            lane.inbox().wait(Some(left_until(deadline)))
        })
    }

    /// Waits for a message on the lane of a call.
    #[inline(never)]
    pub(super) fn await_answer(
        &self,
        channel: &Channel,
        number: u32,
        lane: Lane<'_>,
        policy: &WaitPolicy,
    ) -> Result<Seen, Wait> {
        if let Some(seen) = channel.lend(number, lane) {
            return Ok(seen);
        }
        self.spin_or_sleep(channel, lane, policy, || sleep_for_answer(channel, number, lane))
    }

    #[inline(always)]
    fn spin_or_sleep(
        &self,
        channel: &Channel,
        lane: Lane<'_>,
        policy: &WaitPolicy,
        sleep: impl FnOnce() -> Result<Seen, Wait>,
    ) -> Result<Seen, Wait> {
        let longest = self.settings.longest_spin_ns;
        let mut since = None;
        if policy.mode() == WaitMode::Spin {
            let look = || Some(lane.inbox().look()).filter(|seen| *seen != Seen::Nothing);
            match channel.answers.spin(longest, look) {
                Spun::Saw(seen) => return Ok(seen),
                Spun::Since(start) => since = Some(start),
            }
        }
        policy.sleep();
        let outcome = sleep();
        if let Some(start) = since {
            channel.answers.learn(now_ns() - start, longest);
        }
        outcome
    }

    /// Waits until a client or this process wants a looper that looks at everything.
    pub(super) fn await_client(&self, any_work: u32, server: &mut Option<&mut dyn Server>) -> Wait {
        // After `any_work` was read: a later change of the list changes that word.
        let active = self.active();
        if let Some(server) = server {
            server.forget_stale(&active);
        }
        let (mut recent, mut looks) = (self.recent(&active), 0);
        loop {
            looks += 1;
            if looks % RECENT_REQUESTS == 0 {
                recent = self.recent(&active);
            }
            if let Some(outcome) =
                server.as_mut().and_then(|server| server.serve_pinned(&active, any_work))
            {
                return outcome;
            }
            let last = || server.as_ref().and_then(|server| server.last_lane(&active));
            let (outcome, posted) = self.await_news(&active, &recent, any_work, last);
            let serve = |server: &mut &mut dyn Server| {
                server.serve_next(&active, any_work, posted.is_some())
            };
            let served = server.as_mut().map_or(Served::Look, serve);
            if served != Served::Wait || outcome != Wait::Woken {
                if let Some((place, number)) = posted.filter(|_| served == Served::Look) {
                    self.leave_ready(&active[place], number as usize, false);
                }
                return outcome;
            }
        }
    }

    /// The channels of clients that have called lately, at most as many as a thread waits for.
    fn recent<'a>(&self, active: &'a [Arc<Channel>]) -> SmallVec<[&'a Channel; MAX_WORDS]> {
        let requests = self.requests.load(Ordering::Relaxed);
        let recent = active.iter().filter(|channel| channel.is_recent(requests));
        recent.map(|channel| &**channel).take(MAX_WORDS).collect()
    }

    /// Waits for news. Returns the last lane that was served if the news is a message there, of
    /// which no other thread knows.
    #[inline]
    fn await_news(
        &self,
        active: &[Arc<Channel>],
        recent: &[&Channel],
        any_work: u32,
        last: impl Fn() -> Option<(usize, u32)>,
    ) -> (Wait, Option<(usize, u32)>) {
        if let [channel] = active
            && let Some((_, number)) = last()
            && self.lets_caller_by(channel, number)
        {
            return (Wait::Woken, last());
        }
        let longest = self.settings.longest_spin_ns;
        if !may_spin(&self.settings, recent.iter().any(|channel| channel.placed() == Placed::Apart))
            || self.spinning.swap(true, Ordering::Acquire)
        {
            return (self.sleep_as_looper(active, recent, any_work), None);
        }
        let last = last();
        let lane = last.map(|(place, number)| active[place].lane(number as usize));
        let watched = lane.and_then(|lane| Some(lane.ok()?.inbox()));
        watched.inspect(|mailbox| mailbox.watch());
        let spun = self.gaps.spin(longest, || {
            let wanted = watched.is_some_and(|mailbox| !mailbox.is_empty())
                || recent.iter().any(|channel| channel.has_news())
                || self.any_work.load(Ordering::Relaxed) != any_work;
            wanted.then_some(())
        });
        let posted = last.filter(|_| watched.is_some_and(Mailbox::unwatch));
        self.spinning.store(false, Ordering::Release);
        match spun {
            Spun::Since(start) if posted.is_none() => {
                let outcome = self.sleep_as_looper(active, recent, any_work);
                self.gaps.learn(now_ns() - start, longest);
                (outcome, None)
            }
            _ => (Wait::Woken, posted),
        }
    }

    /// Yields to the caller that was served last, and watches its lane meanwhile. True if a message
    /// lies there, of which no other thread may know.
    fn lets_caller_by(&self, channel: &Channel, number: u32) -> bool {
        let Ok(lane) = channel.lane(number as usize) else { return false };
        let policy = WaitPolicy::of_one(self, channel, number);
        if policy.mode() != WaitMode::LetBy {
            return false;
        }
        lane.inbox().watch();
        self.lets_by(&policy, channel, number, || lane.arrived());
        lane.inbox().unwatch()
    }

    /// Sleeps on the bells of the recent clients. For one client that is the bell's word alone,
    /// which costs the kernel least.
    #[inline]
    fn sleep_as_looper(&self, active: &[Arc<Channel>], recent: &[&Channel], any_work: u32) -> Wait {
        let asleep = self.front.word(status::SLEEPERS);
        asleep.fetch_add(1, Ordering::SeqCst);
        let only = match active {
            [channel] => channel.own_bell(),
            _ => None,
        };
        let slept = match only {
            Some(bell) => {
                let slept = self.sleep_on(&[bell.announce(Sleep::Alone)], active, any_work);
                bell.withdraw(Sleep::Alone);
                slept.map(|(outcome, _)| outcome)
            }
            None => self.sleep_on_several(active, recent, any_work),
        };
        self.follow(slept.map_or(&[], |_| recent));
        asleep.fetch_sub(1, Ordering::SeqCst);
        slept.unwrap_or(Wait::Woken)
    }

    fn sleep_on_several(
        &self,
        active: &[Arc<Channel>],
        recent: &[&Channel],
        any_work: u32,
    ) -> Option<Wait> {
        let most = if futex::can_wait_any() { MAX_WORDS - 1 } else { 1 };
        let recent = recent.iter().filter_map(|channel| Some((*channel, channel.own_bell()?)));
        let recent: SmallVec<[(&Channel, OwnBell<'_>); MAX_WORDS]> = recent.take(most).collect();
        let bells = || recent.iter().map(|(_, bell)| *bell);
        let sleep = if recent.len() == 1 { Sleep::Alone } else { Sleep::Among };
        let mut words: SmallVec<[Word<'_>; MAX_WORDS]> =
            bells().map(|bell| bell.announce(sleep)).collect();
        if sleep == Sleep::Among {
            words.push((&self.any_work, any_work));
        }
        let slept = self.sleep_on(&words, active, any_work);
        bells().for_each(|bell| bell.withdraw(sleep));
        let (outcome, woken) = slept?;
        if let Some((channel, _)) = woken.and_then(|nth| recent.get(nth))
            && !channel.has_news()
            && self.any_work.load(Ordering::SeqCst) == any_work
        {
            // The client has rung for a request that another thread has taken, or for nothing.
            // Rings by this process change the word.
            self.count_fruitless(channel, 1);
        }
        Some(outcome)
    }

    /// Sleeps on several words. `None` if there is news at once.
    #[inline]
    fn sleep_on(
        &self,
        words: &[Word<'_>],
        active: &[Arc<Channel>],
        any_work: u32,
    ) -> Option<(Wait, Option<usize>)> {
        bell::fence_before_check();
        // The process announces its own work after queueing it: either this look finds it, or the
        // words have changed.
        let news = self.any_work.load(Ordering::SeqCst) != any_work
            || active.iter().any(|channel| channel.has_news());
        (!news).then(|| futex::wait_any_of(words))
    }
}

fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now())
}

/// A futex word and its expected value.
type Word<'a> = (&'a AtomicU32, u32);

#[inline(always)]
fn sleep_for_answer(channel: &Channel, number: u32, lane: Lane<'_>) -> Result<Seen, Wait> {
    // A looper that has been woken for it takes it.
    if channel.is_expected(number) || lane.outbox().is_empty() {
        return lane.inbox().wait(None);
    }
    sleep_untaken(channel, number, lane)
}

#[inline(never)]
fn sleep_untaken(channel: &Channel, number: u32, lane: Lane<'_>) -> Result<Seen, Wait> {
    // A looper that this call has kept from its processor comes by: to let it costs less than a
    // timer.
    std::thread::yield_now();
    if lane.outbox().is_empty() {
        return lane.inbox().wait(None);
    }
    match lane.inbox().wait(Some(UNTAKEN)) {
        Err(Wait::TimedOut) => {
            channel.hurry(number as usize);
            lane.inbox().wait(None)
        }
        outcome => outcome,
    }
}
