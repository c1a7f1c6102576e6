//! The state of every variant beside the model, on random histories. With arguments: the number of
//! histories for each variant, and the name of one variant: `cargo test --release -p baton-nucleus
//! --test histories -- 1000000`.

mod model;

use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use model::history::{self, N_THREADS, Random};
use model::pair::Pair;

const N_STEPS: u64 = 60;
/// Seeds of histories that once failed and are not among the first ones. 745900: two deadlines at
/// once, of which the second ended a lending to the thread of the first.
const FOUND: [u64; 1] = [745_900];

fn run_history<K: Variant>(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let n_threads = 2 + random.below(N_THREADS - 1);
    let priorities: Vec<u8> = (0..n_threads).map(|_| history::priority(&mut random)).collect();
    let mut pair = Pair::<K>::new(N_THREADS, priorities, || random.below(8) != 0);
    let mut now_ns = 0;
    for number in 0..N_STEPS {
        now_ns += random.below(4) as u64;
        if random.below(20) == 0 {
            pair.add(history::priority(&mut random), random.below(8) != 0);
        }
        let step = history::step(&pair.model, now_ns, number, &mut random);
        pair.step_and_compare(&step);
    }
    pair.n_inversions
}

fn run_histories<K: Variant>(n_histories: u64) -> u64 {
    let mut n_inversions = 0;
    for seed in (0..n_histories).chain(FOUND) {
        let result = std::panic::catch_unwind(|| run_history::<K>(seed));
        assert!(result.is_ok(), "{} fails with seed {seed}", K::NAME);
        n_inversions += result.unwrap_or(0);
    }
    n_inversions
}

fn main() {
    let n_histories = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(2000);
    let name = std::env::args().skip(1).find(|argument| argument.parse::<u64>().is_err());
    each_kernel!(K => if name.as_ref().is_none_or(|name| name == K::NAME) {
        let n_inversions = run_histories::<K>(n_histories);
        let per_cent = n_inversions as f64 * 100.0 / (n_histories * N_STEPS) as f64;
        println!("{}: {n_histories} histories, a lower thread runs after {per_cent:.2} % of \
            steps", K::NAME);
    });
}
