//! One end of a system, in a process of its own.
//!
//! It is told what to do on standard input, a line of JSON each ([`Order`]), and ends with it.
//!
//! ```text
//!   server: "ready"  { order -> "ready", serves ... "ready" }
//!   client: "ready"  { order -> calls ... one line: the times in ns, as a JSON list }
//! ```

use crate::payload;
use crate::processors;
use crate::system::{Accept, Client, System};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Which end of what.
#[derive(Debug, clap::Args)]
pub struct PartyArgs {
    /// The system
    pub system: System,
    /// Which end
    pub side: Side,
    /// Where the two ends find each other
    pub directory: PathBuf,
    /// The broker's socket
    #[arg(long = "broker")]
    pub broker: PathBuf,
    /// Process id of who started it: it ends with that one
    #[arg(long)]
    pub starter: u32,
}

/// An end of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// Calls.
    Client,
    /// Answers.
    Server,
}

/// What both ends are to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Where: a processor's number.
    pub cpu: usize,
    /// Bytes that a call carries, and its answer.
    pub payload_bytes: usize,
    /// Calls whose times are forgotten.
    pub n_warm_up: u32,
    /// Calls whose times count.
    pub n_calls: u32,
}

/// Plays the part until it is told no more.
pub fn party(args: &PartyArgs) -> ExitCode {
    let done = end_with(args.starter).and_then(|()| match args.side {
        Side::Client => calls(args.system.connect(&args.directory, &args.broker)?),
        Side::Server => serves(args.system.listen(&args.directory, &args.broker)?),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}, {:?}: {error}", args.system.name(), args.side);
            ExitCode::FAILURE
        }
    }
}

/// Has this process killed when the one that started it ends; a party may spin, and would not see
/// the end of its input.
pub fn end_with(starter: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may have ended before.
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
    if parent == starter { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn orders() -> impl Iterator<Item = io::Result<Order>> {
    io::stdin().lock().lines().map(|line| Ok(serde_json::from_str(&line?)?))
}

/// Plays a server.
pub fn serves(accept: Accept) -> io::Result<()> {
    let mut listening = Some(accept);
    let mut server = None;
    say("ready")?;
    for order in orders() {
        let order = order?;
        processors::pin(order.cpu)?;
        say("ready")?;
        if let Some(accept) = listening.take() {
            server = Some(accept()?);
        }
        let server = server.as_mut().expect("accepted at the first order");
        server.serve(order.n_warm_up + order.n_calls, order.payload_bytes)?;
        say("ready")?;
    }
    Ok(())
}

/// Plays a client.
pub fn calls(mut client: Box<dyn Client>) -> io::Result<()> {
    say("ready")?;
    for order in orders() {
        let order = order?;
        processors::pin(order.cpu)?;
        let times_ns = measure(client.as_mut(), &order)?;
        say(&serde_json::to_string(&times_ns)?)?;
    }
    Ok(())
}

/// Makes the calls, one after the other. A time is that from a filled request to a reply that has
/// been read to its end.
fn measure(client: &mut dyn Client, order: &Order) -> io::Result<Vec<u64>> {
    let mut request = vec![0; order.payload_bytes];
    // Written once before, so that no time has a page fault of its own record in it.
    let mut times_ns = vec![u64::MAX; order.n_calls as usize];
    times_ns.clear();
    for number in 0..order.n_warm_up + order.n_calls {
        payload::fill(&mut request, number);
        let mut answer = None;
        let start = Instant::now();
        client.call(&request, &mut |reply| {
            answer = payload::check(reply).filter(|_| reply.len() == request.len());
        })?;
        let time = start.elapsed();
        if answer != Some(number) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer is of another call",
            ));
        }
        if number >= order.n_warm_up {
            times_ns.push(time.as_nanos() as u64);
        }
    }
    Ok(times_ns)
}
