//! The use of the processors between two moments: /proc/stat, proc(5).

use crate::trial::CpuShare;
use anyhow::{Context, Result};

/// Ticks of each processor since the start of the machine.
pub struct Times(Vec<Ticks>);

#[derive(Clone, Copy, Default)]
struct Ticks {
    cpu: usize,
    user: u64,
    system: u64,
    idle: u64,
    interrupt: u64,
    softirq: u64,
    steal: u64,
    all: u64,
}

impl Times {
    /// Reads the ticks until now.
    ///
    /// # Errors
    /// Without /proc.
    pub fn now() -> Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/stat").context("/proc/stat")?))
    }

    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(ticks).collect())
    }

    /// Shares since `before`. Processors that came or went in between are left out.
    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<CpuShare> {
        let share = |now: &Ticks| {
            let then = before.0.iter().find(|t| t.cpu == now.cpu)?;
            let all = now.all.saturating_sub(then.all).max(1) as f64;
            let part = |of: fn(&Ticks) -> u64| of(now).saturating_sub(of(then)) as f64 / all;
            Some(CpuShare {
                cpu: now.cpu,
                busy: part(|t| t.all - t.idle),
                softirq: part(|t| t.softirq + t.interrupt),
                system: part(|t| t.system),
                user: part(|t| t.user),
                stolen: part(|t| t.steal),
            })
        };
        self.0.iter().filter_map(share).collect()
    }
}

/// `cpuN user nice system idle iowait irq softirq steal ...`
fn ticks(line: &str) -> Option<Ticks> {
    let mut words = line.strip_prefix("cpu")?.split_whitespace();
    let cpu = words.next()?.parse().ok()?;
    // Guest time is part of user time.
    let n: Vec<u64> = words.take(8).map_while(|w| w.parse().ok()).collect();
    let [user, nice, system, idle, wait, interrupt, softirq, rest @ ..] = &n[..] else { return None };
    let all = user + nice + system + idle + wait + interrupt + softirq + rest.iter().sum::<u64>();
    let (user, idle) = (user + nice, idle + wait);
    let steal = rest.first().copied().unwrap_or(0);
    Some(Ticks { cpu, user, system: *system, idle, interrupt: *interrupt, softirq: *softirq, steal, all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let before = Times::parse("cpu  9 9 9 9\ncpu0 10 0 10 100 0 0 0 0 0 0\ncpu1 1 1 1 1 1 1 1\nintr 5\n");
        let after = Times::parse("cpu0 20 10 20 120 15 10 20 5 0 0\ncpu2 1 1 1 1 1 1 1\n");
        let shares = after.since(&before);
        assert_eq!(shares.len(), 1);
        let CpuShare { cpu, busy, softirq, system, user, stolen } = shares[0];
        assert_eq!((cpu, busy, softirq, system, user, stolen), (0, 0.65, 0.3, 0.1, 0.2, 0.05));
    }
}
