//! The rows of `lanyard bench forward`: their devices, loads and targets.

use super::attack::Attack;
use super::frames::{FrameLoad, FrameRig, SILENT, Sinks, Source};
use super::hosts::{PingRig, TcpRig};
use super::life::{HitlessRig, MemoryRig, StartRig};
use super::rig::{Rig, Settings};
use super::routed::{By, RoutedLoad, RoutedRig};
use crate::dut::{Hook, Kind, PortMode, Startup};
use crate::report::{Axis, Target, Unit};
use anyhow::Result;
use lanyard_tester::traffic::{Cast, CountAt, Ip, Stream};

/// The frame sizes of RFC 2544, section 9.1, without the smallest, which has rows of its own.
const SIZES: [usize; 6] = [128, 256, 512, 1024, 1280, 1518];

/// A load, and the figure measured under it.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// Frames at the greatest rate.
    Frames(FrameLoad),
    /// As [`Load::Frames`], through the build of Lanyard that `--against` names.
    Against(FrameLoad),
    /// One TCP stream.
    Tcp {
        /// True if segmentation offload and GRO are on at the hosts.
        offload: bool,
    },
    /// ICMP echo round trips.
    Ping,
    /// Frames to route.
    Routed(RoutedLoad, CountAt),
    /// Kill and restart (Lanyard only), with this startup-config for the new daemon.
    Hitless(Startup),
    /// Start-up (Lanyard only): the first start of an instance on this kernel, or one after it.
    Start {
        /// True for the first start on this kernel, false for a later one.
        first: bool,
    },
    /// Resident memory (Lanyard only).
    Memory,
}

/// One side of a row.
#[derive(Debug, Clone, Copy)]
pub struct Arm {
    /// The device.
    pub kind: Kind,
    /// The difference from the other side, for the report. May be empty.
    pub note: &'static str,
    /// The load.
    pub load: Load,
}

/// The declaration of a row: one figure, or the ratio of two.
#[derive(Debug, Clone)]
pub struct RowPlan {
    /// Its name on the command line.
    pub id: String,
    /// The test that its figures belong to, and their place on the test's axis; `None` for a row that stands alone.
    pub place: Option<(String, Axis, f64)>,
    /// A description of what it measures.
    pub title: String,
    /// Unit of its figures.
    pub unit: Unit,
    /// One or two sides.
    pub arms: Vec<Arm>,
    /// The target.
    pub target: Target,
}

impl RowPlan {
    /// Two devices under the same load, compared by frames per second.
    fn versus(id: &str, title: &str, first: Kind, second: Kind, load: Load, target: Target) -> Self {
        let arms = vec![arm(first, load), arm(second, load)];
        let (id, title) = (id.to_owned(), title.to_owned());
        Self { id, place: None, title, unit: Unit::FramesPerSecond, arms, target }
    }

    /// One device and any figure.
    fn single(id: &str, title: &str, kind: Kind, load: Load, unit: Unit, target: Target) -> Self {
        let (id, title) = (id.to_owned(), title.to_owned());
        Self { id, place: None, title, unit, arms: vec![arm(kind, load)], target }
    }

    /// Makes the row the point `at` of the test `test`.
    fn at(self, test: &str, axis: Axis, at: impl Into<f64>) -> Self {
        Self { place: Some((test.to_owned(), axis, at.into())), ..self }
    }
}

impl Arm {
    /// The name of an arm in the report.
    #[must_use]
    pub fn label(&self) -> String {
        [self.kind.name(), self.note].iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(" ")
    }

    /// Builds its bed and brings its device up.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn up(&self, settings: &Settings) -> Result<Box<dyn Rig>> {
        let hook = match self.kind {
            Kind::Lanyard(hook) => hook,
            _ => Hook::Auto,
        };
        Ok(match self.load {
            Load::Frames(load) => Box::new(FrameRig::up(settings, self.kind, &load)?),
            Load::Against(load) => Box::new(FrameRig::up(&settings.against()?, self.kind, &load)?),
            Load::Tcp { offload } => Box::new(TcpRig::up(settings, self.kind, offload)?),
            Load::Ping => Box::new(PingRig::up(settings, self.kind)?),
            Load::Routed(load, count_at) => Box::new(RoutedRig::up(settings, &load, count_at)?),
            Load::Hitless(startup) => Box::new(HitlessRig::up(settings, hook, startup)?),
            Load::Start { first } => Box::new(StartRig::up(settings, first)?),
            Load::Memory => Box::new(MemoryRig::up(settings)?),
        })
    }
}

const TC: Kind = Kind::Lanyard(Hook::Tc);
const PEER: Kind = Kind::Lanyard(Hook::TcPeer);
const XDP: Kind = Kind::Lanyard(Hook::Xdp);
const AUTO: Kind = Kind::Lanyard(Hook::Auto);

fn frames(stream: Stream, count_at: CountAt, outputs: u16, ports: PortMode) -> Load {
    Load::Frames(frame_load(stream, count_at, outputs, ports))
}

/// Frames of the generator, to sinks that are ready, without a flood beside them.
const fn frame_load(stream: Stream, count_at: CountAt, outputs: u16, ports: PortMode) -> FrameLoad {
    FrameLoad { stream, count_at, outputs, ports, source: Source::Xdp, sinks: Sinks::Early, attack: None }
}

/// Jumbo frames, which XDP receives in several buffers.
fn jumbo() -> Load {
    let load = frame_load(Stream::new().size(9018), CountAt::Xdp, 1, PortMode::Access);
    Load::Frames(FrameLoad { source: Source::Socket, ..load })
}

fn arm(kind: Kind, load: Load) -> Arm {
    Arm { kind, note: "", load }
}

/// All rows, in the order of the report.
#[must_use]
pub fn all() -> Vec<RowPlan> {
    [
        limits(),
        defaults(),
        unicast(),
        hosts(),
        sizes(),
        floods(),
        snooped(),
        filtered(),
        attacked(),
        against(),
        routed(),
        stacks(),
        others(),
        lives(),
    ]
    .concat()
}

/// The limits of the kernel's mechanisms.
fn limits() -> Vec<RowPlan> {
    let tc = frames(Stream::new(), CountAt::Tc, 1, PortMode::Access);
    let xdp = frames(Stream::new(), CountAt::Xdp, 1, PortMode::Access);
    let bridge = Kind::Bridge;
    vec![
        RowPlan::versus("limit-tc", "64 B, a wire on TC", Kind::BareTc, bridge, tc, Target::None),
        RowPlan::versus(
            "limit-tc-peer",
            "64 B, a wire on TC, to the peer",
            Kind::BareTcPeer,
            bridge,
            tc,
            Target::None,
        ),
        RowPlan::versus("limit-xdp", "64 B, a wire on XDP", Kind::BareXdp, bridge, xdp, Target::None),
        RowPlan::versus(
            "limit-jumbo",
            "9018 B from a socket, a wire on XDP against one on TC",
            Kind::BareXdp,
            Kind::BareTc,
            jumbo(),
            Target::None,
        ),
    ]
}

/// The default configuration, with hosts as `ip link` makes them.
fn defaults() -> Vec<RowPlan> {
    let tc = |hosts| frames(Stream::among(hosts), CountAt::Tc, 1, PortMode::Access);
    let early = frame_load(Stream::new(), CountAt::Xdp, 1, PortMode::Access);
    let late = FrameLoad { sinks: Sinks::Late, ..early };
    let title = "64 B known unicast, default configuration";
    let many = "64 B, random pairs of 2048 hosts, default configuration";
    let tcp = Load::Tcp { offload: false };
    vec![
        RowPlan::versus("default-64", title, AUTO, Kind::Bridge, tc(2), Target::RatioAtLeast(1.5)),
        RowPlan::versus("default-2048", many, AUTO, Kind::Bridge, tc(2048), Target::RatioAtLeast(1.5)),
        RowPlan {
            unit: Unit::BitsPerSecond,
            ..RowPlan::versus(
                "default-tcp-mtu",
                "TCP, one stream, MTU-sized, default configuration",
                AUTO,
                Kind::Bridge,
                tcp,
                Target::RatioAtLeast(1.2),
            )
        },
        RowPlan::versus(
            "default-napi-late",
            "64 B known unicast, `hook xdp`, NAPI turned on after start",
            XDP,
            Kind::Bridge,
            Load::Frames(late),
            Target::RatioAtLeast(3.0),
        ),
    ]
}

fn unicast() -> Vec<RowPlan> {
    let tc = frames(Stream::new(), CountAt::Tc, 1, PortMode::Access);
    let xdp = frames(Stream::new(), CountAt::Xdp, 1, PortMode::Access);
    let title = "64 B known unicast";
    vec![
        RowPlan::versus("xdp-64", title, XDP, Kind::Bridge, xdp, Target::RatioAtLeast(2.7)).at(
            "xdp",
            Axis::FrameBytes,
            64,
        ),
        RowPlan::versus(
            "xdp-64-wire",
            "64 B known unicast, against a wire on XDP",
            XDP,
            Kind::BareXdp,
            xdp,
            Target::RatioAtLeast(0.92),
        ),
        RowPlan::versus(
            "jumbo",
            "9018 B known unicast from a socket, XDP against TC",
            XDP,
            TC,
            jumbo(),
            Target::None,
        ),
        RowPlan::versus("tc-peer-64", title, PEER, Kind::Bridge, tc, Target::RatioAtLeast(1.35)).at(
            "tc-peer",
            Axis::FrameBytes,
            64,
        ),
        RowPlan::versus("tc-64", title, TC, Kind::Bridge, tc, Target::None).at("tc", Axis::FrameBytes, 64),
    ]
}

fn hosts() -> Vec<RowPlan> {
    let load = |hosts, at| frames(Stream::among(hosts), at, 1, PortMode::Access);
    let mut rows = Vec::new();
    for (hosts, target) in
        [(2048, Target::None), (65_536, Target::RatioAtLeast(1.5)), (1_000_000, Target::None)]
    {
        let title = format!("64 B, random pairs of {hosts} hosts");
        for (hook, kind, at, target) in
            [("tc", PEER, CountAt::Tc, target), ("xdp", XDP, CountAt::Xdp, Target::None)]
        {
            let test = format!("hosts-{hook}");
            let id = format!("{test}-{hosts}");
            let row = RowPlan::versus(&id, &title, kind, Kind::Bridge, load(hosts, at), target);
            rows.push(row.at(&test, Axis::Hosts, hosts));
        }
    }
    rows.push(RowPlan {
        id: "hosts-tc-own".to_owned(),
        place: None,
        title: "64 B, 65536 hosts against 2".to_owned(),
        unit: Unit::FramesPerSecond,
        arms: vec![
            Arm { note: "65536", ..arm(PEER, load(65_536, CountAt::Tc)) },
            Arm { note: "2", ..arm(PEER, load(2, CountAt::Tc)) },
        ],
        target: Target::RatioAtLeast(0.88),
    });
    rows
}

fn sizes() -> Vec<RowPlan> {
    SIZES
        .iter()
        .flat_map(|size| {
            let load = |at| frames(Stream::new().size(*size), at, 1, PortMode::Access);
            let title = format!("{size} B known unicast");
            [("tc", PEER, CountAt::Tc), ("xdp", XDP, CountAt::Xdp)].map(|(hook, kind, at)| {
                let test = format!("size-{hook}");
                let id = format!("{test}-{size}");
                RowPlan::versus(&id, &title, kind, Kind::Bridge, load(at), Target::None).at(
                    &test,
                    Axis::FrameBytes,
                    *size as f64,
                )
            })
        })
        .collect()
}

fn floods() -> Vec<RowPlan> {
    let stream = Stream { dst: SILENT, ..Stream::new() };
    let mut rows = Vec::new();
    for outputs in [4, 16] {
        for (name, ports) in [("same", PortMode::Access), ("mixed", PortMode::Mixed)] {
            rows.push(RowPlan::versus(
                &format!("flood-{outputs}-{name}"),
                &format!("64 B flood to {outputs}, {name} tags"),
                PEER,
                Kind::Bridge,
                frames(stream, CountAt::Tc, outputs, ports),
                Target::RatioAtLeast(1.0),
            ));
            rows.push(RowPlan::versus(
                &format!("flood-xdp-{outputs}-{name}"),
                &format!("64 B flood to {outputs}, {name} tags"),
                XDP,
                Kind::Bridge,
                frames(stream, CountAt::Xdp, outputs, ports),
                Target::RatioAtLeast(1.0),
            ));
        }
        // The same flood with frames from a packet socket, as hosts make them. docs/performance.md explains why flooding is
        // slower with frames that take a page each.
        let load = frame_load(stream, CountAt::Tc, outputs, PortMode::Access);
        let load = FrameLoad { source: Source::Socket, ..load };
        rows.push(RowPlan::versus(
            &format!("flood-{outputs}-socket"),
            &format!("64 B flood to {outputs}, frames from a socket"),
            PEER,
            Kind::Bridge,
            Load::Frames(load),
            Target::RatioAtLeast(1.0),
        ));
    }
    rows
}

/// A stream to a group with one member, on a switch with 16 output ports.
fn snooped() -> Vec<RowPlan> {
    let stream = Stream { cast: Cast::Multicast, ..Stream::new() };
    let row = |id: &str, kind: Kind, count_at| {
        RowPlan::versus(
            id,
            "64 B to a group with a member at 1 of 16 ports, multicast snooping",
            kind,
            Kind::Bridge,
            frames(stream, count_at, 16, PortMode::Snooped),
            Target::RatioAtLeast(1.3),
        )
    };
    let joins = |id: &str, kind: Kind, count_at| {
        let arm = |ports, note| Arm { note, ..arm(kind, frames(stream, count_at, 16, ports)) };
        RowPlan {
            id: id.to_owned(),
            place: None,
            title: "64 B to a group, while 10,000 groups are joined within the measurement, against none"
                .to_owned(),
            unit: Unit::FramesPerSecond,
            arms: vec![arm(PortMode::Joined, "10,000 joins"), arm(PortMode::Snooped, "no joins")],
            target: Target::RatioAtLeast(0.95),
        }
    };
    vec![
        row("snooped", AUTO, CountAt::Tc),
        row("snooped-xdp", XDP, CountAt::Xdp),
        joins("joins", AUTO, CountAt::Tc),
        joins("joins-xdp", XDP, CountAt::Xdp),
    ]
}

/// A flood of frames for the control plane at one port, beside a stream between two others.
fn attacked() -> Vec<RowPlan> {
    let mut rows = Vec::new();
    for (hook, kind, count_at) in [("xdp", XDP, CountAt::Xdp), ("tc", PEER, CountAt::Tc)] {
        for attack in Attack::ALL {
            let (name, note) = attack.names();
            // Broadcasts are for every host, so only storm control can keep a flood of them from the other ports.
            let (ports, how) = match attack {
                Attack::Arp => (PortMode::Guarded, "storm control at its port"),
                _ => (PortMode::Attacked, "no settings for it"),
            };
            let row = |id: String, note, ports, how, target| {
                let load = |load| {
                    Load::Frames(FrameLoad {
                        attack: load,
                        ..frame_load(Stream::new(), count_at, attack.outputs(), ports)
                    })
                };
                RowPlan {
                    id,
                    place: None,
                    title: format!(
                        "64 B known unicast, while another port floods 1 Mpps ({name}, {how}), against none"
                    ),
                    unit: Unit::FramesPerSecond,
                    arms: vec![
                        Arm { note, ..arm(kind, load(Some(attack))) },
                        Arm { note: "quiet", ..arm(kind, load(None)) },
                    ],
                    target,
                }
            };
            rows.push(row(format!("control-{hook}-{name}"), note, ports, how, Target::RatioAtLeast(0.95)));
            if attack == Attack::Arp {
                let id = format!("control-{hook}-{name}-open");
                rows.push(row(id, "under ARP, open", PortMode::Attacked, "no storm control", Target::None));
            }
        }
    }
    rows
}

/// This build of Lanyard beside another one.
fn against() -> Vec<RowPlan> {
    const HOSTS: u32 = 2048;
    let row = |name: &str, kind: Kind, count_at| {
        let load = frame_load(Stream::among(HOSTS), count_at, 1, PortMode::Access);
        RowPlan {
            id: format!("against-{name}"),
            place: None,
            title: format!("64 B, random pairs of {HOSTS} hosts, this build against the one of --against"),
            unit: Unit::FramesPerSecond,
            arms: vec![
                Arm { note: "this build", ..arm(kind, Load::Frames(load)) },
                Arm { note: "the other", ..arm(kind, Load::Against(load)) },
            ],
            target: Target::None,
        }
    };
    vec![row("xdp", XDP, CountAt::Xdp), row("tc", PEER, CountAt::Tc)]
}

/// Random pairs of hosts, with a list of 1,000 rules at each port: rules all over the list decide about their frames.
fn filtered() -> Vec<RowPlan> {
    const HOSTS: u32 = 2048;
    let mut rows = Vec::new();
    let hooks = [("xdp", XDP, CountAt::Xdp, 0.65, 3.0), ("tc", PEER, CountAt::Tc, 0.65, 3.0)];
    for (name, kind, at, own, bridge) in hooks {
        let load = |ports| frames(Stream::among(HOSTS), at, 1, ports);
        let lists = load(PortMode::Filtered);
        rows.push(RowPlan {
            id: format!("acl-{name}-own"),
            place: None,
            title: format!("64 B, random pairs of {HOSTS} hosts, a list of 1,000 rules against none"),
            unit: Unit::FramesPerSecond,
            arms: vec![
                Arm { note: "1000 rules", ..arm(kind, lists) },
                Arm { note: "no list", ..arm(kind, load(PortMode::Access)) },
            ],
            target: Target::RatioAtLeast(own),
        });
        rows.push(RowPlan::versus(
            &format!("acl-{name}-nft"),
            &format!("64 B, random pairs of {HOSTS} hosts, 1,000 rules, nftables in the bridge's hook"),
            kind,
            Kind::Bridge,
            lists,
            Target::RatioAtLeast(bridge),
        ));
    }
    rows
}

/// Frames routed between VLANs.
fn routed() -> Vec<RowPlan> {
    const MANY: u32 = 100_000;
    let row = |id: String, title: &str, arms: [Arm; 2], target| RowPlan {
        id,
        place: None,
        title: title.to_owned(),
        unit: Unit::FramesPerSecond,
        arms: arms.to_vec(),
        target,
    };
    let hooks = [("xdp", Hook::Xdp, CountAt::Xdp, 2.4), ("tc", Hook::TcPeer, CountAt::Tc, 1.3)];
    let mut rows = Vec::new();
    for (name, hook, at, least) in hooks {
        let plane = |ip, routes, to, note| {
            let load = RoutedLoad { by: By::Plane(hook), ip, routes, to, long: false };
            Arm { note, ..arm(Kind::LanyardRouter(hook), Load::Routed(load, at)) }
        };
        let bridging = |stream| arm(Kind::Lanyard(hook), frames(stream, at, 1, PortMode::Access));
        let kernel = RoutedLoad { by: By::Kernel, ip: Ip::V4, routes: MANY, to: MANY, long: false };
        let neighbour = RoutedLoad { by: By::Plane(hook), ip: Ip::V4, routes: MANY, to: 1, long: true };
        rows.push(
            row(
                format!("routed-{name}-64"),
                "64 B, 100,000 routes, to all",
                [plane(Ip::V4, MANY, MANY, ""), arm(Kind::Router, Load::Routed(kernel, at))],
                Target::RatioAtLeast(least),
            )
            .at(&format!("routed-{name}"), Axis::FrameBytes, 64),
        );
        rows.push(row(
            format!("routed-{name}-bridged"),
            "64 B, 100,000 routes, one flow, against bridging",
            [plane(Ip::V4, MANY, 1, ""), bridging(Stream::new())],
            Target::RatioAtLeast(0.85),
        ));
        rows.push(row(
            format!("routed-{name}-bridged-long"),
            "64 B, 100,000 routes longer than /24, one flow, against bridging",
            [arm(Kind::LanyardRouter(hook), Load::Routed(neighbour, at)), bridging(Stream::new())],
            Target::RatioAtLeast(0.85),
        ));
        rows.push(row(
            format!("routed-{name}-bridged-hosts"),
            "64 B, to 100,000 routes, against bridging random pairs of 100,000 hosts",
            [plane(Ip::V4, MANY, MANY, ""), bridging(Stream::among(MANY))],
            Target::RatioAtLeast(0.85),
        ));
        for (ip, id, title, many, note) in [
            (Ip::V4, "many", "64 B, many routes against 10, to all", 1_000_000, "1M routes"),
            (Ip::V6, "many-ipv6", "80 B, many IPv6 routes against 10, to all", 200_000, "200k routes"),
        ] {
            rows.push(row(
                format!("routed-{name}-{id}"),
                title,
                [plane(ip, many, many, note), plane(ip, 10, 10, "10 routes")],
                Target::RatioAtLeast(0.75),
            ));
        }
    }
    rows
}

/// Traffic through the hosts' own stacks.
fn stacks() -> Vec<RowPlan> {
    let tcp = |id: &str, title: &str, kind, offload, target| RowPlan {
        unit: Unit::BitsPerSecond,
        ..RowPlan::versus(id, title, kind, Kind::Bridge, Load::Tcp { offload }, target)
    };
    let ping = |id: &str, kind, target| RowPlan {
        unit: Unit::Microseconds,
        ..RowPlan::versus(id, "ICMP round trip", kind, Kind::Bridge, Load::Ping, target)
    };
    let (whole, cut) = ("TCP, one stream", "TCP, one stream, no segmentation offload");
    let wire = Kind::BareTcPeer;
    vec![
        tcp("tcp", whole, PEER, true, Target::RatioAtLeast(1.0)),
        tcp("tcp-no-offload", cut, PEER, false, Target::RatioAtLeast(1.15)),
        ping("ping", PEER, Target::RatioBelow(1.0)),
        tcp("limit-tcp", whole, wire, true, Target::None),
        tcp("limit-tcp-no-offload", cut, wire, false, Target::None),
        ping("limit-ping", wire, Target::None),
    ]
}

fn others() -> Vec<RowPlan> {
    let load = |hosts| frames(Stream::among(hosts), CountAt::Tc, 1, PortMode::Access);
    // Open vSwitch has its ports at AF_XDP, so the comparable hook of Lanyard is XDP.
    let xdp = |hosts| frames(Stream::among(hosts), CountAt::Xdp, 1, PortMode::Access);
    let title = "64 B, random pairs of 2048 hosts";
    let (tc, ovs) = (load, Kind::Ovs);
    let mut rows = Vec::new();
    for (hosts, title, least) in [(2, "64 B known unicast", 1.4), (2048, title, 8.0)] {
        let target = Target::RatioAtLeast(least);
        for (test, kind, load, target) in [
            ("ovs-xdp", XDP, xdp(hosts), target),
            ("ovs", PEER, tc(hosts), target),
            ("ovs-bridge", Kind::Bridge, tc(hosts), Target::None),
        ] {
            let row = RowPlan::versus(&format!("{test}-{hosts}"), title, kind, ovs, load, target);
            rows.push(row.at(test, Axis::Hosts, hosts));
        }
    }
    rows
}

fn lives() -> Vec<RowPlan> {
    let hitless = |id: &str, title: &str, kind, startup| {
        RowPlan::single(id, title, kind, Load::Hitless(startup), Unit::Frames, Target::NeverOver(0.0))
    };
    let again = "lost by kill -9 and restart";
    let bad = "lost by a restart with two bad lines";
    let missing = "lost by a restart without startup-config";
    let auto = Kind::Lanyard(Hook::Auto);
    let start = |id: &str, title: &str, first, target| {
        RowPlan::single(id, title, auto, Load::Start { first }, Unit::Milliseconds, target)
    };
    vec![
        hitless("hitless-tc", again, PEER, Startup::AsBefore),
        hitless("hitless-xdp", again, XDP, Startup::AsBefore),
        hitless("hitless-bad-tc", bad, PEER, Startup::BadLines),
        hitless("hitless-bad-xdp", bad, XDP, Startup::BadLines),
        hitless("hitless-missing-tc", missing, PEER, Startup::Missing),
        hitless("hitless-missing-xdp", missing, XDP, Startup::Missing),
        start("start", "run to forwarding, 48 ports", false, Target::Below(300.0)),
        start("start-first", "run to forwarding, 48 ports, first start on a kernel", true, Target::None),
        RowPlan::single(
            "memory",
            "daemon, 48 ports, 10k FDB",
            auto,
            Load::Memory,
            Unit::Megabytes,
            Target::Below(40.0),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_distinct_and_targets_fit_them() {
        let rows = all();
        let ids: BTreeSet<&str> = rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len());
        for row in &rows {
            let ratio = matches!(row.target, Target::RatioAtLeast(_) | Target::RatioBelow(_));
            assert!((1..=2).contains(&row.arms.len()), "{}", row.id);
            assert!(!ratio || row.arms.len() == 2, "{}: a ratio takes two", row.id);
            let lives = matches!(row.arms[0].load, Load::Hitless(_) | Load::Start { .. } | Load::Memory);
            assert!(!lives || matches!(row.arms[0].kind, Kind::Lanyard(_)), "{}", row.id);
        }
    }
}
