//! `baton demo`: shows the main things in a few seconds, with processes and a socket of its own.
//!
//! - [`processes`]: the demo's child processes. [`bars`]: what a call costs, [`bus`] by D-Bus.

mod bars;
mod bus;
mod processes;

use crate::failure::Failure;
use crate::stdout::show;
use crate::threads;
use baton::android::Write;
use baton::service_manager::INTERFACE;
use baton::{Parcel, Process, ServiceManager};
use clap::Args;
use processes::{CONTEXT, PATIENCE, Processes, await_service};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

const SERVICE: &str = "echo";
const OTHER_SERVICE: &str = "clock";
/// `registerForNotifications` of Android 16.
const WATCH: u32 = 7;

/// Options of `baton demo`.
#[derive(Args)]
#[command(after_help = "\
Starts a broker, a service manager and services, with a socket in a temporary directory, and ends \
them. Other brokers are not concerned. Exit codes: 0; 1 if anything did not happen as it must.")]
pub struct DemoArgs {
    /// Serve a benchmark: this process is a child of the demo
    #[arg(long, hide = true, value_enum)]
    serve: Option<bars::Peer>,
    /// The socket of the message bus for that
    #[arg(long, hide = true, default_value = "bus")]
    bus: PathBuf,
}

/// Runs the demo.
pub fn demo(args: &DemoArgs, socket: &Path) -> Result<(), Failure> {
    if let Some(peer) = args.serve {
        return bars::serve(peer, socket, &args.bus);
    }
    let tried = "run the demo";
    show(&format!(
        "Kernel {} {}. All of this runs in user space:\n\n",
        rustix::system::uname().release().to_string_lossy(),
        if kernel_has_binder() { "has a Binder driver, unused" } else { "has no Binder driver" },
    ))?;
    let mut processes = Processes::new(tried)?;
    let socket = processes.socket();
    processes.start("broker", &["broker"], "introduces processes to each other")?;
    processes.start("manager", &["manager"], "Android's service manager")?;
    await_service("manager", &socket)?;
    processes.start(SERVICE, &["host", SERVICE], "a service")?;
    await_service(SERVICE, &socket)?;

    processes.run(&["list"])?;
    processes.run(&["call", SERVICE, "echo", "hello"])?;
    let client =
        Process::open(CONTEXT, &socket).map_err(|error| Failure::open(tried, &socket, &error))?;
    let loopers = threads::serve(tried, &client, 1)?;
    let outcome = callback(&client, &mut processes).and_then(|()| death(&client, &mut processes));
    client.close();
    loopers.into_iter().for_each(|looper| _ = looper.join());
    outcome?;

    bars::show_bars(&mut processes)?;
    let baton = std::env::args().next().unwrap_or_else(|| "baton".to_owned());
    show(&format!(
        "\nThree commands to type next ({baton} --help has the others):\n  \
         {baton} manager &\n  \
         {baton} host echo &\n  \
         {baton} wait echo && {baton} call echo echo hello\n",
    ))
}

fn received<T>(receiver: &Receiver<T>, event: &str) -> Result<T, Failure> {
    receiver.recv_timeout(PATIENCE).map_err(|_| Failure::new("run the demo", event))
}

/// Has the manager call an object of this process once another service is registered.
fn callback(client: &Process, processes: &mut Processes) -> Result<(), Failure> {
    let (tell, told) = channel();
    let object = client.object(move |_| {
        let _ = tell.send(Instant::now());
        Ok(Parcel::new())
    });
    let mut request = Parcel::new();
    request.write_token(INTERFACE);
    request.write_string(OTHER_SERVICE);
    request.write_object(object.add());
    let undeclared_stability = 0;
    request.write_i32(undeclared_stability);
    let failed = |error| Failure::new("register a callback with the service manager", error);
    client.context_manager().and_then(|it| it.call(WATCH, &request).map(drop)).map_err(failed)?;
    show("\n")?;
    processes.start(OTHER_SERVICE, &["host", OTHER_SERVICE], "another service")?;
    received(&told, "the callback was not called")?;
    show(&format!("  callback   the manager has told this process of {OTHER_SERVICE:?}\n"))
}

/// Kills the service, and tells how soon this process learns of it.
fn death(client: &Process, processes: &mut Processes) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new("find the service", error);
    let names = ServiceManager::find(client).map_err(|error| failed(&error))?;
    let service = names.service(SERVICE).map_err(|error| failed(&error))?;
    let service = service.ok_or_else(|| failed(&"the service manager does not know it"))?;
    let (tell, told) = channel();
    service.link_to_death(move || _ = tell.send(Instant::now()));
    let (pid, killed) = processes.kill(SERVICE)?;
    let heard = received(&told, "nobody was told of the service's death")?;
    let time_us = heard.saturating_duration_since(killed).as_micros();
    show(&format!("  death      kill -9 {pid}: told after {time_us} us\n"))
}

fn kernel_has_binder() -> bool {
    ["/proc/devices", "/proc/misc"].iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace().any(|word| word == "binder")
    })
}
