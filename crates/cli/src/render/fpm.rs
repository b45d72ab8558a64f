//! `show fpm ...` as text.

use super::table::{columns, duration};
use crate::view::{Fpm, FpmCounters};
use std::fmt::Write;

/// `show fpm`.
pub fn fpm(view: &Fpm) -> String {
    let mut out = match &view.listening {
        Some(address) => format!("FPM server listens on {address}\n"),
        None => "FPM server is off\n".to_owned(),
    };
    let since = duration(view.since_s.unwrap_or(0));
    let state = match view.phase {
        "replaying" => "is sending its routes; routes of the previous session are kept meanwhile",
        "sweeping" => "has sent its routes; routes that it did not send are being removed",
        _ => "is synchronised",
    };
    let _ = match (&view.client, view.phase) {
        (Some(client), _) => writeln!(out, "Client {client}, up for {since}, {state}"),
        (None, "holding") => writeln!(out, "No client for {since}; its routes are kept for it to come back"),
        (None, _) => writeln!(out, "No client"),
    };
    let routes = view.routes;
    let _ = writeln!(
        out,
        "Routes: {}; {} offloaded, {} trapped, {} failed",
        routes.total, routes.offloaded, routes.trapped, routes.failed
    );
    let _ = writeln!(out, "Next-hop objects: {}; sets in use: {}", view.next_hops, view.next_hop_sets);
    let reads = match view.answers_read {
        Some(false) => "the client updates routes as FRR before 10 does, which ignores answers",
        _ => "FRR before 10 ignores them",
    };
    let _ = writeln!(out, "Answers sent: {} ({reads})", view.answers);
    out
}

/// `show fpm counters`.
pub fn fpm_counters(view: &FpmCounters) -> String {
    let rows: Vec<_> = view
        .counters
        .iter()
        .map(|counter| vec![counter.name.to_owned(), counter.count.to_string()])
        .collect();
    columns(&["Counter", "Count"], &rows, &[1])
}
