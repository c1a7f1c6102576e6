//! A report as one page that needs nothing else: the data of its charts, which `page.js` draws, and
//! the same tables.

use crate::distribution::{Distribution, Spread};
use serde::Serialize;

const STEPS_PER_NINE: u32 = 40;
/// Of a histogram: a factor of ten has twelve steps, and there are four factors from 100 ns on.
const LEAST_PS: f64 = 1e5;
const N_STEPS: u32 = 48;

/// What a chart shows, by the names of systems.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Chart {
    /// Times in nanoseconds at even steps over the nines of the share of calls that are not longer;
    /// `levels` are single times beside.
    Percentiles {
        title: String,
        curves: Vec<(&'static str, Vec<u64>)>,
        levels: Vec<(&'static str, u64)>,
    },
    /// Over numbers, each as far from the next: the median, the least and the greatest round.
    ByNumber { title: String, unit: Unit, lines: Vec<(&'static str, Vec<Point>)> },
    /// The share of times in each step, a row for each system.
    Histograms { title: String, rows: Vec<(&'static str, Vec<f64>)> },
}

/// A number, and the median, the least and the greatest of what was found there.
pub(crate) type Point = (usize, [f64; 3]);

/// What points are of.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    CallsPerSecond,
    Nanoseconds,
}

/// Quantiles that `n` values can tell, evenly spread over the nines.
fn quantiles(n: u64) -> Vec<f64> {
    let steps = ((n.max(1) as f64).log10() * f64::from(STEPS_PER_NINE)).floor() as u32;
    let quantile = |step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(STEPS_PER_NINE));
    (0..=steps).map(quantile).collect()
}

/// A curve for each distribution, and single times to compare with.
pub(crate) fn percentiles<'a>(
    title: String,
    distributions: impl Iterator<Item = (&'static str, &'a Distribution)>,
    levels: Vec<(&'static str, u64)>,
) -> Chart {
    let curve =
        |(name, times): (&'static str, &Distribution)| (name, times.curve(&quantiles(times.n())));
    Chart::Percentiles { title, curves: distributions.map(curve).collect(), levels }
}

/// A point of [`Chart::ByNumber`].
pub(crate) fn point(number: usize, spread: Spread) -> Point {
    (number, [spread.median, spread.least, spread.greatest])
}

/// Of times in picoseconds.
pub(crate) fn histograms<'a>(
    title: String,
    distributions: impl Iterator<Item = (&'static str, &'a Distribution)>,
) -> Chart {
    let edge_ps = |step: u32| (LEAST_PS * 10f64.powf(f64::from(step) / 12.0)) as u64;
    let shares = |times: &Distribution| {
        let share = |step| times.share_between(edge_ps(step), edge_ps(step + 1) - 1);
        (0..N_STEPS).map(share).collect()
    };
    let rows = distributions.map(|(name, times)| (name, shares(times)));
    Chart::Histograms { title, rows: rows.collect() }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Chart {
    fn names(&self) -> Vec<&'static str> {
        match self {
            Chart::Percentiles { curves, levels, .. } => {
                let levels = levels.iter().map(|level| level.0);
                curves.iter().map(|curve| curve.0).chain(levels).collect()
            }
            Chart::ByNumber { lines, .. } => lines.iter().map(|line| line.0).collect(),
            Chart::Histograms { rows, .. } => rows.iter().map(|row| row.0).collect(),
        }
    }
}

/// A page: a heading, what it shows, the colours, charts, and the report as `text`.
pub(crate) fn page(bench: &str, lead: &str, charts: &[Chart], text: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in charts.iter().flat_map(Chart::names) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let legend = |name: &&str| format!("<span><i class=\"{name}\"></i>{name}</span>\n");
    let legend: String = names.iter().map(legend).collect();
    // A string's `<` might end the script.
    let data = serde_json::to_string(charts).expect("strings and numbers").replace('<', "\\u003c");
    let (style, script) = (include_str!("page.css"), include_str!("page.js"));
    let text = escape(text);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>baton bench {bench}\
         </title>\n<style>\n{style}</style>\n<h1>baton bench {bench}</h1>\n<p>{lead}</p>\n\
         <p class=\"legend\">\n{legend}</p>\n<div class=\"charts\" id=\"charts\"></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>\n{script}</script>\n<pre>{text}</pre>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::System;

    #[test]
    fn a_curve_ends_where_its_values_tell_nothing_more() {
        for (n, last) in [(1, 0.0), (10, 0.9), (1000, 0.999)] {
            let quantiles = quantiles(n);
            assert_eq!(quantiles[0], 0.0);
            assert!((quantiles.last().unwrap() - last).abs() < 1e-9, "{n}: {quantiles:?}");
        }
    }

    #[test]
    fn every_system_has_a_colour() {
        for system in System::called() {
            let rule = format!(".{} {{ color: ", system.name());
            assert!(include_str!("page.css").contains(&rule), "{rule}");
        }
    }
}
