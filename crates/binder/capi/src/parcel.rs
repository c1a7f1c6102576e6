//! Data to send.

use crate::reference::{baton_handle, baton_object};
use crate::{given, given_mut, guard, guard_or, take_back};
use baton::{Parcel, Process};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Bytes to send, and objects among them.
#[derive(Default)]
pub struct baton_parcel {
    parcel: Parcel,
    /// The process whose objects and handles the parcel contains.
    process: Option<Arc<Process>>,
}

impl baton_parcel {
    /// The parcel, for sending by `process`. `EINVAL` if it contains another process's objects or
    /// handles.
    pub(crate) fn for_process(&self, process: &Arc<Process>) -> Result<&Parcel, Errno> {
        let theirs = self.process.as_ref().is_none_or(|of| Arc::ptr_eq(of, process));
        if theirs { Ok(&self.parcel) } else { Err(Errno::INVAL) }
    }

    /// The parcel that a handler has filled. Errors are those of [`baton_parcel::for_process`].
    pub(crate) fn into_parcel(self, process: &Arc<Process>) -> Result<Parcel, Errno> {
        self.for_process(process)?;
        Ok(self.parcel)
    }

    fn belongs_to(&mut self, process: &Arc<Process>) -> Result<&mut Parcel, Errno> {
        self.for_process(process)?;
        self.process.get_or_insert_with(|| Arc::clone(process));
        Ok(&mut self.parcel)
    }
}

/// Creates an empty parcel. Returns null only if there is a bug.
#[unsafe(no_mangle)]
pub extern "C" fn baton_parcel_new() -> *mut baton_parcel {
    guard_or(null_mut(), || Box::into_raw(Box::default()))
}

/// Frees a parcel with its descriptors and references.
///
/// # Safety
/// `parcel` is null or from `baton_parcel_new`, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_parcel_free(parcel: *mut baton_parcel) {
    // SAFETY: by this function's contract.
    unsafe { take_back(parcel) }
}

/// Appends bytes.
///
/// # Safety
/// `parcel` is null or from this library; `data` is null or has `size` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_parcel_write(
    parcel: *mut baton_parcel,
    data: *const c_void,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let parcel = unsafe { given_mut(parcel)? };
        if data.is_null() || size > isize::MAX as usize {
            return Err(Errno::INVAL);
        }
        // SAFETY: readable by this function's contract, and bytes have no invalid value.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
        parcel.parcel.write(bytes);
        Ok(0)
    })
}

/// Appends an object of the process that will send the parcel, padding the bytes before it to a
/// multiple of 4.
///
/// # Safety
/// Both are null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_parcel_write_object(
    parcel: *mut baton_parcel,
    object: *const baton_object,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (parcel, object) = unsafe { (given_mut(parcel)?, given(object)?) };
        let parcel = parcel.belongs_to(&object.process)?;
        match &object.counted {
            Some(counted) => parcel.write_counted_object(counted),
            None => parcel.write_object(object.object),
        };
        Ok(0)
    })
}

/// Appends a reference to an object of another process, padding as for an object. The handle may
/// be freed at once.
///
/// # Safety
/// Both are null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_parcel_write_handle(
    parcel: *mut baton_parcel,
    handle: *const baton_handle,
) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let (parcel, handle) = unsafe { (given_mut(parcel)?, given(handle)?) };
        parcel.belongs_to(&handle.process)?.write_handle(&handle.handle);
        Ok(0)
    })
}

/// Appends a duplicate of a descriptor, padding as for an object. The caller keeps its own.
///
/// # Safety
/// `parcel` is null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_parcel_write_fd(parcel: *mut baton_parcel, fd: c_int) -> c_int {
    guard(|| {
        // SAFETY: by this function's contract.
        let parcel = unsafe { given_mut(parcel)? };
        if fd < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: only duplicated, at once; a closed number is EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        parcel.parcel.write_owned_fd(rustix::io::fcntl_dupfd_cloexec(fd, 0)?);
        Ok(0)
    })
}
