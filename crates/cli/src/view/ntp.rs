//! The data of `show ntp status` and `show ntp associations`.

use serde::Serialize;

/// The report of the program that sets the machine's clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ntp {
    /// The clock.
    pub status: NtpStatus,
    /// The servers.
    pub associations: Vec<NtpAssociation>,
}

/// `show ntp status`. A value that the program does not report is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NtpStatus {
    /// The program: `chrony` or `systemd-timesyncd`.
    pub client: &'static str,
    /// True while the program follows a server.
    pub synchronized: bool,
    /// The distance to a reference clock, 1..=15.
    pub stratum: Option<u8>,
    /// The server that the clock follows.
    pub reference: Option<String>,
    /// When the clock was last compared with it; RFC 3339, UTC.
    pub reference_time: Option<String>,
    /// How far the clock is ahead of the servers' time.
    pub offset_s: Option<f64>,
    /// The delay to the reference clock and back.
    pub root_delay_s: Option<f64>,
    /// The error of the reference clock.
    pub root_dispersion_s: Option<f64>,
    /// How fast the clock would be without correction, in parts per million.
    pub frequency_ppm: Option<f64>,
    /// The possible error of that.
    pub skew_ppm: Option<f64>,
    /// The time between two updates of the clock.
    pub update_interval_s: Option<f64>,
}

/// A server of `show ntp associations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NtpAssociation {
    /// Its address.
    pub address: String,
    /// `selected`, `combined`, `candidate`, `falseticker`, `unstable`, `unusable`.
    pub state: &'static str,
    /// Its own reference clock or server.
    pub reference: Option<String>,
    /// Its stratum; `None` before its first answer.
    pub stratum: Option<u8>,
    /// The time since its last answer.
    pub last_answer_s: Option<u64>,
    /// The time between two requests.
    pub poll_s: u64,
    /// The last eight requests, each a bit: 1 for an answer.
    pub reach: u8,
    /// The delay to the server and back.
    pub delay_s: Option<f64>,
    /// How far the server's clock is ahead of this one.
    pub offset_s: Option<f64>,
    /// The possible error of that.
    pub dispersion_s: Option<f64>,
}
