//! The ends of calls, but for message queues: Baton's typed API, a Binder program of the raw
//! interface, and a local socket.

use crate::child::say;
use crate::rt::request::{BYTES, answer};
use crate::rt::way::{Call, Ends, Place};
use crate::system::Client;
use crate::systems::typed::{CONTEXT, failed, opened, reach};
use crate::systems::uapi::{self, Form};
use baton::{Parcel, Process};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

/// Threads of a server's pool, which serve all callers.
const N_LOOPERS: usize = 4;
/// Those that the driver may ask for, as libbinder has it.
const MORE_LOOPERS: u32 = 15;
const CODE: u32 = 1;

/// An object of the typed API, and threads of one process that call it.
pub const TYPED: Ends = Ends { serve: serve_typed, callers: call_typed };
/// A Binder program of the raw interface. It is the same on Baton, which is loaded before it, and
/// on the kernel's own driver.
pub const UAPI: Ends = Ends { serve: serve_uapi, callers: call_uapi };
/// A request server on a local socket, as people write it: a thread for each connection.
pub const UNIX: Ends = Ends { serve: serve_unix, callers: call_unix };

fn serve_typed(place: &Place) -> io::Result<()> {
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

fn call_typed(place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
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

fn serve_uapi(_place: &Place) -> io::Result<()> {
    let answer = |request: &[u8], reply: &mut Vec<u8>| {
        let answer = answer(request);
        reply.extend_from_slice(answer.as_ref().map_or(&[], |answer| answer));
        answer.is_some()
    };
    let _pool = uapi::pool_of(Form::Libc, N_LOOPERS, MORE_LOOPERS, Arc::new(answer))?;
    say("ready")?;
    loop {
        thread::park();
    }
}

fn call_uapi(_place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
    let caller = |mut caller: uapi::Caller| -> Call {
        Box::new(move |request| {
            let mut answer = Err(io::ErrorKind::InvalidData.into());
            caller.call(&request.bytes(), &mut |reply| {
                answer = <[u8; BYTES]>::try_from(reply).map_err(io::Error::other);
            })?;
            answer
        })
    };
    Ok(uapi::callers(Form::Libc, n_callers)?.into_iter().map(caller).collect())
}

fn socket(place: &Place) -> PathBuf {
    place.directory.join("rt.sock")
}

fn serve_unix(place: &Place) -> io::Result<()> {
    let listener = UnixListener::bind(socket(place))?;
    say("ready")?;
    for stream in listener.incoming() {
        let stream = stream?;
        // It ends with its caller.
        thread::spawn(move || serve_one(stream));
    }
    Ok(())
}

fn serve_one(mut stream: UnixStream) -> io::Result<()> {
    let mut request = [0; BYTES];
    loop {
        stream.read_exact(&mut request)?;
        let answer = answer(&request).ok_or(io::ErrorKind::InvalidData)?;
        stream.write_all(&answer)?;
    }
}

fn call_unix(place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
    let caller = |_| -> io::Result<Call> {
        let mut stream = UnixStream::connect(socket(place))?;
        Ok(Box::new(move |request| {
            stream.write_all(&request.bytes())?;
            let mut answer = [0; BYTES];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        }))
    };
    (0..n_callers).map(caller).collect()
}
