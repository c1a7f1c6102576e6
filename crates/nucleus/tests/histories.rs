//! Every kernel's state beside the model, on random histories. With an argument, as many for each
//! kernel: `cargo test --release -p baton-nucleus --test histories -- 1000000`.

mod model;

use baton_nucleus::each_kernel;
use baton_nucleus::state::State;
use baton_nucleus::tcb::Status;
use baton_nucleus::variant::Variant;
use baton_nucleus::{Sender, ThreadId};
use model::history::{self, N_THREADS, Random};
use model::{Model, Step};

const SLICE_TICKS: u32 = 3;
const N_STEPS: u64 = 60;

/// A kernel and the model of it.
struct Pair<K: Variant> {
    state: State<K>,
    model: Model,
    now_ns: u64,
    steps: Vec<Step>,
}

impl<K: Variant> Drop for Pair<K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = &self.steps[self.steps.len().saturating_sub(12)..];
            eprintln!("the last steps: {last:#?}\non {:#?}", self.model);
        }
    }
}

impl<K: Variant> Pair<K> {
    fn new(random: &mut Random) -> Pair<K> {
        let mut pair = Pair {
            state: State::new(N_THREADS, SLICE_TICKS),
            model: Model::new::<K>(SLICE_TICKS),
            now_ns: 0,
            steps: Vec::new(),
        };
        for _ in 0..2 + random.below(N_THREADS - 1) {
            pair.add(random);
        }
        for number in 0..2 {
            let handler = *pair.model.threads.keys().nth(number).unwrap();
            pair.state.attach(number as u8, Some(handler));
            pair.model.handlers.insert(number as u8, handler);
        }
        pair
    }

    fn add(&mut self, random: &mut Random) {
        let priority = history::priority(random);
        let Some(id) = self.state.create(priority) else { return };
        self.model.create(id, priority);
        if random.below(8) != 0 {
            assert!(self.state.start(id));
            let choice = self.model.start(id);
            self.adopt(&choice);
        }
    }

    fn adopt(&mut self, choice: &std::collections::BTreeSet<Option<ThreadId>>) {
        let chosen = self.state.current();
        assert!(choice.contains(&chosen), "{chosen:?} runs, not one of {choice:?}");
        self.model.current = chosen;
    }

    fn play(&mut self, step: &Step) {
        self.steps.push(step.clone());
        let me = self.model.current;
        match step {
            Step::Ipc(ipc, tag, words) => {
                self.state.lay(*ipc, *tag, words);
                self.state.ipc();
            }
            Step::Request(request) => self.state.request(*request),
            Step::Continue => assert!(self.state.continue_current()),
            Step::Interrupt(number) => self.state.interrupt(*number),
            Step::Expire(now_ns) => self.state.expire(*now_ns),
            Step::Tick => self.state.tick(),
        }
        self.model.taken = match me.map(|me| self.state.result(me)) {
            Some(Ok(Some(Sender::Thread(sender)))) => Some(sender),
            _ => None,
        };
        let choice = self.model.step(step);
        self.adopt(&choice);
        if let (Step::Request(_), Some(me)) = (step, me)
            && let Some(utcb) = self.state.utcb(me)
        {
            assert_eq!(Some(utcb.request), self.model.threads[&me].answer);
        }
        self.compare();
    }

    fn compare(&self) {
        assert_eq!(self.state.n_threads(), self.model.threads.len());
        for (&id, thread) in &self.model.threads {
            assert_eq!(self.state.status(id), thread.status, "{id:?}");
            // Threads that call each other in a circle keep what they were lent until it is broken.
            if !self.model.is_deadlocked(id) {
                let priority = i32::from(self.model.priority(id));
                assert_eq!(self.state.priority(id), priority, "{id:?}");
            }
            if thread.status == Status::Ready && !thread.continues {
                assert_eq!(self.state.result(id), thread.outcome, "{id:?}");
                if matches!(thread.outcome, Ok(Some(_))) {
                    let (tag, words) = self.state.message(id);
                    assert_eq!((tag, words), (thread.message.0, &thread.message.1[..]), "{id:?}");
                }
            }
        }
    }
}

fn play<K: Variant>(seed: u64) {
    let mut random = Random::new(seed);
    let mut pair = Pair::<K>::new(&mut random);
    for number in 0..N_STEPS {
        pair.now_ns += random.below(4) as u64;
        if random.below(20) == 0 {
            pair.add(&mut random);
        }
        let step = history::step(&pair.model, pair.now_ns, number, &mut random);
        pair.play(&step);
    }
}

fn play_all<K: Variant>(n_histories: u64) {
    for seed in 0..n_histories {
        let result = std::panic::catch_unwind(|| play::<K>(seed));
        assert!(result.is_ok(), "{} fails with seed {seed}", K::NAME);
    }
}

fn main() {
    let n_histories = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(2000);
    each_kernel!(K => {
        play_all::<K>(n_histories);
        println!("{}: {n_histories} histories", K::NAME);
    });
}
