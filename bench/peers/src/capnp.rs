//! Cap'n Proto: a call of an interface over a local socket. Each side has all its tasks on one
//! thread, as this RPC's promises need.

use baton_bench::payload;
use baton_bench::system::{Client, Server};
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::twoparty::VatNetwork;
use capnp_rpc::{RpcSystem, new_client};
use echo_capnp::echo;
use futures_util::AsyncReadExt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio_util::compat::TokioAsyncReadCompatExt;

mod echo_capnp {
    #![allow(clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/echo_capnp.rs"));
}

fn place(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn network(
    stream: UnixStream,
    side: Side,
) -> Box<VatNetwork<impl futures_util::AsyncRead + Unpin>> {
    let (reader, writer) = stream.compat().split();
    Box::new(VatNetwork::new(reader, writer, side, Default::default()))
}

struct Object;

impl echo::Server for Object {
    async fn echo(
        self: Rc<Self>,
        params: echo::EchoParams,
        mut results: echo::EchoResults,
    ) -> Result<(), ::capnp::Error> {
        let data = params.get()?.get_data()?;
        payload::check(data).ok_or_else(|| ::capnp::Error::failed("garbled".into()))?;
        results.get().set_data(data);
        Ok(())
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
    std::thread::spawn(move || LocalSet::new().block_on(&runtime, accept(listener)));
    Ok(Owner)
}

async fn accept(listener: UnixListener) -> io::Result<()> {
    let object: echo::Client = new_client(Object);
    loop {
        let (stream, _) = listener.accept().await?;
        let system = RpcSystem::new(network(stream, Side::Server), Some(object.clone().client));
        tokio::task::spawn_local(system);
    }
}

impl Server for Owner {
    fn serve(&mut self, _n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

/// A connection, and the thread that drives it while a call is made.
pub struct Caller {
    runtime: Runtime,
    tasks: LocalSet,
    object: echo::Client,
}

pub fn connect(directory: &Path) -> io::Result<Caller> {
    let (runtime, tasks) = (runtime()?, LocalSet::new());
    let stream = runtime.block_on(UnixStream::connect(place(directory)))?;
    let mut system = RpcSystem::new(network(stream, Side::Client), None);
    let object = system.bootstrap(Side::Server);
    tasks.spawn_local(system);
    Ok(Caller { runtime, tasks, object })
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut call = self.object.echo_request();
        call.get().set_data(request);
        let answer = self.tasks.block_on(&self.runtime, call.send().promise);
        let show = || Ok::<_, ::capnp::Error>(consume(answer?.get()?.get_data()?));
        show().map_err(io::Error::other)
    }
}
