//! A report as one page that needs nothing else: curves, and the same tables.

use crate::curve::{self, Curve, Level};
use crate::distribution::{Distribution, Spread};
use crate::lanes::{self, Idle};
use crate::load::{self, Line, Unit};
use crate::processors::Placement;
use crate::ratios::Results;
use crate::report::Report;
use crate::rpc::{Measured, PAYLOADS};
use crate::system::System;
use crate::table;
use crate::throughput::Throughputs;
use std::fmt::Write;

/// Ours in warm colours and thick, peers in cool ones.
const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c1c1c; --faint: #e4e4e4; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --faint: #333; --paper: #161616; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1180px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1em; margin: 0.3em 0; font-weight: 600; }
pre { overflow-x: auto; font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 1.2em; }
svg { width: 100%; } svg text { fill: var(--ink); font-size: 10px; }
svg text.minor { opacity: 0.55; } svg line { stroke: var(--faint); }
svg line.minor { stroke-dasharray: 2 3; }
.curve { fill: none; stroke: currentColor; stroke-width: 1.4; stroke-linejoin: round; }
.curve.baton-typed, .curve.baton-hosted, .curve.baton-hosted-leaving,
.curve.baton-loan, .curve.baton-uapi-libc, .curve.baton-uapi-trap { stroke-width: 2.6; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 1.6em; height: 0.28em; margin-right: 0.4em;
  vertical-align: middle; background: currentColor; }
.baton-typed { color: #d1351b; } .baton-uapi-libc { color: #ef8a17; }
.baton-hosted { color: #9c4a1a; } .baton-hosted-leaving { color: #b58863; }
.zeromq { color: #0b6e4f; } .iceoryx2 { color: #00a6a6; } .grpc { color: #3949ab; }
.capnp { color: #5e8c31; }
.dbus-daemon { color: #5c6bc0; } .dbus-broker { color: #9fa8da; } .zenoh { color: #26c6da; }
.baton-uapi-trap { color: #c9a400; } .futex { color: #6b7280; } .futex-spin { color: #9aa3ad; }
.pipe { color: #12875c; } .unix { color: #1f66c1; } .unix-seqpacket { color: #55a8e8; }
.level { fill: none; stroke: currentColor; stroke-width: 1; stroke-dasharray: 6 4; }
.mqueue { color: #12875c; } .mqueue-bound { color: #55a868; } .thesis-standard { color: #6b7280; }
.thesis-inheriting { color: #c9a400; }
.baton-typed-without { color: #ef8a17; } .rsbinder-rpc { color: #8448b8; }
.kernel-binder { color: #2a2a8c; }
.baton-latency, .call { color: #d1351b; } .cyclictest, .return { color: #1f66c1; }
.lanes-2 { color: #ef8a17; } .lanes-256 { color: #d1351b; }
.follows { color: #0e7c7b; } .follows-not { color: #8d6b94; }
.whisker { stroke: currentColor; stroke-width: 1; } .dot { fill: currentColor; }
.pages-4k { color: #1f66c1; } .pages-2m { color: #d1351b; } .baton-loan { color: #a8174d; }
.memcpy { color: #6b7280; }
";

/// A page: a heading, what it shows, the systems' colours, charts, and the tables.
pub fn frame(report: &Report, lead: &str, names: &[&str], charts: &str, tables: &str) -> String {
    let bench = report.bench;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>baton bench {bench}</title>\n<style>\n{STYLE}</style>\n<h1>baton bench \
         {bench}</h1>\n\
         <p>{lead}</p>\n"
    );
    page += &legend(names);
    let _ = write!(page, "<div class=\"charts\">\n{charts}</div>\n");
    let _ = write!(page, "<pre>{}</pre>\n</html>\n", escape(&table::text(report, tables)));
    page
}

/// The page of `rpc`.
pub fn page(report: &Report, found: &Measured) -> String {
    let Measured { results, throughputs, idle, following } = found;
    let mut charts = String::new();
    for payload_bytes in PAYLOADS {
        for placement in [Placement::Same, Placement::Different] {
            charts += &of_payload(results, placement, payload_bytes);
        }
    }
    charts += &of_clients(throughputs);
    charts += &of_lanes(idle);
    charts += &following.charts();
    let lead = "Time of a call and its answer: how many of them are not longer, all rounds \
        together. \
                Time is on a logarithmic axis, as are the nines of the share. Below, calls a \
                second \
                of many clients at once, and what each of them sees.";
    let names: Vec<&str> = systems(results).map(System::name).collect();
    frame(report, lead, &names, &charts, &table::of_calls(report))
}

fn systems(results: &Results) -> impl Iterator<Item = System> {
    let measured = |system: &System| results.measured.keys().any(|case| case.system == *system);
    System::ALL.into_iter().filter(measured)
}

fn legend(names: &[&str]) -> String {
    let entry = |name: &&str| format!("<span><i class=\"{name}\"></i>{name}</span>\n");
    format!("<p class=\"legend\">\n{}</p>\n", names.iter().map(entry).collect::<String>())
}

/// One chart: a curve for each distribution. Those that come first are drawn last, over others.
pub fn chart<'a>(
    title: &str,
    distributions: impl Iterator<Item = (&'static str, &'a Distribution)>,
) -> String {
    chart_beside(title, distributions, &[])
}

/// The same, with single times to compare with.
pub fn chart_beside<'a>(
    title: &str,
    distributions: impl Iterator<Item = (&'static str, &'a Distribution)>,
    levels: &[Level],
) -> String {
    let curve = |(name, distribution): (&'static str, &Distribution)| {
        let times_ns = distribution.curve(&curve::quantiles(distribution.n()));
        Curve { name, times_ns }
    };
    let mut curves: Vec<Curve> = distributions.map(curve).collect();
    curves.reverse();
    if curves.is_empty() { String::new() } else { figure(title, &curve::svg(&curves, levels)) }
}

/// A chart under its title.
pub fn figure(title: &str, svg: &str) -> String {
    format!("<figure><h2>{title}</h2>\n{svg}</figure>\n")
}

fn of_payload(results: &Results, placement: Placement, payload_bytes: usize) -> String {
    let cases = results
        .measured
        .iter()
        .filter(|(case, _)| case.placement == placement && case.payload_bytes == payload_bytes)
        .map(|(case, distribution)| (case.system.name(), distribution));
    chart(&format!("{}, {payload_bytes} bytes", processors(placement)), cases)
}

/// How a placement reads in a title.
pub fn processors(placement: Placement) -> &'static str {
    match placement {
        Placement::Same => "same processor",
        Placement::Different => "different processors",
    }
}

fn of_clients(throughputs: &Throughputs) -> String {
    let measured = &throughputs.measured;
    let mut numbers: Vec<usize> = measured.keys().map(|case| case.0).collect();
    numbers.dedup();
    let mut lines: Vec<Line> = Vec::new();
    for system in System::ALL {
        let point = |&number: &usize| {
            let throughput = measured.get(&(number, system))?.throughput()?;
            let [least, greatest] = throughput.calls_per_second_spread;
            let median = throughput.calls_per_second;
            Some((number, Spread { median, least, greatest }))
        };
        let points: Vec<_> = numbers.iter().filter_map(point).collect();
        if !points.is_empty() {
            lines.push(Line { name: system.name(), points });
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut charts = figure(
        "calls a second, by the number of clients",
        &load::svg(&numbers, &lines, Unit::Calls),
    );
    for number in numbers {
        let loads = measured.iter().filter(|(case, _)| case.0 == number);
        let times = loads.map(|(case, load)| (case.1.name(), &load.times));
        charts += &chart(&format!("clients at once: {number}"), times);
    }
    charts
}

fn of_lanes(idle: &Idle) -> String {
    let mut charts = String::new();
    for placement in [Placement::Same, Placement::Different] {
        let cases = idle.measured.iter().filter(|(case, _)| case.0 == placement);
        let named = cases.map(|(case, times)| (lanes::curve_name(case.1), times));
        charts += &chart(&format!("among 2 and 256 lanes, {}", processors(placement)), named);
    }
    charts
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_colour() {
        for system in System::ALL {
            let rule = format!(".{} {{ color: ", system.name());
            assert!(STYLE.contains(&rule), "{rule}");
        }
    }
}
