//! Units of measured figures: how a value is written for a reader, and how an axis is labelled.

use serde::{Deserialize, Serialize};

/// A unit of a measured figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Frames per second that arrived.
    FramesPerSecond,
    /// Bits of TCP payload per second.
    BitsPerSecond,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Frames.
    Frames,
    /// Megabytes of 10^6 bytes.
    Megabytes,
    /// A part of one, written as a percentage.
    Fraction,
    /// MAC addresses.
    Addresses,
    /// MAC addresses per second.
    AddressesPerSecond,
}

impl Unit {
    /// `value` with its unit, rounded for reading.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::FramesPerSecond => format!("{:.3} Mpps", value / 1e6),
            Self::BitsPerSecond => format!("{:.2} Gbit/s", value / 1e9),
            Self::Microseconds => format!("{value:.2} us"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Frames => format!("{value:.0} frames"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Fraction => format!("{:.1} %", value * 100.0),
            Self::Addresses => format!("{value:.0} addresses"),
            Self::AddressesPerSecond => format!("{value:.0} addresses/s"),
        }
    }

    /// The unit's name on an axis or in a heading, and the divisor that converts a figure to it.
    #[must_use]
    pub const fn scale(self) -> (&'static str, f64) {
        match self {
            Self::FramesPerSecond => ("Mpps", 1e6),
            Self::BitsPerSecond => ("Gbit/s", 1e9),
            Self::Microseconds => ("us", 1.0),
            Self::Milliseconds => ("ms", 1.0),
            Self::Frames => ("frames", 1.0),
            Self::Megabytes => ("MB", 1.0),
            Self::Fraction => ("%", 0.01),
            Self::Addresses => ("addresses", 1.0),
            Self::AddressesPerSecond => ("addresses/s", 1.0),
        }
    }
}

/// Digits after the decimal point that give a value three to four significant digits.
pub(super) fn digits(value: f64) -> usize {
    match value.abs() {
        v if v == 0.0 || v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    }
}
