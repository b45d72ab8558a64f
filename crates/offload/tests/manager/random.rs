//! Random histories: requests, set-up, access lists, sizes and policies with several faults at once, a chip that is slow, closes
//! the connection, dies and returns with another salt, or stays away for a while, and managers that are replaced while the chip
//! continues to forward. Meanwhile the protocols write multicast groups into the same tables through a session of their own.
//!
//! A model stores exactly the changes that were accepted. After every failure the three views are compared: model and
//! configuration, configuration and manager, manager and chip; and every packet takes its longest match or goes to the CPU.
//!
//! `LANYARD_RANDOM_HISTORIES` is the number of histories (120 by default), `LANYARD_RANDOM_SEED` the seed of the first one.

use crate::common::protocols::{Protocols, random_group_change};
use crate::common::{APPLIANCE, SALT, acl, agree, bound, denied, hops, list, platform, ports, random_prefix};
use ipnet::IpNet;
use lanyard_asic::object::Object;
use lanyard_asic::sdk::Operation;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_offload::hardware::Hardware;
use lanyard_offload::simulated::Simulated;
use lanyard_offload::strategy::{NAMES, Strategy, by_name};
use lanyard_offload::{Manager, Place, Policy};
use lanyard_pipeline::generate::Rng;
use lanyard_pipeline::route::{Adjacency, RouteTarget};
use lanyard_pipeline::state::{Unregistered, VlanState};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, VlanId, VrfId};
use std::collections::BTreeMap;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The configuration that consists of the accepted changes.
#[derive(Default)]
struct Model {
    routes: BTreeMap<IpNet, RouteTarget>,
    groups: BTreeMap<GroupId, Vec<AdjacencyId>>,
    adjacencies: BTreeMap<AdjacencyId, Adjacency>,
    setup: Vec<Operation>,
    /// The VLANs with their settings of multicast snooping.
    vlans: BTreeMap<VlanId, VlanState>,
    lists: BTreeMap<u16, Operation>,
    /// The list that port 1 refers to.
    bound: Option<u16>,
    policies: BTreeMap<Object, Policy>,
}

impl Model {
    fn take(&mut self, batch: &[Operation]) {
        for operation in batch.iter().cloned() {
            match operation {
                Operation::Route(_, prefix, Some(to)) => _ = self.routes.insert(prefix, to),
                Operation::Route(_, prefix, None) => _ = self.routes.remove(&prefix),
                Operation::Group(id, Some(buckets)) => _ = self.groups.insert(id, buckets),
                Operation::Group(id, None) => _ = self.groups.remove(&id),
                Operation::Adjacency(id, Some(hop)) => _ = self.adjacencies.insert(id, hop),
                Operation::Adjacency(id, None) => _ = self.adjacencies.remove(&id),
                other => self.setup.push(other),
            }
        }
    }
    fn operations(&self) -> Vec<Operation> {
        let mut all: Vec<Operation> =
            self.adjacencies.iter().map(|(id, hop)| Operation::Adjacency(*id, Some(*hop))).collect();
        all.extend(self.groups.iter().map(|(id, buckets)| Operation::Group(*id, Some(buckets.clone()))));
        all.extend(
            self.routes.iter().map(|(prefix, to)| Operation::Route(VrfId::DEFAULT, *prefix, Some(*to))),
        );
        all
    }
    /// The same configuration with other numbers of groups and adjacencies, as a restarted switch may have them.
    fn renumber(&mut self, by: u32) {
        let adjacency = |id: AdjacencyId| AdjacencyId::new((id.get() + by) % 50 + 1).expect("a number");
        let group = |id: GroupId| GroupId::new((id.get() + by) % 50 + 1).expect("a number");
        self.adjacencies =
            std::mem::take(&mut self.adjacencies).into_iter().map(|(id, hop)| (adjacency(id), hop)).collect();
        self.groups = std::mem::take(&mut self.groups)
            .into_iter()
            .map(|(id, buckets)| (group(id), buckets.into_iter().map(adjacency).collect()))
            .collect();
        for to in self.routes.values_mut() {
            if let RouteTarget::Group(id) = to {
                *to = RouteTarget::Group(group(*id));
            }
        }
    }
}

struct History {
    rng: Rng,
    strategy: &'static str,
    manager: Manager<Simulated>,
    model: Model,
    protocols: Protocols,
    what: String,
    /// The events so far, for the message of a failure.
    log: Vec<String>,
}

fn strategy(name: &str, salt: u64) -> Box<dyn Strategy> {
    by_name(name, &platform(APPLIANCE), salt, 64).expect("a strategy")
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let name = NAMES[(seed % NAMES.len() as u64) as usize];
        let policy = rng.pick(&[Policy::Sync, Policy::Hybrid]).expect("a policy");
        let chip = Simulated::new(&platform(APPLIANCE), SALT);
        let mut manager = Manager::new(chip, strategy(name, SALT), policy);
        let mut model = Model::default();
        manager.setup(&ports()).expect("room");
        model.take(&ports());
        manager.request(&hops()).expect("room");
        model.take(&hops());
        model.policies = Object::ALL.iter().map(|object| (*object, policy)).collect();
        let what = format!("seed {seed}, {name}, {}", policy.name());
        Self { rng, strategy: name, manager, model, protocols: Protocols::default(), what, log: Vec::new() }
    }

    fn group(&mut self) -> Operation {
        let ids: Vec<GroupId> = self.model.groups.keys().copied().collect();
        let fresh = GroupId::new(1 + self.rng.below(50) as u32).expect("a group");
        let id = self.rng.pick(&ids).filter(|_| self.rng.percent(50)).unwrap_or(fresh);
        let hops: Vec<AdjacencyId> = self.model.adjacencies.keys().copied().collect();
        let buckets = (0..1 << self.rng.below(4)).filter_map(|_| self.rng.pick(&hops)).collect();
        Operation::Group(id, (!self.rng.percent(15)).then_some(buckets))
    }
    fn adjacency(&mut self) -> Operation {
        let id = AdjacencyId::new(1 + self.rng.below(50) as u32).expect("an adjacency");
        let rif = RifId::new(1 + self.rng.below(2) as u16).expect("an interface");
        let hop = Adjacency { rif, mac: Some(MacAddr::from_u64(0x0200_0000_0000 | self.rng.below(1 << 20))) };
        Operation::Adjacency(id, (!self.rng.percent(10)).then_some(hop))
    }
    fn route(&mut self) -> Operation {
        let ids: Vec<GroupId> = self.model.groups.keys().copied().collect();
        let to = self.rng.pick(&ids).map_or(RouteTarget::Blackhole, RouteTarget::Group);
        let to = if self.rng.percent(5) { RouteTarget::Blackhole } else { to };
        let known: Vec<IpNet> = self.model.routes.keys().copied().collect();
        let old = self.rng.pick(&known).filter(|_| self.rng.percent(30));
        let prefix = old.unwrap_or_else(|| random_prefix(&mut self.rng));
        Operation::Route(VrfId::DEFAULT, prefix, (!self.rng.percent(25)).then_some(to))
    }

    fn request(&mut self) {
        let many = if self.rng.percent(10) { 300 } else { 5 };
        let count = 1 + self.rng.below(many);
        let batch: Vec<Operation> = (0..count)
            .map(|_| match self.rng.below(12) {
                0 => self.group(),
                1 => self.adjacency(),
                _ => self.route(),
            })
            .collect();
        let outcome = self.manager.request(&batch);
        self.log.push(format!("request of {count}: {outcome:?}"));
        if outcome.is_ok() {
            self.model.take(&batch);
        }
    }

    fn setup(&mut self) {
        let vlan = VlanId::new(2 + self.rng.below(5) as u16).expect("a VLAN");
        let mut snooping = || {
            let choice = [None, Some(Unregistered::Flood), Some(Unregistered::Routers)];
            self.rng.pick(&choice).expect("a choice")
        };
        let state = VlanState { snooping: [snooping(), snooping()], ..VlanState::default() };
        let state = self.rng.percent(70).then_some(state);
        let operation = Operation::Vlan(vlan, state.clone());
        let outcome = self.manager.setup(std::slice::from_ref(&operation));
        self.log.push(format!("VLAN {vlan}: {outcome:?}"));
        if outcome.is_ok() {
            self.model.setup.push(operation);
            match state {
                Some(state) => _ = self.model.vlans.insert(vlan, state),
                None => _ = self.model.vlans.remove(&vlan),
            }
        } else {
            self.settle();
        }
    }

    /// Sets or removes a random access list; half of the lists that are set are then bound to port 1.
    fn access_list(&mut self) {
        let number = 1 + self.rng.below(3) as u16;
        let rules = (!self.rng.percent(20)).then(|| 1 + self.rng.below(20) as u32);
        let mut steps = vec![list(number, rules)];
        if self.model.bound == Some(number) && rules.is_none() {
            steps.insert(0, ports().swap_remove(0));
        } else if rules.is_some() && self.rng.percent(50) {
            steps.push(bound(number));
        }
        let outcome = self.manager.setup(&steps);
        self.log.push(format!("list {number} of {rules:?}: {outcome:?}"));
        if outcome.is_err() {
            self.settle();
            return;
        }
        self.model.setup.extend(steps.iter().cloned());
        match rules {
            None => {
                self.model.lists.remove(&number);
                self.model.bound = self.model.bound.filter(|bound| *bound != number);
            }
            Some(_) => {
                self.model.lists.insert(number, steps[0].clone());
                if steps.len() == 2 {
                    self.model.bound = Some(number);
                }
            }
        }
    }

    /// Makes a few changes of multicast groups, as snooping does.
    fn groups(&mut self) {
        let count = 1 + self.rng.below(8);
        for _ in 0..count {
            let change = random_group_change(&mut self.rng);
            self.protocols.change(self.manager.hardware(), &change);
        }
        self.log.push(format!("{count} changes of groups"));
    }

    fn fault(&mut self) {
        let kinds = [
            "operation",
            "route",
            "group",
            "adjacency",
            "list",
            "divert",
            "vlan",
            "query",
            "resize",
            "multicast",
            "routers",
            "flood",
        ];
        let plan: Vec<String> = (0..1 + self.rng.below(3))
            .map(|_| {
                let kind = self.rng.pick(&kinds).expect("a kind");
                let when = if self.rng.percent(70) { "at" } else { "every" };
                let action = match self.rng.below(10) {
                    0..=4 => "fail".to_owned(),
                    5 | 6 => "cut".to_owned(),
                    7 => "die".to_owned(),
                    _ => format!("slow {}", self.rng.below(100_000)),
                };
                // `every` has a large number, because a chip that dies or closes the connection at each request cannot be
                // corrected.
                let most = if when == "every" { 60 } else { 30 };
                let least = if when == "every" { 20 } else { 1 };
                format!("{action} {kind} {when} {}", least + self.rng.below(most))
            })
            .collect();
        self.log.push(format!("faults: {}", plan.join("; ")));
        self.manager.hardware().set_faults(FaultPlan::parse(&plan.join("\n")).expect("a plan"));
        if self.rng.percent(20) {
            self.manager.hardware().salt += 1;
        }
        self.manager.hardware().restarts = !self.rng.percent(20);
    }

    /// Ends all faults, lets the chip start again, and checks that the manager drives it.
    fn repair(&mut self) {
        self.log.push("repaired".into());
        self.manager.hardware().set_faults(FaultPlan::default());
        self.manager.hardware().restarts = true;
        let back = self.manager.revive().unwrap_or_else(|error| unreachable!("{error}: {}", self.story()));
        assert!(back, "{}", self.story());
        self.settle();
        assert!(!self.manager.is_down(), "{}", self.story());
    }

    /// Replaces the manager by a new one on the same chip, which gets the accepted configuration.
    fn warm_boot(self) -> Self {
        let Self { mut rng, strategy: name, manager, mut model, protocols, what, mut log } = self;
        log.push("warm boot".into());
        if rng.percent(50) {
            model.renumber(1 + rng.below(49) as u32);
        }
        let mut chip = manager.into_hardware();
        let restarts = std::mem::replace(&mut chip.restarts, true);
        chip.set_faults(FaultPlan::default());
        chip.reconnect().expect("a chip");
        chip.restarts = restarts;
        let salt = chip.welcome().salt;
        let before: BTreeMap<_, _> =
            chip.truth().into_iter().map(|entry| (format!("{entry:?}"), ())).collect();
        let mut manager =
            Manager::warm(chip, strategy(name, salt), Policy::Sync).expect("it can be read back");
        for (object, policy) in &model.policies {
            manager.set_policy(*object, *policy).expect("nothing is written yet");
        }
        manager.setup(&model.setup).expect("nothing is written yet");
        manager.request(&model.operations()).expect("it was accepted before");
        let after: BTreeMap<_, _> =
            manager.hardware().truth().into_iter().map(|entry| (format!("{entry:?}"), ())).collect();
        assert_eq!(before, after, "{what}: until it ends a warm boot changes nothing");
        manager.end_warm_boot().unwrap_or_else(|error| unreachable!("{what}: {error}: {log:#?}"));
        Self { rng, strategy: name, manager, model, protocols, what, log }
    }

    /// Lets the manager settle, without the faults if it fails with them, and compares the views.
    fn settle(&mut self) {
        if let Err(error) = self.manager.settle() {
            self.log.push(format!("{error}"));
            self.manager.hardware().set_faults(FaultPlan::default());
            self.manager.settle().unwrap_or_else(|error| unreachable!("{error}: {}", self.story()));
        }
        self.compare();
    }

    fn compare(&mut self) {
        let story = self.story();
        let routes = self.manager.routes();
        let mut configured = BTreeMap::new();
        for (_, tables) in routes.vrfs() {
            configured.extend(tables.ipv4.iter().map(|(prefix, to)| (IpNet::from(prefix), *to)));
            configured.extend(tables.ipv6.iter().map(|(prefix, to)| (IpNet::from(prefix), *to)));
        }
        assert_eq!(configured, self.model.routes, "{story}: model and configuration");
        let groups: BTreeMap<_, _> = routes.groups().map(|(id, buckets)| (id, buckets.to_vec())).collect();
        assert_eq!(groups, self.model.groups, "{story}: groups");
        let seed = self.rng.next_u64();
        agree(&mut self.manager, seed, &story);
        if self.manager.is_down() {
            return;
        }
        self.protocols.agree(self.manager.hardware(), &story);
        let truth = self.manager.hardware().truth();
        let vlans = truth.iter().filter_map(|entry| match entry {
            Operation::Vlan(vlan, Some(state)) => Some((*vlan, state.clone())),
            _ => None,
        });
        assert_eq!(vlans.collect::<BTreeMap<_, _>>(), self.model.vlans, "{story}: VLANs and what they snoop");
        for (number, list) in &self.model.lists {
            assert!(truth.contains(list), "{story}: the chip has list {number} as it was set last");
            let place = self.manager.list_place(acl(*number));
            let diverted = truth.contains(&Operation::Divert(acl(*number), true));
            let wanted = if diverted { Place::Trapped } else { Place::Offloaded };
            assert_eq!(place, Some(wanted), "{story}: list {number} judges in one place");
        }
        let others = |entry: &&Operation| match entry {
            Operation::List(id, _) | Operation::Divert(id, _) => !self.model.lists.contains_key(&id.get()),
            _ => false,
        };
        assert_eq!(truth.iter().find(others), None, "{story}: a list that nobody has");
        if self.model.bound.is_some() {
            let (now, port) = (self.manager.hardware().now(), PortId::new(1).expect("a port"));
            let device = self.manager.hardware().device();
            let forwarded = device.chip().pipeline().counters().port(port).forwarded;
            device.frame(now, port, &denied());
            let counters = device.chip().pipeline().counters().port(port);
            assert_eq!(counters.forwarded, forwarded, "{story}: a frame that its list denies");
        }
        for (path, rows) in [("tcam/routes", 128), ("tcam/rules", 128)] {
            let size = self.manager.hardware().device().chip().usage();
            let size = size.iter().find(|table| table.path == path).map_or(0, |table| table.size);
            assert!(size.is_multiple_of(rows) && size > 0);
        }
    }

    fn step(mut self) -> Self {
        match self.rng.below(34) {
            0 | 1 => self.fault(),
            2 => self.repair(),
            3 => self.settle(),
            4 => self.setup(),
            5 => self.access_list(),
            6 => {
                let units = 128 * (6 + self.rng.below(4) as u32);
                let path = self.rng.pick(&["tcam/routes", "tcam/rules"]).expect("a table");
                let outcome = self.manager.resize(path, units);
                self.log.push(format!("{path} of {units}: {outcome:?}"));
            }
            7 => {
                let object = self.rng.pick(&Object::ALL).expect("an object");
                let policy = self.rng.pick(&Policy::ALL).expect("a policy");
                let outcome = self.manager.set_policy(object, policy);
                self.log.push(format!("{} {}: {outcome:?}", object.name(), policy.name()));
                self.model.policies.insert(object, policy);
                if outcome.is_err() {
                    self.settle();
                }
            }
            8 => {
                let address = random_prefix(&mut self.rng).addr();
                self.manager.hit(VrfId::DEFAULT, address, self.rng.below(1000));
                self.manager.poll();
                self.manager.hardware().advance(500);
                let moved = self.manager.rebalance(4);
                self.log.push(format!("rebalanced {moved}"));
            }
            9 if self.rng.percent(40) => {
                if self.manager.is_down() {
                    self.repair();
                }
                self = self.warm_boot();
                self.compare();
            }
            10 if self.manager.is_down() => {
                self.manager.hardware().restarts = true;
                self.repair();
            }
            11..15 => self.groups(),
            _ => self.request(),
        }
        self
    }

    fn story(&self) -> String {
        let from = self.log.len().saturating_sub(25);
        format!("{}:\n{}\n", self.what, self.log[from..].join("\n"))
    }
}

#[test]
fn after_any_history_the_three_views_agree() {
    let (histories, seed) = (number("LANYARD_RANDOM_HISTORIES", 120), number("LANYARD_RANDOM_SEED", 1));
    let (mut steps, mut full, mut diverted) = (0, 0, 0);
    for seed in seed..seed + histories {
        let mut history = History::new(seed);
        for _ in 0..80 {
            history = history.step();
            steps += 1;
            diverted += usize::from(history.manager.diverted().next().is_some());
        }
        history.repair();
        full += usize::from(history.manager.hidden() > 0);
    }
    println!(
        "{histories} histories of {steps} steps; in {full} of them routes were hidden at the end; a list was diverted after {diverted} steps"
    );
    assert!(full > 0 && diverted > 100 || histories < 50, "no table was ever full");
}
