//! Fuzzes two devices that communicate with command buffers: commands in any order, with valid and
//! invalid names, and buffers that contain no commands.

use super::input::Input;
use super::machine::{MAP_BYTES, Opened, new_context, parse};
use super::parcel_objects::objects;
use baton_abi::uapi::*;
use bytemuck::{bytes_of, pod_read_unaligned};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};

const MOST_STEPS: usize = 40;

const PLAIN: [u32; 6] = [
    BC_REGISTER_LOOPER,
    BC_ENTER_LOOPER,
    BC_EXIT_LOOPER,
    BC_ACQUIRE_RESULT,
    BC_ATTEMPT_ACQUIRE,
    BC_DEAD_BINDER_DONE,
];
const COUNTS: [u32; 4] = [BC_INCREFS, BC_ACQUIRE, BC_RELEASE, BC_DECREFS];
const LISTENS: [u32; 4] = [
    BC_REQUEST_DEATH_NOTIFICATION,
    BC_CLEAR_DEATH_NOTIFICATION,
    BC_REQUEST_FREEZE_NOTIFICATION,
    BC_CLEAR_FREEZE_NOTIFICATION,
];
const IOCTLS: [u32; 12] = [
    BINDER_SET_MAX_THREADS,
    BINDER_SET_CONTEXT_MGR,
    BINDER_THREAD_EXIT,
    BINDER_VERSION,
    BINDER_GET_NODE_DEBUG_INFO,
    BINDER_GET_NODE_INFO_FOR_REF,
    BINDER_SET_CONTEXT_MGR_EXT,
    BINDER_GET_FROZEN_INFO,
    BINDER_ENABLE_ONEWAY_SPAM_DETECTION,
    BINDER_GET_EXTENDED_ERROR,
    BINDER_SET_IDLE_TIMEOUT,
    BINDER_CTL_ADD,
];

/// A device, and the names that its program has received.
struct Party {
    opened: Opened,
    buffers: Vec<u64>,
    acks: Vec<(u32, PtrCookie)>,
    cookies: Vec<u64>,
    null: OwnedFd,
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let context = new_context();
    let mut parties = [(); 2].map(|()| Party::new(&context));
    parties[0].opened.become_manager();
    for _ in 0..MOST_STEPS {
        if input.is_over() {
            return;
        }
        let party = &mut parties[input.below(2)];
        if input.u8() < 16 {
            party.other_ioctl(&mut input);
        } else {
            party.exchange(&mut input);
        }
    }
}

impl Party {
    fn new(context: &str) -> Party {
        let null = std::fs::File::open("/dev/null").expect("/dev/null").into();
        let opened = Opened::new(context);
        let (buffers, acks, cookies) = Default::default();
        Party { opened, buffers, acks, cookies, null }
    }

    fn other_ioctl(&self, input: &mut Input<'_>) {
        let mut argument = [0u64; 40];
        for word in argument.iter_mut().take(4) {
            *word = input.small();
        }
        let address = argument.as_mut_ptr() as usize;
        let address = if input.u8() < 240 { address } else { input.small() as usize };
        let _ = self.opened.device.ioctl(input.pick(&IOCTLS), address, true);
    }

    fn exchange(&mut self, input: &mut Input<'_>) {
        let mut commands = Vec::new();
        // Memory that transactions point to, kept until the ioctl is over.
        let mut payloads = Vec::new();
        for _ in 0..input.below(5) {
            self.command(input, &mut commands, &mut payloads);
        }
        if input.u8() > 240 {
            let cut = input.below(64);
            commands.extend_from_slice(input.bytes(cut));
        }
        let room = input.pick(&[0, 256, 256, 1024, 128, 20]);
        let returns = self.opened.exchange(&commands, room);
        for (command, payload) in parse(&returns) {
            self.heed(command, payload);
        }
    }

    fn command(
        &mut self,
        input: &mut Input<'_>,
        out: &mut Vec<u8>,
        payloads: &mut Vec<(Vec<u8>, Vec<u64>)>,
    ) {
        match input.below(12) {
            0 => put(out, input.pick(&PLAIN), &input.u64().to_le_bytes()),
            1 | 2 => put(out, input.pick(&COUNTS), &(input.small() as u32).to_le_bytes()),
            3 => {
                let cookie = HandleCookie { handle: input.small() as u32, cookie: input.small() };
                put(out, input.pick(&LISTENS), bytes_of(&cookie));
            }
            4 | 5 => {
                let known = self.buffers.pop().filter(|_| input.u8() < 240);
                put(out, BC_FREE_BUFFER, &known.unwrap_or_else(|| input.u64()).to_le_bytes());
            }
            6 => match self.acks.pop() {
                Some((command, node)) => put(out, command, bytes_of(&node)),
                None => {
                    let node = PtrCookie { ptr: input.small(), cookie: input.small() };
                    put(out, BC_ACQUIRE_DONE, bytes_of(&node));
                }
            },
            7 => {
                let cookie = self.cookies.pop().unwrap_or_else(|| input.small());
                let done = input.pick(&[BC_DEAD_BINDER_DONE, BC_FREEZE_NOTIFICATION_DONE]);
                put(out, done, &cookie.to_le_bytes());
            }
            _ => self.transaction(input, out, payloads),
        }
    }

    fn transaction(
        &self,
        input: &mut Input<'_>,
        out: &mut Vec<u8>,
        payloads: &mut Vec<(Vec<u8>, Vec<u64>)>,
    ) {
        let (mut bytes, offsets) = objects(input);
        self.name_our_descriptor(&mut bytes, &offsets);
        let transaction = TransactionData {
            target: if input.u8() < 128 { 0 } else { input.small() },
            cookie: 0,
            code: input.u32(),
            flags: input.pick(&[
                0,
                TF_ACCEPT_FDS,
                TF_ONE_WAY,
                TF_ONE_WAY | TF_UPDATE_TXN,
                u32::MAX,
            ]),
            sender_pid: 0,
            sender_euid: 0,
            data_size: if input.u8() < 250 { bytes.len() as u64 } else { input.u64() },
            offsets_size: if input.u8() < 250 { offsets.len() as u64 * 8 } else { input.small() },
            buffer: if input.u8() < 250 { bytes.as_ptr() as u64 } else { input.small() },
            offsets: offsets.as_ptr() as u64,
        };
        payloads.push((bytes, offsets));
        let buffers_size = input.small().wrapping_mul(8);
        match input.below(4) {
            0 => put(out, BC_REPLY, bytes_of(&transaction)),
            1 => put(out, BC_TRANSACTION, bytes_of(&transaction)),
            other => {
                let scattered = TransactionDataSg { transaction, buffers_size };
                let command = if other == 2 { BC_TRANSACTION_SG } else { BC_REPLY_SG };
                put(out, command, bytes_of(&scattered));
            }
        }
    }

    /// Descriptors in a transaction are this program's own, or invalid.
    fn name_our_descriptor(&self, bytes: &mut [u8], offsets: &[u64]) {
        for &at in offsets {
            let at = at as usize;
            let Some(place) = bytes.get_mut(at..at.saturating_add(size_of::<FdObject>())) else {
                continue;
            };
            let mut object: FdObject = pod_read_unaligned(place);
            if object.kind == BINDER_TYPE_FD {
                object.fd = if object.fd.is_multiple_of(2) {
                    self.null.as_raw_fd() as u64
                } else {
                    1 << 20
                };
                place.copy_from_slice(bytes_of(&object));
            }
        }
    }

    fn heed(&mut self, command: u32, payload: &[u8]) {
        match command {
            BR_TRANSACTION | BR_REPLY | BR_TRANSACTION_SEC_CTX => {
                let size = size_of::<TransactionData>();
                let transaction: TransactionData = pod_read_unaligned(&payload[..size]);
                self.buffers.push(transaction.buffer);
                self.look_at_place(&transaction, payload.get(size..));
                self.close_descriptors(&transaction);
            }
            BR_INCREFS => self.acks.push((BC_INCREFS_DONE, pod_read_unaligned(payload))),
            BR_ACQUIRE => self.acks.push((BC_ACQUIRE_DONE, pod_read_unaligned(payload))),
            BR_DEAD_BINDER => self.cookies.push(pod_read_unaligned(payload)),
            BR_FROZEN_BINDER => self.cookies.push(pod_read_unaligned(&payload[..8])),
            _ => {}
        }
    }

    /// The message lies in the map, with all of its data and offsets.
    fn look_at_place(&self, transaction: &TransactionData, label: Option<&[u8]>) {
        let label = label.filter(|label| label.len() == 8).map(pod_read_unaligned);
        let range = self.opened.device.message_range(transaction, label);
        let at = |address: u64| (address - self.opened.map.address() as u64) as usize;
        assert_eq!(range.start, at(transaction.buffer));
        assert!(at(transaction.buffer + transaction.data_size) <= range.end);
        assert!(at(transaction.offsets + transaction.offsets_size) <= range.end);
        assert!(range.end <= MAP_BYTES);
    }

    fn close_descriptors(&self, transaction: &TransactionData) {
        let map = &self.opened.map;
        let from = transaction.buffer as usize - map.address();
        let offsets = transaction.offsets as usize - map.address();
        for at in (offsets..offsets + transaction.offsets_size as usize).step_by(8) {
            let (mut offset, mut object) = ([0; 8], [0; size_of::<FdObject>()]);
            map.view().read(at, &mut offset);
            let offset = u64::from_ne_bytes(offset) as usize;
            assert!(offset + object.len() <= transaction.data_size as usize + 24);
            map.view().read(from + offset, &mut object);
            let object: FdObject = pod_read_unaligned(&object);
            if object.kind == BINDER_TYPE_FD {
                // SAFETY: the driver has just installed it for this program.
                drop(unsafe { OwnedFd::from_raw_fd(object.fd as i32) });
            }
        }
    }
}

/// Appends a command with the payload of its size.
fn put(out: &mut Vec<u8>, command: u32, payload: &[u8]) {
    out.extend_from_slice(&command.to_le_bytes());
    let bytes = payload_bytes(command).min(payload.len());
    out.extend_from_slice(&payload[..bytes]);
}
