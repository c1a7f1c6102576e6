//! Fuzzes the reader of the broadcast service's journal: words of a journal are replaced, and a
//! service takes over what it reads.

use super::input::Input;
use baton_services::broadcast::adopt::Left;
use baton_services::broadcast::ids::Ids;
use baton_services::broadcast::kept::{KeptBroadcast, KeptReceiver, KeptStep, KeptSticky};
use baton_services::broadcast::level::{Outcome, Target};
use baton_services::broadcast::record::{BLOCK_WORDS, Draft, Kind, read_all};
use baton_services::intent::{ComponentName, Intent};

const N_BLOCKS: u32 = 12;

/// A journal with records of any kind, whose bodies may be those of others.
fn compose(input: &mut Input<'_>) -> Vec<u32> {
    let mut words = vec![0; N_BLOCKS as usize * BLOCK_WORDS];
    let ids = Ids::new(7);
    let mut free: Vec<u32> = (1..N_BLOCKS).rev().collect();
    while !input.is_over() {
        let intent = Intent::new("a.ACTION");
        let name = || ComponentName { package: "p".to_owned(), class: "C".to_owned() };
        let targets: Vec<Target<()>> =
            (0..input.below(3)).map(|_| Target::Component(name())).collect();
        let body = match input.below(4) {
            0 => KeptBroadcast::write(1, &intent, false, None, &targets),
            1 => KeptSticky::write(1, &intent),
            2 => KeptStep::write(input.u32(), &Outcome::default()),
            _ => break,
        };
        let kinds = [Kind::Receiver, Kind::Sticky, Kind::Broadcast, Kind::Step];
        let kind = input.pick(&kinds);
        let (id, n_marks) = (ids.next(input.below(100)), targets.len() as u32);
        let draft = Draft { kind, id, n_marks, body: body.data() };
        let Some(left) = free.len().checked_sub(draft.n_blocks() as usize) else { break };
        let blocks = free.split_off(left);
        draft.write(&blocks, |at, word| words[at] = word);
    }
    words
}

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let n_replaced = input.below(4);
    let replaced: Vec<(usize, u32)> =
        (0..n_replaced).map(|_| (input.u32() as usize, input.small() as u32)).collect();
    let mut words = compose(&mut input);
    for (at, word) in replaced {
        let at = at % words.len();
        words[at] = word;
    }
    let _ = KeptReceiver::read(bytes);
    let Ok(kept) = read_all(N_BLOCKS, |at| words[at]) else { return };
    let n_kept = kept.len();
    let left = Left::new(kept, &Ids::new(8));
    let n_steps = left.broadcasts.iter().filter(|left| left.step.is_some()).count();
    let n_used = left.receivers.len() + left.stickies.len() + left.broadcasts.len() + n_steps;
    assert_eq!(n_used + left.useless.len(), n_kept, "each record once");
}
