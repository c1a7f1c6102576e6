//! java.net.NetworkInterface, by what the system says of its interfaces

use super::addresses::read_address;
use super::socket_options::{request, result};
use super::values::{NULL, Outcome, bytes, rust, strings, text, throw};
use crate::object::Ref;
use crate::stack::Value;
use crate::vm::{Native, Thread, Thrown};
use rustix::io;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::ptr;

const INTERFACE: &str = "Ljava/net/NetworkInterface;";
const POSIX: &str = "Llibcore/io/Posix;";

/// An interface of the system.
#[derive(Default)]
struct Interface {
    flags: i32,
    /// Each: the address, the mask, and the address of all in the network or zeros.
    v4: Vec<u8>,
    /// Each: the address and the mask.
    v6: Vec<u8>,
    /// The hardware's address; empty if there is none.
    hardware: Vec<u8>,
}

pub(super) const TABLE: &[Native] = &[
    (INTERFACE, "getInterfaceNames", "()[Ljava/lang/String;", |t, _| {
        let all = interfaces(t)?;
        // In the order of their numbers, as the system lists them.
        let mut names: Vec<_> = all.into_keys().map(|name| (index(&name), name)).collect();
        names.sort();
        let names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
        Ok(Value::Ref(strings(t, &names)?))
    }),
    (INTERFACE, "getInterfaceIndex", "(Ljava/lang/String;)I", |t, a| {
        Ok(Value::Int(index(&rust(t, a.reference(0))?) as i32))
    }),
    (INTERFACE, "getIpv6Addresses", "(Ljava/lang/String;)[B", |t, a| {
        array(t, &interface(t, a.reference(0))?.v6)
    }),
    (INTERFACE, "getIpv4Addresses", "(Ljava/lang/String;)[B", |t, a| {
        array(t, &interface(t, a.reference(0))?.v4)
    }),
    (INTERFACE, "getHardwareAddress", "(Ljava/lang/String;)[B", |t, a| {
        let address = interface(t, a.reference(0))?.hardware;
        // An interface without hardware has zeros.
        if address.iter().all(|byte| *byte == 0) { NULL } else { array(t, &address) }
    }),
    (INTERFACE, "getFlags", "(Ljava/lang/String;)I", |t, a| {
        Ok(Value::Int(interface(t, a.reference(0))?.flags))
    }),
    (INTERFACE, "getMTU", "(Ljava/lang/String;)I", |t, a| {
        let name = rust(t, a.reference(0))?;
        Ok(Value::Int(largest_packet(&name).map_err(|error| exception(t, &error.to_string()))?))
    }),
    (POSIX, "if_indextoname", "(I)Ljava/lang/String;", |t, a| {
        let mut name = [0u8; libc::IF_NAMESIZE];
        // SAFETY: the system writes a name into the room, which has the size for one.
        let found = unsafe { libc::if_indextoname(a.int(1) as u32, name.as_mut_ptr().cast()) };
        if found.is_null() {
            return NULL;
        }
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(Value::Ref(text(t, &name.to_string_lossy())?))
    }),
];

fn array(t: &Thread, of: &[u8]) -> Outcome {
    if of.is_empty() { NULL } else { Ok(Value::Ref(bytes(t, of)?)) }
}

fn exception(t: &Thread, message: &str) -> Thrown {
    throw(t, "java/net/SocketException", message)
}

/// The number of an interface; 0 if there is none.
fn index(name: &str) -> u32 {
    // SAFETY: the system only reads the name.
    CString::new(name).map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

fn interface(t: &Thread, name: Ref) -> Result<Interface, Thrown> {
    let name = rust(t, name)?;
    let found = interfaces(t)?.remove(&name);
    found.ok_or_else(|| exception(t, &format!("no interface {name}")))
}

fn interfaces(t: &Thread) -> Result<BTreeMap<String, Interface>, Thrown> {
    t.safe(all).map_err(|error| exception(t, &error.to_string()))
}

/// All interfaces with their addresses.
fn all() -> io::Result<BTreeMap<String, Interface>> {
    let (mut all, mut list) = (BTreeMap::<String, Interface>::new(), ptr::null_mut());
    // SAFETY: the system writes the list.
    result(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut next = list;
    // SAFETY: the list's elements are valid until it is freed; the last one's successor is null.
    while let Some(one) = unsafe { next.as_ref() } {
        next = one.ifa_next;
        // SAFETY: each element has a name.
        let name = unsafe { CStr::from_ptr(one.ifa_name) }.to_string_lossy();
        // Android's library has no names such as eth0:1 of a second address.
        let interface = all.entry(name.split(':').next().unwrap_or_default().to_owned());
        let interface = interface.or_default();
        interface.flags = one.ifa_flags as i32;
        // SAFETY: addresses of their families, or null.
        let [address, mask, of_all] =
            unsafe { [one.ifa_addr, one.ifa_netmask, one.ifa_ifu].map(|it| read_address(it)) };
        match address.map(|it| it.ip()) {
            Some(IpAddr::V4(address)) => {
                let of_all = of_all.filter(|_| one.ifa_flags & libc::IFF_BROADCAST as u32 != 0);
                for part in [Some(address), v4(mask), v4(of_all)] {
                    interface.v4.extend(part.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
                }
            }
            Some(IpAddr::V6(address)) => {
                let mask = match mask {
                    Some(SocketAddr::V6(mask)) => mask.ip().octets(),
                    _ => [0xff; 16],
                };
                interface.v6.extend(address.octets());
                interface.v6.extend(mask);
            }
            None => {
                // SAFETY: an address of its family, or null.
                if let Some(address) = unsafe { hardware(one.ifa_addr) } {
                    interface.hardware = address;
                }
            }
        }
    }
    // SAFETY: nothing uses the list any longer.
    unsafe { libc::freeifaddrs(list) };
    Ok(all)
}

fn v4(address: Option<SocketAddr>) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address?.ip() { Some(address) } else { None }
}

/// The hardware's address.
///
/// # Safety
/// The pointer is null or that of an address of its family.
unsafe fn hardware(from: *const libc::sockaddr) -> Option<Vec<u8>> {
    // SAFETY: the family is what all addresses begin with.
    if i32::from(unsafe { from.as_ref() }?.sa_family) != libc::AF_PACKET {
        return None;
    }
    // SAFETY: an address of this family, by the caller's promise.
    let from = unsafe { from.cast::<libc::sockaddr_ll>().read_unaligned() };
    Some(from.sll_addr.iter().take(usize::from(from.sll_halen)).copied().collect())
}

/// How long a packet may be.
fn largest_packet(name: &str) -> io::Result<i32> {
    let mut request = request(name).ok_or(io::Errno::NODEV)?;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: the command reads the name and writes a number.
    result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: the system has written the number.
    Ok(unsafe { request.ifr_ifru.ifru_mtu })
}
