//! `show fpm ...`: the FPM server and its session.

use serde::Serialize;

/// The FPM server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Fpm {
    /// The address at which the server listens, `ADDRESS:PORT`; `None` when the server is off.
    pub listening: Option<String>,
    /// `idle`, `replaying`, `sweeping`, `synced` or `holding`.
    pub phase: &'static str,
    /// The client's address, `ADDRESS:PORT`.
    pub client: Option<String>,
    /// Seconds since the session began, or since it ended; `None` when there was none.
    pub since_s: Option<u64>,
    /// The numbers of routes, by offload state.
    pub routes: FpmRoutes,
    /// The number of next-hop objects.
    pub next_hops: u64,
    /// The number of different sets of next hops that routes use.
    pub next_hop_sets: u64,
    /// The number of answers sent.
    pub answers: u64,
    /// False when the client is known not to read answers; `None` when it is unknown whether it reads them. FRR before 10, which
    /// does not, is recognised by how it updates routes.
    pub answers_read: Option<bool>,
    /// The counters, by name.
    #[serde(skip)]
    pub counters: Vec<(&'static str, u64)>,
}

/// The numbers of routes, by offload state.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FpmRoutes {
    /// All routes.
    pub total: u64,
    /// Routes that the plane forwards by.
    pub offloaded: u64,
    /// Routes that the plane leaves to the kernel.
    pub trapped: u64,
    /// Routes that the plane refused.
    pub failed: u64,
}

/// `show fpm counters`.
#[derive(Debug, Clone, Serialize)]
pub struct FpmCounters {
    /// The counters, each with its name.
    pub counters: Vec<FpmCounter>,
}

/// One counter.
#[derive(Debug, Clone, Serialize)]
pub struct FpmCounter {
    /// Its name.
    pub name: &'static str,
    /// The value.
    pub count: u64,
}
