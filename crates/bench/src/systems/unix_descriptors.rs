//! A stream socket whose messages carry a descriptor each (SCM_RIGHTS).

use crate::case::Case;
use crate::object_client::{self, ObjectClient};
use crate::payload;
use crate::system::{Accept, Consume, Server};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// For two descriptors.
const ROOM_BYTES: usize = rustix::cmsg_space!(ScmRights(2));

struct DescriptorCaller {
    stream: UnixStream,
    descriptor: OwnedFd,
    reply: Vec<u8>,
}

struct DescriptorServer {
    stream: UnixStream,
    request: Vec<u8>,
}

fn place(directory: &Path) -> PathBuf {
    directory.join("descriptors")
}

pub fn connect(directory: &Path) -> io::Result<Box<dyn ObjectClient>> {
    let stream = UnixStream::connect(place(directory))?;
    let descriptor = object_client::descriptor()?;
    Ok(Box::new(DescriptorCaller { stream, descriptor, reply: Vec::new() }))
}

pub fn listen(directory: &Path) -> io::Result<Accept> {
    let listener = UnixListener::bind(place(directory))?;
    Ok(Box::new(move || {
        let (stream, _) = listener.accept()?;
        Ok(Box::new(DescriptorServer { stream, request: Vec::new() }))
    }))
}

/// Sends all of a message, with one or two descriptors or none.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); ROOM_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// A message's length, and the descriptors that come with it.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); ROOM_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let iov = &mut [IoSliceMut::new(bytes)];
    let n_bytes = recvmsg(socket, iov, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    Ok((n_bytes, descriptors))
}

impl ObjectClient for DescriptorCaller {
    fn call(&mut self, case: Case, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        if case != Case::Descriptor {
            return Err(io::ErrorKind::Unsupported.into());
        }
        send(&self.stream, request, &[self.descriptor.as_fd()])?;
        self.reply.resize(request.len(), 0);
        self.stream.read_exact(&mut self.reply)?;
        consume(&self.reply);
        Ok(())
    }
}

impl Server for DescriptorServer {
    fn serve(&mut self, n_calls: u32, payload_bytes: usize) -> io::Result<()> {
        let before = object_client::open_descriptors()?;
        self.request.resize(payload_bytes, 0);
        for _ in 0..n_calls {
            let (n_bytes, descriptors) = receive(&self.stream, &mut self.request)?;
            if n_bytes != payload_bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            payload::check(&self.request).ok_or(io::ErrorKind::InvalidData)?;
            let [descriptor] = &descriptors[..] else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not one descriptor"));
            };
            let _ = descriptor;
            drop(descriptors);
            self.stream.write_all(&self.request)?;
        }
        let left = object_client::open_descriptors()? - before;
        if left == 0 { Ok(()) } else { Err(io::Error::other("descriptors stay open")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_goes_with_its_bytes() {
        let (here, there) = UnixStream::pair().unwrap();
        let descriptor = object_client::descriptor().unwrap();
        send(&here, b"word", &[descriptor.as_fd()]).unwrap();
        let mut bytes = [0; 4];
        let (n_bytes, came) = receive(&there, &mut bytes).unwrap();
        assert_eq!((n_bytes, &bytes), (4, b"word"));
        let [came] = &came[..] else { panic!("{came:?}") };
        rustix::io::write(came, &7_u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        rustix::io::read(&descriptor, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 7, "both are one eventfd");
        (&here).write_all(b"none").unwrap();
        assert!(receive(&there, &mut bytes).unwrap().1.is_empty());
    }
}
