//! Histograms of latencies, one above the other, as Greenaway's figures A.1 to A.3 have them: how
//! many are in each step.
//!
//! ```text
//!  Fastpath  |      _-####-__              __-_
//!  Strict+   |      -##-_
//!            +--------------------------------------- time, log
//! ```

use crate::curve;
use crate::distribution::Distribution;
use crate::html;
use std::fmt::Write;

const WIDTH: f64 = 560.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 12.0;
const ROW: f64 = 34.0;
const BOTTOM: f64 = 20.0;
/// In picoseconds, and twelve steps to a factor of ten.
const LEAST_PS: f64 = 1e5;
const N_DECADES: u32 = 4;
const N_STEPS: u32 = 12 * N_DECADES;

fn edge_ps(step: u32) -> u64 {
    (LEAST_PS * 10f64.powf(f64::from(step) / 12.0)) as u64
}

fn x(step: u32) -> f64 {
    LEFT + f64::from(step) / f64::from(N_STEPS) * (WIDTH - LEFT - RIGHT)
}

/// A row for each kernel; times are in picoseconds.
pub fn figure<'a>(
    title: &str,
    rows: impl Iterator<Item = (&'static str, &'a Distribution)>,
) -> String {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let bottom = ROW * rows.len() as f64;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n", bottom + BOTTOM);
    for decade in 0..=N_DECADES {
        let x = x(decade * 12);
        let label = curve::time(LEAST_PS * 10f64.powi(decade as i32) / 1000.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 13.0
        );
    }
    for (number, (kernel, times)) in rows.into_iter().enumerate() {
        svg += &row(kernel, times, ROW * (number + 1) as f64);
    }
    html::figure(title, &(svg + "</svg>\n"))
}

fn row(kernel: &str, times: &Distribution, floor: f64) -> String {
    let mut svg = format!("<text x=\"2\" y=\"{:.1}\">{kernel}</text>\n", floor - 6.0);
    let shares: Vec<f64> = (0..N_STEPS)
        .map(|step| times.share_between(edge_ps(step), edge_ps(step + 1) - 1))
        .collect();
    let greatest = shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    for (step, share) in (0..N_STEPS).zip(shares).filter(|(_, share)| *share > 0.0) {
        // One of a thousand is to be seen, too.
        let height = (share / greatest * (ROW - 6.0)).max(1.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" \
             fill=\"currentColor\"/>",
            x(step),
            floor - height,
            x(step + 1) - x(step) - 0.6,
        );
    }
    svg
}
