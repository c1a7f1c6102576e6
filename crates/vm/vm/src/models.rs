//! Models of the barrier and of stages, for the model checker: threads move an object's only
//! reference while the collector brings them to its stages.
//!
//! The heap has a few words, which loom watches. A model is also run with mistakes in it, which
//! have to be found.

use crate::cards::{CARD_BYTES, Cards, Mutator, Stage};
use crate::handshake::{self, Handshake, Party, Running};
use crate::model_memory::{self, load, store};
use crate::sync::{AtomicU32, Ordering};
use Ordering::Relaxed;
use loom::sync::Arc;
use std::sync::Arc as StdArc;

/// Where the model's heap begins.
const START: u32 = CARD_BYTES;
const N_CARDS: u32 = 3;
/// Words on two cards, two of them on one, and an object on a third one.
const X: u32 = START;
const Y: u32 = START + CARD_BYTES;
const BESIDE_X: u32 = X + 4;
const OBJECT: u32 = START + 2 * CARD_BYTES;

/// What a thread may do wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// It stores a reference, and logs the card then.
    StoresBeforeLog,
    /// It passes the stage after the one that it is asked for as well.
    PassesTwo,
    /// It does not look at what is asked of it when it begins to run.
    RunsUnasked,
    /// It has no fence between its state and the look at what is asked of it.
    RunsUnfenced,
}

/// How a thread spends its time between two steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    /// It passes a safepoint.
    Runs,
    /// It is safe for a moment.
    Waits,
}

struct Actor {
    party: Party,
    /// The thread's stack
    roots: [AtomicU32; 2],
    mistake: Mistake,
    between: Between,
}

impl Actor {
    fn scan(&self, cards: &Cards) {
        self.roots.iter().for_each(|root| cards.reach(root.load(Relaxed)));
    }
}

struct World {
    cards: StdArc<Cards>,
    handshake: Handshake,
    actors: Vec<Actor>,
}

impl World {
    fn new(actors: &[(Mistake, Between)]) -> World {
        model_memory::begin(START, N_CARDS * CARD_BYTES);
        let cards = StdArc::new(Cards::new(START, N_CARDS * CARD_BYTES));
        let actor = |&(mistake, between): &(Mistake, Between)| {
            let mutator = Mutator::new(cards.clone(), Stage::default());
            let party = Party::new(Some(StdArc::new(mutator)));
            party.become_running();
            party.heed();
            Actor { party, roots: Default::default(), mistake, between }
        };
        let actors = actors.iter().map(actor).collect();
        World { cards, handshake: Handshake::default(), actors }
    }

    fn reach_due(&self, actor: &Actor) {
        let has_reached = self.handshake.reach_due(&actor.party, |cards| actor.scan(cards));
        if has_reached && actor.mistake == Mistake::PassesTwo {
            let mutator = actor.party.mutator.as_ref().unwrap();
            mutator.advance(mutator.stage().next());
        }
    }

    fn between(&self, actor: &Actor) {
        if actor.between == Between::Waits {
            self.leave(actor);
            if actor.mistake == Mistake::RunsUnfenced {
                actor.party.running.store(Running::Yes as u8, Ordering::Release);
            } else {
                actor.party.become_running();
            }
        }
        if actor.mistake != Mistake::RunsUnasked && actor.party.has_attention() {
            actor.party.heed();
            self.reach_due(actor);
        }
    }

    fn leave(&self, actor: &Actor) {
        actor.party.become_safe();
        if actor.party.has_attention() {
            self.handshake.tell(&actor.party);
        }
    }

    fn set(&self, actor: &Actor, address: u32, value: u32) {
        let mutator = actor.party.mutator.as_ref().unwrap();
        if actor.mistake == Mistake::StoresBeforeLog {
            store(address, value);
            mutator.before(address, value);
        } else {
            mutator.before(address, value);
            store(address, value);
        }
    }

    fn reach(&self, stage: Stage) {
        self.handshake.ask(stage);
        self.actors.iter().for_each(|actor| actor.party.call());
        handshake::fence(self.actors.iter().map(|actor| &actor.party));
        for actor in &self.actors {
            self.handshake.act_for(&actor.party, |cards| actor.scan(cards));
        }
        for actor in &self.actors {
            self.handshake.await_party(&actor.party, |cards| actor.scan(cards));
        }
    }

    /// Brings all threads to a new epoch, and their stacks' references among what is reached.
    fn turn(&self) {
        self.handshake.set_collector();
        self.cards.begin();
        let mut stage = Stage::default().announced();
        self.reach(stage);
        for _ in 0..2 {
            stage = stage.next();
            self.reach(stage);
        }
    }

    /// Words of the view of the epoch that all threads are in.
    fn look(&self, addresses: [u32; 2]) -> [u32; 2] {
        let epoch = self.handshake.stage().epoch();
        // SAFETY: words of the heap; no thread is behind.
        addresses.map(|address| unsafe { self.cards.view(address, epoch) })
    }
}

/// Checks a model under all interleavings and memory orders, up to a number of preemptions.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(move || {
        model();
        model_memory::end();
    });
}

/// Turns the epoch in a thread of its own: loom does not let one that is unparked wait for others.
/// Returns words of the view.
fn collect(
    world: &Arc<World>,
    addresses: [u32; 2],
    check: impl FnOnce([u32; 2], &Cards) + 'static,
) -> [u32; 2] {
    let world = world.clone();
    let collector = loom::thread::spawn(move || {
        world.turn();
        let seen = world.look(addresses);
        check(seen, &world.cards);
        seen
    });
    collector.join().unwrap()
}

/// Where the only reference to the object goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From one word to the stack, and to another word
    ByTheStack,
    /// The same, by a thread that may have come to all stages before
    Later,
    /// From one place of the stack to another one
    OnTheStack,
}

/// A thread moves the only reference to the object, while the collector turns the epoch.
fn moves(way: Way, mistake: Mistake, between: Between) {
    check(move || {
        let world = Arc::new(World::new(&[(mistake, between)]));
        if way == Way::OnTheStack {
            world.actors[0].roots[1].store(OBJECT, Relaxed);
        } else {
            store(X, OBJECT);
        }
        let mover = {
            let world = world.clone();
            loom::thread::spawn(move || {
                let actor = &world.actors[0];
                let root = &actor.roots[0];
                if way == Way::OnTheStack {
                    world.between(actor);
                    root.store(OBJECT, Relaxed);
                    actor.roots[1].store(0, Relaxed);
                } else {
                    if way == Way::Later {
                        (0..3).for_each(|_| world.between(actor));
                    }
                    root.store(load(X), Relaxed);
                    world.between(actor);
                    world.set(actor, X, 0);
                    world.between(actor);
                    world.set(actor, Y, root.load(Relaxed));
                    root.store(0, Relaxed);
                }
                world.leave(actor);
            })
        };
        // The reference goes from X to Y.
        let seen = collect(&world, [Y, X], |seen, cards| {
            let is_found = seen.contains(&OBJECT) || cards.is_reached(OBJECT);
            assert!(is_found, "the object is lost");
        });
        mover.join().unwrap();
        assert_eq!(world.look([Y, X]), seen, "the view changed");
    });
}

#[test]
fn a_reference_that_moves_is_found_while_its_thread_runs() {
    moves(Way::ByTheStack, Mistake::None, Between::Runs);
}

#[test]
fn a_reference_that_moves_is_found_while_its_thread_waits() {
    moves(Way::ByTheStack, Mistake::None, Between::Waits);
    moves(Way::OnTheStack, Mistake::None, Between::Waits);
}

#[test]
fn a_reference_that_moves_is_found_after_its_threads_stages() {
    moves(Way::Later, Mistake::None, Between::Runs);
}

#[test]
#[should_panic(expected = "the view changed")]
fn a_store_before_its_log_is_caught() {
    moves(Way::Later, Mistake::StoresBeforeLog, Between::Runs);
}

#[test]
#[should_panic]
fn a_thread_that_passes_two_stages_at_once_is_caught() {
    moves(Way::ByTheStack, Mistake::PassesTwo, Between::Runs);
}

#[test]
#[should_panic(expected = "the object is lost")]
fn a_thread_that_runs_unasked_is_caught() {
    moves(Way::OnTheStack, Mistake::RunsUnasked, Between::Waits);
}

#[test]
#[should_panic(expected = "the object is lost")]
fn a_thread_that_runs_unfenced_is_caught() {
    moves(Way::OnTheStack, Mistake::RunsUnfenced, Between::Waits);
}

/// Two threads store to one card, of which one of them copies what was there.
#[test]
fn a_view_is_one_whoever_logs_the_card() {
    check(|| {
        let both = [(Mistake::None, Between::Runs); 2];
        let world = Arc::new(World::new(&both));
        store(X, OBJECT);
        let threads = [(0, X, 0), (1, BESIDE_X, OBJECT)].map(|(nth, address, value)| {
            let world = world.clone();
            loom::thread::spawn(move || {
                let actor: &Actor = &world.actors[nth];
                world.between(actor);
                world.set(actor, address, value);
                world.leave(actor);
            })
        });
        let seen = collect(&world, [X, BESIDE_X], |_, _| ());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.look([X, BESIDE_X]), seen, "the view changed");
    });
}
