//! ZeroMQ: a REQ socket and a REP socket over `ipc://`, both of which sleep in a blocking receive.

use baton_bench::payload;
use baton_bench::system::{Client, Server};
use std::io;
use std::path::Path;
use zmq::{Context, Socket, SocketType};

fn address(directory: &Path) -> String {
    format!("ipc://{}", directory.join("socket").display())
}

/// Either end.
pub struct End(Socket);

pub fn listen(directory: &Path) -> io::Result<End> {
    let socket = Context::new().socket(SocketType::REP)?;
    socket.bind(&address(directory))?;
    Ok(End(socket))
}

pub fn connect(directory: &Path) -> io::Result<End> {
    let socket = Context::new().socket(SocketType::REQ)?;
    socket.connect(&address(directory))?;
    Ok(End(socket))
}

impl Server for End {
    fn serve(&mut self, n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        for _ in 0..n_calls {
            let message = self.0.recv_msg(0)?;
            payload::check(&message).ok_or(io::ErrorKind::InvalidData)?;
            self.0.send(message, 0)?;
        }
        Ok(())
    }
}

impl Client for End {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.0.send(request, 0)?;
        consume(&self.0.recv_msg(0)?);
        Ok(())
    }
}
