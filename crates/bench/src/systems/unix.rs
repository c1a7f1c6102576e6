//! Local sockets, of a stream and of packets.

use super::stream::Side;
use crate::service::{CLOCK_BYTES, Service};
use crate::system::{Accept, Server};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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
pub fn pool(directory: &Path, service: Service) -> io::Result<()> {
    let listener = UnixListener::bind(place(directory))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = move || both_ways(stream)?.with(service).serve(u32::MAX, CLOCK_BYTES);
            std::thread::spawn(serve);
        }
    });
    Ok(())
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
