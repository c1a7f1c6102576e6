//! Cap'n Proto: a call of an interface over a local socket, which may carry a capability. Each side
//! has all its tasks on one thread, as this RPC's promises need.

use ::capnp::Error;
use ::capnp::capability::FromClientHook;
use baton_bench::case::{Case, Counts, Ends};
use baton_bench::object_client::ObjectClient;
use baton_bench::payload;
use baton_bench::system::{Client, Server};
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::twoparty::VatNetwork;
use capnp_rpc::{RpcSystem, new_client};
use echo_capnp::echo;
use futures_util::AsyncReadExt;
use std::cell::{Cell, RefCell};
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

/// The object that is called, with what it knows of others.
#[derive(Default)]
struct Object {
    /// The object that it gives away.
    own: Option<echo::Client>,
    kept: RefCell<Vec<echo::Client>>,
    received: Cell<u64>,
}

/// An object of which only its references count: how many there are lives in the cell.
struct Counted(Rc<Cell<u64>>);

impl Counted {
    fn new(living: &Rc<Cell<u64>>) -> Counted {
        living.set(living.get() + 1);
        Counted(Rc::clone(living))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl echo::Server for Counted {}

fn is_same(one: &echo::Client, other: &echo::Client) -> bool {
    one.as_client_hook().get_ptr() == other.as_client_hook().get_ptr()
}

fn checked(data: &[u8]) -> Result<&[u8], Error> {
    payload::check(data).map(|_| data).ok_or_else(|| Error::failed("garbled".into()))
}

impl Object {
    /// Counts an object that came.
    fn note(&self) {
        self.received.set(self.received.get() + 1);
    }
}

impl echo::Server for Object {
    async fn echo(
        self: Rc<Self>,
        params: echo::EchoParams,
        mut results: echo::EchoResults,
    ) -> Result<(), Error> {
        results.get().set_data(checked(params.get()?.get_data()?)?);
        Ok(())
    }

    async fn keep(
        self: Rc<Self>,
        params: echo::KeepParams,
        mut results: echo::KeepResults,
    ) -> Result<(), Error> {
        let object = params.get()?.get_object()?;
        let mut kept = self.kept.borrow_mut();
        if !kept.iter().any(|kept| is_same(kept, &object)) {
            kept.push(object);
        }
        self.note();
        results.get().set_data(checked(params.get()?.get_data()?)?);
        Ok(())
    }

    async fn drop(
        self: Rc<Self>,
        params: echo::DropParams,
        mut results: echo::DropResults,
    ) -> Result<(), Error> {
        drop(params.get()?.get_object()?);
        self.note();
        results.get().set_data(checked(params.get()?.get_data()?)?);
        Ok(())
    }

    async fn forget(
        self: Rc<Self>,
        _: echo::ForgetParams,
        _: echo::ForgetResults,
    ) -> Result<(), Error> {
        self.kept.borrow_mut().clear();
        Ok(())
    }

    async fn give(
        self: Rc<Self>,
        params: echo::GiveParams,
        mut results: echo::GiveResults,
    ) -> Result<(), Error> {
        let own = self.own.clone().ok_or_else(|| Error::failed("nothing to give".into()))?;
        results.get().set_object(own);
        results.get().set_data(checked(params.get()?.get_data()?)?);
        Ok(())
    }

    async fn take_home(
        self: Rc<Self>,
        params: echo::TakeHomeParams,
        mut results: echo::TakeHomeResults,
    ) -> Result<(), Error> {
        let object = params.get()?.get_object()?;
        if !self.own.as_ref().is_some_and(|own| is_same(own, &object)) {
            return Err(Error::failed("another object came home".into()));
        }
        self.note();
        results.get().set_data(checked(params.get()?.get_data()?)?);
        Ok(())
    }

    async fn count(
        self: Rc<Self>,
        _: echo::CountParams,
        mut results: echo::CountResults,
    ) -> Result<(), Error> {
        results.get().set_received(self.received.get());
        results.get().set_kept(self.kept.borrow().len() as u64);
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
    let own = Some(new_client(Object::default()));
    let object: echo::Client = new_client(Object { own, ..Object::default() });
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
    /// How many objects of its own there are.
    living: Rc<Cell<u64>>,
    /// The object that a case sends.
    own: Option<echo::Client>,
    /// The server's object.
    kept: Option<echo::Client>,
    received: u64,
}

pub fn connect(directory: &Path) -> io::Result<Caller> {
    let (runtime, tasks) = (runtime()?, LocalSet::new());
    let stream = runtime.block_on(UnixStream::connect(place(directory)))?;
    let mut system = RpcSystem::new(network(stream, Side::Client), None);
    let object = system.bootstrap(Side::Server);
    tasks.spawn_local(system);
    let living = Rc::default();
    Ok(Caller { runtime, tasks, object, living, own: None, kept: None, received: 0 })
}

/// Makes a call of the server's object, and gives its results to a function.
macro_rules! call {
    ($caller:ident, $request:ident, |$params:ident| $fill:expr, |$results:ident| $read:expr) => {{
        let mut call = $caller.object.$request();
        {
            // A request without parameters changes nothing.
            #[allow(unused_mut, unused_variables)]
            let mut $params = call.get();
            $fill;
        }
        let answer = $caller.tasks.block_on(&$caller.runtime, call.send().promise);
        let read = || {
            let answer = answer?;
            let $results = answer.get()?;
            Ok::<_, Error>($read)
        };
        read().map_err(io::Error::other)
    }};
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no object")
}

impl Caller {
    /// A call that brings the server's object, which is kept.
    fn fetch(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let object = call!(self, give_request, |params| params.set_data(request), |results| {
            consume(results.get_data()?);
            results.get_object()?
        })?;
        match &self.kept {
            None => self.kept = Some(object),
            Some(kept) if is_same(kept, &object) => {}
            Some(_) => return Err(io::Error::other("another object came")),
        }
        Ok(())
    }

    fn new_object(&self) -> echo::Client {
        new_client(Counted::new(&self.living))
    }
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        call!(self, echo_request, |params| params.set_data(request), |results| {
            consume(results.get_data()?)
        })
    }
}

impl ObjectClient for Caller {
    fn begin(&mut self, case: Case) -> io::Result<()> {
        match case {
            Case::ObjectKnown | Case::ObjectDropped => self.own = Some(self.new_object()),
            Case::HandleHome => self.fetch(&[0; 4], &mut |_| ())?,
            _ => {}
        }
        Ok(())
    }

    fn call(
        &mut self,
        case: Case,
        request: &[u8],
        consume: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        match case {
            Case::Plain => Client::call(self, request, consume),
            Case::ObjectKnown => {
                let own = self.own.clone().ok_or_else(missing)?;
                call!(
                    self,
                    keep_request,
                    |params| {
                        params.set_data(request);
                        params.set_object(own)
                    },
                    |results| consume(results.get_data()?)
                )
            }
            Case::ObjectDropped | Case::ObjectNew => {
                let own = self.own.clone().unwrap_or_else(|| self.new_object());
                call!(
                    self,
                    drop_request,
                    |params| {
                        params.set_data(request);
                        params.set_object(own)
                    },
                    |results| consume(results.get_data()?)
                )
            }
            Case::ObjectInReply => {
                self.received += 1;
                self.fetch(request, consume)
            }
            Case::HandleHome => {
                let kept = self.kept.clone().ok_or_else(missing)?;
                call!(
                    self,
                    take_home_request,
                    |params| {
                        params.set_data(request);
                        params.set_object(kept)
                    },
                    |results| consume(results.get_data()?)
                )
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn end(&mut self, _: Case) -> io::Result<()> {
        (self.own, self.kept) = (None, None);
        call!(self, forget_request, |params| (), |_results| ())
    }

    fn counts(&mut self) -> io::Result<Option<Ends>> {
        let server = call!(self, count_request, |params| (), |results| {
            Counts { received: results.get_received(), kept: results.get_kept(), ..<_>::default() }
        })?;
        let kept = u64::from(self.kept.is_some());
        let (received, lent) = (self.received, self.living.get());
        let client = Counts { received, kept, lent, descriptors: 0 };
        Ok(Some(Ends { client, server }))
    }
}
