//! The data of `show ntp status` and `show ntp associations`.

use serde::Serialize;

/// The report of the program that sets the machine's clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ntp {
    /// The state of the machine's clock.
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
    /// The server with which the clock is synchronized.
    pub reference: Option<String>,
    /// The time of the last measurement of this server; RFC 3339, UTC.
    pub reference_time: Option<String>,
    /// The time by which the clock is ahead of the servers' time, in seconds.
    pub offset_s: Option<f64>,
    /// The round-trip delay to the reference clock, in seconds (RFC 5905, root delay).
    pub root_delay_s: Option<f64>,
    /// The dispersion that accumulates on the path to the reference clock, in seconds (RFC 5905, root dispersion).
    pub root_dispersion_s: Option<f64>,
    /// The error of the clock's frequency without correction, in parts per million; positive for a fast clock.
    pub frequency_ppm: Option<f64>,
    /// The bound of the error of `frequency_ppm`, in parts per million.
    pub skew_ppm: Option<f64>,
    /// The time between two updates of the clock, in seconds.
    pub update_interval_s: Option<f64>,
}

/// A server of `show ntp associations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NtpAssociation {
    /// Its address.
    pub address: String,
    /// `selected`, `combined`, `candidate`, `falseticker`, `unstable`, `unusable`.
    pub state: &'static str,
    /// The server's own reference: its reference clock, or the server that it follows.
    pub reference: Option<String>,
    /// Its stratum; `None` before its first answer.
    pub stratum: Option<u8>,
    /// The time since its last answer, in seconds; `None` if there was none, or the program does not report it.
    pub last_answer_s: Option<u64>,
    /// The time between two requests, in seconds.
    pub poll_s: u64,
    /// One bit for each of the last eight requests: 1 if it was answered.
    pub reach: u8,
    /// The round-trip delay to the server, in seconds.
    pub delay_s: Option<f64>,
    /// The time by which the server's clock is ahead of this one, in seconds.
    pub offset_s: Option<f64>,
    /// From chrony, the upper bound of the offset's error (RFC 5905, dispersion); from systemd-timesyncd, the offset's jitter. In
    /// seconds.
    pub dispersion_s: Option<f64>,
}
