//! Bytes that go in at one side and come out at the other: named pipes, and local sockets, of a
//! stream and of packets. Both sides know the length, so that nothing is spent on a header.

use crate::service::{CLOCK_BYTES, Service};
use crate::system::{Accept, Client, Server};
use rustix::fs::{CWD, FileType, Mode};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
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

/// Opened for both directions, which on Linux waits for nobody.
fn open(directory: &Path, name: &str) -> io::Result<File> {
    File::options().read(true).write(true).open(directory.join(name))
}

pub fn listen_pipe(directory: &Path) -> io::Result<Side<File, File>> {
    for name in ["request", "reply"] {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, directory.join(name), FileType::Fifo, mode, 0)?;
    }
    Ok(Side::new(open(directory, "request")?, open(directory, "reply")?))
}

pub fn connect_pipe(directory: &Path) -> io::Result<Side<File, File>> {
    Ok(Side::new(open(directory, "reply")?, open(directory, "request")?))
}

fn place(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn both_ways(stream: UnixStream) -> io::Result<Side<UnixStream, UnixStream>> {
    Ok(Side::new(stream.try_clone()?, stream))
}

pub fn listen_stream(directory: &Path) -> io::Result<Accept> {
    let listener = UnixListener::bind(place(directory))?;
    Ok(Box::new(move || Ok(Box::new(both_ways(listener.accept()?.0)?))))
}

pub fn connect_stream(directory: &Path) -> io::Result<Side<UnixStream, UnixStream>> {
    both_ways(UnixStream::connect(place(directory))?)
}

/// A request server as people write it: a thread for each connection, which ends with its client.
pub struct Pool;

impl Server for Pool {}

pub fn pool(directory: &Path, service: Service) -> io::Result<Pool> {
    let listener = UnixListener::bind(place(directory))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = move || both_ways(stream)?.with(service).serve(u32::MAX, CLOCK_BYTES);
            std::thread::spawn(serve);
        }
    });
    Ok(Pool)
}

/// A socket of packets: one message goes in and comes out whole.
fn packet_socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::SEQPACKET, None)
}

fn packets(socket: Socket) -> io::Result<Side<Socket, Socket>> {
    Ok(Side::new(socket.try_clone()?, socket))
}

pub fn listen_packets(directory: &Path) -> io::Result<Accept> {
    let listener = packet_socket()?;
    listener.bind(&SockAddr::unix(place(directory))?)?;
    listener.listen(1)?;
    Ok(Box::new(move || Ok(Box::new(packets(listener.accept()?.0)?))))
}

pub fn connect_packets(directory: &Path) -> io::Result<Side<Socket, Socket>> {
    let socket = packet_socket()?;
    socket.connect(&SockAddr::unix(place(directory))?)?;
    packets(socket)
}
