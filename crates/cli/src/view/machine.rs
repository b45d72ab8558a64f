//! The data about the machine: clock, processes, parts, the log's receivers, limits and files.

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
    /// The machine, followed by its ports.
    pub parts: Vec<Part>,
}

/// The machine itself, or one of its ports.
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
    /// True if the last attempt to send a message succeeded.
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

/// A limit of `logging rate-limit`, in `show logging`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogLimit {
    /// Messages a second; `None` while the limit is no longer configured.
    pub per_s: Option<u32>,
    /// True when the limit also applies to debugging messages.
    pub debugging: bool,
    /// Messages of the severities 0 to this one are not limited; `None` when all severities are limited.
    pub except: Option<u8>,
    /// Messages that were suppressed since `clear logging`.
    pub suppressed: u64,
}

/// `show logging persistent`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PersistentLog {
    /// The directory of the files.
    pub directory: String,
    /// The maximum length of all files together, in bytes.
    pub size: u64,
    /// The maximum length of one file, in bytes.
    pub file_size: u64,
    /// The number of files.
    pub files: u64,
    /// Their length together, in bytes.
    pub bytes: u64,
    /// Messages that were written since the daemon started.
    pub written: u64,
    /// Messages that were lost because too many waited for the disk.
    pub dropped: u64,
    /// Messages that were lost because the disk refused them.
    pub failed: u64,
    /// Why the last message could not be written.
    pub error: Option<String>,
    /// The last messages, the oldest first; only in `show logging persistent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
}
