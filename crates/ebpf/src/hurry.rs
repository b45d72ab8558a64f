//! Quick grace periods while many hooks change at once.
//!
//! Read first: the kernel's Documentation/admin-guide/kernel-parameters.txt on rcupdate.rcu_expedited. Attaching to a netdev
//! ends with a wait for every processor to pass a quiet moment, about 10 ms, and 48 ports take half a second of it. The
//! kernel can hurry the processors instead, at the price of a few interrupts. Without the right to ask for that,
//! everything works as before and takes its time.

use std::fs;

const SWITCH: &str = "/sys/kernel/rcu_expedited";
/// Fewer hooks than this are not worth it.
const MANY: usize = 4;

/// Grace periods are quick while this lives.
#[derive(Debug)]
pub(crate) struct Hurry {
    ours: bool,
}

impl Hurry {
    /// For `changes` hooks that are about to be attached or detached.
    pub(crate) fn for_changes(changes: usize) -> Self {
        let off = || fs::read_to_string(SWITCH).is_ok_and(|value| value.trim() == "0");
        Self { ours: changes >= MANY && off() && fs::write(SWITCH, "1").is_ok() }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        if self.ours {
            // It could be written a moment ago.
            let _ = fs::write(SWITCH, "0");
        }
    }
}
