//! Where and when a run took place: the facts a reader needs to judge a figure or to repeat the measurement.

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

/// The machine and the moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The command line.
    pub command: String,
    /// Version of this program.
    pub version: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Cores this process may run on.
    pub cores: usize,
    /// The kernel's command line: isolated cores, mitigations.
    #[serde(default)]
    pub boot: String,
    /// Frequency governor of the first core; empty on a machine without one.
    #[serde(default)]
    pub governor: String,
    /// Load average of the minute before the run.
    #[serde(default)]
    pub load: f64,
    /// The time at which the run began, UTC: `2026-01-31T12:00:00Z`.
    pub began: String,
}

impl Environment {
    /// Describes this machine at this moment.
    #[must_use]
    pub fn here() -> Self {
        Self {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: cpu_model(),
            cores: lanyard_tester::os::cores(),
            boot: first_line("/proc/cmdline"),
            governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load: first_line("/proc/loadavg").split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0),
            began: now_utc(),
        }
    }

    /// The lines at the top of a report.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("command", self.command.clone()),
            ("began", self.began.clone()),
            ("lanyard", self.version.clone()),
            ("kernel", self.kernel.clone()),
            ("processor", format!("{} ({} cores)", self.cpu, self.cores)),
            ("load before", format!("{:.2}", self.load)),
            ("governor", self.governor.clone()),
            ("boot", self.boot.clone()),
        ];
        lines.retain(|(_, value)| !value.is_empty());
        lines
    }
}

/// The time as RFC 3339 writes it in UTC, to the second.
fn now_utc() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}

pub(crate) fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

pub(crate) fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or_else(String::new, |m| m.trim_start_matches([' ', '\t', ':']).to_owned())
}
