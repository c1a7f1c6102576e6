//! A thread that stands in for a thread of a client: the driver takes the calling thread for the
//! program's.
//!
//! This thread makes its client's ioctls one after the other, waits in the driver where the client
//! would wait in the kernel, and leaves the driver (BINDER_THREAD_EXIT) when its client has ended.
//! A client makes one request at a time.

use crate::account::Share;
use crate::client_memory::ClientMemory;
use crate::client_priority::ClientPriority;
use crate::descriptors::Descriptors;
use crate::opened_device::OpenedDevice;
use crate::pending::Waiter;
use crate::protocol::{IoctlOut, PollOut};
use crate::shared::Shared;
use crate::staging::{Sender, Staged, items};
use crate::traffic::ThreadTraffic;
use crate::watches::{PollWatch, is_readable};
use baton_abi::uapi::*;
use bytemuck::{bytes_of, pod_read_unaligned};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, channel};

/// Bytes of returns that one ioctl gives at most. A program that has room for more asks again.
const MOST_RETURNS: usize = 64 * 1024;

/// Bytes of the largest argument, and more.
const ARGUMENT_BYTES: usize = 512;

/// One request of a client.
#[derive(Debug)]
pub enum Task {
    /// An ioctl, with the argument's bytes, and room for so many in the answer.
    Ioctl {
        /// The request's number at the kernel.
        unique: u64,
        /// The user by which the client's thread accesses files.
        user: u32,
        /// The ioctl.
        request: u32,
        /// The argument.
        data: Vec<u8>,
        /// Room in the answer.
        out_bytes: usize,
    },
    /// Whether the device is readable.
    Poll {
        /// The request's number at the kernel.
        unique: u64,
        /// The kernel's number of the open file.
        kernel_handle: u64,
        /// Whether the kernel is to be notified once the device is readable.
        notify: bool,
    },
}

/// A stand-in, as those see it who give it tasks. It ends when this is dropped.
#[derive(Debug)]
pub struct ClientThread {
    tasks: mpsc::Sender<Task>,
    waiter: Arc<Waiter>,
}

impl ClientThread {
    /// Starts a stand-in for a thread of this id and pidfd. Its user has taken the share.
    pub fn start(
        shared: &Arc<Shared>,
        opened: &Arc<OpenedDevice>,
        (tid, pidfd): (u32, Arc<OwnedFd>),
        share: Share,
    ) -> Result<ClientThread, Errno> {
        let (tasks, received) = channel();
        let (shared, opened) = (Arc::clone(shared), Arc::clone(opened));
        let waiter = Arc::new(Waiter::new(Arc::clone(&opened), tid));
        let its = Arc::clone(&waiter);
        let stand_in = StandIn {
            shared,
            opened,
            tid,
            pidfd,
            share,
            waiter: its,
            priority: ClientPriority::of(tid),
            descriptors: Descriptors::default(),
            traffic: ThreadTraffic::default(),
            nonblocking: false,
            returned_to: None,
            poll: None,
        };
        std::thread::Builder::new()
            .name("binderfs-client".to_owned())
            .spawn(move || stand_in.run(&received))
            .map_err(|_| Errno::NOMEM)?;
        Ok(ClientThread { tasks, waiter })
    }

    /// Gives the stand-in a task.
    pub fn give(&self, task: Task) {
        // A stand-in that has panicked answers nothing more: the unmount ends its client's wait.
        let _ = self.tasks.send(task);
    }

    /// The stand-in as one that waits.
    pub fn waiter(&self) -> Arc<Waiter> {
        Arc::clone(&self.waiter)
    }
}

struct StandIn {
    shared: Arc<Shared>,
    opened: Arc<OpenedDevice>,
    /// The client's thread.
    tid: u32,
    pidfd: Arc<OwnedFd>,
    /// The share that its user has taken for it.
    share: Share,
    waiter: Arc<Waiter>,
    priority: ClientPriority,
    descriptors: Descriptors,
    traffic: ThreadTraffic,
    /// Whether the ioctl under way was known to have O_NONBLOCK when it began.
    nonblocking: bool,
    /// The read buffer to which the last returns were written: it can be written.
    returned_to: Option<u64>,
    poll: Option<PollWatch>,
}

impl StandIn {
    fn run(mut self, tasks: &Receiver<Task>) {
        self.waiter.runs();
        while let Ok(task) = tasks.recv() {
            match task {
                Task::Ioctl { unique, user, request, data, out_bytes } => {
                    self.opened.note_user(user);
                    if self.priority.take_over(&self.shared.urgency) {
                        baton_driver::device::priorities_change();
                    }
                    self.nonblocking = self.opened.is_nonblocking(self.tid);
                    self.ioctl(unique, request, data, out_bytes);
                }
                Task::Poll { unique, kernel_handle, notify } => {
                    match self.poll(kernel_handle, notify) {
                        Ok(events) => {
                            let answer =
                                PollOut { events: u32::from(events), ..PollOut::default() };
                            self.shared.connection.answer(unique, &[bytes_of(&answer)]);
                        }
                        Err(errno) => self.shared.connection.refuse(unique, errno),
                    }
                }
            }
        }
        let mut nothing = [0u8; ARGUMENT_BYTES];
        let _ = self.drive(BINDER_THREAD_EXIT, &mut nothing);
        // The number of a thread that has ended is another one's some day.
        if is_readable(&self.pidfd) == Ok(false) {
            self.priority.give_back(&self.shared.urgency);
        }
        self.shared.urgency.note(None);
        if let Some(poll) = self.poll.take() {
            self.shared.watches.forget_poll(&poll);
        }
    }

    /// An ioctl of the driver, by the address of the argument's copy.
    fn drive(&self, request: u32, argument: &mut [u8]) -> Result<(), Errno> {
        let address = argument.as_mut_ptr() as usize;
        self.opened.device.ioctl(request, address, self.nonblocking).map(|_| ())
    }

    fn ioctl(&mut self, unique: u64, request: u32, mut data: Vec<u8>, out_bytes: usize) {
        self.opened.find_map();
        data.resize(ARGUMENT_BYTES.max(data.len()).max(out_bytes), 0);
        let mut result = if request == BINDER_WRITE_READ {
            let mut exchange: WriteRead = pod_read_unaligned(&data[..size_of::<WriteRead>()]);
            let result = self.write_read(&mut exchange);
            data[..size_of::<WriteRead>()].copy_from_slice(bytes_of(&exchange));
            result
        } else {
            if request == BINDER_SET_CONTEXT_MGR_EXT && !self.shared.installs_fds {
                let mut node: FlatObject = pod_read_unaligned(&data[..size_of::<FlatObject>()]);
                node.flags &= !FLAT_BINDER_FLAG_ACCEPTS_FDS;
                data[..size_of::<FlatObject>()].copy_from_slice(bytes_of(&node));
            }
            self.drive(request, &mut data)
        };
        self.priority.give_back(&self.shared.urgency);
        self.shared.pending.end(unique);
        if self.waiter.take_may_not_wait() && result == Err(Errno::INTR) {
            result = Err(Errno::AGAIN);
        }
        // The kernel copies the argument back whatever the result, as Binder's driver does.
        let result = result.err().map_or(0, |errno| -errno.raw_os_error());
        let answer = IoctlOut { result, ..IoctlOut::default() };
        let connection = &self.shared.connection;
        let answer = || _ = connection.answer(unique, &[bytes_of(&answer), &data[..out_bytes]]);
        let client = (self.tid, self.pidfd.as_fd());
        self.descriptors.answer(connection, &self.opened, client, answer);
    }

    fn sender(&self) -> Sender<'_> {
        Sender {
            memory: ClientMemory::of(self.tid),
            pidfd: self.pidfd.as_fd(),
            accepts_fds: self.shared.installs_fds,
            share: &self.share,
        }
    }

    fn write_read(&mut self, exchange: &mut WriteRead) -> Result<(), Errno> {
        let memory = ClientMemory::of(self.tid);
        while exchange.write_consumed < exchange.write_size {
            let address = exchange.write_buffer.wrapping_add(exchange.write_consumed);
            let left = exchange.write_size - exchange.write_consumed;
            let staged = Staged::copy(self.sender(), address, left);
            let is_last = staged.bytes == left;
            let (taken, result) = if is_last {
                self.exchange(memory, &staged, exchange)
            } else {
                self.exchange(memory, &staged, &mut WriteRead { read_size: 0, ..*exchange })
            };
            exchange.write_consumed += taken;
            if is_last {
                return result;
            }
            if let Err(errno) = result {
                exchange.read_consumed = 0;
                return Err(errno);
            }
            if taken < staged.bytes {
                // A transaction has failed: the rest waits until its return is read.
                break;
            }
        }
        // The driver hears of an exchange of nothing, too: a thread's first ioctl makes it known.
        self.exchange(memory, &Staged::default(), exchange).1
    }

    /// Has the driver take these commands and give returns, which are then written to the client.
    /// Returns how many bytes of the commands it has taken, and notes those of returns.
    fn exchange(
        &mut self,
        memory: ClientMemory,
        staged: &Staged,
        exchange: &mut WriteRead,
    ) -> (u64, Result<(), Errno>) {
        let consumed = usize::try_from(exchange.read_consumed).unwrap_or(usize::MAX);
        let room = usize::try_from(exchange.read_size).unwrap_or(usize::MAX);
        let mut returns = vec![0; room.min(MOST_RETURNS)];
        // As in the kernel: the first return is written before any wait, and nothing is taken for a
        // buffer that cannot be written. A program that unmaps the buffer between two ioctls loses
        // returns, as if it did so during a wait.
        let first = if consumed == 0 { &BR_NOOP.to_ne_bytes()[..] } else { &[] };
        let first = &first[..first.len().min(returns.len())];
        let is_known = self.returned_to.take() == Some(exchange.read_buffer);
        let can_read = consumed <= returns.len()
            && (is_known || memory.write(exchange.read_buffer, first).is_ok());
        let own = WriteRead {
            write_size: staged.bytes,
            write_consumed: 0,
            write_buffer: staged.address(),
            read_size: if can_read { returns.len() as u64 } else { 0 },
            read_consumed: exchange.read_consumed,
            read_buffer: returns.as_mut_ptr() as u64,
        };
        let mut argument = [0u8; size_of::<WriteRead>()];
        argument.copy_from_slice(bytes_of(&own));
        if let Some(traffic) = &self.shared.traffic {
            let (client, device) = (self.opened.client(self.tid), &self.opened.device);
            let commands = staged.taken(staged.bytes);
            self.traffic.begin(traffic, client, commands, |handle| device.node_of(handle));
        }
        if self.opened.has_secrets() {
            self.hide_freed(staged);
        }
        let result = self.drive(BINDER_WRITE_READ, &mut argument);
        let own: WriteRead = pod_read_unaligned(&argument);
        let taken = own.write_consumed;
        if let Some(traffic) = &self.shared.traffic {
            let commands = staged.taken(taken);
            self.traffic.take(traffic, self.opened.client(self.tid), commands, taken);
        }
        self.descriptors.note_commands(&self.opened, staged, taken);
        if room == 0 || !can_read {
            let unread = if room == 0 { Ok(()) } else { Err(Errno::FAULT) };
            return (taken, result.and(unread));
        }
        exchange.read_consumed = own.read_consumed;
        let filled = returns.get(consumed..own.read_consumed as usize).unwrap_or_default();
        self.descriptors.note_returns(&self.opened, filled);
        self.show_messages(filled);
        if let Some(traffic) = &self.shared.traffic {
            let (client, device) = (self.opened.client(self.tid), &self.opened.device);
            self.traffic.get(traffic, client, items(filled), || device.last_failure());
        }
        let address = exchange.read_buffer.wrapping_add(consumed as u64);
        let mut written = memory.write(address, filled);
        // The driver asks for a looper at the front of the buffer, wherever the returns begin.
        let front = &returns[..4.min(returns.len())];
        if consumed > 0 && front == BR_SPAWN_LOOPER.to_ne_bytes() {
            written = written.and_then(|()| memory.write(exchange.read_buffer, front));
        }
        self.returned_to = written.is_ok().then_some(exchange.read_buffer);
        (taken, result.and(written))
    }

    /// Clears the client's copies of messages that it frees and that are to be cleared.
    fn hide_freed(&self, staged: &Staged) {
        for (command, body) in staged.taken(staged.bytes) {
            if command == BC_FREE_BUFFER {
                self.opened.hide(&self.shared.connection, pod_read_unaligned(body));
            }
        }
    }

    /// Has the client find the messages of these returns in its map.
    fn show_messages(&self, returns: &[u8]) {
        for (number, body) in items(returns) {
            let (transaction, label) = body.split_at(body.len().min(size_of::<TransactionData>()));
            let label = match number {
                BR_TRANSACTION | BR_REPLY => None,
                BR_TRANSACTION_SEC_CTX => Some(pod_read_unaligned(label)),
                _ => continue,
            };
            let transaction = pod_read_unaligned(transaction);
            self.opened.show_message(&self.shared.connection, &transaction, label);
        }
    }

    /// Whether the device is readable for the client. If asked to, the kernel is notified of the
    /// next work, whether or not there is some.
    fn poll(&mut self, kernel_handle: u64, notify: bool) -> Result<bool, Errno> {
        // The driver brings its descriptor up to what this thread has done since the last poll.
        let readable = self.opened.device.readable()?;
        if self.poll.is_none() {
            self.poll = Some(self.shared.watches.add_poll(readable, kernel_handle)?);
        }
        let poll = self.poll.as_ref().expect("just made");
        if notify {
            poll.want();
        }
        poll.is_readable()
    }
}
