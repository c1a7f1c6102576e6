//! A listener of another user at the broker's socket.
use baton::Process;
use baton_driver::device::OpenError;
use baton_driver::observer::Observer;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Uid, geteuid};

/// Neither root nor, since root runs this, the own user.
const STRANGER: u32 = 65533;

#[test]
fn a_stranger_at_the_brokers_socket_is_refused() {
    if !geteuid().is_root() {
        println!(
            "skipped: a_stranger_at_the_brokers_socket_is_refused (only root can be two users)"
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("broker.sock");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let (listens, is_listening) = std::sync::mpsc::channel();
    // A socket is its listener's, and a user id a thread's as far as the kernel is concerned.
    let listener = std::thread::spawn(move || {
        let stranger = Uid::from_raw(STRANGER);
        rustix::thread::set_thread_res_uid(stranger, stranger, stranger).unwrap();
        rustix::net::listen(&socket, 8).unwrap();
        listens.send(()).unwrap();
        // A program that took it for a broker would get no answer.
        (0..2).for_each(|_| drop(rustix::net::accept(&socket).unwrap()));
    });
    is_listening.recv().unwrap();
    let refused = |error: OpenError| {
        let told = error.to_string();
        assert!(matches!(error, OpenError::Stranger { uid: STRANGER, .. }), "{told}");
        assert!(told.contains(path.to_str().unwrap()) && told.contains("65533"), "{told}");
    };
    refused(Process::open("binder", &path).map(drop).unwrap_err());
    refused(Observer::connect(&path).map(drop).unwrap_err());
    listener.join().unwrap();
}
