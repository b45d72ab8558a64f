//! The access list of [`PortMode::Filtered`](super::PortMode::Filtered), for every device alike.

/// The number of rules.
pub const RULES: usize = 1000;

/// The sources that the rules permit one after the other: rule N is for UDP packets of host N, and the
/// last one permits everything. So frames of hosts below [`RULES`] are decided by as many different
/// rules, and frames of all others by the last one.
pub fn rules() -> impl Iterator<Item = String> {
    (0..RULES - 1).map(|host| format!("10.{}.{}.{}", host >> 16, host >> 8 & 255, host & 255))
}
