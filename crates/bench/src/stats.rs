//! Figures from repeated rounds: medians, spreads, and ratios of two things measured side by side.
//!
//! Invariant: a ratio is taken round by round, between neighbours in time, and only then summarised, so that what
//! slows the whole machine down for a while falls out of it.

use serde::Serialize;

/// Smallest, middle and largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of `values`; `None` when there are none, or one is not a number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Self { min: sorted[0], median, max: sorted[sorted.len() - 1] })
    }
}

/// `first / second`, round by round. Rounds whose second figure is zero say nothing and are left out.
#[must_use]
pub fn ratios(first: &[f64], second: &[f64]) -> Vec<f64> {
    first.iter().zip(second).filter(|(_, b)| **b != 0.0).map(|(a, b)| a / b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], expected: Option<(f64, f64, f64)>) {
        let spread = Spread::of(values).map(|s| (s.min, s.median, s.max));
        assert_eq!(spread, expected, "{values:?}");
    }

    #[test]
    fn spreads() {
        check(&[], None);
        check(&[1.0, f64::NAN], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[3.0, 1.0], Some((1.0, 2.0, 3.0)));
        check(&[9.0, 1.0, 5.0], Some((1.0, 5.0, 9.0)));
        check(&[4.0, 1.0, 100.0, 2.0], Some((1.0, 3.0, 100.0)));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine was half as fast in the second round: each ratio is 2 all the same.
        assert_eq!(ratios(&[2.0, 1.0], &[1.0, 0.5]), [2.0, 2.0]);
        assert_eq!(ratios(&[2.0, 1.0], &[0.0, 0.5]), [2.0]);
        assert_eq!(ratios(&[], &[1.0]), [0.0; 0]);
    }
}
