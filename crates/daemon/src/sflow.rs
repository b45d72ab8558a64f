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
    /// The source address that is configured; `None`: the kernel chooses one.
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
            let (Some(port), Some(link)) = (ctx.port_of(name), ctx.facts().get(&name.to_string())) else {
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
                self.socket = None;
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
    let link = ctx.kernel.link(None, name).ok();
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
