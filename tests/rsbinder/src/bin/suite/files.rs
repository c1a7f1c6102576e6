//! File descriptors in transactions.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rsbinder::ParcelFileDescriptor;

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Loopers};
use crate::peer::{self, open_files};

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let (child, peer) = peer::start("suite.files.peer")?;

    step("the service reads one pipe and writes another");
    let (reader, mut writer) = ParcelFileDescriptor::pipe()?;
    let (mut answer, to) = ParcelFileDescriptor::pipe()?;
    writer.write_all(b"there and back")?;
    drop(writer);
    equal("bytes copied", peer.copy(&reader, &to)?, 14)?;
    drop(to);
    let mut text = String::new();
    answer.read_to_string(&mut text)?;
    equal("text", text.as_str(), "there and back")?;

    step("a pipe ends when the service closed its copy");
    let (mut reader, writer) = ParcelFileDescriptor::pipe()?;
    let (empty, closed) = ParcelFileDescriptor::pipe()?;
    drop(closed);
    peer.copy(&empty, &writer)?;
    drop(writer);
    equal("bytes left", reader.read(&mut [0; 8])?, 0)?;

    step("a memfd is shared, not copied");
    let memory = rustix::fs::memfd_create("suite", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory.try_clone()?);
    let memory = ParcelFileDescriptor::new(memory);
    let (reader, mut writer) = ParcelFileDescriptor::pipe()?;
    writer.write_all(b"written by the service")?;
    drop(writer);
    peer.copy(&reader, &memory)?;
    let mut text = String::new();
    // Both descriptors share one position: the service left it after its text.
    equal("rest behind the service's text", file.read_to_string(&mut text)?, 0)?;
    std::io::Seek::rewind(&mut file)?;
    file.read_to_string(&mut text)?;
    equal("text", text.as_str(), "written by the service")?;

    step("a descriptor arrives to be closed on exec");
    let (reader, writer) = rustix::pipe::pipe()?;
    for end in [reader, writer] {
        holds("close on exec", peer.closesOnExec(&ParcelFileDescriptor::new(end))?)?;
    }

    step("a socket from the service");
    let mut socket = std::fs::File::from(OwnedFd::from(peer.socket()?));
    socket.write_all(b"HAL")?;
    let mut bytes = [0; 3];
    socket.read_exact(&mut bytes)?;
    equal("answer", &bytes, b"IBM")?;
    drop(socket);

    step("nothing is left open");
    let (own, theirs) = (open_files()?, peer.openFiles()?);
    for _ in 0..500 {
        let (reader, writer) = ParcelFileDescriptor::pipe()?;
        drop(writer);
        let (_kept, to) = ParcelFileDescriptor::pipe()?;
        equal("bytes copied", peer.copy(&reader, &to)?, 0)?;
        holds("close on exec", peer.closesOnExec(&reader)?)?;
    }
    equal("own open files", open_files()?, own)?;
    let now = peer.openFiles()?;
    // The thread behind `socket` may have closed its end meanwhile.
    holds(&format!("the service had {theirs} files open and has {now}"), now <= theirs)?;
    child.end()
}
