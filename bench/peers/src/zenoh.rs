//! zenoh: a query, from peer to peer over a local socket, without a router and without a search
//! for others.

use ::zenoh::handlers::FifoChannelHandler;
use ::zenoh::query::{Querier, Query, Queryable, Reply};
use ::zenoh::{Config, Session, Wait};
use baton_bench::payload;
use baton_bench::system::{Client, Server};
use std::io;
use std::path::Path;
use std::time::Duration;

const KEY: &str = "baton/bench/echo";

fn failed(error: impl ToString) -> io::Error {
    io::Error::other(error.to_string())
}

/// `end`: whether it listens or connects.
fn open(directory: &Path, end: &str) -> io::Result<Session> {
    let address = format!("unixsock-stream/{}", directory.join("socket").display());
    let mut config = Config::default();
    let lists = ["listen", "connect"].map(|list| {
        (
            format!("{list}/endpoints"),
            if list == end { format!("[\"{address}\"]") } else { "[]".into() },
        )
    });
    let rest = [("mode", "\"peer\""), ("scouting/multicast/enabled", "false")];
    let rest = rest.map(|(key, value)| (key.to_owned(), value.to_owned()));
    for (key, value) in rest.into_iter().chain(lists) {
        config.insert_json5(&key, &value).map_err(failed)?;
    }
    ::zenoh::open(config).wait().map_err(failed)
}

fn answer(query: &Query) -> Result<(), ::zenoh::Error> {
    let payload = query.payload().map(|payload| payload.to_bytes()).unwrap_or_default();
    match payload::check(&payload) {
        Some(_) => query.reply(KEY, payload.as_ref()).wait(),
        None => query.reply_err("garbled").wait(),
    }
}

/// A queryable, which answers in a thread of the session's.
pub struct Owner {
    _queryable: Queryable<()>,
    _session: Session,
}

pub fn listen(directory: &Path) -> io::Result<Owner> {
    let session = open(directory, "listen")?;
    let queryable = session.declare_queryable(KEY).callback(|query| {
        if let Err(error) = answer(&query) {
            eprintln!("{error}");
        }
    });
    Ok(Owner { _queryable: queryable.wait().map_err(failed)?, _session: session })
}

impl Server for Owner {
    fn serve(&mut self, _n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

/// A querier.
pub struct Caller {
    querier: Querier<'static>,
    _session: Session,
}

pub fn connect(directory: &Path) -> io::Result<Caller> {
    let session = open(directory, "connect")?;
    let querier = session.declare_querier(KEY).wait().map_err(failed)?;
    let caller = Caller { querier, _session: session };
    // It hears of the queryable some time after it is connected, and asks nobody until then.
    for _ in 0..1000 {
        if caller.query(&[0; 4])?.recv().is_ok() {
            return Ok(caller);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(failed("there is nobody to ask"))
}

impl Caller {
    fn query(&self, request: &[u8]) -> io::Result<FifoChannelHandler<Reply>> {
        self.querier.get().payload(request).wait().map_err(failed)
    }
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let reply = self.query(request)?.recv().map_err(failed)?;
        let sample = reply.into_result().map_err(failed)?;
        consume(&sample.payload().to_bytes());
        Ok(())
    }
}
