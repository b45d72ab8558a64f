//! `show ntp status` and `show ntp associations` in IOS's layout.

use super::table::columns;
use crate::view::{NtpAssociation, NtpStatus};
use std::fmt::Write;

/// Seconds as milliseconds with three decimals; `-` if unknown.
fn msec(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.3}", seconds * 1000.0))
}

/// `show ntp status`.
pub fn ntp_status(view: &NtpStatus) -> String {
    let mut out = String::new();
    match (view.synchronized, view.stratum) {
        (true, Some(stratum)) => {
            let reference = view.reference.as_deref().unwrap_or("unknown");
            let _ = writeln!(out, "Clock is synchronized, stratum {stratum}, reference is {reference}");
        }
        (true, None) => out.push_str("Clock is synchronized\n"),
        (false, _) => out.push_str("Clock is unsynchronized, stratum 16, no reference clock\n"),
    }
    if let Some(frequency) = view.frequency_ppm {
        let skew = view.skew_ppm.map_or_else(String::new, |skew| format!(", skew is {skew:.3} ppm"));
        let _ = writeln!(out, "frequency is {frequency:.3} ppm{skew}");
    }
    if let Some(time) = &view.reference_time {
        let _ = writeln!(out, "reference time is {time}");
    }
    let (offset, delay) = (msec(view.offset_s), msec(view.root_delay_s));
    let _ = writeln!(out, "clock offset is {offset} msec, root delay is {delay} msec");
    let _ = writeln!(out, "root dispersion is {} msec", msec(view.root_dispersion_s));
    if let Some(interval) = view.update_interval_s {
        let _ = writeln!(out, "clock update interval is {interval:.1} sec");
    }
    let _ = writeln!(out, "time client is {}", view.client);
    out
}

/// `show ntp associations`.
pub fn ntp_associations(list: &[NtpAssociation]) -> String {
    let row = |server: &NtpAssociation| {
        let mark = match server.state {
            "selected" => "*~",
            "combined" => "#~",
            "candidate" => "+~",
            "falseticker" => "x~",
            "unstable" => "-~",
            _ => " ~",
        };
        let text = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        vec![
            format!("{mark}{}", server.address),
            server.reference.clone().unwrap_or_else(|| "-".into()),
            // IOS prints stratum 16 for a server that has not answered.
            server.stratum.unwrap_or(16).to_string(),
            text(server.last_answer_s),
            server.poll_s.to_string(),
            format!("{:o}", server.reach),
            msec(server.delay_s),
            msec(server.offset_s),
            msec(server.dispersion_s),
        ]
    };
    let heading = ["  address", "ref clock", "st", "when", "poll", "reach", "delay", "offset", "disp"];
    let rows: Vec<_> = list.iter().map(row).collect();
    let table = columns(&heading, &rows, &[2, 3, 4, 5, 6, 7, 8]);
    format!("{table} * sys.peer, # selected, + candidate, - outlyer, x falseticker, ~ configured\n")
}
