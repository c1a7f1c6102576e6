//! The process's driver: one opened device with its receive buffer, for all threads.
//!
//! Commands go in and returns come out as libbinder has them. The device is a library of this
//! process, so that an exchange is a function call. A message is copied out of the receive buffer,
//! which is then free.

use baton_abi::uapi::*;
use baton_driver::device::Device;
use bytemuck::{bytes_of, bytes_of_mut, pod_read_unaligned};
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

/// The size of the receive buffer, as Android's processes have it.
pub const RECEIVE_BYTES: usize = (1 << 20) - 2 * 4096;
/// Loopers that the driver may ask for, as Android's processes allow.
const MAX_LOOPERS: u32 = 15;
/// Room for returns of one exchange.
pub const RETURN_BYTES: usize = 256;
/// Room for the commands of most exchanges: two of them, one with a message.
const COMMANDS_BYTES: usize = 96;

/// The driver of the process.
#[derive(Debug)]
pub struct Driver {
    device: Arc<Device>,
    /// The address of the map of the receive buffer, which stays
    map: usize,
}

/// An object that a message has brought.
#[derive(Debug)]
pub enum Brought {
    /// A node of this process, by its number
    Node(u64),
    /// A handle
    Handle(u32),
    /// A descriptor
    Descriptor(OwnedFd),
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
static OPENING: Mutex<()> = Mutex::new(());
static SOCKET: OnceLock<PathBuf> = OnceLock::new();

/// Says where the broker listens, once.
pub fn set_socket(socket: PathBuf) {
    SOCKET.get_or_init(|| socket);
}

/// The driver that [`open`] has opened.
///
/// # Panics
/// Before that.
pub fn driver() -> &'static Driver {
    DRIVER.get().expect("a thread has opened it")
}

/// Opens the driver once. True for the caller who has opened it.
///
/// # Errors
/// Why there is no driver, as a text for people.
pub fn open() -> Result<bool, String> {
    if DRIVER.get().is_some() {
        return Ok(false);
    }
    let _opening = OPENING.lock().expect("no holder panics");
    if DRIVER.get().is_some() {
        return Ok(false);
    }
    let socket = SOCKET.get().expect("the natives were registered");
    let at = |error: &dyn std::fmt::Display| format!("the broker at {}: {error}", socket.display());
    let device = Device::open("binder", socket).map_err(|error| at(&error))?;
    let bytes = device.before_map(RECEIVE_BYTES, false).map_err(|error| at(&error))?;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new map at an address that the kernel chooses.
    let map =
        unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, device.file(), 0) };
    let map = map.map_err(|error| at(&error))?.expose_provenance();
    device.mapped(map, bytes);
    let driver = Driver { device, map };
    driver.control(BINDER_SET_MAX_THREADS, &mut MAX_LOOPERS.to_ne_bytes());
    DRIVER.set(driver).expect("the lock is held");
    Ok(true)
}

impl Driver {
    fn control(&self, request: u32, argument: &mut [u8]) {
        let address = argument.as_mut_ptr().expose_provenance();
        // The requests that this module makes fail only once the device is closed: never.
        let _ = self.device.ioctl(request, address, false);
    }

    /// Writes commands, and waits for returns if there is room for any; `returns` has so many bytes
    /// of them. Signals interrupt nothing.
    ///
    /// # Errors
    /// The driver's: a bug of this crate.
    pub fn exchange(&self, commands: &[u8], returns: &mut [u8]) -> Result<usize, Errno> {
        let mut exchange = WriteRead {
            write_size: commands.len() as u64,
            write_consumed: 0,
            write_buffer: commands.as_ptr().expose_provenance() as u64,
            read_size: returns.len() as u64,
            read_consumed: 0,
            read_buffer: returns.as_mut_ptr().expose_provenance() as u64,
        };
        loop {
            let address = bytes_of_mut(&mut exchange).as_mut_ptr().expose_provenance();
            match self.device.ioctl(BINDER_WRITE_READ, address, false) {
                Ok(_) => return Ok(exchange.read_consumed as usize),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Takes a message in. `keep` gets its data, and its objects by their offsets in ascending
    /// order, and counts the objects. Then the message's buffer is free for the driver, which gets
    /// it back with the thread's next [`Commands::new`], or when another message comes.
    pub fn receive(
        &self,
        message: &TransactionData,
        keep: impl FnOnce(&[u8], Vec<(usize, Brought)>),
    ) {
        // SAFETY: the buffer is given back below.
        let (data, offsets) = unsafe {
            (
                self.delivered(message.buffer, message.data_size),
                self.delivered(message.offsets, message.offsets_size),
            )
        };
        let mut offsets: Vec<u64> =
            offsets.chunks_exact(size_of::<u64>()).map(pod_read_unaligned).collect();
        offsets.sort_unstable();
        keep(data, offsets.into_iter().filter_map(|at| brought_at(data, at as usize)).collect());
        let before = FREED.replace(message.buffer);
        if before != 0 {
            Commands::default().word(BC_FREE_BUFFER, before).write();
        }
    }

    /// Bytes of a message.
    ///
    /// # Safety
    /// The driver has delivered the message, and does not get its buffer back while the slice is in
    /// use.
    unsafe fn delivered<'a>(&self, address: u64, n_bytes: u64) -> &'a [u8] {
        let (offset, n_bytes) = ((address as usize).wrapping_sub(self.map), n_bytes as usize);
        if n_bytes == 0 {
            return &[];
        }
        let fits = offset <= RECEIVE_BYTES && n_bytes <= RECEIVE_BYTES - offset;
        assert!(fits, "the driver's messages lie in the receive buffer");
        let from: *const u8 = std::ptr::with_exposed_provenance(self.map + offset);
        // SAFETY: the range lies in the map, which stays. The driver writes to no buffer that it
        // has delivered and that it has not got back, and peers never map it.
        unsafe { std::slice::from_raw_parts(from, n_bytes) }
    }

    /// The calling thread uses the driver no longer.
    pub fn exit_thread(&self) {
        Commands::new().write();
        self.control(BINDER_THREAD_EXIT, &mut [0; 4]);
    }
}

/// The object at a place in a message.
fn brought_at(data: &[u8], at: usize) -> Option<(usize, Brought)> {
    let flat = data.get(at..at.checked_add(size_of::<FlatObject>())?)?;
    let flat: FlatObject = pod_read_unaligned(flat);
    let brought = match flat.kind {
        BINDER_TYPE_BINDER => Brought::Node(flat.binder),
        BINDER_TYPE_HANDLE => Brought::Handle(flat.binder as u32),
        // SAFETY: the driver has installed the descriptor for this message, and closes it never.
        BINDER_TYPE_FD => Brought::Descriptor(unsafe { OwnedFd::from_raw_fd(flat.binder as i32) }),
        _ => return None,
    };
    Some((at, brought))
}

thread_local! {
    /// The buffer of the last message of this thread, until it is freed. 0 for none.
    static FREED: Cell<u64> = const { Cell::new(0) };
}

/// Commands that wait for nothing.
#[derive(Debug, Default)]
pub struct Commands(Vec<u8>);

impl Commands {
    /// None, but for what frees the buffer of the last message of this thread.
    pub fn new() -> Commands {
        let none = Commands(Vec::with_capacity(COMMANDS_BYTES));
        match FREED.take() {
            0 => none,
            address => none.word(BC_FREE_BUFFER, address),
        }
    }

    fn add(mut self, command: u32, payload: &[u8]) -> Commands {
        self.0.extend_from_slice(&command.to_ne_bytes());
        self.0.extend_from_slice(payload);
        self
    }

    /// Adds a command without payload.
    pub fn bare(self, command: u32) -> Commands {
        self.add(command, &[])
    }

    /// Adds a command about a handle.
    pub fn handle(self, command: u32, handle: u32) -> Commands {
        self.add(command, &handle.to_ne_bytes())
    }

    /// Adds a command with an address or a cookie.
    pub fn word(self, command: u32, word: u64) -> Commands {
        self.add(command, &word.to_ne_bytes())
    }

    /// Adds an acknowledgement about a node.
    pub fn node(self, command: u32, node: &PtrCookie) -> Commands {
        self.add(command, bytes_of(node))
    }

    /// Adds a command about a notice of a death.
    pub fn death(self, command: u32, handle: u32, cookie: u64) -> Commands {
        let payload = [&handle.to_ne_bytes()[..], &cookie.to_ne_bytes()].concat();
        self.add(command, &payload)
    }

    /// Adds a transaction or reply, whose data and offsets outlive the exchange.
    pub fn message(self, command: u32, message: &TransactionData) -> Commands {
        self.add(command, bytes_of(message))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Writes them to the driver.
    pub fn write(self) {
        // A handle that the driver does not know any more is the only thing that it refuses here,
        // and then there is nothing left to do.
        let _ = driver().exchange(&self.0, &mut []);
    }
}

/// A duplicate of a descriptor that a Java object names by its number.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn duplicate_of(number: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the number is not -1, and the borrow ends at once. One that is not open gets EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_dupfd_cloexec(fd, 0)
}
