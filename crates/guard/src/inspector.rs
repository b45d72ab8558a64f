//! [`Inspector`]: ND inspection in all VLANs, by the rule of first come, first served (FCFS SAVI, RFC 6620, 3.2.3).
//!
//! The first host that claims an address at a port that is not trusted gets a binding, unless the address is in use behind a
//! trusted port. Another host gets it only if its owner, asked by duplicate address detection, does not answer.
//!
//! It differs from the RFC in five points:
//! - A host is a port and a MAC address, because the plane forwards by both.
//! - The plane does not trap the owner's data packets, so the owner ends a test only by a message of neighbour discovery.
//! - The plane does not trap solicitations at trusted ports either, because it forwards them to all hosts, the owner included.
//!   A host behind such a port that detects duplicates of a bound address starts no test by that, but by its first
//!   advertisement to all nodes.
//! - The owner is asked a second time even where the claimant's own solicitation was the first.
//! - An owner that may still detect duplicates itself is asked only after that: an earlier solicitation would make it give up
//!   the address (RFC 4862, 5.4.3), so that an attacker could take the address by a claim between the end of the switch's test
//!   and the end of the host's.

use crate::bound::Bound;
use crate::config::NdConfig;
use crate::discovery::{Kind, Message, solicitation};
use crate::neighbour::{Change, How, Key, NdCounters, NdDrop, Neighbour, Owner, State};
use crate::snooper::Action;
use lanyard_types::{Binding, BindingKey, MAX_BINDINGS, MacAddr, PortId, PortSet, VlanId};
use lanyard_wire::Frame;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// The most messages that wait for the end of a test, one for each address.
pub const MAX_WAITING: usize = 1024;
/// How long the switch waits for an answer (TENT_LT), in milliseconds.
pub(crate) const TEST_MS: u64 = 500;
/// The time between the two solicitations of a test (T_WAIT), in milliseconds.
pub(crate) const RETRY_MS: u64 = 250;
/// The number of solicitations of a test.
const QUESTIONS: u8 = 2;
const _: () = assert!(QUESTIONS as u64 * RETRY_MS == TEST_MS);
/// How long a host detects duplicates after each of its solicitations, in milliseconds: RetransTimer (RFC 4861, 10), and 100 ms
/// by which a busy host may be late.
pub(crate) const DETECTION_MS: u64 = 1_100;
/// How long a binding is valid without a message of its owner (DEFAULT_LT), in milliseconds. Then the owner is asked.
pub(crate) const LIFETIME_MS: u64 = 300_000;

#[derive(Debug)]
struct Entry {
    owner: Owner,
    state: State,
    /// The host that claims the address, while the owner is asked because of its claim.
    claimant: Option<Owner>,
    /// When the state ends.
    ends_ms: u64,
    /// When the next solicitation of a test is sent; `None`: no further one.
    ask_ms: Option<u64>,
    /// The solicitations of the test that have not been sent.
    questions: u8,
    /// When the owner's own detection of duplicates has ended.
    detects_until_ms: u64,
    /// The owner's message that is sent on when the binding becomes valid.
    waiting: Option<Vec<u8>>,
}

impl Entry {
    /// Schedules the next solicitations: the first one at `from_ms`, the others [`RETRY_MS`] apart. The state ends [`RETRY_MS`]
    /// after the last one, unless it is answered.
    fn ask_from(&mut self, from_ms: u64, questions: u8) {
        self.ask_ms = (questions > 0).then_some(from_ms);
        self.questions = questions;
        self.ends_ms = from_ms + u64::from(questions) * RETRY_MS;
    }
    fn due_ms(&self) -> u64 {
        self.ask_ms.map_or(self.ends_ms, |at_ms| at_ms.min(self.ends_ms))
    }
}

/// ND inspection. See the crate's documentation for the contract.
#[derive(Debug, Default)]
pub struct Inspector {
    config: NdConfig,
    entries: BTreeMap<Key, Entry>,
    /// When each entry is due.
    timers: BTreeSet<(u64, Key)>,
    /// The number of entries of each port.
    counts: BTreeMap<PortId, u32>,
    waiting: usize,
    bound: Bound,
    counters: NdCounters,
    actions: VecDeque<Action>,
    /// Raised with each change of the bindings.
    version: u64,
}

/// The fate of a message.
enum Fate {
    /// It is sent out of these ports.
    Sent(PortSet),
    /// It waits for the end of a test.
    Waits,
}

impl Inspector {
    /// Takes a configuration. Bindings of VLANs that are no longer inspected, and of ports that are gone or have become
    /// trusted, end; so do those of addresses with a static binding.
    pub fn configure(&mut self, config: NdConfig) {
        for ((vlan, address), owner) in self.config.statics.iter().chain(&config.statics) {
            self.bound.touch(binding(*vlan, *address, owner.port));
        }
        self.config = config;
        let gone = self.entries.iter().filter(|((vlan, address), entry)| {
            !self.takes(*vlan, entry.owner.port) || self.config.statics.contains_key(&(*vlan, *address))
        });
        let gone: Vec<Key> = gone.map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| _ = self.remove(key, NdDrop::Removed));
        let lost = self.entries.iter().filter(|((vlan, _), entry)| {
            entry.claimant.is_some_and(|claimant| !self.takes(*vlan, claimant.port))
        });
        // The test goes on without the claimant: if the owner does not answer, its binding ends.
        let lost: Vec<Key> = lost.map(|(key, _)| *key).collect();
        for key in lost {
            self.change(key, |entry| (entry.claimant, entry.state) = (None, State::TestingTrusted));
        }
        self.bound.touch_held();
        self.tell();
    }

    /// Takes over the state of an earlier run: its bindings, and `held`, those that the plane has. The owners are asked one after
    /// the other, the first of them after half of `LIFETIME_MS`.
    pub fn restore(&mut self, now: u64, neighbours: &[Neighbour], held: &[Binding]) {
        let each_ms = LIFETIME_MS / 2 / (neighbours.len() as u64).max(1);
        for (n, kept) in neighbours.iter().enumerate() {
            let (key, owner) = ((kept.vlan, kept.address), kept.owner);
            let free = !self.entries.contains_key(&key) && !self.config.statics.contains_key(&key);
            if free && self.takes(kept.vlan, owner.port) && self.room(owner.port).is_ok() {
                let ends_ms = now + LIFETIME_MS / 2 + n as u64 * each_ms;
                self.insert(key, owner, State::Valid, ends_ms);
            }
        }
        self.bound.adopt(held.iter().copied().filter(|(key, _)| key.address.is_ipv6()));
        for ((vlan, address), owner) in &self.config.statics {
            self.bound.touch(binding(*vlan, *address, owner.port));
        }
        self.tell();
    }

    /// Every binding and every claim, with its state and the time at which the state ends, in milliseconds.
    pub fn neighbours(&self) -> impl Iterator<Item = (Neighbour, State, u64)> + '_ {
        self.entries.iter().map(|(key, entry)| (neighbour(*key, entry.owner), entry.state, entry.ends_ms))
    }
    /// The statistics.
    #[must_use]
    pub const fn counters(&self) -> &NdCounters {
        &self.counters
    }
    /// The number of messages that wait for the end of a test.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }
    /// The number of addresses that are learned, or claimed, at a port.
    #[must_use]
    pub fn count(&self, port: PortId) -> u32 {
        self.counts.get(&port).copied().unwrap_or(0)
    }
    /// A number that grows with each change of the bindings.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }
    /// Ends learned bindings: all of them, or those that `wanted` chooses (`clear ipv6 neighbors binding`).
    pub fn clear(&mut self, wanted: impl Fn(&Neighbour) -> bool) {
        let chosen = self.entries.iter().filter(|(key, entry)| wanted(&neighbour(**key, entry.owner)));
        let chosen: Vec<Key> = chosen.map(|(key, _)| *key).collect();
        chosen.into_iter().for_each(|key| _ = self.remove(key, NdDrop::Removed));
        self.tell();
    }
    /// Sets the statistics to zero.
    pub fn clear_counters(&mut self) {
        self.counters = NdCounters::default();
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
    /// When [`Inspector::handle_timer`] is to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        self.timers.first().map(|(at_ms, _)| *at_ms)
    }
    /// Continues the tests, and ends states whose time has come.
    pub fn handle_timer(&mut self, now: u64) {
        while let Some((_, key)) = self.timers.first().copied().filter(|(at_ms, _)| *at_ms <= now) {
            let Some(entry) = self.entries.get(&key) else { break };
            if entry.ask_ms.is_some() {
                self.question(now, key);
            } else {
                self.end_state(now, key);
            }
        }
        self.tell();
    }

    /// Handles a frame without a tag that the plane has trapped at `port`, in `vlan`.
    pub fn handle_frame(&mut self, now: u64, vlan: VlanId, port: PortId, frame: &[u8]) {
        let Some(message) = Message::read(frame) else {
            let mac = Frame::new(frame).map(|view| view.src()).unwrap_or_default();
            let neighbour = Neighbour { vlan, address: Ipv6Addr::UNSPECIFIED, owner: Owner { port, mac } };
            return self.drop(neighbour, NdDrop::Malformed, "NDP");
        };
        let fate = self.judge(now, vlan, port, &message, frame);
        match fate {
            Ok(Fate::Sent(mut ports)) => {
                // Hosts behind the same port have already received it.
                ports.remove(port);
                self.send(vlan, Some(port), ports, frame.to_vec());
            }
            Ok(Fate::Waits) => {}
            Err(reason) => {
                let owner = Owner { port, mac: message.mac };
                self.drop(Neighbour { vlan, address: claimed(&message), owner }, reason, message.kind.name());
            }
        }
        self.tell();
    }

    /// Handles the source of an IPv6 packet that the plane has dropped because `address` has no binding: by such a packet a host
    /// claims the address.
    pub fn handle_data(&mut self, now: u64, vlan: VlanId, port: PortId, mac: MacAddr, address: Ipv6Addr) {
        if self.takes(vlan, port) && is_host(address) && !self.config.statics.contains_key(&(vlan, address)) {
            // The packet itself has been counted by the plane.
            let _ = self.claim(now, (vlan, address), Owner { port, mac }, How::Data, &[]);
            self.tell();
        }
    }

    fn judge(
        &mut self,
        now: u64,
        vlan: VlanId,
        port: PortId,
        message: &Message,
        frame: &[u8],
    ) -> Result<Fate, NdDrop> {
        let member = self.config.vlans.get(&vlan).is_some_and(|ports| ports.contains(port));
        if !member {
            return Err(NdDrop::Removed);
        }
        if self.trusts(port) {
            if message.kind == Kind::Advertisement {
                self.hear((vlan, message.target), now);
            }
            return Ok(Fate::Sent(self.flood(vlan, port)));
        }
        if message.link_address.is_some_and(|mac| mac != message.mac) {
            return Err(NdDrop::LinkAddress);
        }
        let (key, by) = ((vlan, claimed(message)), Owner { port, mac: message.mac });
        if message.kind == Kind::RouterSolicitation && message.src.is_unspecified() {
            return Ok(Fate::Sent(self.flood(vlan, port)));
        }
        if !is_host(key.1) {
            return Err(NdDrop::Malformed);
        }
        // An advertisement may come from another address of its sender.
        if message.kind == Kind::Advertisement
            && message.src != message.target
            && self.owner(&(vlan, message.src)) != Some(by)
        {
            return Err(NdDrop::NotOwner);
        }
        if let Some(owner) = self.config.statics.get(&key) {
            return if *owner == by { Ok(Fate::Sent(self.flood(vlan, port))) } else { Err(NdDrop::NotOwner) };
        }
        let how = match message.kind {
            Kind::Solicitation if message.src.is_unspecified() => How::Detection,
            Kind::Advertisement if message.dst.is_multicast() => How::Defence,
            _ => How::Other,
        };
        self.claim(now, key, by, how, frame)
    }

    /// Handles an advertisement of the address by a host behind a trusted port.
    fn hear(&mut self, key: Key, now: u64) {
        match self.entries.get(&key).map(|entry| entry.state) {
            Some(State::Tentative) => _ = self.remove(key, NdDrop::Duplicate),
            Some(State::Valid) => self.test(now, key, State::TestingTrusted, None, false),
            _ => {}
        }
    }

    /// A host at a port that is not trusted claims an address, by a message or by a packet of its own.
    fn claim(&mut self, now: u64, key: Key, by: Owner, how: How, frame: &[u8]) -> Result<Fate, NdDrop> {
        let Some(entry) = self.entries.get(&key) else { return self.begin(now, key, by, how, frame) };
        let (state, owner, claimant) = (entry.state, entry.owner, entry.claimant);
        if by == owner {
            return self.own(now, key, how, frame);
        }
        let detects = how == How::Detection;
        // The claimant's message asks the owner as well, unless the owner detects duplicates itself.
        let is_question = detects && entry.detects_until_ms <= now;
        match state {
            State::Valid | State::TestingTrusted => {
                // A claimant at the owner's port does not add to the port's number of addresses.
                if by.port != owner.port {
                    self.limit(by.port)?;
                }
                self.test(now, key, State::TestingClaim, Some(by), is_question);
            }
            State::TestingBoth if claimant == Some(by) && !detects => {
                self.hand_over(now, key)?;
                return Ok(Fate::Sent(self.flood(key.0, by.port)));
            }
            State::TestingClaim | State::TestingBoth if claimant == Some(by) => {}
            _ => return Err(NdDrop::NotOwner),
        }
        // The claimant's own message goes to the owner, which defends its address against it.
        if is_question { Ok(Fate::Sent([owner.port].into_iter().collect())) } else { Err(NdDrop::NotOwner) }
    }

    /// Begins the test of an address that has no entry yet.
    fn begin(&mut self, now: u64, key: Key, by: Owner, how: How, frame: &[u8]) -> Result<Fate, NdDrop> {
        self.room(by.port)?;
        self.insert(key, by, State::Tentative, now + TEST_MS);
        if how == How::Detection {
            self.change(key, |entry| entry.detects_until_ms = now + DETECTION_MS);
            return Ok(Fate::Sent(self.trusted(key.0, by.port)));
        }
        self.change(key, |entry| entry.questions = QUESTIONS);
        self.question(now, key);
        self.wait(key, frame)
    }

    /// Handles a message of the host that owns the address, or was the first to claim it.
    fn own(&mut self, now: u64, key: Key, how: How, frame: &[u8]) -> Result<Fate, NdDrop> {
        let Some(entry) = self.entries.get(&key) else { return Err(NdDrop::NotOwner) };
        let (state, owner, claimant) = (entry.state, entry.owner, entry.claimant);
        let trusted = self.trusted(key.0, owner.port);
        if how == How::Detection {
            let first = entry.detects_until_ms <= now;
            self.change(key, |entry| entry.detects_until_ms = now + DETECTION_MS);
            if state == State::TestingClaim && !first {
                // The host sends more than one message to detect duplicates. The test of the claim waits for the last one.
                self.change(key, |entry| entry.ask_from(now + DETECTION_MS, QUESTIONS));
                return Ok(Fate::Sent(trusted));
            }
        }
        let claimant: PortSet = claimant.into_iter().map(|claimant| claimant.port).collect();
        let ports = match (state, how) {
            (State::Tentative, How::Detection) => return Ok(Fate::Sent(trusted)),
            (State::Tentative, _) => return self.wait(key, frame),
            (State::TestingClaim | State::TestingBoth, How::Detection) => {
                self.change(key, |entry| {
                    (entry.state, entry.ends_ms, entry.ask_ms) = (State::TestingBoth, now + TEST_MS, None);
                });
                return Ok(Fate::Sent(claimant));
            }
            (_, How::Detection) => trusted,
            // The answer to the switch's solicitation.
            (State::TestingTrusted, How::Defence) => trusted,
            (State::TestingClaim | State::TestingBoth, How::Defence) => trusted.union(&claimant),
            _ => self.flood(key.0, owner.port),
        };
        self.change(key, |entry| {
            (entry.state, entry.claimant, entry.ends_ms, entry.ask_ms) =
                (State::Valid, None, now + LIFETIME_MS, None);
        });
        Ok(Fate::Sent(ports))
    }

    /// Asks the owner whether it still has the address. `asked` is true if the claimant's own message is the first solicitation.
    /// Otherwise the switch sends the first one as soon as the owner no longer detects duplicates itself. In both cases it sends
    /// another one after [`RETRY_MS`], because a solicitation or its answer may be lost.
    fn test(&mut self, now: u64, key: Key, state: State, claimant: Option<Owner>, asked: bool) {
        let Some(entry) = self.entries.get(&key) else { return };
        let (from_ms, questions) = if asked {
            (now + RETRY_MS, QUESTIONS - 1)
        } else {
            (entry.detects_until_ms.max(now), QUESTIONS)
        };
        self.change(key, |entry| {
            (entry.state, entry.claimant) = (state, claimant);
            entry.ask_from(from_ms, questions);
        });
        if from_ms <= now {
            self.question(now, key);
        }
    }
    /// Sends the next solicitation of a test. A late one postpones the end: the owner always has [`RETRY_MS`] to answer the last.
    fn question(&mut self, now: u64, key: Key) {
        self.change(key, |entry| {
            let left = entry.questions.saturating_sub(1);
            entry.ask_from(now + RETRY_MS, left);
        });
        self.ask(key);
    }

    fn end_state(&mut self, now: u64, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        // Only an entry in state `Tentative` has a waiting message.
        let (owner, state, waiting) = (entry.owner, entry.state, entry.waiting.take());
        match state {
            State::Tentative => {
                self.change(key, |entry| {
                    (entry.state, entry.ends_ms, entry.ask_ms) = (State::Valid, now + LIFETIME_MS, None);
                });
                self.note(Change::Created, key, owner);
                if let Some(frame) = waiting {
                    self.waiting -= 1;
                    let ports = self.flood(key.0, owner.port);
                    self.send(key.0, Some(owner.port), ports, frame);
                }
            }
            State::Valid => self.test(now, key, State::TestingTrusted, None, false),
            State::TestingClaim if self.hand_over(now, key).is_ok() => {}
            State::TestingTrusted | State::TestingClaim | State::TestingBoth => {
                self.remove(key, NdDrop::Removed);
                self.note(Change::Deleted, key, owner);
            }
        }
    }

    /// The claimant becomes the owner.
    fn hand_over(&mut self, now: u64, key: Key) -> Result<(), NdDrop> {
        let Some(entry) = self.entries.get(&key) else { return Err(NdDrop::NotOwner) };
        let (old, Some(new)) = (entry.owner, entry.claimant) else { return Err(NdDrop::NotOwner) };
        if new.port != old.port {
            self.limit(new.port)?;
        }
        self.remove(key, NdDrop::Removed);
        self.insert(key, new, State::Valid, now + LIFETIME_MS);
        // The new owner may have claimed the address by duplicate address detection that has not ended yet.
        self.change(key, |entry| entry.detects_until_ms = now + DETECTION_MS);
        self.note(Change::Changed, key, new);
        Ok(())
    }

    /// Sends a solicitation for duplicate address detection: to the trusted ports for an address in state `Tentative`, else to
    /// the owner's port.
    fn ask(&mut self, key: Key) {
        let Some(entry) = self.entries.get(&key) else { return };
        let (tentative, port) = (entry.state == State::Tentative, entry.owner.port);
        let ports = if tentative { self.trusted(key.0, port) } else { [port].into_iter().collect() };
        if ports.is_empty() {
            return;
        }
        self.counters.probes += 1;
        let frame = solicitation(self.config.mac, key.1);
        self.actions.push_back(Action::Send { vlan: key.0, from: None, ports: Box::new(ports), frame });
    }

    /// Keeps a message until the binding of its sender becomes valid.
    fn wait(&mut self, key: Key, frame: &[u8]) -> Result<Fate, NdDrop> {
        let full = self.waiting >= MAX_WAITING;
        match self.entries.get_mut(&key) {
            Some(entry) if entry.waiting.is_none() && !full && !frame.is_empty() => {
                entry.waiting = Some(frame.to_vec());
                self.waiting += 1;
                Ok(Fate::Waits)
            }
            _ => Err(NdDrop::Tentative),
        }
    }

    /// True if bindings are learned at the port, in the VLAN.
    fn takes(&self, vlan: VlanId, port: PortId) -> bool {
        let member = self.config.vlans.get(&vlan).is_some_and(|ports| ports.contains(port));
        member && self.config.ports.get(&port).is_some_and(|port| !port.trusted)
    }
    fn trusts(&self, port: PortId) -> bool {
        self.config.ports.get(&port).is_some_and(|port| port.trusted)
    }
    /// The ports of a VLAN, except `without`; if this is a host port of a private VLAN, only the trusted ports.
    fn flood(&self, vlan: VlanId, without: PortId) -> PortSet {
        if self.config.ports.get(&without).is_some_and(|port| port.private) {
            return self.trusted(vlan, without);
        }
        let members = self.config.vlans.get(&vlan);
        members.into_iter().flat_map(|ports| ports.iter()).filter(|port| *port != without).collect()
    }
    /// The trusted ports of a VLAN, except `without`.
    fn trusted(&self, vlan: VlanId, without: PortId) -> PortSet {
        let members = self.config.vlans.get(&vlan).into_iter().flat_map(|ports| ports.iter());
        members.filter(|port| *port != without && self.trusts(*port)).collect()
    }
    /// An error if there is no room for another address, in the switch or at the port.
    fn room(&self, port: PortId) -> Result<(), NdDrop> {
        if self.entries.len() + self.config.statics.len() >= MAX_BINDINGS {
            return Err(NdDrop::Full);
        }
        self.limit(port)
    }
    /// An error if the port has as many addresses as it may have.
    fn limit(&self, port: PortId) -> Result<(), NdDrop> {
        let limit = self.config.ports.get(&port).map_or(0, |port| port.limit);
        if self.count(port) < limit { Ok(()) } else { Err(NdDrop::Limit) }
    }
    /// The host that has an address.
    fn owner(&self, key: &Key) -> Option<Owner> {
        owner(&self.config, &self.entries, key)
    }

    fn insert(&mut self, key: Key, owner: Owner, state: State, ends_ms: u64) {
        let entry = Entry {
            owner,
            state,
            claimant: None,
            ends_ms,
            ask_ms: None,
            questions: 0,
            detects_until_ms: 0,
            waiting: None,
        };
        self.timers.insert((entry.due_ms(), key));
        self.entries.insert(key, entry);
        *self.counts.entry(owner.port).or_default() += 1;
        self.touch(key, owner.port);
    }
    /// Removes an entry. A message that waits is dropped for `reason`.
    fn remove(&mut self, key: Key, reason: NdDrop) -> Option<Entry> {
        let mut entry = self.entries.remove(&key)?;
        self.timers.remove(&(entry.due_ms(), key));
        match self.counts.get_mut(&entry.owner.port) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = self.counts.remove(&entry.owner.port),
        }
        self.touch(key, entry.owner.port);
        if entry.waiting.take().is_some() {
            self.waiting -= 1;
            self.drop(neighbour(key, entry.owner), reason, "NDP");
        }
        Some(entry)
    }
    fn change(&mut self, key: Key, with: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let (before, port) = (entry.due_ms(), entry.owner.port);
        with(entry);
        let after = entry.due_ms();
        self.timers.remove(&(before, key));
        self.timers.insert((after, key));
        self.touch(key, port);
    }
    fn touch(&mut self, (vlan, address): Key, port: PortId) {
        self.bound.touch(binding(vlan, address, port));
    }

    fn send(&mut self, vlan: VlanId, from: Option<PortId>, ports: PortSet, frame: Vec<u8>) {
        self.counters.forwarded += 1;
        self.actions.push_back(Action::Send { vlan, from, ports: Box::new(ports), frame });
    }
    fn drop(&mut self, neighbour: Neighbour, reason: NdDrop, kind: &'static str) {
        self.counters.dropped[reason as usize] += 1;
        self.actions.push_back(Action::NdDropped { neighbour, reason, kind });
    }
    fn note(&mut self, change: Change, key: Key, owner: Owner) {
        self.actions.push_back(Action::Neighbour(change, neighbour(key, owner)));
    }

    /// Queues the changes of bindings for the plane.
    fn tell(&mut self) {
        let (config, entries) = (&self.config, &self.entries);
        let changes = self.bound.changes(|key| {
            let IpAddr::V6(address) = key.address else { return None };
            let owner = owner(config, entries, &(key.vlan, address));
            owner.filter(|owner| owner.port == key.port).map(|owner| owner.mac)
        });
        self.version += changes.len() as u64;
        self.actions.extend(changes.into_iter().map(|(key, mac)| Action::Bind(key, mac)));
    }
}

/// The host that has an address: that of a static binding, or one whose claim has been verified.
fn owner(config: &NdConfig, entries: &BTreeMap<Key, Entry>, key: &Key) -> Option<Owner> {
    let learned = || entries.get(key).filter(|entry| entry.state != State::Tentative);
    config.statics.get(key).copied().or_else(|| Some(learned()?.owner))
}

/// The address that the sender of a message claims.
fn claimed(message: &Message) -> Ipv6Addr {
    match message.kind {
        Kind::Solicitation if !message.src.is_unspecified() => message.src,
        _ => message.target,
    }
}

/// True for an address that a host may have.
const fn is_host(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

const fn neighbour((vlan, address): Key, owner: Owner) -> Neighbour {
    Neighbour { vlan, address, owner }
}

const fn binding(vlan: VlanId, address: Ipv6Addr, port: PortId) -> BindingKey {
    BindingKey { port, vlan, address: IpAddr::V6(address) }
}

#[cfg(test)]
#[path = "inspector_tests.rs"]
mod tests;
