//! A thread's dialogue with the driver: its calls, what it serves meanwhile, and loopers.
//!
//! Threads wait for the driver as safe threads of the VM. A request is copied into a parcel, Java's
//! `Binder.execTransact` serves it, and the reply goes back from a parcel: two crossings of
//! whatever size.

use crate::classes::classes;
use crate::driver::{self, Brought, Commands, RETURN_BYTES, driver};
use crate::nodes::nodes;
use crate::parcel::{Object, Parcel};
use crate::parcels::PARCELS;
use crate::remotes::remotes;
use baton_abi::uapi::*;
use baton_vm::stack::Value;
use baton_vm::thread::attached;
use baton_vm::vm::{Thread, Vm};
use baton_vm::{natives::values, object::Ref};
use bytemuck::pod_read_unaligned;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A request whether an object is alive.
pub const PING: u32 = u32::from_be_bytes(*b"_PNG");
/// A request for an object's interface.
pub const INTERFACE: u32 = u32::from_be_bytes(*b"_NTF");
/// Flag of a reply that is a status, in place of data.
const TF_STATUS_CODE: u32 = 0x08;
/// The status for a code that an object does not know: -EBADMSG.
pub const UNKNOWN_TRANSACTION: i32 = -74;
/// The stack of a looper, in Rust.
const STACK_BYTES: usize = 4 << 20;

/// Who has called the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The process; 0 for a one-way call
    pub pid: i32,
    /// The user
    pub uid: u32,
}

/// Why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The object's process is gone
    Dead,
    /// The driver refuses the call: too large, or its objects are not what they seem
    Failed,
    /// The object's process answers with a status
    Status(i32),
}

thread_local! {
    static CALLER: Cell<Option<Caller>> = const { Cell::new(None) };
    /// Returns that came together with the end of a message. They are for whoever waits outside of
    /// it: the answer of the call during which this thread has served another one, for instance.
    static LEFT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static EXIT: Exit = const { Exit };
    /// Parcels for requests that this thread will serve.
    static SPARE: RefCell<Vec<Served>> = const { RefCell::new(Vec::new()) };
}

/// Has the driver forget a thread that ends.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        driver().exit_thread();
    }
}

/// Who has called the calling thread: itself if nobody has, or after [`set_caller`].
pub fn caller() -> Caller {
    CALLER.get().unwrap_or_else(|| Caller {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        uid: rustix::process::geteuid().as_raw(),
    })
}

/// Makes another one the caller; None for the thread itself.
pub fn set_caller(caller: Option<Caller>) {
    CALLER.set(caller);
}

/// Opens the driver, and starts the first looper, if that has not happened yet.
///
/// # Errors
/// Why there is no driver, as a text for people.
pub fn open(t: &Thread) -> Result<(), String> {
    if t.safe(driver::open)? {
        start_looper(t.vm, BC_ENTER_LOOPER);
    }
    Ok(())
}

/// Starts a thread that serves.
fn start_looper(vm: &'static Vm, command: u32) {
    static STARTED: AtomicU32 = AtomicU32::new(1);
    let name = format!("Binder_{:X}", STARTED.fetch_add(1, Relaxed));
    let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
    // Without another looper the others serve on, and the driver asks again.
    let _ = builder.spawn(move || attached(vm, &name, |t| serve(t, command)));
}

/// Where an exchange leaves what it has read.
struct Returns {
    fresh: [u8; RETURN_BYTES],
    left: Vec<u8>,
}

impl Returns {
    fn new() -> Returns {
        Returns { fresh: [0; RETURN_BYTES], left: Vec::new() }
    }
}

/// Serves on this thread, as long as the driver works.
pub fn serve(t: &Thread, command: u32) {
    EXIT.with(|_| ());
    let mut commands = Commands::new().bare(command);
    let mut returns = Returns::new();
    loop {
        let Ok(mut rest) = exchange(t, commands.bytes(), &mut returns) else { return };
        while let Some((command, payload)) = next(&mut rest) {
            handle(t, command, payload);
        }
        commands = Commands::new();
    }
}

/// Writes commands, and reads returns: those that are left, or new ones.
fn exchange<'a>(t: &Thread, commands: &[u8], returns: &'a mut Returns) -> Result<&'a [u8], Errno> {
    returns.left = LEFT.take();
    if returns.left.is_empty() {
        let n_bytes = t.safe(|| driver().exchange(commands, &mut returns.fresh))?;
        return Ok(&returns.fresh[..n_bytes]);
    }
    if !commands.is_empty() {
        t.safe(|| driver().exchange(commands, &mut []))?;
    }
    Ok(&returns.left)
}

/// Takes the first return off.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let (command, payload) = rest.split_first_chunk::<4>()?;
    let command = u32::from_ne_bytes(*command);
    let (payload, after) = payload.split_at_checked(payload_bytes(command))?;
    *rest = after;
    Some((command, payload))
}

/// Deals with a return that answers nothing.
fn handle(t: &Thread, command: u32, payload: &[u8]) {
    match command {
        BR_TRANSACTION => t.scope(|| serve_one(t, &pod_read_unaligned(payload))),
        BR_INCREFS | BR_ACQUIRE => {
            let node: PtrCookie = pod_read_unaligned(payload);
            nodes().increase(node.ptr, command == BR_ACQUIRE);
            let done = if command == BR_ACQUIRE { BC_ACQUIRE_DONE } else { BC_INCREFS_DONE };
            Commands::new().node(done, &node).write();
        }
        BR_RELEASE | BR_DECREFS => {
            let node: PtrCookie = pod_read_unaligned(payload);
            let object = nodes().decrease(node.ptr, command == BR_RELEASE);
            drop(object);
        }
        BR_SPAWN_LOOPER => start_looper(t.vm, BC_REGISTER_LOOPER),
        BR_DEAD_BINDER => {
            let cookie = pod_read_unaligned(payload);
            let recipients = remotes().died(cookie);
            for recipient in recipients {
                t.scope(|| {
                    let recipient = t.keep(recipient.get());
                    let notice = classes().send_death_notice;
                    if t.invoke(notice, &[Value::Ref(recipient)]).is_err() {
                        tell_uncaught(t);
                    }
                });
            }
            Commands::new().word(BC_DEAD_BINDER_DONE, cookie).write();
        }
        _ => {}
    }
}

/// Shows an exception that has nowhere to go.
fn tell_uncaught(t: &Thread) {
    let exception = t.take_exception();
    eprintln!("E/Binder: uncaught in a thread that serves:");
    if values::call_on(t, exception, "printStackTrace", "()V", &[]).is_err() {
        t.take_exception();
    }
}

/// Takes a message in, in place of a parcel's contents.
pub fn receive(message: &TransactionData, parcel: &mut Parcel) {
    driver().receive(message, |bytes, brought| {
        let object = |(at, brought)| {
            let object = match brought {
                Brought::Node(number) => Object::Own(nodes().get(number)?),
                Brought::Handle(handle) => Object::Remote(remotes().get(handle)),
                Brought::Descriptor(fd) => Object::Descriptor(fd),
            };
            Some((at, object))
        };
        parcel.refill(bytes, brought.into_iter().filter_map(object));
    });
}

/// The parcels of a request and of its reply, which Java has by their numbers while it serves. A
/// thread keeps them for the next request.
struct Served {
    request: u32,
    reply: u32,
}

impl Served {
    /// Parcels without contents.
    fn obtain() -> Served {
        let new =
            || Served { request: PARCELS.add(Box::default()), reply: PARCELS.add(Box::default()) };
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(new)
    }

    /// Keeps the parcels, without contents. `Binder.execTransact` has had Java's objects forget
    /// their numbers; not if it was left by an Error, and then these see later requests.
    fn recycle(self) {
        for number in [self.request, self.reply] {
            PARCELS.with(number, Parcel::clear);
        }
        SPARE.with_borrow_mut(|spare| spare.push(self));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for number in [self.request, self.reply] {
            drop(PARCELS.remove(number));
        }
    }
}

/// Serves a request by the Java object that it is for.
fn serve_one(t: &Thread, message: &TransactionData) {
    let before = CALLER.replace(Some(Caller { pid: message.sender_pid, uid: message.sender_euid }));
    let parcels = Served::obtain();
    PARCELS.with(parcels.request, |request| receive(message, request));
    let binder = nodes().object(message.target).map(|object| t.keep(object));
    let mut reply = Parcel::default();
    let status = match (message.code, binder) {
        (PING, Some(_)) => {
            reply.write_i32(0);
            0
        }
        (_, Some(binder)) => {
            let status = execute(t, binder, message, &parcels);
            reply = PARCELS.with(parcels.reply, std::mem::take).unwrap_or_default();
            status
        }
        (_, None) => -Errno::NOENT.raw_os_error(),
    };
    if message.flags & TF_ONE_WAY == 0 {
        send_reply(t, &reply, status);
    }
    PARCELS.with(parcels.reply, |place| *place = reply);
    parcels.recycle();
    CALLER.set(before);
}

/// Has Java's Binder serve a request; returns the status.
fn execute(t: &Thread, binder: Ref, message: &TransactionData, parcels: &Served) -> i32 {
    let args = [
        Value::Ref(binder),
        Value::Int(message.code as i32),
        Value::Int(parcels.request as i32),
        Value::Int(parcels.reply as i32),
        Value::Int(message.flags as i32),
    ];
    match t.invoke(classes().exec_transact, &args) {
        Ok(known) if known.int() != 0 => 0,
        Ok(_) => UNKNOWN_TRANSACTION,
        Err(_) => {
            tell_uncaught(t);
            UNKNOWN_TRANSACTION
        }
    }
}

fn send_reply(t: &Thread, reply: &Parcel, status: i32) {
    let status_bytes = status.to_le_bytes();
    let (data, offsets, flags) = match status {
        0 => (reply.bytes(), reply.offsets(), 0),
        _ => (&status_bytes[..], Vec::new(), TF_STATUS_CODE),
    };
    let message = TransactionData::outgoing(0, 0, flags, data, &offsets);
    // The driver tells a caller that gets no reply, for instance because it is too large.
    let _ = converse(t, &Commands::new().message(BC_REPLY, &message), false);
}

/// Calls the remote object of a handle, and serves what the call causes here. Returns the answer's
/// contents: none for a one-way call.
///
/// # Errors
/// Why there is no answer.
pub fn call(
    t: &Thread,
    handle: u32,
    code: u32,
    flags: u32,
    request: &Parcel,
) -> Result<Parcel, CallError> {
    let mut reply = Parcel::default();
    if let Some(answer) = transact(t, handle, code, flags, request)? {
        receive(&answer, &mut reply);
    }
    Ok(reply)
}

/// Calls as [`call`] does, and leaves the answer in the receive buffer, for the caller to
/// [`receive`].
///
/// # Errors
/// As [`call`].
#[must_use = "the answer keeps its buffer until it is received"]
pub fn transact(
    t: &Thread,
    handle: u32,
    code: u32,
    flags: u32,
    request: &Parcel,
) -> Result<Option<TransactionData>, CallError> {
    EXIT.with(|_| ());
    let offsets = request.offsets();
    let flags = flags & TF_ONE_WAY | TF_ACCEPT_FDS;
    let message = TransactionData::outgoing(handle, code, flags, request.bytes(), &offsets);
    let is_two_way = flags & TF_ONE_WAY == 0;
    converse(t, &Commands::new().message(BC_TRANSACTION, &message), is_two_way)
}

/// Writes a transaction or reply, and waits until the driver has taken it, or for its answer.
fn converse(
    t: &Thread,
    commands: &Commands,
    is_two_way: bool,
) -> Result<Option<TransactionData>, CallError> {
    let mut returns = Returns::new();
    let mut commands = commands.bytes();
    let mut ended = None;
    while ended.is_none() {
        let read = exchange(t, commands, &mut returns);
        let mut rest = read.map_err(|_| CallError::Failed)?;
        commands = &[];
        while ended.is_none()
            && let Some((command, payload)) = next(&mut rest)
        {
            match command {
                BR_TRANSACTION_COMPLETE | BR_TRANSACTION_PENDING_FROZEN if !is_two_way => {
                    ended = Some(Ok(None));
                }
                BR_REPLY => ended = Some(answer(pod_read_unaligned(payload))),
                BR_DEAD_REPLY => ended = Some(Err(CallError::Dead)),
                BR_FAILED_REPLY | BR_FROZEN_REPLY => ended = Some(Err(CallError::Failed)),
                _ => handle(t, command, payload),
            }
        }
        if ended.is_some() && !rest.is_empty() {
            // What a message inside of this one has left came later.
            LEFT.with_borrow_mut(|left| left.splice(..0, rest.iter().copied()).for_each(drop));
        }
    }
    ended.expect("the loop ends with it")
}

/// The reply, unless it says nothing but a status.
fn answer(message: TransactionData) -> Result<Option<TransactionData>, CallError> {
    if message.flags & TF_STATUS_CODE == 0 {
        return Ok(Some(message));
    }
    let mut reply = Parcel::default();
    receive(&message, &mut reply);
    match reply.read_i32() {
        0 => Ok(None),
        status => Err(CallError::Status(status)),
    }
}
