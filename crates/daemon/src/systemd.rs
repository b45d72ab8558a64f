//! Reports of the daemon to systemd when it runs as a service: that it is ready, and that it still runs. See sd_notify(3) and
//! sd_watchdog_enabled(3), which are done here without their library.
//!
//! Invariant: the reports come from the event loop, so a loop that hangs is started again by systemd; the plane forwards
//! meanwhile.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends a state, such as `READY=1`. Without systemd there is nothing to do.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        // A full queue must not delay the switch.
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// Reports from the event loop that it still runs, as often as the service's `WatchdogSec` requires; ends at once where systemd
/// expects no reports.
pub(crate) async fn watchdog() {
    let variable = |name: &str| std::env::var(name).ok();
    let (time, pid) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
    let Some(every) = interval(time.as_deref(), pid.as_deref(), std::process::id()) else { return };
    loop {
        notify("WATCHDOG=1");
        tokio::time::sleep(every).await;
    }
}

/// Half the time after which systemd ends a silent service, from its variables; `None` when they are not there or concern another
/// process.
fn interval(time_us: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return None;
    }
    let time_us: u64 = time_us?.parse().ok().filter(|time_us| *time_us > 0)?;
    Some(Duration::from_micros(time_us / 2).max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_the_watchdog() {
        let check = |time_us, pid, want: Option<u64>| {
            assert_eq!(interval(time_us, pid, 7), want.map(Duration::from_millis), "{time_us:?} {pid:?}");
        };
        check(Some("30000000"), Some("7"), Some(15_000));
        check(Some("30000000"), None, Some(15_000));
        check(Some("30000000"), Some("8"), None);
        check(Some("30000000"), Some("x"), None);
        check(Some("1"), None, Some(1));
        check(Some("0"), None, None);
        check(Some("-1"), None, None);
        check(None, Some("7"), None);
    }
}
