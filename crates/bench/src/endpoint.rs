//! One end of a system, in a process of its own.
//!
//! It is told what to do on standard input, a line of JSON each ([`Order`]), and ends with it.
//!
//! ```text
//!   server: "ready"  { order -> "ready", serves ... "ready" }
//!   client: "ready"  { order -> calls ... one line: what it found (Measured), in JSON }
//! ```
//!
//! A client whose order names a barrier says "ready" once it is warm, and waits there.

use crate::child::{self, RoleArgs, say, tell};
use crate::object_client;
use crate::order::{EndpointRole, Measured, Order, Side};
use crate::processors;
use crate::service::{Service, now_ns};
use crate::start_barrier;
use crate::system::{Accept, Client};
use crate::systems;
use crate::systems::typed::{self, CONTEXT};
use baton_rt::memory;
use baton_rt::schedule::set_priority;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// Does what the end has to do until it is told no more.
pub(crate) fn run(args: &RoleArgs) -> ExitCode {
    args.run(|role: EndpointRole| {
        let EndpointRole { system, ref directory, ref broker, service, n_clients, .. } = role;
        role.priority.as_deref().map_or(Ok(()), hurry)?;
        match role.side {
            Side::Client if service == Service::Objects => {
                object_client::calls(systems::connect_objects(system, directory, broker)?)
            }
            Side::Server | Side::Pool if service == Service::Objects => {
                serves(systems::listen_objects(system, directory, broker, n_clients)?)
            }
            Side::Owner => {
                let _service = systems::own_service(system, broker)?;
                keeps()
            }
            Side::Client => {
                calls_for(systems::connect(system, directory, broker)?, system.service(service))
            }
            Side::Threads => {
                let server = systems::threads(system, directory, broker, n_clients)?;
                serves(Box::new(move || Ok(server)))
            }
            Side::Server => serves(systems::listen(system, directory, broker, service)?),
            Side::Pool => {
                let server = systems::pool(system, directory, broker, (service, n_clients))?;
                serves(Box::new(move || Ok(server)))
            }
            Side::Idlers => idles(&role),
            Side::Mount => {
                let mount = systems::mount::start(system, broker)?;
                serves(Box::new(move || Ok(mount)))
            }
        }
    })
}

/// Before there are threads: those to come inherit it.
fn hurry(priority: &str) -> io::Result<()> {
    // Where it may not be had, pages come late, and that shows.
    let _ = memory::Locked::new().map(std::mem::forget);
    set_priority(priority.parse().map_err(io::Error::other)?, None).map_err(io::Error::other)
}

fn orders() -> impl Iterator<Item = io::Result<Order>> {
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
fn idles(role: &EndpointRole) -> io::Result<()> {
    let mut clients = Vec::new();
    for number in 0..role.n_clients {
        let mut client = typed::connect(&role.broker, CONTEXT)?;
        call(&mut client, Service::Echo, &mut [0; 4], number as u32)?;
        clients.push(client);
    }
    keeps()
}

/// Keeps what it has until it is told no more.
fn keeps() -> io::Result<()> {
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
    if let Some((place, number)) = &order.barrier {
        say("ready")?;
        start_barrier::wait(place, *number)?;
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
    Ok(Measured { points, span_ns: [begin_ns, now_ns()], wrong: None })
}
