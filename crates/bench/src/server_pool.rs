//! A server of many clients: one process, all whose threads answer.
//!
//! What is Binder has a pool of threads, any of which answers any client. Everything else has a
//! thread for each client, which meets it at a directory of its own, and does what the server of
//! a single client does.

use crate::child::say;
use crate::endpoint::{self, EndpointArgs, Order};
use crate::processors;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Most threads of a pool, as libbinder has it: 15 that the driver asks for, and the first.
const MOST_LOOPERS: usize = 16;

/// Where a client and its thread find each other.
pub fn place(directory: &Path, client: usize) -> PathBuf {
    directory.join(client.to_string())
}

/// Serves as many clients as `args` says.
pub fn serves(args: &EndpointArgs) -> io::Result<()> {
    if args.system.is_binder() {
        let n_loopers = args.clients.min(MOST_LOOPERS);
        let server = args.system.pool(&args.broker, n_loopers)?;
        return endpoint::serves(Box::new(move || Ok(server)));
    }
    let start = |client| ClientThread::start(args, client);
    let mut threads = (0..args.clients).map(start).collect::<io::Result<Vec<ClientThread>>>()?;
    say("ready")?;
    for order in endpoint::orders() {
        let order = order?;
        processors::go_to(order.cpu)?;
        let taken = &mut threads[..order.n_clients];
        taken.iter().for_each(|thread| drop(thread.orders.send(order.clone())));
        say("ready")?;
        for thread in taken {
            thread.hear()?;
        }
        say("ready")?;
    }
    Ok(())
}

/// A thread that serves one client.
struct ClientThread {
    orders: Sender<Order>,
    done: Receiver<io::Result<()>>,
}

impl ClientThread {
    fn start(args: &EndpointArgs, client: usize) -> io::Result<ClientThread> {
        let (orders, to_do) = channel::<Order>();
        let (tell, done) = channel();
        let (system, service, broker) = (args.system, args.service, args.broker.clone());
        let directory = place(&args.directory, client);
        std::thread::Builder::new().spawn(move || {
            let serve = || {
                let accept = system.listen(&directory, &broker, service)?;
                // Nobody hears of it if the process ends.
                let _ = tell.send(Ok(()));
                let mut listening = Some(accept);
                let mut server = None;
                for order in to_do {
                    if let Some(accept) = listening.take() {
                        server = Some(accept()?);
                    }
                    let server = server.as_mut().expect("accepted at the first order");
                    server.serve(order.n_warm_up + order.n_calls, order.payload_bytes)?;
                    let _ = tell.send(Ok(()));
                }
                Ok(())
            };
            let served = serve();
            let _ = tell.send(served);
        })?;
        let mut thread = ClientThread { orders, done };
        thread.hear()?;
        Ok(thread)
    }

    fn hear(&mut self) -> io::Result<()> {
        self.done.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}
