//! The engine's link to its broker: two sockets, the tally page, barriers; and to the next broker
//! when this one has died.

use super::open_error::OpenError;
use crate::sys::packet::{PAUSE, descriptors, passes, receive, receive_patiently, send};
use baton_abi::control::{
    Event, Identity, Reply, Request, Stamps, VERSION, decode, encode, encode_on_behalf,
};
use baton_abi::holder_list::{Entry, Holding, STRENGTH_AT, TALLY_FILE_BYTES, entry_at};
use baton_abi::lane::{TALLY_BYTES, tally};
use baton_abi::ticket_ring::{self, Record};
use baton_shm::blocking::pause;
use baton_shm::fd_numbers::set_apart;
use baton_shm::lock::Lock;
use baton_shm::mapping::{self, Mapping};
use baton_shm::namespaces::{is_overflow_uid, may_be_overflow_uid};
use baton_shm::socket::peer_credentials;
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The link to the broker. When one broker dies, the control thread finds the next.
#[derive(Debug)]
pub struct Broker {
    place: PathBuf,
    /// The engine's status page and tally file, for the next one.
    pages: [OwnedFd; 2],
    /// The broker's user: the next broker has to be the same user's.
    uid: Uid,
    /// The credential that proves this process's identity to the next broker.
    credential: Vec<u8>,
    /// The process whose device this engine serves, if that is another one.
    on_behalf: Option<u32>,
    /// This process's number of the last connection that it has made.
    connection: AtomicU32,
    /// The clock by which messages are stamped.
    pub stamps: Stamps,
    link: Lock<Arc<Link>>,
    /// The connection to the next broker, from its greeting until it is the current link.
    next: Lock<Option<Arc<OwnedFd>>>,
    /// The page on which the broker counts the events that it has sent, and behind it this
    /// process's list of holders, which the broker reads.
    tally: Mapping<TALLY_FILE_BYTES>,
    /// Held while events are taken from the stream and applied.
    pub applying: Lock<()>,
    events_taken: AtomicU32,
    /// Tickets taken from the ring, under `applying`.
    tickets_taken: AtomicU32,
    /// The number of the last barrier that was asked for.
    barriers: AtomicU64,
    /// The number of the last barrier that has come.
    barrier_seen: AtomicU64,
}

/// A connection to one broker.
#[derive(Debug)]
pub struct Link {
    /// The broker's number.
    pub era: u32,
    /// The sockets for requests and events. `None` once the engine looks for another broker: its
    /// link needs the two descriptors.
    sockets: Option<[Arc<OwnedFd>; 2]>,
    /// Held from a request to its answer.
    question: Lock<()>,
    lost: AtomicBool,
    /// This process's number of the connection.
    connection: u32,
    /// Events of this connection that were taken, from the ring of tickets and from the socket.
    n_taken: AtomicU32,
}

/// The broker has closed the connection, or has broken the protocol.
#[derive(Debug)]
pub struct Gone;

/// Attempts at a request that has no answer, one pause apart.
const ATTEMPTS: u32 = 1000;

/// The next broker's answer to a greeting.
#[derive(Debug)]
pub enum Greeting {
    /// There is no broker yet, or it is gone again.
    Later,
    /// The broker refuses this process.
    Refused(Errno),
    /// The broker recognises this process, and waits for its claims.
    Welcome(Link),
}

/// A connection to a broker that has not been greeted, with what the greeting carries.
#[derive(Debug)]
pub struct Dialled {
    place: PathBuf,
    requests: OwnedFd,
    uid: Uid,
    pages: [OwnedFd; 2],
    tally: Mapping<TALLY_FILE_BYTES>,
}

/// A connection to a broker that has been greeted and has not answered yet.
#[derive(Debug)]
pub struct Greeted {
    dialled: Dialled,
    context: String,
    /// As in [`Broker`].
    pub on_behalf: Option<u32>,
}

/// The number of a process's connection to its first broker.
const FIRST_CONNECTION: u32 = 1;

fn talk_failed(errno: Errno) -> OpenError {
    OpenError::System { operation: "talk to the broker", errno }
}

impl Dialled {
    /// Makes a tally page. The connection is [`dial`]'s to this socket.
    pub fn new(
        (requests, uid): (OwnedFd, Uid),
        socket: &Path,
        status_page: OwnedFd,
    ) -> Result<Dialled, OpenError> {
        let system = |operation| move |errno| OpenError::System { operation, errno };
        let (tally_file, tally) =
            mapping::create_mapped("baton-tally").map_err(system("memfd_create, mmap"))?;
        let tally: Mapping<TALLY_FILE_BYTES> = tally;
        let pages = [status_page, tally_file];
        // The program may go to another directory.
        let place = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        Ok(Dialled { place, requests, uid, pages, tally })
    }

    /// Whether the broker has ended or closed the connection.
    pub fn has_hung_up(&self) -> bool {
        let mut waits = [PollFd::new(&self.requests, PollFlags::RDHUP)];
        rustix::event::poll(&mut waits, Some(&Timespec::default())) != Ok(0)
    }

    /// Introduces the engine with its status page and tally page, and does not wait for the
    /// broker's answer. `on_behalf` as in [`Broker`].
    pub fn greet(self, context: &str, on_behalf: Option<u32>) -> Result<Greeted, OpenError> {
        let Dialled { requests, pages, .. } = &self;
        let (version, context, channels) = (VERSION, context.to_owned(), channels());
        let connection = FIRST_CONNECTION;
        let hello = Request::Hello { version, context: context.clone(), channels, connection };
        let carried = pages.each_ref().map(AsFd::as_fd);
        let packet = encode_on_behalf(on_behalf, &hello);
        send(requests, &packet, &carried, SendFlags::empty()).map_err(talk_failed)?;
        Ok(Greeted { dialled: self, context, on_behalf })
    }
}

impl Greeted {
    /// Waits for the broker's answer.
    pub fn await_welcome(self) -> Result<(Broker, Identity), OpenError> {
        let Greeted { dialled, context, on_behalf } = self;
        let Dialled { place, requests, uid, pages, tally } = dialled;
        let (packet, fds) = receive_patiently(&requests).map_err(talk_failed)?;
        match decode(&packet) {
            Some(Reply::Welcome { identity, era, credential, stamps }) => {
                let mut fds = fds.map_err(talk_failed)?.into_iter();
                let events = fds.next().ok_or(talk_failed(Errno::PROTO))?;
                let link = Link::new(era, FIRST_CONNECTION, Arc::new(requests), events);
                let link = Lock::new(Arc::new(link));
                let broker = Broker {
                    place,
                    pages,
                    uid,
                    credential,
                    on_behalf,
                    connection: AtomicU32::new(FIRST_CONNECTION),
                    stamps,
                    link,
                    next: Lock::new(None),
                    tally,
                    applying: Lock::new(()),
                    events_taken: AtomicU32::new(0),
                    tickets_taken: AtomicU32::new(0),
                    barriers: AtomicU64::new(0),
                    barrier_seen: AtomicU64::new(0),
                };
                Ok((broker, identity))
            }
            Some(Reply::Refused { errno }) => {
                Err(OpenError::Refused { context, errno: Errno::from_raw_os_error(errno) })
            }
            _ => Err(talk_failed(Errno::PROTO)),
        }
    }
}

impl Broker {
    /// The current connection, dead or alive.
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link.lock())
    }

    /// [`Link::ask`] of the current link.
    pub fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        self.link().ask(request)
    }

    /// [`Link::tell`] of the current link.
    pub fn tell(&self, request: &Request) {
        self.link().tell(request);
    }

    /// Greets the next broker without waiting for it. The answer comes on this socket.
    pub fn greet_next(&self) -> Result<Arc<OwnedFd>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, uid) = connect(&self.place, flags).map_err(|(_, errno)| errno)?;
        if uid != self.uid {
            return Err(Errno::PERM);
        }
        // Relaxed: the control thread alone connects again.
        let last = self.connection.load(Ordering::Relaxed);
        let connection = last.wrapping_add(1).max(FIRST_CONNECTION);
        self.connection.store(connection, Ordering::Relaxed);
        let (version, credential, channels) = (VERSION, self.credential.clone(), channels());
        let resume = Request::Resume { version, credential, channels, connection };
        let carried = self.pages.each_ref().map(AsFd::as_fd);
        let packet = encode_on_behalf(self.on_behalf, &resume);
        send(&socket, &packet, &carried, SendFlags::empty())?;
        let socket = Arc::new(socket);
        *self.next.lock() = Some(Arc::clone(&socket));
        Ok(socket)
    }

    /// Reads the next broker's answer.
    pub fn hear_next(&self, socket: Arc<OwnedFd>) -> Greeting {
        // Without room for the event socket this process is not welcome yet.
        let Ok((packet, Ok(fds))) = receive(&socket, RecvFlags::DONTWAIT) else {
            return Greeting::Later;
        };
        match (decode(&packet), fds.into_iter().next()) {
            (Some(Reply::Welcome { era, .. }), Some(events)) => {
                match rustix::io::ioctl_fionbio(&socket, false) {
                    Ok(()) => {
                        let connection = self.connection.load(Ordering::Relaxed);
                        Greeting::Welcome(Link::new(era, connection, socket, events))
                    }
                    Err(_) => Greeting::Later,
                }
            }
            (Some(Reply::Refused { errno }), _) => match Errno::from_raw_os_error(errno) {
                // EBUSY: the broker has not seen the end of this process's earlier attempt.
                errno if errno == Errno::BUSY || passes(errno) => Greeting::Later,
                errno => Greeting::Refused(errno),
            },
            _ => Greeting::Refused(Errno::PROTO),
        }
    }

    /// Makes this link the current one.
    pub fn replace(&self, link: Arc<Link>) {
        *self.link.lock() = link;
        self.give_up_next();
    }

    /// The connection to the next broker is the current link, or has failed.
    pub fn give_up_next(&self) {
        *self.next.lock() = None;
    }

    /// Whether the broker has sent events that no thread has taken yet. The control thread will
    /// take them later, but an engine should know an event before its program can hear of the cause
    /// elsewhere.
    pub fn has_events(&self) -> bool {
        let sent = self.tally.word(tally::EVENTS).load(Ordering::Acquire);
        sent != self.events_taken.load(Ordering::Relaxed)
    }

    /// An event of the current link has been taken and applied.
    pub fn count_event(&self) {
        self.events_taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the link's next event if it lies in the [`ticket_ring`]. Called with `applying`
    /// locked.
    pub fn next_ticket(&self, link: &Link) -> Option<Event> {
        loop {
            let head = self.tickets_taken.load(Ordering::Relaxed);
            // Acquire pairs with the broker's release of the whole record.
            if self.tally.word(ticket_ring::TAIL).load(Ordering::Acquire) == head {
                return None;
            }
            let mut record = Record::default();
            let at = ticket_ring::record_at(head);
            self.tally.view().read(at, bytemuck::bytes_of_mut(&mut record));
            let is_of_link = record.connection == link.connection;
            if is_of_link && record.number != link.n_taken.load(Ordering::Relaxed) {
                return None;
            }
            let next = head.wrapping_add(1);
            self.tickets_taken.store(next, Ordering::Relaxed);
            self.tally.word(ticket_ring::HEAD).store(next, Ordering::Release);
            if is_of_link {
                link.count_event();
                return Some(record.event());
            }
        }
    }

    /// Forgets events that were counted and not sent: they will not come.
    pub fn forget_tally(&self) {
        let taken = self.events_taken.load(Ordering::Relaxed);
        self.tally.word(tally::EVENTS).store(taken, Ordering::Relaxed);
    }

    /// The word at which the standby looper waits: the broker changes it with each lane.
    pub fn lanes_word(&self) -> &AtomicU32 {
        self.tally.word(tally::LANES)
    }

    /// Writes an entry of this process's list of holders, under the state's lock.
    pub fn write_list(&self, entry: u32, holding: Option<Holding>) {
        let Some(at) = entry_at(entry) else { return };
        let written = holding.map(Entry::of).unwrap_or_default();
        let mut now = Entry::default();
        self.tally.view().read(at, bytemuck::bytes_of_mut(&mut now));
        let strength = self.tally.word(at + STRENGTH_AT);
        if now.strength() == 0 {
            // A reader takes nothing from the entry until the last word is there.
            self.tally.view().write(at, &bytemuck::bytes_of(&written)[..STRENGTH_AT]);
            let check = STRENGTH_AT + size_of::<u32>();
            self.tally.view().write(at + check, &bytemuck::bytes_of(&written)[check..]);
        }
        strength.store(written.strength(), Ordering::Release);
    }

    /// Locks the tally page in memory.
    pub fn mlock_tally(&self) -> Result<(), Errno> {
        self.tally.view().lock_in_memory(0, TALLY_BYTES)
    }

    /// The number of a new barrier.
    pub fn next_barrier(&self) -> u64 {
        self.barriers.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The barrier has come.
    pub fn pass_barrier(&self, number: u64) {
        self.barrier_seen.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether the barrier has come.
    pub fn has_passed(&self, number: u64) -> bool {
        self.barrier_seen.load(Ordering::Acquire) >= number
    }

    /// Calls `close` with each socket to a broker, in a child of fork: a thread of the parent may
    /// hold a lock for ever there.
    pub fn sockets_in_child(&self, close: impl Fn(BorrowedFd<'_>)) {
        if let Some(link) = self.link.try_lock() {
            link.sockets().for_each(&close);
        }
        if let Some(next) = self.next.try_lock() {
            next.iter().for_each(|next| close(next.as_fd()));
        }
    }
}

impl Link {
    /// A link of these sockets.
    pub(crate) fn new(era: u32, connection: u32, requests: Arc<OwnedFd>, events: OwnedFd) -> Link {
        let sockets = Some([requests, Arc::new(events)]);
        let (question, lost) = (Lock::new(()), AtomicBool::new(false));
        Link { era, sockets, question, lost, connection, n_taken: AtomicU32::new(0) }
    }

    /// An event of this connection has been taken.
    pub fn count_event(&self) {
        self.n_taken.fetch_add(1, Ordering::Relaxed);
    }

    /// A link to no broker, until the next broker has come.
    pub fn none(era: u32) -> Link {
        let (question, lost) = (Lock::new(()), AtomicBool::new(true));
        // No record is of connection 0.
        Link { era, sockets: None, question, lost, connection: 0, n_taken: AtomicU32::new(0) }
    }

    fn requests(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.sockets.as_ref().map(|[requests, _]| requests.as_fd()).ok_or(Errno::CONNREFUSED)
    }

    /// A request and its answer; a refusal is its errno. `ECONNREFUSED` once the broker is gone;
    /// `ENOMEM` and its like if the request could not be sent.
    pub fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        let _question = self.question.lock();
        let requests = self.requests()?;
        let gone = |errno| if passes(errno) { errno } else { Errno::CONNREFUSED };
        send(requests, &encode(request), &[], SendFlags::empty()).map_err(gone)?;
        let (packet, _) = receive_patiently(requests).map_err(|_| Errno::CONNREFUSED)?;
        match decode(&packet) {
            Some(Reply::Refused { errno }) => Err(Errno::from_raw_os_error(errno)),
            Some(reply) => Ok(reply),
            None => Err(Errno::CONNREFUSED),
        }
    }

    /// A request without an answer. Lost with the broker if that is gone: false.
    pub fn tell(&self, request: &Request) -> bool {
        let Ok(requests) = self.requests() else { return false };
        let packet = encode(request);
        for _ in 0..ATTEMPTS {
            match send(requests, &packet, &[], SendFlags::empty()) {
                Err(errno) if passes(errno) => pause(PAUSE),
                outcome => return outcome.is_ok(),
            }
        }
        false
    }

    /// The next event of the socket with its descriptors, if there is one. Earlier ones may lie in
    /// the ring of tickets.
    #[expect(clippy::type_complexity, reason = "an event, and what came of its descriptors")]
    pub fn next_event(&self) -> Result<Option<(Event, Result<Vec<OwnedFd>, Errno>)>, Gone> {
        let events = self.events().ok_or(Gone)?;
        match receive(events, RecvFlags::DONTWAIT) {
            Ok((packet, fds)) => {
                let event = decode(&packet).ok_or(Gone)?;
                Ok(Some((event, fds)))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) if passes(errno) => {
                // The event stays where it is.
                pause(PAUSE);
                Ok(None)
            }
            Err(_) => Err(Gone),
        }
    }

    /// Ends the link after its last event: a broker that still lives sees so and can take this
    /// process back. True the first time.
    pub fn set_lost(&self) -> bool {
        let is_first = !self.lost.swap(true, Ordering::SeqCst);
        if is_first {
            self.shut_down();
        }
        is_first
    }

    /// Whether [`Link::set_lost`] was called.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// The event socket, to be polled; `None` once the engine looks for another broker.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(|[_, events]| events.as_fd())
    }

    /// Both sockets.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().flatten().map(AsFd::as_fd)
    }

    /// Ends the connection: the broker takes this process for dead.
    pub fn shut_down(&self) {
        for socket in self.sockets() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

/// Channels for which this process has descriptors as server: three for each, of half the table.
fn channels() -> u32 {
    u32::try_from(descriptors() / 6).unwrap_or(u32::MAX)
}

/// The broker of a simulated machine hears so who has connected.
fn note_connection() {
    #[cfg(simulated)]
    if let Some(machine) = baton_shm::simulation::machine() {
        machine.note_connection();
    }
}

/// Connects to the broker's socket, and checks the listener's user: any user may be able to make
/// the directory, and a false broker could tell this process anything.
/// Returns the socket and that user.
pub fn dial(socket: &Path) -> Result<(OwnedFd, Uid), OpenError> {
    let (fd, listener) =
        connect(socket, SocketFlags::CLOEXEC).map_err(|(operation, errno)| match operation {
            "connect" => OpenError::NoBroker { socket: socket.display().to_string(), errno },
            _ => OpenError::System { operation, errno },
        })?;
    if is_overflow_uid(listener.as_raw()) {
        return Err(OpenError::Unmapped { socket: socket.display().to_string() });
    }
    if !listener.is_root() && listener != rustix::process::geteuid() {
        let (socket, uid) = (socket.display().to_string(), listener.as_raw());
        return Err(match may_be_overflow_uid(uid) {
            true => OpenError::Unmapped { socket },
            false => OpenError::Stranger { socket, uid },
        });
    }
    Ok((fd, listener))
}

/// Connects to a socket, and asks for the listener's credentials. An error names the operation that
/// failed.
fn connect(place: &Path, flags: SocketFlags) -> Result<(OwnedFd, Uid), (&'static str, Errno)> {
    let failed = |operation| move |errno| (operation, errno);
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let fd = rustix::net::socket_with(family, kind, flags, None).map_err(failed("socket"))?;
    let fd = set_apart(fd);
    let address = SocketAddrUnix::new(place).map_err(failed("the broker's socket path"))?;
    rustix::net::connect(&fd, &address).map_err(failed("connect"))?;
    note_connection();
    let listener = peer_credentials(&fd).map_err(failed("SO_PEERCRED"))?;
    Ok((fd, Uid::from_raw(listener.uid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::{Granted, NodeId, ProcessId, Strength, TicketId};
    use rustix::net::socketpair;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// A link whose broker is the test.
    fn linked() -> (Broker, Arc<Link>) {
        let (file, tally) = mapping::create_mapped("tally").unwrap();
        let pages = [rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap(), file];
        let link = Arc::new(Link::new(0, 5, Arc::new(pair().0), pair().0));
        let broker = Broker {
            place: PathBuf::new(),
            pages,
            uid: rustix::process::geteuid(),
            credential: Vec::new(),
            on_behalf: None,
            connection: AtomicU32::new(5),
            stamps: Stamps::Clock,
            link: Lock::new(Arc::clone(&link)),
            next: Lock::new(None),
            tally,
            applying: Lock::new(()),
            events_taken: AtomicU32::new(0),
            tickets_taken: AtomicU32::new(0),
            barriers: AtomicU64::new(0),
            barrier_seen: AtomicU64::new(0),
        };
        (broker, link)
    }

    fn ticket(number: u32) -> Event {
        let (owner, node, strength) = (ProcessId(7), NodeId(1), Strength::Weak);
        let objects = vec![Granted { owner, node, strength, flags: 0, manages: false }];
        Event::Ticket { from: ProcessId(3), ticket: TicketId(number.into()), objects }
    }

    /// Puts tickets with these connections and numbers.
    fn put(broker: &Broker, tickets: &[(u32, u32)]) {
        let tail = broker.tally.word(ticket_ring::TAIL);
        for &(connection, number) in tickets {
            let at = tail.load(Ordering::Relaxed);
            let record = Record::of(&ticket(number), connection, number).unwrap();
            broker.tally.view().write(ticket_ring::record_at(at), bytemuck::bytes_of(&record));
            tail.store(at.wrapping_add(1), Ordering::Release);
        }
    }

    #[test]
    fn tickets_are_taken_in_the_order_of_all_events() {
        let (broker, link) = linked();
        assert_eq!(broker.next_ticket(&link), None);
        put(&broker, &[(5, 0), (5, 2), (5, 3)]);
        assert_eq!(broker.next_ticket(&link), Some(ticket(0)));
        assert_eq!(broker.next_ticket(&link), None, "the event before it is in the socket");
        link.count_event();
        assert_eq!(broker.next_ticket(&link), Some(ticket(2)));
        assert_eq!(broker.next_ticket(&link), Some(ticket(3)));
        assert_eq!(broker.next_ticket(&link), None);
        assert_eq!(broker.tally.word(ticket_ring::HEAD).load(Ordering::Relaxed), 3);
    }

    #[test]
    fn tickets_of_an_earlier_connection_are_skipped() {
        let (broker, link) = linked();
        put(&broker, &[(4, 0), (4, 9), (5, 0)]);
        assert_eq!(broker.next_ticket(&link), Some(ticket(0)));
        assert_eq!(broker.next_ticket(&Link::none(0)), None);
    }
}
