//! Baton's typed API: an object, its pool, and whom the broker lets have a looper of his own.

use crate::endpoint::say;
use crate::rt::request::{BYTES, answer};
use crate::rt::way::{Call, Ends, Place};
use crate::systems::typed::{CONTEXT, failed, opened, reach};
use baton::{Parcel, Process};
use rustix::io::Errno;
use std::io;
use std::thread;

/// Of the server's pool.
const N_LOOPERS: usize = 4;
const CODE: u32 = 1;

pub const ENDS: Ends = Ends { serve, callers };

fn serve(place: &Place) -> io::Result<()> {
    let process = Process::open(CONTEXT, &place.broker).map_err(opened)?;
    let object = process
        .object(|request| match answer(request.data()) {
            Some(answer) => Ok(Parcel::from(&answer[..])),
            None => Err(Errno::BADMSG),
        })
        .add();
    process.become_context_manager(object)?;
    for _ in 1..N_LOOPERS {
        let process = process.clone();
        thread::spawn(move || process.serve());
    }
    say("ready")?;
    Err(process.serve().into())
}

/// Threads of one process.
fn callers(place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
    let (_process, manager) = reach(&place.broker, CONTEXT)?;
    let caller = |_| -> Call {
        let manager = manager.clone();
        Box::new(move |request| {
            let parcel = Parcel::from(&request.bytes()[..]);
            let reply = manager.call(CODE, &parcel).map_err(failed)?;
            <[u8; BYTES]>::try_from(reply.data()).map_err(io::Error::other)
        })
    };
    Ok((0..n_callers).map(caller).collect())
}
