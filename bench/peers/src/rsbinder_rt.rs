//! rsbinder's RPC for real-time callers and ordinary ones: a session, and so a connection, for
//! each.

use crate::rsbinder_rpc::{connect, listen_for};
use baton_bench::say;
use baton_bench::rt::request::{BYTES, answer};
use baton_bench::rt::way::{Call, Ends, Place};
use std::{io, thread};

pub const ENDS: Ends = Ends { serve, callers };

fn serve(place: &Place) -> io::Result<()> {
    let _server = listen_for(&place.directory, |request| answer(request).map(Vec::from))?;
    say("ready")?;
    loop {
        thread::park();
    }
}

fn callers(place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
    let caller = |_| -> io::Result<Call> {
        let session = connect(&place.directory)?;
        Ok(Box::new(move |request| {
            let answer = session.ask(&request.bytes())?;
            <[u8; BYTES]>::try_from(&answer[..]).map_err(io::Error::other)
        }))
    };
    (0..n_callers).map(caller).collect()
}
