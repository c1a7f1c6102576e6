//! The server of one mounted binderfs: one thread reads all requests, and waits for nothing else.
//! Another thread does and answers each request that may wait (an open, an ioctl). The watcher
//! looks at everything that is no request.

use crate::account::{Account, DEVICE, Exceeded, ThreadPlace};
use crate::client_priority::Urgency;
use crate::client_thread::{ClientThread, Task};
use crate::connection::Connection;
use crate::contexts::Contexts;
use crate::device_threads::DeviceThreads;
use crate::log_files::LogNode;
use crate::logs::{Job, LogClient, Logs};
use crate::mount_error::MountError;
use crate::mounted::Mounted;
use crate::next_device::NextDevice;
use crate::opened_device::OpenedDevice;
use crate::opener::LastOpener;
use crate::opens::{Open, Opens};
use crate::pages::{self, PageSource};
use crate::pending::Pending;
use crate::protocol::*;
use crate::restart_state::{Kept, Record, RestartState};
use crate::shared::Shared;
use crate::traffic::Traffic;
use crate::tree::{self, CONTROL, FEATURE, Options, Tree};
use crate::watcher::{self, Ending};
use crate::watches::{Watch, Watches};
use crate::{injection, interrupt, prerequisites};
use baton_abi::uapi::{BINDER_CTL_ADD, BINDER_WRITE_READ, BinderfsDevice};
use baton_driver::device::{Device, OpenError};
use bytemuck::{bytes_of, pod_read_unaligned};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which the next request has the urgency of this thread looked at.
const REVIEW: Duration = Duration::from_millis(100);

/// Time for which the attributes are valid that a lookup of a device gives: the open that follows
/// asks for none.
const LOOKED_UP_NS: u32 = 1_000_000;

/// Time for which the root directory's attributes are valid, which never change.
const ROOT_VALID_S: u64 = 24 * 60 * 60;

/// Numbers of open files that one server gives, at most.
const HANDLES: u64 = 1 << 40;
/// After so many numbers without a registered file there is none any more.
const MOST_MISSING: u32 = 1024;

/// Where and what to serve.
#[derive(Debug)]
pub struct Config {
    /// The directory to mount at.
    pub directory: PathBuf,
    /// The broker's socket.
    pub socket: PathBuf,
    /// The contexts that have a device at first. The broker adds those that it lacks.
    pub contexts: Vec<String>,
    /// The contexts of devices here are those of no other mount: to the broker, each has this as an
    /// ending.
    pub apart: Option<String>,
    /// The options of the mount.
    pub options: Options,
    /// How clients' maps get their bytes; `None` for the best way that there is.
    pub pages: Option<PageSource>,
    /// Serving ends once this is readable.
    pub stop: OwnedFd,
    /// The end of a pipe, if there is one: once nobody has the other end, serving ends with the
    /// last open device.
    pub kept_open: Option<OwnedFd>,
    /// The calling thread is the only one of its process, and leaves its mount namespace: serving
    /// ends once no process is in that, and `stop` leaves the mount there, without a server.
    pub ends_with_namespace: bool,
    /// The descriptors by which the mount outlives this server, if somebody keeps copies of them.
    /// If a server that was killed has left a mount with them, this one takes its place.
    pub kept: Option<Kept>,
}

/// Mounts a binderfs and serves it until `stop` is readable or it is unmounted. `ready` is called
/// once programs can use it.
///
/// In place of a server that was killed it serves that server's mount. The devices of programs that
/// had them open are gone: their ioctls are `EBADF`, their polls POLLHUP. What they open anew comes
/// to this server.
pub fn serve(config: Config, ready: impl FnOnce()) -> Result<(), MountError> {
    prerequisites::check()?;
    let most_descriptors = baton_shm::fd_limit::raise();
    let contexts = Contexts::connect(config.socket.clone(), config.apart)?;
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut tree = Tree::new(owner, config.options);
    let (fuse, state) = match config.kept {
        Some(Kept { fuse, record }) => (fuse, Some(RestartState::new(record))),
        None => (Connection::open()?, None),
    };
    let left = state.as_ref().and_then(RestartState::read);
    let servers = left.as_ref().map_or(0, |left| left.servers + 1);
    if let Some(left) = &left {
        tree.restore(left.files.clone(), servers);
    } else {
        for device in &config.contexts {
            tree.add(device).map_err(|errno| match errno {
                Errno::NOSPC => MountError::TooManyDevices(config.options.most_devices),
                _ => MountError::BadContext(device.clone()),
            })?;
        }
    }
    interrupt::install().map_err(MountError::system("sigaction"))?;
    let watches = Watches::new().map_err(MountError::system("epoll_create"))?;
    let pending = Pending::new().map_err(MountError::system("timerfd_create"))?;
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    let (reader, reads) = pipe.map_err(MountError::system("pipe"))?;
    let (connection, mut mounted) = match &left {
        None => Connection::mount(fuse, &config.directory)?,
        Some(left) => match Mounted::left(PathBuf::from(&left.directory), left.mount) {
            Some(mounted) => (Connection::left(fuse), mounted),
            // Others have unmounted it meanwhile.
            None => return Ok(()),
        },
    };
    // A mount that fails adds no context.
    for device in tree.files().devices() {
        contexts.add(device).map_err(|errno| {
            let context = contexts.of(device);
            MountError::Refused { context, errno }
        })?;
    }
    let next = Arc::new(NextDevice::new(config.socket.clone()));
    if let Some(device) = tree.files().devices().next() {
        next.try_one(&contexts.of(device)).map_err(|error| match error.errno() {
            errno @ (Errno::PERM | Errno::SRCH) => MountError::NotSeen(errno),
            _ => MountError::Broker(error),
        })?;
    }
    if config.ends_with_namespace {
        mounted.leave_namespace()?;
    }
    let once = EventFlags::IN | EventFlags::ONESHOT;
    let kept_open = config.kept_open.as_ref().map(|fd| (fd.as_fd(), once, Watch::Left));
    let watched = [
        Some((reader.as_fd(), EventFlags::empty(), Watch::Reader)),
        Some((config.stop.as_fd(), once, Watch::Stop)),
        Some((pending.timer(), EventFlags::IN, Watch::Ioctls)),
        kept_open,
    ];
    for (fd, flags, watch) in watched.into_iter().flatten() {
        watches.add(fd, flags, watch).map_err(MountError::system("epoll_ctl"))?;
    }
    let urgency = Urgency::of_reader();
    let installs_fds = injection::is_permitted();
    if !installs_fds {
        tracing::warn!(
            "programs here get no descriptors: give the server CAP_SYS_PTRACE, without which it \
             serves only programs of its own user, set kernel.yama.ptrace_scope to 2 or less, and \
             let it call ptrace and pidfd_getfd"
        );
    }
    let traffic = config.options.has_logs.then(Traffic::default);
    let account = Arc::new(Account::new(owner.0, most_descriptors));
    let shared = Shared { connection, account, pending, watches, urgency, traffic, installs_fds };
    let shared = Arc::new(shared);
    let logs = config.options.has_logs.then(|| Logs::start(&shared, &config.socket)).transpose();
    let logs = logs.map_err(MountError::system("start a thread"))?;
    let (opens, ending) = (Arc::<Opens>::default(), Ending::default());
    next.prepare();
    let mut server = Server {
        shared: Arc::clone(&shared),
        opens: Arc::clone(&opens),
        device_threads: DeviceThreads::default(),
        ending: &ending,
        last_handle: HANDLES * servers,
        last_opener: LastOpener::default(),
        mounted,
        ends_with_namespace: config.ends_with_namespace,
        contexts: Arc::new(contexts),
        logs,
        next,
        asked_pages: config.pages,
        pages: left.as_ref().map_or(PageSource::Stored, |left| left.pages),
        tree,
        state,
        servers,
        reviewed: Instant::now(),
    };
    let tid = baton_shm::thread::id();
    std::thread::scope(|scope| {
        // Closed when this thread is done, even if it panics.
        let _reads = reads;
        let watcher = std::thread::Builder::new().name("binderfs-watcher".to_owned());
        let watch = || watcher::watch(&shared, &opens, &ending, tid);
        let started = watcher.spawn_scoped(scope, watch).map(drop);
        started.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::NOMEM);
            MountError::system("start a thread")(errno)
        })?;
        let mut ready = Some(ready);
        if left.is_some() {
            server.take_over();
            ready.take().into_iter().for_each(|ready| ready());
        }
        server.run(ready)
    })
}

struct Server<'a> {
    shared: Arc<Shared>,
    opens: Arc<Opens>,
    device_threads: DeviceThreads,
    ending: &'a Ending,
    last_handle: u64,
    last_opener: LastOpener,
    mounted: Mounted,
    /// See [`Config::ends_with_namespace`].
    ends_with_namespace: bool,
    contexts: Arc<Contexts>,
    logs: Option<Logs>,
    next: Arc<NextDevice>,
    /// See [`Config::pages`].
    asked_pages: Option<PageSource>,
    /// How clients' maps get their bytes, from INIT on.
    pages: PageSource,
    tree: Tree,
    /// For the server that follows if this one is killed.
    state: Option<RestartState>,
    /// How many servers there were before.
    servers: u64,
    /// When the urgency of this thread was looked at.
    reviewed: Instant,
}

/// The fate of a request that has an answer now.
type Answered = Result<Vec<u8>, Errno>;

fn bytes(value: &impl bytemuck::NoUninit) -> Answered {
    Ok(bytes_of(value).to_vec())
}

impl Server<'_> {
    fn run(&mut self, mut ready: Option<impl FnOnce()>) -> Result<(), MountError> {
        let mut buffer = vec![0; REQUEST_BYTES];
        let shared = Arc::clone(&self.shared);
        while !self.ending.is_over() {
            match shared.connection.receive(&mut buffer) {
                Ok(request) => self.handle(request, &mut ready)?,
                // The caller of the next request has been killed meanwhile, or the watcher wants
                // this thread to look up.
                Err(Errno::NOENT | Errno::INTR) => {}
                // Unmounted by others.
                Err(Errno::NODEV) => return Ok(()),
                Err(errno) => return Err(MountError::system("read of /dev/fuse")(errno)),
            }
            if self.reviewed.elapsed() > REVIEW {
                self.shared.urgency.review();
                self.reviewed = Instant::now();
            }
        }
        Ok(())
    }

    fn handle<F: FnOnce()>(
        &mut self,
        request: &[u8],
        ready: &mut Option<F>,
    ) -> Result<(), MountError> {
        let Request { header, operation } = match Request::decode(request) {
            Ok(request) => request,
            Err(header) => {
                if let Some(header) = header {
                    self.shared.connection.refuse(header.unique, Errno::INVAL);
                }
                return Ok(());
            }
        };
        let InHeader { unique, node, .. } = header;
        if self.tree.is_stale(node) {
            self.answer_stale(unique, operation);
            return Ok(());
        }
        let answered = match operation {
            Operation::Init(init) => {
                self.begin(unique, &init)?;
                if let Some(ready) = ready.take() {
                    ready();
                }
                return Ok(());
            }
            Operation::Forget { lookups } => {
                self.tree.forget(node, lookups);
                return Ok(());
            }
            Operation::BatchForget { nodes } => {
                nodes.into_iter().for_each(|(node, lookups)| self.tree.forget(node, lookups));
                return Ok(());
            }
            Operation::Interrupt { unique } => {
                self.shared.pending.interrupt(unique);
                return Ok(());
            }
            Operation::Ioctl { handle, request, data, out_bytes } if node != CONTROL => {
                let task = Task::Ioctl {
                    unique,
                    user: header.uid,
                    request,
                    data: data.to_vec(),
                    out_bytes: out_bytes as usize,
                };
                match self.give(handle, header, Some(unique), task) {
                    Ok(()) => {
                        if request == BINDER_WRITE_READ {
                            self.shared.pending.may_wait(unique);
                        }
                        return Ok(());
                    }
                    Err(errno) => Err(errno),
                }
            }
            Operation::Poll { handle, kernel_handle, notify } if self.tree.is_device(node) => {
                if let Some(state) = &self.state {
                    state.note_poll(kernel_handle);
                }
                let task = Task::Poll { unique, kernel_handle, notify };
                match self.give(handle, header, None, task) {
                    Ok(()) => return Ok(()),
                    Err(errno) => Err(errno),
                }
            }
            Operation::Open { flags } if self.tree.is_device(node) => {
                match self.open_device(header, flags) {
                    Ok(()) => return Ok(()),
                    Err(errno) => Err(open_error(errno)),
                }
            }
            Operation::Read { handle, offset, bytes } if self.tree.log_node(node).is_some() => {
                match self.read_log(unique, handle, offset, bytes as usize) {
                    Some(answered) => answered,
                    None => return Ok(()),
                }
            }
            Operation::Open { .. } if self.tree.log_node(node).is_some() => {
                self.open_log(header.uid, node)
            }
            other => self.answer_at_once(node, other),
        };
        match answered {
            Ok(body) => _ = self.shared.connection.answer(unique, &[&body]),
            Err(errno) => self.shared.connection.refuse(unique, errno),
        }
        Ok(())
    }

    fn answer_at_once(&mut self, node: u64, operation: Operation<'_>) -> Answered {
        if self.tree.log_node(node).is_some() {
            let opens = self.opens.lock();
            self.tree.processes = opens.values().map(|open| open.device.opener.pid).collect();
        }
        match operation {
            Operation::Lookup { name } => {
                let node = self.tree.lookup(node, name)?;
                let attributes = self.tree.attributes(node)?;
                // The entry is valid for no time: the next lookup comes here again.
                let valid_ns = [0, if self.tree.is_device(node) { LOOKED_UP_NS } else { 0 }];
                bytes(&EntryOut { node, attributes, valid_ns, ..EntryOut::default() })
            }
            Operation::GetAttributes => {
                let attributes = self.tree.attributes(node)?;
                let valid_s = if node == tree::ROOT { ROOT_VALID_S } else { 0 };
                bytes(&AttributesOut { valid_s, attributes, ..AttributesOut::default() })
            }
            Operation::SetAttributes(set) => {
                self.tree.set_attributes(node, &set)?;
                self.record();
                let attributes = self.tree.attributes(node)?;
                bytes(&AttributesOut { attributes, ..AttributesOut::default() })
            }
            Operation::Unlink { name } => {
                self.tree.unlink(node, name)?;
                self.record();
                if let Ok(device) = str::from_utf8(name) {
                    self.contexts.remove(device);
                }
                Ok(Vec::new())
            }
            Operation::Open { .. } => {
                let open_flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH;
                bytes(&OpenOut { open_flags, ..OpenOut::default() })
            }
            Operation::Read { offset, bytes, .. } if tree::is_feature(node) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(FEATURE.len());
                Ok(FEATURE[from..].iter().copied().take(bytes as usize).collect())
            }
            Operation::Read { handle, offset, bytes }
                if self.tree.is_device(node) && self.pages == PageSource::Stored =>
            {
                let device = self.opens.lock().get(&handle).map(|open| Arc::clone(&open.device));
                pages::read(&device.ok_or(Errno::BADF)?.device, offset, bytes as usize)
            }
            Operation::Flush { handle } => {
                // The file of a program that has others of its descriptors, or whose threads are
                // within the device. Without threads there is no read to end.
                let opens = self.opens.lock();
                let used = opens.get(&handle).filter(|open| !open.threads.is_empty());
                let device = used.map(|open| Arc::clone(&open.device));
                drop(opens);
                if let Some(opened) = device {
                    opened.device.descriptor_closed();
                }
                Ok(Vec::new())
            }
            Operation::Release { handle } => {
                self.release(handle);
                Ok(Vec::new())
            }
            Operation::OpenDirectory => {
                self.tree.entries(node)?;
                bytes(&OpenOut::default())
            }
            Operation::ReadDirectory { offset, bytes } => self.list(node, offset, bytes as usize),
            Operation::ReleaseDirectory | Operation::Destroy => Ok(Vec::new()),
            Operation::StatFs => {
                let (block_bytes, name_bytes, fragment_bytes) = (4096, 255, 4096);
                bytes(&StatFsOut {
                    block_bytes,
                    name_bytes,
                    fragment_bytes,
                    ..StatFsOut::default()
                })
            }
            Operation::Ioctl { request, data, out_bytes, .. } => {
                let device = self.control(request, data)?;
                let mut answer = bytes_of(&IoctlOut::default()).to_vec();
                answer.extend(bytes_of(&device).iter().take(out_bytes as usize));
                Ok(answer)
            }
            Operation::Change => Err(Errno::PERM),
            Operation::Read { .. } | Operation::Write => Err(Errno::INVAL),
            _ => Err(Errno::NOSYS),
        }
    }

    /// INIT: agrees on a version, and finds out how receive buffers are mapped.
    fn begin(&mut self, unique: u64, init: &InitIn) -> Result<(), MountError> {
        let connection = &self.shared.connection;
        if init.major != MAJOR {
            connection.refuse(unique, Errno::PROTO);
            return Err(MountError::OtherFuse(init.major));
        }
        let passes = self.asked_pages != Some(PageSource::Stored)
            && init.flags & INIT_EXT != 0
            && init.flags2 & PASSTHROUGH != 0;
        let answer = InitOut {
            major: MAJOR,
            minor: MINOR.min(init.minor),
            // Pages beside the one that a client touches would be read in vain: they are stored.
            max_readahead: 0,
            flags: init.flags & INIT_EXT,
            max_write: 4096,
            time_granularity: 1,
            flags2: if passes { PASSTHROUGH } else { 0 },
            max_stack_depth: u32::from(passes),
            ..InitOut::default()
        };
        connection.answer(unique, &[bytes_of(&answer)]);
        self.pages = pages::choose(self.asked_pages, passes.then_some(connection))?;
        let resends = init.flags & INIT_EXT != 0 && init.flags2 & HAS_RESEND != 0;
        if !resends && self.state.take().is_some() {
            // A program whose request the next server does not see would wait for ever.
            tracing::warn!("the mount ends with this server: another one needs Linux 6.9");
        }
        self.record();
        tracing::info!(pages = %self.pages, "mounted at {}", self.mounted.directory().display());
        if self.ends_with_namespace {
            self.mounted.unmount();
        }
        Ok(())
    }

    /// Takes the place of a server that was killed. Programs that wait for it get answers now.
    fn take_over(&mut self) {
        self.record();
        let connection = &self.shared.connection;
        connection.resend();
        let last_poll = self.state.as_ref().map_or(0, RestartState::last_poll);
        (1..=last_poll).for_each(|kernel_handle| connection.notify_readable(kernel_handle));
        // Its receive buffers: those that programs have mapped stay as long as they do.
        let mut n_missing = 0;
        for number in 1.. {
            n_missing = if connection.close_backing(number) { 0 } else { n_missing + 1 };
            if n_missing == MOST_MISSING {
                break;
            }
        }
        tracing::info!("serves {} anew", self.mounted.directory().display());
    }

    /// Answers a request for a file that a server which was killed had opened or looked up.
    fn answer_stale(&self, unique: u64, operation: Operation<'_>) {
        let connection = &self.shared.connection;
        match operation {
            Operation::Forget { .. } | Operation::BatchForget { .. } => {}
            Operation::Interrupt { .. } => {}
            Operation::Flush { .. } | Operation::Release { .. } => {
                _ = connection.answer(unique, &[])
            }
            Operation::Poll { .. } => {
                let events = (EventFlags::ERR | EventFlags::HUP).bits();
                let answer = PollOut { events, ..PollOut::default() };
                connection.answer(unique, &[bytes_of(&answer)]);
            }
            // What libbinder takes for a device that was closed.
            Operation::Ioctl { .. } => connection.refuse(unique, Errno::BADF),
            // The kernel looks the name up again.
            _ => connection.refuse(unique, Errno::STALE),
        }
    }

    /// Writes down what the next server has to know, if there can be one.
    fn record(&mut self) {
        let Some(state) = &self.state else { return };
        let written = state.write(&Record {
            servers: self.servers,
            directory: self.mounted.directory().into(),
            mount: self.mounted.identity(),
            pages: self.pages,
            files: self.tree.files().clone(),
        });
        if let Err(errno) = written {
            tracing::warn!(%errno, "no other server could take the place of this one any more");
            self.state = None;
        }
    }

    /// Opens a device in a thread that may wait for the broker, and is its control thread then.
    /// `EMFILE` if the user has its share.
    fn open_device(&mut self, header: InHeader, flags: u32) -> Result<(), Errno> {
        let context = self.contexts.of(&self.tree.open_device(header.node)?);
        let (shared, opens) = (Arc::clone(&self.shared), Arc::clone(&self.opens));
        let (next, file_system) = (Arc::clone(&self.next), self.mounted.file_system());
        let pages = self.pages;
        let share = self.shared.account.take(header.uid, DEVICE);
        let share = share.map_err(|Exceeded| Errno::MFILE)?;
        let opener = self.last_opener.or_of(header.tid)?;
        // The broker answers while a thread is woken for the rest.
        let asked = next.ask_now(&context, opener.pid);
        // The contexts go with the server, not with the last device.
        let contexts = Arc::downgrade(&self.contexts);
        self.last_handle += 1;
        let handle = self.last_handle;
        self.device_threads.give(Box::new(move || {
            // Given back once nothing of the device is left.
            let _share = share;
            let register = |device: &Device| match pages {
                PageSource::Passthrough => shared.connection.open_backing(device.file()).map(Some),
                PageSource::Stored => Ok(None),
            };
            let ask = || next.ask(&context, opener.pid);
            let driver = asked.map_or_else(ask, Ok).and_then(Device::open_on_behalf);
            let driver = driver.or_else(|error| {
                let is_unknown = matches!(error, OpenError::Refused { errno: Errno::NOENT, .. });
                match contexts.upgrade().filter(|_| is_unknown) {
                    Some(contexts) if contexts.restore(&context) => {
                        ask().and_then(Device::open_on_behalf)
                    }
                    _ => Err(error),
                }
            });
            let opened =
                OpenedDevice::open(driver, &context, opener, header, flags, file_system, register);
            match opened {
                Ok((opened, control)) => {
                    answer_open(&shared, &opens, header.unique, handle, opened);
                    next.prepare();
                    if let Some(spare) = control.run() {
                        next.keep(spare);
                    }
                }
                Err(errno) => shared.connection.refuse(header.unique, open_error(errno)),
            }
        }))
    }

    /// Gives a task to the stand-in of the client's thread that makes a request. `ENOMEM` if the
    /// user has its share of threads.
    fn give(
        &self,
        handle: u64,
        header: InHeader,
        unique: Option<u64>,
        task: Task,
    ) -> Result<(), Errno> {
        let (shared, tid) = (&self.shared, header.tid);
        let mut opens = self.opens.lock();
        let Open { device, threads, place: of_device } =
            opens.get_mut(&handle).ok_or(Errno::BADF)?;
        let thread = match threads.entry(tid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let share = shared.account.take_thread(header.uid, of_device);
                let share = share.map_err(|Exceeded| Errno::NOMEM)?;
                let pidfd = shared.watches.add_thread(handle, tid)?;
                place.insert(ClientThread::start(shared, device, (tid, pidfd), share)?)
            }
        };
        if let Some(unique) = unique {
            shared.pending.begin(unique, thread.waiter());
        }
        thread.give(task);
        Ok(())
    }

    /// The program has closed a device: all its stand-ins end, and the device with the last.
    fn release(&self, handle: u64) {
        if let Some(logs) = &self.logs {
            logs.close(handle);
        }
        if let Some(open) = self.opens.lock().remove(&handle) {
            self.shared.watches.forget_threads(handle, None);
            if let Some(backing) = open.device.backing {
                self.shared.connection.close_backing(backing);
            }
        }
        self.ending.note_close(&self.opens);
    }

    /// Opens a file of `binder_logs`.
    fn open_log(&mut self, user: u32, node: u64) -> Answered {
        let Some(LogNode::File(file)) = self.tree.log_node(node) else { return Err(Errno::ISDIR) };
        let logs = self.logs.as_ref().ok_or(Errno::NOENT)?;
        self.last_handle += 1;
        logs.open(self.last_handle, user, file)?;
        let (handle, open_flags) = (self.last_handle, FOPEN_DIRECT_IO | FOPEN_NOFLUSH);
        bytes(&OpenOut { handle, open_flags, ..OpenOut::default() })
    }

    /// Reads a file of `binder_logs`. `None` if another thread answers.
    fn read_log(&self, unique: u64, handle: u64, offset: u64, bytes: usize) -> Option<Answered> {
        let Some(logs) = &self.logs else { return Some(Err(Errno::BADF)) };
        if let Some(answered) = logs.read(handle, offset, bytes) {
            return Some(answered);
        }
        let opens = self.opens.lock();
        let clients = opens.values().map(|open| LogClient {
            opened: Arc::downgrade(&open.device),
            threads: open.threads.values().map(|thread| thread.waiter().threads()).collect(),
        });
        logs.give(Job { handle, unique, bytes, clients: clients.collect() });
        None
    }

    fn list(&self, node: u64, offset: u64, room: usize) -> Answered {
        let mut out = Vec::new();
        let entries = self.tree.entries(node)?;
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (entry, next) in entries.iter().zip(1..).skip(first) {
            let named = (entry.node, &*entry.name);
            if !put_directory_entry(&mut out, room, named, next, entry.is_directory) {
                break;
            }
        }
        Ok(out)
    }

    /// An ioctl on binder-control.
    fn control(&mut self, request: u32, data: &[u8]) -> Result<BinderfsDevice, Errno> {
        if request != BINDER_CTL_ADD || data.len() != size_of::<BinderfsDevice>() {
            return Err(Errno::INVAL);
        }
        let device: BinderfsDevice = pod_read_unaligned(data);
        let name = CStr::from_bytes_until_nul(&device.name).map_err(|_| Errno::NAMETOOLONG)?;
        let name = name.to_str().map_err(|_| Errno::INVAL)?;
        self.tree.add(name)?;
        if let Err(errno) = self.contexts.add(name) {
            let _ = self.tree.unlink(tree::ROOT, name.as_bytes());
            return Err(errno);
        }
        self.record();
        // A FUSE file has no device number.
        Ok(BinderfsDevice { major: 0, minor: 0, ..device })
    }
}

/// The error of which the kernel is told when an open has failed. It takes `ENOSYS` for the word
/// that this server need not be asked for any open, for good.
fn open_error(errno: Errno) -> Errno {
    if errno == Errno::NOSYS { Errno::OPNOTSUPP } else { errno }
}

/// Answers an open, and keeps the device if the program has it.
fn answer_open(shared: &Shared, opens: &Opens, unique: u64, handle: u64, opened: OpenedDevice) {
    let backing = opened.backing;
    let device = Arc::new(opened);
    let open = Open { device, threads: HashMap::new(), place: ThreadPlace::default() };
    opens.lock().insert(handle, open);
    let open_flags = match backing {
        Some(_) => FOPEN_DIRECT_IO | FOPEN_PASSTHROUGH,
        None => FOPEN_KEEP_CACHE,
    };
    let answer = OpenOut { handle, open_flags, backing: backing.unwrap_or(0) };
    if !shared.connection.answer(unique, &[bytes_of(&answer)]) {
        opens.lock().remove(&handle);
        if let Some(backing) = backing {
            shared.connection.close_backing(backing);
        }
    }
}
