//! The sFlow agent: its socket, the samples of the plane and the counters of interfaces.
//!
//! `lanyard_sflow` makes the datagrams. Invariant: sending never waits; a datagram that the kernel refuses is counted and lost,
//! as UDP may lose it.

use crate::context::{Context, Module};
use lanyard_cli::view;
use lanyard_config::{Config, InterfaceName};
use lanyard_netdev::Duplex;
use lanyard_pipeline::state::{Aggregation, PortKind};
use lanyard_sflow::{Agent, Counters, Sample};
use lanyard_switch::sflow::sampled;
use lanyard_types::PortId;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// The agent.
#[derive(Debug, Default)]
pub(crate) struct Sflow {
    agent: Agent,
    socket: Option<UdpSocket>,
    /// The source address of `socket`; `None`: the kernel chooses one, or there is no socket.
    source: Option<Ipv4Addr>,
    /// By collector (address and UDP port): the number of datagrams sent, and of those that the kernel refused.
    collectors: BTreeMap<(Ipv4Addr, u16), (u64, u64)>,
    /// The sampled ports: ifindex and name.
    ports: BTreeMap<PortId, (u32, String)>,
    error: Option<String>,
}

/// A sample of the plane.
pub(crate) struct Sampled<'a> {
    pub(crate) port: PortId,
    pub(crate) len: u32,
    pub(crate) pool: u32,
    pub(crate) drops: u32,
    pub(crate) head: &'a [u8],
}

impl Module for Sflow {
    type Event<'a> = Sampled<'a>;

    fn configure(&mut self, ctx: &mut Context) {
        let config = ctx.switch.config();
        let now_ms = ctx.clock.now_ms();
        let held = std::mem::take(&mut self.collectors);
        let count = |to: &(Ipv4Addr, u16)| (*to, held.get(to).copied().unwrap_or_default());
        self.collectors = config.sflow.collectors.iter().map(count).collect();
        self.ports.clear();
        let mut interfaces = BTreeMap::new();
        for (name, _) in sampled(config) {
            // The plane receives no frame of a routed port in a VRF, whose ifindex may also be that of a port here.
            let (Some(port), Some(link)) = (ctx.port_of(name), ctx.facts().usable(&name.to_string())) else {
                continue;
            };
            self.ports.insert(port, (link.ifindex, name.to_string()));
            interfaces.insert(link.ifindex, settings(ctx, port));
        }
        if self.collectors.is_empty() {
            (self.socket, self.source, self.error) = (None, None, None);
            self.agent.configure(now_ms, None);
            return;
        }
        match self.open(config) {
            Ok(agent) => {
                let polling_ms = u64::from(config.sflow.polling_s) * 1000;
                self.error = None;
                self.agent.configure(now_ms, Some(lanyard_sflow::Config { agent, polling_ms, interfaces }));
            }
            Err(error) => {
                (self.socket, self.source) = (None, None);
                self.agent.configure(now_ms, None);
                let text = error.to_string();
                if self.error.as_ref() != Some(&text) {
                    ctx.log("SFLOW", 4, "NOTRUNNING", &text);
                }
                self.error = Some(text);
            }
        }
    }

    fn handle(&mut self, ctx: &mut Context, event: Sampled<'_>) -> usize {
        let Some((ifindex, _)) = self.ports.get(&event.port) else { return 0 };
        let Sampled { len, pool, drops, head, .. } = event;
        let now_ms = ctx.clock.now_ms();
        self.agent.handle_sample(now_ms, &Sample { ifindex: *ifindex, len, head, pool, drops });
        self.send(now_ms);
        1
    }

    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.agent.next_ms()
    }

    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        for ifindex in self.agent.poll_counters(now_ms) {
            let found = self.ports.iter().find(|(_, (held, _))| *held == ifindex);
            if let Some((port, (_, name))) = found {
                let counters = counters(ctx, *port, name);
                self.agent.handle_counters(now_ms, ifindex, &counters);
            }
        }
        self.send(now_ms);
    }
}

impl Sflow {
    /// Opens the socket if its source has changed; returns the agent's address, by which collectors identify the switch.
    fn open(&mut self, config: &Config) -> io::Result<Ipv4Addr> {
        let source = config.sflow.source.as_ref().map(|name| address_of(config, name)).transpose()?;
        if self.socket.is_none() || self.source != source {
            let socket = UdpSocket::bind((source.unwrap_or(Ipv4Addr::UNSPECIFIED), 0)).map_err(|error| {
                let at = source.map_or_else(String::new, |source| format!(" with the source {source}"));
                io::Error::other(format!("opening a UDP socket{at}: {error}"))
            })?;
            socket.set_nonblocking(true)?;
            (self.socket, self.source) = (Some(socket), source);
        }
        match config.sflow.agent.or(source) {
            Some(agent) => Ok(agent),
            None => self.chosen(),
        }
    }
    /// The address with which the kernel sends to the first collector that it reaches.
    fn chosen(&self) -> io::Result<Ipv4Addr> {
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        for to in self.collectors.keys() {
            if probe.connect(*to).is_ok()
                && let SocketAddr::V4(local) = probe.local_addr()?
            {
                return Ok(*local.ip());
            }
        }
        Err(io::Error::other(
            "the switch has no address with which it reaches a collector: enter `sflow agent-ip`, or give an interface an address",
        ))
    }

    fn send(&mut self, now_ms: u64) {
        while let Some(datagram) = self.agent.poll_datagram(now_ms) {
            let Some(socket) = &self.socket else { return };
            for (to, (sent, failed)) in &mut self.collectors {
                match socket.send_to(&datagram, *to) {
                    Ok(_) => *sent += 1,
                    Err(_) => *failed += 1,
                }
            }
        }
    }

    /// `show sflow`.
    pub(crate) fn view(&self, ctx: &Context) -> view::SflowView {
        let sflow = &ctx.switch.config().sflow;
        let collector = |((address, port), (datagrams, failed)): (&(Ipv4Addr, u16), &(u64, u64))| {
            view::SflowCollector { address: *address, port: *port, datagrams: *datagrams, failed: *failed }
        };
        let interface = |(ifindex, name): &(u32, String)| {
            let totals = self.agent.totals(*ifindex);
            view::SflowInterface {
                interface: name.clone(),
                ifindex: *ifindex,
                samples: totals.samples,
                pool: totals.pool,
                drops: totals.drops,
                counter_samples: totals.counters,
            }
        };
        view::SflowView {
            running: self.agent.address().is_some(),
            error: self.error.clone(),
            agent_address: self.agent.address(),
            source_address: self.source,
            sampling_rate: sflow.rate,
            polling_interval_s: sflow.polling_s,
            collectors: self.collectors.iter().map(collector).collect(),
            interfaces: self.ports.values().map(interface).collect(),
        }
    }
}

/// The first configured address of an interface.
fn address_of(config: &Config, name: &InterfaceName) -> io::Result<Ipv4Addr> {
    let held = config.interfaces.get(name).and_then(|interface| interface.ipv4.first());
    held.map(|net| net.addr()).ok_or_else(|| {
        io::Error::other(format!(
            "{name} has no IPv4 address: give it one, or enter `no sflow source-interface`"
        ))
    })
}

/// The settings of a sampled port. A member of a port-channel has the VLANs of the port-channel.
fn settings(ctx: &Context, port: PortId) -> lanyard_sflow::Interface {
    let ports = &ctx.plane.state().ports;
    let state = ports.get(&port).map(|state| match state.aggregation {
        Aggregation::Member { of, .. } => ports.get(&of).unwrap_or(state),
        Aggregation::None | Aggregation::Channel(_) => state,
    });
    lanyard_sflow::Interface {
        rate: ctx.switch.config().sflow.rate,
        native_vlan: state.and_then(|state| state.pvid).map(|vlan| vlan.get()),
        vlans: state.is_some_and(|state| state.kind == PortKind::Netdev),
    }
}

fn counters(ctx: &mut Context, port: PortId, name: &str) -> Counters {
    let of = ctx.plane.port_counters(port);
    let link = ctx.kernel.link(ctx.kernel.home(name), name).ok();
    let settings = ctx.kernel.settings(name).unwrap_or_default();
    Counters {
        speed_bps: settings.speed_mbps.map_or(0, |mbps| u64::from(mbps) * 1_000_000),
        full_duplex: settings.duplex.map(|duplex| duplex == Duplex::Full),
        admin_up: link.as_ref().is_some_and(|link| link.admin_up),
        link_up: link.as_ref().is_some_and(|link| link.link_up),
        in_octets: of.rx.bytes,
        in_frames: of.rx.frames,
        in_discards: of.dropped.iter().sum(),
        in_errors: link.as_ref().map(|link| link.stats.rx.errors),
        out_octets: of.tx.bytes,
        out_frames: of.tx.frames,
        out_discards: of.tx_dropped,
        out_errors: link.as_ref().map(|link| link.stats.tx.errors),
        promiscuous: link.as_ref().is_some_and(|link| link.promiscuity > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::testing::{Bench, accept, config, messages};
    use lanyard_switch::facts::{LinkFacts, LinkMode};

    /// An address to which the kernel sends nothing: a socket without SO_BROADCAST may not send to the broadcast address of the
    /// loopback network.
    const REFUSED: &str = "sflow collector 127.255.255.255\n";

    /// A switch with two ports, of which eth1 is sampled, and these lines.
    fn switch(lines: &str) -> (Bench, Core) {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        bench.kernel.add("eth2");
        let mut core = bench.core();
        take(&mut core, lines);
        (bench, core)
    }

    fn take(core: &mut Core, lines: &str) {
        let ports = "interface eth1\n switchport\n sflow enable\ninterface eth2\n switchport\n";
        core.take(config(&format!("{lines}{ports}"))).expect("taken");
    }

    /// A collector on this machine with the last octet `host`, and its configuration line.
    fn collector(host: u8) -> (UdpSocket, String) {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)).expect("a port");
        socket.set_nonblocking(true).expect("set");
        let at = socket.local_addr().expect("bound");
        (socket, format!("sflow collector {} port {}\n", at.ip(), at.port()))
    }

    /// The datagrams that have arrived, as words of 32 bits.
    fn received(collector: &UdpSocket) -> Vec<Vec<u32>> {
        let mut bytes = [0; lanyard_sflow::MAX_DATAGRAM];
        let word = |bytes: &[u8]| bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        let next = || {
            let len = collector.recv(&mut bytes).ok()?;
            Some(bytes[..len].chunks(4).map(word).collect())
        };
        std::iter::from_fn(next).collect()
    }

    /// Receives a frame of 60 bytes at a port, and handles the plane's events.
    fn push(bench: &Bench, core: &mut Core, name: &str) {
        let port = core.ctx.switch.ports().get(name).expect("a port");
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.resize(60, 0);
        bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
        core.plane_events();
    }

    /// The datagrams sent to each collector, and those that the kernel refused.
    fn counts(core: &Core) -> Vec<(u64, u64)> {
        core.sflow.view(&core.ctx).collectors.iter().map(|it| (it.datagrams, it.failed)).collect()
    }

    #[test]
    fn samples_of_an_enabled_port_reach_every_collector() {
        let ((one, first), (two, second)) = (collector(1), collector(2));
        let lines = "sflow agent-ip 192.0.2.1\nsflow sampling-rate 1\nsflow polling-interval 0\n";
        let (bench, mut core) = switch(&format!("{lines}{first}{second}{REFUSED}"));
        assert_eq!(core.sflow.next_ms(&core.ctx), None, "counters are not polled");
        for name in ["eth1", "eth2", "eth1"] {
            push(&bench, &mut core, name);
        }
        assert!(received(&one).is_empty(), "samples wait for others");
        assert_eq!(core.sflow.next_ms(&core.ctx), Some(500));
        bench.clock.set(500);
        core.tick();
        let datagrams = received(&one);
        assert_eq!(datagrams, received(&two));
        assert_eq!(datagrams.len(), 1);
        let datagram = &datagrams[0];
        // Version, address family, agent, sub-agent, sequence number, uptime in milliseconds, number of samples.
        assert_eq!(datagram[..7], [5, 1, 0xc000_0201, 0, 1, 500, 2]);
        // A flow sample: sequence number, interface, rate, pool, drops.
        let ifindex = bench.kernel.get("eth1").ifindex;
        assert_eq!((datagram[7], &datagram[9..14]), (1, &[1, ifindex, 1, 1, 0][..]));
        assert_eq!(counts(&core), [(1, 0), (1, 0), (0, 1)]);
        let shown = core.sflow.view(&core.ctx).interfaces;
        let shown: Vec<_> = shown.iter().map(|it| (it.interface.as_str(), it.samples, it.pool)).collect();
        assert_eq!(shown, [("eth1", 2, 2)]);
        take(&mut core, &format!("{lines}{second}"));
        assert_eq!(counts(&core), [(1, 0)], "a collector that remains keeps its counts");
        take(&mut core, lines);
        push(&bench, &mut core, "eth1");
        assert_eq!(core.sflow.next_ms(&core.ctx), None, "nothing is sampled without a collector");
        assert!(!core.sflow.view(&core.ctx).running);
    }

    #[test]
    fn counters_of_an_enabled_port_are_sent_at_the_polling_interval() {
        let (socket, line) = collector(1);
        // The rate is so low that the frame below is not drawn.
        let lines = "sflow agent-ip 192.0.2.1\nsflow sampling-rate 16777215\nsflow polling-interval 30\n";
        let (bench, mut core) = switch(&format!("{lines}{line}"));
        push(&bench, &mut core, "eth1");
        let half = LinkMode::Fixed { speed_mbps: 100, full_duplex: false };
        bench.kernel.state().modes.insert("eth1".into(), half);
        bench.kernel.change("eth1", |link| {
            (link.link_up, link.promiscuity) = (true, 1);
            (link.stats.rx.errors, link.stats.tx.errors) = (3, 4);
        });
        assert_eq!(core.sflow.next_ms(&core.ctx), Some(30_000));
        for (now_ms, due_ms) in [(29_999, 30_000), (30_000, 30_500), (30_500, 60_000)] {
            assert!(received(&socket).is_empty(), "{now_ms}");
            bench.clock.set(now_ms);
            core.tick();
            assert_eq!(core.sflow.next_ms(&core.ctx), Some(due_ms));
        }
        let datagrams = received(&socket);
        assert_eq!(datagrams.len(), 1);
        let datagram = &datagrams[0];
        let (ifindex, unknown) = (bench.kernel.get("eth1").ifindex, u32::MAX);
        assert_eq!((datagram[6], datagram[7], &datagram[9..11]), (1, 2, &[1, ifindex][..]));
        // The interface's ifIndex, ifType, ifSpeed, ifDirection (half duplex) and ifStatus (up).
        assert_eq!(datagram[14..20], [ifindex, 6, 0, 100_000_000, 2, 3]);
        // Octets, frames, discards and errors, received and sent; promiscuous mode.
        assert_eq!(datagram[20..28], [0, 60, 1, unknown, unknown, 0, 3, unknown]);
        assert_eq!(datagram[28..], [0, 0, 0, unknown, unknown, 0, 4, 1]);
        assert_eq!(core.sflow.view(&core.ctx).interfaces[0].counter_samples, 1);
    }

    #[test]
    fn the_reason_for_which_nothing_is_sent_is_logged_once_and_shown() {
        let (_bench, mut core) = switch("");
        let mut logged = Vec::new();
        for (lines, reason) in [
            (
                "sflow source-interface eth2\n",
                "eth2 has no IPv4 address: give it one, or enter `no sflow source-interface`",
            ),
            (
                "",
                "the switch has no address with which it reaches a collector: enter `sflow agent-ip`, or give an interface an \
                 address",
            ),
        ] {
            take(&mut core, &format!("{lines}{REFUSED}"));
            core.settle();
            logged.push(format!("NOTRUNNING: {reason}"));
            let mut lines = messages(&core.ctx);
            lines.retain(|line| line.starts_with("NOTRUNNING"));
            assert_eq!(lines, logged);
            let shown = core.sflow.view(&core.ctx);
            assert_eq!(
                (shown.running, shown.error.as_deref(), shown.agent_address),
                (false, Some(reason), None)
            );
        }
        take(&mut core, &format!("sflow agent-ip 192.0.2.1\n{REFUSED}"));
        let shown = core.sflow.view(&core.ctx);
        assert_eq!((shown.running, shown.error), (true, None));
        assert_eq!(shown.agent_address, Some(Ipv4Addr::new(192, 0, 2, 1)));
    }

    /// Interfaces in two namespaces may have the same ifindex. The kernel of the tests reports no netdevs in VRFs.
    #[test]
    fn a_port_in_a_vrf_is_not_sampled() {
        let (_bench, mut core) = switch("");
        let both = format!(
            "sflow agent-ip 192.0.2.1\n{REFUSED}interface eth1\n switchport\n sflow enable\n\
             interface eth2\n switchport\n sflow enable"
        );
        core.take(config(&both)).expect("taken");
        let shown = |core: &Core| -> Vec<String> {
            core.sflow.view(&core.ctx).interfaces.into_iter().map(|it| it.interface).collect()
        };
        assert_eq!(shown(&core), ["eth1", "eth2"]);
        let [first, second] = ["eth1", "eth2"].map(|name| core.ctx.facts().get(name).expect("it").clone());
        let moved = LinkFacts { ifindex: first.ifindex, vrf: Some("red".into()), ..second };
        core.ctx.switch.facts_mut().set(moved);
        core.sflow.configure(&mut core.ctx);
        assert_eq!(shown(&core), ["eth1"]);
    }

    /// The source interface has an address of this machine, which its configuration would not accept, then none, then another.
    #[test]
    fn the_source_address_is_shown_while_it_is_used() {
        let (_bench, mut core) = switch("");
        for address in [Some(Ipv4Addr::LOCALHOST), None, Some(Ipv4Addr::LOCALHOST)] {
            let mut next = config(&format!(
                "interface eth1\n switchport\n sflow enable\ninterface eth2\n no switchport\n{REFUSED}\
                 sflow source-interface eth2"
            ));
            let eth2 = next.interfaces.get_mut(&InterfaceName::Netdev("eth2".into())).expect("configured");
            eth2.ipv4 = address.into_iter().map(Into::into).collect();
            accept(&mut core.ctx, next);
            core.sflow.configure(&mut core.ctx);
            let shown = core.sflow.view(&core.ctx);
            assert_eq!((shown.running, shown.source_address), (address.is_some(), address));
        }
    }
}
