//! The service of the process manager, and clients that would hold it up.

use baton::{Parcel, Process, ServiceManager};
use baton_broker::{Config, Running};
use baton_manager::{Manager, Policy, Release};
use baton_services::dump::MAX_DUMPS;
use baton_services::process::class::MinFree;
use baton_services::process::client::Client;
use baton_services::process::protocol::NAME;
use baton_services::process::run::{self, ProcessManager};
use baton_services::process::server::Server;
use baton_services::process::start::Commands;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsFd;
use std::io::{Read, pipe};
use std::path::Path;
use std::sync::Arc;

const DUMP: u32 = u32::from_be_bytes(*b"_DMP");

/// A manager that starts nothing.
fn manager(group: Option<&Path>) -> Arc<ProcessManager> {
    let config = run::Config {
        group: group.map(Path::to_owned),
        minfree: MinFree::default(),
        commands: Commands { helper: Vec::new(), zygote: Vec::new() },
        environment: Vec::new(),
    };
    ProcessManager::new(config).unwrap()
}

#[test]
fn a_manager_that_cannot_read_free_memory_goes_on() {
    let group = tempfile::tempdir().unwrap();
    let file = |name: &str| group.path().join(name);
    for (name, text) in [
        ("cgroup.procs", ""),
        ("memory.current", "4096"),
        ("memory.max", "8192"),
        ("memory.stat", "inactive_file 0"),
    ] {
        std::fs::write(file(name), text).unwrap();
    }
    let manager = manager(Some(group.path()));
    let at_once = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    let round = || assert!(manager.round(at_once.as_fd()).unwrap());
    round();
    std::fs::remove_file(file("memory.current")).unwrap();
    round();
    assert!(manager.memory().is_err());
    std::fs::write(file("memory.current"), "4096").unwrap();
    round();
    assert_eq!(manager.memory().unwrap().0, 4096);
}

#[test]
fn a_client_that_does_not_read_its_dump_holds_up_no_looper() {
    let directory = tempfile::tempdir().unwrap();
    let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
    let open = || Process::open("binder", broker.socket()).unwrap();
    let (context, service, client) = (open(), open(), open());
    let _names = Manager::start(&context, Release::Sixteen, Policy::Everyone).unwrap();
    let manager = manager(None);
    let (_server, object) = Server::new(&service, manager);
    // One looper each.
    let loopers = [&context, &service].map(|process| {
        let process = process.clone();
        std::thread::spawn(move || process.serve())
    });
    ServiceManager::find(&service).unwrap().publish(NAME, object).unwrap();
    let names = ServiceManager::find(&client).unwrap();
    let activity = names.service(NAME).unwrap().unwrap();
    let dump = || {
        let (reader, writer) = pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, 1).unwrap();
        // The pipe is full: nothing more is written before somebody reads.
        rustix::io::write(&writer, &[b' '; 1 << 12]).unwrap();
        let mut request = Parcel::new();
        request.write_owned_fd(writer.into());
        activity.call(DUMP, &request).map(|_| reader)
    };
    let unread: Vec<_> = (0..MAX_DUMPS).map(|_| dump().unwrap()).collect();
    assert!(dump().is_err());
    assert!(Client::new(activity.clone()).processes().unwrap().is_empty());
    for mut reader in unread {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.contains("activities, the topmost first:"), "{text}");
    }
    [&context, &service].into_iter().for_each(Process::close);
    loopers.into_iter().for_each(|looper| _ = looper.join());
}
