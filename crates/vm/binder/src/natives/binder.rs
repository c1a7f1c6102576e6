//! android.os.Binder and BinderProxy, and what Debug and BinderInternal tell of them

use crate::binders::{destroy_proxy, java_object, open_driver, remote_of};
use crate::calls::{self, CallError, Caller, INTERFACE, PING, UNKNOWN_TRANSACTION};
use crate::classes::{classes, find, throw};
use crate::nodes::nodes;
use crate::parcel::{Object, Parcel};
use crate::parcels::PARCELS;
use crate::remotes::{Linked, RemoteRef, remotes};
use baton_abi::uapi::BC_ENTER_LOOPER;
use baton_vm::globals::Global;
use baton_vm::natives::values::{self, NULL, Outcome, VOID, boolean, non_null, utf16};
use baton_vm::object::Ref;
use baton_vm::stack::{Args, Value};
use baton_vm::vm::{Native, Thread, Thrown};
use std::cell::Cell;

const BINDER: &str = "Landroid/os/Binder;";
const PROXY: &str = "Landroid/os/BinderProxy;";
const DEBUG: &str = "Landroid/os/Debug;";
const INTERNAL: &str = "Lcom/android/internal/os/BinderInternal;";

/// A request of more bytes has failed for its size.
const LARGE_BYTES: usize = 200 << 10;

thread_local! {
    static STRICT_MODE: Cell<i32> = const { Cell::new(0) };
}

pub const TABLE: &[Native] = &[
    (BINDER, "getCallingPid", "()I", |_, _| Ok(Value::Int(calls::caller().pid))),
    (BINDER, "getCallingUid", "()I", |_, _| Ok(Value::Int(calls::caller().uid as i32))),
    (BINDER, "clearCallingIdentity", "()J", |_, _| {
        let Caller { pid, uid } = calls::caller();
        calls::set_caller(None);
        Ok(Value::Long(i64::from(uid) << 32 | i64::from(pid as u32)))
    }),
    (BINDER, "restoreCallingIdentity", "(J)V", |_, a| {
        let token = a.long(0);
        calls::set_caller(Some(Caller { pid: token as i32, uid: (token >> 32) as u32 }));
        VOID
    }),
    (BINDER, "setThreadStrictModePolicy", "(I)V", |_, a| {
        STRICT_MODE.set(a.int(0));
        VOID
    }),
    (BINDER, "getThreadStrictModePolicy", "()I", |_, _| Ok(Value::Int(STRICT_MODE.get()))),
    // No command waits here.
    (BINDER, "flushPendingCommands", "()V", |_, _| VOID),
    (BINDER, "joinThreadPool", "()V", join),
    // A Binder gets a node when a parcel takes it.
    (BINDER, "init", "()V", |t, _| {
        find(t)?;
        VOID
    }),
    (BINDER, "destroy", "()V", |_, _| VOID),
    (PROXY, "pingBinder", "()Z", |t, a| {
        let handle = handle(t, a)?;
        let answer = calls::call(t, handle, PING, 0, &Parcel::default());
        boolean(noted(handle, answer).is_ok())
    }),
    (PROXY, "isBinderAlive", "()Z", |t, a| {
        let remote = remote(t, a)?;
        let is_dead = remotes().is_dead(&remote);
        boolean(!is_dead)
    }),
    (PROXY, "getInterfaceDescriptor", "()Ljava/lang/String;", |t, a| {
        let handle = handle(t, a)?;
        let answer = calls::call(t, handle, INTERFACE, 0, &Parcel::default());
        match noted(handle, answer) {
            Ok(mut reply) => {
                let name = reply.read_string();
                name.map_or(NULL, |name| Ok(Value::Ref(utf16(t, &name)?)))
            }
            Err(CallError::Status(UNKNOWN_TRANSACTION)) => NULL,
            Err(error) => Err(throw_call_error(t, error, 0)),
        }
    }),
    (PROXY, "transact", "(ILandroid/os/Parcel;Landroid/os/Parcel;I)Z", transact),
    (PROXY, "linkToDeath", "(Landroid/os/IBinder$DeathRecipient;I)V", |t, a| {
        let recipient = non_null(t, a.reference(1), "recipient")?;
        let remote = remote(t, a)?;
        let global = Global::new(&t.vm.globals, recipient);
        let own = classes().proxy_self.get_ref(a.reference(0));
        let linked = remotes().link(&remote, own, global);
        match linked {
            Linked::Dead => Err(throw(t, "android/os/DeadObjectException", None)),
            Linked::Done | Linked::Unknown => VOID,
        }
    }),
    (PROXY, "unlinkToDeath", "(Landroid/os/IBinder$DeathRecipient;I)Z", |t, a| {
        let recipient = non_null(t, a.reference(1), "recipient")?;
        let remote = remote(t, a)?;
        let unlinked = remotes().unlink(&remote, recipient);
        match unlinked {
            Linked::Done => boolean(true),
            Linked::Dead => boolean(false),
            Linked::Unknown => {
                let class = "java/util/NoSuchElementException";
                Err(values::throw(t, class, "Death link does not exist"))
            }
        }
    }),
    (PROXY, "destroy", "()V", |_, a| {
        destroy_proxy(a.reference(0));
        VOID
    }),
    (INTERNAL, "joinThreadPool", "()V", join),
    (INTERNAL, "getContextObject", "()Landroid/os/IBinder;", |t, _| {
        find(t)?;
        Ok(Value::Ref(java_object(t, Some(Object::Remote(context_manager(t)?)))?))
    }),
    (DEBUG, "getBinderLocalObjectCount", "()I", |_, _| {
        let count = nodes().len();
        Ok(Value::Int(count as i32))
    }),
    (DEBUG, "getBinderProxyObjectCount", "()I", |_, _| {
        let count = remotes().len();
        Ok(Value::Int(count as i32))
    }),
    (INTERNAL, "disableBackgroundScheduling", "(Z)V", |_, _| VOID),
    (INTERNAL, "handleGc", "()V", |_, _| VOID),
];

/// The context manager.
///
/// # Errors
/// RemoteException if no broker is there.
pub fn context_manager(t: &Thread) -> Result<RemoteRef, Thrown> {
    open_driver(t)?;
    Ok(remotes().get(0))
}

fn join(t: &Thread, _: Args) -> Outcome {
    find(t)?;
    open_driver(t)?;
    calls::serve(t, BC_ENTER_LOOPER);
    VOID
}

/// The remote object of the BinderProxy that is the first argument.
fn remote(t: &Thread, a: Args) -> Result<RemoteRef, Thrown> {
    remote_of(a.reference(0)).ok_or_else(|| finalized(t))
}

/// The handle of the BinderProxy that is the first argument. The proxy has a reference to the
/// object until it is finalized, and is not while this method has it.
fn handle(t: &Thread, a: Args) -> Result<u32, Thrown> {
    let number = classes().proxy_number.get32(a.reference(0));
    RemoteRef::handle_of_number(number).ok_or_else(|| finalized(t))
}

#[cold]
fn finalized(t: &Thread) -> Thrown {
    values::throw(t, "java/lang/IllegalStateException", "the proxy has been finalized")
}

/// Notes that the object of a handle is dead if a call has found so.
fn noted<T>(handle: u32, answer: Result<T, CallError>) -> Result<T, CallError> {
    if matches!(answer, Err(CallError::Dead)) {
        remotes().found_dead(handle);
    }
    answer
}

/// The number of a Parcel's contents.
fn number(parcel: Ref) -> u32 {
    if parcel.is_null() { 0 } else { classes().parcel_number.get32(parcel) }
}

fn transact(t: &Thread, a: Args) -> Outcome {
    let request = non_null(t, a.reference(2), "data")?;
    let (code, flags) = (a.int(1) as u32, a.int(4) as u32);
    let handle = handle(t, a)?;
    // The contents are this call's while it lasts. Their place keeps their number.
    let (number, reply) = (number(request), number(a.reference(3)));
    let taken = PARCELS.with(number, std::mem::take).ok_or_else(|| {
        values::throw(t, "java/lang/IllegalStateException", "the parcel has been recycled")
    })?;
    let answer = noted(handle, calls::transact(t, handle, code, flags, &taken));
    let n_bytes = taken.bytes().len();
    PARCELS.with(number, |place| *place = taken);
    match answer {
        Ok(answer) => {
            let fill = |reply: &mut Parcel| match &answer {
                Some(answer) => calls::receive(answer, reply),
                None => reply.clear(),
            };
            // Without a parcel for it, the answer is received all the same.
            PARCELS.with(reply, fill).unwrap_or_else(|| fill(&mut Parcel::default()));
            boolean(true)
        }
        Err(CallError::Status(UNKNOWN_TRANSACTION)) => boolean(false),
        Err(error) => Err(throw_call_error(t, error, n_bytes)),
    }
}

fn throw_call_error(t: &Thread, error: CallError, request_bytes: usize) -> Thrown {
    const PERMISSION_DENIED: i32 = -1;
    const DEAD_OBJECT: i32 = -32;
    match error {
        CallError::Dead | CallError::Status(DEAD_OBJECT) => {
            throw(t, "android/os/DeadObjectException", None)
        }
        CallError::Failed if request_bytes > LARGE_BYTES => {
            throw(t, "android/os/TransactionTooLargeException", None)
        }
        CallError::Failed => {
            let message = "the driver or the object has refused the transaction";
            throw(t, "android/os/RemoteException", Some(message))
        }
        CallError::Status(PERMISSION_DENIED) => {
            values::throw(t, "java/lang/SecurityException", "the object's process refuses")
        }
        CallError::Status(status) => {
            let message = format!("the object's process answers with status {status}");
            throw(t, "android/os/RemoteException", Some(&message))
        }
    }
}
