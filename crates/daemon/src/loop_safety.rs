//! What keeps spanning tree safe when something fails: BPDUs are withheld while the plane refuses a port's state, and the
//! plane's watchdog blocks the ports when no BPDU leaves for as long as neighbours believe the last one.
//!
//! Read first: IEEE 802.1Q-2018, 13.29.31 (three hello times), `lanyard_plane::Plane::watchdog`, and docs/spanning-tree.md,
//! "Without a daemon".
//!
//! Invariants: no frame leaves while the plane has a port in another state than the bridge. The watchdog is started anew
//! only when the BPDUs that are due have left, so a plane that refuses for three hello times is treated like a dead daemon.

use crate::clock::wall_clock;
use crate::context::Context;
use lanyard_cli::view::StpWatchdog;
use lanyard_types::PortId;
use std::collections::BTreeSet;
use std::time::Duration;

/// The watchdog is started anew this often at most, in milliseconds: BPDUs may leave thousands of times a second.
const FEED_GAP_MS: u64 = 100;
/// How long after a refusal the states are given to the plane again, in milliseconds.
const RETRY_MS: u64 = 500;

/// See the module. Times are milliseconds since the machine was started.
#[derive(Debug, Default)]
pub(crate) struct LoopSafety {
    /// True if the plane may have a port in another state than the bridge.
    pub(crate) behind: bool,
    /// When the states are given to the plane again.
    retry_ms: Option<u64>,
    /// Why the plane refused last, so that the log reports each reason once.
    refusal: Option<String>,
    watchdog: Watchdog,
    /// When the watchdog was last set.
    fed_ms: u64,
    /// How often it has expired since the daemon was started, and the time of day when this was
    /// last found.
    expiries: u64,
    last_expiry: Option<String>,
}

/// What is known about the plane's watchdog.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Watchdog {
    /// As the last daemon left it.
    #[default]
    Found,
    Stopped,
    /// It expires at this time.
    Due(u64),
}

impl LoopSafety {
    /// When [`crate::spanning::SpanningTree::act`] is to be called even if the bridge has nothing to do.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let feed = match self.watchdog {
            // Long before it expires, so that a busy machine does not make a difference.
            Watchdog::Due(due_ms) => Some(self.fed_ms + due_ms.saturating_sub(self.fed_ms) / 3),
            Watchdog::Found | Watchdog::Stopped => None,
        };
        // While the plane refuses, the watchdog is allowed to expire.
        if self.behind { Some(self.retry_ms.unwrap_or(0)) } else { feed }
    }
}

impl Context {
    /// True when the neighbours no longer believe this bridge's last BPDU: the plane's watchdog has
    /// expired, or this process was stopped for that long.
    pub(crate) fn was_silent(&mut self, now: u64) -> bool {
        let expired = self.plane.watchdog_expired();
        let safety = &mut self.loop_safety;
        let late = matches!(safety.watchdog, Watchdog::Due(due_ms) if due_ms <= now);
        if !expired && !late {
            return false;
        }
        safety.watchdog = Watchdog::Found;
        safety.expiries += 1;
        safety.last_expiry = Some(wall_clock());
        // Until the plane has been given the states again.
        safety.behind = true;
        let names = self.watched_ports().join(", ");
        let text = format!(
            "no BPDU was sent for three hello times: the watchdog blocked {names}; the ports begin anew as if their links had come up"
        );
        self.log("SPANTREE", 2, "WATCHDOG", &text);
        self.switch.spanning().is_some()
    }

    /// Records the plane's answer to the states.
    pub(crate) fn states_applied(&mut self, refusal: Option<String>) {
        self.loop_safety.behind = true;
        if let Some(reason) = &refusal
            && self.loop_safety.refusal != refusal
        {
            let text =
                format!("the plane refused a port's state, and no BPDU is sent until it takes it: {reason}");
            self.log("SPANTREE", 2, "PLANE", &text);
        }
        self.loop_safety.retry_ms = Some(self.clock.boot_ms() + RETRY_MS);
        self.loop_safety.refusal = refusal;
        self.may_send();
    }

    /// Whether BPDUs may be sent: only while the plane has every port in the state that they claim.
    pub(crate) fn may_send(&mut self) -> bool {
        if self.loop_safety.behind {
            let spanning = self.switch.spanning();
            let taken = spanning.is_none_or(|spanning| spanning.is_decided(self.plane.state()));
            self.loop_safety.behind = !taken;
        }
        !self.loop_safety.behind
    }

    /// Starts the plane's watchdog again when the BPDUs that were due have been sent, and stops it
    /// when no port is to be blocked.
    pub(crate) fn feed_watchdog(&mut self) {
        let now = self.clock.boot_ms();
        let spanning = self.switch.spanning().filter(|_| !self.plane.state().watched.is_empty());
        let safety = &self.loop_safety;
        let wanted = match spanning {
            None if safety.watchdog == Watchdog::Stopped => return,
            None => Watchdog::Stopped,
            Some(_) if safety.behind => return,
            Some(_) if matches!(safety.watchdog, Watchdog::Due(_)) && now < safety.fed_ms + FEED_GAP_MS => {
                return;
            }
            Some(spanning) => {
                Watchdog::Due(spanning.bridge().believed_until(now).unwrap_or(now).max(now + 1))
            }
        };
        let after = match wanted {
            Watchdog::Due(due_ms) => Some(Duration::from_millis(due_ms - now)),
            Watchdog::Found | Watchdog::Stopped => None,
        };
        match self.plane.watchdog(after) {
            Ok(()) => (self.loop_safety.watchdog, self.loop_safety.fed_ms) = (wanted, now),
            Err(reason) => {
                let text = format!("ports would forward on without a daemon: {reason}");
                if self.loop_safety.refusal.as_ref() != Some(&text) {
                    self.log("SPANTREE", 2, "WATCHDOG", &text);
                    self.loop_safety.refusal = Some(text);
                }
            }
        }
    }

    /// Names of the ports that the watchdog blocks when it expires.
    fn watched_ports(&self) -> Vec<String> {
        let ports: BTreeSet<PortId> = self.plane.state().watched.iter().map(|(_, port)| *port).collect();
        ports.into_iter().map(|port| self.port_name(port).to_string()).collect()
    }

    /// The watchdog for `show spanning-tree`.
    pub(crate) fn view_watchdog(&self, now: u64) -> StpWatchdog {
        let safety = &self.loop_safety;
        StpWatchdog {
            ports: self.watched_ports(),
            expires_in_s: match safety.watchdog {
                Watchdog::Due(due_ms) => Some(due_ms.saturating_sub(now) as f64 / 1000.0),
                Watchdog::Found | Watchdog::Stopped => None,
            },
            expiries: safety.expiries,
            last_expiry: safety.last_expiry.clone(),
            withheld: safety.behind,
        }
    }
}
