//! Rates as the programs hold them: a token bucket as a virtual clock (GCRA, ITU-T I.371). See `ly_trap_group` in `bpf/abi.h`.

use lanyard_pipeline::state::TrapRate;

/// The interval between frames and the tolerance, in nanoseconds. An interval of 0 lets nothing pass.
pub(crate) fn clock(rate: &TrapRate) -> (u64, u64) {
    if rate.rate_pps == 0 || rate.burst == 0 {
        return (0, 0);
    }
    let interval = 1_000_000_000 / u64::from(rate.rate_pps);
    (interval.max(1), interval.saturating_mul(u64::from(rate.burst) - 1))
}
