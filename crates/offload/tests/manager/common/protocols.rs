//! The session of the protocols beside the manager's: multicast groups come and go while the manager writes its own entries into
//! the same tables.
//!
//! Invariant: the model takes a change exactly when the chip has carried it out. A chip that was started again is given the whole
//! model, and the model loses what this chip has no room for.

use lanyard_asic::chip::device::SessionId;
use lanyard_asic::sdk::message::{Answer, Code, Incoming, Request, announced};
use lanyard_asic::sdk::{Operation, VERSION};
use lanyard_offload::Hardware;
use lanyard_offload::simulated::Simulated;
use lanyard_pipeline::generate::Rng;
use lanyard_pipeline::tables::mdb::{Flooded, Mdb};
use lanyard_types::{Family, PortId, PortSet, VlanId};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most attempts at a change that a fault of the chip prevents.
const ATTEMPTS: usize = 8;

/// See the module comment.
#[derive(Default)]
pub struct Protocols {
    /// The number of the chip's run (`Welcome::boot`), and the session with it.
    session: Option<(u64, SessionId)>,
    number: u32,
    model: Mdb,
    /// Entries that a table had no room for.
    pub refused: u32,
}

/// A change of a group, of routers' ports, or of what is flooded, in one of a few VLANs.
pub fn random_group_change(rng: &mut Rng) -> Operation {
    let vlan = VlanId::new(2 + rng.below(3) as u16).expect("a VLAN");
    let family = if rng.percent(70) { Family::V4 } else { Family::V6 };
    let ports =
        |rng: &mut Rng| Box::new((1..=2).filter_map(PortId::new).filter(|_| rng.percent(60)).collect());
    match rng.below(10) {
        0 => Operation::Routers(vlan, family, ports(rng)),
        1 => {
            let all = [Flooded::Nothing, Flooded::Unregistered, Flooded::All];
            Operation::Flood(vlan, family, rng.pick(&all).expect("a choice"))
        }
        _ => {
            let (group, source) = addresses(rng, family);
            let ports: Option<Box<PortSet>> = (!rng.percent(30)).then(|| ports(rng));
            Operation::Multicast(vlan, group, source, ports)
        }
    }
}

/// Adds a member to the IPv4 group with this number.
pub fn numbered(number: u32) -> Operation {
    let group = Ipv4Addr::from(u32::from(Ipv4Addr::new(239, 1, 0, 0)) + number);
    let ports = PortId::new(1).into_iter().collect();
    Operation::Multicast(VlanId::new(2).expect("a VLAN"), group.into(), None, Some(Box::new(ports)))
}

fn addresses(rng: &mut Rng, family: Family) -> (IpAddr, Option<IpAddr>) {
    let (group, source) = (rng.below(12), rng.percent(40).then(|| rng.below(3) as u8));
    match family {
        Family::V4 => {
            let source = source.map(|source| Ipv4Addr::new(10, 0, 0, source).into());
            (Ipv4Addr::new(239, 0, 0, group as u8).into(), source)
        }
        Family::V6 => {
            let source = source.map(|source| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, source.into()).into());
            (Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, group as u16).into(), source)
        }
    }
}

impl Protocols {
    /// Writes a change, and repeats it if a fault prevents it. If the chip dies, [`Protocols::follow`] writes the change with all
    /// others after the chip has been restarted.
    pub fn change(&mut self, chip: &mut Simulated, operation: &Operation) {
        let change = operation.mdb_change().expect("a change of groups");
        self.follow(chip);
        for _ in 0..ATTEMPTS {
            match self.commit(chip, operation) {
                Some(Answer::Done(_)) => {
                    self.model.change(&change).expect("the chip has checked it");
                    return;
                }
                Some(Answer::Refused(refused)) if refused.code == Code::NoRoom => {
                    self.refused += 1;
                    return;
                }
                Some(Answer::Refused(refused)) if refused.code == Code::Fault => {}
                None if chip.device().is_dead() => {
                    self.model.change(&change).expect("one of those that a chip takes");
                    return;
                }
                None => {}
                Some(other) => unreachable!("{operation:?} is answered {other:?}"),
            }
        }
        unreachable!("{operation:?} fails again and again");
    }

    /// Writes the whole model to a chip that has been restarted.
    pub fn follow(&mut self, chip: &mut Simulated) {
        let boot = chip.welcome().boot;
        if chip.device().is_dead() || self.session.is_some_and(|(of, _)| of == boot) {
            return;
        }
        let held = std::mem::take(&mut self.model);
        self.open(chip);
        for change in held.changes() {
            self.change(chip, &Operation::from(&change));
        }
    }

    /// Panics unless the chip holds the model.
    pub fn agree(&mut self, chip: &mut Simulated, what: &str) {
        self.follow(chip);
        if chip.device().is_dead() {
            return;
        }
        let text = |operation: Operation| format!("{operation:?}");
        let truth = chip.truth().into_iter().filter_map(|entry| entry.mdb_change().map(|_| text(entry)));
        let wanted = self.model.changes().iter().map(|change| text(change.into())).collect::<BTreeSet<_>>();
        assert_eq!(truth.collect::<BTreeSet<_>>(), wanted, "{what}: protocols and chip");
    }

    fn open(&mut self, chip: &mut Simulated) {
        let (boot, now) = (chip.welcome().boot, chip.now());
        let session = chip.device().open();
        self.session = Some((boot, session));
        chip.device().request(now, session, 0, Request::Hello(VERSION, "protocols".into()));
    }

    /// The answer to a transaction of one operation; `None` if the chip has closed the connection or died.
    fn commit(&mut self, chip: &mut Simulated, operation: &Operation) -> Option<Answer> {
        if self.session.is_none_or(|(_, session)| chip.device().closing(session)) {
            self.open(chip);
        }
        let (_, session) = self.session?;
        self.number += 1;
        let (number, now) = (self.number, chip.now());
        chip.device().request(now, session, number, Request::Commit(vec![operation.clone()]));
        loop {
            let device = chip.device();
            if device.is_dead() {
                return None;
            }
            let bytes: Vec<u8> = device.output(session)?.drain(..).collect();
            let mut rest = &bytes[..];
            while let Some(length) = announced(rest).expect("a length") {
                match Incoming::decode(&rest[..length]).expect("a message") {
                    Incoming::Answer(of, answer) if of == number => return Some(answer),
                    _ => rest = &rest[length..],
                }
            }
            if device.closing(session) {
                device.close(session);
                return None;
            }
            let next = device.next_on_bus().expect("the request is on the bus").as_nanos();
            let now = chip.now().as_nanos();
            chip.advance_ns(next.saturating_sub(now));
        }
    }
}
