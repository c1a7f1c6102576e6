//! Java's Binder: round trips of a Java client and a Java service (bench/vm/android), two processes
//! of `baton dalvikvm`, beside the typed API's.
//!
//! A payload is an array of ints, or ints that the parcel takes one by one. The ends of the typed
//! API and of Java take turns, on the same processors.

use crate::child::ChildProcess;
use crate::java_programs::{baton, numbers, program, run};
use crate::pair::{Chunk, Pair};
use crate::processors::Placement;
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use crate::service::Service;
use crate::system::System;
use crate::testbed::{Setting, Testbed};
use crate::turns::each_round;
use baton::{Errno, Process};
use baton_manager::{Manager, Policy, Release};
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;

const NATIVE: System = System::BatonTyped;
const PAYLOADS_BYTES: [usize; 2] = [4, 124];
/// How Java writes the ints: the system's name in the report, the program's argument, and the bar
/// for the larger payload on one processor.
const FORMS: [(&str, &str, Option<Bar>); 2] =
    [("java-int-array", "array", Some(Bar::AtMost(2.0))), ("java-ints", "ints", None)];

/// A service manager in this process, until it is dropped.
pub struct Names {
    process: Process,
    _manager: Manager,
    looper: Option<JoinHandle<Errno>>,
}

impl Names {
    /// Starts the manager of the context `binder`.
    pub fn start(socket: &Path) -> Result<Names, Box<dyn std::error::Error>> {
        let process = Process::open("binder", socket)?;
        let manager = Manager::start(&process, Release::Sixteen, Policy::Everyone)?;
        let looper = std::thread::spawn({
            let process = process.clone();
            move || process.serve()
        });
        Ok(Names { process, _manager: manager, looper: Some(looper) })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.process.close();
        let _ = self.looper.take().expect("it is joined once").join();
    }
}

fn key(system: &'static str, placement: Placement, bytes: usize) -> RowKey {
    let title = format!("Java's Binder, {}, {bytes} bytes", Placement::title(Some(placement)));
    RowKey::new(system, "binder").at(placement).bytes(bytes).heading(title)
}

/// A Java program on a processor.
fn java(cpu: usize, testbed: &Testbed, arguments: &[&str]) -> io::Result<Command> {
    let (android, programs) = (program("vm-android.dex")?, program("vm-binder.dex")?);
    let class_path = format!("{}:{}", android.display(), programs.display());
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string()]).arg(baton()?);
    command.args(["dalvikvm", "-cp", &class_path, "BinderEcho"]).args(arguments);
    command.env("BATON_SOCKET", testbed.place(Service::Echo).broker);
    Ok(command)
}

/// Measures both, in turn.
pub fn measure(found: &mut Results, setting: &Setting, rounds: u32, n_calls: u32) {
    for placement in setting.placements() {
        let done = take(found, setting, placement, (rounds, n_calls));
        found.ok(key(FORMS[0].0, placement, PAYLOADS_BYTES[0]), done);
    }
}

fn take(
    found: &mut Results,
    setting: &Setting,
    placement: Placement,
    (rounds, n_calls): (u32, u32),
) -> Result<(), Box<dyn std::error::Error>> {
    // The typed API's server is the manager of its context.
    let (native, names) = (Testbed::start()?, Testbed::start()?);
    let mut pair = Pair::start(NATIVE, native.place(Service::Echo))?;
    let _names = Names::start(names.place(Service::Echo).broker)?;
    let name = "bench.echo";
    let server = setting.processors.server(placement).expect("only what exists is measured");
    let arguments = ["serve", name];
    let mut service = ChildProcess::start("service", &mut java(server, &names, &arguments)?)?;
    service.is_ready()?;
    let title = |bytes: &usize| format!("{bytes} bytes");
    each_round(rounds, &PAYLOADS_BYTES, title, |&bytes| {
        let chunk = Chunk::new(placement, bytes, n_calls / 10, n_calls);
        let times = pair.measure(&chunk, &setting.processors);
        found.add_times(key(NATIVE.name(), placement, bytes), times);
        for (system, form, _) in FORMS {
            let (n_ints, n_calls) = ((bytes / 4).to_string(), n_calls.to_string());
            let arguments = ["call", name, form, &n_ints, &n_calls];
            let client = java(setting.processors.client, &names, &arguments);
            let times = client.and_then(run).and_then(|[printed, _]| numbers(&printed));
            found.add_times(key(system, placement, bytes), times);
        }
    });
    Ok(())
}

/// How many times as long Java's round trip takes as the typed API's.
pub fn ratios(found: &Results, setting: &Setting) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for placement in setting.placements() {
        for bytes in PAYLOADS_BYTES {
            for (system, form, bar) in FORMS {
                let [java, native] = [system, NATIVE.name()]
                    .map(|system| found.find(&key(system, placement, bytes)));
                let at = if placement == Placement::Same { "same" } else { "different" };
                let bar = bar.filter(|_| placement == Placement::Same && bytes == 124);
                let name = format!("java_binder_{form}_over_typed_{at}_{bytes}");
                ratios.push(ratio(name, java, native, P50, bar));
            }
        }
    }
    ratios
}
