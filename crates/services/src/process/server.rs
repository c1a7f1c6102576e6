//! The service `activity`: the process manager over Binder.
//!
//! **Invariant**: the service makes no two-way call to a client, its one-way calls without a lock,
//! and no looper writes to a descriptor of a client's. So no client can hold it up.

use super::class::Adjustment;
use super::protocol::{
    APPLICATION, ENTER, MANAGER, Request, RequestError, TRIM, write_processes, write_stack,
};
use super::run::{Event, ProcessManager, StartRefused};
use super::table::{Caller, ProcessId, Refusal};
use crate::dump::Dumps;
use crate::intent::ComponentName;
use baton::android::Write;
use baton::{Errno, Handle, Object, Parcel, Process, Received};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PING: u32 = u32::from_be_bytes(*b"_PNG");
const DESCRIPTOR: u32 = u32::from_be_bytes(*b"_NTF");
const DUMP: u32 = u32::from_be_bytes(*b"_DMP");

/// The exceptions of AIDL with which the service answers.
#[derive(Debug, PartialEq, Eq)]
enum Exception {
    Security(String),
    IllegalArgument(String),
    IllegalState(String),
}

impl From<Refusal> for Exception {
    fn from(refusal: Refusal) -> Exception {
        let message = refusal.to_string();
        match refusal {
            Refusal::NotExported(_) | Refusal::OtherUser(_) | Refusal::Protected(_) => {
                Exception::Security(message)
            }
            Refusal::NoProcess(_) | Refusal::NotRunning(_) | Refusal::Stopped(_) => {
                Exception::IllegalState(message)
            }
            _ => Exception::IllegalArgument(message),
        }
    }
}

impl From<StartRefused> for Exception {
    fn from(refused: StartRefused) -> Exception {
        match refused {
            StartRefused::Refused(refusal) => refusal.into(),
            StartRefused::NotStarted(..) => Exception::IllegalState(refused.to_string()),
        }
    }
}

/// Processes that have attached.
type Applications = Mutex<BTreeMap<ProcessId, Handle>>;

/// The service in its process.
#[derive(Debug)]
pub struct Server {
    manager: Arc<ProcessManager>,
    applications: Applications,
    dumps: Dumps,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Makes the service's object, which lives as long as the server.
    pub fn new(process: &Process, manager: Arc<ProcessManager>) -> (Arc<Server>, Object) {
        let (applications, dumps) = Default::default();
        let server = Arc::new(Server { manager, applications, dumps });
        // Weak: handles of applications keep the device open, which keeps this handler.
        let weak = Arc::downgrade(&server);
        let object = process.object(move |request| {
            let server = weak.upgrade().ok_or(Errno::NODEV)?;
            let (pid, uid) = request.sender();
            server.serve(request.code(), &request.received, Caller { pid, uid })
        });
        let weak = Arc::downgrade(&server);
        server.manager.listen(move |event| {
            if let Some(server) = weak.upgrade() {
                server.tell(event);
            }
        });
        (server, object.add())
    }

    /// Tells a process of an event that concerns it.
    fn tell(&self, event: &Event) {
        match event {
            Event::Died(id) => _ = lock(&self.applications).remove(id),
            // What its process finds out by itself.
            Event::Killed(_) => {}
            Event::Entered(id, component, state) => {
                let application = lock(&self.applications).get(id).cloned();
                if let Some(application) = application {
                    enter(&application, component, state.name());
                }
            }
        }
    }

    fn serve(&self, code: u32, received: &Received<'_>, caller: Caller) -> Result<Parcel, Errno> {
        let mut reply = Parcel::new();
        match code {
            PING => return Ok(reply),
            DESCRIPTOR => {
                reply.write_string(MANAGER);
                return Ok(reply);
            }
            DUMP => {
                let to = received.take_fd(0).ok_or(Errno::INVAL)?;
                self.dumps.write(caller.uid, to, self.dump())?;
                return Ok(reply);
            }
            _ => {}
        }
        let request = Request::decode(code, received.data()).map_err(|error| match error {
            RequestError::Interface => Errno::PERM,
            RequestError::Method => Errno::NOSYS,
            RequestError::Argument => Errno::INVAL,
        })?;
        reply.write_i32(0);
        match self.answer(request, received, caller, &mut reply) {
            Ok(()) => Ok(reply),
            Err(exception) => {
                let (code, message) = match &exception {
                    Exception::Security(message) => (-1, message),
                    Exception::IllegalArgument(message) => (-3, message),
                    Exception::IllegalState(message) => (-5, message),
                };
                let mut reply = Parcel::new();
                reply.write_exception(code, message);
                Ok(reply)
            }
        }
    }

    fn answer(
        &self,
        request: Request,
        received: &Received<'_>,
        caller: Caller,
        reply: &mut Parcel,
    ) -> Result<(), Exception> {
        let manager = &self.manager;
        match request {
            Request::Start(name) => {
                reply.write_i32(manager.start(caller, &component(&name)?)? as i32);
            }
            Request::Stop(name) => manager.stop(caller, &component(&name)?)?,
            Request::Bind(name) => {
                reply.write_i32(manager.bind(caller, &component(&name)?)? as i32);
            }
            Request::Unbind(name) => manager.unbind(caller, &component(&name)?)?,
            Request::Processes => write_processes(reply, &manager.report()),
            Request::Stack => {
                let stack: Vec<String> = manager.stack().iter().map(ToString::to_string).collect();
                write_stack(reply, &stack);
            }
            Request::SetAdjustment(pid, value) => {
                let adjustment = Adjustment::new(value).ok_or_else(|| {
                    Exception::IllegalArgument(format!("{value} is not from -12 to 15"))
                })?;
                manager.ask(caller, pid, Some(adjustment))?;
            }
            Request::ClearAdjustment(pid) => manager.ask(caller, pid, None)?,
            Request::Trim(pid, level) => self.trim(caller, pid, level)?,
            Request::Kill(package) => reply.write_i32(manager.kill(caller, &package)? as i32),
            Request::ForceStop(package) => {
                reply.write_i32(manager.force_stop(caller, &package)? as i32);
            }
            Request::SetBackup(package, running) => manager.back_up(caller, &package, running)?,
            Request::Attach => self.attach(caller, received)?,
        }
        Ok(())
    }

    fn trim(&self, caller: Caller, pid: u32, level: i32) -> Result<(), Exception> {
        let id = self.manager.own_process(caller, pid)?;
        let application = lock(&self.applications).get(&id).cloned();
        let application = application.ok_or_else(|| {
            Exception::IllegalState(format!("process {pid} has not attached: it hears nothing"))
        })?;
        let mut parcel = Parcel::new();
        parcel.write_token(APPLICATION);
        parcel.write_i32(level);
        // One that does not want to hear is its own concern.
        let _ = application.one_way(TRIM, &parcel);
        Ok(())
    }

    /// Attaches the caller's process, and tells it the states that its components have.
    fn attach(&self, caller: Caller, received: &Received<'_>) -> Result<(), Exception> {
        let report = self.manager.report().into_iter().find(|it| it.pid == Some(caller.pid));
        let report = report.ok_or(Refusal::NoProcess(caller.pid))?;
        let application = received.handle(0).ok_or_else(|| {
            Exception::IllegalArgument("an object of the process is missing".to_owned())
        })?;
        lock(&self.applications).insert(report.id, application.clone());
        for (name, state) in &report.components {
            enter(&application, name, state.name());
        }
        Ok(())
    }

    /// The state in words, as `dumpsys activity` prints it.
    fn dump(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_dump(&mut text);
        text
    }

    fn write_dump(&self, text: &mut String) -> std::fmt::Result {
        if let Ok((free_bytes, minfree)) = self.manager.memory() {
            write!(text, "free memory: {} KiB; kills below", free_bytes >> 10)?;
            for (adjustment, bytes) in minfree.thresholds() {
                write!(text, " {} (adj {adjustment})", bytes >> 10)?;
            }
            writeln!(text, " KiB")?;
        }
        writeln!(text, "\nprocesses, the most important first:")?;
        for report in self.manager.report() {
            let pid = report.pid.map_or("starting".to_owned(), |pid| pid.to_string());
            let (adjustment, class) = (report.adjustment, report.class);
            let (uid, name, kib) = (report.uid, &report.name, report.rss_bytes >> 10);
            writeln!(text, "  {pid} {name} uid {uid} adj {adjustment} {class} {kib} KiB")?;
            for (component, state) in &report.components {
                writeln!(text, "    {component} {}", state.name())?;
            }
        }
        writeln!(text, "\nactivities, the topmost first:")?;
        self.manager.stack().iter().try_for_each(|activity| writeln!(text, "  {activity}"))?;
        writeln!(text, "\nkilled for memory, the last at the end:")?;
        self.manager.choices().iter().try_for_each(|choice| writeln!(text, "  {choice}"))
    }
}

/// Tells a process of a component's state.
fn enter(application: &Handle, component: &str, state: &str) {
    let mut parcel = Parcel::new();
    parcel.write_token(APPLICATION);
    parcel.write_string(component);
    parcel.write_string(state);
    // One that does not want to hear is its own concern.
    let _ = application.one_way(ENTER, &parcel);
}

fn component(text: &str) -> Result<ComponentName, Exception> {
    ComponentName::parse(text).ok_or_else(|| {
        Exception::IllegalArgument(format!("{text:?} is no component: it is PACKAGE/CLASS"))
    })
}
