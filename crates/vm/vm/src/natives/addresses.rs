//! java.net.InetAddress as the system's socket addresses, and the resolver of libcore.io.Posix
//!
//! Sockets of the class library are of IPv6, so that an address of IPv4 is `::ffff:a.b.c.d` to the
//! system, and is java.net.Inet4Address to Java again.

use super::values::{self, NULL, Outcome, bytes, call, construct, field, non_null, rust, text};
use super::{posix, values::throw};
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

const POSIX: &str = "Llibcore/io/Posix;";
const SIGNATURE: &str = "(Ljava/lang/String;Llibcore/io/StructAddrinfo;)[Ljava/net/InetAddress;";

pub(super) const TABLE: &[Native] = &[
    (POSIX, "getaddrinfo", SIGNATURE, getaddrinfo),
    (POSIX, "getnameinfo", "(Ljava/net/InetAddress;I)Ljava/lang/String;", getnameinfo),
    (POSIX, "gai_strerror", "(I)Ljava/lang/String;", |t, a| {
        // SAFETY: the system has a constant text for each number.
        let message = unsafe { CStr::from_ptr(libc::gai_strerror(a.int(1))) };
        Ok(Value::Ref(text(t, &message.to_string_lossy())?))
    }),
    (POSIX, "inet_pton", "(ILjava/lang/String;)Ljava/net/InetAddress;", |t, a| {
        let name = rust(t, a.reference(2))?;
        let address = match a.int(1) {
            libc::AF_INET => name.parse().map(IpAddr::V4).ok(),
            libc::AF_INET6 => name.parse().map(IpAddr::V6).ok(),
            _ => return Err(posix::error(t, "inet_pton", Errno::AFNOSUPPORT)),
        };
        address.map_or(NULL, |address| Ok(Value::Ref(inet_address(t, address, 0)?)))
    }),
];

/// The address of a socket for an address and a port of Java; `None` is that of no family, which
/// ends a connection.
///
/// # Errors
/// NullPointerException, or IllegalArgumentException for an address that no socket has.
pub(super) fn socket_address(
    t: &Thread,
    object: Ref,
    port: i32,
) -> Result<Option<SocketAddrAny>, Thrown> {
    let found = match family(t, object)? {
        libc::AF_UNSPEC => return Ok(None),
        libc::AF_UNIX => unix_address(&octets(object)).map(SocketAddrAny::from),
        _ => ip_address(object).map(|(address, scope)| {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            SocketAddrV6::new(address, port as u16, 0, scope).into()
        }),
    };
    found.map(Some).ok_or_else(|| unusable(t))
}

/// The address of a socket in its own family: one of IPv4 stays one.
///
/// # Errors
/// NullPointerException, or IllegalArgumentException for another family.
pub(super) fn verbatim(t: &Thread, object: Ref) -> Result<SocketAddrAny, Thrown> {
    let _family = family(t, object)?;
    match ip_address(object) {
        Some((IpAddr::V4(address), _)) => Ok(SocketAddrV4::new(address, 0).into()),
        Some((IpAddr::V6(address), scope)) => Ok(SocketAddrV6::new(address, 0, 0, scope).into()),
        None => Err(unusable(t)),
    }
}

/// A java.net.InetAddress, and the port.
pub(super) fn java_address(t: &Thread, from: SocketAddrAny) -> Result<(Ref, i32), Thrown> {
    if from.address_family() == AddressFamily::UNIX {
        let path = SocketAddrUnix::try_from(from).ok();
        let path = path.as_ref().and_then(|it| it.path_bytes().or_else(|| it.abstract_name()));
        let path = Value::Ref(bytes(t, path.unwrap_or_default())?);
        return Ok((construct(t, "java/net/InetUnixAddress", "([B)V", &[path])?, 0));
    }
    let family = from.address_family();
    let Ok(from) = SocketAddr::try_from(from) else {
        let message = format!("address family {}", family.as_raw());
        return Err(throw(t, "java/lang/IllegalArgumentException", &message));
    };
    let scope = if let SocketAddr::V6(address) = from { address.scope_id() } else { 0 };
    Ok((inet_address(t, from.ip(), scope)?, i32::from(from.port())))
}

/// A java.net.InetSocketAddress.
pub(super) fn java_socket_address(t: &Thread, from: SocketAddrAny) -> Outcome {
    let (address, port) = java_address(t, from)?;
    let args = [Value::Ref(address), Value::Int(port)];
    let signature = "(Ljava/net/InetAddress;I)V";
    Ok(Value::Ref(construct(t, "java/net/InetSocketAddress", signature, &args)?))
}

/// Writes an address to a java.net.InetSocketAddress of the caller's, if there is one.
pub(super) fn update(t: &Thread, object: Ref, from: Option<SocketAddrAny>) -> Result<(), Thrown> {
    if let Some(from) = from.filter(|_| !object.is_null()) {
        let (address, port) = java_address(t, from)?;
        field(object, "addr", "Ljava/net/InetAddress;").set_ref(object, address);
        field(object, "port", "I").set32(object, port as u32);
    }
    Ok(())
}

/// A java.net.Inet4Address or Inet6Address.
pub(super) fn inet_address(t: &Thread, address: IpAddr, scope: u32) -> Result<Ref, Thrown> {
    let octets = match address {
        IpAddr::V4(address) => bytes(t, &address.octets())?,
        IpAddr::V6(address) => bytes(t, &address.octets())?,
    };
    // This maps `::ffff:a.b.c.d` to Inet4Address.
    let signature = "(Ljava/lang/String;[BI)Ljava/net/InetAddress;";
    let args = [Value::Ref(Ref::NULL), Value::Ref(octets), Value::Int(scope as i32)];
    let made = call(t, "java/net/InetAddress", "getByAddress", signature, &args)?;
    Ok(made.reference())
}

fn family(t: &Thread, object: Ref) -> Result<i32, Thrown> {
    let object = non_null(t, object, "address")?;
    Ok(field(object, "family", "I").get32(object) as i32)
}

fn octets(object: Ref) -> Vec<u8> {
    let array = field(object, "ipaddress", "[B").get_ref(object);
    let length = if array.is_null() { 0 } else { array.length() };
    (0..length).map(|index| array.get_i8(index) as u8).collect()
}

/// The address that a java.net.InetAddress has, and its scope.
fn ip_address(object: Ref) -> Option<(IpAddr, u32)> {
    let octets = octets(object);
    if let Ok(octets) = <[u8; 4]>::try_from(&octets[..]) {
        return Some((Ipv4Addr::from(octets).into(), 0));
    }
    let octets = <[u8; 16]>::try_from(&octets[..]).ok()?;
    // Only Inet6Address has the field.
    let scope = crate::class::Class::of(object).library_field("scope_id", "I");
    Some((Ipv6Addr::from(octets).into(), scope.map_or(0, |field| field.get32(object))))
}

/// The address of a path, or of an abstract name, which begins with a zero.
fn unix_address(path: &[u8]) -> Option<SocketAddrUnix> {
    match path {
        [0, name @ ..] => SocketAddrUnix::new_abstract_name(name).ok(),
        path => SocketAddrUnix::new(path).ok(),
    }
}

fn unusable(t: &Thread) -> Thrown {
    throw(t, "java/lang/IllegalArgumentException", "no address of a socket")
}

/// Throws GaiException. The cause is an ErrnoException where the system says so.
fn gai_error(t: &Thread, function: &str, code: i32, errno: Option<i32>) -> Thrown {
    let made = text(t, function).and_then(|name| {
        let mut args = vec![Value::Ref(name), Value::Int(code)];
        let Some(errno) = errno.filter(|_| code == libc::EAI_SYSTEM) else {
            return construct(t, "libcore/io/GaiException", "(Ljava/lang/String;I)V", &args);
        };
        let cause = [Value::Ref(name), Value::Int(errno)];
        let signature = "(Ljava/lang/String;I)V";
        args.push(Value::Ref(construct(t, "libcore/io/ErrnoException", signature, &cause)?));
        let signature = "(Ljava/lang/String;ILjava/lang/Throwable;)V";
        construct(t, "libcore/io/GaiException", signature, &args)
    });
    made.map_or_else(|thrown| thrown, |exception| t.throw_object(exception))
}

/// Arguments: this, name, hints.
fn getaddrinfo(t: &Thread, a: Args) -> Outcome {
    let (name, hints) = (a.reference(1), a.reference(2));
    // No name has a zero in it.
    let Ok(name) = CString::new(rust(t, name)?) else {
        return Err(gai_error(t, "getaddrinfo", libc::EAI_NONAME, None));
    };
    let hint = |of: &str| match hints.is_null() {
        true => 0,
        false => field(hints, of, "I").get32(hints) as i32,
    };
    let hints = [hint("ai_flags"), hint("ai_family"), hint("ai_socktype"), hint("ai_protocol")];
    let found = t.safe(|| resolve(&name, hints));
    let found = found.map_err(|(code, errno)| gai_error(t, "getaddrinfo", code, errno))?;
    let class = values::class(t, "java/net/InetAddress")?;
    let of_class = values::array_class(t, class)?;
    let array = values::array(t, of_class, found.len())?;
    for (index, address) in (0..).zip(found) {
        let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
        let address = t.scope(|| inet_address(t, address.ip(), scope))?;
        array.set_ref(index, address);
    }
    Ok(Value::Ref(array))
}

/// The addresses of a name. The hints: flags, family, type and protocol. The error is a code of
/// getaddrinfo with the system's.
fn resolve(name: &CStr, hints: [i32; 4]) -> Result<Vec<SocketAddr>, (i32, Option<i32>)> {
    // SAFETY: a structure of numbers and null pointers.
    let mut hint: libc::addrinfo = unsafe { std::mem::zeroed() };
    [hint.ai_flags, hint.ai_family, hint.ai_socktype, hint.ai_protocol] = hints;
    let mut list = ptr::null_mut();
    // SAFETY: a text and hints, both of which the system only reads; it writes the list.
    let code = unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &hint, &mut list) };
    if code != 0 {
        return Err((code, std::io::Error::last_os_error().raw_os_error()));
    }
    let (mut found, mut next) = (Vec::new(), list);
    // SAFETY: the list's elements are valid until it is freed; the last one's successor is null.
    while let Some(one) = unsafe { next.as_ref() } {
        // SAFETY: the element has the address of its family and length.
        found.extend(unsafe { read_address(one.ai_addr) });
        next = one.ai_next;
    }
    // SAFETY: nothing uses the list any longer.
    unsafe { libc::freeaddrinfo(list) };
    // A caller takes the first element without a look at the length.
    if found.is_empty() { Err((libc::EAI_NONAME, None)) } else { Ok(found) }
}

/// An address of IPv4 or IPv6 that the system has made.
///
/// # Safety
/// The pointer is null or that of an address of its family.
pub(super) unsafe fn read_address(from: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the family is what all addresses begin with.
    match i32::from(unsafe { from.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family, by the caller's promise.
            let from = unsafe { from.cast::<libc::sockaddr_in>().read_unaligned() };
            let address = Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr));
            Some(SocketAddrV4::new(address, u16::from_be(from.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family, by the caller's promise.
            let from = unsafe { from.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(from.sin6_addr.s6_addr);
            let port = u16::from_be(from.sin6_port);
            Some(SocketAddrV6::new(address, port, 0, from.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Arguments: this, address, flags.
fn getnameinfo(t: &Thread, a: Args) -> Outcome {
    let (address, flags) = (verbatim(t, a.reference(1))?, a.int(2));
    let mut name = [0u8; libc::NI_MAXHOST as usize];
    let code = t.safe(|| {
        // SAFETY: the system reads an address of its length, and writes a text into the room.
        unsafe {
            libc::getnameinfo(
                address.as_ptr().cast(),
                address.addr_len(),
                name.as_mut_ptr().cast(),
                name.len() as libc::socklen_t,
                ptr::null_mut(),
                0,
                flags,
            )
        }
    });
    if code != 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(gai_error(t, "getnameinfo", code, errno));
    }
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(Value::Ref(text(t, &name.to_string_lossy())?))
}
