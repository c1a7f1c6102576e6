//! gRPC: a unary call by tonic over a local socket. Each side has all its tasks on one thread,
//! which is quicker for one caller than the runtime's many threads.

use baton_bench::payload;
use baton_bench::system::{Client, Server};
use echo_client::EchoClient;
use echo_server::{Echo, EchoServer};
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

include!(concat!(env!("OUT_DIR"), "/baton.bench.Echo.rs"));

/// `message Payload { bytes data = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
pub struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
}

fn place(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

struct Object;

#[tonic::async_trait]
impl Echo for Object {
    async fn echo(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let payload = request.into_inner();
        payload::check(&payload.data).ok_or_else(|| Status::invalid_argument("garbled"))?;
        Ok(Response::new(payload))
    }
}

/// A server whose thread answers by itself.
pub struct Owner;

pub fn listen(directory: &Path) -> io::Result<Owner> {
    let runtime = runtime()?;
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(place(directory))?
    };
    std::thread::spawn(move || {
        let router = tonic::transport::Server::builder().add_service(EchoServer::new(Object));
        runtime.block_on(router.serve_with_incoming(UnixListenerStream::new(listener)))
    });
    Ok(Owner)
}

impl Server for Owner {
    fn serve(&mut self, _n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

/// A channel, and the thread that drives it while a call is made.
pub struct Caller {
    runtime: Runtime,
    client: EchoClient<Channel>,
}

pub fn connect(directory: &Path) -> io::Result<Caller> {
    let runtime = runtime()?;
    let address = format!("unix://{}", place(directory).display());
    let endpoint = Endpoint::from_shared(address).map_err(io::Error::other)?;
    let channel = runtime.block_on(endpoint.connect()).map_err(io::Error::other)?;
    Ok(Caller { runtime, client: EchoClient::new(channel) })
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let payload = Payload { data: request.to_vec() };
        let call = self.client.echo(Request::new(payload));
        let answer = self.runtime.block_on(call).map_err(io::Error::other)?;
        consume(&answer.get_ref().data);
        Ok(())
    }
}
