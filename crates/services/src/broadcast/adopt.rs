//! What a service takes over from the one before it, in order: pure.
//!
//! A record whose body cannot be read, or of which another record says more, is *useless*.

use super::ids::{Ids, level_of};
use super::kept::{Callee, KeptBroadcast, KeptOrder, KeptReceiver};
use super::kept::{KeptStep, KeptSticky, KeptTarget};
use super::level::{Kind, Receiver, Target};
use super::record::{Kept, Kind as RecordKind};
use std::collections::HashMap;
use std::sync::Arc;

/// What an earlier service has left.
#[derive(Debug, Default)]
pub struct Left {
    /// Its registered receivers.
    pub receivers: Vec<(KeptReceiver, Kept)>,
    /// Its sticky broadcasts, and their levels, the oldest first.
    pub stickies: Vec<(usize, KeptSticky, Kept)>,
    /// Its broadcasts under way, the oldest of each level first.
    pub broadcasts: Vec<LeftBroadcast>,
    /// Records that say nothing.
    pub useless: Vec<Kept>,
}

/// A broadcast under way.
#[derive(Debug)]
pub struct LeftBroadcast {
    /// Its level.
    pub level: usize,
    /// The broadcast.
    pub broadcast: KeptBroadcast,
    /// Its record, which says whether it has begun, and who has been called.
    pub record: Kept,
    /// How far an ordered one is, if it is past its first receiver.
    pub step: Option<(KeptStep, Kept)>,
}

impl Left {
    /// Sorts records. The ids are those of the service that takes over.
    pub fn new(kept: Vec<Kept>, ids: &Ids) -> Left {
        let mut left = Left::default();
        let mut steps: HashMap<u64, (KeptStep, Kept)> = HashMap::new();
        for kept in kept {
            left.sort_in(kept, &mut steps);
        }
        left.receivers.sort_by_key(|(_, kept)| kept.id);
        left.stickies.sort_by_key(|(_, _, kept)| ids.order(kept.id));
        left.broadcasts.sort_by_key(|left| ids.order(left.record.id));
        for left in &mut left.broadcasts {
            left.step = steps.remove(&left.record.id);
        }
        // Their broadcasts have ended.
        left.useless.extend(steps.into_values().map(|(_, kept)| kept));
        left
    }

    fn sort_in(&mut self, kept: Kept, steps: &mut HashMap<u64, (KeptStep, Kept)>) {
        let level = level_of(kept.id);
        match kept.kind {
            RecordKind::Receiver => match KeptReceiver::read(&kept.body) {
                Ok(receiver) => self.receivers.push((receiver, kept)),
                Err(_) => self.useless.push(kept),
            },
            RecordKind::Sticky => match (KeptSticky::read(&kept.body), level) {
                (Ok(sticky), Some(level)) => self.stickies.push((level, sticky, kept)),
                _ => self.useless.push(kept),
            },
            RecordKind::Broadcast => match (KeptBroadcast::read(&kept.body), level) {
                (Ok(broadcast), Some(level)) if has_its_marks(&broadcast, &kept) => {
                    let (record, step) = (kept, None);
                    self.broadcasts.push(LeftBroadcast { level, broadcast, record, step });
                }
                _ => self.useless.push(kept),
            },
            RecordKind::Step => match KeptStep::read(&kept.body) {
                Ok(step) => {
                    // Of two the later one counts.
                    let is_later = steps.get(&kept.id).is_none_or(|(other, _)| other.at < step.at);
                    let useless = match is_later {
                        true => steps.insert(kept.id, (step, kept)).map(|(_, kept)| kept),
                        false => Some(kept),
                    };
                    self.useless.extend(useless);
                }
                Err(_) => self.useless.push(kept),
            },
        }
    }

    /// The largest id of a receiver that anything names, or 0.
    pub fn last_receiver(&self) -> u64 {
        let targets = self.broadcasts.iter().flat_map(|left| &left.broadcast.targets);
        let named = targets.filter_map(|target| match target {
            KeptTarget::Registered(id) => Some(*id),
            KeptTarget::Component(_) => None,
        });
        named.chain(self.receivers.iter().map(|(_, kept)| kept.id)).max().unwrap_or(0)
    }
}

impl LeftBroadcast {
    /// The receivers. One that nobody can find again is as good as called.
    pub fn targets<R>(
        &self,
        registered: impl Fn(u64) -> Option<Arc<Receiver<R>>>,
    ) -> Vec<Target<R>> {
        let targets = self.broadcast.targets.iter().enumerate();
        let target = |(at, target): (usize, &KeptTarget)| match target {
            _ if self.is_marked(KeptBroadcast::mark(at)) => Target::Reached,
            KeptTarget::Component(name) => Target::Component(name.clone()),
            KeptTarget::Registered(id) => {
                registered(*id).map_or(Target::Reached, Target::Registered)
            }
        };
        targets.map(target).collect()
    }

    /// Whether its receivers are being called, or its result is under way.
    pub fn is_begun(&self) -> bool {
        self.is_marked(KeptBroadcast::BEGUN) || self.step.is_some()
    }

    fn is_marked(&self, mark: u32) -> bool {
        self.record.marks.get(mark as usize) == Some(&true)
    }

    /// How the receivers are called from here on.
    pub fn kind<R>(&self, result_receiver: impl FnOnce(Callee) -> Arc<Receiver<R>>) -> Kind<R> {
        let Some(KeptOrder { initial, result_to }) = &self.broadcast.order else {
            return Kind::Parallel;
        };
        let (first, initial) = match &self.step {
            Some((step, _)) => (step.at as usize, step.outcome.clone()),
            None => (0, initial.clone()),
        };
        let result_to = result_to.filter(|callee| callee.key != 0).map(result_receiver);
        Kind::Ordered { first, initial, result_to }
    }
}

fn has_its_marks(broadcast: &KeptBroadcast, kept: &Kept) -> bool {
    let n_marks = KeptBroadcast::n_marks(broadcast.order.is_some(), broadcast.targets.len());
    kept.marks.len() == n_marks as usize
}
