//! Frames that have to be routed: random destinations in many prefixes, all behind one neighbour at the other port. The
//! router is the kernel or Lanyard's plane. The routes are written to the plane directly here, because this measures
//! forwarding, not route updates.

use super::rig::{Rig, Settings};
use crate::bed::{Bed, Traffic};
use crate::dut::Hook;
use anyhow::{Context, Result, anyhow, ensure};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_ebpf::{EbpfPlane, Options};
use lanyard_pipeline::route::{Adjacency, RifAttachment, RifState, RouteChange, RouteTarget, Urpf};
use lanyard_pipeline::state::{Delivery, FdbTarget, HookChoice, PlaneState, PortKind, PortState, VlanState};
use lanyard_plane::Plane;
use lanyard_tester::os::{Netns, Pinned, wait_until};
use lanyard_tester::traffic::{CountAt, Generator, Hosts, Ip, Receiver, SIZE_MIN, SIZE_MIN_V6, Stream};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, VlanId, VrfId};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The router to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The kernel, between the ports themselves.
    Kernel,
    /// Lanyard's plane, between the VLANs of the ports.
    Plane(Hook),
}

/// The load of a [`RoutedRig`].
#[derive(Debug, Clone, Copy)]
pub struct RoutedLoad {
    /// The router.
    pub by: By,
    /// IPv4 or IPv6.
    pub ip: Ip,
    /// How many routes, 1..=4,194,304.
    pub routes: u32,
    /// The number of routes to which frames go, at random.
    pub to: u32,
    /// True if all IPv4 routes are longer than /24, like routes to single neighbours.
    pub long: bool,
}

/// Prefix number `n`. In IPv4 it is a /24, but a /28 if `long` is true and for every sixteenth `n`; in IPv6 it is a /48. An odd
/// factor scatters the prefixes over the address space, so that no two are the same. `generate.bpf.c` of lanyard-tester sends
/// to addresses in them.
fn prefix(ip: Ip, n: u32, long: bool) -> IpNet {
    let scattered = n.wrapping_mul(0x9e37_79b1);
    match ip {
        Ip::V4 => {
            let address = Ipv4Addr::from(0x1000_0000 + ((scattered & 0x3f_ffff) << 8));
            Ipv4Net::new_assert(address, if long || n % 16 == 15 { 28 } else { 24 }).into()
        }
        Ip::V6 => {
            let high = 0x2000_u128 << 112 | u128::from(scattered) << 80;
            Ipv6Net::new_assert(Ipv6Addr::from(high), 48).into()
        }
    }
}

/// Host numbers of the router at both ports, and of the neighbour.
const ROUTER: [u32; 2] = [0xff_fffd, 0xff_fffc];
const NEIGHBOUR: u32 = 1;

/// The MAC address of a host. The receiver recognises the generator's frames by a source address of this form.
fn mac(number: u32) -> MacAddr {
    let [_, a, b, c] = number.to_be_bytes();
    MacAddr([0x02, 0x4c, 0, a, b, c])
}

/// How long frames are sent before the plane's events are read. An XDP program may send to a veth port only while the plane
/// has confirmed in the last two seconds that its peer receives such frames, and reading events confirms it.
const SLICE: Duration = Duration::from_millis(100);

/// Sends frames through a router at the greatest rate, with everything on one core. The figure is the number
/// of frames per second that arrived.
pub struct RoutedRig {
    // Dropped in this order: the plane goes before its ports do.
    plane: Option<PlaneRouter>,
    generator: Generator,
    receiver: Receiver,
    bed: Bed,
    core: usize,
    window: Duration,
}

impl RoutedRig {
    /// Brings the router up with its routes.
    ///
    /// # Errors
    /// When something does not come up, or nothing arrives.
    pub fn up(settings: &Settings, load: &RoutedLoad, count_at: CountAt) -> Result<Self> {
        let traffic = if count_at == CountAt::Xdp { Traffic::XdpFrames } else { Traffic::Frames };
        let bed = Bed::new(1, traffic)?;
        let receiver = Receiver::new(&bed.sink, &bed.receivers(), count_at, false)?;
        let routes = (0..load.routes).map(|n| prefix(load.ip, n, load.long));
        let plane = match load.by {
            By::Kernel => {
                kernel_router(&bed, load.ip, routes)?;
                None
            }
            By::Plane(hook) => Some(PlaneRouter::up(&bed, hook, routes)?),
        };
        let size = if load.ip == Ip::V4 { SIZE_MIN } else { SIZE_MIN_V6 };
        let (src, dst) = (Hosts::one(5), Hosts::one(ROUTER[0]));
        let stream = Stream { src, dst, ip: load.ip, prefixes: load.to, ..Stream::new() }.size(size);
        let generator = Generator::new(&bed.sender, "tx0", &stream)?;
        let mut rig = Self { plane, generator, receiver, bed, core: settings.core, window: settings.window };
        wait_until("the first frame through the router", Duration::from_secs(10), || {
            let before = rig.receiver.arrivals()?.frames;
            rig.generator.send(256)?;
            Ok(rig.receiver.arrivals()?.frames >= before + 256)
        })?;
        Ok(rig)
    }
}

impl Rig for RoutedRig {
    fn round(&mut self) -> Result<f64> {
        let _core = Pinned::to(self.core)?;
        let before = self.receiver.arrivals()?.frames;
        let mut sent_for = Duration::ZERO;
        while sent_for < self.window {
            if let Some(router) = &mut self.plane {
                router.read_events()?;
            }
            sent_for += self.generator.run_for(SLICE.min(self.window - sent_for))?;
        }
        Ok((self.receiver.arrivals()?.frames - before) as f64 / sent_for.as_secs_f64())
    }

    fn prepared(&self) -> Vec<String> {
        self.bed.prepared()
    }

    fn detail(&self) -> String {
        self.plane.as_ref().map_or_else(String::new, PlaneRouter::detail)
    }
}

fn kernel_router(bed: &Bed, ip: Ip, routes: impl Iterator<Item = IpNet>) -> Result<()> {
    let sysctl = |name: &str, value: &str| bed.switch.sysctl(name, value);
    sysctl("net/ipv4/ip_forward", "1")?;
    sysctl("net/ipv4/conf/all/rp_filter", "0")?;
    let mut batch = String::new();
    for (port, router) in bed.ports().iter().zip(ROUTER) {
        sysctl(&format!("net/ipv4/conf/{port}/rp_filter"), "0")?;
        let _ = writeln!(batch, "link set {port} address {}", colons(mac(router)));
    }
    let via = if ip == Ip::V4 { "10.2.0.1" } else { "2001:2:0:2::1" };
    if ip == Ip::V4 {
        batch.push_str("addr add 10.1.255.254/16 dev p0\naddr add 10.2.255.254/16 dev p1\n");
    } else {
        sysctl("net/ipv6/conf/all/forwarding", "1")?;
        for port in bed.ports() {
            sysctl(&format!("net/ipv6/conf/{port}/disable_ipv6"), "0")?;
        }
        batch.push_str(
            "addr add 2001:2:0:1::fffe/64 dev p0 nodad\naddr add 2001:2:0:2::fffe/64 dev p1 nodad\n",
        );
    }
    let _ = writeln!(batch, "neigh add {via} lladdr {} dev p1 nud permanent", colons(mac(NEIGHBOUR)));
    routes.for_each(|prefix| _ = writeln!(batch, "route add {prefix} via {via} dev p1"));
    bed.switch.ip(&batch).context("a router's routes")?;
    Ok(())
}

fn colons(mac: MacAddr) -> String {
    mac.0.map(|byte| format!("{byte:02x}")).join(":")
}

/// The plane in this process, routing between VLANs 11 and 12.
struct PlaneRouter {
    plane: EbpfPlane,
    netns: Netns,
    routes: usize,
    written_in: Duration,
    _dir: TempDir,
}

/// The number of instances made by this process, from which each gets a name of its own.
static INSTANCES: AtomicU32 = AtomicU32::new(0);

impl PlaneRouter {
    fn up(bed: &Bed, hook: Hook, routes: impl Iterator<Item = IpNet>) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("lanyard-bench").tempdir()?;
        let instance = format!("benchr{}-{}", std::process::id(), INSTANCES.fetch_add(1, Ordering::Relaxed));
        let mut batch = String::new();
        for vlan in VLANS {
            let _ = writeln!(batch, "link add ly{vlan} type veth peer name vlan{vlan}");
            let _ = writeln!(batch, "link set ly{vlan} up\nlink set vlan{vlan} up");
        }
        bed.switch.ip(&batch)?;
        let state = state(bed, hook)?;
        let options = Options { state_dir: dir.path().to_owned(), ..Options::new(&instance) };
        let netns = bed.switch.try_clone()?;
        let plane = {
            let _inside = netns.enter()?;
            EbpfPlane::open(&options)?
        };
        let mut router = Self { plane, netns, routes: 0, written_in: Duration::ZERO, _dir: dir };
        {
            let _inside = router.netns.enter()?;
            router.plane.apply(&state)?;
        }
        router.write(routes)?;
        Ok(router)
    }

    fn write(&mut self, routes: impl Iterator<Item = IpNet>) -> Result<()> {
        let (adjacency, group) = (AdjacencyId::new(1), GroupId::new(1));
        let (adjacency, group) = adjacency.zip(group).context("numbers")?;
        let next = Adjacency { rif: rif(1)?, mac: Some(mac(NEIGHBOUR)) };
        let mut changes = vec![
            RouteChange::Adjacency(adjacency, Some(next)),
            RouteChange::Group(group, Some(vec![adjacency])),
        ];
        let target = Some(RouteTarget::Group(group));
        changes.extend(routes.map(|prefix| RouteChange::Route(VrfId::DEFAULT, prefix, target)));
        self.routes = changes.len() - 2;
        let start = Instant::now();
        let refused = self.plane.route(&changes);
        self.written_in = start.elapsed();
        match refused.into_iter().next() {
            None => Ok(()),
            Some((at, why)) => Err(anyhow!("{:?}: {why}", changes[at])),
        }
    }

    /// Reads what the plane reports, as the switch does while it runs.
    fn read_events(&mut self) -> Result<()> {
        let _inside = self.netns.enter()?;
        self.plane.poll_events(&mut |_| {});
        Ok(())
    }

    fn detail(&self) -> String {
        format!("{} routes, written in {} ms", self.routes, self.written_in.as_millis())
    }
}

impl Drop for PlaneRouter {
    fn drop(&mut self) {
        let entered = self.netns.enter();
        if let Err(why) = self.plane.detach() {
            eprintln!("lanyard bench: a plane may be left behind: {why}");
        }
        drop(entered);
    }
}

const VLANS: [u16; 2] = [11, 12];

fn rif(at: usize) -> Result<RifId> {
    RifId::new(at as u16 + 1).context("an interface's number")
}

fn state(bed: &Bed, hook: Hook) -> Result<PlaneState> {
    let (choice, delivery) = match hook {
        Hook::Tc => (HookChoice::Tc, Delivery::Device),
        Hook::TcPeer => (HookChoice::Tc, Delivery::Peer),
        Hook::Xdp => (HookChoice::Xdp, Delivery::Auto),
        Hook::Auto | Hook::Soft => (HookChoice::Auto, Delivery::Auto),
    };
    ensure!(hook != Hook::Soft, "the soft plane is not measured here");
    let mut state = PlaneState::default();
    for (at, (id, name)) in VLANS.into_iter().zip(bed.ports()).enumerate() {
        let vlan = VlanId::new(id).context("a VLAN")?;
        let port = |n: usize| PortId::new(n as u16).context("a port");
        state.vlans.insert(vlan, VlanState::default());
        let access = PortState::access(&name, bed.switch.ifindex(&name)?, vlan);
        state.ports.insert(port(at + 1)?, PortState { hook: choice, delivery, ..access });
        let name = format!("ly{id}");
        let svi = PortState::access(&name, bed.switch.ifindex(&name)?, vlan);
        let (kind, hook) = (PortKind::Svi(vlan), HookChoice::Tc);
        let delivery = Delivery::Device;
        let svi = PortState { kind, hook, delivery, learning: false, flood_unicast: false, ..svi };
        state.ports.insert(port(at + 11)?, svi);
        let rif_state = RifState {
            name: format!("vlan{id}"),
            vrf: VrfId::DEFAULT,
            attachment: RifAttachment::Vlan { vlan, up: port(at + 11)? },
            mac: mac(ROUTER[at]),
            virtual_macs: BTreeSet::new(),
            mtu: 1500,
            ipv4: true,
            ipv6: true,
            urpf_ipv4: Urpf::Off,
            urpf_ipv6: Urpf::Off,
            while_confirmed: false,
        };
        state.rifs.insert(rif(at)?, rif_state);
        if at == 1 {
            state.fdb.insert((vlan, mac(NEIGHBOUR)), FdbTarget::Static(port(at + 1)?));
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_all_different() {
        for (ip, count) in [(Ip::V4, 1_000_000), (Ip::V6, 200_000)] {
            let all: BTreeSet<IpNet> = (0..count).map(|n| prefix(ip, n, false)).collect();
            assert_eq!(all.len(), count as usize);
        }
    }
}
