//! A request server on a local socket, as people write it: a thread for each connection.

use crate::endpoint::say;
use crate::rt::request::{BYTES, answer};
use crate::rt::way::{Call, Ends, Place};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

pub const ENDS: Ends = Ends { serve, callers };

fn socket(place: &Place) -> PathBuf {
    place.directory.join("rt.sock")
}

fn serve(place: &Place) -> io::Result<()> {
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

fn callers(place: &Place, n_callers: usize) -> io::Result<Vec<Call>> {
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
