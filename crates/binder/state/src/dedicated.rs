//! Loopers of the program that are dedicated to the lanes of real-time callers.
//!
//! A looper of the pool that comes to read becomes dedicated to a vacant lane, and is the pool's
//! again when it is relieved. Where the pool cannot spare a looper, the driver asks the program for
//! one more. [`LaneOwner`] decides which thread takes a request on a lane.
//!
//! The pool's remaining loopers may all serve, and one of them may wait for a request that nobody
//! takes in. The [watchdog](crate::watchdog) finds such requests.
//!
//! [`LaneOwner`]: baton_shm::lane_owner::LaneOwner

use crate::effect::Effect;
use crate::message::LaneId;
use crate::process::State;
use crate::thread::Thread;
use crate::watchdog::Round;
use crate::work::Tid;
use baton_abi::control::ChannelId;

impl State {
    /// Offers a lane: a looper of the program may become dedicated to it.
    pub fn offer_lane(&mut self, via: LaneId) {
        if self.pool.dedicates_no_more {
            return;
        }
        let is_known = self.has_dedicated(via) || self.pool.vacant.contains(&via);
        if !is_known {
            self.pool.vacant.push(via);
        }
    }

    /// Withdraws a lane, and relieves its dedicated looper.
    pub fn withdraw_lane(&mut self, via: LaneId) {
        self.pool.vacant.retain(|vacant| *vacant != via);
        self.relieve(via);
    }

    /// A channel is gone: none of its lanes waits for a looper any more. A thread that is dedicated
    /// to one of them is told otherwise.
    pub fn withdraw_vacant(&mut self, channel: ChannelId) {
        self.pool.vacant.retain(|vacant| vacant.channel != channel);
    }

    /// Whether a read by this looper of the pool has to ask the program for a looper, only because
    /// a lane lacks one.
    #[inline]
    pub fn is_to_ask(&self, tid: Tid) -> bool {
        self.pool.lacks_loopers()
            && self.pool.may_ask()
            && self.threads.get(tid).is_some_and(|thread| thread.looper.serves())
    }

    /// Makes a thread that comes to read dedicated, if a lane is vacant and the pool can spare the
    /// thread.
    pub fn become_dedicated(&mut self, tid: Tid) -> Option<LaneId> {
        if !self.pool.wants_dedicated() || !self.is_free(tid) {
            return None;
        }
        let has_work = self.has_process_work();
        let thread = self.thread(tid);
        if !thread.looper.is_present() || thread.dedicated_to.is_some() || thread.is_unsuited {
            return None;
        }
        thread.is_missed &= has_work;
        if thread.is_missed {
            return None;
        }
        let via = self.pool.vacant.remove(0);
        let thread = self.thread(tid);
        (thread.dedicated_to, thread.was_dedicated) = (Some(via), true);
        self.pool.n_dedicated += 1;
        match self.sleepers {
            0 => self.no_looper_waits(),
            // The thread may have been woken for the pool's work, or for a request that no thread
            // has taken in.
            _ => self.effect(Effect::WakeLooper),
        }
        Some(via)
    }

    /// The lane to which a thread of the program is dedicated.
    #[inline]
    pub fn dedicated_to(&self, tid: Tid) -> Option<LaneId> {
        self.threads.get(tid)?.dedicated_to
    }

    /// The lane to which a thread is dedicated, while it neither calls nor owes an answer.
    pub fn idle_dedicated_to(&self, tid: Tid) -> Option<LaneId> {
        let thread = self.threads.get(tid).filter(|thread| thread.stack.is_empty())?;
        thread.dedicated_to
    }

    /// Whether a thread of the program is dedicated to the lane.
    pub fn has_dedicated(&self, via: LaneId) -> bool {
        self.dedicated_thread(via).is_some()
    }

    /// Whether the lane's dedicated thread is out of the driver, and owes no answer.
    pub fn is_away(&self, via: LaneId) -> bool {
        let is_out = |(_, thread): (Tid, &Thread)| thread.is_out() && thread.stack.is_empty();
        self.dedicated_thread(via).is_some_and(is_out)
    }

    fn dedicated_thread(&self, via: LaneId) -> Option<(Tid, &Thread)> {
        self.threads.iter().find(|(_, thread)| thread.dedicated_to == Some(via))
    }

    /// Relieves the lane's dedicated thread, and offers the lane to the next looper.
    pub fn vacate(&mut self, via: LaneId) {
        if self.relieve(via) {
            self.offer_lane(via);
        }
    }

    /// As [`State::vacate`] of the lane to which the thread is dedicated, if there is one.
    pub fn vacate_of(&mut self, tid: Tid) {
        if let Some(via) = self.dedicated_to(tid) {
            self.vacate(via);
        }
    }

    /// Ends dedication for good, because threads poll; relieves the calling thread.
    pub fn end_dedicated(&mut self, tid: Tid) {
        self.pool.dedicates_no_more = true;
        self.pool.vacant.clear();
        self.vacate_of(tid);
    }

    fn relieve(&mut self, via: LaneId) -> bool {
        let Some((tid, _)) = self.dedicated_thread(via) else { return false };
        let thread = self.thread(tid);
        (thread.dedicated_to, thread.relieved_of) = (None, Some(via));
        self.pool.n_dedicated -= 1;
        self.effect(Effect::Relieved(via, tid));
        self.take_over_slots(|slot| slot.tid == tid);
        self.give_one_ways_back(tid);
        self.wake(tid);
        true
    }

    /// Starts the watchdog if a looper is dedicated: no looper of the pool waits any more.
    #[inline(always)]
    pub(crate) fn no_looper_waits(&mut self) {
        if self.pool.n_dedicated > 0 {
            self.start_watchdog();
        }
    }

    fn start_watchdog(&mut self) {
        if self.watchdog.start() {
            self.effect(Effect::Watchdog);
        }
    }

    /// Notes a lane whose caller waits and whose dedicated thread may be out of the driver.
    pub fn note_absent(&mut self, via: LaneId) {
        self.watchdog.note_absent(via);
        self.start_watchdog();
    }

    /// The lanes noted by [`State::note_absent`] since the last round.
    pub fn take_absent(&mut self) -> Vec<LaneId> {
        self.watchdog.take_absent()
    }

    /// One round of the watchdog, after every message that has been posted has come in.
    pub fn watchdog(&mut self) -> Round {
        let is_manned = self.sleepers > 0 || self.pool.n_dedicated == 0;
        let is_one = |thread: &Thread| thread.looper.is_present() && thread.dedicated_to.is_none();
        let missed = || (!self.todo.is_empty()).then(|| self.threads.matching(is_one));
        self.watchdog.round(is_manned, missed)
    }

    /// Ends a round that [missed](Round::Missed) loopers of the pool. `are_at_work`: one of them
    /// runs, or lacks only a processor. A dedicated looper is relieved unless they are at work, or
    /// one has come by since.
    pub fn end_round(&mut self, are_at_work: bool) {
        let is_idle = |thread: &Thread| thread.dedicated_to.is_some_and(|via| thread.waits_on(via));
        if self.watchdog.end_round(are_at_work)
            && let Some(&tid) = self.threads.matching(is_idle).first()
        {
            self.vacate_of(tid);
            self.thread(tid).is_missed = true;
        }
    }

    /// A looper has left: relieves dedicated loopers as long as they are more than half.
    pub(crate) fn balance_dedicated(&mut self) {
        while self.pool.has_too_many_dedicated() {
            let lane = self.threads.iter().find_map(|(_, thread)| thread.dedicated_to);
            let Some(lane) = lane else { return };
            self.vacate(lane);
        }
    }
}

#[cfg(simulated)]
impl State {
    /// What the state keeps for real-time callers, each thing with its lane, if it is a lane's: for
    /// the simulator.
    pub fn kept_for_real_time(&self) -> Vec<(Option<LaneId>, String)> {
        let mut kept = Vec::new();
        let vacant = self.pool.vacant.iter();
        kept.extend(vacant.map(|via| (Some(*via), "waits for a looper".to_owned())));
        let slots = self.slots.iter();
        kept.extend(slots.map(|slot| (self.dedicated_to(slot.tid), format!("{slot:?}"))));
        let mut n_dedicated = 0;
        for (tid, thread) in self.threads.iter() {
            n_dedicated += usize::from(thread.dedicated_to.is_some());
            let is_dedicated = thread.dedicated_to.is_some() || thread.bypasses_state;
            if is_dedicated || thread.relieved_of.is_some() || thread.is_off_priority {
                let lane = thread.dedicated_to.filter(|_| !thread.is_off_priority);
                kept.push((lane, format!("{tid}: {thread:?}")));
            }
        }
        if self.pool.n_dedicated != n_dedicated {
            kept.push((None, format!("{} dedicated loopers", self.pool.n_dedicated)));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{Calling, Frame, Waiting};
    use crate::watchdog::MAX_SPARED;
    use crate::work::{Queue, Work};
    use baton_abi::control::ProcessId;

    fn via(lane: u32) -> LaneId {
        LaneId { channel: ChannelId(1), lane }
    }

    /// Loopers that have come to read, by these numbers from 1 on.
    fn pool(loopers: u32) -> State {
        let mut state = State::new(ProcessId(1));
        for tid in 1..=loopers {
            state.enter_looper(tid);
            state.thread(tid).return_once = false;
        }
        state
    }

    fn relieved(state: &mut State) -> Vec<(LaneId, Tid)> {
        let effects = state.take_effects().into_iter();
        let lane_and_looper = |effect| match effect {
            Effect::Relieved(via, tid) => Some((via, tid)),
            _ => None,
        };
        effects.filter_map(lane_and_looper).collect()
    }

    #[test]
    fn at_most_half_of_the_loopers_are_dedicated() {
        for (loopers, lanes, dedicated) in [
            (0, 1, 0),
            (1, 1, 0),
            (2, 1, 1),
            (2, 2, 1),
            (3, 3, 1),
            (5, 1, 1),
            (5, 3, 2),
            (16, 64, 8),
        ] {
            let mut state = pool(loopers);
            (0..lanes).for_each(|lane| state.offer_lane(via(lane)));
            let went = (1..=loopers).filter(|tid| state.become_dedicated(*tid).is_some()).count();
            assert_eq!(went, dedicated, "{loopers} loopers, {lanes} lanes");
            assert_eq!(state.pool.lacks_loopers(), went < lanes as usize, "{loopers}, {lanes}");
        }
    }

    #[test]
    fn a_lane_is_offered_once_and_withdrawn_alone_or_with_its_channel() {
        let elsewhere = LaneId { channel: ChannelId(2), lane: 0 };
        let mut state = pool(4);
        for lane in [via(0), via(1), elsewhere, via(1), via(2)] {
            state.offer_lane(lane);
        }
        assert_eq!(state.pool.vacant, [via(0), via(1), elsewhere, via(2)]);
        assert_eq!(state.become_dedicated(1), Some(via(0)));
        state.offer_lane(via(0));
        assert_eq!(state.pool.vacant, [via(1), elsewhere, via(2)], "it has a looper");
        state.withdraw_lane(via(1));
        assert_eq!(state.pool.vacant, [elsewhere, via(2)]);
        state.withdraw_vacant(ChannelId(1));
        assert_eq!(state.pool.vacant, [elsewhere]);
        assert_eq!(state.dedicated_to(1), Some(via(0)), "that is told otherwise");
    }

    #[test]
    fn which_loopers_ask_for_one_more_only_because_a_lane_lacks_one() {
        type Change = fn(&mut State);
        let cases: [(&str, Change, bool); 6] = [
            ("a looper", |_| {}, true),
            ("no lane", |state| state.withdraw_lane(via(0)), false),
            ("no more loopers are allowed", |state| state.pool.max = 0, false),
            ("the pool can spare one", |state| state.enter_looper(2), false),
            ("no looper", |state| state.thread(1).looper = Default::default(), false),
            ("a thread that is not known", |state| state.thread_exit(1), false),
        ];
        for (name, change, asks) in cases {
            let mut state = pool(1);
            state.pool.max = 1;
            state.offer_lane(via(0));
            change(&mut state);
            assert_eq!(state.is_to_ask(1), asks, "{name}");
        }
    }

    #[test]
    fn which_loopers_become_dedicated() {
        type Change = fn(&mut State);
        let cases: [(&str, Change, bool); 8] = [
            ("a looper", |_| {}, true),
            ("no looper", |state| state.thread(1).looper = Default::default(), false),
            ("one that has left", |state| state.exit_looper(1), false),
            ("one whose first read returns", |state| state.thread(1).return_once = true, false),
            ("an unsuited one", |state| state.thread(1).is_unsuited = true, false),
            ("one that was dedicated", |state| state.thread(1).was_dedicated = true, true),
            (
                "when the pool has work, of which there may be no end",
                |state| state.push_process(Work::Error(0)),
                true,
            ),
            ("when somebody polls", |state| state.end_dedicated(9), false),
        ];
        for (name, change, goes) in cases {
            let mut state = pool(4);
            state.offer_lane(via(0));
            change(&mut state);
            assert_eq!(state.become_dedicated(1), goes.then_some(via(0)), "{name}");
            assert_eq!(state.takes_process_work(1), !goes, "{name}");
        }
    }

    /// A lane whose looper is relieved is the next looper's, unless the lane is withdrawn.
    #[test]
    fn however_a_looper_is_relieved_the_next_one_takes_the_lane() {
        type Relief = fn(&mut State);
        let reliefs: [(&str, Relief, Option<LaneId>); 6] = [
            ("leaves", |state| state.thread_exit(1), Some(via(0))),
            ("is a looper no more", |state| state.exit_looper(1), Some(via(0))),
            ("polls", |state| state.end_dedicated(1), None),
            ("is relieved", |state| state.vacate(via(0)), Some(via(0))),
            ("its lane is over", |state| state.withdraw_lane(via(0)), None),
            (
                "others have left",
                |state| {
                    (3..=4).for_each(|tid| state.thread_exit(tid));
                    assert_eq!(state.dedicated_to(1), Some(via(0)), "half of two");
                    state.thread_exit(2);
                    state.enter_looper(5);
                    state.thread(5).return_once = false;
                },
                Some(via(0)),
            ),
        ];
        for (name, relieve, next) in reliefs {
            let mut state = pool(4);
            state.offer_lane(via(0));
            assert_eq!(state.become_dedicated(1), Some(via(0)));
            state.buffers.map(1 << 20);
            let slot = state.reserve_slot(1, ProcessId(2)).unwrap();
            relieve(&mut state);
            assert!(slot.is_taken_over(), "{name}");
            assert_eq!(relieved(&mut state), [(via(0), 1)], "{name}");
            assert_eq!(state.dedicated_to(1), None, "{name}");
            let taken = [2, 5].into_iter().find_map(|tid| {
                state.threads.get(tid)?;
                state.become_dedicated(tid)
            });
            assert_eq!(taken, next, "{name}");
        }
    }

    #[test]
    fn more_loopers_are_asked_for_where_none_can_be_spared() {
        for (loopers, lanes, max, wants) in
            [(1, 1, 1, true), (1, 1, 0, false), (2, 1, 9, false), (2, 2, 9, true), (1, 0, 9, false)]
        {
            let mut state = pool(loopers);
            state.pool.max = max;
            // One waits: for the pool alone there is no need of more.
            state.set_waiting(loopers, Waiting::Bell);
            (0..lanes).for_each(|lane| state.offer_lane(via(lane)));
            if loopers > 1 {
                assert!(state.become_dedicated(1).is_some());
            }
            assert_eq!(
                state.wants_looper(1),
                wants,
                "{loopers} loopers, {lanes} lanes, {max} at most"
            );
        }
    }

    /// A client's ring wakes one looper, which may find a vacant lane before it finds the request.
    #[test]
    fn a_looper_that_becomes_dedicated_passes_its_wake_up_on() {
        for (waits, effect) in [(true, Effect::WakeLooper), (false, Effect::Watchdog)] {
            let mut state = pool(2);
            state.offer_lane(via(0));
            if waits {
                state.set_waiting(2, Waiting::Bell);
            }
            state.take_effects();
            assert_eq!(state.become_dedicated(1), Some(via(0)));
            assert_eq!(state.take_effects(), [effect]);
        }
    }

    #[test]
    fn the_watchdog_relieves_an_idle_looper_while_the_pool_does_not_come_by() {
        let mut state = pool(2);
        state.offer_lane(via(0));
        assert_eq!(state.become_dedicated(1), Some(via(0)));
        assert_eq!(state.take_effects(), [Effect::Watchdog], "nobody else waits");
        state.set_waiting(1, Waiting::Lane(via(0)));
        state.push_process(Work::Error(0));
        // The other one has come by since.
        state.set_waiting(2, Waiting::Bell);
        state.set_waiting(2, Waiting::No);
        assert_eq!(state.watchdog(), Round::Another);
        assert_eq!(state.watchdog(), Round::Missed(vec![2]));
        state.end_round(false);
        assert_eq!(state.dedicated_to(1), None);
        assert_eq!(state.watchdog(), Round::Last, "no looper is dedicated");
        assert!(state.thread(1).relieved_of.take().is_some());
        assert_eq!(state.become_dedicated(1), None, "it stays for all of the pool's work");
        assert!(state.next_return(1, true).is_some());
        assert_eq!(state.become_dedicated(1), Some(via(0)));
    }

    /// No looper of the pool comes by, and one of them seems to be at work.
    #[test]
    fn a_dedicated_looper_is_spared_while_the_pool_is_at_work_but_not_for_ever() {
        let missed = || {
            let mut state = pool(2);
            state.offer_lane(via(0));
            assert_eq!(state.become_dedicated(1), Some(via(0)));
            state.set_waiting(1, Waiting::Lane(via(0)));
            state.push_process(Work::Error(0));
            assert_eq!(state.watchdog(), Round::Missed(vec![2]));
            state
        };
        let mut state = missed();
        for _ in 0..MAX_SPARED {
            state.end_round(true);
            assert_eq!(state.dedicated_to(1), Some(via(0)));
            assert_eq!(state.watchdog(), Round::Missed(vec![2]));
        }
        state.end_round(true);
        assert_eq!(state.dedicated_to(1), None, "they have been for long enough");
        let mut state = missed();
        (0..MAX_SPARED).for_each(|_| state.end_round(true));
        state.set_waiting(2, Waiting::Bell);
        state.set_waiting(2, Waiting::No);
        state.end_round(false);
        assert_eq!(state.dedicated_to(1), Some(via(0)), "one has come by while it was looked for");
        assert_eq!(state.watchdog(), Round::Another);
        assert_eq!(state.watchdog(), Round::Missed(vec![2]));
        state.end_round(true);
        assert_eq!(state.dedicated_to(1), Some(via(0)), "from then on it is counted anew");
    }

    #[test]
    fn no_watchdog_runs_for_a_pool_without_dedicated_loopers_or_with_one_that_waits() {
        let mut state = pool(2);
        state.take_effects();
        state.no_looper_waits();
        assert_eq!(state.take_effects(), [], "no looper is dedicated");
        assert_eq!(state.watchdog(), Round::Last);
        state.offer_lane(via(0));
        assert_eq!(state.become_dedicated(1), Some(via(0)));
        assert_eq!(state.watchdog(), Round::Another, "no looper waits");
        state.set_waiting(2, Waiting::Bell);
        assert_eq!(state.watchdog(), Round::Last);
    }

    #[test]
    fn a_dedicated_thread_is_idle_while_it_neither_calls_nor_owes_an_answer() {
        let mut state = pool(2);
        state.offer_lane(via(0));
        assert_eq!(state.become_dedicated(1), Some(via(0)));
        assert_eq!([1, 2, 3].map(|tid| state.idle_dedicated_to(tid)), [Some(via(0)), None, None]);
        let (via, peer, handle, token) = (via(1), ProcessId(2), None, 1);
        let calling = Calling { via, peer, handle, token, owns_lane: true, dead: false };
        state.thread(1).stack.push(Frame::Calling(calling));
        assert_eq!(state.idle_dedicated_to(1), None);
    }

    #[test]
    fn a_thread_past_the_state_hears_of_all_its_news() {
        type News = (&'static str, fn(&mut State), bool);
        let news: [News; 5] = [
            ("its read ends", State::end_reads, true),
            ("work of its own", |state| state.push(Queue::Thread(1), Work::Error(0)), true),
            ("it is relieved", |state| state.vacate(via(0)), true),
            ("the lane is over", |state| state.withdraw_lane(via(0)), true),
            ("work of others", |state| state.push(Queue::Thread(2), Work::Error(0)), false),
        ];
        for (name, change, hears) in news {
            let mut state = pool(2);
            state.offer_lane(via(0));
            state.become_dedicated(1);
            let flag = state.begin_bypass(1, via(0)).expect(name);
            change(&mut state);
            assert_eq!(flag.is_raised(), hears, "{name}");
            assert_eq!(state.begin_bypass(1, via(0)).is_none(), hears, "{name}");
        }
    }

    #[test]
    fn a_thread_is_away_while_it_is_out_of_the_driver_and_owes_nothing() {
        let mut state = pool(2);
        state.offer_lane(via(0));
        assert!(!state.is_away(via(0)), "no thread is dedicated to it");
        state.become_dedicated(1);
        assert!(state.is_away(via(0)));
        state.set_waiting(1, Waiting::Lane(via(0)));
        assert!(!state.is_away(via(0)));
        state.set_waiting(1, Waiting::No);
        let flag = state.begin_bypass(1, via(0)).unwrap();
        assert!(state.is_away(via(0)), "it goes about something, without a word");
        flag.begin_wait();
        assert!(!state.is_away(via(0)));
        flag.end_wait();
        assert!(state.is_away(via(0)));
        state.set_waiting(1, Waiting::Lane(via(0)));
        assert!(!state.is_away(via(0)), "it has come back");
        state.note_absent(via(0));
        assert_eq!(state.take_absent(), [via(0)]);
        assert!(!state.is_away(via(1)), "no thread of the program is dedicated to it");
    }
}
