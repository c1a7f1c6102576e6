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

use crate::child::{RoleArgs, say};
use crate::object_client;
use crate::order::{self, EndpointRole, Measured, Order, Side, orders};
use crate::processors;
use crate::service::{Service, now_ns};
use crate::system::{Accept, Client};
use crate::systems::typed::{self, CONTEXT};
use crate::systems::{self, Site};
use baton_rt::memory;
use baton_rt::schedule::set_priority;
use std::io;
use std::process::ExitCode;

/// Does what the end has to do until it is told no more.
pub(crate) fn run(args: &RoleArgs) -> ExitCode {
    args.run(|role: EndpointRole| {
        let EndpointRole { system, ref directory, ref broker, service, n_clients, .. } = role;
        let site = Site { system, directory, broker };
        role.priority.as_deref().map_or(Ok(()), hurry)?;
        match role.side {
            Side::Client if service == Service::Objects => {
                object_client::calls(systems::connect_objects(site)?)
            }
            Side::Server | Side::Pool if service == Service::Objects => {
                serves(systems::listen_objects(site, n_clients)?)
            }
            Side::Owner => {
                let _service = systems::own_service(site)?;
                keeps()
            }
            Side::Client => calls_for(systems::connect(site)?, system.service(service)),
            Side::Threads => {
                let server = systems::threads(site, n_clients)?;
                serves(Box::new(move || Ok(server)))
            }
            Side::Server => serves(systems::listen(site, service)?),
            Side::Pool => {
                let server = systems::pool(site, service, n_clients)?;
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
    order::obey(|order| measure(client.as_mut(), service, order))
}

/// Keeps clients that have called once and then have nothing to do.
fn idles(role: &EndpointRole) -> io::Result<()> {
    let mut clients = Vec::new();
    for number in 0..role.n_clients {
        let (_, mut client) = typed::reach(&role.broker, CONTEXT)?;
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
        return Err(object_client::wrong("the answer is of another call"));
    };
    let after = |time_ns: u64| time_ns.saturating_sub(start_ns);
    Ok([after(stamps.received_ns), after(stamps.replied_ns), filled_ns + after(end_ns)])
}

/// Makes the calls, one after the other. A time is that from a filled request to a reply that has
/// been read to its end.
fn measure(client: &mut dyn Client, service: Service, order: &Order) -> io::Result<Measured> {
    let mut request = vec![0; order.payload_bytes];
    let n_points = if service == Service::Stamp { 3 } else { 1 };
    order.measure(n_points, |number| call(client, service, &mut request, number))
}
