//! Lanes of real-time callers, and the program's threads that attend them.
//!
//! A looper of the pool that comes to read becomes dedicated to a vacant lane, and is the pool's
//! again when it is relieved. Where the pool cannot spare one, its program is asked for more.
//!
//! The pool may then have nobody left that comes by: its loopers serve, and one of them may wait
//! for what nobody takes in. So as long as no looper of the pool waits, the runner watchdogs, and
//! what has waited from one round to the next, in which no looper of the pool has come by, is for
//! one that is dedicated and has nothing to do. So it is the other way round: a lane whose
//! caller has waited for a round for a thread that is out of the driver is the pool's.
//!
//! **Invariant**: of the loopers that are there, at most half are dedicated. Ordinary callers so
//! have one, whenever there is one.

use super::thread::Thread;
use super::transaction::LaneId;
use super::work::Tid;
use super::{Effect, State};
use rustc_hash::FxHashMap;

/// So many rounds on end those dedicated are spared because others seem to be at work: one may
/// be so for ever, and wait.
const MOST_SPARED: u32 = 50;

/// What a round of the watchdog came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// There need be no other.
    Last,
    /// There is to be another one.
    Another,
    /// The same, and work waits of which none of these loopers has come for since the last one: see
    /// [`State::end_round`].
    Missed(Vec<Tid>),
}

/// Who attends which lane.
#[derive(Debug, Default)]
pub struct DedicatedLoopers {
    /// Threads that alone take what comes on a lane, the program's or ours.
    pub(super) attended: FxHashMap<LaneId, Tid>,
    /// Lanes for a thread of the program's that nobody attends, oldest first.
    vacant: Vec<LaneId>,
    /// How many of the program's threads attend one.
    on_duty: usize,
    /// Some thread polls: lanes are the pool's, but for those that are attended already.
    is_over: bool,
    /// How often loopers of the pool have come by.
    visits: u64,
    /// Lanes whose callers wait for a thread that is out of the driver, since before the next
    /// round.
    absent: Vec<LaneId>,
    /// The visits up to the last round of a watchdog that goes on.
    watchdog: Option<u64>,
    /// Rounds on end in which those dedicated have been spared.
    spared: u32,
}

impl State {
    /// A thread of ours alone takes what comes on this lane.
    pub fn attend(&mut self, via: LaneId, tid: Tid) {
        self.dedicated_loopers.attended.insert(via, tid);
        self.thread(tid).return_once = false;
    }

    /// It does no longer.
    pub fn leave_lane(&mut self, via: LaneId) {
        self.dedicated_loopers.attended.remove(&via);
    }

    /// A lane that a looper of the program's is to attend.
    pub fn offer_lane(&mut self, via: LaneId) {
        if self.dedicated_loopers.is_over {
            return;
        }
        if !self.dedicated_loopers.attended.contains_key(&via)
            && !self.dedicated_loopers.vacant.contains(&via)
        {
            self.dedicated_loopers.vacant.push(via);
        }
    }

    /// The lane is as others are, or somebody else's to attend.
    pub fn withdraw_lane(&mut self, via: LaneId) {
        self.dedicated_loopers.vacant.retain(|vacant| *vacant != via);
        self.relieve(via);
    }

    /// Whether a looper of the pool could go dedicated.
    #[inline]
    pub fn wants_attendant(&self) -> bool {
        !self.dedicated_loopers.vacant.is_empty() && self.can_dedicate_looper()
    }

    /// Whether more loopers are wanted for lanes than the pool has to spare.
    #[inline]
    pub fn lacks_attendants(&self) -> bool {
        !self.dedicated_loopers.vacant.is_empty() && !self.can_dedicate_looper()
    }

    /// Whether a lane that is offered gets a looper: the pool has one to spare, or its program is
    /// asked for one.
    pub fn gets_attendants(&self) -> bool {
        !self.dedicated_loopers.is_over
            && (self.can_dedicate_looper() || self.pool.requested > 0 || self.may_grow())
    }

    /// Whether a read of the thread's, a looper of the pool, is to ask for a looper that lanes
    /// lack, and for that alone.
    #[inline]
    pub fn is_to_ask(&self, tid: Tid) -> bool {
        self.lacks_attendants()
            && self.may_ask()
            && self.threads.get(tid).is_some_and(|thread| thread.looper.serves())
    }

    fn can_dedicate_looper(&self) -> bool {
        (self.dedicated_loopers.on_duty + 1) * 2 <= self.pool.there
    }

    /// Whether the program lets the pool have one more thread, some time.
    pub fn may_grow(&self) -> bool {
        !self.dedicated_loopers.is_over && self.pool.requested + self.pool.started < self.pool.max
    }

    /// The thread, which comes to read, becomes dedicated if it can be spared.
    pub fn become_dedicated(&mut self, tid: Tid) -> Option<LaneId> {
        if !self.wants_attendant() || !self.is_free(tid) {
            return None;
        }
        let thread = self.thread(tid);
        if !thread.looper.is_there() || thread.attends.is_some() || thread.is_unsuited {
            return None;
        }
        let has_work = self.has_process_work();
        let thread = self.thread(tid);
        thread.is_missed &= has_work;
        if thread.is_missed {
            return None;
        }
        let via = self.dedicated_loopers.vacant.remove(0);
        let thread = self.thread(tid);
        (thread.attends, thread.has_attended) = (Some(via), true);
        self.dedicated_loopers.attended.insert(via, tid);
        self.dedicated_loopers.on_duty += 1;
        if has_work {
            // It may have been woken for that.
            self.effect(Effect::WakeLooper);
        }
        if self.sleepers == 0 {
            self.none_waits();
        }
        Some(via)
    }

    /// The lane that a thread of the program's attends.
    #[inline]
    pub fn attends(&self, tid: Tid) -> Option<LaneId> {
        self.threads.get(tid)?.attends
    }

    /// The same, if it waits there: it has not called anybody, and has nothing to do.
    pub fn attends_now(&self, tid: Tid) -> Option<LaneId> {
        let thread = self.threads.get(tid).filter(|thread| thread.stack.is_empty())?;
        thread.attends
    }

    /// Whether this thread, the program's or ours, alone takes what comes on the lane.
    pub fn is_attended_by(&self, via: LaneId, tid: Tid) -> bool {
        self.dedicated_loopers.attended.get(&via) == Some(&tid)
    }

    /// Whether a thread of the program's attends the lane.
    pub fn is_attended(&self, via: LaneId) -> bool {
        self.attendant(via).is_some()
    }

    /// Whether it is out of the driver, and owes nobody an answer.
    pub fn is_away(&self, via: LaneId) -> bool {
        let is_out = |thread: &Thread| thread.is_out() && thread.stack.is_empty();
        self.attendant(via).is_some_and(is_out)
    }

    fn attendant(&self, via: LaneId) -> Option<&Thread> {
        let thread = self.threads.get(*self.dedicated_loopers.attended.get(&via)?)?;
        Some(thread).filter(|thread| thread.attends == Some(via))
    }

    /// The program's thread that attends the lane is the pool's again, and another may attend it.
    pub fn vacate(&mut self, via: LaneId) {
        if self.relieve(via) {
            self.offer_lane(via);
        }
    }

    /// The same of a thread that is to attend nothing any more.
    pub fn vacate_of(&mut self, tid: Tid) {
        if let Some(via) = self.attends(tid) {
            self.vacate(via);
        }
    }

    /// The calling thread polls, and with it others may: no thread becomes dedicated any more.
    pub fn end_dedicated(&mut self, tid: Tid) {
        self.dedicated_loopers.is_over = true;
        self.dedicated_loopers.vacant.clear();
        self.vacate_of(tid);
    }

    fn relieve(&mut self, via: LaneId) -> bool {
        let Some(&tid) = self.dedicated_loopers.attended.get(&via) else { return false };
        let Some(thread) = self.threads.get_mut(tid) else { return false };
        if thread.attends.take().is_none() {
            return false;
        }
        thread.relieved_of = Some(via);
        self.dedicated_loopers.attended.remove(&via);
        self.dedicated_loopers.on_duty -= 1;
        self.effect(Effect::Unattended(via, tid));
        self.take_over_slots_by(tid);
        self.wake(tid);
        true
    }

    /// A looper of the pool has come by.
    #[inline(always)]
    pub(super) fn count_visit(&mut self) {
        self.dedicated_loopers.visits += 1;
    }

    /// No looper of the pool waits any more.
    #[inline(always)]
    pub(super) fn none_waits(&mut self) {
        if self.dedicated_loopers.on_duty > 0 {
            self.start_watchdog();
        }
    }

    fn start_watchdog(&mut self) {
        if self.dedicated_loopers.watchdog.is_none() {
            self.dedicated_loopers.watchdog = Some(self.dedicated_loopers.visits);
            self.effect(Effect::Watchdog);
        }
    }

    /// The lane's caller waits, and the thread that attends it is out of the driver.
    pub fn note_absent(&mut self, via: LaneId) {
        if !self.dedicated_loopers.absent.contains(&via) {
            self.dedicated_loopers.absent.push(via);
        }
        self.start_watchdog();
    }

    /// The lanes of which that was so before this round.
    pub fn take_absent(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.dedicated_loopers.absent)
    }

    /// One round, after everything that has been posted has come in.
    pub fn watchdog(&mut self) -> Round {
        let is_manned = self.sleepers > 0 || self.dedicated_loopers.on_duty == 0;
        if is_manned && self.dedicated_loopers.absent.is_empty() {
            (self.dedicated_loopers.watchdog, self.dedicated_loopers.spared) = (None, 0);
            return Round::Last;
        }
        let before = self.dedicated_loopers.watchdog.replace(self.dedicated_loopers.visits);
        if is_manned || before != Some(self.dedicated_loopers.visits) {
            self.dedicated_loopers.spared = 0;
            return Round::Another;
        }
        if self.has_process_work() { Round::Missed(self.pool_of_others()) } else { Round::Another }
    }

    /// Loopers that are not dedicated.
    fn pool_of_others(&self) -> Vec<Tid> {
        let is_one = |thread: &Thread| thread.looper.is_there() && thread.attends.is_none();
        self.threads.iter().filter(|(_, thread)| is_one(thread)).map(|(tid, _)| tid).collect()
    }

    /// What was found of those whom a round has [missed](Round::Missed): unless one of them has
    /// only lacked a processor, or has come by, one that is dedicated is relieved.
    pub fn end_round(&mut self, are_at_work: bool) {
        if self.dedicated_loopers.watchdog != Some(self.dedicated_loopers.visits) {
            return;
        }
        self.dedicated_loopers.spared += 1;
        if !are_at_work || self.dedicated_loopers.spared > MOST_SPARED {
            self.dedicated_loopers.spared = 0;
            self.relieve_idle();
        }
    }

    fn relieve_idle(&mut self) {
        let mut attended = self.dedicated_loopers.attended.iter();
        let is_idle =
            |via: &LaneId, thread: &Thread| thread.attends == Some(*via) && thread.waits_on(*via);
        let idle = attended
            .find(|(via, tid)| self.threads.get(**tid).is_some_and(|thread| is_idle(via, thread)));
        if let Some((&via, &tid)) = idle {
            self.vacate(via);
            self.thread(tid).is_missed = true;
        }
    }

    /// A looper has left: those dedicated may be too many.
    pub(super) fn balance_dedicated(&mut self) {
        while self.dedicated_loopers.on_duty * 2 > self.pool.there {
            let mut attended = self.dedicated_loopers.attended.iter();
            let lane = attended.find(|(via, tid)| self.attends(**tid) == Some(**via));
            let Some((&lane, _)) = lane else { return };
            self.vacate(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::thread::Waiting;
    use super::super::work::{Queue, Work};
    use super::*;
    use baton_abi::control::{ChannelId, ProcessId};

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

    fn unattended(state: &mut State) -> Vec<(LaneId, Tid)> {
        let effects = state.take_effects().into_iter();
        let told = |effect| match effect {
            Effect::Unattended(via, tid) => Some((via, tid)),
            _ => None,
        };
        effects.filter_map(told).collect()
    }

    #[test]
    fn at_most_half_of_the_loopers_are_on_duty() {
        for (loopers, lanes, on_duty) in [
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
            assert_eq!(went, on_duty, "{loopers} loopers, {lanes} lanes");
            assert_eq!(state.lacks_attendants(), went < lanes as usize, "{loopers}, {lanes}");
        }
    }

    #[test]
    fn who_may_go_on_duty() {
        type Change = fn(&mut State);
        let cases: [(&str, Change, bool); 8] = [
            ("a looper", |_| {}, true),
            ("no looper", |state| state.thread(1).looper = Default::default(), false),
            ("one that has left", |state| state.exit_looper(1), false),
            ("one whose first read returns", |state| state.thread(1).return_once = true, false),
            ("an unsuited one", |state| state.thread(1).is_unsuited = true, false),
            ("one that has been on dedicated", |state| state.thread(1).has_attended = true, true),
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

    /// A lane that nobody attends any more is another looper's, unless it is over.
    #[test]
    fn every_way_off_duty_leaves_the_lane_to_the_next() {
        type Way = fn(&mut State);
        let ways: [(&str, Way, Option<LaneId>); 6] = [
            ("leaves", |state| state.thread_exit(1), Some(via(0))),
            ("is a looper no more", |state| state.exit_looper(1), Some(via(0))),
            ("polls", |state| state.end_dedicated(1), None),
            ("is relieved", |state| state.vacate(via(0)), Some(via(0))),
            ("its lane is over", |state| state.withdraw_lane(via(0)), None),
            (
                "others have left",
                |state| {
                    (3..=4).for_each(|tid| state.thread_exit(tid));
                    assert_eq!(state.attends(1), Some(via(0)), "half of two");
                    state.thread_exit(2);
                    state.enter_looper(5);
                    state.thread(5).return_once = false;
                },
                Some(via(0)),
            ),
        ];
        for (name, way, next) in ways {
            let mut state = pool(4);
            state.offer_lane(via(0));
            assert_eq!(state.become_dedicated(1), Some(via(0)));
            state.buffers.map(1 << 20);
            let slot = state.reserve_slot(1, ProcessId(2)).unwrap();
            way(&mut state);
            assert!(slot.is_gone(), "{name}");
            assert_eq!(unattended(&mut state), [(via(0), 1)], "{name}");
            assert_eq!(state.attends(1), None, "{name}");
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

    #[test]
    fn a_patrol_relieves_who_idles_while_nobody_comes_by() {
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
        assert_eq!(state.attends(1), None);
        assert_eq!(state.watchdog(), Round::Last, "nobody is on dedicated");
        assert!(state.thread(1).relieved_of.take().is_some());
        assert_eq!(state.become_dedicated(1), None, "it stays for all of the pool's work");
        assert!(state.next_return(1, true).is_some());
        assert_eq!(state.become_dedicated(1), Some(via(0)));
    }

    /// Nobody comes by, and what is to be seen of whoever serves is that.
    #[test]
    fn who_is_on_duty_is_spared_while_others_are_at_work_but_not_for_ever() {
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
        for _ in 0..MOST_SPARED {
            state.end_round(true);
            assert_eq!(state.attends(1), Some(via(0)));
            assert_eq!(state.watchdog(), Round::Missed(vec![2]));
        }
        state.end_round(true);
        assert_eq!(state.attends(1), None, "they have been for long enough");
        let mut state = missed();
        (0..MOST_SPARED).for_each(|_| state.end_round(true));
        state.set_waiting(2, Waiting::Bell);
        state.set_waiting(2, Waiting::No);
        state.end_round(false);
        assert_eq!(state.attends(1), Some(via(0)), "one has come by while it was looked for");
        assert_eq!(state.watchdog(), Round::Another);
        assert_eq!(state.watchdog(), Round::Missed(vec![2]));
        state.end_round(true);
        assert_eq!(state.attends(1), Some(via(0)), "from then on it is counted anew");
    }

    #[test]
    fn whatever_a_thread_past_the_state_has_to_know_it_hears() {
        type News = (&'static str, fn(&mut State), bool);
        let news: [News; 4] = [
            ("work of its own", |state| state.push(Queue::Thread(1), Work::Error(0)), true),
            ("it is relieved", |state| state.vacate(via(0)), true),
            ("the lane is over", |state| state.withdraw_lane(via(0)), true),
            ("work of others", |state| state.push(Queue::Thread(2), Work::Error(0)), false),
        ];
        for (name, change, hears) in news {
            let mut state = pool(2);
            state.offer_lane(via(0));
            state.become_dedicated(1);
            let flag = state.go_past(1, via(0)).expect(name);
            change(&mut state);
            assert_eq!(flag.has_news(), hears, "{name}");
            assert_eq!(state.go_past(1, via(0)).is_none(), hears, "{name}");
        }
    }

    #[test]
    fn a_thread_is_away_while_it_is_out_of_the_driver_and_owes_nothing() {
        let mut state = pool(2);
        state.offer_lane(via(0));
        assert!(!state.is_away(via(0)), "nobody attends");
        state.become_dedicated(1);
        assert!(state.is_away(via(0)));
        state.set_waiting(1, Waiting::Lane(via(0)));
        assert!(!state.is_away(via(0)));
        state.set_waiting(1, Waiting::No);
        let flag = state.go_past(1, via(0)).unwrap();
        assert!(state.is_away(via(0)), "it goes about something, without a word");
        flag.arrive();
        assert!(!state.is_away(via(0)));
        flag.depart();
        assert!(state.is_away(via(0)));
        state.set_waiting(1, Waiting::Lane(via(0)));
        assert!(!state.is_away(via(0)), "it has come back");
        state.note_absent(via(0));
        assert_eq!(state.take_absent(), [via(0)]);
        state.attend(via(1), 7);
        assert!(!state.is_away(via(1)), "a thread of ours comes");
    }
}
