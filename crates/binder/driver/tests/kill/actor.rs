//! A child process: it serves one object, calls everybody else's, and hears of their deaths.
//!
//! It takes commands as lines on its standard input and answers with lines on its standard output.

use baton::{CallError, Handle, Object, Parcel, Process, Request};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Context manager first: the others find each other through it.
pub const ROLES: [&str; 3] = ["manager", "server", "client"];

/// Answers with what it gets, and with a descriptor for a descriptor.
const ECHO: u32 = 1;
/// Calls the object that comes with it back, and answers with its answer.
const BACK: u32 = 2;
/// Keeps the object that comes with it, of the role in its data, until that dies.
const HOLD: u32 = 3;
/// Answers with the object of the role in its data.
const GET: u32 = 4;

struct Actor {
    process: Process,
    role: usize,
    peers: Mutex<BTreeMap<usize, Handle>>,
    /// A descriptor to pass.
    null: OwnedFd,
    stop: AtomicBool,
}

pub fn run(role: &str, socket: &Path, seed: u64) {
    let role = ROLES.iter().position(|name| *name == role).expect("a role");
    let actor = Arc::new(Actor {
        process: Process::open("binder", socket).expect("a broker"),
        role,
        peers: Mutex::default(),
        null: std::fs::File::open("/dev/null").expect("/dev/null").into(),
        stop: AtomicBool::new(false),
    });
    let serving = Arc::clone(&actor);
    let object = actor.process.object(move |request| serving.serve(request)).add();
    if role == 0 {
        actor.process.become_context_manager(object).expect("no other manager");
    }
    for _ in 0..2 {
        let process = actor.process.clone();
        std::thread::spawn(move || process.serve());
    }
    say("ready");
    let mut workers = Vec::new();
    for line in std::io::stdin().lock().lines() {
        match line.expect("the parent's words").as_str() {
            "prepare" => {
                actor.prepare(object).expect("everybody lives");
                say("prepared");
            }
            "go" => {
                workers = actor.start(object, seed);
                say("going");
            }
            "stop" => {
                actor.stop.store(true, Ordering::Release);
                workers
                    .drain(..)
                    .for_each(|worker: JoinHandle<()>| worker.join().expect("no panic"));
                say("stopped");
            }
            other => panic!("{other}?"),
        }
    }
}

fn say(line: &str) {
    println!("{line}");
}

impl Actor {
    fn peer(&self, role: usize) -> Option<Handle> {
        self.peers.lock().expect("no panic").get(&role).cloned()
    }

    /// Keeps a peer until it dies, and says so then.
    fn keep(self: &Arc<Self>, role: usize, handle: Handle) {
        self.peers.lock().expect("no panic").insert(role, handle.clone());
        let actor = Arc::clone(self);
        handle.link_to_death(move || {
            let gone = actor.peers.lock().expect("no panic").remove(&role);
            drop(gone);
            say(&format!("dead {}", ROLES[role]));
        });
    }

    /// Finds the peers that are missing, makes itself known to them, and opens every channel.
    fn prepare(self: &Arc<Self>, object: Object) -> Result<(), CallError> {
        if self.role != 0 && self.peer(0).is_none() {
            self.keep(0, self.process.context_manager()?);
            self.introduce(0, object)?;
        }
        if self.role == 2 && self.peer(1).is_none() {
            let manager = self.peer(0).expect("just found");
            let found = manager.call(GET, &[1][..].into())?;
            self.keep(1, found.handle(0).ok_or(CallError::Refused(Errno::NOENT))?);
            drop(found);
            self.introduce(1, object)?;
        }
        for role in 0..ROLES.len() {
            if let Some(peer) = self.peer(role) {
                drop(peer.call(ECHO, &Parcel::new())?);
            }
        }
        Ok(())
    }

    fn introduce(&self, to: usize, object: Object) -> Result<(), CallError> {
        let mut parcel = Parcel::new();
        parcel.write(&[self.role as u8]).write_object(object);
        let peer = self.peer(to).expect("just kept");
        peer.call(HOLD, &parcel).map(drop)
    }

    // ---- serving ----------------------------------------------------------------------------

    fn serve(self: &Arc<Self>, request: &Request<'_>) -> Result<Parcel, Errno> {
        let role = request.data().first().map_or(0, |&role| usize::from(role));
        let mut reply = Parcel::new();
        match request.code() {
            ECHO => {
                reply.write(request.data());
                if request.received.fd(0).is_some() {
                    reply.write_fd(self.null.as_fd());
                }
            }
            BACK => {
                let object = request.received.handle(0).ok_or(Errno::INVAL)?;
                let answer = object.call(ECHO, &request.data()[..1].into());
                reply.write(answer.map_err(|_| Errno::PIPE)?.data());
            }
            HOLD => self.keep(role, request.received.handle(0).ok_or(Errno::INVAL)?),
            GET => {
                reply.write_handle(&self.peer(role).ok_or(Errno::NOENT)?);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(reply)
    }

    // ---- calling ----------------------------------------------------------------------------

    fn start(self: &Arc<Self>, object: Object, seed: u64) -> Vec<JoinHandle<()>> {
        self.stop.store(false, Ordering::Release);
        let worker = |number: u64| {
            let (actor, seed) = (Arc::clone(self), seed ^ number << 32 ^ self.role as u64);
            std::thread::spawn(move || actor.work(object, crate::rng::Rng::new(seed)))
        };
        (1..=2).map(worker).collect()
    }

    fn work(&self, object: Object, mut rng: crate::rng::Rng) {
        while !self.stop.load(Ordering::Acquire) {
            let roles: Vec<usize> = self.peers.lock().expect("no panic").keys().copied().collect();
            let Some(role) = rng.pick(&roles) else { return };
            let Some(peer) = self.peer(role) else { continue };
            let third = rng.pick(&roles).expect("not empty");
            if let Err((error, roles)) = self.call_once(&mut rng, object, (role, peer), third) {
                let names: Vec<&str> = roles.iter().map(|&role| ROLES[role]).collect();
                say(&format!("failed {} {error}", names.join(",")));
            }
        }
    }

    /// One random call. An error names whose death may explain it.
    fn call_once(
        &self,
        rng: &mut crate::rng::Rng,
        object: Object,
        (role, peer): (usize, Handle),
        third: usize,
    ) -> Result<(), (CallError, Vec<usize>)> {
        let mut parcel = Parcel::new();
        parcel.write(&[self.role as u8]);
        let code = match rng.below(6) {
            0 | 1 => {
                let bytes = if rng.percent(5) { 300_000 } else { 1 << rng.below(16) };
                parcel.write(&vec![7; bytes]);
                ECHO
            }
            2 => {
                parcel.write_fd(self.null.as_fd());
                ECHO
            }
            3 => {
                parcel.write_object(object);
                BACK
            }
            4 => {
                let Some(handle) = self.peer(third).filter(|_| third != role) else {
                    return Ok(());
                };
                parcel.write_handle(&handle);
                BACK
            }
            _ => {
                parcel.write_object(object).write_fd(self.null.as_fd());
                let sent = peer.one_way(ECHO, &parcel);
                // A flood is refused, not an error.
                return match sent {
                    Err(CallError::NoRoom) => Ok(()),
                    other => other.map_err(|error| (error, vec![role])),
                };
            }
        };
        let answer = peer.call(code, &parcel);
        answer.map(drop).map_err(|error| (error, vec![role, third]))
    }
}
