//! The data about the machine: clock, processes, parts, receivers of the log.

use serde::Serialize;

/// `show clock`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Clock {
    /// The time in UTC, RFC 3339.
    pub time: String,
    /// The time of day with date in the configured time zone, in IOS's form: `13:05:09.123 CET Fri Jan 31 2026`.
    pub local: String,
    /// The name of the configured time zone.
    pub timezone: String,
    /// Minutes east of UTC.
    pub utc_offset_minutes: i32,
    /// True while the kernel reports that its clock is synchronized (adjtimex).
    pub synchronized: bool,
}

/// `show processes`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Processes {
    /// The daemon's threads and children.
    pub processes: Vec<Process>,
}

/// A thread of the daemon, or a program that it has started.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Process {
    /// The number of the process or thread.
    pub pid: u32,
    /// `thread` or `child`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The state as the kernel abbreviates it: `R`, `S`, `D`...
    pub state: String,
    /// Processor time so far, in milliseconds.
    pub cpu_ms: u64,
    /// Resident memory in KiB; the threads share that of the process.
    pub resident_kib: u64,
}

/// `show inventory`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Inventory {
    /// The machine first, then its ports.
    pub parts: Vec<Part>,
}

/// A part of the machine.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Part {
    /// `Chassis`, or the name of a port.
    pub name: String,
    /// Vendor and product, or driver and speed.
    pub description: String,
    /// The product's number.
    pub product_id: Option<String>,
    /// The version of the product.
    pub version: Option<String>,
    /// The serial number, or a port's MAC address.
    pub serial: Option<String>,
}

/// A receiver of the log, in `show logging`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogReceiver {
    /// Its address.
    pub host: String,
    /// `udp`, `tcp` or `tls`.
    pub transport: &'static str,
    /// The port.
    pub port: u16,
    /// True after a message was sent without an error.
    pub connected: bool,
    /// Why the last attempt to send has failed.
    pub error: Option<String>,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that were lost because too many waited, or the system refused to send them.
    pub dropped: u64,
    /// Messages that were lost because of the rate limit.
    pub rate_limited: u64,
}
