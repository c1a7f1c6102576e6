//! The pool: the part that all its loopers share, and how one looper waits for any client.

use super::attention::Attention;
use super::policy::{WaitMode, WaitPolicy};
use super::server::{Served, Server};
use super::settings::Settings;
use crate::channel::table::ChannelTable;
use crate::channel::{Channel, Placement, RECENT_REQUESTS};
use crate::sys::clock::now_ns;
use crate::sys::control_poll::ControlPoll;
use crate::sys::spin::{SpinBudget, Spun};
use baton_abi::control::Stamps;
use baton_abi::lane::{STATUS_BYTES, status};
use baton_shm::bell::{self, OwnBell, Sleep};
use baton_shm::futex::{self, MAX_WORDS, Wait};
use baton_shm::lock::Lock;
use baton_shm::mailbox::Mailbox;
use baton_shm::mapping::Mapping;
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The part of an engine that its loopers share.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The channels at which loopers look, and all others.
    pub channels: ChannelTable,
    /// How threads wait.
    pub settings: Settings,
    /// The clock by which messages are stamped.
    pub stamps: Stamps,
    pub(super) control: Arc<ControlPoll>,
    /// The status page, which shows how many loopers sleep.
    pub page: Arc<Mapping<STATUS_BYTES>>,
    /// A word of this process's own, on which loopers sleep beside their clients' bells.
    pub any_work: AtomicU32,
    /// How often loopers look.
    pub attention: Attention,
    /// How long loopers wait for clients.
    pub gaps: SpinBudget,
    /// Whether a looper spins: at most one does.
    pub spinning: AtomicBool,
    /// Loopers that sleep for any client: see [`Pool::may_pin`].
    pub(super) idle: AtomicU32,
    /// Loopers that are pinned to a lane.
    pub(super) pinned: AtomicU32,
    /// The number of requests that were taken in while there were several clients.
    pub(super) requests: AtomicU64,
    /// Removed channels on whose bells loopers may still sleep.
    pub(super) removed: Lock<Vec<Arc<Channel>>>,
    /// Muted channels, in the order of the next looks.
    pub(super) muted: Lock<VecDeque<Muted>>,
}

/// One channel that is muted.
#[derive(Debug)]
pub(crate) struct Muted {
    pub channel: Arc<Channel>,
    /// Rounds in a row without announcements of nothing.
    pub calm: u32,
    /// The number of such rounds after which the channel is unmuted.
    pub(super) wanted: u32,
}

/// A futex word and its expected value.
type Word<'a> = (&'a AtomicU32, u32);

impl Pool {
    /// A pool without channels.
    pub fn new(
        settings: Settings,
        stamps: Stamps,
        control: Arc<ControlPoll>,
        page: Arc<Mapping<STATUS_BYTES>>,
    ) -> Pool {
        Pool {
            attention: Attention::new(Arc::clone(&page), Arc::clone(&control)),
            channels: ChannelTable::default(),
            settings,
            stamps,
            control,
            page,
            any_work: AtomicU32::new(0),
            gaps: SpinBudget::default(),
            spinning: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            pinned: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            removed: Lock::default(),
            muted: Lock::default(),
        }
    }

    /// Waits until a client or this process wants a looper that looks at everything.
    pub(crate) fn await_client(&self, any_work: u32, server: &mut Option<&mut dyn Server>) -> Wait {
        // The list is read after `any_work`: a later change of the list changes that word.
        let active = self.channels.active();
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
        {
            // The caller may have taken the processor when it was woken, and have called again.
            if channel.has_news() {
                return (Wait::Woken, None);
            }
            if self.yields_to_caller(channel, number) {
                return (Wait::Woken, last());
            }
        }
        let longest = self.settings.longest_spin_ns;
        if !self
            .settings
            .may_spin(recent.iter().any(|channel| channel.placement() == Placement::OtherProcessor))
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
        self.spinning.store(false, Ordering::SeqCst);
        match spun {
            Spun::Since(start) if posted.is_none() => {
                let outcome = self.sleep_as_looper(active, recent, any_work);
                self.gaps.record(now_ns() - start, longest);
                (outcome, None)
            }
            _ => (Wait::Woken, posted),
        }
    }

    /// Yields to the caller that was served last, and watches its lane meanwhile. True if a message
    /// lies there, of which no other thread may know.
    fn yields_to_caller(&self, channel: &Channel, number: u32) -> bool {
        let Ok(lane) = channel.lane(number as usize) else { return false };
        let policy = WaitPolicy::of_one(&self.settings, channel, number);
        if policy.mode() != WaitMode::Yield {
            return false;
        }
        lane.inbox().watch();
        policy.yields_to_peer(self.stamps, channel, number, || lane.arrived());
        lane.inbox().unwatch()
    }

    /// Whether a looper may be pinned to a lane: it is the only client's, or another looper sleeps
    /// for all other clients.
    #[inline]
    pub(crate) fn may_pin(&self, active: &[Arc<Channel>]) -> bool {
        active.len() == 1 || self.idle.load(Ordering::Relaxed) > 0
    }

    /// A looper is pinned to a lane from now on. It counts as one that sleeps elsewhere.
    pub(crate) fn begin_pinned(&self) {
        self.pinned.fetch_add(1, Ordering::Relaxed);
        self.page.word(status::SLEEPERS).fetch_add(1, Ordering::SeqCst);
    }

    /// The looper is pinned no more.
    pub(crate) fn end_pinned(&self) {
        self.page.word(status::SLEEPERS).fetch_sub(1, Ordering::SeqCst);
        self.pinned.fetch_sub(1, Ordering::Relaxed);
    }

    /// Has the pinned looper of the most silent client return to the pool, if no looper sleeps for
    /// all clients. Called with a request that the calling looper of the pool has taken.
    #[inline]
    pub(super) fn keep_one_idle(&self, active: &[Arc<Channel>], request: u64) {
        // Relaxed: the next request makes up for a look that comes too early.
        if self.idle.load(Ordering::Relaxed) == 0 && self.pinned.load(Ordering::Relaxed) > 0 {
            self.recall_pinned(active, request);
        }
    }

    #[cold]
    fn recall_pinned(&self, active: &[Arc<Channel>], request: u64) {
        let asleep = active.iter().filter(|channel| channel.has_pinned_sleeper());
        if let Some(channel) = asleep.max_by_key(|channel| channel.silence(request)) {
            channel.nudge_pinned();
        }
    }

    /// Sleeps on the bells of the recent clients. With one client the thread sleeps on one word,
    /// which costs the kernel least.
    #[inline]
    fn sleep_as_looper(&self, active: &[Arc<Channel>], recent: &[&Channel], any_work: u32) -> Wait {
        self.attention.begin_sleep();
        let asleep = self.page.word(status::SLEEPERS);
        asleep.fetch_add(1, Ordering::SeqCst);
        self.idle.fetch_add(1, Ordering::Relaxed);
        let only = match active {
            [channel] if !channel.is_of_stranger => channel.own_bell(),
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
        self.idle.fetch_sub(1, Ordering::Relaxed);
        asleep.fetch_sub(1, Ordering::SeqCst);
        slept.unwrap_or(Wait::Woken)
    }

    fn sleep_on_several(
        &self,
        active: &[Arc<Channel>],
        recent: &[&Channel],
        any_work: u32,
    ) -> Option<Wait> {
        let may_wait_any = futex::can_wait_any();
        let most = if may_wait_any { MAX_WORDS - 1 } else { 1 };
        // On a stranger's bell nobody sleeps alone: see `Channel::sleep_at`.
        let recent = recent.iter().filter(|channel| may_wait_any || !channel.is_of_stranger);
        let recent = recent.filter_map(|channel| Some((*channel, channel.own_bell()?)));
        let recent: SmallVec<[(&Channel, OwnBell<'_>); MAX_WORDS]> = recent.take(most).collect();
        let bells = || recent.iter().map(|(_, bell)| *bell);
        let sleep = match *recent {
            [(channel, _)] if !channel.is_of_stranger => Sleep::Alone,
            _ => Sleep::Among,
        };
        let mut words: SmallVec<[Word<'_>; MAX_WORDS]> =
            bells().map(|bell| bell.announce(sleep)).collect();
        if sleep == Sleep::Among {
            words.push((&self.any_work, any_work));
        }
        let slept = self.sleep_on(&words, active, any_work);
        bells().for_each(|bell| bell.withdraw(sleep));
        let (outcome, woken) = slept?;
        self.pass_on_rings(active);
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

    /// Has a looper woken for each client with news but one, whose request this thread takes: the
    /// rings of all of them may have woken this thread alone.
    fn pass_on_rings(&self, active: &[Arc<Channel>]) {
        for channel in active.iter().filter(|channel| channel.has_news()).skip(1) {
            let is_passed_on = channel.own_bell().is_some_and(OwnBell::pass_on);
            // This thread still counts as idle.
            if !is_passed_on && self.idle.load(Ordering::Relaxed) > 1 {
                self.wake_one();
            }
        }
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
        // The process queues its own work before it changes `any_work`: either this look finds the
        // work, or the futex words have changed.
        let news = self.any_work.load(Ordering::SeqCst) != any_work
            || active.iter().any(|channel| channel.has_news());
        (!news).then(|| futex::wait_any_of(words))
    }
}
