//! The listening socket: one broker serves it, clients find it while the broker serves, and it
//! disappears with the broker.

mod test_engine;

use baton_abi::control::*;
use baton_broker::RunError;
use rustix::io::Errno;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use test_engine::*;

fn until_idle(path: &Path) -> Result<Running, RunError> {
    Running::start(Config { until_idle: true, ..Config::at(path) })
}

fn errno_of(error: RunError) -> Errno {
    match error {
        RunError::System { errno, .. } => errno,
        other => panic!("{other}"),
    }
}

#[test]
fn one_of_many_brokers_gets_the_path() {
    let directory = Directory::new();
    let path = &directory.socket();
    for _ in 0..5 {
        let start = Barrier::new(6);
        let started: Vec<_> = std::thread::scope(|scope| {
            let race = || {
                start.wait();
                Running::start(Config::at(path))
            };
            let racers: Vec<_> = (0..6).map(|_| scope.spawn(race)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        for error in lost.into_iter().filter_map(Result::err) {
            assert!(matches!(error, RunError::AlreadyRunning(_)), "{error}");
        }
        assert!(TestEngine::open(path, "binder").is_ok());
    }
}

#[test]
fn permissions_match_the_users_that_may_connect() {
    let directory = Directory::new();
    let _daemon = Running::start(Config::at(directory.socket())).unwrap();
    let root = rustix::process::geteuid().is_root();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&directory.socket()), if root { 0o666 } else { 0o600 });
    assert_eq!(mode(directory.socket().parent().unwrap()), if root { 0o755 } else { 0o700 });
}

#[test]
fn a_stale_socket_is_replaced() {
    let directory = Directory::new();
    std::fs::create_dir(directory.socket().parent().unwrap()).unwrap();
    drop(listen(&directory.socket()));
    assert!(directory.socket().exists());
    assert!(Running::start(Config::at(directory.socket())).is_ok());
}

#[test]
fn a_socket_that_is_served_is_not_replaced() {
    let directory = Directory::new();
    std::fs::create_dir(directory.socket().parent().unwrap()).unwrap();
    let served = listen(&directory.socket());
    let error = Running::start(Config::at(directory.socket())).map(drop).unwrap_err();
    assert!(matches!(error, RunError::AlreadyRunning(_)), "{error}");
    drop(served);
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    let directory = Directory::new();
    std::fs::create_dir(directory.socket().parent().unwrap()).unwrap();
    std::fs::write(directory.socket(), "precious").unwrap();
    let error = Running::start(Config::at(directory.socket())).map(drop).unwrap_err();
    assert!(matches!(error, RunError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read(directory.socket()).unwrap(), b"precious");
}

#[test]
fn a_directory_that_others_can_change_is_refused() {
    let directory = Directory::new();
    let parent = directory.socket().parent().unwrap().to_owned();
    std::fs::create_dir(&parent).unwrap();
    for (mode, fits) in [(0o777, false), (0o775, true), (0o1777, true), (0o755, true)] {
        std::fs::set_permissions(&parent, PermissionsExt::from_mode(mode)).unwrap();
        match Running::start(Config::at(directory.socket())) {
            Ok(_) => assert!(fits, "{mode:o}"),
            Err(RunError::Replaceable(_)) => assert!(!fits, "{mode:o}"),
            Err(error) => panic!("{mode:o}: {error}"),
        }
    }
}

#[test]
fn a_path_too_long_for_a_socket_is_an_error() {
    let directory = Directory::new();
    let at = |bytes: usize| {
        let within = directory.socket().with_file_name("").as_os_str().len();
        Config::at(directory.socket().with_file_name("x".repeat(bytes - within)))
    };
    let error = Running::start(at(102)).map(drop).unwrap_err();
    assert!(matches!(error, RunError::TooLong { most_bytes: 101, .. }), "{error}");
    Running::start(at(101)).unwrap();
}

#[test]
fn contexts_can_be_added_at_the_start() {
    let directory = Directory::new();
    let with =
        |name: &str| Config { contexts: vec![name.into()], ..Config::at(directory.socket()) };
    let bad = Running::start(with("a/b")).map(drop).unwrap_err();
    assert!(matches!(bad, RunError::BadContext(_)), "{bad}");
    let daemon = Running::start(with("mine")).unwrap();
    assert!(TestEngine::open(daemon.socket(), "mine").is_ok());
}

#[test]
fn an_inherited_socket_is_served_and_not_removed() {
    let directory = Directory::new();
    let path = directory.socket();
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let inherited = Config { listener: Some(listen(&path)), ..Config::at(&path) };
    let daemon = Running::start(inherited).unwrap();
    assert!(TestEngine::open(&path, "binder").is_ok());
    daemon.stop().unwrap();
    assert!(path.exists());
    let wrong = rustix::pipe::pipe().unwrap().0;
    let error = Running::start(Config { listener: Some(wrong), ..Config::at(path) });
    assert_eq!(errno_of(error.map(drop).unwrap_err()), Errno::INVAL);
}

#[test]
fn an_idle_broker_ends_after_its_last_client() {
    let directory = Directory::new();
    let mut daemon = until_idle(&directory.socket()).unwrap();
    let devices = baton_abi::place::devices_beside(&directory.socket());
    std::fs::create_dir_all(devices.join("binderfs/features")).unwrap();
    std::fs::write(devices.join("binder"), "").unwrap();
    // A connection without a greeting does not count as a client.
    drop(connect(daemon.socket()).unwrap());
    let first = TestEngine::open(daemon.socket(), "binder").unwrap();
    let observer = observe(daemon.socket());
    drop(first);
    assert!(matches!(ask(&observer, &Request::Contexts), Some(Reply::Contexts { .. })));
    drop(observer);
    daemon.join().unwrap();
    assert!(!directory.socket().exists());
    let left = std::fs::read_dir(directory.socket().parent().unwrap()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [""; 0]);
}

/// Running programs and the next broker use the placeholder devices.
#[test]
fn a_stopped_broker_leaves_the_devices_of_its_clients() {
    for has_client in [true, false] {
        let directory = Directory::new();
        let devices = baton_abi::place::devices_beside(&directory.socket());
        let daemon = Running::start(Config::at(directory.socket())).unwrap();
        std::fs::create_dir_all(&devices).unwrap();
        let client = has_client.then(|| TestEngine::open(daemon.socket(), "binder").unwrap());
        daemon.stop().unwrap();
        assert_eq!(devices.exists(), has_client);
        drop(client);
        let lock = directory.socket().with_file_name("broker.sock.lock");
        assert!(!directory.socket().exists() && !lock.exists());
    }
}

/// Brokers start and end in turn, and each removes the file that the others wait to lock.
#[test]
fn brokers_serve_a_path_one_at_a_time() {
    let directory = Directory::new();
    let (path, serving) = (&directory.socket(), &AtomicU32::new(0));
    let served: u32 = std::thread::scope(|scope| {
        let come_and_go = || {
            let mut served = 0;
            for _ in 0..50 {
                match Running::start(Config::at(path)) {
                    Ok(daemon) => {
                        assert_eq!(serving.fetch_add(1, Ordering::SeqCst), 0, "beside another one");
                        serving.fetch_sub(1, Ordering::SeqCst);
                        daemon.stop().unwrap();
                        served += 1;
                    }
                    Err(error) => assert!(matches!(error, RunError::AlreadyRunning(_)), "{error}"),
                }
            }
            served
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(come_and_go)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(served > 0);
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let left: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert!(left.is_empty(), "left: {left:?}");
}

#[test]
fn a_client_that_races_with_the_exit_is_served_or_refused() {
    let directory = Directory::new();
    let path = directory.socket();
    let (mut served, mut missed) = (0, 0);
    for round in 0..200 {
        let mut daemon = until_idle(&path).unwrap();
        let first = TestEngine::open(&path, "binder").unwrap();
        let start = Barrier::new(2);
        let second = std::thread::scope(|scope| {
            let racer = scope.spawn(|| {
                start.wait();
                // The client connects later in each round: before the broker's end, during it, and
                // after it.
                (0..round * 60).for_each(|_| std::hint::spin_loop());
                TestEngine::open(&path, "binder")
            });
            start.wait();
            drop(first);
            racer.join().unwrap()
        });
        match second {
            // A broker that others also find served the client.
            Ok(second) => {
                assert!(TestEngine::open(&path, "binder").is_ok());
                drop(second);
                served += 1;
            }
            // The client learns at once that no broker serves, and can start one.
            Err(errno_of) => {
                let expect = [Errno::NOENT, Errno::CONNREFUSED, Errno::CONNRESET];
                assert!(expect.contains(&errno_of), "{errno_of}");
                let mut own = until_idle(&path).unwrap();
                assert!(TestEngine::open(own.socket(), "binder").is_ok());
                // If it were stopped before it has seen the client's end, the next broker would
                // wait for that client.
                own.join().unwrap();
                missed += 1;
            }
        }
        daemon.join().unwrap();
    }
    eprintln!("served {served}, missed {missed}");
}

/// The broker process of the next test. Does nothing when it runs alone.
#[test]
fn broker_with_few_descriptors() {
    let Some(path) = std::env::var_os("BATON_TEST_BROKER") else { return };
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum: Some(40) }).unwrap();
    let config = Config { until_idle: true, ..Config::at(Path::new(&path)) };
    baton_broker::run(config, || println!("\nready")).unwrap();
}

#[test]
fn a_broker_out_of_descriptors_accepts_later() {
    let directory = Directory::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "broker_with_few_descriptors", "--nocapture"])
        .env("BATON_TEST_BROKER", directory.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(output);
    assert!(lines.any(|line| line.unwrap() == "ready"));
    let crowd: Vec<_> = (0..60).map(|_| connect(&directory.socket()).unwrap()).collect();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| TestEngine::open(&directory.socket(), "binder"));
        drop(crowd);
        assert!(late.join().unwrap().is_ok());
    });
    assert!(child.wait().unwrap().success());
}
