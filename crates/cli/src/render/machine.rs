//! The machine: clock, processes, parts; the log's receivers, limits and files.

use super::table::columns;
use crate::outcome::lines;
use crate::view::{Clock, Inventory, LogLimit, LogReceiver, Logging, PersistentLog, Process, Processes};
use std::fmt::Write;

/// `show clock`. As in IOS a star marks a clock that is not synchronized.
pub fn clock(view: &Clock) -> String {
    let mark = if view.synchronized { "" } else { "*" };
    format!("{mark}{}\n", view.local)
}

/// `show processes`.
pub fn processes(view: &Processes) -> String {
    let row = |process: &Process| {
        let numbers = [process.cpu_ms, process.resident_kib].map(|number| number.to_string());
        let head = [process.pid.to_string(), process.kind.to_owned(), process.state.clone()];
        head.into_iter().chain(numbers).chain([process.name.clone()]).collect()
    };
    let rows: Vec<Vec<String>> = view.processes.iter().map(row).collect();
    columns(&["PID", "Kind", "State", "CPU (ms)", "Resident (KiB)", "Name"], &rows, &[0, 3, 4])
}

/// `show inventory`.
pub fn inventory(view: &Inventory) -> String {
    let mut out = String::new();
    for part in &view.parts {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let _ = writeln!(out, "NAME: \"{}\", DESCR: \"{}\"", part.name, part.description);
        let (product, version, serial) = (text(&part.product_id), text(&part.version), text(&part.serial));
        let _ = writeln!(out, "PID: {product:<18}, VID: {version:<6}, SN: {serial}\n");
    }
    out
}

/// The receivers in `show logging`.
pub fn log_receivers(list: &[LogReceiver]) -> String {
    let mut out = String::new();
    for receiver in list {
        let LogReceiver { host, transport, port, sent, dropped, rate_limited, .. } = receiver;
        let reason = receiver.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        let state = if receiver.connected { String::new() } else { format!(", not connected{reason}") };
        let _ = writeln!(
            out,
            "Logging to {host} ({transport} port {port}{state}): {sent} messages sent, {dropped} dropped, \
             {rate_limited} rate-limited"
        );
    }
    out
}

/// The limits and the files in `show logging`.
pub fn log_settings(view: &Logging) -> String {
    let mut out = String::new();
    for (name, limit) in [("Rate limit", &view.rate_limit), ("Console rate limit", &view.console_rate_limit)]
    {
        let Some(LogLimit { per_s, debugging, except, suppressed }) = limit else { continue };
        let rate = per_s.map_or_else(|| "off".to_owned(), |per_s| format!("{per_s} messages per second"));
        let all = if *debugging { ", including debugging messages" } else { "" };
        let except = except.map_or_else(String::new, |level| format!(", except severities 0 to {level}"));
        let _ = writeln!(out, "{name}: {rate}{all}{except}; {suppressed} messages suppressed");
    }
    if let Some(files) = &view.persistent {
        out.push_str(&log_files(files));
    }
    out
}

/// `show logging persistent`.
pub fn log_persistent(view: &PersistentLog) -> String {
    let mut out = log_files(view);
    let PersistentLog { size, file_size, files, bytes, .. } = view;
    let _ =
        writeln!(out, "    {bytes} bytes in {files} files; at most {size} bytes, {file_size} in a file\n");
    out + &lines(view.lines.as_deref().unwrap_or_default())
}

fn log_files(view: &PersistentLog) -> String {
    let PersistentLog { directory, written, dropped, failed, error, .. } = view;
    let error = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
    format!(
        "Persistent logging to {directory}: {written} messages written, {dropped} dropped, {failed} failed{error}\n"
    )
}
