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

use crate::child::{self, say, tell};
use crate::gate;
use crate::processors;
use crate::server_pool;
use crate::service::{Service, now_ns};
use crate::system::{Accept, Client, System};
use crate::systems::typed::{self, CONTEXT};
use baton_rt::schedule::set_priority;
use baton_rt::{SchedPriority, memory};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use strum::IntoStaticStr;

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
    /// Priority of all its threads, whose memory stays in place then
    #[arg(long)]
    pub priority: Option<SchedPriority>,
    /// How many clients the server has
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
}

/// An end of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
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
        self.into()
    }
}

/// What both ends are to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
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
pub(crate) struct Measured {
    /// For each point on a call's way, and each call, how long after its beginning it was there,
    /// in nanoseconds. The last point is the call's end.
    pub points: Vec<Vec<u64>>,
    /// CLOCK_MONOTONIC before the first and after the last call, in nanoseconds.
    pub span_ns: [u64; 2],
}

/// Does what the end has to do until it is told no more.
pub(crate) fn run(args: &EndpointArgs) -> ExitCode {
    let EndpointArgs { system, directory, broker, .. } = args;
    child::run_part(format!("{}, {}", system.name(), args.side.name()), args.starter, || {
        args.priority.map_or(Ok(()), hurry)?;
        match args.side {
            Side::Client => {
                calls_for(system.connect(directory, broker)?, system.service(args.service))
            }
            Side::Server if args.clients > 1 => server_pool::serves(args),
            Side::Server => serves(system.listen(directory, broker, args.service)?),
            Side::Idlers => idles(args),
        }
    })
}

/// Ends this process with `args.starter`, and names the end if it fails.
pub fn run_with(args: &EndpointArgs, part: impl FnOnce() -> io::Result<()>) -> ExitCode {
    child::run_part(format!("{}, {}", args.system.name(), args.side.name()), args.starter, part)
}

/// Before there are threads: those to come inherit it.
fn hurry(priority: SchedPriority) -> io::Result<()> {
    // Where it may not be had, pages come late, and that shows.
    let _ = memory::Locked::new().map(std::mem::forget);
    set_priority(priority, None).map_err(io::Error::other)
}

pub(crate) fn orders() -> impl Iterator<Item = io::Result<Order>> {
    child::orders().map(|line| Ok(serde_json::from_str(&line?)?))
}

/// Serves.
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

/// Calls a server that echoes.
pub fn calls(client: Box<dyn Client>) -> io::Result<()> {
    calls_for(client, Service::Echo)
}

fn calls_for(mut client: Box<dyn Client>, service: Service) -> io::Result<()> {
    say("ready")?;
    for order in orders() {
        let order = order?;
        processors::go_to(order.cpu)?;
        let found = measure(client.as_mut(), service, &order)?;
        tell(&found)?;
    }
    Ok(())
}

/// Keeps clients that have called once and then have nothing to do.
fn idles(args: &EndpointArgs) -> io::Result<()> {
    let mut clients = Vec::new();
    for number in 0..args.clients {
        let mut client = typed::connect(&args.broker, CONTEXT)?;
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
