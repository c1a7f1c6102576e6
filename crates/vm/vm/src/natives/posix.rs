//! libcore.io.Posix and java.io.File: the part of the system that programs without sockets reach

use super::memory;
use super::values::{
    self, NULL, Outcome, VOID, boolean, check_range, construct, field, non_null, rust, strings,
    text, throw,
};
use crate::object::{Kind, Ref};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use rustix::fs::{self, Access, AtFlags, CWD, Mode, OFlags, SeekFrom, Stat, StatVfs};
use rustix::io::{self, Errno};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

const POSIX: &str = "Llibcore/io/Posix;";
const FILE: &str = "Ljava/io/File;";

/// Bytes that one read or write moves at most: they pass through memory of ours.
const MOST_BYTES: i32 = 1 << 20;

macro_rules! number {
    ($name:literal, $of:expr) => {
        (POSIX, $name, "()I", |_, _| Ok(Value::Int($of as i32)))
    };
}

pub(super) const TABLE: &[Native] = &[
    (POSIX, "open", "(Ljava/lang/String;II)Ljava/io/FileDescriptor;", |t, a| {
        let path = rust(t, a.reference(1))?;
        let flags = OFlags::from_bits_retain(a.int(2) as u32);
        let mode = Mode::from_bits_truncate(a.int(3) as u32);
        let fd = ok(t, "open", t.safe(|| fs::open(path.as_str(), flags, mode)))?;
        file_descriptor(t, fd)
    }),
    (POSIX, "close", "(Ljava/io/FileDescriptor;)V", |t, a| {
        let object = non_null(t, a.reference(1), "fd")?;
        let descriptor = field(object, "descriptor", "I");
        let fd = descriptor.get32(object) as i32;
        descriptor.set32(object, -1i32 as u32);
        if fd < 0 {
            return Err(error(t, "close", Errno::BADF));
        }
        // SAFETY: the Java object had the descriptor, and has it no longer.
        unsafe { io::close(fd) };
        VOID
    }),
    (POSIX, "readBytes", "(Ljava/io/FileDescriptor;Ljava/lang/Object;II)I", |t, a| {
        read(t, a, "read", |fd, into| io::read(fd, into))
    }),
    (POSIX, "preadBytes", "(Ljava/io/FileDescriptor;Ljava/lang/Object;IIJ)I", |t, a| {
        let offset = a.long(5) as u64;
        read(t, a, "pread", |fd, into| io::pread(fd, into, offset))
    }),
    (POSIX, "writeBytes", "(Ljava/io/FileDescriptor;Ljava/lang/Object;II)I", |t, a| {
        write(t, a, "write", |fd, from| io::write(fd, from))
    }),
    (POSIX, "pwriteBytes", "(Ljava/io/FileDescriptor;Ljava/lang/Object;IIJ)I", |t, a| {
        let offset = a.long(5) as u64;
        write(t, a, "pwrite", |fd, from| io::pwrite(fd, from, offset))
    }),
    (POSIX, "readv", "(Ljava/io/FileDescriptor;[Ljava/lang/Object;[I[I)I", readv),
    (POSIX, "writev", "(Ljava/io/FileDescriptor;[Ljava/lang/Object;[I[I)I", writev),
    (POSIX, "lseek", "(Ljava/io/FileDescriptor;JI)J", |t, a| {
        let offset = a.long(2);
        let from = match a.int(4) {
            libc::SEEK_SET => SeekFrom::Start(offset as u64),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            _ => return Err(error(t, "lseek", Errno::INVAL)),
        };
        let at = with_fd(t, a.reference(1), "lseek", |fd| fs::seek(fd, from))?;
        Ok(Value::Long(at as i64))
    }),
    (POSIX, "fstat", "(Ljava/io/FileDescriptor;)Llibcore/io/StructStat;", |t, a| {
        let stat = with_fd(t, a.reference(1), "fstat", |fd| fs::fstat(fd))?;
        stat_object(t, &stat)
    }),
    (POSIX, "stat", "(Ljava/lang/String;)Llibcore/io/StructStat;", |t, a| {
        let path = rust(t, a.reference(1))?;
        let stat = ok(t, "stat", fs::stat(path.as_str()))?;
        stat_object(t, &stat)
    }),
    (POSIX, "lstat", "(Ljava/lang/String;)Llibcore/io/StructStat;", |t, a| {
        let path = rust(t, a.reference(1))?;
        let stat = ok(t, "lstat", fs::lstat(path.as_str()))?;
        stat_object(t, &stat)
    }),
    (POSIX, "access", "(Ljava/lang/String;I)Z", |t, a| {
        let path = rust(t, a.reference(1))?;
        let access = Access::from_bits_truncate(a.int(2) as u32);
        ok(t, "access", fs::access(path.as_str(), access))?;
        boolean(true)
    }),
    (POSIX, "mkdir", "(Ljava/lang/String;I)V", |t, a| {
        let path = rust(t, a.reference(1))?;
        let mode = Mode::from_bits_truncate(a.int(2) as u32);
        ok(t, "mkdir", fs::mkdir(path.as_str(), mode))?;
        VOID
    }),
    (POSIX, "chmod", "(Ljava/lang/String;I)V", |t, a| {
        let path = rust(t, a.reference(1))?;
        let mode = Mode::from_bits_truncate(a.int(2) as u32);
        ok(t, "chmod", fs::chmod(path.as_str(), mode))?;
        VOID
    }),
    // As C's remove: a file, or an empty directory.
    (POSIX, "remove", "(Ljava/lang/String;)V", |t, a| {
        let path = rust(t, a.reference(1))?;
        let removed = match fs::unlink(path.as_str()) {
            Err(Errno::ISDIR | Errno::PERM) => fs::unlinkat(CWD, path.as_str(), AtFlags::REMOVEDIR),
            removed => removed,
        };
        ok(t, "remove", removed)?;
        VOID
    }),
    (POSIX, "rename", "(Ljava/lang/String;Ljava/lang/String;)V", |t, a| {
        let (from, to) = (rust(t, a.reference(1))?, rust(t, a.reference(2))?);
        ok(t, "rename", fs::rename(from.as_str(), to.as_str()))?;
        VOID
    }),
    (POSIX, "symlink", "(Ljava/lang/String;Ljava/lang/String;)V", |t, a| {
        let (to, at) = (rust(t, a.reference(1))?, rust(t, a.reference(2))?);
        ok(t, "symlink", fs::symlink(to.as_str(), at.as_str()))?;
        VOID
    }),
    (POSIX, "fsync", "(Ljava/io/FileDescriptor;)V", |t, a| {
        with_fd(t, a.reference(1), "fsync", |fd| fs::fsync(fd))?;
        VOID
    }),
    (POSIX, "fdatasync", "(Ljava/io/FileDescriptor;)V", |t, a| {
        with_fd(t, a.reference(1), "fdatasync", |fd| fs::fdatasync(fd))?;
        VOID
    }),
    (POSIX, "ftruncate", "(Ljava/io/FileDescriptor;J)V", |t, a| {
        let length = a.long(2) as u64;
        with_fd(t, a.reference(1), "ftruncate", |fd| fs::ftruncate(fd, length))?;
        VOID
    }),
    (POSIX, "dup", "(Ljava/io/FileDescriptor;)Ljava/io/FileDescriptor;", |t, a| {
        let fd = with_fd(t, a.reference(1), "dup", |fd| io::dup(fd))?;
        file_descriptor(t, fd)
    }),
    (POSIX, "pipe", "()[Ljava/io/FileDescriptor;", |t, _| {
        let (reader, writer) = ok(t, "pipe", rustix::pipe::pipe())?;
        let reader = file_descriptor(t, reader)?.reference();
        let writer = file_descriptor(t, writer)?.reference();
        let class = values::class(t, "java/io/FileDescriptor")?;
        Ok(Value::Ref(values::objects(t, class, &[reader, writer])?))
    }),
    (POSIX, "isatty", "(Ljava/io/FileDescriptor;)Z", |t, a| {
        // The answer for a descriptor that is not open is no.
        let object = non_null(t, a.reference(1), "fd")?;
        boolean(borrow(object).is_some_and(rustix::termios::isatty))
    }),
    (POSIX, "ioctlInt", "(Ljava/io/FileDescriptor;ILlibcore/util/MutableInt;)I", |t, a| {
        if a.int(2) as u64 != libc::FIONREAD {
            return Err(error(t, "ioctl", Errno::NOTTY));
        }
        let count = with_fd(t, a.reference(1), "ioctl", |fd| io::ioctl_fionread(fd))?;
        let holder = non_null(t, a.reference(3), "arg")?;
        field(holder, "value", "I").set32(holder, count as u32);
        Ok(Value::Int(0))
    }),
    (POSIX, "fcntlFlock", "(Ljava/io/FileDescriptor;ILlibcore/io/StructFlock;)I", flock),
    (POSIX, "statvfs", "(Ljava/lang/String;)Llibcore/io/StructStatVfs;", |t, a| {
        let path = rust(t, a.reference(1))?;
        let stat = ok(t, "statvfs", fs::statvfs(path.as_str()))?;
        stat_vfs_object(t, &stat)
    }),
    (POSIX, "fstatvfs", "(Ljava/io/FileDescriptor;)Llibcore/io/StructStatVfs;", |t, a| {
        let stat = with_fd(t, a.reference(1), "fstatvfs", |fd| fs::fstatvfs(fd))?;
        stat_vfs_object(t, &stat)
    }),
    (POSIX, "mmap", "(JJIILjava/io/FileDescriptor;J)J", |t, a| {
        let (hint, length) = (a.long(1) as usize, a.long(3) as usize);
        let protection = rustix::mm::ProtFlags::from_bits_truncate(a.int(5) as u32);
        let flags = rustix::mm::MapFlags::from_bits_truncate(a.int(6) as u32);
        if flags.contains(rustix::mm::MapFlags::FIXED) {
            // It could replace memory that the VM uses.
            return Err(error(t, "mmap", Errno::INVAL));
        }
        let offset = a.long(8) as u64;
        let hint = std::ptr::without_provenance_mut(hint);
        let at = with_fd(t, a.reference(7), "mmap", |fd| {
            // SAFETY: a new mapping, at no fixed address.
            unsafe { rustix::mm::mmap(hint, length, protection, flags, fd, offset) }
        })?;
        Ok(Value::Long(at.expose_provenance() as i64))
    }),
    (POSIX, "munmap", "(JJ)V", |t, a| {
        let at = std::ptr::with_exposed_provenance_mut(a.long(1) as usize);
        // SAFETY: the caller has mapped it, by its Java half, and uses it no longer.
        ok(t, "munmap", unsafe { rustix::mm::munmap(at, a.long(3) as usize) })?;
        VOID
    }),
    (POSIX, "msync", "(JJI)V", |t, a| {
        let at = std::ptr::with_exposed_provenance_mut(a.long(1) as usize);
        let flags = rustix::mm::MsyncFlags::from_bits_truncate(a.int(5) as u32);
        let length = a.long(3) as usize;
        // SAFETY: the caller has mapped it.
        ok(t, "msync", t.safe(|| unsafe { rustix::mm::msync(at, length, flags) }))?;
        VOID
    }),
    (POSIX, "getenv", "(Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        match std::env::var_os(rust(t, a.reference(1))?) {
            Some(value) => Ok(Value::Ref(text(t, &value.to_string_lossy())?)),
            None => NULL,
        }
    }),
    (POSIX, "environ", "()[Ljava/lang/String;", |t, _| {
        let all = std::env::vars_os();
        let all = all.map(|(k, v)| format!("{}={}", k.to_string_lossy(), v.to_string_lossy()));
        Ok(Value::Ref(strings(t, &all.collect::<Vec<_>>())?))
    }),
    (POSIX, "strerror", "(I)Ljava/lang/String;", |t, a| {
        let error = std::io::Error::from_raw_os_error(a.int(1)).to_string();
        // The library's own suffix is not part of the text.
        let message = error.split(" (os error").next().unwrap_or_default();
        Ok(Value::Ref(text(t, message)?))
    }),
    (POSIX, "getpwuid", "(I)Llibcore/io/StructPasswd;", |t, a| {
        let uid = a.int(1);
        passwd(t, "getpwuid", |entry| entry[2] == uid.to_string())
    }),
    (POSIX, "getpwnam", "(Ljava/lang/String;)Llibcore/io/StructPasswd;", |t, a| {
        let name = rust(t, a.reference(1))?;
        passwd(t, "getpwnam", |entry| entry[0] == name)
    }),
    (POSIX, "uname", "()Llibcore/io/StructUtsname;", |t, _| {
        let name = rustix::system::uname();
        let parts =
            [name.sysname(), name.nodename(), name.release(), name.version(), name.machine()];
        let mut args = Vec::new();
        for part in parts {
            args.push(Value::Ref(text(t, &part.to_string_lossy())?));
        }
        let signature = format!("({})V", "Ljava/lang/String;".repeat(5));
        Ok(Value::Ref(construct(t, "libcore/io/StructUtsname", &signature, &args)?))
    }),
    number!("getpid", std::process::id()),
    number!("getppid", rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())),
    number!("gettid", rustix::thread::gettid().as_raw_nonzero().get()),
    number!("getuid", rustix::process::getuid().as_raw()),
    number!("geteuid", rustix::process::geteuid().as_raw()),
    number!("getgid", rustix::process::getgid().as_raw()),
    number!("getegid", rustix::process::getegid().as_raw()),
    (POSIX, "sysconf", "(I)J", |t, a| {
        let value = match a.int(1) {
            libc::_SC_PAGESIZE => rustix::param::page_size() as i64,
            libc::_SC_CLK_TCK => rustix::param::clock_ticks_per_second() as i64,
            libc::_SC_NPROCESSORS_CONF | libc::_SC_NPROCESSORS_ONLN => {
                std::thread::available_parallelism().map_or(1, |n| n.get() as i64)
            }
            _ => return Err(error(t, "sysconf", Errno::INVAL)),
        };
        Ok(Value::Long(value))
    }),
    (FILE, "listImpl", "(Ljava/lang/String;)[Ljava/lang/String;", |t, a| {
        let path = rust(t, a.reference(0))?;
        let Ok(entries) = std::fs::read_dir(path) else { return NULL };
        let names = entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned());
        Ok(Value::Ref(strings(t, &names.collect::<Vec<_>>())?))
    }),
    (FILE, "realpath", "(Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        let path = rust(t, a.reference(0))?;
        Ok(Value::Ref(text(t, &canonical(Path::new(&path)).to_string_lossy())?))
    }),
    (FILE, "readlink", "(Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        let path = rust(t, a.reference(0))?;
        match std::fs::read_link(path) {
            Ok(path) => Ok(Value::Ref(text(t, &path.to_string_lossy())?)),
            Err(_) => NULL,
        }
    }),
    (FILE, "setLastModifiedImpl", "(Ljava/lang/String;J)Z", |t, a| {
        let path = rust(t, a.reference(0))?;
        let millis = a.long(1);
        let time = rustix::fs::Timespec {
            tv_sec: millis.div_euclid(1000),
            tv_nsec: millis.rem_euclid(1000) * 1_000_000,
        };
        let times = fs::Timestamps { last_access: time, last_modification: time };
        boolean(fs::utimensat(CWD, path.as_str(), &times, AtFlags::empty()).is_ok())
    }),
];

/// An absolute path without links, `.` and `..`. Names of files that do not exist stay.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(canonical) = std::fs::canonicalize(path) {
        return canonical;
    }
    let mut canonical = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                canonical.pop();
            }
            Component::Normal(name) => {
                canonical.push(name);
                canonical = std::fs::canonicalize(&canonical).unwrap_or(canonical);
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    canonical
}

/// Throws ErrnoException.
pub(super) fn error(t: &Thread, function: &str, errno: Errno) -> Thrown {
    let made = text(t, function).and_then(|name| {
        let args = [Value::Ref(name), Value::Int(errno.raw_os_error())];
        construct(t, "libcore/io/ErrnoException", "(Ljava/lang/String;I)V", &args)
    });
    made.map_or_else(|thrown| thrown, |exception| t.throw_object(exception))
}

pub(super) fn ok<T>(t: &Thread, function: &str, result: io::Result<T>) -> Result<T, Thrown> {
    result.map_err(|errno| error(t, function, errno))
}

/// A java.io.FileDescriptor, which has the descriptor from now on.
pub(super) fn file_descriptor(t: &Thread, fd: OwnedFd) -> Outcome {
    let object = construct(t, "java/io/FileDescriptor", "()V", &[])?;
    field(object, "descriptor", "I").set32(object, fd.into_raw_fd() as u32);
    Ok(Value::Ref(object))
}

/// The descriptor of a java.io.FileDescriptor, if it has one.
pub(super) fn borrow(object: Ref) -> Option<BorrowedFd<'static>> {
    let fd = field(object, "descriptor", "I").get32(object) as i32;
    // SAFETY: the descriptor is not -1. A program that closes it meanwhile gets an error, or the
    // file that another thread opens then, as with any Java runtime.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Calls the system with the descriptor of a java.io.FileDescriptor, as a safe thread.
pub(super) fn with_fd<T>(
    t: &Thread,
    object: Ref,
    function: &str,
    call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
) -> Result<T, Thrown> {
    let fd = borrow(non_null(t, object, "fd")?);
    let result = fd.ok_or(Errno::BADF).and_then(|fd| t.safe(|| call(fd)));
    debug_assert!(fd.is_none_or(|fd| fd.as_raw_fd() >= 0));
    ok(t, function, result)
}

/// A range of a `byte[]` or of a direct buffer.
pub(super) struct Span {
    object: Ref,
    /// Where a direct buffer's range begins; `None` for a `byte[]`, and for a range without bytes.
    address: Option<i64>,
    offset: i32,
    count: i32,
}

impl Span {
    /// Checks a range. The caller keeps the object.
    ///
    /// # Errors
    /// NullPointerException, ArrayIndexOutOfBoundsException, or IllegalArgumentException for an
    /// object that is neither.
    pub(super) fn new(t: &Thread, object: Ref, offset: i32, count: i32) -> Result<Span, Thrown> {
        let object = non_null(t, object, "buffer")?;
        if object.element_kind() == Some(Kind::Byte) {
            check_range(t, object, offset, count)?;
            return Ok(Span { object, address: None, offset, count });
        }
        let Some((address, n_bytes)) = memory::direct(object) else {
            let message = "neither a byte[] nor a direct buffer";
            return Err(throw(t, "java/lang/IllegalArgumentException", message));
        };
        if offset < 0 || count < 0 || i64::from(offset) + i64::from(count) > n_bytes {
            let message = format!("offset={offset}; count={count}; of {n_bytes} bytes");
            return Err(throw(t, "java/lang/ArrayIndexOutOfBoundsException", &message));
        }
        let address = (count > 0).then_some(address + i64::from(offset));
        Ok(Span { object, address, offset: 0, count })
    }

    /// How many bytes one call moves at most.
    pub(super) fn n_bytes(&self) -> usize {
        self.count.min(MOST_BYTES) as usize
    }

    /// As many of the bytes as one call moves.
    pub(super) fn get(&self) -> Vec<u8> {
        match self.address {
            // SAFETY: the range lies in the buffer, whose memory lives as long as the object.
            Some(address) => unsafe { memory::copy_out(address, self.n_bytes()) },
            None => {
                let range = self.offset as u32..self.offset as u32 + self.n_bytes() as u32;
                range.map(|index| self.object.get_i8(index) as u8).collect()
            }
        }
    }

    /// Writes the first bytes of the range: as many as there are, and as have room.
    pub(super) fn put(&self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.count as usize)];
        match self.address {
            // SAFETY: the range lies in the buffer, whose memory lives as long as the object.
            Some(address) => unsafe { memory::copy_in(address, bytes) },
            None => {
                for (index, byte) in (self.offset as u32..).zip(bytes) {
                    self.object.set_i8(index, *byte as i8);
                }
            }
        }
    }
}

type Call<T> = io::Result<T>;

/// Arguments: this, FileDescriptor, buffer, offset, count.
fn read(
    t: &Thread,
    a: Args,
    function: &str,
    call: impl FnOnce(BorrowedFd<'_>, &mut [u8]) -> Call<usize>,
) -> Outcome {
    let span = Span::new(t, a.reference(2), a.int(3), a.int(4))?;
    let mut bytes = vec![0; span.n_bytes()];
    let n = with_fd(t, a.reference(1), function, |fd| call(fd, &mut bytes))?;
    span.put(&bytes[..n]);
    Ok(Value::Int(n as i32))
}

/// Arguments: this, FileDescriptor, buffer, offset, count.
fn write(
    t: &Thread,
    a: Args,
    function: &str,
    call: impl FnOnce(BorrowedFd<'_>, &[u8]) -> Call<usize>,
) -> Outcome {
    let bytes = Span::new(t, a.reference(2), a.int(3), a.int(4))?.get();
    let n = with_fd(t, a.reference(1), function, |fd| call(fd, &bytes))?;
    Ok(Value::Int(n as i32))
}

/// The ranges that readv and writev move: of objects, by their offsets and counts.
fn spans(t: &Thread, a: Args) -> Result<Vec<Span>, Thrown> {
    let objects = non_null(t, a.reference(2), "buffers")?;
    let offsets = non_null(t, a.reference(3), "offsets")?;
    let counts = non_null(t, a.reference(4), "byteCounts")?;
    let length = objects.length();
    if offsets.length() < length || counts.length() < length {
        let message = format!("{length} buffers");
        return Err(throw(t, "java/lang/ArrayIndexOutOfBoundsException", &message));
    }
    // Another thread may write to the array while this one waits. The copy stays.
    let objects = values::copy(t, objects)?;
    let span = |i| Span::new(t, objects.get_ref(i), offsets.get_i32(i), counts.get_i32(i));
    (0..length).map(span).collect()
}

/// Arguments: this, FileDescriptor, buffers, offsets, counts.
fn readv(t: &Thread, a: Args) -> Outcome {
    let spans = spans(t, a)?;
    let n_bytes: usize = spans.iter().map(Span::n_bytes).sum();
    let mut bytes = vec![0; n_bytes.min(MOST_BYTES as usize)];
    let n = with_fd(t, a.reference(1), "readv", |fd| io::read(fd, &mut bytes))?;
    let mut left = &bytes[..n];
    for span in &spans {
        let (first, rest) = left.split_at(left.len().min(span.count as usize));
        span.put(first);
        left = rest;
    }
    Ok(Value::Int(n as i32))
}

/// Arguments: this, FileDescriptor, buffers, offsets, counts.
fn writev(t: &Thread, a: Args) -> Outcome {
    let mut bytes = Vec::new();
    for span in spans(t, a)? {
        bytes.extend(span.get());
        if bytes.len() >= MOST_BYTES as usize {
            // A range after one that is cut off must not follow it.
            break;
        }
    }
    bytes.truncate(MOST_BYTES as usize);
    let n = with_fd(t, a.reference(1), "writev", |fd| io::write(fd, &bytes))?;
    Ok(Value::Int(n as i32))
}

fn stat_object(t: &Thread, stat: &Stat) -> Outcome {
    let args = [
        Value::Long(stat.st_dev as i64),
        Value::Long(stat.st_ino as i64),
        Value::Int(stat.st_mode as i32),
        Value::Long(stat.st_nlink as i64),
        Value::Int(stat.st_uid as i32),
        Value::Int(stat.st_gid as i32),
        Value::Long(stat.st_rdev as i64),
        Value::Long(stat.st_size),
        Value::Long(stat.st_atime),
        Value::Long(stat.st_mtime),
        Value::Long(stat.st_ctime),
        // Its width depends on the architecture.
        Value::Long(stat.st_blksize as _),
        Value::Long(stat.st_blocks),
    ];
    Ok(Value::Ref(construct(t, "libcore/io/StructStat", "(JJIJIIJJJJJJJ)V", &args)?))
}

fn stat_vfs_object(t: &Thread, stat: &StatVfs) -> Outcome {
    let args = [
        stat.f_bsize,
        stat.f_frsize,
        stat.f_blocks,
        stat.f_bfree,
        stat.f_bavail,
        stat.f_files,
        stat.f_ffree,
        stat.f_favail,
        stat.f_fsid,
        stat.f_flag.bits(),
        stat.f_namemax,
    ];
    let args = args.map(|number| Value::Long(number as i64));
    Ok(Value::Ref(construct(t, "libcore/io/StructStatVfs", "(JJJJJJJJJJJ)V", &args)?))
}

/// Locks or unlocks a range of a file, or asks who has locked it. The arguments: this,
/// FileDescriptor, command, StructFlock.
fn flock(t: &Thread, a: Args) -> Outcome {
    let (command, object) = (a.int(2), non_null(t, a.reference(3), "flock")?);
    if ![libc::F_GETLK, libc::F_SETLK, libc::F_SETLKW].contains(&command) {
        return Err(error(t, "fcntl", Errno::INVAL));
    }
    let (kind, whence) = (field(object, "l_type", "S"), field(object, "l_whence", "S"));
    let (start, length) = (field(object, "l_start", "J"), field(object, "l_len", "J"));
    let process = field(object, "l_pid", "I");
    let mut lock = libc::flock {
        l_type: kind.get32(object) as i16,
        l_whence: whence.get32(object) as i16,
        l_start: start.get64(object) as i64,
        l_len: length.get64(object) as i64,
        l_pid: process.get32(object) as i32,
    };
    with_fd(t, a.reference(1), "fcntl", |fd| {
        // SAFETY: the system reads and writes one lock, which lives until it returns.
        match unsafe { libc::fcntl(fd.as_raw_fd(), command, &mut lock) } {
            -1 => {
                let errno = std::io::Error::last_os_error().raw_os_error();
                Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EINVAL)))
            }
            _ => Ok(()),
        }
    })?;
    if command == libc::F_GETLK {
        kind.set32(object, lock.l_type as u32);
        whence.set32(object, lock.l_whence as u32);
        start.set64(object, lock.l_start as u64);
        length.set64(object, lock.l_len as u64);
        process.set32(object, lock.l_pid as u32);
    }
    Ok(Value::Int(0))
}

/// The entry of /etc/passwd that is wanted.
fn passwd(t: &Thread, function: &str, wanted: impl Fn(&[&str]) -> bool) -> Outcome {
    let file = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entries = file.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let Some(entry) = entries.into_iter().find(|it| it.len() == 7 && wanted(it)) else {
        return Err(error(t, function, Errno::NOENT));
    };
    let number = |text: &str| Value::Int(text.parse().unwrap_or(-1));
    let args = [
        Value::Ref(text(t, entry[0])?),
        number(entry[2]),
        number(entry[3]),
        Value::Ref(text(t, entry[5])?),
        Value::Ref(text(t, entry[6])?),
    ];
    let signature = "(Ljava/lang/String;IILjava/lang/String;Ljava/lang/String;)V";
    Ok(Value::Ref(construct(t, "libcore/io/StructPasswd", signature, &args)?))
}
