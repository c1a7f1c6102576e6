//! Percentile curves as SVG: how long the slowest of ten, of a hundred, of a thousand calls take.
//!
//! ```text
//!   time, log |                          ,--
//!             |  _______________________/
//!             +----------------------------  share of calls that are not longer, in nines
//!               0      90      99     99.9
//! ```

use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;
const STEPS_PER_NINE: u32 = 40;

/// One system's curve.
#[derive(Debug)]
pub struct Curve {
    /// Its name, a class of the page's style sheet too.
    pub name: &'static str,
    /// Time in nanoseconds at each of [`quantiles`]; it may end before them.
    pub times_ns: Vec<u64>,
}

/// A single time that curves are to be compared with.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// Whose.
    pub name: &'static str,
    /// In nanoseconds.
    pub time_ns: u64,
}

/// Quantiles that `n` values can tell, evenly spread over the nines.
pub fn quantiles(n: u64) -> Vec<f64> {
    let nines = (n.max(1) as f64).log10();
    let steps = (nines * f64::from(STEPS_PER_NINE)).floor() as u32;
    let quantile = |step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(STEPS_PER_NINE));
    (0..=steps).map(quantile).collect()
}

/// Where values lie in the picture.
struct Scale {
    /// Whole decades of nanoseconds.
    decades: (i32, i32),
    nines: f64,
}

impl Scale {
    fn of(curves: &[Curve], levels: &[Level]) -> Scale {
        let levels = || levels.iter().map(|level| &level.time_ns);
        let times = || {
            let all = curves.iter().flat_map(|curve| &curve.times_ns).chain(levels());
            all.map(|&time_ns| time_ns.max(1) as f64)
        };
        let least = times().fold(f64::INFINITY, f64::min).log10().floor() as i32;
        let greatest = times().fold(1.0, f64::max).log10().ceil() as i32;
        let steps = curves.iter().map(|curve| curve.times_ns.len()).max().unwrap_or(1);
        let nines = (steps as f64 - 1.0) / f64::from(STEPS_PER_NINE);
        Scale { decades: (least, greatest.max(least + 1)), nines: nines.max(1.0) }
    }

    fn x(&self, nines: f64) -> f64 {
        LEFT + nines / self.nines * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, time_ns: f64) -> f64 {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        TOP + (high - time_ns.log10()) / (high - low) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The picture.
pub fn svg(curves: &[Curve], levels: &[Level]) -> String {
    let scale = Scale::of(curves, levels);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
    svg += &time_axis(&scale);
    svg += &share_axis(&scale);
    for level in levels {
        svg += &level_line(&scale, level);
    }
    for curve in curves {
        svg += &line(&scale, curve);
    }
    svg + "</svg>\n"
}

fn time_axis(scale: &Scale) -> String {
    let mut svg = String::new();
    let (left, right) = (LEFT, WIDTH - RIGHT);
    for decade in scale.decades.0..=scale.decades.1 {
        for (factor, class) in [(1.0, "major"), (2.0, "minor"), (5.0, "minor")] {
            let time_ns = factor * 10f64.powi(decade);
            if class == "minor" && decade == scale.decades.1 {
                continue;
            }
            let y = scale.y(time_ns);
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 3.5,
                time(time_ns),
            );
        }
    }
    svg
}

/// A time that has one digit.
pub fn time(time_ns: f64) -> String {
    match time_ns {
        ..1e3 => format!("{time_ns:.0} ns"),
        ..1e6 => format!("{:.0} us", time_ns / 1e3),
        ..1e9 => format!("{:.0} ms", time_ns / 1e6),
        _ => format!("{:.0} s", time_ns / 1e9),
    }
}

fn share_axis(scale: &Scale) -> String {
    let mut svg = String::new();
    let bottom = HEIGHT - BOTTOM;
    for (nines, label) in [
        (0.0, "0 %"),
        (std::f64::consts::LOG10_2, "50"),
        (1.0, "90"),
        (2.0, "99"),
        (3.0, "99.9"),
        (4.0, "99.99"),
        (5.0, "99.999"),
    ] {
        if nines > scale.nines {
            break;
        }
        let x = scale.x(nines);
        let _ = writeln!(
            svg,
            "<line class=\"minor\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"major\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16.0,
        );
    }
    svg
}

fn level_line(scale: &Scale, &Level { name, time_ns }: &Level) -> String {
    let (y, right) = (scale.y(time_ns.max(1) as f64), WIDTH - RIGHT);
    format!(
        "<path class=\"level {name}\" d=\"M{LEFT} {y:.1}H{right}\"><title>{name}</title></path>\n"
    )
}

fn line(scale: &Scale, curve: &Curve) -> String {
    let mut points = String::new();
    for (&time_ns, step) in curve.times_ns.iter().zip(0u32..) {
        let x = scale.x(f64::from(step) / f64::from(STEPS_PER_NINE));
        let _ = write!(points, "{x:.1},{:.1} ", scale.y(time_ns.max(1) as f64));
    }
    let name = curve.name;
    format!(
        "<polyline class=\"curve {name}\" points=\"{}\"><title>{name}</title></polyline>\n",
        points.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_its_values_tell_nothing_more() {
        for (n, last) in [(1, 0.0), (10, 0.9), (1000, 0.999)] {
            let quantiles = quantiles(n);
            assert_eq!(quantiles[0], 0.0);
            assert!((quantiles.last().unwrap() - last).abs() < 1e-9, "{n}: {quantiles:?}");
        }
    }

    #[test]
    fn a_level_has_room_in_the_picture() {
        let curve = Curve { name: "a", times_ns: vec![1_000, 2_000] };
        let level = Level { name: "worst", time_ns: 42_000_000 };
        assert_eq!(Scale::of(std::slice::from_ref(&curve), &[level]).decades, (3, 8));
        assert!(svg(&[curve], &[level]).contains("class=\"level worst\""));
    }

    #[test]
    fn times_lie_on_a_logarithmic_scale() {
        let curve = Curve { name: "a", times_ns: vec![1_000, 10_000, 100_000] };
        let scale = Scale::of(&[curve], &[]);
        assert_eq!(scale.decades, (3, 5));
        let middle = (scale.y(1e3) + scale.y(1e5)) / 2.0;
        assert!((scale.y(1e4) - middle).abs() < 1e-9);
        assert_eq!(
            (time(200.0), time(5e3), time(1e6)),
            ("200 ns".into(), "5 us".into(), "1 ms".into())
        );
    }
}
