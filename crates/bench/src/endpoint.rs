//! One end of a system, in a process of its own.
//!
//! It is told what to do on standard input, a line of JSON each ([`Order`]), and ends with it.
//!
//! ```text
//!   server: "ready"  { order -> "ready", serves ... "ready" }
//!   client: "ready"  { order -> calls ... one line: what it found (Measured), in JSON }
//! ```
//!
//! A client whose order names a gate says "ready" once it is warm, and waits there.

use crate::gate;
use crate::processors;
use crate::server_pool;
use crate::service::{Service, now_ns};
use crate::system::{Accept, Client, System};
use crate::systems::typed;
use baton_rt::schedule::set_priority;
use baton_rt::{SchedPriority, memory};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Which end of what.
#[derive(Debug, clap::Args)]
pub struct EndpointArgs {
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
    /// What the server does
    #[arg(long, default_value = "echo")]
    pub service: Service,
    /// SchedPriority of all its threads, whose memory stays in place then
    #[arg(long)]
    pub priority: Option<SchedPriority>,
    /// How many clients the server has
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
}

/// An end of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// Calls.
    Client,
    /// Answers.
    Server,
    /// Calls once as each of many clients, and keeps all of them.
    Idlers,
}

impl Side {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
            Side::Idlers => "idlers",
        }
    }
}

/// What both ends are to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Order {
    /// Where: a processor's number; `None` for wherever the kernel likes.
    pub cpu: Option<usize>,
    /// Bytes that a call carries.
    pub payload_bytes: usize,
    /// Calls whose times are forgotten.
    pub n_warm_up: u32,
    /// Calls whose times count.
    pub n_calls: u32,
    /// Sleep between two calls, in microseconds.
    pub delay_us: u64,
    /// How many clients call.
    pub n_clients: usize,
    /// Where clients wait for each other, and for which number.
    pub gate: Option<(PathBuf, u32)>,
}

/// What a client has found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// For each point on a call's way, and each call, how long after its beginning it was there,
    /// in nanoseconds. The last point is the call's end.
    pub points: Vec<Vec<u64>>,
    /// CLOCK_MONOTONIC before the first and after the last call, in nanoseconds.
    pub span_ns: [u64; 2],
}

/// Plays the part until it is told no more.
pub fn play(args: &EndpointArgs) -> ExitCode {
    let prepared = end_with(args.starter).and_then(|()| args.priority.map_or(Ok(()), hurry));
    let done = prepared.and_then(|()| match args.side {
        Side::Client => {
            let service = args.system.service(args.service);
            calls_for(args.system.connect(&args.directory, &args.broker)?, service)
        }
        Side::Server if args.clients > 1 => server_pool::serves(args),
        Side::Server => serves(args.system.listen(&args.directory, &args.broker, args.service)?),
        Side::Idlers => idles(args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}, {:?}: {error}", args.system.name(), args.side);
            ExitCode::FAILURE
        }
    }
}

/// Before there are threads: those to come inherit it.
fn hurry(priority: SchedPriority) -> io::Result<()> {
    // Where it may not be had, pages come late, and that shows.
    let _ = memory::Locked::new().map(std::mem::forget);
    set_priority(priority, None).map_err(io::Error::other)
}

/// Has this process killed when the one that started it ends; a party may spin, and would not see
/// the end of its input.
pub fn end_with(starter: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may have ended before.
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
    if parent == starter { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

/// Tells a line to who started this process.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

pub(crate) fn orders() -> impl Iterator<Item = io::Result<Order>> {
    io::stdin().lock().lines().map(|line| Ok(serde_json::from_str(&line?)?))
}

/// Plays a server.
pub fn serves(accept: Accept) -> io::Result<()> {
    let mut listening = Some(accept);
    let mut server = None;
    say("ready")?;
    for order in orders() {
        let order = order?;
        processors::go_to(order.cpu)?;
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

/// Plays a client of a server that echoes.
pub fn calls(client: Box<dyn Client>) -> io::Result<()> {
    calls_for(client, Service::Echo)
}

fn calls_for(mut client: Box<dyn Client>, service: Service) -> io::Result<()> {
    say("ready")?;
    for order in orders() {
        let order = order?;
        processors::go_to(order.cpu)?;
        let found = measure(client.as_mut(), service, &order)?;
        say(&serde_json::to_string(&found)?)?;
    }
    Ok(())
}

/// Plays clients that have called once and then have nothing to do.
fn idles(args: &EndpointArgs) -> io::Result<()> {
    let mut clients = Vec::new();
    for number in 0..args.clients {
        let mut client = typed::connect(&args.broker)?;
        call(&mut client, Service::Echo, &mut [0; 4], number as u32)?;
        clients.push(client);
    }
    say("ready")?;
    orders().try_for_each(|order| order.map(drop))
}

/// One call: when the server was at it, by points, and when it ended.
fn call(
    client: &mut dyn Client,
    service: Service,
    request: &mut [u8],
    number: u32,
) -> io::Result<[u64; 3]> {
    service.ask(request, number);
    let mut stamps = None;
    let filled_ns = client.fill(request)?.as_nanos() as u64;
    let start_ns = now_ns();
    service.stamp(request, start_ns);
    client.call(request, &mut |reply| stamps = service.read(number, request, reply))?;
    let end_ns = now_ns();
    let Some(stamps) = stamps else {
        let wrong = "the answer is of another call";
        return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
    };
    let after = |time_ns: u64| time_ns.saturating_sub(start_ns);
    Ok([after(stamps.received_ns), after(stamps.replied_ns), filled_ns + after(end_ns)])
}

/// Makes the calls, one after the other. A time is that from a filled request to a reply that has
/// been read to its end.
fn measure(client: &mut dyn Client, service: Service, order: &Order) -> io::Result<Measured> {
    let mut request = vec![0; order.payload_bytes];
    let n_points = if service == Service::Stamp { 3 } else { 1 };
    // Written once before, so that no time has a page fault of its own record in it.
    let mut points = vec![vec![u64::MAX; order.n_calls as usize]; n_points];
    points.iter_mut().for_each(Vec::clear);
    for number in 0..order.n_warm_up {
        call(client, service, &mut request, number)?;
    }
    if let Some((place, number)) = &order.gate {
        say("ready")?;
        gate::wait(place, *number)?;
    }
    let begin_ns = now_ns();
    for number in order.n_warm_up..order.n_warm_up + order.n_calls {
        if order.delay_us > 0 {
            std::thread::sleep(Duration::from_micros(order.delay_us));
        }
        let times_ns = call(client, service, &mut request, number)?;
        for (point, time_ns) in points.iter_mut().zip(&times_ns[3 - n_points..]) {
            point.push(*time_ns);
        }
    }
    Ok(Measured { points, span_ns: [begin_ns, now_ns()] })
}
