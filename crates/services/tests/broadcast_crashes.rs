//! A broadcast service that ends between any two of its actions, and the next one: each receiver
//! acts on each accepted broadcast exactly once, and the result is that of all of them. A service
//! calls no more receivers again than those of which it cannot know.

use baton_services::broadcast::account::{Accounts, Counted};
use baton_services::broadcast::adopt::Left;
use baton_services::broadcast::delivery::UnderWay;
use baton_services::broadcast::ids::Ids;
use baton_services::broadcast::journal::{Journal, Record};
use baton_services::broadcast::kept::{Callee, KeptBroadcast, KeptOrder, KeptStep};
use baton_services::broadcast::level::{
    Broadcast, Effect, Event, Kind, Level, Limits, Outcome, Receiver, Target,
};
use baton_services::broadcast::presence::Presence;
use baton_services::broadcast::record::{Draft, Kind as RecordKind};
use baton_services::broadcast::seen::{Answer, First, Seen};
use baton_services::broadcast::token::Tokens;
use baton_services::intent::Intent;
use baton_services::intent::flags::RECEIVER_REPLACE_PENDING;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, OnceLock};

const N_RECEIVERS: u64 = 3;
const RESULT: u64 = 100;
const CALLEE: Callee = Callee { pid: 1, uid: 1, key: 5 };

/// An action of the first service, before it delivers all.
#[derive(Clone, Copy, Debug)]
enum Do {
    Accept { is_ordered: bool, flags: u32 },
    Deliver,
}

/// What lives on when the service dies.
#[derive(Default)]
struct Receivers {
    script: Vec<Do>,
    /// Whether they finish later.
    are_slow: bool,
    seen: BTreeMap<u64, Seen>,
    /// How often a receiver has acted on a broadcast, by the broadcast's id.
    acted: BTreeMap<(u64, u64), u32>,
    results: BTreeMap<u64, i32>,
    running: VecDeque<(u64, u64, u64, Outcome)>,
    accepted: Vec<(u64, bool)>,
    /// Receivers that the last service has called again.
    n_again: u32,
}

struct Service<'a> {
    journal: Arc<Journal>,
    accounts: Accounts,
    ids: Ids,
    level: Level<(), UnderWay>,
    receivers: Vec<Arc<Receiver<()>>>,
    outside: &'a mut Receivers,
    /// Actions until the end.
    left: u32,
}

fn receiver(id: u64, is_here: bool) -> Arc<Receiver<()>> {
    let object = if is_here { OnceLock::from(()) } else { OnceLock::new() };
    Arc::new(Receiver {
        id,
        object,
        pid: 1,
        uid: 1,
        name: id.to_string(),
        component: None,
        permission: None,
        presence: Presence::default(),
    })
}

impl Service<'_> {
    fn start(path: &Path, outside: &mut Receivers, n_actions: u32) -> Option<()> {
        let opened = Journal::open(path).unwrap();
        assert_eq!(opened.refused, None);
        outside.n_again = 0;
        let journal = opened.journal;
        let is_first = outside.accepted.is_empty() && opened.kept.is_empty();
        let ids = Ids::new(journal.epoch());
        let kept = Left::new(opened.kept, &ids);
        kept.useless.iter().for_each(|kept| journal.discard(kept));
        let ten_seconds = 10_000_000_000;
        let limits = Limits { receive_ns: ten_seconds, start_ns: ten_seconds };
        let mut service = Service {
            journal,
            accounts: Accounts::default(),
            ids,
            level: Level::new(0, limits, Tokens::default()),
            receivers: (1..=N_RECEIVERS).chain([RESULT]).map(|id| receiver(id, is_first)).collect(),
            outside,
            left: n_actions,
        };
        for left in kept.broadcasts {
            let find = |id| service.receivers.iter().find(|it| it.id == id).cloned();
            let (targets, kind) = (left.targets(find), left.kind(|_| find(RESULT).unwrap()));
            let adopt = |kept| Some(service.journal.adopt(&service.accounts, 1, kept));
            let record = adopt(&left.record);
            let step = left.step.as_ref().and_then(|(_, kept)| adopt(kept));
            let (id, is_begun) = (left.record.id, left.is_begun());
            let charge = service.under_way(id, record, step);
            service.put(left.broadcast.intent, targets, kind, is_begun, charge);
        }
        if is_first {
            for what in service.outside.script.clone() {
                match what {
                    Do::Accept { is_ordered, flags } => service.accept(is_ordered, flags)?,
                    Do::Deliver => service.deliver()?,
                }
            }
        } else {
            service.deliver()?;
            for receiver in service.receivers.clone() {
                receiver.object.set(()).unwrap();
                service.level.put(Event::Returned(receiver.id));
            }
        }
        service.deliver()?;
        while let Some((to, id, token, outcome)) = service.outside.running.pop_front() {
            service.finish(to, id, token, outcome);
            service.deliver()?;
        }
        Some(())
    }

    /// One action. `None` if the service dies before it.
    fn act(&mut self) -> Option<()> {
        if self.left == 0 {
            self.journal.close();
            return None;
        }
        self.left -= 1;
        Some(())
    }

    fn under_way(&self, id: u64, record: Option<Record>, step: Option<Record>) -> UnderWay {
        let charge = self.accounts.adopt(1, Counted::Broadcast(0));
        let (stats, step) = (Arc::default(), baton_shm::lock::Lock::new(step));
        UnderWay { id, charge, record, step, stats, level: 0 }
    }

    fn put(
        &mut self,
        intent: Intent,
        targets: Vec<Target<()>>,
        kind: Kind<()>,
        is_begun: bool,
        charge: UnderWay,
    ) {
        let (uid, is_foreground, is_sticky) = (1, false, false);
        let broadcast =
            Broadcast { intent, uid, is_foreground, is_sticky, is_begun, kind, targets, charge };
        self.level.put(Event::Accepted(Box::new(broadcast)));
    }

    fn accept(&mut self, is_ordered: bool, flags: u32) -> Option<()> {
        let (id, initial) = (self.ids.next(0), Outcome::default());
        let mut intent = Intent::new("a");
        intent.flags = flags;
        let all = self.receivers.iter().filter(|it| it.id != RESULT);
        let targets: Vec<_> = all.cloned().map(Target::Registered).collect();
        let order = KeptOrder { initial: initial.clone(), result_to: Some(CALLEE) };
        let order = is_ordered.then_some(order);
        let body = KeptBroadcast::write(1, &intent, false, order.as_ref(), &targets);
        let n_marks = KeptBroadcast::n_marks(is_ordered, targets.len());
        let draft = Draft { kind: RecordKind::Broadcast, id, n_marks, body: body.data() };
        self.act()?;
        let record = self.journal.keep(&self.accounts, 1, 0, &draft).unwrap();
        let result_to = self.receivers.iter().find(|it| it.id == RESULT).cloned();
        let kind = match is_ordered {
            true => Kind::Ordered { first: 0, initial, result_to },
            false => Kind::Parallel,
        };
        let charge = self.under_way(id, Some(record), None);
        self.put(intent, targets, kind, false, charge);
        self.act()?;
        self.outside.accepted.push((id, is_ordered));
        Some(())
    }

    fn deliver(&mut self) -> Option<()> {
        while let Some(effects) = self.level.next_urgent(0).or_else(|| self.level.next_broadcast(0))
        {
            for effect in effects {
                match effect {
                    Effect::Begin(broadcast) => {
                        self.act()?;
                        let record = broadcast.charge.record.as_ref().unwrap();
                        record.mark(KeptBroadcast::BEGUN);
                    }
                    Effect::Deliver { to, broadcast, at, token, outcome, .. } => {
                        self.act()?;
                        self.call(to.id, broadcast.charge.id, token, outcome);
                        self.act()?;
                        if let (Kind::Parallel, Some(record)) =
                            (&broadcast.kind, &broadcast.charge.record)
                        {
                            record.mark(KeptBroadcast::mark(at));
                        }
                    }
                    Effect::Step { broadcast, at, outcome } => {
                        let UnderWay { id, step, .. } = &broadcast.charge;
                        let body = KeptStep::write(at as u32, &outcome);
                        let (kind, id) = (RecordKind::Step, *id);
                        let draft = Draft { kind, id, n_marks: 0, body: body.data() };
                        self.act()?;
                        let record = self.journal.keep(&self.accounts, 1, 0, &draft).unwrap();
                        self.act()?;
                        drop(step.lock().replace(record));
                    }
                    effect => panic!("{effect:?}"),
                }
            }
            self.act()?;
        }
        Some(())
    }

    fn call(&mut self, to: u64, id: u64, token: u64, outcome: Outcome) {
        let first = self.outside.seen.entry(to).or_default().begin(id, token);
        if first != First::Yes {
            // One of the parallel broadcast, and one of the ordered one.
            self.outside.n_again += 1;
            assert!(self.outside.n_again <= 2, "marks and steps say who was called");
        }
        match first {
            First::Running => {}
            First::Finished(answer) => self.finished(token, answer),
            First::Yes => {
                *self.outside.acted.entry((to, id)).or_default() += 1;
                if to == RESULT {
                    self.outside.results.insert(id, outcome.code);
                }
                if self.outside.are_slow {
                    self.outside.running.push_back((to, id, token, outcome));
                } else {
                    self.finish(to, id, token, outcome);
                }
            }
        }
    }

    fn finish(&mut self, to: u64, id: u64, token: u64, mut outcome: Outcome) {
        outcome.code += 1;
        let answer = Answer { outcome, aborts: false };
        let token = self.outside.seen.entry(to).or_default().finish(id, token, &answer);
        self.finished(token, answer);
    }

    fn finished(&mut self, token: u64, Answer { outcome, aborts }: Answer) {
        if token != 0 {
            self.level.put(Event::Finished { token, outcome, aborts });
        }
    }
}

impl Receivers {
    /// How often each receiver has acted on a broadcast.
    fn acted_on(&self, id: u64) -> Vec<u32> {
        (1..=N_RECEIVERS).map(|to| self.acted.get(&(to, id)).copied().unwrap_or(0)).collect()
    }

    /// All receivers have acted on each accepted broadcast.
    fn check(&self, shown: &str) {
        for &(id, is_ordered) in &self.accepted {
            assert_eq!(self.acted_on(id), [1; N_RECEIVERS as usize], "{id}: {shown}");
            if is_ordered {
                assert_eq!(self.results.get(&id), Some(&(N_RECEIVERS as i32)), "{shown}");
            }
        }
    }

    /// The second broadcast has taken the place of the first one, if there is a second one.
    fn check_replaced(&self, shown: &str) {
        let Some(&(first, is_ordered)) = self.accepted.first() else { return };
        let second = self.acted.keys().map(|(_, id)| *id).find(|id| *id != first);
        assert!(second.is_some() || self.accepted.len() == 1, "lost: {shown}");
        let n_times = u32::from(second.is_none());
        assert_eq!(self.acted_on(first), [n_times; N_RECEIVERS as usize], "{shown}");
        let results = [(first, n_times), (second.unwrap_or(first), 1)];
        for (id, n_times) in results {
            let result = (N_RECEIVERS as u32 * n_times) as i32;
            assert_eq!(self.results.get(&id), is_ordered.then_some(&result), "{id}: {shown}");
        }
        if let Some(id) = second {
            assert_eq!(self.acted_on(id), [1; N_RECEIVERS as usize], "{id}: {shown}");
        }
    }
}

/// Lets a service end after each of its actions, and the next one early. Then another one goes on
/// to the end. Returns the number of actions.
fn end_after_each_action(script: &[Do], are_slow: bool, check: fn(&Receivers, &str)) -> u32 {
    let directory = tempfile::tempdir().unwrap();
    let n_then = if are_slow { 12 } else { 5 };
    let mut n_actions = 0;
    let mut is_over = false;
    while !is_over {
        let path = directory.path().join(n_actions.to_string());
        let mut outside = Receivers { script: script.to_vec(), are_slow, ..Receivers::default() };
        is_over = Service::start(&path, &mut outside, n_actions).is_some();
        if !is_over {
            let _ = Service::start(&path, &mut outside, n_then);
            Service::start(&path, &mut outside, u32::MAX).expect("it goes on to the end");
        }
        let shown = format!("{script:?}: {n_actions} actions, then {n_then}, slow: {are_slow}");
        check(&outside, &shown);
        assert!(outside.acted.values().all(|n_acted| *n_acted == 1), "doubled: {shown}");
        assert!(Journal::open(&path).unwrap().kept.is_empty(), "{shown}");
        std::fs::remove_file(&path).unwrap();
        n_actions += 1;
    }
    n_actions
}

fn accept(is_ordered: bool, flags: u32) -> Do {
    Do::Accept { is_ordered, flags }
}

#[test]
fn the_next_service_goes_on_from_any_effect() {
    for are_slow in [false, true] {
        let script = [accept(true, 0), accept(false, 0)];
        let n_actions = end_after_each_action(&script, are_slow, Receivers::check);
        assert!(n_actions > 25, "{n_actions} places to end at");
    }
}

#[test]
fn a_replaced_broadcast_does_not_come_back() {
    for is_ordered in [true, false] {
        let script = [accept(is_ordered, 0), accept(is_ordered, RECEIVER_REPLACE_PENDING)];
        end_after_each_action(&script, is_ordered, Receivers::check_replaced);
    }
}

#[test]
fn a_broadcast_that_has_begun_is_not_replaced_by_the_next_service() {
    for is_ordered in [true, false] {
        let second = accept(is_ordered, RECEIVER_REPLACE_PENDING);
        let script = [accept(is_ordered, 0), Do::Deliver, second];
        end_after_each_action(&script, is_ordered, Receivers::check);
    }
}
