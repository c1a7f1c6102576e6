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
use baton_services::broadcast::record::{Draft, Kind as RecordKind};
use baton_services::broadcast::seen::{Answer, First, Seen};
use baton_services::intent::Intent;
use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

const N_RECEIVERS: u64 = 3;
const RESULT: u64 = 100;
const CALLEE: Callee = Callee { pid: 1, uid: 1, key: 5 };

/// What lives on when the service dies.
#[derive(Default)]
struct Receivers {
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
        is_gone: AtomicBool::new(false),
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
            level: Level::new(0, limits, RandomState::new()),
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
            service.put(left.record.id, left.broadcast.intent, targets, kind, record, step);
        }
        if is_first {
            [true, false].into_iter().try_for_each(|it| service.accept(it))?;
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

    fn put(
        &mut self,
        id: u64,
        intent: Intent,
        targets: Vec<Target<()>>,
        kind: Kind<()>,
        record: Option<Record>,
        step: Option<Record>,
    ) {
        let charge = self.accounts.adopt(1, Counted::Broadcast(0));
        let (stats, step) = (Arc::default(), baton_shm::lock::Lock::new(step));
        let charge = UnderWay { id, charge, record, step, stats, level: 0 };
        let (is_foreground, is_sticky) = (false, false);
        let broadcast =
            Broadcast { intent, uid: 1, is_foreground, is_sticky, kind, targets, charge };
        self.level.put(Event::Accepted(Box::new(broadcast)));
    }

    fn accept(&mut self, is_ordered: bool) -> Option<()> {
        let (id, intent, initial) = (self.ids.next(0), Intent::new("a"), Outcome::default());
        let all = self.receivers.iter().filter(|it| it.id != RESULT);
        let targets: Vec<_> = all.cloned().map(Target::Registered).collect();
        let order = KeptOrder { initial: initial.clone(), result_to: Some(CALLEE) };
        let order = is_ordered.then_some(order);
        let body = KeptBroadcast::write(1, &intent, false, order.as_ref(), &targets);
        let n_marks = if is_ordered { 0 } else { N_RECEIVERS as u32 };
        let draft = Draft { kind: RecordKind::Broadcast, id, n_marks, body: body.data() };
        self.act()?;
        let record = self.journal.keep(&self.accounts, 1, 0, &draft).unwrap();
        let result_to = self.receivers.iter().find(|it| it.id == RESULT).cloned();
        let kind = match is_ordered {
            true => Kind::Ordered { first: 0, initial, result_to },
            false => Kind::Parallel,
        };
        self.put(id, intent, targets, kind, Some(record), None);
        self.act()?;
        self.outside.accepted.push((id, is_ordered));
        Some(())
    }

    fn deliver(&mut self) -> Option<()> {
        while let Some(effects) = self.level.next_urgent(0).or_else(|| self.level.next_broadcast(0))
        {
            for effect in effects {
                match effect {
                    Effect::Deliver { to, broadcast, at, token, outcome, .. } => {
                        self.act()?;
                        self.call(to.id, broadcast.charge.id, token, outcome);
                        self.act()?;
                        if let (Kind::Parallel, Some(record)) =
                            (&broadcast.kind, &broadcast.charge.record)
                        {
                            record.mark(at as u32);
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

#[test]
fn the_next_service_goes_on_from_any_effect() {
    let directory = tempfile::tempdir().unwrap();
    for (are_slow, n_then) in [(false, 5), (true, 12)] {
        let mut n_actions = 0;
        let mut is_over = false;
        while !is_over {
            let path = directory.path().join(format!("{are_slow} {n_then} {n_actions}"));
            let mut outside = Receivers { are_slow, ..Receivers::default() };
            // The first service ends after so many actions, the second one early.
            is_over = Service::start(&path, &mut outside, n_actions).is_some();
            if !is_over {
                let _ = Service::start(&path, &mut outside, n_then);
                Service::start(&path, &mut outside, u32::MAX).expect("it goes on to the end");
            }
            let shown = format!("{n_actions} actions, then {n_then}, slow: {are_slow}");
            for &(id, is_ordered) in &outside.accepted {
                let all = (1..=N_RECEIVERS).chain(is_ordered.then_some(RESULT));
                for to in all {
                    let n_acted = outside.acted.get(&(to, id)).copied().unwrap_or(0);
                    assert_eq!(n_acted, 1, "receiver {to}, {id}: {shown}");
                }
                if is_ordered {
                    assert_eq!(outside.results.get(&id), Some(&(N_RECEIVERS as i32)), "{shown}");
                }
            }
            assert!(outside.acted.values().all(|n_acted| *n_acted == 1), "doubled: {shown}");
            assert!(Journal::open(&path).unwrap().kept.is_empty(), "{shown}");
            std::fs::remove_file(&path).unwrap();
            n_actions += 1;
        }
        assert!(n_actions > 25, "{n_actions} places to end at");
    }
}
