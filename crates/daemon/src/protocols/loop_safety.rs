//! Keeps spanning tree safe when something fails. It withholds BPDUs while the plane refuses a port's state,
//! and makes the plane's watchdog block the ports when no BPDU has been sent for as long as neighbours keep
//! the last one.
//!
//! Read first: IEEE 802.1Q-2018, 13.29.31 (three hello times), `lanyard_plane::Plane::watchdog`, and
//! docs/spanning-tree.md, "Without a daemon".
//!
//! Invariants: no frame is sent while the plane has a port in another state than the bridge. The watchdog is
//! restarted only when the BPDUs that are due have been sent, and by the thread that sends them. A plane that
//! refuses for three hello times and a thread that hangs therefore have the same effect as a dead daemon.

use super::work::{Io, Report};
use crate::clock::wall_clock;
use lanyard_cli::view::StpWatchdog;
use lanyard_plane::PlaneError;
use lanyard_stp::Bridge;
use lanyard_types::{InstanceId, PortId};
use std::collections::BTreeSet;
use std::time::Duration;

/// The least time between two starts of the watchdog, in milliseconds: BPDUs may leave thousands of
/// times a second.
const FEED_GAP_MS: u64 = 100;
/// How long after a refusal the states are given to the plane again, in milliseconds.
const RETRY_MS: u64 = 500;

/// See the module comment. Times are milliseconds since the machine was started.
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
    /// How often it has expired since the daemon was started, and the time of day when that was
    /// last found.
    expiries: u64,
    last_expiry: Option<String>,
}

/// The last known state of the plane's watchdog.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Watchdog {
    /// Not known: as the last daemon left it, or expired.
    #[default]
    Found,
    Stopped,
    /// It expires at this time.
    Due(u64),
}

impl LoopSafety {
    /// When spanning tree must run even if the bridge has nothing to do.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let feed = match self.watchdog {
            // Long before it expires, so that a delay on a busy machine does not matter; but not before
            // `feed_watchdog` may restart it, so that the thread does not spin until then.
            Watchdog::Due(due_ms) => {
                Some(self.fed_ms + (due_ms.saturating_sub(self.fed_ms) / 3).max(FEED_GAP_MS))
            }
            Watchdog::Found | Watchdog::Stopped => None,
        };
        // While the plane refuses, the watchdog is allowed to expire.
        if self.behind { Some(self.retry_ms.unwrap_or(0)) } else { feed }
    }

    /// True when the neighbours may have discarded this bridge's last BPDU: the plane's watchdog has expired,
    /// or this process was stopped for that long.
    pub(crate) fn was_silent(&mut self, io: &mut Io<'_>, watched: &Watched) -> bool {
        let (expired, now) = (io.plane.watchdog_expired(), io.now());
        let late = matches!(self.watchdog, Watchdog::Due(due_ms) if due_ms <= now);
        if !expired && !late {
            return false;
        }
        self.watchdog = Watchdog::Found;
        self.expiries += 1;
        self.last_expiry = Some(wall_clock());
        // The plane may have blocked ports: withhold BPDUs until it has been given the states again.
        self.behind = true;
        io.reports.add(Report::Expired(ports(watched)));
        true
    }

    /// Records the plane's answer to the states.
    pub(crate) fn states_given(&mut self, io: &mut Io<'_>, refusal: Option<PlaneError>) {
        let refusal = refusal.map(|reason| reason.to_string());
        self.behind = refusal.is_some();
        self.retry_ms = Some(io.now() + RETRY_MS);
        if let Some(reason) = refusal.as_ref().filter(|_| self.refusal != refusal) {
            io.reports.add(Report::Refused(reason.clone()));
        }
        self.refusal = refusal;
    }

    /// Restarts the plane's watchdog when the BPDUs that were due have been sent; stops it when there is no
    /// bridge, because no port has to be blocked then.
    pub(crate) fn feed_watchdog(&mut self, io: &mut Io<'_>, bridge: Option<&Bridge>) {
        let now = io.now();
        let wanted = match bridge {
            None if self.watchdog == Watchdog::Stopped => return,
            None => Watchdog::Stopped,
            Some(_) if self.behind => return,
            Some(_) if matches!(self.watchdog, Watchdog::Due(_)) && now < self.fed_ms + FEED_GAP_MS => {
                return;
            }
            Some(bridge) => Watchdog::Due(bridge.believed_until(now).unwrap_or(now).max(now + 1)),
        };
        let after = match wanted {
            Watchdog::Due(due_ms) => Some(Duration::from_millis(due_ms - now)),
            Watchdog::Found | Watchdog::Stopped => None,
        };
        // This also limits how often a refused restart is tried again.
        self.fed_ms = now;
        match io.plane.watchdog(after) {
            Ok(()) => self.watchdog = wanted,
            Err(reason) => {
                let text = reason.to_string();
                if self.refusal.as_ref() != Some(&text) {
                    io.reports.add(Report::Unwatched(text.clone()));
                    self.refusal = Some(text);
                }
            }
        }
    }

    /// The watchdog for `show spanning-tree`.
    pub(crate) fn view(&self, now: u64, watched: &Watched, name: &dyn Fn(PortId) -> String) -> StpWatchdog {
        StpWatchdog {
            ports: ports(watched).into_iter().map(name).collect(),
            expires_in_s: match self.watchdog {
                Watchdog::Due(due_ms) => Some(due_ms.saturating_sub(now) as f64 / 1000.0),
                Watchdog::Found | Watchdog::Stopped => None,
            },
            expiries: self.expiries,
            last_expiry: self.last_expiry.clone(),
            withheld: self.behind,
        }
    }
}

/// Pairs of a tree and a port that the watchdog blocks when it expires.
type Watched = BTreeSet<(InstanceId, PortId)>;

/// The ports among them, once each.
fn ports(watched: &Watched) -> Vec<PortId> {
    let ports: BTreeSet<PortId> = watched.iter().map(|(_, port)| *port).collect();
    ports.into_iter().collect()
}
