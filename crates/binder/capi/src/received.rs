//! Received data: a reply, which belongs to the caller, or a request, which a handler may read.

use crate::reference::{baton_handle, baton_object};
use crate::{give, given, given_mut, guard, guard_or, take_back};
use baton::{Process, Received, Request};
use rustix::fd::IntoRawFd;
use rustix::io::Errno;
use std::ffi::c_int;
use std::ptr::null;
use std::sync::Arc;

/// A received reply or request in its buffer.
pub struct baton_received {
    // Dropped before the process that it borrows from.
    view: View,
    process: Arc<Process>,
}

enum View {
    /// The real lifetime is that of `process` beside it.
    Reply(Received<'static>),
    /// Valid until the handler returns, like the whole value.
    Request(*const Request<'static>),
}

impl baton_received {
    /// # Safety
    /// `received` borrows from `process`.
    pub(crate) unsafe fn of_reply(received: Received<'_>, process: &Arc<Process>) -> Self {
        // SAFETY: the borrowed data lies in the Arc's allocation, which does not move. The Arc is
        // dropped after the view, by the order of the fields.
        let received = unsafe { std::mem::transmute::<Received<'_>, Received<'static>>(received) };
        baton_received { view: View::Reply(received), process: Arc::clone(process) }
    }

    /// The view of a request, which must be dropped before the request.
    pub(crate) fn of_request(request: &Request<'_>, process: &Arc<Process>) -> Self {
        let request = std::ptr::from_ref(request).cast();
        baton_received { view: View::Request(request), process: Arc::clone(process) }
    }

    fn request(&self) -> Result<&Request<'_>, Errno> {
        match &self.view {
            View::Reply(_) => Err(Errno::INVAL),
            // SAFETY: this value is a local of the frame that lends the request to the handler.
            View::Request(request) => Ok(unsafe { &**request }),
        }
    }

    fn received(&self) -> &Received<'_> {
        match &self.view {
            View::Reply(received) => received,
            // SAFETY: as in `request`.
            View::Request(request) => unsafe { &(**request).received },
        }
    }
}

/// Address of the data, 8-byte aligned. Valid until `received` is freed or the handler returns.
///
/// # Safety
/// `received` is null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_data(received: *const baton_received) -> *const u8 {
    guard_or(null(), || {
        // SAFETY: by this function's contract.
        let received = unsafe { given(received) };
        received.map_or(null(), |received| received.received().data().as_ptr())
    })
}

/// Size of the data in bytes; 0 for null.
///
/// # Safety
/// `received` is null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_size(received: *const baton_received) -> usize {
    guard_or(0, || {
        // SAFETY: by this function's contract.
        let received = unsafe { given(received) };
        received.map_or(0, |received| received.received().data().len())
    })
}

/// Code of a request; 0 for a reply or null.
///
/// # Safety
/// `request` is null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_code(request: *const baton_received) -> u32 {
    guard_or(0, || {
        // SAFETY: by this function's contract.
        let request = unsafe { given(request) }.and_then(baton_received::request);
        request.map_or(0, Request::code)
    })
}

/// Flags: `enum transaction_flags` of linux/android/binder.h; 0 for null.
///
/// # Safety
/// `received` is null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_flags(received: *const baton_received) -> u32 {
    guard_or(0, || {
        // SAFETY: by this function's contract.
        let received = unsafe { given(received) };
        received.map_or(0, |received| received.received().flags())
    })
}

/// Process id (0 for a one-way transaction) and effective user id of a request's sender, as the
/// kernel reported them when that process opened the context. `-EINVAL` for a reply.
///
/// # Safety
/// `request` is null or from this library; `pid` and `uid` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_sender(
    request: *const baton_received,
    pid: *mut u32,
    uid: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (request, pid, uid) = unsafe { (given(request)?, given_mut(pid)?, given_mut(uid)?) };
        (*pid, *uid) = request.request()?.sender();
        Ok(0)
    })
}

/// The object with this index as a handle to another process's object. Indices count from 0 in the
/// sender's order, including descriptors.
///
/// # Safety
/// `received` is null or from this library, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_handle(
    received: *const baton_received,
    index: usize,
    out: *mut *mut baton_handle,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (received, out) = unsafe { (given(received)?, given_mut(out)?) };
        let handle = received.received().handle(index).ok_or(Errno::NOENT)?;
        Ok(give(out, baton_handle { handle, process: Arc::clone(&received.process) }))
    })
}

/// The object with this index as one of this process's own, which has returned.
///
/// # Safety
/// `received` is null or from this library, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_object(
    received: *const baton_received,
    index: usize,
    out: *mut *mut baton_object,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (received, out) = unsafe { (given(received)?, given_mut(out)?) };
        let object = received.received().own_object(index).ok_or(Errno::NOENT)?;
        Ok(give(
            out,
            baton_object { object, counted: None, process: Arc::clone(&received.process) },
        ))
    })
}

/// A duplicate of the descriptor with this index, close-on-exec, which the caller has to close.
/// `-ENOENT` if there is none, or if this process has no free descriptor.
///
/// # Safety
/// `received` is null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_fd(received: *const baton_received, index: usize) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let received = unsafe { given(received)? };
        let fd = received.received().fd(index).ok_or(Errno::NOENT)?;
        Ok(fd.into_raw_fd())
    })
}

/// Frees a reply with its buffer. Must not be called for a request, which is valid only until its
/// handler returns.
///
/// # Safety
/// `received` is null or from `baton_call`, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_received_free(received: *mut baton_received) {
    // SAFETY: by this function's contract.
    unsafe { take_back(received) }
}
