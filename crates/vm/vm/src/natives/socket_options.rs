//! libcore.io.Posix: options of sockets, and flags of descriptors

use super::addresses::{inet_address, verbatim};
use super::posix::{error, with_fd};
use super::values::{Outcome, VOID, construct, field, non_null, rust};
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use rustix::io::{self, Errno};
use std::ffi::c_void;
use std::mem::size_of;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

const POSIX: &str = "Llibcore/io/Posix;";

/// struct group_req of the system.
#[repr(C)]
struct GroupRequest {
    interface: u32,
    group: libc::sockaddr_storage,
}

/// Options of plain numbers, which the system may write in any way.
///
/// # Safety
/// Each pattern of bits is a value.
unsafe trait Plain: Copy {
    const ZERO: Self;
}
// SAFETY: a number.
unsafe impl Plain for i32 {
    const ZERO: i32 = 0;
}
// SAFETY: a number.
unsafe impl Plain for u8 {
    const ZERO: u8 = 0;
}
// SAFETY: numbers.
unsafe impl Plain for libc::linger {
    const ZERO: libc::linger = libc::linger { l_onoff: 0, l_linger: 0 };
}
// SAFETY: numbers.
unsafe impl Plain for libc::timeval {
    const ZERO: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };
}
// SAFETY: a number.
unsafe impl Plain for libc::in_addr {
    const ZERO: libc::in_addr = libc::in_addr { s_addr: 0 };
}
// SAFETY: numbers.
unsafe impl Plain for libc::ucred {
    const ZERO: libc::ucred = libc::ucred { pid: 0, uid: 0, gid: 0 };
}

// The arguments of all options: this, FileDescriptor, level, option, and a value to set.
pub(super) const TABLE: &[Native] = &[
    (POSIX, "getsockoptInt", "(Ljava/io/FileDescriptor;II)I", |t, a| {
        Ok(Value::Int(get::<i32>(t, a)?))
    }),
    (POSIX, "getsockoptByte", "(Ljava/io/FileDescriptor;II)I", |t, a| {
        Ok(Value::Int(i32::from(get::<u8>(t, a)?)))
    }),
    (POSIX, "getsockoptLinger", "(Ljava/io/FileDescriptor;II)Llibcore/io/StructLinger;", |t, a| {
        let linger = get::<libc::linger>(t, a)?;
        let args = [Value::Int(linger.l_onoff), Value::Int(linger.l_linger)];
        Ok(Value::Ref(construct(t, "libcore/io/StructLinger", "(II)V", &args)?))
    }),
    (
        POSIX,
        "getsockoptTimeval",
        "(Ljava/io/FileDescriptor;II)Llibcore/io/StructTimeval;",
        |t, a| {
            let time = get::<libc::timeval>(t, a)?;
            let args = [Value::Long(time.tv_sec), Value::Long(time.tv_usec)];
            Ok(Value::Ref(construct(t, "libcore/io/StructTimeval", "(JJ)V", &args)?))
        },
    ),
    (POSIX, "getsockoptUcred", "(Ljava/io/FileDescriptor;II)Llibcore/io/StructUcred;", |t, a| {
        let peer = get::<libc::ucred>(t, a)?;
        let args = [peer.pid, peer.uid as i32, peer.gid as i32].map(Value::Int);
        Ok(Value::Ref(construct(t, "libcore/io/StructUcred", "(III)V", &args)?))
    }),
    (POSIX, "getsockoptInAddr", "(Ljava/io/FileDescriptor;II)Ljava/net/InetAddress;", |t, a| {
        let address = Ipv4Addr::from(u32::from_be(get::<libc::in_addr>(t, a)?.s_addr));
        Ok(Value::Ref(inet_address(t, address.into(), 0)?))
    }),
    (POSIX, "setsockoptInt", "(Ljava/io/FileDescriptor;III)V", |t, a| set(t, a, &a.int(4))),
    (POSIX, "setsockoptByte", "(Ljava/io/FileDescriptor;III)V", |t, a| {
        set(t, a, &(a.int(4) as u8))
    }),
    (
        POSIX,
        "setsockoptLinger",
        "(Ljava/io/FileDescriptor;IILlibcore/io/StructLinger;)V",
        |t, a| {
            let value = non_null(t, a.reference(4), "value")?;
            let number = |name: &str| field(value, name, "I").get32(value) as i32;
            let (l_onoff, l_linger) = (number("l_onoff"), number("l_linger"));
            set(t, a, &libc::linger { l_onoff, l_linger })
        },
    ),
    (
        POSIX,
        "setsockoptTimeval",
        "(Ljava/io/FileDescriptor;IILlibcore/io/StructTimeval;)V",
        |t, a| {
            let value = non_null(t, a.reference(4), "value")?;
            let number = |name: &str| field(value, name, "J").get64(value) as i64;
            let (tv_sec, tv_usec) = (number("tv_sec"), number("tv_usec"));
            set(t, a, &libc::timeval { tv_sec, tv_usec })
        },
    ),
    (POSIX, "setsockoptIfreq", "(Ljava/io/FileDescriptor;IILjava/lang/String;)V", |t, a| {
        let request = interface_request(t, a.reference(4), "setsockopt")?;
        set(t, a, &request)
    }),
    (POSIX, "setsockoptIpMreqn", "(Ljava/io/FileDescriptor;III)V", |t, a| {
        let any = libc::in_addr { s_addr: 0 };
        let imr_ifindex = a.int(4);
        set(t, a, &libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex })
    }),
    (
        POSIX,
        "setsockoptGroupReq",
        "(Ljava/io/FileDescriptor;IILlibcore/io/StructGroupReq;)V",
        |t, a| {
            let value = non_null(t, a.reference(4), "value")?;
            let group = field(value, "gr_group", "Ljava/net/InetAddress;").get_ref(value);
            let address = verbatim(t, group)?;
            let mut request = GroupRequest {
                interface: field(value, "gr_interface", "I").get32(value),
                // SAFETY: a structure of numbers.
                group: unsafe { std::mem::zeroed() },
            };
            let n_bytes = (address.addr_len() as usize).min(size_of::<libc::sockaddr_storage>());
            // SAFETY: an address of this length, and room for any address.
            unsafe {
                let to = (&raw mut request.group).cast::<u8>();
                address.as_ptr().cast::<u8>().copy_to_nonoverlapping(to, n_bytes);
            }
            set(t, a, &request)
        },
    ),
    (POSIX, "fcntlVoid", "(Ljava/io/FileDescriptor;I)I", |t, a| match a.int(2) {
        command @ (libc::F_GETFD | libc::F_GETFL | libc::F_GETOWN) => fcntl(t, a, command, 0),
        _ => Err(error(t, "fcntl", Errno::INVAL)),
    }),
    // Other commands take an address, which Java has none for.
    (POSIX, "fcntlLong", "(Ljava/io/FileDescriptor;IJ)I", |t, a| match a.int(2) {
        command @ (libc::F_SETFD | libc::F_SETFL | libc::F_SETOWN | libc::F_DUPFD) => {
            fcntl(t, a, command, a.long(3))
        }
        _ => Err(error(t, "fcntl", Errno::INVAL)),
    }),
    (
        POSIX,
        "ioctlInetAddress",
        "(Ljava/io/FileDescriptor;ILjava/lang/String;)Ljava/net/InetAddress;",
        |t, a| {
            let command = a.int(2) as u64 as libc::Ioctl;
            let known = [
                libc::SIOCGIFADDR,
                libc::SIOCGIFBRDADDR,
                libc::SIOCGIFDSTADDR,
                libc::SIOCGIFNETMASK,
            ];
            if !known.contains(&command) {
                return Err(error(t, "ioctl", Errno::INVAL));
            }
            let mut request = interface_request(t, a.reference(3), "ioctl")?;
            with_fd(t, a.reference(1), "ioctl", |fd| {
                // SAFETY: the command reads the name and writes an address.
                result(unsafe { libc::ioctl(fd.as_raw_fd(), command, &raw mut request) })
            })?;
            // SAFETY: the system has written an address, of which this is the start.
            let address = unsafe {
                super::addresses::read_address((&raw const request.ifr_ifru.ifru_addr).cast())
            };
            match address.filter(std::net::SocketAddr::is_ipv4) {
                Some(address) => Ok(Value::Ref(inet_address(t, address.ip(), 0)?)),
                None => Err(error(t, "ioctl", Errno::AFNOSUPPORT)),
            }
        },
    ),
];

/// The result of a system call of C.
pub(super) fn result(of: i32) -> io::Result<i32> {
    if of == -1 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EINVAL)));
    }
    Ok(of)
}

/// A request about an interface. A name that is too long is no interface's.
fn interface_request(t: &Thread, name: Ref, function: &str) -> Result<libc::ifreq, Thrown> {
    request(&rust(t, name)?).ok_or_else(|| error(t, function, Errno::NODEV))
}

/// A request about an interface of this name.
pub(super) fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: a structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}

fn get<T: Plain>(t: &Thread, a: Args) -> Result<T, Thrown> {
    let (level, option, mut value) = (a.int(2), a.int(3), T::ZERO);
    let mut n_bytes = size_of::<T>() as libc::socklen_t;
    with_fd(t, a.reference(1), "getsockopt", |fd: BorrowedFd<'_>| {
        let to = (&raw mut value).cast::<c_void>();
        // SAFETY: the system writes at most so many bytes, of which each pattern is a value.
        result(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, to, &raw mut n_bytes) })
    })?;
    Ok(value)
}

fn set<T>(t: &Thread, a: Args, value: &T) -> Outcome {
    let (level, option, n_bytes) = (a.int(2), a.int(3), size_of::<T>() as libc::socklen_t);
    with_fd(t, a.reference(1), "setsockopt", |fd: BorrowedFd<'_>| {
        let from = (&raw const *value).cast::<c_void>();
        // SAFETY: the system reads so many bytes of the value.
        result(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, from, n_bytes) })
    })?;
    VOID
}

/// A command whose argument is a number.
fn fcntl(t: &Thread, a: Args, command: i32, number: i64) -> Outcome {
    let found = with_fd(t, a.reference(1), "fcntl", |fd| {
        // SAFETY: the command takes no address.
        result(unsafe { libc::fcntl(fd.as_raw_fd(), command, number) })
    })?;
    Ok(Value::Int(found))
}
