//! Quantiles of times that a clock tells in steps.
//!
//! The processor's counter may go on by many ticks at once (here by 26, which are 10 ns), and a
//! record takes one or two such steps. A reading stands for the times about it, as far as half the
//! way to the next ones that occur; within them times are taken to lie evenly. So a quantile is
//! between two steps where it is, and does not leap from one to the next.

/// The time below which such a share of the times is. They are sorted; `None` of none.
pub fn quantile(sorted: &[u64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).min(sorted.len() as f64);
    let &reading = sorted.get((rank as usize).min(sorted.len().checked_sub(1)?))?;
    let first = sorted.partition_point(|&time| time < reading);
    let end = sorted.partition_point(|&time| time <= reading);
    let below = first.checked_sub(1).map(|index| sorted[index]);
    let above = sorted.get(end).copied();
    let half = |other: u64| (reading.abs_diff(other)) as f64 / 2.0;
    let down = below.or(above).map_or(0.0, half);
    let up = above.or(below).map_or(0.0, half);
    let part = (rank - first as f64) / (end - first) as f64;
    Some(reading as f64 - down + part * (down + up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_within_its_step() {
        let check = |sorted: &[u64], share, expected: Option<f64>| {
            assert_eq!(quantile(sorted, share), expected, "{sorted:?} {share}");
        };
        check(&[], 0.5, None);
        check(&[7], 0.5, Some(7.0));
        check(&[10, 20, 20, 20, 20, 30], 0.5, Some(20.0));
        check(&[10, 20, 20, 30], 0.5, Some(20.0));
        check(&[10, 20, 20, 30], 0.25, Some(15.0));
        check(&[10, 20, 20, 30], 0.75, Some(25.0));
        check(&[10, 10, 10, 50], 1.0, Some(70.0));
    }

    #[test]
    fn times_that_are_told_exactly_stay_what_they_are() {
        let times: Vec<u64> = (1..=1000).collect();
        for (share, expected) in [(0.5, 500.5), (0.999, 999.5)] {
            assert_eq!(quantile(&times, share), Some(expected));
        }
    }
}
