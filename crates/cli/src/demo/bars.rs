//! What a call and its answer cost, beside AF_UNIX and D-Bus: the same bytes, to a child and back,
//! in turn.
//!
//! `baton bench rpc` is the real measurement, beside more peers.

use super::bus;
use super::processes::{CONTEXT, Processes, await_service};
use crate::failure::Failure;
use crate::stdout::show;
use baton::{Parcel, Process, ServiceManager};
use clap::ValueEnum;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// Bytes of a request and of its answer.
const BYTES: usize = 124;
const ROUNDS: usize = 10;
const CALLS: usize = 1000;
/// The longest bar, in characters.
const WIDTH: f64 = 50.0;
/// The name of the service that is measured.
const NAME: &str = "measured";

/// The child that answers.
#[derive(Clone, Copy, ValueEnum)]
pub enum Peer {
    /// A Binder service.
    Baton,
    /// A SEQPACKET socket, which is standard input.
    Unix,
    /// A service of D-Bus.
    Bus,
}

/// Answers each request with its own bytes, until the demo ends.
pub fn serve(peer: Peer, socket: &Path, bus: &Path) -> Result<(), Failure> {
    let tried = "serve the demo";
    match peer {
        Peer::Baton => {
            let process = Process::open(CONTEXT, socket)
                .map_err(|error| Failure::open(tried, socket, &error))?;
            let object = process.object(|request| Ok(Parcel::from(request.data()))).add();
            let names = ServiceManager::find(&process);
            let published = names.and_then(|names| names.publish(NAME, object));
            published.map_err(|error| Failure::new(tried, error))?;
            process.serve();
        }
        Peer::Bus => bus::serve(bus).map_err(|error| Failure::new(tried, error))?,
        Peer::Unix => {
            let stdin = std::io::stdin();
            let mut bytes = [0; BYTES];
            while let Ok((_, BYTES)) = recv(&stdin, &mut bytes, RecvFlags::empty()) {
                send(&stdin, &bytes, SendFlags::NOSIGNAL)
                    .map_err(|errno| Failure::new(tried, errno))?;
            }
        }
    }
    Ok(())
}

/// Measures the peers in turn, and shows a bar for each.
pub fn show_bars(processes: &mut Processes) -> Result<(), Failure> {
    let mut times_us = [("Baton", Vec::new()), ("AF_UNIX", Vec::new()), ("D-Bus", Vec::new())];
    let failed = |error: &dyn std::fmt::Display| Failure::new("measure a call", error);
    let mut baton = processes.command(&["demo", "--serve", "baton"]);
    processes.keep(NAME, &mut baton).map_err(|error| failed(&error))?;
    let flags = SocketFlags::CLOEXEC;
    let (socket, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|errno| failed(&errno))?;
    let mut unix = processes.command(&["demo", "--serve", "unix"]);
    let started = processes.keep("socket", unix.stdin(Stdio::from(theirs)));
    started.map_err(|error| failed(&error))?;
    await_service(NAME, &processes.socket())?;
    let client = Process::open(CONTEXT, &processes.socket()).map_err(|error| failed(&error))?;
    let names = ServiceManager::find(&client).map_err(|error| failed(&error))?;
    let service = names.service(NAME).map_err(|error| failed(&error))?;
    let service = service.ok_or_else(|| failed(&"the service has gone"))?;

    let request = [7; BYTES];
    let call = || {
        let answer =
            service.call(1, &Parcel::from(&request[..])).map_err(|error| failed(&error))?;
        (answer.data() == request).then_some(()).ok_or_else(|| failed(&"another answer"))
    };
    let exchange = || {
        let mut answer = [0; BYTES];
        send(&socket, &request, SendFlags::NOSIGNAL).map_err(|errno| failed(&errno))?;
        recv(&socket, &mut answer, RecvFlags::empty()).map_err(|errno| failed(&errno))?;
        (answer == request).then_some(()).ok_or_else(|| failed(&"another answer"))
    };
    let mut bus = bus::start(processes);
    for _ in 0..ROUNDS {
        times(&mut times_us[0].1, call)?;
        times(&mut times_us[1].1, exchange)?;
        if let Ok(bus) = &mut bus {
            times(&mut times_us[2].1, || match bus.call(&request) {
                Ok(true) => Ok(()),
                Ok(false) => Err(failed(&"another answer")),
                Err(error) => Err(failed(&error)),
            })?;
        }
    }
    let measured = times_us.iter_mut().filter(|(_, times)| !times.is_empty());
    let bars: Vec<_> = measured.map(|(name, times)| (*name, median(times))).collect();
    let missing = bus.err().map_or_else(String::new, |why| format!("  D-Bus: {why}\n"));
    show(&format!(
        "\nA call of {BYTES} bytes and its answer, median of {}, microseconds:\n{}{missing}",
        ROUNDS * CALLS,
        drawn(&bars)
    ))
}

/// Calls, and notes the time of each in microseconds.
fn times(
    times: &mut Vec<f64>,
    mut call: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    for _ in 0..CALLS {
        let begin = Instant::now();
        call()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(())
}

fn median(times: &mut [f64]) -> f64 {
    let middle = times.len() / 2;
    *times.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// A line for each bar.
fn drawn(bars: &[(&str, f64)]) -> String {
    let longest = bars.iter().map(|(_, time_us)| *time_us).fold(f64::MIN_POSITIVE, f64::max);
    let line = |(name, time_us): &(&str, f64)| {
        let width = (time_us / longest * WIDTH).ceil().max(1.0) as usize;
        format!("  {name:<12} {time_us:>7.1}  {}\n", "#".repeat(width))
    };
    bars.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_times() {
        let bars = [("one", 1.0), ("half", 0.5), ("little", 0.001)];
        let text = drawn(&bars);
        let lengths: Vec<_> = text.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(lengths, [50, 25, 1]);
        assert!(text.starts_with("  one              1.0  ###"), "{text}");
    }
}
