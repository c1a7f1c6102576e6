//! Every variant with its threads, assembly and stacks beside the model, on random histories. With
//! arguments: the number of histories for each variant, and the name of one variant: `cargo test
//! --release -p baton-nucleus --test lockstep -- 1000000`.
//!
//! A thread that runs tells the oracle so, with the result of its last step. The oracle keeps the
//! models that allow for it, and tells the thread its next step. When no other thread can run, a
//! thread of the lowest priority does, which the models do not know. It ends a wait, or the
//! history.

mod model;

use baton_nucleus::each_kernel;
use baton_nucleus::request::Request;
use baton_nucleus::variant::Variant;
use baton_nucleus::{CurrentThread, Ipc, Kernel, Message, Options, Tag, ThreadId, Timeout};
use model::history::{self, N_THREADS, Random};
use model::{Model, Outcome, Step};
use std::cell::RefCell;
use std::rc::Rc;

const N_STEPS: u64 = 60;

/// What a thread has seen since its last step.
enum Seen {
    Nothing,
    Ipc(Outcome, Tag, Vec<u64>),
    Answer(Request),
}

/// The states in which the kernel may be, and the history so far.
struct Oracle {
    models: Vec<Model>,
    random: Random,
    n_steps: u64,
    name: &'static str,
    seed: u64,
}

impl Oracle {
    fn allows(model: &Model, id: ThreadId, seen: &Seen) -> bool {
        let Some(thread) = model.threads.get(&id).filter(|_| model.current == Some(id)) else {
            return false;
        };
        match seen {
            Seen::Nothing => true,
            Seen::Ipc(outcome, tag, words) => {
                let is_same = (tag, words) == (&thread.message.0, &thread.message.1);
                *outcome == thread.outcome && (is_same || !matches!(outcome, Ok(Some(_))))
            }
            Seen::Answer(answer) => thread.answer == Some(*answer),
        }
    }

    /// Records that a thread runs and what it has seen. Returns its next step, or `None` to end it.
    fn turn(&mut self, id: ThreadId, seen: &Seen) -> Option<Step> {
        if self.models.is_empty() {
            return None;
        }
        self.models.retain(|model| Oracle::allows(model, id, seen));
        let (name, seed) = (self.name, self.seed);
        assert!(!self.models.is_empty(), "{name}, seed {seed}: {id:?} runs, or saw another thing");
        if self.n_steps == N_STEPS {
            self.models.clear();
            return None;
        }
        self.n_steps += 1;
        let step = history::own_step(&self.models[0], 0, self.n_steps, &mut self.random);
        let step = without_deadlines(step);
        self.step(&step);
        Some(step)
    }

    /// Lets every model take the step, in each way that is open to it.
    fn step(&mut self, step: &Step) {
        let mut open = Vec::new();
        for model in std::mem::take(&mut self.models) {
            ways(&model, step, &mut open);
        }
        while let Some(model) = open.pop() {
            if model.continues() {
                ways(&model, &Step::Continue, &mut open);
            } else if !self.models.contains(&model) {
                self.models.push(model);
            }
        }
    }

    /// Returns the request that lets a thread run again when none can. `None`: the history is over.
    fn idle(&mut self) -> Option<Request> {
        self.models.retain(|model| model.current.is_none());
        let (name, seed) = (self.name, self.seed);
        let model = self.models.first();
        let model = model.unwrap_or_else(|| panic!("{name}, seed {seed}: nobody runs"));
        if model.threads.is_empty() || self.n_steps == N_STEPS {
            self.models.clear();
            return None;
        }
        self.n_steps += 1;
        let id = *model.threads.keys().nth(self.random.below(model.threads.len())).unwrap();
        let request = match self.random.below(3) {
            0 => Request::Abort(id),
            1 => Request::Resume(id),
            _ => Request::Notify(id, 1 << self.random.below(4)),
        };
        self.step(&Step::Request(request));
        Some(request)
    }
}

fn ways(model: &Model, step: &Step, open: &mut Vec<Model>) {
    let mut taken: Vec<Option<ThreadId>> = vec![None];
    taken.extend(model.senders.iter().map(|&(sender, _)| Some(sender)));
    for taken in taken {
        let mut next = model.clone();
        next.taken = taken;
        let choice = next.step(step);
        next.taken = None;
        for current in choice {
            let mut next = next.clone();
            next.current = current;
            if !open.contains(&next) {
                open.push(next);
            }
        }
    }
}

fn without_deadlines(step: Step) -> Step {
    let never = |timeout| if let Timeout::At(_) = timeout { Timeout::Never } else { timeout };
    match step {
        Step::Ipc(Ipc { send, receive }, tag, words) => {
            let send = send.map(|(to, timeout)| (to, never(timeout)));
            let receive = receive.map(|(from, timeout)| (from, never(timeout)));
            Step::Ipc(Ipc { send, receive }, tag, words)
        }
        step => step,
    }
}

fn exchange(here: &mut CurrentThread, ipc: Ipc, tag: Tag, words: &[u64]) -> Seen {
    let (first, more) = words.split_at(words.len().min(8));
    let mut message = Message { tag, ..Message::default() };
    message.words[..first.len()].copy_from_slice(first);
    here.more_words()[..more.len()].copy_from_slice(more);
    let outcome = here.ipc(ipc, &mut message);
    let mut words = message.words.to_vec();
    words.extend(*here.more_words());
    words.truncate(message.tag.length().into());
    Seen::Ipc(outcome, message.tag, words)
}

fn follow_oracle(mut here: CurrentThread, oracle: &RefCell<Oracle>) {
    let id = here.id();
    let mut seen = Seen::Nothing;
    loop {
        let step = oracle.borrow_mut().turn(id, &seen);
        seen = match step {
            Some(Step::Ipc(ipc, tag, words)) => exchange(&mut here, ipc, tag, &words),
            Some(Step::Request(request)) if request != Request::End => {
                Seen::Answer(here.request(request))
            }
            _ => return,
        };
    }
}

/// Runs one history after the other, at the lowest priority.
fn direct<K: Variant>(mut here: CurrentThread, n_histories: u64) {
    for seed in 0..n_histories {
        let mut random = Random::new(seed);
        let n_threads = 2 + random.below(N_THREADS - 1);
        let priorities: Vec<u8> = (0..n_threads).map(|_| history::priority(&mut random)).collect();
        let models = vec![Model::new::<K>(u32::MAX)];
        let oracle = Oracle { models, random, n_steps: 0, name: K::NAME, seed };
        let oracle = Rc::new(RefCell::new(oracle));
        let ids: Vec<ThreadId> = priorities
            .into_iter()
            .map(|priority| {
                let theirs = Rc::clone(&oracle);
                let id = here.create(priority, move |here| follow_oracle(here, &theirs)).unwrap();
                oracle.borrow_mut().models[0].create(id, priority);
                id
            })
            .collect();
        // The first thread starts the others, or does not.
        let first = ids[0];
        let choice = oracle.borrow_mut().models[0].start(first);
        oracle.borrow_mut().models[0].current = choice.into_iter().next().unwrap();
        here.request(Request::Start(first));
        loop {
            let request = oracle.borrow_mut().idle_or_over();
            match request {
                Some(request) => here.request(request),
                None => break,
            };
        }
        for id in ids {
            for request in [Request::Resume(id), Request::Start(id), Request::Abort(id)] {
                here.request(request);
            }
        }
        assert_eq!(Rc::strong_count(&oracle), 1, "{}, seed {seed}: a thread is left", K::NAME);
    }
}

impl Oracle {
    fn idle_or_over(&mut self) -> Option<Request> {
        if self.models.is_empty() { None } else { self.idle() }
    }
}

fn run<K: Variant>(n_histories: u64) {
    let options = Options { n_threads: N_THREADS + 1, tick: None, ..Options::default() };
    let mut kernel = Kernel::<K>::new(options).unwrap();
    kernel.spawn(0, move |here| direct::<K>(here, n_histories)).unwrap();
    let summary = kernel.run();
    assert_eq!((&summary.failures[..], summary.n_left), (&[][..], 0), "{}", K::NAME);
    println!("{}: {n_histories} histories", K::NAME);
}

fn main() {
    let n_histories = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(2000);
    let name = std::env::args().skip(1).find(|argument| argument.parse::<u64>().is_err());
    each_kernel!(K => if name.as_ref().is_none_or(|name| name == K::NAME) {
        run::<K>(n_histories);
    });
}
