//! Records by system calls: a datagram to a process that reads them, which is logd's way, a pipe
//! with a reader, and
//! `/dev/null`.

use crate::log::messages::TAG;
use crate::service::now_ns;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// As liblog tells it to logd: buffer, thread, and time.
const HEADER_BYTES: usize = 11;
const INFO: u8 = 4;

pub fn read_datagrams(place: &Path, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let socket = UnixDatagram::bind(place)?;
    ready()?;
    let mut record = [0; 5000];
    loop {
        std::hint::black_box(socket.recv(&mut record)?);
    }
}

/// The other end of a pipe.
pub fn read_pipe(place: &Path, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )?;
    // Of a reader alone, opening would wait; and it is to outlast its writers.
    let mut pipe = File::options().read(true).write(true).open(place)?;
    ready()?;
    let mut bytes = vec![0; 64 * 1024];
    loop {
        std::hint::black_box(pipe.read(&mut bytes)?);
    }
}

/// Writes records as datagrams. It waits where the reader is behind, and so loses none.
pub fn datagrams(place: &Path) -> io::Result<impl FnMut(&'static [u8]) + Send + use<>> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(place)?;
    let socket = File::from(std::os::fd::OwnedFd::from(socket));
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u16;
    Ok(move |text: &'static [u8]| {
        let now_ns = now_ns();
        let mut header = [0; HEADER_BYTES];
        header[1..3].copy_from_slice(&thread.to_le_bytes());
        header[3..7].copy_from_slice(&((now_ns / 1_000_000_000) as u32).to_le_bytes());
        header[7..].copy_from_slice(&((now_ns % 1_000_000_000) as u32).to_le_bytes());
        put(&socket, &[&header, &[INFO], TAG.to_bytes_with_nul(), text, b"\0"]);
    })
}

/// Writes records to a file, as the paper's program did to the kernel's log.
pub fn file(path: &Path) -> io::Result<impl FnMut(&'static [u8]) + Send + use<>> {
    let file = File::from(rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?);
    Ok(move |text: &'static [u8]| put(&file, &[&[INFO], TAG.to_bytes_with_nul(), text]))
}

fn put<const N: usize>(mut file: &File, parts: &[&[u8]; N]) {
    let written = file.write_vectored(&parts.map(IoSlice::new)).expect("its reader is there");
    assert_eq!(written, parts.iter().map(|part| part.len()).sum::<usize>());
}
