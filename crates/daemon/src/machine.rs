//! The machine, for `show`: the clock, the daemon's threads and children, the parts that the firmware and the drivers report.
//!
//! Invariant: a bounded part of each file of the kernel is read, and a missing file is no error; a value that is not known is
//! left out.

use crate::os;
use jiff::Timestamp;
use jiff::tz::Offset;
use lanyard_cli::view::{Clock, InterfaceKind, InterfaceView, Interfaces, Inventory, Part, Process};
use lanyard_config::Timezone;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The maximum length of a file that is read here, in bytes.
const MAX_FILE: u64 = 64 * 1024;
/// The maximum number of threads that are listed.
const MAX_THREADS: usize = 256;
/// Clock ticks a second in /proc, which is 100 on every architecture (USER_HZ).
const TICKS_PER_S: u64 = 100;

/// The file that systemd-timesyncd makes when it has synchronized the clock: systemd-timesyncd.service(8).
const TIMESYNC: &str = "/run/systemd/timesync/synchronized";

/// True when a program is known to have synchronized the clock.
pub(crate) fn is_synchronized() -> bool {
    Path::new(TIMESYNC).exists() || os::is_synchronized()
}

/// The clock at `now`, in a time zone.
pub(crate) fn clock(now: Timestamp, zone: Option<&Timezone>, synchronized: bool) -> Clock {
    let (timezone, minutes) = zone.map_or(("UTC", 0), |zone| (zone.name.as_str(), zone.minutes));
    let offset = Offset::from_seconds(minutes * 60).unwrap_or(Offset::UTC);
    let local = offset.to_datetime(now);
    let form = format!("%H:%M:%S.%3f {timezone} %a %b %-d %Y");
    Clock {
        time: format!("{now:.3}"),
        local: local.strftime(&form).to_string(),
        timezone: timezone.to_owned(),
        utc_offset_minutes: minutes,
        synchronized,
    }
}

/// The process's threads and these children.
pub(crate) fn processes(children: &[u32]) -> Vec<Process> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten().take(MAX_THREADS);
    let threads = entries.filter_map(|entry| process("thread", &entry.path()));
    let mut list: Vec<Process> = threads.collect();
    list.sort_by_key(|process| process.pid);
    list.extend(children.iter().filter_map(|pid| process("child", Path::new(&format!("/proc/{pid}")))));
    list
}

/// A thread or process by its directory in /proc.
fn process(kind: &'static str, directory: &Path) -> Option<Process> {
    let stat = read(&directory.join("stat"))?;
    let (pid, rest) = stat.split_once(" (")?;
    // The name may contain blanks and parentheses: proc(5).
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let status = read(&directory.join("status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Some(Process {
        pid: pid.parse().ok()?,
        kind,
        name: name.to_owned(),
        state: (*fields.first()?).to_owned(),
        // utime and stime are fields 14 and 15 of the file, of which two precede `fields`.
        cpu_ms: (number(11) + number(12)) * 1000 / TICKS_PER_S,
        resident_kib: resident
            .and_then(|text| text.split_whitespace().next())
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
    })
}

/// The machine as the firmware describes it (SMBIOS), in `dmi`, which is /sys/class/dmi/id.
pub(crate) fn chassis(dmi: &Path) -> Part {
    let value =
        |name: &str| read(&dmi.join(name)).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let words = [value("sys_vendor"), value("product_name")].into_iter().flatten();
    let description: Vec<String> = words.collect();
    Part {
        name: "Chassis".into(),
        description: if description.is_empty() { "Linux machine".into() } else { description.join(" ") },
        product_id: value("product_name"),
        version: value("product_version"),
        serial: value("product_serial"),
    }
}

/// The machine and its ports.
pub(crate) fn inventory(interfaces: &Interfaces) -> Inventory {
    let port = |view: &InterfaceView| {
        let driver = view.driver.clone().unwrap_or_else(|| "unknown driver".into());
        let speed = view.speed_mbps.map_or_else(String::new, |speed| format!(", {speed} Mbit/s"));
        Part {
            name: view.name.clone(),
            description: format!("{driver}{speed}"),
            product_id: view.driver.clone(),
            version: None,
            serial: view.mac.map(|mac| mac.to_string()),
        }
    };
    let is_port =
        |view: &&InterfaceView| view.present && !matches!(view.kind, InterfaceKind::Svi | InterfaceKind::Lag);
    let ports = interfaces.interfaces.iter().filter(is_port).map(port);
    Inventory { parts: std::iter::once(chassis(Path::new("/sys/class/dmi/id"))).chain(ports).collect() }
}

/// A small file; `None` when it cannot be read.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_time_zone() {
        let now = Timestamp::new(1_769_860_799, 123_999_999).expect("a time");
        let zone = |name: &str, minutes| Timezone { name: name.into(), minutes };
        let check = |zone: Option<Timezone>, local: &str| {
            let clock = clock(now, zone.as_ref(), true);
            assert_eq!((clock.time.as_str(), clock.local.as_str()), ("2026-01-31T11:59:59.123Z", local));
        };
        check(None, "11:59:59.123 UTC Sat Jan 31 2026");
        check(Some(zone("IST", 330)), "17:29:59.123 IST Sat Jan 31 2026");
        check(Some(zone("NZ", 13 * 60)), "00:59:59.123 NZ Sun Feb 1 2026");
        check(Some(zone("NST", -210)), "08:29:59.123 NST Sat Jan 31 2026");
    }

    #[test]
    fn threads_and_children_are_listed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let list = processes(&[child.id(), u32::MAX]);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(list.iter().any(|process| process.kind == "thread" && process.resident_kib > 0), "{list:?}");
        let children: Vec<&Process> = list.iter().filter(|process| process.kind == "child").collect();
        assert_eq!((children.len(), children[0].pid), (1, child.id()));
    }

    #[test]
    fn the_chassis_is_as_the_firmware_reports() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(chassis(directory.path()).description, "Linux machine");
        for (name, text) in
            [("sys_vendor", "Vendor\n"), ("product_name", "Box 4\n"), ("product_serial", "\n")]
        {
            fs::write(directory.path().join(name), text).expect("written");
        }
        let part = chassis(directory.path());
        assert_eq!((part.description.as_str(), part.product_id.as_deref()), ("Vendor Box 4", Some("Box 4")));
        assert_eq!(part.serial, None);
    }
}
