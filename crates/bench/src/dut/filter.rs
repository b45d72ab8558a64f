//! The access list of [`PortMode::Filtered`](super::PortMode::Filtered), for every device alike.

/// The number of rules.
pub const RULES: usize = 1000;

/// The source addresses of all rules but the last, in order: rule N permits UDP packets from host N. The last rule permits
/// everything. So each host with a number below `RULES - 1` has a rule of its own, and the last rule decides about all others.
pub fn rules() -> impl Iterator<Item = String> {
    (0..RULES - 1).map(|host| format!("10.{}.{}.{}", host >> 16, host >> 8 & 255, host & 255))
}
