//! [`Manager`]: receives the routing configuration, writes to the chip, and answers each request.
//!
//! A batch passes four steps ([`request`]): it is stored in the configuration ([`Routes`], which refuses references to absent
//! objects); each route gets its place, in the chip or hidden; the strategy decides about the resulting writes (of the route and
//! of its cover); and they are sent ([`drive`]). If a step fails, those before it are undone. [`audit`] corrects the chip after a
//! failure, [`restart`] handles restarts of the manager and of the chip, [`promotion`] gives the routes that are used most room
//! in the chip, [`lists`] handles access lists that do not fit.
//!
//! Invariants: see the crate. `written` is the state of the chip after all pending requests have been carried out.

mod audit;
mod drive;
mod lists;
mod policy;
mod promotion;
mod request;
mod restart;

pub use audit::{OutOfLine, removal};
pub use lists::Move;
pub use policy::Policy;
pub use request::MAX_BATCH;

use crate::cover::Covers;
use crate::hardware::{Hardware, Ticket};
use crate::prefixes::Prefixes;
use crate::resources::{Alarm, Alarms, Thresholds};
use crate::strategy::Strategy;
use lanyard_asic::object::Object;
use lanyard_asic::sdk::message::Request;
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::tables::Usage;
use lanyard_pipeline::route::RouteTarget;
use lanyard_pipeline::tables::routes::{Limits, Routes};
use lanyard_types::{AclId, AdjacencyId, GroupId, RifId, TrapReason, VrfId};
use policy::Policies;
use promotion::Heat;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

/// Where a route's packets are forwarded, or an access list is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// By the chip.
    Offloaded,
    /// By the software plane: the chip sends the packets to the CPU.
    Trapped,
}

/// The reason why a batch was refused. None of it is in the configuration or in the chip.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It contradicts the configuration.
    #[error("{0}")]
    Invalid(String),
    /// A table has no room.
    #[error("table {table} is full: {text}")]
    Full {
        /// The table.
        table: String,
        /// The message of the chip or of the strategy.
        text: String,
    },
    /// The chip failed.
    #[error("the chip failed: {0}")]
    Chip(String),
}

/// See the module comment. All methods that do not name the chip's type are methods of `Manager<dyn Hardware>`, to which a
/// manager of any chip dereferences. They are therefore compiled once, in this crate, with its optimisation instead of that of
/// each caller.
#[derive(Debug)]
pub struct Manager<H: ?Sized> {
    strategy: Box<dyn Strategy>,
    policies: Policies,
    routes: Routes,
    rifs: BTreeSet<RifId>,
    /// Ports, VLANs, router interfaces and settings, by key. A chip is given these before routes.
    setup: BTreeMap<Vec<u8>, Operation>,
    /// The sizes of all tables in units, by path; empty until [`Manager::resize`] is called first.
    sizes: BTreeMap<String, u32>,
    /// Access lists that are diverted, and those that were at the last call of [`Manager::moves`].
    diverted: BTreeSet<AclId>,
    reported: BTreeSet<AclId>,
    covers: Covers,
    written: Prefixes<RouteTarget>,
    /// The number of buckets of each group in the chip.
    written_groups: BTreeMap<GroupId, u32>,
    written_adjacencies: BTreeSet<AdjacencyId>,
    vrf_routes: BTreeMap<VrfId, u32>,
    /// The number of written routes that trap.
    trapping: usize,
    under_way: BTreeSet<Ticket>,
    /// Operations that are accepted but not sent yet: see [`Manager::flush`].
    waiting: Vec<Operation>,
    figures: Option<Ticket>,
    activity: Option<Ticket>,
    tables: Vec<Usage>,
    alarms: Alarms,
    news: Vec<Alarm>,
    heat: Heat,
    suspect: bool,
    down: bool,
    /// True while a warm boot has not ended: see [`Manager::warm`].
    held: bool,
    /// The last field, because only the last one may have a type of unknown size (`dyn Hardware`).
    hardware: H,
}

impl<H: Hardware + 'static> Deref for Manager<H> {
    type Target = Manager<dyn Hardware>;
    fn deref(&self) -> &Self::Target {
        self
    }
}

impl<H: Hardware + 'static> DerefMut for Manager<H> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self
    }
}

impl<H: Hardware> Manager<H> {
    /// A manager of an empty chip; `policy` is that of every table.
    #[must_use]
    pub fn new(hardware: H, strategy: Box<dyn Strategy>, policy: Policy) -> Self {
        Self {
            strategy,
            policies: Policies::all(policy),
            routes: Routes::new(Limits::default()),
            rifs: BTreeSet::new(),
            setup: BTreeMap::new(),
            sizes: BTreeMap::new(),
            diverted: BTreeSet::new(),
            reported: BTreeSet::new(),
            covers: Covers::default(),
            written: Prefixes::default(),
            written_groups: BTreeMap::new(),
            written_adjacencies: BTreeSet::new(),
            vrf_routes: BTreeMap::new(),
            trapping: 0,
            under_way: BTreeSet::new(),
            waiting: Vec::new(),
            figures: None,
            activity: None,
            tables: Vec::new(),
            alarms: Alarms::default(),
            news: Vec::new(),
            heat: Heat::default(),
            suspect: false,
            down: false,
            held: false,
            hardware,
        }
    }
    /// The chip.
    pub fn hardware(&mut self) -> &mut H {
        &mut self.hardware
    }
    /// Ends the manager and returns the chip with all its entries.
    #[must_use]
    pub fn into_hardware(self) -> H {
        self.hardware
    }
}

impl Manager<dyn Hardware> {
    /// The strategy, for inspection.
    #[must_use]
    pub fn strategy(&self) -> &dyn Strategy {
        self.strategy.as_ref()
    }
    /// The configuration.
    #[must_use]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }
    /// The routes that the manager believes to be in the chip, with their programmed targets.
    #[must_use]
    pub fn written(&self) -> &Prefixes<RouteTarget> {
        &self.written
    }
    /// True once no chip answers any more: the software plane forwards everything. See [`Manager::revive`].
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down
    }
    /// Where a route's packets are forwarded; `None` for a prefix without a route.
    #[must_use]
    pub fn place(&self, vrf: VrfId, prefix: ipnet::IpNet) -> Option<Place> {
        let target = self.routes.get(vrf, prefix)?;
        let offloaded = !self.down && self.written.get((vrf, prefix)) == Some(&target);
        Some(if offloaded { Place::Offloaded } else { Place::Trapped })
    }
    /// The number of routes that are not in the chip.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.covers.hidden().len()
    }
    /// Alarms since the last call.
    pub fn alarms(&mut self) -> Vec<Alarm> {
        std::mem::take(&mut self.news)
    }
    /// Sets when the table at `path` alarms; `None` is the default. An alarm that was raised stays raised until figures clear it.
    ///
    /// # Errors
    /// When the two thresholds contradict each other; nothing has changed then.
    pub fn set_thresholds(&mut self, path: &str, thresholds: Option<Thresholds>) -> Result<(), String> {
        self.alarms.set(path, thresholds)
    }
    /// The chip's tables according to its last figures.
    #[must_use]
    pub fn resources(&self) -> Vec<crate::resources::Resource> {
        self.alarms.resources(&self.tables)
    }
    /// The policy of a kind of object.
    #[must_use]
    pub fn policy(&self, object: Object) -> Policy {
        self.policies.of(object)
    }

    /// Configures ports, VLANs, router interfaces, access lists and settings: written at once, all or nothing. An access list
    /// that does not fit is diverted where the policy of its table says so. Without a chip, and until a warm boot has ended, the
    /// operations are only stored.
    ///
    /// # Errors
    /// The operation that the chip refused.
    pub fn setup(&mut self, operations: &[Operation]) -> Result<(), Refusal> {
        if !self.down && !self.held {
            self.write_setup(operations)?;
        }
        for operation in operations {
            if let Operation::Rif(rif, state) = operation {
                if state.is_some() {
                    self.rifs.insert(*rif)
                } else {
                    self.rifs.remove(rif)
                };
            }
            self.setup.insert(audit::key(operation), operation.clone());
        }
        if operations.iter().any(|operation| matches!(operation, Operation::List(..))) {
            self.promote_lists();
        }
        Ok(())
    }

    /// Gives a table another number of units, within its memory and never fewer than are in use. The chip is given the same
    /// sizes again after it has been restarted.
    ///
    /// # Errors
    /// When the chip refuses the size, or no chip answers.
    pub fn resize(&mut self, path: &str, units: u32) -> Result<(), Refusal> {
        self.set_size(path, units)?;
        self.fill();
        Ok(())
    }

    /// Writes hidden routes and diverted access lists to the chip as far as its tables have room: to be called after
    /// [`Self::set_size`].
    pub fn fill(&mut self) {
        self.promote(usize::MAX);
        self.promote_lists();
    }

    /// As [`Self::resize`], but leaves the room empty, so that the size can be taken back until [`Self::fill`] is called.
    ///
    /// # Errors
    /// As those of [`Self::resize`].
    pub fn set_size(&mut self, path: &str, units: u32) -> Result<(), Refusal> {
        if self.down {
            return Err(Refusal::Chip(format!("table {path} is not resized: no chip answers")));
        }
        if self.suspect {
            let _ = self.settle();
        }
        if self.sizes.is_empty() {
            // From now on the manager restores the sizes of all tables, because after a failed change the size in the chip is
            // unknown.
            self.refresh();
            self.sizes = self.tables.iter().map(|table| (table.path.clone(), table.size)).collect();
        }
        if !self.sizes.contains_key(path) {
            let known: Vec<&str> = self.sizes.keys().map(String::as_str).collect();
            return Err(Refusal::Invalid(format!("no table {path}: one of {}", known.join(", "))));
        }
        self.carry_out(Request::Resize(path.to_owned(), units))?;
        self.sizes.insert(path.to_owned(), units);
        self.strategy.resized(path, units);
        self.refresh();
        Ok(())
    }
}

/// The target by which a cover traps.
const TRAP: RouteTarget = RouteTarget::Up(TrapReason::RoutePolicy);

/// The kind of object for a prefix.
fn object_of(prefix: ipnet::IpNet) -> Object {
    let full = prefix.prefix_len() == prefix.max_prefix_len();
    match (prefix.addr().is_ipv4(), full) {
        (true, true) => Object::Ipv4Host,
        (true, false) => Object::Ipv4Prefix,
        (false, true) => Object::Ipv6Host,
        (false, false) if prefix.prefix_len() <= 64 => Object::Ipv6Prefix64,
        (false, false) => Object::Ipv6Prefix128,
    }
}
