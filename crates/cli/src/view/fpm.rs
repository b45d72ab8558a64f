//! `show fpm ...`: the FPM server and its session.

use serde::Serialize;

/// The FPM server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Fpm {
    /// Where it listens, `ADDRESS:PORT`; `None`: it is off.
    pub listening: Option<String>,
    /// `idle`, `replaying`, `sweeping`, `synced` or `holding`.
    pub phase: &'static str,
    /// The client, `ADDRESS:PORT`.
    pub client: Option<String>,
    /// How long the session has been up, or how long it has been gone; `None` when there was none.
    pub since_s: Option<u64>,
    /// Routes, and what became of each.
    pub routes: FpmRoutes,
    /// Next-hop objects.
    pub next_hops: u64,
    /// Different sets of next hops that routes use.
    pub ways: u64,
    /// Frames with an answer that were sent.
    pub answers: u64,
    /// False when the client is known not to read answers: FRR before 10, by how it updates routes.
    pub answers_read: Option<bool>,
    /// By name.
    #[serde(skip)]
    pub counters: Vec<(&'static str, u64)>,
}

/// Routes by what became of them.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FpmRoutes {
    /// All of them.
    pub total: u64,
    /// Forwarded by the plane.
    pub offloaded: u64,
    /// Left to the kernel.
    pub trapped: u64,
    /// Refused by the plane.
    pub failed: u64,
}

/// `show fpm counters`.
#[derive(Debug, Clone, Serialize)]
pub struct FpmCounters {
    /// Each with its name.
    pub counters: Vec<FpmCounter>,
}

/// One counter.
#[derive(Debug, Clone, Serialize)]
pub struct FpmCounter {
    /// Its name.
    pub name: &'static str,
    /// How often.
    pub count: u64,
}
