//! Every history of three threads up to a depth, on every variant and the model. With an argument,
//! up to that depth: `cargo test --release -p baton-nucleus --test exploration -- 5`.

mod model;

use baton_nucleus::request::Request;
use baton_nucleus::variant::Variant;
use baton_nucleus::{Ipc, Source, Tag, ThreadId, Timeout, each_kernel};
use model::Step;
use model::pair::Pair;

/// All steps that are possible next.
fn steps(pair: &Pair<impl Variant>) -> Vec<Step> {
    let model = &pair.model;
    if model.continues() {
        return vec![Step::Continue];
    }
    let mut steps = vec![Step::Interrupt(0), Step::Interrupt(1)];
    let Some(me) = model.current else { return steps };
    let others: Vec<ThreadId> = model.threads.keys().copied().filter(|&id| id != me).collect();
    steps.push(Step::Tick);
    let request = |request| Step::Request(request);
    steps.extend([Request::Yield, Request::End, Request::AcceptNotices(1)].map(request));
    steps.extend([Request::Suspend(me), Request::SetPriority(me, 1)].map(request));
    for &other in &others {
        let all = [
            Request::Suspend(other),
            Request::Resume(other),
            Request::Abort(other),
            Request::SwitchTo(other),
            Request::SetPriority(other, 5),
            Request::Notify(other, 1),
        ];
        steps.extend(all.map(request));
    }
    steps.extend(ipcs(&others).into_iter().map(|ipc| Step::Ipc(ipc, Tag::of_length(1), vec![7])));
    steps
}

fn ipcs(others: &[ThreadId]) -> Vec<Ipc> {
    let sources = || {
        let threads = others.iter().map(|&id| Source::Thread(id));
        threads.chain([Source::Any, Source::Interrupt(0)])
    };
    let receives = || sources().map(|source| Some((source, Timeout::Never))).chain([None]);
    let mut ipcs = Vec::new();
    for receive in receives() {
        ipcs.extend(receive.map(|_| Ipc { send: None, receive }));
        for &to in others {
            for timeout in [Timeout::Never, Timeout::Zero] {
                ipcs.push(Ipc { send: Some((to, timeout)), receive });
            }
        }
    }
    ipcs
}

fn explore<K: Variant>(pair: &Pair<K>, depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let next = |step| {
        let mut next = pair.clone();
        next.step_and_compare(&step);
        explore(&next, depth - 1)
    };
    steps(pair).into_iter().map(next).sum()
}

fn main() {
    let depth = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(2);
    let name = std::env::args().skip(1).find(|argument| argument.parse::<u32>().is_err());
    each_kernel!(K => if name.as_ref().is_none_or(|name| name == K::NAME) {
        let n_histories = explore(&Pair::<K>::new(3, [2, 3, 4], || true), depth)
            + explore(&Pair::<K>::new(3, [3, 3, 4], || true), depth - 1);
        println!("{}: all {n_histories} histories of depth {depth}", K::NAME);
    });
}
