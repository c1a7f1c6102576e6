//! A stream socket whose messages carry a descriptor each (SCM_RIGHTS).

use crate::case::Case;
use crate::object_client::{self, ObjectClient};
use crate::payload;
use crate::system::Consume;
use crate::system::{Accept, Server};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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

/// Sends all of it, with the descriptor.
fn send(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Fills the room, and tells the descriptors that came.
fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let wanted = bytes.len();
    let iov = &mut [IoSliceMut::new(bytes)];
    let came = recvmsg(stream.as_fd(), iov, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if came.bytes != wanted {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    Ok(descriptors)
}

impl ObjectClient for DescriptorCaller {
    fn call(&mut self, case: Case, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        if case != Case::Descriptor {
            return Err(io::ErrorKind::Unsupported.into());
        }
        send(&self.stream, request, self.descriptor.as_fd())?;
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
            let descriptors = receive(&self.stream, &mut self.request)?;
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
        send(&here, b"word", descriptor.as_fd()).unwrap();
        let mut bytes = [0; 4];
        let came = receive(&there, &mut bytes).unwrap();
        assert_eq!(&bytes, b"word");
        let [came] = &came[..] else { panic!("{came:?}") };
        rustix::io::write(came, &7_u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        rustix::io::read(&descriptor, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 7, "both are one eventfd");
        (&here).write_all(b"none").unwrap();
        assert!(receive(&there, &mut bytes).unwrap().is_empty());
    }
}
