//! Where and when a run was: what a reader needs to believe a figure, or to measure it again.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// What the kernel was told at boot: isolated cores, mitigations.
    #[serde(default)]
    pub boot: String,
    /// Frequency governor of the first core; empty where nothing governs.
    #[serde(default)]
    pub governor: String,
    /// Load average of the minute before: others on the machine.
    #[serde(default)]
    pub load: f64,
    /// Begin, UTC: `2026-01-31T12:00:00Z`.
    pub began: String,
}

impl Environment {
    /// This machine, now.
    #[must_use]
    pub fn here() -> Self {
        Self {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: cpu_model(),
            cores: crate::os::cores(),
            boot: first_line("/proc/cmdline"),
            governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load: first_line("/proc/loadavg").split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0),
            began: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())),
        }
    }

    /// The lines of a report's head.
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

/// Seconds since 1970 as ISO 8601.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

pub(crate) fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

pub(crate) fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or_else(String::new, |m| m.trim_start_matches([' ', '\t', ':']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
