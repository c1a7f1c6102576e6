//! The memory of the receive buffer: the engine writes it, the program reads it.

use super::open_error::OpenError;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_shm::mapping::{self, Mapping, View};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The receive buffer of one engine.
#[derive(Debug)]
pub struct ReceiveBuffer {
    memory: Mapping<MAX_PAYLOAD_BYTES>,
    file: OwnedFd,
    /// The address of the program's map; 0 before there is one.
    program_map: AtomicUsize,
}

impl ReceiveBuffer {
    pub(crate) fn new() -> Result<ReceiveBuffer, OpenError> {
        let system = |operation| move |errno| OpenError::System { operation, errno };
        let (file, memory) =
            mapping::create_mapped("binder").map_err(system("memfd_create, mmap"))?;
        // The program may map it to read, and nothing else.
        mapping::forbid_new_writers(&file).map_err(system("fcntl"))?;
        Ok(ReceiveBuffer { memory, file, program_map: AtomicUsize::new(0) })
    }

    /// The bytes.
    #[inline(always)]
    pub fn view(&self) -> View<'_> {
        self.memory.view()
    }

    /// Wipes the memory of a buffer that has been freed, if its sender has asked for that: as
    /// [`State::free`](baton_state::State::free) has said.
    pub fn wipe(&self, freed: Option<(usize, usize)>) {
        if let Some((offset, bytes)) = freed {
            self.view().zero(offset, bytes);
        }
    }

    /// The file, of which the program maps a part.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The address of the program's map; 0 before there is one.
    pub(crate) fn program_map(&self) -> usize {
        self.program_map.load(Ordering::Acquire)
    }

    /// The program's map is at this address. True if there was none before.
    pub(crate) fn set_program_map(&self, address: usize) -> bool {
        self.program_map.swap(address, Ordering::AcqRel) == 0
    }

    /// Locks the first bytes in memory, in the engine's map and in the program's.
    pub(crate) fn lock_in_memory(&self, bytes: usize) -> Result<(), Errno> {
        self.view().lock_in_memory(0, bytes)?;
        let program_map = self.program_map();
        if program_map != 0 {
            // The program states this address, so nothing is asserted of it.
            let _ = mapping::lock_in_memory_at(program_map, bytes);
        }
        Ok(())
    }
}
