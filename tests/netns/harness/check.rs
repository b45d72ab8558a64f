//! The checks at the end of every scenario.

use super::bed::{Bed, Counted};
use super::{DEADLINE, wait_until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns what is wrong with the counters or with the daemon.
pub fn end(bed: &Bed) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut daemon = bed.daemon.borrow_mut();
    let Some(daemon) = daemon.as_mut() else { return wrong };
    if !daemon.alive() {
        wrong.push(format!("the daemon has died: {}", daemon.printed()));
        return wrong;
    }
    if daemon.printed().contains("panicked") {
        wrong.push(format!("the daemon panicked: {}", daemon.printed()));
    }
    // Hosts with addresses continue to send: repeat until no frame is under way.
    let mut found = Vec::new();
    wait_until(DEADLINE / 4, || {
        found = unaccounted(bed);
        found.is_empty().then_some(())
    });
    wrong.append(&mut found);
    wrong
}

/// Checks conservation: at every port, received = forwarded + trapped + dropped, and a port has sent what its host
/// received.
fn unaccounted(bed: &Bed) -> Vec<String> {
    let mut wrong = Vec::new();
    let counters = bed.counters();
    // An interface without a hook is used by the kernel alone.
    let view = bed.ask("show interfaces");
    let unhooked = |name: &str| {
        let is = |row: &Value| row["name"] == name && row["hook"].is_null();
        view["interfaces"].as_array().expect("interfaces").iter().any(is)
    };
    let by_reason = by_reason(&bed.ask("show interfaces counters drops"));
    for (name, count) in counters.iter().filter(|(name, _)| !unhooked(name)) {
        // The plane receives what a VLAN interface sends.
        let (received, dropped) =
            if count.svi { (count.tx, count.tx_dropped) } else { (count.rx, count.rx_dropped) };
        if received != count.forwarded + count.trapped + dropped {
            wrong.push(format!("conservation at {name}: {count:?}"));
        }
        let reasons = by_reason.get(name).copied().unwrap_or(0);
        if reasons != dropped {
            wrong.push(format!("{name} dropped {dropped} frames, by reason {reasons}"));
        }
    }
    bed.hosts.iter().for_each(super::Host::drain);
    for (at, host) in bed.hosts.iter().enumerate().filter(|_| bed.exact.get()) {
        let sent = counters.get(&format!("p{}", at + 1)).map_or(0, |count: &Counted| count.tx);
        if host.missed() == 0 && host.arrived.get() != sent {
            wrong.push(format!("p{} has sent {sent} frames, its host got {}", at + 1, host.arrived.get()));
        }
    }
    wrong
}

fn by_reason(drops: &Value) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in drops["drops"].as_array().expect("drops") {
        // Copies that were not sent are not dropped frames.
        if row["reason"] != "tx_dropped" {
            *sums.entry(row["interface"].as_str().expect("a name").to_owned()).or_default() +=
                row["frames"].as_u64().expect("a count");
        }
    }
    sums
}

/// The objects that `lanyard detach` has failed to remove.
pub fn left_behind(bed: &Bed) -> Vec<String> {
    let mut wrong = Vec::new();
    for place in ["/run/lanyard/bpf", "/sys/fs/bpf/lanyard"] {
        let pins = Path::new(place).join(&bed.instance);
        if pins.exists() {
            wrong.push(format!("pins are left: {}", pins.display()));
        }
    }
    let state = Path::new("/run/lanyard").join(&bed.instance);
    if bed.detached.get() && state.exists() {
        let found = std::fs::read_dir(&state).into_iter().flatten().flatten();
        let names: Vec<_> = found.map(|entry| entry.file_name()).collect();
        wrong.push(format!("state is left: {}: {names:?}", state.display()));
    }
    let named = |pid: u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{pid} {}", name.trim())
    };
    let processes: Vec<String> = bed.net.processes().into_iter().map(named).collect();
    if !processes.is_empty() {
        wrong.push(format!("processes are left in the switch's namespace: {processes:?}"));
    }
    let ours = |name: &String| name.starts_with("vlan") || name.starts_with("ly");
    let links: Vec<String> = bed.net.links().into_iter().filter(ours).collect();
    if !links.is_empty() {
        wrong.push(format!("netdevs are left: {links:?}"));
    }
    wrong
}
