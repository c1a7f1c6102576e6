//! What is sent: bytes, and objects at places in them.

use crate::counted_object::CountedObject;
use crate::driver::Driver;
use crate::handle::Handle;
use crate::object::Object;
use baton_abi::uapi::*;
use baton_state::parcel::Few;
use bytemuck::bytes_of;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use smallvec::SmallVec;
use std::sync::Arc;

/// What is sent: bytes, and objects at places in them. It keeps the handles and the descriptors
/// that it was given for itself until it is dropped.
///
/// ```
/// let mut parcel = baton::Parcel::new();
/// parcel.write(&7u32.to_ne_bytes()).write(b"word");
/// assert_eq!(parcel.data().len(), 8);
/// assert!(!parcel.has_objects());
/// ```
#[derive(Clone, Default)]
pub struct Parcel {
    pub(crate) data: SmallVec<[u8; SHORT_BYTES]>,
    pub(crate) objects: Option<Arc<Objects>>,
}

/// A parcel of so few bytes needs no memory of its own, and is moved for next to nothing.
const SHORT_BYTES: usize = 32;

/// Where a parcel's objects stand in its bytes, and what it keeps for them.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    offsets: Few<u64>,
    handles: Few<Handle>,
    others: Vec<Kept>,
}

/// A descriptor or an object that a parcel keeps.
#[derive(Clone)]
enum Kept {
    Fd(Arc<OwnedFd>),
    Counted(CountedObject),
}

impl Parcel {
    /// An empty one.
    pub fn new() -> Parcel {
        Parcel::default()
    }

    /// The bytes so far.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Whether there are objects among the bytes.
    pub fn has_objects(&self) -> bool {
        self.objects.is_some()
    }

    fn object(&self, index: usize) -> Option<FlatObject> {
        let offset = *self.offsets().get(index)? as usize;
        let object = self.data.get(offset..offset + size_of::<FlatObject>())?;
        Some(bytemuck::pod_read_unaligned(object))
    }

    /// The object with this index as the reference that was written. `None` if it is something
    /// else.
    pub fn handle(&self, index: usize) -> Option<Handle> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_HANDLE)?;
        let is_it = |handle: &&Handle| u64::from(handle.number) == object.binder;
        self.objects.iter().flat_map(|objects| &objects.handles).find(is_it).cloned()
    }

    /// A duplicate of the descriptor with this index, if the parcel owns it.
    pub fn owned_fd(&self, index: usize) -> Option<OwnedFd> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_FD)?;
        let fd = self.objects.as_ref()?.others.iter().find_map(|kept| match kept {
            Kept::Fd(fd) if fd.as_raw_fd() as u64 == object.binder => Some(fd),
            _ => None,
        })?;
        rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> &mut Parcel {
        self.data.extend_from_slice(bytes);
        self
    }

    fn objects(&mut self) -> &mut Objects {
        Arc::make_mut(self.objects.get_or_insert_default())
    }

    pub(crate) fn offsets(&self) -> &[u64] {
        self.objects.as_ref().map_or(&[], |objects| &objects.offsets)
    }

    fn write_flat(&mut self, object: &FlatObject) -> &mut Parcel {
        self.data.resize(self.data.len().next_multiple_of(4), 0);
        let at = self.data.len() as u64;
        self.objects().offsets.push(at);
        self.write(bytes_of(object))
    }

    /// Appends an object of this process.
    pub fn write_object(&mut self, object: Object) -> &mut Parcel {
        let (kind, flags) = (BINDER_TYPE_BINDER, object.flags);
        self.write_flat(&FlatObject { kind, flags, binder: object.ptr, cookie: object.cookie })
    }

    /// Like [`Parcel::write_object`], of an object that does not end as long as the parcel has it.
    pub fn write_counted_object(&mut self, object: &CountedObject) -> &mut Parcel {
        self.objects().others.push(Kept::Counted(object.clone()));
        self.write_object(object.object())
    }

    /// Appends a reference to an object of another process.
    pub fn write_handle(&mut self, handle: &Handle) -> &mut Parcel {
        let binder = u64::from(handle.number);
        // The number must not come to mean another object before the parcel is sent.
        self.objects().handles.push(handle.clone());
        self.write_flat(&FlatObject { kind: BINDER_TYPE_HANDLE, flags: 0, binder, cookie: 0 })
    }

    /// Appends a descriptor. It must stay open until the parcel has been sent; for a reply, which
    /// is sent after its handler has returned, see [`Parcel::write_owned_fd`].
    pub fn write_fd(&mut self, fd: BorrowedFd<'_>) -> &mut Parcel {
        let binder = fd.as_raw_fd() as u64;
        self.write_flat(&FlatObject { kind: BINDER_TYPE_FD, flags: 0, binder, cookie: 0 })
    }

    /// Appends a descriptor, which is closed with the parcel.
    pub fn write_owned_fd(&mut self, fd: OwnedFd) -> &mut Parcel {
        self.write_fd(fd.as_fd());
        self.objects().others.push(Kept::Fd(Arc::new(fd)));
        self
    }

    /// Whether it holds no handle and no counted object of another device.
    pub(crate) fn is_of(&self, driver: &Arc<Driver>) -> bool {
        self.objects.as_ref().is_none_or(|objects| {
            objects.handles.iter().all(|handle| Arc::ptr_eq(&handle.driver, driver))
                && objects.others.iter().all(|kept| match kept {
                    Kept::Counted(object) => Arc::ptr_eq(object.driver(), driver),
                    Kept::Fd(_) => true,
                })
        })
    }
}

impl std::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, objects) = (self.data.len(), self.offsets().len());
        f.debug_struct("Parcel").field("bytes", &bytes).field("objects", &objects).finish()
    }
}

impl From<&[u8]> for Parcel {
    #[inline]
    fn from(bytes: &[u8]) -> Parcel {
        let data = match bytes {
            // A copy of a fixed size is a load and a store.
            &[a, b, c, d] => SmallVec::from_slice(&[a, b, c, d]),
            bytes => SmallVec::from_slice(bytes),
        };
        Parcel { data, objects: None }
    }
}
