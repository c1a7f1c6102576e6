//! Kernels of a cluster beside the model, on random histories: what becomes of every thread, if
//! everybody looks after each step. With an argument, as many for each kernel, or for one of this
//! name: `cargo test --release -p baton-nucleus --test between -- 1000000`.

mod model;

use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use model::Step;
use model::history::{self, Random};
use model::members::Members;

const N_STEPS: u64 = 80;
const N_THREADS: usize = 4;

fn play<K: Variant>(seed: u64) {
    let mut random = Random::new(seed);
    let n_kernels = 2 + random.below(2);
    let mut members = Members::<K>::new(n_kernels, N_THREADS);
    for kernel in 0..n_kernels {
        for _ in 0..1 + random.below(3) {
            members.add(kernel, history::priority(&mut random), random.below(8) != 0);
        }
    }
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
            // Each kernel has its own.
            Step::Interrupt(_) => Step::Interrupt(kernel as u8),
            step => step,
        };
        members.play(kernel, &step);
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
    let name = std::env::args().skip(1).find(|argument| argument.parse::<u64>().is_err());
    each_kernel!(K => if name.as_ref().is_none_or(|name| name == K::NAME) {
        play_all::<K>(n_histories);
        println!("{}: {n_histories} histories of several kernels", K::NAME);
    });
}
