//! One open device: the driver's, and what the kernel does not announce of its client.

use crate::client_memory::{self, ClientMemory};
use crate::connection::Connection;
use crate::opener::Opener;
use crate::pages;
use crate::protocol::InHeader;
use crate::traffic::{Client, Counts};
use baton_abi::uapi::{TF_CLEAR_BUF, TransactionData};
use baton_driver::device::{ControlThread, Device, OpenError};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One open device. It is closed with the last reference: each stand-in has one.
#[derive(Debug)]
pub struct OpenedDevice {
    /// The driver's.
    pub device: Arc<Device>,
    /// The user by which the last thread accessed files that made an ioctl.
    last_user: AtomicU32,
    /// Whether the program had O_NONBLOCK when that was last looked at.
    nonblocking: AtomicBool,
    /// The kernel's number of the receive buffer's file, if maps are passed through to it.
    pub backing: Option<i32>,
    /// The process that has opened it.
    pub opener: Opener,
    /// The broker's name of the context.
    pub context: String,
    /// Commands and returns, where they are counted.
    pub counts: Counts,
    inode: u64,
    /// The file system's device number.
    file_system: (u32, u32),
    is_mapped: AtomicBool,
    /// The client's descriptors in arrays of a message, by the address of its buffer: they are
    /// closed when the client frees it.
    arrays: Mutex<HashMap<u64, Vec<i32>>>,
    /// Places of messages whose bytes are to be cleared when the client frees them, by the
    /// addresses of their buffers.
    secrets: Mutex<HashMap<u64, Range<usize>>>,
}

impl OpenedDevice {
    /// A context that was opened on behalf of the process that makes this request, the opener.
    /// `register` gives the receive buffer's file to the kernel, if maps are to be
    /// passed through to it. A thread has to run the control thread. `EPERM` if the server may not
    /// read the opener's memory.
    pub fn open(
        driver: Result<(Arc<Device>, ControlThread), OpenError>,
        context: &str,
        opener: Opener,
        header: InHeader,
        flags: u32,
        file_system: (u32, u32),
        register: impl FnOnce(&Device) -> Result<Option<i32>, Errno>,
    ) -> Result<(OpenedDevice, ControlThread), Errno> {
        let accessible = ClientMemory::of(header.tid).check();
        accessible.map_err(|(call, errno)| {
            tracing::warn!(
                process = opener.pid,
                user = header.uid,
                "cannot open a device: {call}: {errno}. A program of another user, or with rights \
                 that this server lacks, needs a server with CAP_SYS_PTRACE"
            );
            errno
        })?;
        let (device, control) = driver.map_err(|error| {
            tracing::warn!(process = opener.pid, context, "cannot open a device: {error}");
            error.errno()
        })?;
        let backing = register(&device)?;
        let opened = OpenedDevice {
            device,
            last_user: AtomicU32::new(header.uid),
            nonblocking: AtomicBool::new(flags & libc::O_NONBLOCK.cast_unsigned() != 0),
            backing,
            opener,
            context: context.to_owned(),
            counts: Counts::default(),
            inode: header.node,
            file_system,
            is_mapped: AtomicBool::new(false),
            arrays: Mutex::default(),
            secrets: Mutex::default(),
        };
        Ok((opened, control))
    }

    /// Looks for the client's map of the device, unless it is known: an `mmap` is not announced.
    pub fn find_map(&self) {
        if self.is_mapped.load(Ordering::Acquire) {
            return;
        }
        let found = client_memory::find_map(self.opener.pid, self.inode, self.file_system);
        if let Some((address, bytes)) = found {
            self.device.mapped(address, bytes);
            self.is_mapped.store(true, Ordering::Release);
        }
    }

    /// Has the client find the receive buffer's bytes of this range in its map.
    pub fn show(&self, connection: &Connection, range: Range<usize>) {
        if self.backing.is_none() {
            let read = |at, bytes: &mut [u8]| self.device.read_receive_buffer(at, bytes);
            pages::store(connection, self.inode, range, read);
        }
    }

    /// Has the client find this message in its map.
    pub fn show_message(
        &self,
        connection: &Connection,
        told: &TransactionData,
        label: Option<u64>,
    ) {
        if self.backing.is_some() {
            return;
        }
        let range = self.device.message_range(told, label);
        if told.flags & TF_CLEAR_BUF != 0 {
            self.secrets().insert(told.buffer, range.clone());
        }
        self.show(connection, range);
    }

    /// Clears a message that the client frees, and the client's copy, if it is to be cleared. To be
    /// called before the driver frees it: then its place may be another message's.
    pub fn hide(&self, connection: &Connection, buffer: u64) {
        let secret = self.secrets().remove(&buffer);
        if let Some(range) = secret {
            // First: a page that the kernel drops from now on is read again without the message.
            self.device.clear_receive_buffer(range.clone());
            self.show(connection, range);
        }
    }

    /// Whether [`OpenedDevice::hide`] has anything to do.
    pub fn has_secrets(&self) -> bool {
        !self.secrets().is_empty()
    }

    fn secrets(&self) -> MutexGuard<'_, HashMap<u64, Range<usize>>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread of the client.
    pub fn client(&self, tid: u32) -> Client<'_> {
        Client { thread: (self.opener.pid, tid), context: &self.context, counts: &self.counts }
    }

    /// The client's descriptors in arrays, by the addresses of buffers.
    pub fn arrays(&self) -> MutexGuard<'_, HashMap<u64, Vec<i32>>> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the user of a thread that makes an ioctl, as the kernel says it with the request. If
    /// it is not that of the last ioctl, the opener may have another user than before: the driver
    /// gets that of the main thread, as in the kernel. An opener that has ended keeps its last one.
    pub fn note_user(&self, user: u32) {
        if self.last_user.load(Ordering::Acquire) != user
            && let Some(effective) = self.opener.user()
        {
            self.device.set_user(effective);
            self.last_user.store(user, Ordering::Release);
        }
    }

    /// Whether an ioctl that a thread of the client begins may not wait. A program that has not
    /// been seen with O_NONBLOCK is not looked at: an ioctl that waits is looked at later.
    pub fn is_nonblocking(&self, tid: u32) -> bool {
        self.nonblocking.load(Ordering::Relaxed) && self.look_at_flags(tid)
    }

    /// Looks whether an ioctl that a thread of the client makes may not wait.
    pub fn look_at_flags(&self, tid: u32) -> bool {
        let before = self.nonblocking.load(Ordering::Relaxed);
        let now = client_memory::is_nonblocking(tid).unwrap_or(before);
        self.nonblocking.store(now, Ordering::Relaxed);
        now
    }
}
