//! For tests: a file whose close waits.

use rustix::fd::OwnedFd;
use rustix::net::sockopt::set_socket_linger;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A TCP socket whose last close waits for a minute, or until the other one is closed.
pub(crate) fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    set_socket_linger(&socket, Some(Duration::from_secs(60))).unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 1 << 16]).is_ok() {}
    (socket.into(), other)
}
