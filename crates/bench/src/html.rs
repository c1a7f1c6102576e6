//! A report as one page that needs nothing else: curves, and the same tables.

use crate::curve::{self, Curve};
use crate::processors::Placement;
use crate::ratios::Results;
use crate::report::Report;
use crate::rpc::{PAYLOADS, word};
use crate::system::System;
use crate::table;
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
.curve.baton-typed, .curve.baton-uapi-libc, .curve.baton-uapi-trap { stroke-width: 2.6; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 1.6em; height: 0.28em; margin-right: 0.4em;
  vertical-align: middle; background: currentColor; }
.baton-typed { color: #d1351b; } .baton-uapi-libc { color: #ef8a17; }
.baton-uapi-trap { color: #c9a400; } .futex { color: #6b7280; } .futex-spin { color: #9aa3ad; }
.pipe { color: #12875c; } .unix { color: #1f66c1; } .unix-seqpacket { color: #55a8e8; }
.rsbinder-rpc { color: #8448b8; }
";

/// The page.
pub fn page(report: &Report, results: &Results) -> String {
    let bench = report.bench;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>baton bench {bench}</title>\n<style>\n{STYLE}</style>\n<h1>baton bench {bench}</h1>\n\
         <p>Time of a call and its answer: how many of them are not longer, all rounds together. \
         Time is on a logarithmic axis, as are the nines of the share.</p>\n"
    );
    page += &legend(results);
    page += "<div class=\"charts\">\n";
    for payload_bytes in PAYLOADS {
        for placement in [Placement::Same, Placement::Different] {
            page += &chart(results, placement, payload_bytes);
        }
    }
    page += "</div>\n";
    let _ = write!(page, "<pre>{}</pre>\n</html>\n", escape(&table::text(report)));
    page
}

fn systems(results: &Results) -> impl Iterator<Item = System> {
    let measured = |system: &System| results.measured.keys().any(|case| case.system == *system);
    System::ALL.into_iter().filter(measured)
}

fn legend(results: &Results) -> String {
    let entry = |system: System| {
        let name = system.name();
        format!("<span><i class=\"{name}\"></i>{name}</span>\n")
    };
    format!("<p class=\"legend\">\n{}</p>\n", systems(results).map(entry).collect::<String>())
}

fn chart(results: &Results, placement: Placement, payload_bytes: usize) -> String {
    let cases = results
        .measured
        .iter()
        .filter(|(case, _)| case.placement == placement && case.payload_bytes == payload_bytes);
    let curve =
        |(case, distribution): (&crate::ratios::Case, &crate::distribution::Distribution)| {
            let times_ns = distribution.curve(&curve::quantiles(distribution.n()));
            Curve { name: case.system.name(), times_ns }
        };
    let mut curves: Vec<Curve> = cases.map(curve).collect();
    if curves.is_empty() {
        return String::new();
    }
    // Ours are drawn last, over the others.
    curves.reverse();
    let title = match placement {
        Placement::Same => "processor",
        Placement::Different => "processors",
    };
    let svg = curve::svg(&curves);
    format!("<figure><h2>{} {title}, {payload_bytes} bytes</h2>\n{svg}</figure>\n", word(placement))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
