//! The descriptors that come for a client with the returns of an ioctl.
//!
//! The driver has installed them here, and their numbers here stand in the receive buffer. The
//! client's thread installs copies when its ioctl is answered, before it goes on ([`injection`]),
//! and the copies' numbers take their place. Until then, and if that fails, the number is -1.
//!
//! Descriptors in an array are the driver's until the client frees the buffer. The thread that
//! frees it closes the client's.

use crate::connection::Connection;
use crate::injection::{self, Seized, Stopped};
use crate::opened_device::OpenedDevice;
use crate::staging::{Staged, items};
use baton_abi::uapi::*;
use baton_driver::device::descriptors::ReceivedDescriptor;
use bytemuck::pod_read_unaligned;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// The descriptors of one ioctl.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// They have come, each with the address of its message's buffer.
    received: Vec<(u64, ReceivedDescriptor)>,
    /// The client's, in arrays of buffers that it has freed.
    freed: Vec<i32>,
}

impl Descriptors {
    /// Notes the buffers that the client has freed by the commands that the driver has taken.
    pub fn note_commands(&mut self, opened: &OpenedDevice, staged: &Staged, taken: u64) {
        let mut arrays = opened.arrays();
        if arrays.is_empty() {
            return;
        }
        for (command, body) in staged.taken(taken) {
            if command == BC_FREE_BUFFER {
                let address: u64 = pod_read_unaligned(body);
                self.freed.extend(arrays.remove(&address).unwrap_or_default());
            }
        }
    }

    /// Notes the descriptors of the messages among returns, and takes their numbers out.
    pub fn note_returns(&mut self, opened: &OpenedDevice, returns: &[u8]) {
        for (number, body) in items(returns) {
            if !matches!(number, BR_TRANSACTION | BR_TRANSACTION_SEC_CTX | BR_REPLY) {
                continue;
            }
            let told: TransactionData = pod_read_unaligned(&body[..size_of::<TransactionData>()]);
            if told.offsets_size == 0 {
                continue;
            }
            for received in opened.device.received_descriptors(&told) {
                opened.device.renumber(&received, -1);
                self.received.push((told.buffer, received));
            }
        }
    }

    /// Answers the ioctl of a client's thread, which has this pidfd and installs and closes
    /// descriptors before it goes on.
    pub fn answer(
        &mut self,
        connection: &Connection,
        opened: &OpenedDevice,
        (tid, pidfd): (u32, BorrowedFd<'_>),
        answer: impl FnOnce(),
    ) {
        if self.received.is_empty() && self.freed.is_empty() {
            return answer();
        }
        let seized = Seized::seize(tid);
        answer();
        let done = seized.and_then(Seized::stop).and_then(|mut stopped| {
            stopped.close(&self.freed);
            self.install(connection, opened, &mut stopped, pidfd)
        });
        // A client that has been killed needs none.
        if let Err(errno) = done
            && errno != Errno::SRCH
        {
            let (received, freed) = (self.received.len(), self.freed.len());
            tracing::warn!(
                tid,
                received,
                freed,
                "cannot install or close descriptors in a client: {errno}. A program that is \
                 traced by another one gets -1 in place of each"
            );
        }
        let kept = self.received.drain(..).filter(|(_, received)| !received.is_in_array);
        injection::close_here(kept.map(|(_, received)| received.fd));
        self.freed.clear();
    }

    fn install(
        &self,
        connection: &Connection,
        opened: &OpenedDevice,
        stopped: &mut Stopped,
        pidfd: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        if self.received.is_empty() {
            return Ok(());
        }
        let fds: Vec<i32> = self.received.iter().map(|(_, received)| received.fd).collect();
        let installed = stopped.install(pidfd, &fds)?;
        for (&(buffer, received), fd) in self.received.iter().zip(installed) {
            opened.device.renumber(&received, fd);
            opened.show(connection, received.place());
            if received.is_in_array {
                opened.arrays().entry(buffer).or_default().push(fd);
            }
        }
        Ok(())
    }
}
