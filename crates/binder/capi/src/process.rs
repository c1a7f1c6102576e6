//! Contexts, objects, calls, serving, deaths.

use crate::parcel::baton_parcel;
use crate::received::baton_received;
use crate::reference::{baton_handle, baton_object, baton_process};
use crate::{give, given, given_mut, guard, guard_or, take_back};
use baton::service_manager::Found;
use baton::socket_path;
use baton::{CallError, NameError, Process, Received, SchedPriority, ServiceManager};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Serves one transaction: fills `reply` and returns 0, or returns a negative errno, which the
/// caller gets in place of the reply. For a one-way transaction both are discarded.
///
/// Runs on any serving thread, possibly on several at a time. `request` and `reply` are valid until
/// the function returns, and must not be freed. The function must return: no longjmp, no exception.
pub type baton_handler = Option<
    unsafe extern "C" fn(
        request: *const baton_received,
        reply: *mut baton_parcel,
        user: *mut c_void,
    ) -> c_int,
>;

/// Runs once after a death, on a serving thread. Must return: no longjmp, no exception.
pub type baton_recipient = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Checks that this process opened the context. `EBADF` in a child of fork.
fn check_not_inherited(process: &Process) -> Result<(), Errno> {
    if process.is_inherited() { Err(Errno::BADF) } else { Ok(()) }
}

/// Runs once after an object has ended, when no handler of it runs: on a serving thread, or in the
/// call that has ended the object. Must return: no longjmp, no exception.
pub type baton_ended = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// The C program's own pointer, passed to its functions.
struct User {
    pointer: *mut c_void,
    ended: baton_ended,
}

impl User {
    fn get(&self) -> *mut c_void {
        self.pointer
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(ended) = self.ended {
            // SAFETY: by `baton_add_object_with`'s contract; this is its last use of the pointer.
            unsafe { ended(self.pointer) }
        }
    }
}

// SAFETY: the pointer is only passed to functions that the header allows to run on any thread.
unsafe impl Send for User {}
// SAFETY: as above, on several threads at a time.
unsafe impl Sync for User {}

/// Opens a context ("binder", "hwbinder", "vndbinder" or one that was added) at the broker that
/// listens at `socket`. Null: at `$BATON_SOCKET`, or else at the user's or the system's broker.
///
/// # Safety
/// `context` is a C string, `socket` is null or one, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_open(
    context: *const c_char,
    socket: *const c_char,
    out: *mut *mut baton_process,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let out = unsafe { given_mut(out)? };
        if context.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: a C string, by this function's contract.
        let context = unsafe { CStr::from_ptr(context) }.to_str().map_err(|_| Errno::INVAL)?;
        let socket = if socket.is_null() {
            socket_path(rustix::process::geteuid().as_raw())
        } else {
            // SAFETY: a C string, by this function's contract.
            let bytes = unsafe { CStr::from_ptr(socket) }.to_bytes();
            Path::new(OsStr::from_bytes(bytes)).to_owned()
        };
        let process = Process::open(context, &socket).map_err(|error| error.errno())?;
        Ok(give(out, baton_process { process: Arc::new(process) }))
    })
}

/// Ends the process's part: calls under way and new ones are `-EBADF`, threads that serve return,
/// others see it die. Everything stays valid until it is freed. May be called from a handler. A
/// child of fork does not have what its parent has opened: `-EBADF` from whatever it does with
/// that, but for freeing it.
///
/// # Safety
/// `process` is null or from `baton_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_shut_down(process: *const baton_process) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let process = unsafe { &given(process)?.process };
        check_not_inherited(process)?;
        process.close();
        Ok(0)
    })
}

/// Shuts the process down and frees it. Objects, handles and received data are freed separately,
/// before or after.
///
/// # Safety
/// `process` is null or from `baton_open`, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_close(process: *mut baton_process) {
    // SAFETY: by this function's contract.
    unsafe {
        baton_shut_down(process);
        take_back(process);
    }
}

/// What an object asks for. All zero is what `baton_add_object` takes.
#[repr(C)]
pub struct baton_object_options {
    /// The minimum priority at which its handler runs, whoever calls: SCHED_OTHER with a nice value
    /// of -20 to 19, SCHED_FIFO or SCHED_RR with a priority of 1 to 99. SCHED_OTHER at 0 asks for
    /// nothing. Else `-EINVAL`.
    pub min_policy: c_int,
    /// The nice value or priority.
    pub min_priority: c_int,
    /// Not 0: calls with descriptors are refused.
    pub refuses_descriptors: c_int,
    /// Not null: the object ends when this process has freed the values and the parcels that refer
    /// to it, and other processes their handles, and at the latest with the process. Then this
    /// function runs, after which `user` is not used any more.
    pub ended: baton_ended,
}

impl baton_object_options {
    fn min_priority(&self) -> Result<SchedPriority, Errno> {
        let text = match self.min_policy {
            0 => format!("nice:{}", self.min_priority),
            1 => format!("fifo:{}", self.min_priority),
            2 => format!("rr:{}", self.min_priority),
            _ => return Err(Errno::INVAL),
        };
        text.parse().map_err(|_| Errno::INVAL)
    }
}

/// Adds an object that `handler` serves. It lives until the process is shut down, whether or not
/// the value `*out` is freed; `user` must stay valid until the process is freed.
///
/// # Safety
/// `process` is null or from `baton_open`, `out` is valid, and `handler` is what its type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_add_object(
    process: *const baton_process,
    handler: baton_handler,
    user: *mut c_void,
    out: *mut *mut baton_object,
) -> c_int {
    let options = baton_object_options {
        min_policy: 0,
        min_priority: 0,
        refuses_descriptors: 0,
        ended: None,
    };
    // SAFETY: by this function's contract.
    unsafe { baton_add_object_with(process, &options, handler, user, out) }
}

/// Like `baton_add_object`, with what the object asks for.
///
/// # Safety
/// `process` is null or from `baton_open`, `options` is null or valid, `out` is valid, and
/// `handler` is what its type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_add_object_with(
    process: *const baton_process,
    options: *const baton_object_options,
    handler: baton_handler,
    user: *mut c_void,
    out: *mut *mut baton_object,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (process, out) = unsafe { (&given(process)?.process, given_mut(out)?) };
        // SAFETY: by this function's contract.
        let options = unsafe { given(options)? };
        let (priority, refuses) = (options.min_priority()?, options.refuses_descriptors != 0);
        let handler = handler.ok_or(Errno::INVAL)?;
        check_not_inherited(process)?;
        let (user, is_counted) =
            (User { pointer: user, ended: options.ended }, options.ended.is_some());
        // Weak: the process owns its objects.
        let owner: Weak<Process> = Arc::downgrade(process);
        let builder = process
            .object(move |request| {
                let process = owner.upgrade().ok_or(Errno::NODEV)?;
                let view = baton_received::of_request(request, &process);
                let mut reply = baton_parcel::default();
                // SAFETY: both live until it returns; the rest is `baton_add_object`'s contract.
                let result = unsafe { handler(&view, &mut reply, user.get()) };
                match result {
                    0 => reply.into_parcel(&process),
                    -4095..0 => Err(Errno::from_raw_os_error(-result)),
                    _ => Err(Errno::PROTO),
                }
            })
            .min_priority(priority)
            .accepts_descriptors(!refuses);
        let process = Arc::clone(process);
        Ok(give(
            out,
            match is_counted {
                false => baton_object { object: builder.add(), counted: None, process },
                true => {
                    let counted = builder.add_counted();
                    baton_object { object: counted.object(), counted: Some(counted), process }
                }
            },
        ))
    })
}

/// Frees the value of an object. The object itself stays, unless it was added with a function to
/// run when it has ended, and nobody refers to it any more.
///
/// # Safety
/// `object` is null or from this library, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_object_free(object: *mut baton_object) {
    // SAFETY: by this function's contract.
    unsafe { take_back(object) }
}

/// Makes an object the context manager, which others reach by `baton_context_manager`.
///
/// # Safety
/// `object` is null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_become_context_manager(object: *const baton_object) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let object = unsafe { given(object)? };
        object.process.become_context_manager(object.object).map(|()| 0)
    })
}

/// Publishes an object under a name at its context's service manager, which may be one of Android 9
/// to 16. `-ESRCH` if the context has no manager, `-EACCES` if the manager refuses, `-EPROTO`
/// if it is no service manager.
///
/// # Safety
/// `object` is null or from this library, `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_publish(object: *const baton_object, name: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (object, name) = unsafe { (given(object)?, text(name)?) };
        let manager = ServiceManager::find(&object.process).map_err(name_errno)?;
        manager.publish(name, object.object).map(|()| 0).map_err(name_errno)
    })
}

/// A handle to the service of a name. `-ENOENT` if the service manager knows none that is a Binder
/// object, `-EINVAL` if the service or the service manager is an object of this process; else
/// errors as of `baton_publish`.
///
/// # Safety
/// `process` is null or from `baton_open`, `name` is null or a C string, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_find(
    process: *const baton_process,
    name: *const c_char,
    out: *mut *mut baton_handle,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (process, name, out) =
            unsafe { (&given(process)?.process, text(name)?, given_mut(out)?) };
        let manager = ServiceManager::find(process).map_err(name_errno)?;
        let handle = match manager.check(name).map_err(name_errno)? {
            Found::Service(handle) => handle,
            Found::Own(_) => return Err(Errno::INVAL),
            Found::Elsewhere | Found::Nothing => return Err(Errno::NOENT),
        };
        Ok(give(out, baton_handle { handle, process: Arc::clone(process) }))
    })
}

fn name_errno(error: NameError) -> Errno {
    match error {
        NameError::Call(error) => error.errno(),
        NameError::Refused { .. } => Errno::ACCESS,
        _ => Errno::PROTO,
    }
}

/// The text that a pointer points to; `EINVAL` if it is null or not UTF-8.
///
/// # Safety
/// It is null or a C string, for as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Errno> {
    if text.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: a C string, by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Errno::INVAL)
}

/// A handle to the context manager's object; `-ESRCH` if the context has none, `-EINVAL` if it is
/// this process.
///
/// # Safety
/// `process` is null or from `baton_open`, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_context_manager(
    process: *const baton_process,
    out: *mut *mut baton_handle,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (process, out) = unsafe { (&given(process)?.process, given_mut(out)?) };
        let handle = process.context_manager().map_err(CallError::errno)?;
        Ok(give(out, baton_handle { handle, process: Arc::clone(process) }))
    })
}

/// One more handle to the same object.
///
/// # Safety
/// `handle` is null or from this library, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_handle_clone(
    handle: *const baton_handle,
    out: *mut *mut baton_handle,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (from, out) = unsafe { (given(handle)?, given_mut(out)?) };
        check_not_inherited(&from.process)?;
        let (handle, process) = (from.handle.clone(), Arc::clone(&from.process));
        Ok(give(out, baton_handle { handle, process }))
    })
}

/// Releases the reference and frees the handle.
///
/// # Safety
/// `handle` is null or from this library, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_handle_free(handle: *mut baton_handle) {
    // SAFETY: by this function's contract.
    unsafe { take_back(handle) }
}

/// Makes a two-way transaction and waits for the reply, which goes to `*out`. Meanwhile this thread
/// serves the nested calls that the call causes in this process. Signals do not end the wait.
/// `-EPIPE` if the target dies.
///
/// # Safety
/// `handle` and `parcel` are null or from this library, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_call(
    handle: *const baton_handle,
    code: u32,
    parcel: *const baton_parcel,
    out: *mut *mut baton_received,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (to, parcel, out) = unsafe { (given(handle)?, given(parcel)?, given_mut(out)?) };
        let parcel = parcel.for_process(&to.process)?;
        Ok(give_reply(out, to, to.handle.call(code, parcel).map_err(CallError::errno)?))
    })
}

/// Like `baton_call`, for at most so many nanoseconds: then `-ETIMEDOUT`. The object may still
/// serve the transaction; its answer is dropped when it comes. A process has at most 1,024 calls to
/// another one open, those that were given up included: the next one fails.
///
/// # Safety
/// `handle` and `parcel` are null or from this library, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_call_within(
    handle: *const baton_handle,
    code: u32,
    parcel: *const baton_parcel,
    longest_ns: u64,
    out: *mut *mut baton_received,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (to, parcel, out) = unsafe { (given(handle)?, given(parcel)?, given_mut(out)?) };
        let parcel = parcel.for_process(&to.process)?;
        let longest = Duration::from_nanos(longest_ns);
        let received = to.handle.call_within(code, parcel, longest).map_err(CallError::errno)?;
        Ok(give_reply(out, to, received))
    })
}

fn give_reply(out: &mut *mut baton_received, to: &baton_handle, received: Received<'_>) -> c_int {
    // The handle may be freed before the answer.
    let received = received.borrowed_from(&to.process);
    // SAFETY: borrowed from the process, which is handed over with it.
    let received = unsafe { baton_received::of_reply(received, &to.process) };
    give(out, received)
}

/// A one-way transaction: returns when the target has it or will have it, without an answer.
///
/// # Safety
/// `handle` and `parcel` are null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_one_way(
    handle: *const baton_handle,
    code: u32,
    parcel: *const baton_parcel,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (to, parcel) = unsafe { (given(handle)?, given(parcel)?) };
        let parcel = parcel.for_process(&to.process)?;
        to.handle.one_way(code, parcel).map(|()| 0).map_err(CallError::errno)
    })
}

/// Serves transactions on this thread, beside other serving threads, until the process is shut
/// down. Then returns `-EBADF`.
///
/// # Safety
/// `process` is null or from `baton_open`, and valid when this begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_serve(process: *const baton_process) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract. The count keeps the process, as `baton_close` may
        // free the pointer while this thread waits.
        let process = Arc::clone(&unsafe { given(process)? }.process);
        Err(process.serve())
    })
}

/// Calls `recipient` once after the death of the handle's owner, or soon if it is already dead. The
/// request ends if this process frees its last handle to the object before.
///
/// # Safety
/// `handle` is null or from this library, `recipient` is what its type says, and `user` stays
/// valid until it has been called or the process is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_link_to_death(
    handle: *const baton_handle,
    recipient: baton_recipient,
    user: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let to = unsafe { given(handle)? };
        let recipient = recipient.ok_or(Errno::INVAL)?;
        check_not_inherited(&to.process)?;
        let user = User { pointer: user, ended: None };
        to.handle.link_to_death(move || {
            guard_or((), || {
                // SAFETY: `baton_link_to_death`'s contract.
                unsafe { recipient(user.get()) }
            });
        });
        Ok(0)
    })
}
