//! rsbinder's RPC: what its AIDL compiler would make of `byte[] ask(in byte[] request)`.

use baton_bench::service::Service;
use baton_bench::system::{Client, Server};
use rsbinder::rpc::{RpcProxy, RpcServer, RpcSession};
use rsbinder::{
    Binder, FIRST_CALL_TRANSACTION, Interface, Parcel, Remotable, SIBinder, Status, StatusCode,
    TransactionCode,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DESCRIPTOR: &str = "baton.bench.IAsk";
const ASK: TransactionCode = FIRST_CALL_TRANSACTION;

fn failed(code: StatusCode) -> io::Error {
    io::Error::other(format!("{code:?}"))
}

fn place(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// The object.
struct Asked(Service);

impl Interface for Asked {}

impl Remotable for Asked {
    fn descriptor() -> &'static str {
        DESCRIPTOR
    }

    fn on_transact(
        &self,
        code: TransactionCode,
        request: &mut Parcel,
        reply: &mut Parcel,
    ) -> rsbinder::Result<()> {
        if code != ASK {
            return Err(StatusCode::UnknownTransaction);
        }
        let data: Vec<u8> = request.read()?;
        let answer = self.0.answer(&data, <[u8]>::to_vec).ok_or(StatusCode::BadValue)?;
        reply.write(&Status::from(StatusCode::Ok))?;
        reply.write(&answer)
    }

    fn on_dump(&self, _to: &mut dyn io::Write, _args: &[String]) -> rsbinder::Result<()> {
        Ok(())
    }
}

/// A server with a thread for each connection.
pub struct Owner {
    _server: Arc<RpcServer>,
}

pub fn listen(directory: &Path, service: Service) -> io::Result<Owner> {
    let server = RpcServer::setup_unix_server(place(directory)).map_err(failed)?;
    let object = Interface::as_binder(&Binder::new(Asked(service)));
    server.set_root(object).map_err(failed)?;
    drop(server.run_background());
    Ok(Owner { _server: server })
}

impl Server for Owner {
    fn serve(&mut self, _n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

/// A session, with the object at its other end.
pub struct Caller {
    _session: RpcSession,
    object: SIBinder,
}

pub fn connect(directory: &Path) -> io::Result<Caller> {
    let session = RpcSession::setup_unix_client(place(directory)).map_err(failed)?;
    let object = session.get_root().map_err(failed)?;
    Ok(Caller { _session: session, object })
}

impl Caller {
    fn transact(&self, request: &[u8]) -> rsbinder::Result<Vec<u8>> {
        let proxy =
            (*self.object).as_any().downcast_ref::<RpcProxy>().ok_or(StatusCode::BadType)?;
        let mut parcel = proxy.build_request(DESCRIPTOR)?;
        parcel.write(request)?;
        let mut reply = proxy.transact(ASK, &parcel, 0)?.ok_or(StatusCode::UnexpectedNull)?;
        let status: Status = reply.read()?;
        if !status.is_ok() {
            return Err(status.into());
        }
        reply.read()
    }
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        consume(&self.transact(request).map_err(failed)?);
        Ok(())
    }
}
