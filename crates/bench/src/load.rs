//! What so many clients see, or do together, over their number, as SVG; of each point the least and
//! the greatest round.
//!
//! ```text
//!   calls/s, log |       __|___
//!                |  __|--      \__|
//!                +-----------------  clients, each number as far from the next
//!                   1    2     8
//! ```

use crate::curve::time;
use crate::distribution::Spread;
use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;

/// One system's line.
#[derive(Debug)]
pub struct Line {
    /// Its name, a class of the page's style sheet too.
    pub name: &'static str,
    /// By the number of clients, ascending.
    pub points: Vec<(usize, Spread)>,
}

/// What points are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Calls a second.
    Calls,
    /// Nanoseconds.
    Time,
}

impl Unit {
    fn label(self, value: f64) -> String {
        match self {
            Unit::Calls => number(value),
            Unit::Time => time(value),
        }
    }
}

/// Where values lie in the picture.
struct Scale<'a> {
    numbers: &'a [usize],
    /// Logarithms of what points are of.
    low: f64,
    high: f64,
}

impl Scale<'_> {
    fn of<'a>(numbers: &'a [usize], lines: &[Line]) -> Scale<'a> {
        let spreads = || lines.iter().flat_map(|line| &line.points).map(|(_, point)| point);
        let ends = || spreads().flat_map(|point| [point.least, point.greatest]);
        let low = ends().fold(f64::INFINITY, f64::min).max(1.0).log10();
        let high = ends().fold(1.0, f64::max).log10();
        Scale { numbers, low: low - 0.1, high: high.max(low) + 0.1 }
    }

    fn x(&self, number: usize) -> f64 {
        let at = self.numbers.iter().position(|&known| known == number).unwrap_or(0);
        LEFT + (at as f64 + 0.5) / self.numbers.len() as f64 * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (self.high - value.max(1.0).log10()) / (self.high - self.low);
        TOP + share * (HEIGHT - TOP - BOTTOM)
    }
}

/// The picture. `numbers` of clients are ascending.
pub fn svg(numbers: &[usize], lines: &[Line], unit: Unit) -> String {
    let scale = Scale::of(numbers, lines);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
    svg += &value_axis(&scale, unit);
    svg += &clients_axis(&scale);
    // Ours come first, and are drawn last, over the others.
    for line in lines.iter().rev() {
        svg += &draw(&scale, line);
    }
    svg + "</svg>\n"
}

fn value_axis(scale: &Scale<'_>, unit: Unit) -> String {
    let mut svg = String::new();
    for decade in scale.low.floor() as i32..=scale.high.ceil() as i32 {
        for factor in [1.0, 2.0, 5.0] {
            let value: f64 = factor * 10f64.powi(decade);
            if !(scale.low..=scale.high).contains(&value.log10()) {
                continue;
            }
            let (y, right) = (scale.y(value), WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<line class=\"major\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"major\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 3.5,
                unit.label(value),
            );
        }
    }
    svg
}

fn number(calls: f64) -> String {
    match calls {
        ..1e3 => format!("{calls:.0}"),
        ..1e6 => format!("{:.0} k", calls / 1e3),
        _ => format!("{:.0} M", calls / 1e6),
    }
}

fn clients_axis(scale: &Scale<'_>) -> String {
    let label = |&number: &usize| {
        let (x, y) = (scale.x(number), HEIGHT - BOTTOM + 16.0);
        format!(
            "<text class=\"major\" x=\"{x:.1}\" y=\"{y:.1}\" \
             text-anchor=\"middle\">{number}</text>\n"
        )
    };
    scale.numbers.iter().map(label).collect()
}

fn draw(scale: &Scale<'_>, Line { name, points }: &Line) -> String {
    let mut svg = format!("<g class=\"{name}\"><title>{name}</title>\n");
    let mut corners = String::new();
    for (number, point) in points {
        let (x, y) = (scale.x(*number), scale.y(point.median));
        let [least, greatest] = [point.least, point.greatest].map(|value| scale.y(value));
        let _ = write!(corners, "{x:.1},{y:.1} ");
        let _ = writeln!(
            svg,
            "<path class=\"whisker\" d=\"M{x:.1} {least:.1}V{greatest:.1}\"/>\
             <circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>"
        );
    }
    let corners = corners.trim_end();
    svg + &format!("<polyline class=\"curve {name}\" points=\"{corners}\"/></g>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(calls: f64) -> Spread {
        Spread { median: calls, least: calls / 2.0, greatest: calls * 2.0 }
    }

    #[test]
    fn a_point_for_each_number_of_clients() {
        let points = [(1, 2e5), (8, 1e5)].map(|(number, calls)| (number, point(calls)));
        let line = Line { name: "pipe", points: points.into() };
        let svg = svg(&[1, 8], std::slice::from_ref(&line), Unit::Calls);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains(">200 k</text>") && svg.contains(">8</text>"));
        let numbers = [1, 8];
        let scale = Scale::of(&numbers, &[line]);
        assert!(scale.x(1) < scale.x(8) && scale.y(2e5) < scale.y(1e5));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([500.0, 2e4, 1e6].map(number), ["500", "20 k", "1 M"]);
    }
}
