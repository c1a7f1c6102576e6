//! Bytes that go in at one side and come out at the other: what pipes and sockets have in common.
//! Both sides know the length, so that nothing is spent on a header.

use crate::service::Service;
use crate::system::{Client, Consume, Server};
use std::io::{self, Read, Write};

pub struct Side<R, W> {
    incoming: R,
    outgoing: W,
    buffer: Vec<u8>,
    /// What it does if it is a server's.
    service: Service,
}

impl<R: Read, W: Write> Side<R, W> {
    pub fn new(incoming: R, outgoing: W) -> Side<R, W> {
        Side { incoming, outgoing, buffer: Vec::new(), service: Service::Echo }
    }

    pub fn with(self, service: Service) -> Side<R, W> {
        Side { service, ..self }
    }

    fn receive(&mut self, bytes: usize) -> io::Result<()> {
        self.buffer.resize(bytes, 0);
        self.incoming.read_exact(&mut self.buffer)
    }
}

impl<R: Read, W: Write> Client for Side<R, W> {
    fn call(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        self.outgoing.write_all(request)?;
        self.receive(request.len())?;
        consume(&self.buffer);
        Ok(())
    }
}

impl<R: Read, W: Write> Server for Side<R, W> {
    fn serve(&mut self, n_calls: u32, payload_bytes: usize) -> io::Result<()> {
        for _ in 0..n_calls {
            self.receive(payload_bytes)?;
            let answered = self.service.answer(&self.buffer, |it| self.outgoing.write_all(it));
            answered.ok_or(io::ErrorKind::InvalidData)??;
        }
        Ok(())
    }
}
