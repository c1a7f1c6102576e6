//! Objects that end with the last reference to them.

use baton::{CallError, CountedObject, Errno, Handle, Parcel, Process};
use baton_broker::{Config, Running};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Barrier, Mutex};

const ECHO: u32 = 0;
/// Keeps the object that the request brings, in place of the one kept before.
const KEEP: u32 = 1;
const LET_GO: u32 = 2;
/// Calls the kept object.
const CALL: u32 = 3;

/// Says that it was dropped, and how many transactions had been served.
struct Token {
    ended: Sender<usize>,
    served: AtomicUsize,
}

impl Token {
    fn new() -> (Token, Receiver<usize>) {
        let (ended, news) = channel();
        (Token { ended, served: AtomicUsize::new(0) }, news)
    }

    fn count(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let _ = self.ended.send(*self.served.get_mut());
    }
}

/// An echo, and the news of its handler's end.
fn counted(process: &Process) -> (CountedObject, Receiver<usize>) {
    let (token, news) = Token::new();
    let object = process.object(move |request| {
        token.count();
        Ok(Parcel::from(request.data()))
    });
    (object.add_counted(), news)
}

fn parcel_of(object: &CountedObject) -> Parcel {
    let mut parcel = Parcel::new();
    parcel.write_counted_object(object);
    parcel
}

fn lives(news: &Receiver<usize>) -> bool {
    news.try_recv() == Err(TryRecvError::Empty)
}

struct Stage {
    open: Box<dyn Fn(&str) -> Process>,
    /// The manager, which keeps an object for its clients, and its looper.
    server: (Process, std::thread::JoinHandle<Errno>),
}

fn serve(process: &Process) -> std::thread::JoinHandle<Errno> {
    let process = process.clone();
    std::thread::spawn(move || process.serve())
}

fn with_keeper(body: impl FnOnce(&Stage)) {
    let directory = tempfile::tempdir().unwrap();
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
    let socket = broker.socket().to_owned();
    let open = Box::new(move |context: &str| Process::open(context, &socket).unwrap());
    let server = open("binder");
    let kept: Mutex<Option<Handle>> = Mutex::default();
    let keeper = server.object(move |request| {
        let answer = match request.code() {
            ECHO => Parcel::from(request.data()),
            KEEP => {
                let last =
                    std::mem::replace(&mut *kept.lock().unwrap(), request.received.handle(0));
                drop(last);
                Parcel::new()
            }
            LET_GO => {
                kept.lock().unwrap().take();
                Parcel::new()
            }
            _ => {
                let handle = kept.lock().unwrap().clone().ok_or(Errno::NOENT)?;
                let answer = handle.call(ECHO, &Parcel::from(request.data()));
                Parcel::from(answer.map_err(CallError::errno)?.data())
            }
        };
        Ok(answer)
    });
    server.become_context_manager(keeper.add()).unwrap();
    let looper = serve(&server);
    let stage = Stage { open, server: (server, looper) };
    body(&stage);
    stage.server.0.close();
    stage.server.1.join().unwrap();
}

#[test]
fn an_object_that_nobody_was_sent_ends_with_its_last_value() {
    with_keeper(|stage| {
        let process = (stage.open)("binder");
        let (object, news) = counted(&process);
        let (other, parcel) = (object.clone(), parcel_of(&object));
        assert!(object == other && object != counted(&process).0);
        drop((object, other));
        assert!(lives(&news), "the parcel has it");
        drop(parcel);
        assert_eq!(news.try_recv(), Ok(0));
    });
}

/// With calls that go past the state and calls that do not, with loopers and without.
#[test]
fn an_object_ends_when_its_holder_lets_go() {
    with_keeper(|stage| {
        for (has_looper, often) in [(true, 1), (true, 200), (false, 200)] {
            let process = (stage.open)("binder");
            let looper = has_looper.then(|| serve(&process));
            let manager = process.context_manager().unwrap();
            let (object, news) = counted(&process);
            for _ in 0..often {
                manager.call(KEEP, &parcel_of(&object)).unwrap();
                let answer = manager.call(CALL, &Parcel::from(&b"through"[..])).unwrap();
                assert_eq!(answer.data(), b"through");
            }
            manager.call(LET_GO, &Parcel::new()).unwrap();
            manager.call(KEEP, &parcel_of(&object)).unwrap();
            drop(object);
            manager.call(CALL, &Parcel::new()).unwrap();
            assert!(lives(&news), "its holder has it");
            manager.call(LET_GO, &Parcel::new()).unwrap();
            match has_looper {
                true => assert_eq!(news.recv(), Ok(often + 1)),
                false => {
                    // The next object that is added takes the news of ends.
                    while lives(&news) {
                        drop(counted(&process));
                        std::thread::yield_now();
                    }
                }
            }
            process.close();
            looper.into_iter().for_each(|looper| _ = looper.join().unwrap());
        }
    });
}

#[test]
fn an_object_ends_with_its_holders_process() {
    with_keeper(|stage| {
        let process = (stage.open)("binder");
        let looper = serve(&process);
        let (object, news) = counted(&process);
        process.context_manager().unwrap().call(KEEP, &parcel_of(&object)).unwrap();
        drop(object);
        assert!(lives(&news));
        stage.server.0.close();
        assert_eq!(news.recv(), Ok(0));
        process.close();
        looper.join().unwrap();
    });
}

#[test]
fn an_object_that_is_kept_is_sent_again() {
    with_keeper(|stage| {
        let process = (stage.open)("binder");
        let looper = serve(&process);
        let manager = process.context_manager().unwrap();
        let (object, news) = counted(&process);
        for _ in 0..20 {
            manager.call(KEEP, &parcel_of(&object)).unwrap();
            manager.call(CALL, &Parcel::new()).unwrap();
            manager.call(LET_GO, &Parcel::new()).unwrap();
            // The looper hears of the end of another object, and so of this one's first.
            let (other, end) = counted(&process);
            manager.call(KEEP, &parcel_of(&other)).unwrap();
            drop(other);
            manager.call(LET_GO, &Parcel::new()).unwrap();
            assert_eq!(end.recv(), Ok(0));
            assert!(lives(&news));
        }
        drop(object);
        assert_eq!(news.recv(), Ok(20));
        process.close();
        looper.join().unwrap();
    });
}

/// The holder lets go of the object right after it has sent one-way transactions to it.
#[test]
fn transactions_on_their_way_keep_an_object() {
    const SENT: usize = 20;
    with_keeper(|stage| {
        let process = (stage.open)("hwbinder");
        let (ended, news) = channel();
        let sessions = process.object(move |request| {
            let process = request.received.process().ok_or(Errno::BADF)?;
            let token = Token { ended: ended.clone(), served: AtomicUsize::new(0) };
            let session = process.object(move |_| {
                token.count();
                Ok(Parcel::new())
            });
            Ok(parcel_of(&session.add_counted()))
        });
        process.become_context_manager(sessions.add()).unwrap();
        let looper = serve(&process);
        let manager = (stage.open)("hwbinder").context_manager().unwrap();
        for _ in 0..50 {
            let session = manager.call(0, &Parcel::new()).unwrap().handle(0).unwrap();
            (0..SENT).for_each(|_| session.one_way(0, &Parcel::new()).unwrap());
            drop(session);
            assert_eq!(news.recv(), Ok(SENT));
        }
        process.close();
        looper.join().unwrap();
    });
}

#[test]
fn a_handler_that_runs_is_dropped_when_it_has_returned() {
    with_keeper(|stage| {
        let process = (stage.open)("binder");
        let looper = serve(&process);
        let (token, news) = Token::new();
        let gates = Arc::new([(); 2].map(|()| Barrier::new(2)));
        let inside = Arc::clone(&gates);
        let object = process.object(move |_| {
            token.count();
            inside.iter().for_each(|gate| _ = gate.wait());
            Ok(Parcel::new())
        });
        let object = object.add_counted();
        let manager = process.context_manager().unwrap();
        manager.call(KEEP, &parcel_of(&object)).unwrap();
        drop(object);
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| manager.call(CALL, &Parcel::new()).map(drop));
            gates[0].wait();
            // The holder, its only client, dies in the middle of its call.
            stage.server.0.close();
            assert!(lives(&news));
            gates[1].wait();
            assert_eq!(news.recv(), Ok(1));
            assert!(caller.join().unwrap().is_err());
        });
        process.close();
        looper.join().unwrap();
    });
}

#[test]
fn a_counted_object_of_another_device_is_refused() {
    with_keeper(|stage| {
        let (process, other) = ((stage.open)("binder"), (stage.open)("binder"));
        let manager = process.context_manager().unwrap();
        let answer = manager.call(KEEP, &parcel_of(&counted(&other).0));
        assert_eq!(answer.err(), Some(CallError::ForeignHandle));
    });
}

#[test]
fn handlers_of_counted_objects_go_with_their_process() {
    with_keeper(|stage| {
        let process = (stage.open)("binder");
        let manager = process.context_manager().unwrap();
        let (object, news) = counted(&process);
        manager.call(KEEP, &parcel_of(&object)).unwrap();
        process.close();
        assert_eq!(news.recv(), Ok(0));
        drop(object);
        let process = (stage.open)("binder");
        let (object, news) = counted(&process);
        drop(process);
        assert_eq!(news.recv(), Ok(0), "nobody has closed it, and nobody has it");
        drop(object);
    });
}
