//! Figures from repeated rounds: medians, spreads, confidence intervals, and ratios of two devices measured side by side.
//!
//! Read first: Welch, "The generalization of Student's problem when several different population variances are
//! involved" (1947). Invariant: a ratio is taken round by round, between measurements that are neighbours in time, and
//! only then summarised, so that a slow phase of the machine cancels out.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Smallest, middle and largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none, or one is not a number.
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

    /// True when the range from minimum to maximum is larger than the median: such rounds measure the machine's noise.
    /// A median of zero (for example no loss) is exempt, because it has no size to compare the range with.
    #[must_use]
    pub fn is_wider_than_itself(&self) -> bool {
        self.median != 0.0 && self.max - self.min > self.median.abs()
    }
}

/// `first / second`, round by round. Rounds whose second figure is zero have no ratio and are left out.
#[must_use]
pub fn ratios(first: &[f64], second: &[f64]) -> Vec<f64> {
    first.iter().zip(second).filter(|(_, b)| **b != 0.0).map(|(a, b)| a / b).collect()
}

/// A mean and its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean of the rounds.
    pub mean: f64,
    /// Half of the confidence interval, resolution included; `None` for one round, from which no interval can be computed.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// The mean of `rounds`, each known to `resolution` (in the figures' unit), and its interval at `confidence` (0..1). `None`
    /// without rounds, or if one is not a finite number.
    #[must_use]
    pub fn of(rounds: &[f64], resolution: f64, confidence: f64) -> Option<Self> {
        let (mean, variance) = moments(rounds)?;
        let half_width = (rounds.len() >= 2).then(|| {
            let n = rounds.len() as f64;
            resolution + t_quantile((1.0 + confidence) / 2.0, n - 1.0) * (variance / n).sqrt()
        });
        Some(Self { mean, half_width })
    }

    /// True when the confidence interval is larger than the mean, so that not even the first digit is known. A mean of
    /// zero is exempt.
    #[must_use]
    pub fn is_wider_than_itself(&self) -> bool {
        self.mean != 0.0 && self.half_width.is_some_and(|half| 2.0 * half > self.mean.abs())
    }
}

/// The form in which a difference is expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Second over first: 1 is no difference.
    Ratio,
    /// Second minus first, in the figures' unit: used where a figure is zero, because there is no ratio then.
    Difference,
}

/// The difference between two series of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Contrast {
    /// The form of the values.
    pub scale: Scale,
    /// The ratio (of geometric means) or the difference (of means).
    pub middle: f64,
    /// The lower end of the confidence interval.
    pub low: f64,
    /// The upper end of the confidence interval.
    pub high: f64,
}

impl Contrast {
    /// Compares `second` with `first` by Welch's interval, on logarithms where every figure is positive. The
    /// resolutions widen the interval: two results of searches may differ by a step without any real difference.
    ///
    /// `None` when either has fewer than two rounds, or a value that is not a number.
    #[must_use]
    pub fn between(first: (&[f64], f64), second: (&[f64], f64), confidence: f64) -> Option<Self> {
        let positive = first.0.iter().chain(second.0).all(|v| *v > 0.0);
        let scaled = |(rounds, resolution): (&[f64], f64)| -> Option<(f64, f64, f64, f64)> {
            let values: Vec<f64> =
                if positive { rounds.iter().map(|v| v.ln()).collect() } else { rounds.to_vec() };
            let (mean, variance) = moments(&values)?;
            let step = if positive { (resolution / moments(rounds)?.0).ln_1p() } else { resolution };
            (rounds.len() >= 2).then_some((mean, variance / rounds.len() as f64, rounds.len() as f64, step))
        };
        let ((a, a_error, a_n, a_step), (b, b_error, b_n, b_step)) = (scaled(first)?, scaled(second)?);
        let error = a_error + b_error;
        let noise = if error > 0.0 {
            // Welch and Satterthwaite's degrees of freedom.
            let freedom = error * error / (a_error * a_error / (a_n - 1.0) + b_error * b_error / (b_n - 1.0));
            t_quantile((1.0 + confidence) / 2.0, freedom) * error.sqrt()
        } else {
            0.0
        };
        let half = noise + a_step.max(b_step);
        let (middle, low, high) = (b - a, b - a - half, b - a + half);
        Some(match positive {
            true => Self { scale: Scale::Ratio, middle: middle.exp(), low: low.exp(), high: high.exp() },
            false => Self { scale: Scale::Difference, middle, low, high },
        })
    }
}

/// Mean and variance (of the sample, zero for one value); `None` without values or for a value that is not a
/// number.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    Some((mean, if values.len() < 2 { 0.0 } else { squares / (n - 1.0) }))
}

/// The value below which Student's t with `freedom` degrees of freedom falls with probability `p`. Degrees of freedom below 1
/// count as 1, and probabilities outside 0.5..=1 as the nearest of these limits.
#[must_use]
pub fn t_quantile(p: f64, freedom: f64) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, freedom.max(1.0));
    distribution.map_or(f64::INFINITY, |t| t.inverse_cdf(p.clamp(0.5, 1.0)))
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
        // The machine was half as fast in the second round, yet each ratio is 2.
        assert_eq!(ratios(&[2.0, 1.0], &[1.0, 0.5]), [2.0, 2.0]);
        assert_eq!(ratios(&[2.0, 1.0], &[0.0, 0.5]), [2.0]);
        assert_eq!(ratios(&[], &[1.0]), [0.0; 0]);
    }

    /// Values from the tables of Student's t.
    #[test]
    fn students_t() {
        for (p, freedom, expected) in [
            (0.975, 1.0, 12.706),
            (0.975, 2.0, 4.303),
            (0.975, 4.0, 2.776),
            (0.95, 10.0, 1.812),
            (0.995, 5.0, 4.032),
            (0.9995, 3.0, 12.924),
            (0.975, 120.0, 1.980),
        ] {
            let found = t_quantile(p, freedom);
            assert!((found - expected).abs() < 6e-4, "t({p}, {freedom}) is {expected}, not {found}");
        }
    }

    #[test]
    fn estimates() {
        let of = |rounds: &[f64], resolution| {
            Estimate::of(rounds, resolution, 0.95).map(|e| (e.mean, e.half_width.map(|w| (w * 1e3).round())))
        };
        assert_eq!(of(&[], 0.0), None);
        assert_eq!(of(&[1.0, f64::NAN], 0.0), None);
        assert_eq!(of(&[3.0], 0.5), Some((3.0, None)), "one round knows nothing about noise");
        // The sample deviation is 1 in three rounds: 4.303 / sqrt(3), plus the resolution.
        assert_eq!(of(&[1.0, 2.0, 3.0], 0.0), Some((2.0, Some(2484.0))));
        assert_eq!(of(&[1.0, 2.0, 3.0], 0.5), Some((2.0, Some(2984.0))));
    }

    #[test]
    fn contrasts() {
        let between = |a: &[f64], b: &[f64], step: f64| Contrast::between((a, step), (b, step), 0.95);
        assert_eq!(between(&[1.0], &[1.0, 2.0], 0.0), None, "one round has no interval");
        let c = between(&[1.0, 1.01, 0.99], &[2.0, 2.02, 1.98], 0.0).expect("two series");
        assert!(
            c.scale == Scale::Ratio && (c.middle - 2.0).abs() < 1e-9 && c.low > 1.9 && c.high < 2.1,
            "{c:?}"
        );
        let zero = between(&[0.0, 0.0], &[0.0, 0.0], 0.0).expect("two series");
        assert_eq!((zero.scale, zero.low, zero.high), (Scale::Difference, 0.0, 0.0));
        // A difference of one search step is no difference, even if the rounds of each series agree exactly.
        let step = between(&[100.0, 100.0], &[101.0, 101.0], 1.0).expect("two series");
        assert!(step.low <= 1.0 && step.high >= 1.0, "{step:?}");
        let more = between(&[100.0, 100.0], &[103.0, 103.0], 1.0).expect("two series");
        assert!(more.low > 1.0, "{more:?}");
    }
}
