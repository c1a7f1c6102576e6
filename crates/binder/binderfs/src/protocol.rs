//! The kernel's messages of FUSE, as far as binderfs needs them: `linux/fuse.h`, version 7.40.
//!
//! ```text
//!   request:  InHeader (40 bytes), then a structure and a name by the operation
//!   answer:   OutHeader (16 bytes), then a structure, unless there is an error
//! ```
//!
//! **Invariant**: a request is read only through [`Request::decode`], which checks its length.

use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};

/// The version that binderfs speaks: the first minor number with passthrough.
pub const MAJOR: u32 = 7;
/// See [`MAJOR`].
pub const MINOR: u32 = 40;
/// Bytes that `read` of /dev/fuse may give: the largest request beside writes, which nobody makes.
pub const REQUEST_BYTES: usize = 32 * 1024;

/// INIT: there are flags in `flags2`.
pub const INIT_EXT: u32 = 1 << 30;
/// INIT, `flags2`: files may be passed through to others.
pub const PASSTHROUGH: u32 = 1 << 5;
/// INIT, `flags2`: requests are sent again at [`NOTIFY_RESEND`].
pub const HAS_RESEND: u32 = 1 << 7;
/// OPEN: reads and writes come to the server.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// OPEN: pages that the kernel has of the file stay.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// OPEN: a `close` is not announced.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
/// OPEN: the backing file is mapped in place of this one.
pub const FOPEN_PASSTHROUGH: u32 = 1 << 7;
/// The code of a notification that a file has become readable.
pub const NOTIFY_POLL: i32 = 1;
/// The code of a notification that puts bytes into the kernel's pages of a file.
pub const NOTIFY_STORE: i32 = 4;
/// The code of a notification that asks for every request again that has no answer.
pub const NOTIFY_RESEND: i32 = 7;
/// SETATTR: which attributes are to be set.
pub const SET_MODE: u32 = 1 << 0;
/// See [`SET_MODE`].
pub const SET_UID: u32 = 1 << 1;
/// See [`SET_MODE`].
pub const SET_GID: u32 = 1 << 2;

const SCHEDULE_NOTIFY: u32 = 1;

/// The head of every request.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
pub struct InHeader {
    bytes: u32,
    operation: u32,
    /// Identifies the request in its answer.
    pub unique: u64,
    /// The file system's number of the file.
    pub node: u64,
    /// User id of file accesses of the calling thread.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
    /// Thread id of the calling thread.
    pub tid: u32,
    extension_words: u16,
    padding: u16,
}

/// The head of every answer.
#[derive(Clone, Copy, Debug, NoUninit)]
#[repr(C)]
pub struct OutHeader {
    /// Bytes of the answer, with the head.
    pub bytes: u32,
    /// 0 or a negative errno.
    pub error: i32,
    /// That of the request.
    pub unique: u64,
}

/// INIT.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
pub struct InitIn {
    /// The kernel's version.
    pub major: u32,
    /// See `major`.
    pub minor: u32,
    /// The kernel's choice.
    pub max_readahead: u32,
    /// What the kernel can do.
    pub flags: u32,
    /// More of it, with [`INIT_EXT`].
    pub flags2: u32,
}

/// The answer to INIT.
#[derive(Clone, Copy, Debug, Default, NoUninit, Zeroable)]
#[repr(C)]
pub struct InitOut {
    /// The version that is spoken.
    pub major: u32,
    /// See `major`.
    pub minor: u32,
    /// As asked for.
    pub max_readahead: u32,
    /// What is used.
    pub flags: u32,
    /// Requests for which nobody waits, at once.
    pub max_background: u16,
    /// Of them, those that are many.
    pub congestion_threshold: u16,
    /// Largest write.
    pub max_write: u32,
    /// Granularity of times.
    pub time_granularity: u32,
    /// Pages of the largest request.
    pub max_pages: u16,
    /// For DAX.
    pub map_alignment: u16,
    /// More of what is used.
    pub flags2: u32,
    /// How deep the backing files' file systems may be stacked.
    pub max_stack_depth: u32,
    /// Nothing.
    pub unused: [u32; 6],
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    pub times: [u64; 3],
    pub times_ns: [u32; 3],
    /// Kind and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    pub device: u32,
    pub block_bytes: u32,
    pub flags: u32,
}

/// The answer to LOOKUP.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct EntryOut {
    /// The file's number.
    pub node: u64,
    /// Distinguishes files that have the same number one after the other.
    pub generation: u64,
    pub entry_valid_s: u64,
    pub attributes_valid_s: u64,
    pub valid_ns: [u32; 2],
    /// The file's attributes.
    pub attributes: Attributes,
}

/// The answer to GETATTR and SETATTR.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AttributesOut {
    pub valid_s: u64,
    pub valid_ns: u32,
    pub padding: u32,
    /// The file's attributes.
    pub attributes: Attributes,
}

/// SETATTR.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
pub struct SetAttributesIn {
    /// Which of the attributes are to be set.
    pub valid: u32,
    padding: u32,
    unused: [u64; 6],
    times_ns: [u32; 3],
    /// Permissions.
    pub mode: u32,
    unused_too: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    unused_three: u32,
}

/// OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
struct OpenIn {
    flags: u32,
    open_flags: u32,
}

/// The answer to OPEN.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct OpenOut {
    /// The server's number of the open file.
    pub handle: u64,
    /// `FOPEN_` flags.
    pub open_flags: u32,
    /// The backing file's number, with [`FOPEN_PASSTHROUGH`].
    pub backing: i32,
}

/// READ and READDIR.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
struct ReadIn {
    handle: u64,
    offset: u64,
    bytes: u32,
    read_flags: u32,
    lock_owner: u64,
    flags: u32,
    padding: u32,
}

/// FLUSH.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
struct FlushIn {
    handle: u64,
    unused: [u32; 2],
    lock_owner: u64,
}

/// RELEASE.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
struct ReleaseIn {
    handle: u64,
    flags: u32,
    release_flags: u32,
    lock_owner: u64,
}

/// IOCTL.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
struct IoctlIn {
    handle: u64,
    flags: u32,
    request: u32,
    argument: u64,
    in_bytes: u32,
    out_bytes: u32,
}

/// The answer to IOCTL, before the bytes for the caller's argument.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct IoctlOut {
    /// The result of the system call: 0 or a negative errno, with the bytes copied in either case.
    pub result: i32,
    pub flags: u32,
    pub in_ranges: u32,
    pub out_ranges: u32,
}

/// POLL.
#[derive(Clone, Copy, Debug, AnyBitPattern)]
#[repr(C)]
struct PollIn {
    handle: u64,
    kernel_handle: u64,
    flags: u32,
    events: u32,
}

/// The answer to POLL.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct PollOut {
    /// Events that have come.
    pub events: u32,
    pub padding: u32,
}

/// A notification of bytes, which follow: [`NOTIFY_STORE`].
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct StoreOut {
    /// The file's number.
    pub node: u64,
    /// Place of the bytes in the file.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
    pub padding: u32,
}

/// The answer to STATFS.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct StatFsOut {
    pub counts: [u64; 5],
    /// Block size.
    pub block_bytes: u32,
    /// Longest name.
    pub name_bytes: u32,
    /// Fragment size.
    pub fragment_bytes: u32,
    pub spare: [u32; 7],
}

/// One request.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its head.
    pub header: InHeader,
    /// What is asked for.
    pub operation: Operation<'a>,
}

/// What a request asks for.
#[derive(Debug)]
pub enum Operation<'a> {
    Init(InitIn),
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    /// So many lookups of this node are forgotten. No answer.
    Forget {
        lookups: u64,
    },
    /// Like `Forget`, of several nodes.
    BatchForget {
        nodes: Vec<(u64, u64)>,
    },
    GetAttributes,
    SetAttributes(SetAttributesIn),
    Unlink {
        name: &'a [u8],
    },
    StatFs,
    Open {
        flags: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        bytes: u32,
    },
    Flush {
        handle: u64,
    },
    Release {
        handle: u64,
    },
    OpenDirectory,
    ReadDirectory {
        offset: u64,
        bytes: u32,
    },
    ReleaseDirectory,
    Ioctl {
        handle: u64,
        request: u32,
        data: &'a [u8],
        out_bytes: u32,
    },
    /// `notify`: a notification is to come when the file becomes readable.
    Poll {
        handle: u64,
        kernel_handle: u64,
        notify: bool,
    },
    /// A signal has come for the thread that makes this other request. No answer.
    Interrupt {
        unique: u64,
    },
    /// A file, directory or name is to be made or moved, or a directory removed. Only
    /// binder-control makes files here.
    Change,
    /// Bytes for a file, none of which takes any.
    Write,
    /// An operation that binderfs has no use for.
    Other,
}

/// Takes a structure off the front.
fn take<T: AnyBitPattern>(bytes: &mut &[u8]) -> Option<T> {
    let (front, rest) = bytes.split_at_checked(size_of::<T>())?;
    *bytes = rest;
    Some(bytemuck::pod_read_unaligned(front))
}

/// A name with a zero byte at its end.
fn name(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some(&bytes[..end])
}

impl Request<'_> {
    /// A request from its bytes. An error is the head, or nothing: the request is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Request<'_>, Option<InHeader>> {
        let mut rest = bytes;
        let header: InHeader = take(&mut rest).ok_or(None)?;
        let is_whole = header.bytes as usize == bytes.len();
        match is_whole.then(|| operation(header.operation, rest)).flatten() {
            Some(operation) => Ok(Request { header, operation }),
            None => Err(Some(header)),
        }
    }
}

fn operation(number: u32, mut rest: &[u8]) -> Option<Operation<'_>> {
    let rest = &mut rest;
    Some(match number {
        1 => Operation::Lookup { name: name(rest)? },
        2 => Operation::Forget { lookups: take(rest)? },
        3 => Operation::GetAttributes,
        4 => Operation::SetAttributes(take(rest)?),
        6 | 8 | 9 | 11 | 12 | 13 | 35 | 45 | 51 => Operation::Change,
        10 => Operation::Unlink { name: name(rest)? },
        14 => Operation::Open { flags: take::<OpenIn>(rest)?.flags },
        15 => {
            let ReadIn { handle, offset, bytes, .. } = take(rest)?;
            Operation::Read { handle, offset, bytes }
        }
        16 => Operation::Write,
        17 => Operation::StatFs,
        18 => Operation::Release { handle: take::<ReleaseIn>(rest)?.handle },
        25 => Operation::Flush { handle: take::<FlushIn>(rest)?.handle },
        26 => Operation::Init(take(rest)?),
        27 => Operation::OpenDirectory,
        28 => {
            let ReadIn { offset, bytes, .. } = take(rest)?;
            Operation::ReadDirectory { offset, bytes }
        }
        29 => Operation::ReleaseDirectory,
        36 => Operation::Interrupt { unique: take(rest)? },
        38 => Operation::Destroy,
        39 => {
            let IoctlIn { handle, request, in_bytes, out_bytes, .. } = take(rest)?;
            let data = rest.get(..in_bytes as usize)?;
            Operation::Ioctl { handle, request, data, out_bytes }
        }
        40 => {
            let PollIn { handle, kernel_handle, flags, .. } = take(rest)?;
            Operation::Poll { handle, kernel_handle, notify: flags & SCHEDULE_NOTIFY != 0 }
        }
        42 => {
            let [count, _]: [u32; 2] = take(rest)?;
            let nodes = (0..count).map(|_| take::<[u64; 2]>(rest).map(|[node, n]| (node, n)));
            Operation::BatchForget { nodes: nodes.collect::<Option<_>>()? }
        }
        _ => Operation::Other,
    })
}

/// Appends an entry of a directory. False if it does not fit into `room` bytes.
pub fn put_directory_entry(
    out: &mut Vec<u8>,
    room: usize,
    (inode, name): (u64, &str),
    next: u64,
    is_directory: bool,
) -> bool {
    let bytes = (24 + name.len()).next_multiple_of(8);
    if out.len() + bytes > room {
        return false;
    }
    let kind = if is_directory { libc::DT_DIR } else { libc::DT_REG };
    let end = out.len() + bytes;
    out.extend(inode.to_ne_bytes());
    out.extend(next.to_ne_bytes());
    out.extend((name.len() as u32).to_ne_bytes());
    out.extend(u32::from(kind).to_ne_bytes());
    out.extend(name.as_bytes());
    out.resize(end, 0);
    true
}

const _: () = {
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<InitOut>() == 64 && size_of::<EntryOut>() == 128);
    assert!(size_of::<AttributesOut>() == 104 && size_of::<SetAttributesIn>() == 88);
    assert!(size_of::<IoctlIn>() == 32 && size_of::<IoctlOut>() == 16);
    assert!(size_of::<StatFsOut>() == 80 && size_of::<ReadIn>() == 40);
    assert!(size_of::<StoreOut>() == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (40 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(operation.to_ne_bytes());
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend([0; 24]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn requests_that_are_cut_short_are_malformed() {
        let mut ioctl = vec![0u8; 32 + 8];
        ioctl[24] = 8;
        for (operation, body) in [
            (1, &b"binder\0"[..]),
            (2, &[0; 8]),
            (4, &[0; 88]),
            (14, &[0; 8]),
            (15, &[0; 40]),
            (26, &[0; 20]),
            (36, &[0; 8]),
            (39, &ioctl),
            (40, &[0; 24]),
            (42, &[1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let bytes = request(operation, body);
            assert_eq!(Request::decode(&bytes).unwrap().header.unique, 7, "{operation}");
            for length in 0..bytes.len() {
                // Cut, and then with a length that agrees.
                assert!(Request::decode(&bytes[..length]).is_err(), "{operation}, {length}");
                if length >= 40 {
                    let cut = request(operation, &body[..length - 40]);
                    assert!(Request::decode(&cut).is_err(), "{operation}, {length}");
                }
            }
        }
    }

    #[test]
    fn directory_entries_fill_their_room_and_no_more() {
        let mut out = Vec::new();
        assert!(put_directory_entry(&mut out, 64, (1, "binder"), 1, false));
        assert_eq!(out.len(), 32);
        assert!(put_directory_entry(&mut out, 64, (2, "features"), 2, true));
        assert!(!put_directory_entry(&mut out, 64, (3, "x"), 3, false));
        assert_eq!(out.len(), 64);
    }
}
