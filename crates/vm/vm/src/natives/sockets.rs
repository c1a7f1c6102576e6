//! libcore.io.Posix: sockets and poll
//!
//! A call that may wait is registered ([`Call`]), so that another thread can close its socket. It
//! then throws SocketException with Android's text.

use super::addresses::{java_socket_address, socket_address, update};
use super::blocked::{self, Call};
use super::posix::{Span, borrow, error, file_descriptor, ok, with_fd};
use super::values::{Outcome, VOID, copy, field, non_null, throw};
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::Timespec;
use rustix::io::{self, Errno};
use rustix::net::{
    self, AddressFamily, Protocol, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketFlags,
    SocketType,
};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::time::{Duration, Instant};

const POSIX: &str = "Llibcore/io/Posix;";
const MONITOR: &str = "Llibcore/io/AsynchronousCloseMonitor;";

pub(super) const TABLE: &[Native] = &[
    (POSIX, "socket", "(III)Ljava/io/FileDescriptor;", |t, a| {
        let fd = ok(
            t,
            "socket",
            kind(a).and_then(|(family, kind, protocol)| {
                net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)
            }),
        )?;
        file_descriptor(t, fd)
    }),
    (POSIX, "socketpair", "(IIILjava/io/FileDescriptor;Ljava/io/FileDescriptor;)V", |t, a| {
        let first = non_null(t, a.reference(4), "fd1")?;
        let second = non_null(t, a.reference(5), "fd2")?;
        let pair = ok(
            t,
            "socketpair",
            kind(a).and_then(|(family, kind, protocol)| {
                net::socketpair(family, kind, SocketFlags::CLOEXEC, protocol)
            }),
        )?;
        for (object, fd) in [(first, pair.0), (second, pair.1)] {
            field(object, "descriptor", "I").set32(object, fd.into_raw_fd() as u32);
        }
        VOID
    }),
    (POSIX, "bind", "(Ljava/io/FileDescriptor;Ljava/net/InetAddress;I)V", |t, a| {
        let Some(address) = socket_address(t, a.reference(2), a.int(3))? else {
            return Err(error(t, "bind", Errno::AFNOSUPPORT));
        };
        let address = any_of_both(address);
        wait(t, a.reference(1), "bind", |fd| net::bind(fd, &address), |()| false)?;
        VOID
    }),
    (POSIX, "connect", "(Ljava/io/FileDescriptor;Ljava/net/InetAddress;I)V", |t, a| {
        let address = socket_address(t, a.reference(2), a.int(3))?;
        let call = |fd: BorrowedFd<'_>| match &address {
            Some(address) => net::connect(fd, address),
            None => net::connect_unspec(fd),
        };
        wait(t, a.reference(1), "connect", call, |()| false)?;
        VOID
    }),
    (POSIX, "listen", "(Ljava/io/FileDescriptor;I)V", |t, a| {
        let backlog = a.int(2);
        with_fd(t, a.reference(1), "listen", |fd| net::listen(fd, backlog))?;
        VOID
    }),
    (POSIX, "accept", ACCEPT, |t, a| {
        let accept = |fd: BorrowedFd<'_>| net::acceptfrom_with(fd, SocketFlags::CLOEXEC);
        let (fd, peer) = wait(t, a.reference(1), "accept", accept, |_| false)?;
        update(t, a.reference(2), peer)?;
        file_descriptor(t, fd)
    }),
    (POSIX, "shutdown", "(Ljava/io/FileDescriptor;I)V", |t, a| {
        let how = match a.int(2) {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(error(t, "shutdown", Errno::INVAL)),
        };
        with_fd(t, a.reference(1), "shutdown", |fd| net::shutdown(fd, how))?;
        VOID
    }),
    (POSIX, "getsockname", "(Ljava/io/FileDescriptor;)Ljava/net/SocketAddress;", |t, a| {
        let address = with_fd(t, a.reference(1), "getsockname", |fd| net::getsockname(fd))?;
        java_socket_address(t, address)
    }),
    (POSIX, "getpeername", "(Ljava/io/FileDescriptor;)Ljava/net/SocketAddress;", |t, a| {
        let address = with_fd(t, a.reference(1), "getpeername", |fd| {
            // A peer without a name is one of a pair, whose own end has no name either.
            net::getpeername(fd)?.map_or_else(|| net::getsockname(fd), Ok)
        })?;
        java_socket_address(t, address)
    }),
    (POSIX, "recvfromBytes", RECEIVE, |t, a| {
        let span = Span::new(t, a.reference(2), a.int(3), a.int(4))?;
        let flags = RecvFlags::from_bits_retain(a.int(5) as u32);
        let mut bytes = vec![0; span.n_bytes()];
        let receive = |fd: BorrowedFd<'_>| {
            let (_, n, peer) = net::recvfrom(fd, &mut bytes[..], flags)?;
            Ok((n, peer))
        };
        let (n, peer) = wait(t, a.reference(1), "recvfrom", receive, |(n, _)| *n == 0)?;
        span.put(&bytes[..n.min(bytes.len())]);
        update(t, a.reference(6), peer)?;
        Ok(Value::Int(n as i32))
    }),
    (POSIX, "sendtoBytes", SEND, |t, a| {
        let bytes = Span::new(t, a.reference(2), a.int(3), a.int(4))?.get();
        // A peer that has gone is an error, and never a signal.
        let flags = SendFlags::from_bits_retain(a.int(5) as u32) | SendFlags::NOSIGNAL;
        let to = match a.reference(6) {
            to if to.is_null() => None,
            to => socket_address(t, to, a.int(7))?,
        };
        let send = |fd: BorrowedFd<'_>| match &to {
            Some(to) => net::sendto(fd, &bytes, flags, to),
            None => net::send(fd, &bytes, flags),
        };
        let n = wait(t, a.reference(1), "sendto", send, |_| false)?;
        Ok(Value::Int(n as i32))
    }),
    (POSIX, "sendfile", SEND_FILE, |t, a| {
        let from = borrow(non_null(t, a.reference(2), "inFd")?);
        let from = ok(t, "sendfile", from.ok_or(Errno::BADF))?;
        let (holder, count) = (a.reference(3), usize::try_from(a.long(4)));
        let count = ok(t, "sendfile", count.map_err(|_| Errno::INVAL))?;
        let offset = (!holder.is_null()).then(|| field(holder, "value", "J"));
        let mut at = offset.map(|field| field.get64(holder));
        let send = |to: BorrowedFd<'_>| rustix::fs::sendfile(to, from, at.as_mut(), count);
        let n = wait(t, a.reference(1), "sendfile", send, |_| false)?;
        if let (Some(field), Some(at)) = (offset, at) {
            field.set64(holder, at);
        }
        Ok(Value::Long(n as i64))
    }),
    (POSIX, "poll", "([Llibcore/io/StructPollfd;I)I", poll),
    (MONITOR, "signalBlockedThreads", "(Ljava/io/FileDescriptor;)V", |t, a| {
        if let Some(fd) = borrow(non_null(t, a.reference(0), "fd")?) {
            t.safe(|| blocked::release(fd));
        }
        VOID
    }),
];

const ACCEPT: &str =
    "(Ljava/io/FileDescriptor;Ljava/net/InetSocketAddress;)Ljava/io/FileDescriptor;";
const SEND_FILE: &str =
    "(Ljava/io/FileDescriptor;Ljava/io/FileDescriptor;Llibcore/util/MutableLong;J)J";
const RECEIVE: &str =
    "(Ljava/io/FileDescriptor;Ljava/lang/Object;IIILjava/net/InetSocketAddress;)I";
const SEND: &str = "(Ljava/io/FileDescriptor;Ljava/lang/Object;IIILjava/net/InetAddress;I)I";

/// Family, type and protocol, which are the first arguments.
fn kind(a: Args) -> io::Result<(AddressFamily, SocketType, Option<Protocol>)> {
    let family = u16::try_from(a.int(1)).map_err(|_| Errno::AFNOSUPPORT)?;
    let protocol = u32::try_from(a.int(3)).map_err(|_| Errno::PROTONOSUPPORT)?;
    let protocol = std::num::NonZeroU32::new(protocol).map(Protocol::from_raw);
    let kind = SocketType::from_raw(a.int(2) as u32);
    Ok((AddressFamily::from_raw(family), kind, protocol))
}

/// The address for all addresses of this machine. Java's is that of IPv4, also for a socket that
/// then connects by IPv6, which the system permits for `::` only.
fn any_of_both(address: SocketAddrAny) -> SocketAddrAny {
    match SocketAddrV6::try_from(address.clone()) {
        Ok(it) if it.ip().to_ipv4_mapped().is_some_and(|it| it.is_unspecified()) => {
            SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, it.port(), 0, 0).into()
        }
        _ => address,
    }
}

fn closed(t: &Thread) -> Thrown {
    throw(t, "java/net/SocketException", "Socket closed")
}

/// Registers a call on the descriptors of Java objects. `None` if one of them is closed: nothing
/// may be called then, because its number may be another file's.
fn enter(objects: &[Ref], fds: &[BorrowedFd<'_>]) -> Option<Call> {
    let call = Call::enter(fds.iter().map(|fd| fd.as_raw_fd()));
    // A closer that has not seen this call has written -1 before.
    let number = |object: &Ref| borrow(*object).map(|fd| fd.as_raw_fd());
    let is_same = |(object, fd)| number(object) == Some(BorrowedFd::as_raw_fd(fd));
    objects.iter().zip(fds).all(is_same).then_some(call)
}

/// Makes a call until no signal interrupts it.
fn uninterrupted<T>(entered: &Call, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        if entered.is_closed() {
            return Err(Errno::INTR);
        }
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Makes a call that may wait, as a safe thread. `is_end` says of a result that it is the end of
/// what a peer sends, which closing looks like, too.
///
/// # Errors
/// SocketException if the socket is closed; ErrnoException.
fn wait<T>(
    t: &Thread,
    object: Ref,
    function: &str,
    mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    is_end: impl Fn(&T) -> bool,
) -> Result<T, Thrown> {
    let object = non_null(t, object, "fd")?;
    let fd = borrow(object).ok_or_else(|| closed(t))?;
    let entered = enter(&[object], &[fd]).ok_or_else(|| closed(t))?;
    let (result, is_closed) = t.safe(|| {
        let result = uninterrupted(&entered, || call(fd));
        let is_closed = entered.is_closed();
        // The closer need not wait until this thread runs again.
        drop(entered);
        (result, is_closed)
    });
    if result.as_ref().map_or(true, is_end) && (is_closed || borrow(object).is_none()) {
        return Err(closed(t));
    }
    ok(t, function, result)
}

/// What a call of poll looks at.
#[derive(Default)]
struct Polled {
    /// Each StructPollfd with an open descriptor, that descriptor's Java object, and itself.
    structs: Vec<Ref>,
    objects: Vec<Ref>,
    fds: Vec<BorrowedFd<'static>>,
    /// How many have a descriptor that is closed.
    n_closed: usize,
}

/// Reads the elements of a StructPollfd[], whose end may be empty. An element without a
/// FileDescriptor is one that a selector keeps for later.
fn polled(array: Ref) -> Polled {
    let mut polled = Polled::default();
    for one in (0..array.length()).map(|i| array.get_ref(i)).take_while(|one| !one.is_null()) {
        let object = field(one, "fd", "Ljava/io/FileDescriptor;").get_ref(one);
        let fd = Some(object).filter(|it| !it.is_null()).map(borrow);
        if let Some(Some(fd)) = fd {
            polled.structs.push(one);
            polled.objects.push(object);
            polled.fds.push(fd);
        }
        let is_closed = matches!(fd, Some(None));
        polled.n_closed += usize::from(is_closed);
        set_events(one, if is_closed { PollFlags::NVAL } else { PollFlags::empty() });
    }
    polled
}

fn set_events(one: Ref, found: PollFlags) {
    field(one, "revents", "S").set32(one, u32::from(found.bits()));
}

/// Arguments: this, StructPollfd[], milliseconds, which are without a limit if negative.
///
/// A descriptor that is closed is ready at once, as POLLNVAL, also if another thread closes it
/// meanwhile. Were it EINTR, as on Android, ServerSocket.accept would wait for its whole time-out.
fn poll(t: &Thread, a: Args) -> Outcome {
    // Another thread may write to the array while this one waits.
    let array = copy(t, non_null(t, a.reference(1), "fds")?)?;
    let millis = a.int(2);
    let (looked_at, entered) = loop {
        let looked_at = polled(array);
        // Otherwise one has been closed meanwhile.
        if let Some(entered) = enter(&looked_at.objects, &looked_at.fds) {
            break (looked_at, entered);
        }
    };
    let Polled { structs, fds, n_closed, .. } = looked_at;
    let events = |one: &Ref| field(*one, "events", "S").get32(*one) as u16;
    let flags = structs.iter().map(|one| PollFlags::from_bits_retain(events(one)));
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().zip(flags).map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, flags)).collect();
    let limit = u64::try_from(millis).ok().map(Duration::from_millis);
    let limit = if n_closed > 0 { Some(Duration::ZERO) } else { limit };
    let (result, closed) = t.safe(|| {
        let end = limit.map(|limit| Instant::now() + limit);
        let result = uninterrupted(&entered, || {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|it| Timespec {
                tv_sec: it.as_secs() as i64,
                tv_nsec: i64::from(it.subsec_nanos()),
            });
            rustix::event::poll(&mut polled, left.as_ref())
        });
        let closed = entered.closed();
        drop(entered);
        (result, closed)
    });
    if closed.is_empty() {
        ok(t, "poll", result)?;
    }
    let mut n = n_closed;
    for ((one, fd), polled) in structs.iter().zip(&fds).zip(&polled) {
        let is_closed = closed.contains(&fd.as_raw_fd());
        let found = if is_closed { PollFlags::NVAL } else { polled.revents() };
        set_events(*one, found);
        n += usize::from(!found.is_empty());
    }
    Ok(Value::Int(n as i32))
}
