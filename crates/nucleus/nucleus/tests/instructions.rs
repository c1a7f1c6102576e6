//! Instructions of one IPC of eight words, with those of its caller, counted by valgrind's
//! callgrind, which other load does not change.
//!
//! The test starts itself under valgrind with two numbers of calls, and divides the difference.

use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use baton_nucleus::{CurrentThread, Kernel, Message, Options, Sender, Source, Tag, Timeout};
use std::process::{Command, ExitCode};

/// Variants, and the most instructions of an IPC in each.
const BOUNDS: [(&str, u64); 2] = [("Fastpath", 60), ("Strict+", 70)];
const CALLS: [u64; 2] = [2_000, 22_000];
const STOP: u32 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, name, calls] = &arguments[..]
        && let Ok(n_calls) = calls.parse()
    {
        each_kernel!(K => if K::NAME == name {
            ping_pong::<K>(n_calls);
        });
        return ExitCode::SUCCESS;
    }
    if cfg!(debug_assertions) {
        println!("skipped: instructions (not an optimised build)");
        return ExitCode::SUCCESS;
    }
    let mut is_over = false;
    each_kernel!(K => {
        let [Some(short), Some(long)] = CALLS.map(|n_calls| count(K::NAME, n_calls)) else {
            println!("skipped: instructions (valgrind is not installed)");
            return ExitCode::SUCCESS;
        };
        // A call is two IPCs.
        let each = (long - short).div_ceil(2 * (CALLS[1] - CALLS[0]));
        let bound = BOUNDS.iter().find(|(name, _)| *name == K::NAME);
        let of = bound.map_or(String::new(), |(_, most)| format!(", of {most}"));
        println!("{}: {each} instructions an IPC{of}", K::NAME);
        is_over |= bound.is_some_and(|&(_, most)| each > most);
    });
    if is_over { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn serve(mut here: CurrentThread) {
    let (mut sender, mut message) = here.receive(Source::Any, Timeout::Never).unwrap();
    while let Sender::Thread(client) = sender
        && message.tag.label() != STOP
    {
        sender = here.reply_and_wait(client, &mut message).unwrap();
    }
}

fn ping_pong<K: Variant>(n_calls: u64) {
    let mut kernel =
        Kernel::<K>::new(Options { n_threads: 2, tick: None, ..Options::default() }).unwrap();
    let server = kernel.spawn(9, serve).unwrap();
    let client = move |mut here: CurrentThread| {
        let mut message = Message::of([0; 8]);
        for call in 0..n_calls {
            message.words[0] = call;
            here.call(server, &mut message).unwrap();
            assert_eq!(message.words[0], call);
        }
        message.tag = Tag::new(STOP, 0);
        here.send(server, Timeout::Zero, &message).unwrap();
    };
    kernel.spawn(9, client).unwrap();
    let summary = kernel.run();
    assert_eq!((summary.failures, summary.n_left), (Vec::new(), 0));
}

fn count(name: &str, n_calls: u64) -> Option<u64> {
    let program = std::env::current_exe().expect("our own program");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let output = command.arg(&program).args([name, &n_calls.to_string()]).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    Some(collected.expect("callgrind's sum").trim().parse().expect("a number"))
}
