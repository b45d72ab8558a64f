//! Flows: which port sends to which, at a load given in frames per second of one port.
//!
//! Read first: RFC 2889, 5.1 to 5.4, RFC 2285, 3.2 and 3.3 (traffic orientation and distribution).
//! Invariant: at a load of L every sending port sends L frames a second in all, whatever the
//! pattern.

use super::search::Seen;
use lanyard_tester::traffic::{Cast, Hosts, Order, Stream};
use lanyard_tester::trial::{Offer, Outcome};

/// The least rate of a stream in frames per second: the least that the generator accepts.
pub const RATE_MIN: f64 = 100.0;

/// The rate at which hosts send before a trial. It is low because some devices learn in a thread of their
/// own.
const LEARNING_PPS: u32 = 20_000;

/// The load at which flows are offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// As much as the tester can send.
    Everything,
    /// Frames per second of each sending port.
    Rate(f64),
}

impl From<Option<f64>> for Load {
    fn from(load: Option<f64>) -> Self {
        load.map_or(Self::Everything, Self::Rate)
    }
}

/// One stream with its sending and receiving ports.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The port that sends.
    pub from: usize,
    /// The ports at which each frame is to arrive.
    pub to: Vec<usize>,
    /// The stream, without a rate.
    pub stream: Stream,
    /// The stream's share of the load of its sending port, more than 0 and at most 1.
    pub share: f64,
}

/// Streams that are offered together.
#[derive(Debug, Clone, Default)]
pub struct Flows(pub Vec<Flow>);

/// The traffic patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Port 0 to 1, 2 to 3, and so on.
    Pairs,
    /// As [`Pattern::Pairs`], in both directions.
    PairsBoth,
    /// Every port to every other (RFC 2889, 5.1).
    Mesh,
    /// Port 0 to every other (RFC 2889, 5.2).
    OneToMany,
    /// Every other port to port 0 (RFC 2889, 5.2).
    ManyToOne,
    /// The first half of the ports to every port of the second half (RFC 2889, 5.4).
    Halves,
}

/// The common fields of the frames of all flows.
#[derive(Debug, Clone)]
pub struct Template {
    /// The size, the stamps and the other fields. Addresses and rate are set per flow.
    pub stream: Stream,
    /// Hosts behind each port, at most [`lanyard_tester::traffic::HOSTS_OF_A_PORT`].
    pub hosts: u32,
    /// The device's MAC address at each port; `None` for a device that bridges.
    pub routers: Vec<Option<[u8; 6]>>,
}

impl Flows {
    /// The flows of a pattern over `ports` ports.
    #[must_use]
    pub fn of(pattern: Pattern, ports: usize, template: &Template) -> Self {
        let pairs = pairs(pattern, ports);
        let mut flows = Vec::new();
        for (id, (from, to)) in pairs.iter().enumerate() {
            let share = 1.0 / pairs.iter().filter(|pair| pair.0 == *from).count() as f64;
            let stream = Stream {
                src: Hosts::of_port(*from, template.hosts),
                dst: Hosts::of_port(*to, template.hosts),
                order: if template.hosts > 1 { Order::Random } else { Order::Sequential },
                next_hop: template.routers.get(*from).copied().flatten(),
                id: id as u16,
                ..template.stream
            };
            flows.push(Flow { from: *from, to: vec![*to], stream, share });
        }
        Self(flows)
    }

    /// One flow from port 0 to every other port by broadcast.
    #[must_use]
    pub fn broadcast(ports: usize, template: &Template) -> Self {
        let stream = Stream {
            src: Hosts::of_port(0, template.hosts),
            dst: Hosts::of_port(1, 1),
            cast: Cast::Broadcast,
            id: 0,
            ..template.stream
        };
        Self(vec![Flow { from: 0, to: (1..ports).collect(), stream, share: 1.0 }])
    }

    /// The streams of an offer at a load, each with its sending port.
    #[must_use]
    pub fn streams(&self, load: Load) -> Vec<(usize, Stream)> {
        let rate = |flow: &Flow| match load {
            Load::Everything => None,
            Load::Rate(rate) => Some((rate * flow.share).round().clamp(RATE_MIN, f64::from(u32::MAX)) as u32),
        };
        self.0.iter().map(|flow| (flow.from, Stream { rate_pps: rate(flow), ..flow.stream })).collect()
    }

    /// Offers that make every host known: one first frame from each host in each direction, port by port.
    #[must_use]
    pub fn learning(&self) -> Vec<Offer> {
        let mut offers: Vec<(usize, u32, Offer)> = Vec::new();
        for flow in &self.0 {
            let receivers = if flow.stream.cast == Cast::Unicast { flow.to.as_slice() } else { &[] };
            let to_and_fro =
                std::iter::once((flow.from, false)).chain(receivers.iter().map(|port| (*port, true)));
            for (port, reverse) in to_and_fro {
                let mut stream = flow.stream.learning(reverse);
                stream.rate_pps = Some(LEARNING_PPS);
                if reverse {
                    stream.next_hop = None;
                }
                // In a mesh the hosts of a port occur in several flows.
                if offers.iter().any(|(p, first, _)| (*p, *first) == (port, stream.src.first)) {
                    continue;
                }
                let mut offer = Offer::burst(vec![(port, stream)], u64::from(stream.src.count));
                offer.settle = std::time::Duration::from_millis(20);
                offers.push((port, stream.src.first, offer));
            }
        }
        offers.into_iter().map(|(_, _, offer)| offer).collect()
    }

    /// The number of ports that send, at least 1.
    #[must_use]
    pub fn senders(&self) -> usize {
        let mut ports: Vec<usize> = self.0.iter().map(|flow| flow.from).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.len().max(1)
    }

    /// The least load at which no stream's rate is below [`RATE_MIN`].
    #[must_use]
    pub fn least_load(&self) -> f64 {
        let least = self.0.iter().map(|flow| flow.share).fold(1.0, f64::min);
        RATE_MIN / least
    }

    /// Evaluates a trial of these flows. A frame counts only at the ports of [`Flow::to`]; a broadcast must arrive at each of
    /// them.
    #[must_use]
    pub fn seen(&self, outcome: &Outcome) -> Seen {
        let (mut offered, mut delivered, mut sent, mut arrived) = (0.0, 0.0, 0u64, 0u64);
        for (flow, stream) in self.0.iter().zip(&outcome.streams) {
            let copies = flow.to.len().max(1) as u64;
            let here: u64 = flow.to.iter().filter_map(|port| stream.received_at.get(*port)).sum();
            let seconds = stream.tx_time.as_secs_f64().max(1e-9);
            offered += stream.sent as f64 / seconds;
            delivered += here as f64 / copies as f64 / seconds;
            sent += stream.sent * copies;
            arrived += here.min(stream.sent * copies);
        }
        // Frames that the tester had no time to check have still passed the device.
        let missed = outcome.missed.min(sent - arrived);
        if arrived > 0 {
            delivered *= (arrived + missed) as f64 / arrived as f64;
        }
        arrived += missed;
        let senders = self.senders() as f64;
        let loss = if sent == 0 { 1.0 } else { (sent - arrived) as f64 / sent as f64 };
        let stolen = outcome.cpu.iter().map(|cpu| cpu.stolen).fold(0.0, f64::max);
        Seen { offered: offered / senders, delivered: delivered / senders, loss, stolen }
    }

    /// Frames that arrived at a port to which no stream sends them: they were flooded, or forwarded wrongly.
    #[must_use]
    pub fn strays(&self, outcome: &Outcome) -> u64 {
        let strays = self.0.iter().zip(&outcome.streams).map(|(flow, stream)| {
            let elsewhere = stream.received_at.iter().enumerate().filter(|(port, _)| !flow.to.contains(port));
            elsewhere.map(|(_, frames)| *frames).sum::<u64>()
        });
        strays.sum()
    }
}

fn pairs(pattern: Pattern, ports: usize) -> Vec<(usize, usize)> {
    let two_by_two = (0..ports / 2).map(|pair| (2 * pair, 2 * pair + 1));
    match pattern {
        Pattern::Pairs => two_by_two.collect(),
        Pattern::PairsBoth => two_by_two.flat_map(|(a, b)| [(a, b), (b, a)]).collect(),
        // Round robin: a port sends to the others in turn.
        Pattern::Mesh => {
            let others = |from| (1..ports).map(move |step| (from, (from + step) % ports));
            (0..ports).flat_map(others).collect()
        }
        Pattern::OneToMany => (1..ports).map(|to| (0, to)).collect(),
        Pattern::ManyToOne => (1..ports).map(|from| (from, 0)).collect(),
        Pattern::Halves => {
            let half = ports / 2;
            (0..half).flat_map(|from| (half..ports).map(move |to| (from, to))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_tester::trial::StreamOutcome;
    use std::time::Duration;

    fn template() -> Template {
        Template { stream: Stream::new(), hosts: 1, routers: Vec::new() }
    }

    #[test]
    fn patterns() {
        let check = |pattern, ports, expected: &[(usize, usize)]| {
            assert_eq!(pairs(pattern, ports), expected, "{pattern:?}");
            let flows = Flows::of(pattern, ports, &template());
            let ids: std::collections::BTreeSet<u16> = flows.0.iter().map(|f| f.stream.id).collect();
            assert_eq!(ids.len(), flows.0.len(), "streams are distinguished");
            for port in 0..ports {
                let sent: f64 = flows.0.iter().filter(|f| f.from == port).map(|f| f.share).sum();
                assert!(sent == 0.0 || (sent - 1.0).abs() < 1e-9, "{pattern:?}: port {port} sends {sent}");
            }
        };
        check(Pattern::Pairs, 4, &[(0, 1), (2, 3)]);
        check(Pattern::PairsBoth, 2, &[(0, 1), (1, 0)]);
        check(Pattern::Mesh, 3, &[(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]);
        check(Pattern::OneToMany, 3, &[(0, 1), (0, 2)]);
        check(Pattern::ManyToOne, 3, &[(1, 0), (2, 0)]);
        check(Pattern::Halves, 4, &[(0, 2), (0, 3), (1, 2), (1, 3)]);
    }

    #[test]
    fn every_host_speaks_once() {
        let mesh = Flows::of(Pattern::Mesh, 3, &Template { hosts: 5, ..template() });
        let offers = mesh.learning();
        let ports: Vec<usize> = offers.iter().map(|offer| offer.streams[0].0).collect();
        assert_eq!(ports, [0, 1, 2], "each port's hosts once, though they are in four flows");
        assert!(offers.iter().all(|offer| offer.frames == Some(5)));
        // A broadcast has no receivers that could be learned.
        assert_eq!(Flows::broadcast(4, &template()).learning().len(), 1);
    }

    #[test]
    fn loss_counts_only_frames_that_arrive_at_their_destination_ports() {
        let outcome = |received_at: &[u64]| Outcome {
            streams: vec![StreamOutcome {
                sent: 1000,
                received: received_at.iter().sum(),
                received_at: received_at.to_vec(),
                tx_time: Duration::from_secs(2),
                ..StreamOutcome::default()
            }],
            ..Outcome::default()
        };
        let pair = Flows::of(Pattern::Pairs, 2, &template());
        let seen = pair.seen(&outcome(&[0, 999]));
        assert_eq!((seen.offered, seen.delivered), (500.0, 499.5));
        assert!((seen.loss - 0.001).abs() < 1e-12, "{seen:?}");
        assert_eq!(pair.seen(&outcome(&[1000, 0])).loss, 1.0, "reflected is not delivered");
        assert_eq!(pair.strays(&outcome(&[7, 1000])), 7);
        assert_eq!(pair.seen(&Outcome::default()).loss, 1.0, "nothing sent is nothing passed");
        let all = Flows::broadcast(3, &template());
        assert_eq!(all.seen(&outcome(&[0, 1000, 1000])).loss, 0.0);
        assert_eq!(all.seen(&outcome(&[0, 1000, 0])).loss, 0.5);
    }

    #[test]
    fn the_rate_of_a_port_is_divided_among_its_streams() {
        let mesh = Flows::of(Pattern::Mesh, 5, &template());
        assert_eq!((mesh.senders(), mesh.least_load()), (5, 400.0));
        for (_, stream) in mesh.streams(Load::Rate(4000.0)) {
            assert_eq!(stream.rate_pps, Some(1000));
        }
        assert!(mesh.streams(Load::Everything).iter().all(|(_, stream)| stream.rate_pps.is_none()));
    }
}
