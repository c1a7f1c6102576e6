//! iceoryx2: requests and responses in shared memory. They bring no wait of their own: each side
//! has a listener of an event, and sleeps in its `blocking_wait` (here a datagram socket) until the
//! other side's notifier has sent it.

use baton_bench::payload;
use baton_bench::system;
use iceoryx2::port::client::Client;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::event::PortFactory as Event;
use iceoryx2::service::port_factory::request_response::PortFactory as RequestResponse;
use std::error::Error;
use std::io;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What a port has room for before it must ask for more memory.
const INITIAL_BYTES: usize = 4096;

fn failed(error: impl ToString) -> io::Error {
    io::Error::other(error.to_string())
}

/// What both ends open, whoever comes first.
struct Services {
    node: Node<ipc::Service>,
    calls: RequestResponse<ipc::Service, [u8], (), [u8], ()>,
    asked: Event<ipc::Service>,
    answered: Event<ipc::Service>,
}

impl Services {
    fn open(directory: &Path) -> Result<Services> {
        set_log_level_from_env_or(LogLevel::Error);
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let service = |word| {
            let name = format!("{}/{word}", directory.display());
            Ok::<_, Box<dyn Error>>(node.service_builder(&name.as_str().try_into()?))
        };
        let calls = service("calls")?.request_response::<[u8], [u8]>().open_or_create()?;
        let asked = service("asked")?.event().open_or_create()?;
        let answered = service("answered")?.event().open_or_create()?;
        Ok(Services { node, calls, asked, answered })
    }
}

/// The server.
pub struct Owner {
    server: Server<ipc::Service, [u8], (), [u8], ()>,
    asked: Listener<ipc::Service>,
    answered: Notifier<ipc::Service>,
    _node: Node<ipc::Service>,
}

pub fn listen(directory: &Path) -> io::Result<Owner> {
    let listen = || -> Result<Owner> {
        let Services { node, calls, asked, answered } = Services::open(directory)?;
        let server = calls.server_builder().initial_max_slice_len(INITIAL_BYTES);
        Ok(Owner {
            server: server.allocation_strategy(AllocationStrategy::PowerOfTwo).create()?,
            asked: asked.listener_builder().create()?,
            answered: answered.notifier_builder().create()?,
            _node: node,
        })
    };
    listen().map_err(failed)
}

impl Owner {
    fn answer(&self) -> Result<()> {
        let request = loop {
            match self.server.receive()? {
                Some(request) => break request,
                None => drop(self.asked.blocking_wait(|_| {})?),
            }
        };
        payload::check(request.payload()).ok_or(io::ErrorKind::InvalidData).map_err(failed)?;
        let response = request.loan_slice_uninit(request.payload().len())?;
        response.write_from_slice(request.payload()).send()?;
        self.answered.notify()?;
        Ok(())
    }
}

impl system::Server for Owner {
    fn serve(&mut self, n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        (0..n_calls).try_for_each(|_| self.answer()).map_err(failed)
    }
}

/// The client.
pub struct Caller {
    client: Client<ipc::Service, [u8], (), [u8], ()>,
    asked: Notifier<ipc::Service>,
    answered: Listener<ipc::Service>,
    _node: Node<ipc::Service>,
}

pub fn connect(directory: &Path) -> io::Result<Caller> {
    let connect = || -> Result<Caller> {
        let Services { node, calls, asked, answered } = Services::open(directory)?;
        let client = calls.client_builder().initial_max_slice_len(INITIAL_BYTES);
        Ok(Caller {
            client: client.allocation_strategy(AllocationStrategy::PowerOfTwo).create()?,
            asked: asked.notifier_builder().create()?,
            answered: answered.listener_builder().create()?,
            _node: node,
        })
    };
    connect().map_err(failed)
}

impl Caller {
    fn echo(&self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> Result<()> {
        let loan = self.client.loan_slice_uninit(request.len())?;
        let pending = loan.write_from_slice(request).send()?;
        self.asked.notify()?;
        loop {
            match pending.receive()? {
                Some(response) => return Ok(consume(response.payload())),
                None => drop(self.answered.blocking_wait(|_| {})?),
            }
        }
    }
}

impl system::Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.echo(request, consume).map_err(failed)
    }
}
