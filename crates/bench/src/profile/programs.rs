//! The cost of each BPF program, from the kernel's own statistics, which are switched on for a short time
//! (BPF_ENABLE_STATS).

use anyhow::{Context, Result, ensure};
use libbpf_rs::libbpf_sys;
use libbpf_rs::query::ProgInfoIter;
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};

/// The statistics of all BPF programs that are loaded.
pub struct Programs;

/// A program with at most one run for this many runs of the busiest program has nothing to do with the frames.
const RARE: u64 = 20;

impl Programs {
    /// Name, runs and nanoseconds per run of each program that ran during `work`, ordered by total time, the greatest first.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN; before Linux 5.8; or when `work` fails.
    pub fn during(work: impl FnOnce() -> Result<()>) -> Result<Vec<(String, u64, f64)>> {
        let _on = enable()?;
        let before = read();
        work()?;
        let mut found = Vec::new();
        for (id, (name, runs, nanos)) in read() {
            // The counts of a program that was loaded meanwhile began at zero.
            let (runs_before, nanos_before) =
                before.get(&id).map_or((0, 0), |(_, runs, nanos)| (*runs, *nanos));
            let runs = runs.saturating_sub(runs_before);
            found.push((name, runs, nanos.saturating_sub(nanos_before) as f64 / runs.max(1) as f64));
        }
        let most = found.iter().map(|(_, runs, _)| *runs).max().unwrap_or(0);
        found.retain(|(_, runs, _)| *runs > most / RARE);
        found.sort_by(|a, b| (b.1 as f64 * b.2).total_cmp(&(a.1 as f64 * a.2)));
        Ok(found)
    }
}

fn read() -> BTreeMap<u32, (String, u64, u64)> {
    ProgInfoIter::default()
        .map(|info| (info.id, (info.name.to_string_lossy().into_owned(), info.run_cnt, info.run_time_ns)))
        .collect()
}

/// Statistics are on for as long as the descriptor is open.
#[allow(unsafe_code)]
fn enable() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    ensure!(fd >= 0, "BPF statistics: {}", std::io::Error::from_raw_os_error(-fd));
    // SAFETY: a descriptor that the call just returned, owned by nobody else.
    Some(unsafe { OwnedFd::from_raw_fd(fd) }).context("BPF statistics")
}
