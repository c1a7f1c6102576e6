//! The client of `make demo`: calls everything that `demo.IDemo` offers, checks each result, and
//! then waits to be told that the service was killed. Exits with 1 at the first wrong result.
//!
//! An ordinary rsbinder program: it knows of nothing but `/dev/binder`.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use baton_example_aidl::demo::IDemo::IDemo;
use baton_example_aidl::demo::IProgress::{BnProgress, IProgress};
use rsbinder::{
    BinderResult, DeathRecipient, Interface, ParcelFileDescriptor, ProcessState, StatusCode,
    Strong, WIBinder, hub,
};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Time that the service may live on before the client gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Records the service's reports while it works.
struct Progress(Arc<Mutex<Vec<i32>>>);

impl Interface for Progress {}

impl IProgress for Progress {
    fn report(&self, percent: i32) -> BinderResult<i32> {
        self.0.lock().unwrap().push(percent);
        Ok(percent * 2)
    }
}

struct Obituary(Mutex<mpsc::Sender<()>>);

impl DeathRecipient for Obituary {
    fn binder_died(&self, _who: &WIBinder) {
        // The receiver is gone only when the client gave up waiting.
        let _ = self.0.lock().unwrap().send(());
    }
}

fn expect<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want {
        return Ok(());
    }
    Err(format!("{what}: got {got:?}, expected {want:?}").into())
}

fn say(what: &str, result: &str) {
    println!("client   {what:<28} {result}");
}

fn processes(demo: &dyn IDemo) -> Outcome<i32> {
    let pid = demo.pid()?;
    let own = std::process::id() as i32;
    expect("the service's view of the caller", demo.callerPid()?, own)?;
    if pid == own {
        return Err("the service answered from the client's own process".into());
    }
    say("two processes", &format!("client {own}, service {pid}"));
    Ok(pid)
}

fn echo(demo: &dyn IDemo) -> Outcome {
    for size in [0, 4, 124, 4096, 65536] {
        let data: Vec<u8> = (0..size).map(|byte| (byte % 251) as u8).collect();
        if demo.echo(&data)? != data {
            return Err(format!("echo of {size} bytes came back changed").into());
        }
    }
    say("echo", "0, 4, 124, 4096 and 65536 bytes came back unchanged");
    Ok(())
}

fn callback(demo: &dyn IDemo) -> Outcome {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let progress: Strong<dyn IProgress> = BnProgress::new_binder(Progress(reports.clone()));
    expect("sum of the answers", demo.work(&progress)?, 500)?;
    let reports = reports.lock().unwrap();
    expect("reports", reports.as_slice(), &[0, 25, 50, 75, 100])?;
    say("callback inside a call", &format!("the service reported {reports:?} per cent"));
    Ok(())
}

fn descriptors(demo: &dyn IDemo) -> Outcome {
    let (reader, mut writer) = ParcelFileDescriptor::pipe()?;
    writer.write_all(b"through a pipe")?;
    drop(writer);
    expect("what the service read", demo.shout(&reader)?.as_str(), "THROUGH A PIPE")?;

    let mut published = String::new();
    demo.publish("written by the service")?.read_to_string(&mut published)?;
    expect("what the client read", published.as_str(), "written by the service")?;
    say("file descriptors", "a pipe each way, read to its end");
    Ok(())
}

fn one_way(demo: &dyn IDemo) -> Outcome {
    (1..=100).try_for_each(|value| demo.add(value))?;
    // Binder promises order among one-way calls only: this call may overtake those still queued.
    let (mut total, start) = (0, Instant::now());
    while total < 5050 && start.elapsed() < Duration::from_secs(10) {
        total += demo.total()?;
    }
    expect("sum of the one-way calls", total, 5050)?;
    say("one-way calls", "100 sent, none lost, none doubled");
    Ok(())
}

fn death(demo: &Strong<dyn IDemo>, pid: i32) -> Outcome {
    let (sender, obituaries) = mpsc::channel();
    let obituary: Arc<dyn DeathRecipient> = Arc::new(Obituary(Mutex::new(sender)));
    demo.as_binder().link_to_death(Arc::downgrade(&obituary))?;
    say("death", &format!("waiting for process {pid} to be killed"));
    obituaries
        .recv_timeout(PATIENCE)
        .map_err(|_| format!("no word of the service's death in {} s", PATIENCE.as_secs()))?;
    let late = demo.pid().map_err(StatusCode::from);
    expect("a call to the dead service", late, Err(StatusCode::DeadObject))?;
    say("death", "told that the service is gone; a call now fails with DeadObject");
    Ok(())
}

fn run() -> Outcome {
    ProcessState::init_default()?;
    ProcessState::start_thread_pool();
    let demo: Strong<dyn IDemo> = hub::wait_for_interface("baton.demo")?;
    let pid = processes(&*demo)?;
    echo(&*demo)?;
    callback(&*demo)?;
    descriptors(&*demo)?;
    one_way(&*demo)?;
    death(&demo, pid)
}

fn main() -> ExitCode {
    env_logger::init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo-client: {error}");
            ExitCode::FAILURE
        }
    }
}
