//! Following the kernel's routing: what its sockets say goes to the mirror (`switch::routing`), what that answers goes to the
//! plane.
//!
//! Read `lanyard_switch::routing` and `lanyard_netdev::follow` first; docs/routing.md, "Following the kernel".
//!
//! Invariants: a turn does a bounded amount of work, so that timers hold whatever the kernel's tables do; a plane that was
//! adopted goes on by what it was left with until everything has been listed once; a router interface that goes is let go of
//! by every route before the plane is told.

use crate::core::Core;
use crate::os::Gathered;
use crate::packet_filter::Watch;
use lanyard_config::Config;
use lanyard_netdev::follow::{Follower, Heard, Progress, Table};
use lanyard_netdev::{NeighbourState, netns};
use lanyard_pipeline::state::PlaneState;
use lanyard_plane::{PlaneError, RifState, RouteChange};
use lanyard_switch::forwarding::{self, Forwarders, PacketFilter};
use lanyard_switch::routing::{Ask, Neighbour, Origin, Routing};
use lanyard_switch::{Router, Routers};
use lanyard_types::{MacAddr, RifId, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// Messages read, and changes told, in one turn.
const TURN: usize = 4096;
/// Audits of one namespace are at least this far apart, and ten times as long as one takes.
const AUDIT_GAP_MS: u64 = 500;
/// How often the plane is asked which next hops it uses. The kernel keeps a neighbour it has not heard of for at least a
/// minute.
const USE_GAP_MS: u64 = 5000;
/// Tries at a listing that other changes interrupt before the rest of it is believed.
const TRIES: u32 = 8;

/// What an audit lists, in order: what routes depend on before them.
const STAGES: [Table; 10] = [
    Table::Links,
    Table::Addresses,
    Table::Forwarding4,
    Table::Forwarding6,
    Table::Rules4,
    Table::Rules6,
    Table::NextHops,
    Table::Neighbours,
    Table::Routes4,
    Table::Routes6,
];

/// Where the stages begin that only routes depend on.
const ROUTING_STAGES: usize = 6;

/// Everything that follows the kernel's routing.
pub(crate) struct Following {
    pub(crate) mirror: Routing,
    follows: BTreeMap<Option<String>, Follow>,
    gathered: Gathered,
    /// The plane goes by what it was told.
    synced: bool,
    /// There is more to do than the last turn did.
    busy: bool,
    next_use_ms: u64,
    retry_ms: Option<u64>,
    /// Told to the plane, taken or not.
    pub(crate) changes: u64,
    /// What routed each interface's packets when the log was last told.
    forwarders: Forwarders,
}

/// How one table was followed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) audits: u64,
    pub(crate) overruns: u64,
}

impl Following {
    /// Nothing is followed yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            mirror: Routing::default(),
            follows: BTreeMap::new(),
            gathered: Gathered::new()?,
            synced: false,
            busy: false,
            next_use_ms: 0,
            retry_ms: None,
            changes: 0,
            forwarders: Forwarders::new(),
        })
    }
    /// The number of a routing table that is followed.
    pub(crate) fn vrf(&self, name: Option<&str>) -> Option<VrfId> {
        self.follows.get(&name.map(str::to_owned)).map(|follow| follow.id)
    }
    /// How it was followed.
    pub(crate) fn heard(&self, name: Option<&str>) -> Tally {
        self.follows.get(&name.map(str::to_owned)).map(|follow| follow.tally).unwrap_or_default()
    }
}

/// One namespace.
struct Follow {
    id: VrfId,
    follower: Follower,
    /// The packet filter.
    watch: Watch,
    seen: Seen,
    /// What a listing has found so far.
    fresh: Seen,
    /// [`Seen::events`] when the audit began.
    events_before: u64,
    /// The stage of the audit that is under way.
    stage: Option<usize>,
    consistent: bool,
    tries: u32,
    began_ms: u64,
    next_audit_ms: u64,
    first_done: bool,
    /// Events were lost, and what waited then has not been read to its end: it is older than what a listing would find, and
    /// until then the kernel goes on throwing events away without another word.
    behind: bool,
    tally: Tally,
}

/// What router interfaces depend on.
#[derive(Default)]
struct Seen {
    /// macvlan devices: whose child, up with carrier, its address.
    children: BTreeMap<u32, Child>,
    addresses: BTreeMap<u32, BTreeSet<IpAddr>>,
    forwarding: BTreeMap<(Option<u32>, bool), bool>,
    /// Of each family: the standard rules' tables there are, and how many others.
    rules: [(BTreeSet<u32>, usize); 2],
    /// A rule came or went: they are counted anew.
    rules_changed: bool,
    /// Events about any of these.
    events: u64,
}

#[derive(Clone, Copy)]
struct Child {
    parent: u32,
    up: bool,
    mac: MacAddr,
}

impl Seen {
    /// The macvlan children that stand for a virtual router: the protocol gives them an address while it is the master.
    fn active(&self) -> impl Iterator<Item = (u32, &Child)> {
        let has_address = |index: &u32, child: &Child| {
            let of = self.addresses.get(index);
            of.is_some_and(|list| list.iter().any(|address| *address != link_local(child.mac)))
        };
        self.children
            .iter()
            .filter(move |(index, child)| child.up && has_address(index, child))
            .map(|(i, c)| (*i, c))
    }
    fn router(&self, id: VrfId, filter: &PacketFilter) -> Router {
        let mut virtual_macs: BTreeMap<u32, BTreeSet<MacAddr>> = BTreeMap::new();
        for (_, child) in self.active() {
            virtual_macs.entry(child.parent).or_default().insert(child.mac);
        }
        let policy = [0, 1].map(|family: usize| {
            let (standard, others) = &self.rules[family];
            *others > 0 || !standard.contains(&255) || !standard.contains(&254)
        });
        let (filter, forwarding) = (filter.clone(), self.forwarding.clone());
        Router { id: Some(id), policy, filter, forwarding, virtual_macs }
    }
}

/// The address an interface gives itself (RFC 4291, appendix A).
fn link_local(mac: MacAddr) -> IpAddr {
    let [a, b, c, d, e, f] = mac.0;
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    let id = [word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f)];
    std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, id[0], id[1], id[2], id[3]).into()
}

fn neighbour(known: &lanyard_netdev::Neighbour) -> Neighbour {
    let mac = known.mac.filter(|mac| known.state.is_valid() && !mac.is_zero() && !mac.is_group());
    Neighbour {
        mac,
        failed: known.state == NeighbourState::Failed,
        stale: known.state == NeighbourState::Stale,
    }
}

/// Takes in one thing the kernel said. `listed` says that it is from a listing.
fn take_in(mirror: &mut Routing, id: VrfId, seen: &mut Seen, heard: Heard<'_>, listed: bool) {
    match heard {
        Heard::Route { route, flags, gone, .. } => {
            let origin = match (listed, gone) {
                (true, _) => Origin::Listed,
                (false, true) => Origin::Gone,
                (false, false) => Origin::New(flags),
            };
            mirror.route(id, &route, origin);
        }
        Heard::NextHop(object, _) if listed => mirror.listed_nexthop(id, &object),
        Heard::NextHop(object, gone) => mirror.nexthop(id, &object, gone),
        Heard::Neighbour(known, _) if known.proxy => {}
        Heard::Neighbour(known, _) if listed => {
            mirror.listed_neighbour(id, known.ifindex, known.addr, neighbour(&known));
        }
        Heard::Neighbour(known, gone) => {
            mirror.neighbour(id, known.ifindex, known.addr, (!gone).then(|| neighbour(&known)));
        }
        Heard::Link(link, gone) => {
            let up = link.admin_up && link.carrier && !gone;
            let child = link
                .peer_ifindex
                .filter(|_| link.kind.as_deref() == Some("macvlan") && link.peer_netnsid.is_none());
            match child.filter(|_| !gone) {
                Some(parent) => drop(seen.children.insert(link.ifindex, Child { parent, up, mac: link.mac })),
                None => drop(seen.children.remove(&link.ifindex)),
            }
            match (listed, gone) {
                (true, _) => mirror.listed_link(id, link.ifindex, up),
                (false, false) => mirror.link(id, link.ifindex, up),
                (false, true) => {
                    mirror.link_gone(id, link.ifindex);
                    seen.addresses.remove(&link.ifindex);
                    seen.forwarding.retain(|(ifindex, _), _| *ifindex != Some(link.ifindex));
                }
            }
        }
        Heard::Address(address, true) => {
            if let Some(list) = seen.addresses.get_mut(&address.ifindex) {
                list.remove(&address.net.addr());
            }
            // Routes with this source go without a word.
            mirror.overrun(id);
        }
        Heard::Address(address, false) => {
            seen.addresses.entry(address.ifindex).or_default().insert(address.net.addr());
        }
        Heard::Rule(rule, _) if listed => {
            let (standard, others) = &mut seen.rules[usize::from(rule.ipv6)];
            match rule.standard {
                Some(table) => drop(standard.insert(table)),
                None => *others += 1,
            }
        }
        Heard::Rule(rule, gone) => {
            // More than the destination counts from now on; whether it still does when a rule goes is counted.
            seen.rules[usize::from(rule.ipv6)].1 += usize::from(!gone && rule.standard.is_none());
            seen.rules_changed = true;
        }
        Heard::Forwarding(it) => drop(seen.forwarding.insert((it.ifindex, it.ipv6), it.on)),
        Heard::Unreadable | Heard::Overrun => mirror.overrun(id),
    }
}

impl Follow {
    /// What is known of this routing table besides its routes.
    fn router(&self) -> Router {
        self.seen.router(self.id, self.watch.filter())
    }
    /// Reads events; answers how many.
    fn events(&mut self, mirror: &mut Routing) -> usize {
        let Self { id, follower, seen, tally, behind, .. } = self;
        let count = follower.read(TURN, &mut |heard| {
            if matches!(heard, Heard::Overrun) {
                tally.overruns += 1;
                *behind = true;
            }
            seen.events += u64::from(matches!(heard, Heard::Link(..) | Heard::Address(..) | Heard::Rule(..)));
            take_in(mirror, *id, seen, heard, false);
        });
        self.behind &= count >= TURN;
        count
    }

    /// Begins an audit when one is due, and reads some of the one that is under way; true when it got on.
    fn listing(&mut self, mirror: &mut Routing, now_ms: u64) -> bool {
        let Some(at) = self.stage else {
            let wanted = mirror.audit_wanted(self.id) || self.seen.rules_changed;
            if !wanted || self.behind || now_ms < self.next_audit_ms || mirror.auditing(self.id) {
                return false;
            }
            self.seen.rules_changed = false;
            (self.fresh, self.events_before) = (Seen::default(), self.seen.events);
            (self.began_ms, self.consistent) = (now_ms, true);
            mirror.audit(self.id);
            self.begin(0);
            return true;
        };
        let Self { id, follower, fresh, .. } = self;
        let mut count = 0;
        let progress = follower.read_listing(TURN, &mut |heard| {
            count += 1;
            take_in(mirror, *id, fresh, heard, true);
        });
        match progress {
            Ok(Progress::More) => return count > 0,
            Ok(Progress::Done { consistent }) => self.consistent &= consistent,
            // A kernel that has no such table; an answer that was lost is another matter.
            Err(error) => self.consistent &= error.raw_os_error() != Some(nix::libc::ENOBUFS),
        }
        self.keep(STAGES[at]);
        self.begin(at + 1);
        if self.stage.is_none() {
            if self.seen.events != self.events_before {
                // Told of while they were listed: which is newer is not known.
                mirror.overrun(self.id);
            }
            self.tries = if self.consistent { 0 } else { self.tries + 1 };
            mirror.audited(self.id, self.consistent);
            self.tally.audits += 1;
            self.next_audit_ms =
                now_ms + AUDIT_GAP_MS.max((now_ms - self.began_ms) * 10 * u64::from(self.tries.min(TRIES)));
            self.first_done |= self.consistent || self.tries >= TRIES;
        }
        true
    }
    /// Takes over what a stage has listed.
    fn keep(&mut self, table: Table) {
        let (seen, fresh) = (&mut self.seen, &mut self.fresh);
        match table {
            Table::Links => seen.children = std::mem::take(&mut fresh.children),
            Table::Addresses => seen.addresses = std::mem::take(&mut fresh.addresses),
            Table::Forwarding6 => seen.forwarding = std::mem::take(&mut fresh.forwarding),
            Table::Rules4 => seen.rules[0] = std::mem::take(&mut fresh.rules[0]),
            Table::Rules6 => seen.rules[1] = std::mem::take(&mut fresh.rules[1]),
            _ => {}
        }
    }
    /// Begins a stage, or the next that can be; none is left after the last.
    fn begin(&mut self, first: usize) {
        self.stage = None;
        for (at, table) in STAGES.iter().enumerate().skip(first) {
            if self.follower.list(*table).is_ok() {
                self.stage = Some(at);
                return;
            }
            self.consistent = false;
        }
    }
}

impl Core {
    /// What the event loop waits on.
    #[must_use]
    pub fn routing_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.following.gathered)
    }

    /// Follows the routing tables that `config` routes by, and no others.
    pub(crate) fn follow_tables(&mut self, config: &Config) {
        let able = self.plane.capabilities().routing;
        let mut wanted: BTreeSet<Option<String>> = BTreeSet::new();
        if able && (config.ip_routing || config.ipv6_routing) {
            wanted.insert(None);
            wanted.extend(config.interfaces.values().filter_map(|i| i.layer3.vrf.clone()).map(Some));
        }
        let own = self.follows_own();
        let gone: Vec<_> =
            self.following.follows.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in gone {
            if let Some(follow) = self.following.follows.remove(&name) {
                let mut changes = Vec::new();
                self.following.mirror.drop_vrf(follow.id, &mut changes);
                self.route(&changes);
            }
        }
        for name in wanted {
            if !self.following.follows.contains_key(&name)
                && let Err(error) = self.follow(name.clone())
            {
                let name = name.as_deref().unwrap_or("default");
                self.log("ROUTING", 3, "FOLLOW", &format!("routing table {name} is not followed: {error}"));
            }
        }
        if own != self.follows_own() {
            self.fpm_again();
        }
        let routers = self.routers(able);
        self.switch.set_routers(routers);
    }
    fn follow(&mut self, name: Option<String>) -> io::Result<()> {
        let open = || io::Result::Ok((Follower::open()?, Watch::open()?));
        let (follower, mut watch) = match &name {
            None => open()?,
            Some(name) => netns::run_in(&netns::open(name)?, open)??,
        };
        let taken: BTreeSet<VrfId> = self.following.follows.values().map(|follow| follow.id).collect();
        let free = || (1..=VrfId::MAX.get()).filter_map(VrfId::new).find(|id| !taken.contains(id));
        let id = if name.is_none() { Some(VrfId::DEFAULT) } else { free() };
        let id = id.ok_or_else(|| io::Error::other("no more VRFs than 31 are routed"))?;
        self.following.gathered.add(follower.events_fd())?;
        self.following.gathered.add(follower.listing_fd())?;
        for fd in watch.fds() {
            self.following.gathered.add(fd)?;
        }
        // No packet is routed around a packet filter that is there already.
        watch.turn(self.clock.now_ms());
        self.following.mirror.overrun(id);
        self.following.busy = true;
        // Until they are listed, the rules are taken to be those there are at the start.
        let standard = (BTreeSet::from([255, 254]), 0);
        let seen = Seen { rules: [standard.clone(), standard], ..Seen::default() };
        let mut follow = Follow {
            id,
            follower,
            watch,
            seen,
            fresh: Seen::default(),
            events_before: 0,
            stage: None,
            consistent: true,
            tries: 0,
            began_ms: 0,
            next_audit_ms: 0,
            first_done: false,
            behind: false,
            tally: Tally::default(),
        };
        // What router interfaces depend on is known from the start: an adopted plane's stay as they are.
        let now_ms = self.clock.now_ms();
        while follow.stage.is_none_or(|at| at < ROUTING_STAGES)
            && follow.listing(&mut self.following.mirror, now_ms)
        {}
        self.following.follows.insert(name, follow);
        Ok(())
    }
    fn routers(&self, able: bool) -> Routers {
        let mut vrfs = BTreeMap::new();
        for (name, follow) in &self.following.follows {
            vrfs.insert(name.clone(), follow.router());
        }
        Routers { able, vrfs }
    }

    /// Reads some of what the kernel says and tells the plane; true when there was anything.
    pub fn routing_turn(&mut self) -> bool {
        if self.following.follows.is_empty() {
            self.following.busy = false;
            return false;
        }
        let now_ms = self.clock.now_ms();
        let (mut heard, mut listed) = (0, false);
        let Following { mirror, follows, gathered, .. } = &mut self.following;
        for follow in follows.values_mut() {
            heard += follow.events(mirror);
            heard += usize::from(follow.watch.turn(now_ms));
            listed |= follow.listing(mirror, now_ms);
            // A listing may have had to begin on another socket.
            let _ = gathered.add(follow.follower.listing_fd());
            let router = follow.router();
            for ipv6 in [false, true] {
                mirror.set_policy(follow.id, ipv6, router.policy[usize::from(ipv6)]);
            }
        }
        let told = self.tell_plane();
        let able = self.plane.capabilities().routing;
        if self.routers(able) != *self.switch.routers() {
            let routers = self.routers(able);
            self.switch.set_routers(routers);
            self.settle();
        }
        self.tell_forwarders();
        self.sync_once();
        self.following.busy |= heard >= TURN || listed;
        heard > 0 || listed || told
    }
    /// Says in the log which packets the kernel routes now, and which the plane routes again.
    pub(crate) fn tell_forwarders(&mut self) {
        let now = forwarding::forwarders(self.switch.config(), self.switch.routers());
        if now == self.following.forwarders {
            return;
        }
        for text in forwarding::changes(&self.following.forwarders, &now) {
            self.log("ROUTING", 5, "FORWARDER", &text);
        }
        self.following.forwarders = now;
    }
    /// Gives the plane what the mirror has for it; true when there was anything.
    fn tell_plane(&mut self) -> bool {
        let mut changes = Vec::new();
        self.following.busy = self.following.mirror.poll(TURN, &mut changes);
        self.route(&changes);
        let told = self.following.mirror.fpm_told();
        if !told.is_empty() {
            let mirror = &self.following.mirror;
            let answers = told.into_iter().map(|(vrf, dest)| (dest, mirror.fpm_offload(vrf, dest))).collect();
            self.fpm_answers(answers);
        }
        let now_ms = self.clock.now_ms();
        let asks = self.following.mirror.asks(now_ms, TURN);
        self.ask(&asks);
        !changes.is_empty()
    }
    fn route(&mut self, changes: &[RouteChange]) {
        if changes.is_empty() {
            return;
        }
        self.following.changes += changes.len() as u64;
        let now_ms = self.clock.now_ms();
        for (at, error) in self.plane.route(changes) {
            if let Some(change) = changes.get(at) {
                self.following.mirror.refuse(now_ms, change, &error);
                self.following.busy = true;
            }
        }
    }
    /// True when the switch's own table is followed.
    pub(crate) fn follows_own(&self) -> bool {
        self.following.follows.contains_key(&None)
    }
    /// Routes that a routing suite has handed over, beside the kernel's.
    pub(crate) fn fpm_routes(&mut self, updates: Vec<lanyard_fpm::Update>) {
        self.following.mirror.fpm(VrfId::DEFAULT, updates);
        self.following.busy = true;
    }
    /// Has the kernel resolve neighbours, or confirm them.
    fn ask(&mut self, asks: &[Ask]) {
        for follow in self.following.follows.values_mut() {
            let of_this = asks.iter().filter(|ask| ask.vrf == follow.id);
            let list: Vec<(u32, IpAddr)> = of_this.map(|ask| (ask.ifindex, ask.address)).collect();
            if !list.is_empty() {
                follow.follower.use_neighbours(&list);
            }
        }
    }
    /// The plane goes by what it was told from when everything has been listed and told once.
    pub(crate) fn sync_once(&mut self) {
        let all = self.following.follows.values().all(|follow| follow.first_done);
        if self.following.synced || !all || self.following.busy {
            return;
        }
        match self.plane.route_synced() {
            Ok(()) => self.following.synced = true,
            Err(error) => self.log("ROUTING", 3, "SYNC", &error.to_string()),
        }
    }
    /// True until the plane goes by the kernel's tables as they are.
    #[must_use]
    pub fn routing_syncs(&self) -> bool {
        !self.following.follows.is_empty() && !self.following.synced
    }

    /// When [`Core::routing_tick`] has something to do next.
    pub(crate) fn routing_due(&self) -> Option<u64> {
        let following = &self.following;
        if following.follows.is_empty() {
            return None;
        }
        if following.busy {
            return Some(0);
        }
        let audits = following.follows.values().filter(|follow| {
            follow.stage.is_none() && (following.mirror.audit_wanted(follow.id) || follow.seen.rules_changed)
        });
        let audit = audits.map(|follow| follow.next_audit_ms).min();
        let filter = following.follows.values().map(|follow| follow.watch.due_ms()).min();
        let all =
            [Some(following.next_use_ms), following.mirror.next_ask(), following.retry_ms, audit, filter];
        all.into_iter().flatten().min()
    }
    /// What is due by the clock: use told to the kernel, questions asked again, refusals tried again.
    pub(crate) fn routing_tick(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.routing_due().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        if self.following.next_use_ms <= now_ms {
            self.following.next_use_ms = now_ms + USE_GAP_MS;
            let mut used = Vec::new();
            self.plane.adjacencies_used(&mut |id, age_s| {
                if u64::from(age_s) * 1000 <= USE_GAP_MS + 1000 {
                    used.push(id);
                }
            });
            let asks: Vec<Ask> = used.into_iter().filter_map(|id| self.following.mirror.used(id)).collect();
            self.ask(&asks);
        }
        self.following.retry_ms = self.following.mirror.retry(now_ms);
        self.routing_turn();
    }

    /// Has the plane take `next`, its router interfaces and the routes over them in an order in which nothing dangles.
    ///
    /// # Errors
    /// The plane's reason; nothing has changed then.
    pub(crate) fn apply(&mut self, next: &PlaneState) -> Result<(), PlaneError> {
        let old = self.plane.state().rifs.clone();
        let stays = |id: &RifId, rif: &RifState| {
            next.rifs.get(id).is_some_and(|new| (new.vrf, new.attachment) == (rif.vrf, rif.attachment))
        };
        if old.iter().any(|(id, rif)| !stays(id, rif)) {
            let left = old.into_iter().filter(|(id, rif)| stays(id, rif)).collect();
            self.set_rifs(&left);
            // The plane is about to lose the others: nothing may name them.
            let mut changes = Vec::new();
            while self.following.mirror.poll(TURN, &mut changes) {
                self.route(&changes);
                changes.clear();
            }
            self.route(&changes);
        }
        let result = self.plane.apply(next);
        self.loop_safety.behind |= result.is_err();
        let now = self.plane.state().rifs.clone();
        self.set_rifs(&now);
        result
    }
    /// Tells the mirror which router interfaces there are.
    fn set_rifs(&mut self, rifs: &BTreeMap<RifId, RifState>) {
        let mut changes = Vec::new();
        for follow in self.following.follows.values() {
            let mut map: BTreeMap<u32, RifId> = BTreeMap::new();
            for (id, rif) in rifs.iter().filter(|(_, rif)| rif.vrf == follow.id) {
                if let Some(link) = self.switch.facts().get(&rif.name) {
                    map.insert(link.ifindex, *id);
                }
            }
            for (child, of) in follow.seen.active() {
                if let Some(id) = map.get(&of.parent).copied() {
                    map.insert(child, id);
                }
            }
            self.following.mirror.set_rifs(follow.id, &map, &mut changes);
        }
        self.route(&changes);
        self.following.busy = true;
    }
}
