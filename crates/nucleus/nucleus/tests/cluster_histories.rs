//! Random histories of several kernels in a cluster. In one kind all kernels read their inboxes
//! after each step, and the model says what becomes of every thread. In the other they read late,
//! at random, and the test checks what holds of all messages (`model::traffic`). With arguments:
//! the number of histories of each kind, and the name of one variant: `cargo test --release -p
//! baton-nucleus --test cluster_histories -- 1000000`.

mod model;

use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use model::Step;
use model::history::{self, Random};
use model::members::Members;
use model::traffic::Traffic;

const N_STEPS: u64 = 80;
const N_THREADS: usize = 4;

fn members<K: Variant>(random: &mut Random) -> Members<K> {
    let n_kernels = 2 + random.below(2);
    let mut members = Members::<K>::new(n_kernels, N_THREADS);
    for kernel in 0..n_kernels {
        for _ in 0..1 + random.below(3) {
            members.add(kernel, history::priority(random), random.below(8) != 0);
        }
    }
    members
}

/// A history in which the kernels read their inboxes late.
fn run_late_history<K: Variant>(seed: u64) {
    let mut random = Random::new(seed);
    let members = members::<K>(&mut random);
    let n_kernels = members.states.len();
    let mut traffic = Traffic::new(members);
    let mut now_ns = 0;
    for number in 0..N_STEPS as u32 {
        now_ns += random.below(4) as u64;
        let kernel = random.below(n_kernels);
        match random.below(8) {
            0 | 1 => traffic.read_inbox(kernel),
            2 => traffic.expire(kernel, now_ns),
            _ => traffic.act(kernel, number, now_ns, &mut random),
        }
        traffic.check_running();
    }
    traffic.check_end();
}

fn run_history<K: Variant>(seed: u64) {
    let mut random = Random::new(seed);
    let mut members = members::<K>(&mut random);
    let n_kernels = members.states.len();
    let mut now_ns = 0;
    for number in 0..N_STEPS {
        now_ns += random.below(4) as u64;
        if random.below(20) == 0 {
            let kernel = random.below(n_kernels);
            members.add(kernel, history::priority(&mut random), random.below(8) != 0);
        }
        let kernel = random.below(n_kernels);
        members.turn_to(kernel);
        let step = match history::step(&members.model, now_ns, number, &mut random) {
            // Each kernel has its own interrupt.
            Step::Interrupt(_) => Step::Interrupt(kernel as u8),
            step => step,
        };
        members.step_and_compare(kernel, &step);
    }
}

fn run_histories<K: Variant>(n_histories: u64) {
    for seed in 0..n_histories {
        let result = std::panic::catch_unwind(|| run_history::<K>(seed));
        assert!(result.is_ok(), "{} fails with seed {seed}", K::NAME);
        let result = std::panic::catch_unwind(|| run_late_history::<K>(seed));
        assert!(result.is_ok(), "{} fails with seed {seed}, looking late", K::NAME);
    }
}

fn main() {
    let n_histories = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(2000);
    let name = std::env::args().skip(1).find(|argument| argument.parse::<u64>().is_err());
    each_kernel!(K => if name.as_ref().is_none_or(|name| name == K::NAME) {
        run_histories::<K>(n_histories);
        println!("{}: {n_histories} histories of several kernels", K::NAME);
    });
}
