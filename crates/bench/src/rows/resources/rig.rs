//! One measurement: a chip on a thread, a manager on its socket, flows on its wires.

use anyhow::{Context, Result, anyhow, ensure};
use lanyard_asic::chip::serve::{Options, Server, Stopper, Wire, listen};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::Operation;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_offload::live::Live;
use lanyard_offload::strategy::by_name;
use lanyard_offload::{Hardware, Manager, Policy};
use lanyard_pipeline::route::{Adjacency, RifAttachment, RifState, RouteTarget, Urpf};
use lanyard_pipeline::state::{PortKind, PortState};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The chip: 64K units of prefixes, in which no two routes collide.
const PLATFORM: &str = include_str!("../../../../../platforms/spectrum-like.toml");
/// The number of flows that are watched. One of them uses the last route.
const FLOWS: u32 = 20;
/// The time between two frames of a flow, which is the resolution of the outage.
const EVERY: Duration = Duration::from_millis(2);
const LIMIT: Duration = Duration::from_secs(60);
/// Units that the strategy `prefetch` fetches at a time.
const PREFETCH: u32 = 64;

/// A chip, its manager, and the far ends of its wires.
pub(super) struct Rig {
    manager: Manager<Live>,
    chip: Option<(Stopper, JoinHandle<()>)>,
    flows: UnixDatagram,
    new: UnixDatagram,
    _directory: tempfile::TempDir,
}

impl Rig {
    /// A chip with this latency, and a manager with this strategy.
    pub(super) fn up(method: &str, write_us: u32, query_us: u32) -> Result<Self> {
        let mut platform = Platform::parse(PLATFORM)?;
        platform.bus.write_us = write_us;
        platform.bus.query_us = query_us;
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("sdk.sock");
        let (mut wires, mut ends) = (BTreeMap::new(), Vec::new());
        for number in 1..=3 {
            let (near, far) = UnixDatagram::pair()?;
            far.set_read_timeout(Some(Duration::from_millis(20)))?;
            wires.insert(port(number)?, Wire::datagram(near)?);
            ends.push(far);
        }
        let options = Options {
            platform: platform.clone(),
            salt: 1,
            boot: 1,
            wires,
            plugs: BTreeMap::new(),
            faults: FaultPlan::default(),
        };
        let server = Server::new(options, listen(&socket)?)?;
        let stopper = server.stopper();
        let thread = std::thread::Builder::new().name("chip".into()).spawn(move || _ = server.run())?;
        let live = Live::connect(&socket).map_err(|error| anyhow!(error))?;
        let strategy =
            by_name(method, &platform, live.welcome().salt, PREFETCH).map_err(|error| anyhow!(error))?;
        let mut manager = Manager::new(live, strategy, Policy::Sync);
        let mut batch = Vec::new();
        for number in 1..=3 {
            manager.setup(&routed(number)?)?;
            batch.extend(hop(number)?);
        }
        // This route leads the flows to the old next hop until the longer routes are there.
        batch.push(route("11.0.0.0/8", 2)?);
        manager.request(&batch)?;
        manager.settle()?;
        let [flows, _, new] = <[UnixDatagram; 3]>::try_from(ends).map_err(|_| anyhow!("three wires"))?;
        Ok(Self { manager, chip: Some((stopper, thread)), flows, new, _directory: directory })
    }

    /// The milliseconds until all answers have arrived, and until the last flow has arrived at the new next
    /// hop.
    pub(super) fn measure(mut self, routes: u32) -> Result<(f64, f64)> {
        let watched: Vec<u32> = (1..=FLOWS).map(|flow| routes * flow / FLOWS - 1).collect();
        let done = Arc::new(AtomicBool::new(false));
        let sender = send_flows(self.flows.try_clone()?, &watched, done.clone());
        let requests: Vec<[Operation; 1]> = (0..routes)
            .map(|number| Ok([route(&format!("{}/24", net(number)), 3)?]))
            .collect::<Result<_>>()?;
        let receiver = receive_flows(self.new.try_clone()?, watched.len(), done.clone());
        let start = Instant::now();
        for request in &requests {
            self.manager.request(request)?;
        }
        self.manager.flush();
        let users = start.elapsed();
        let last = receiver.join().map_err(|_| anyhow!("the receiver panicked"))?;
        done.store(true, Ordering::Relaxed);
        sender.join().map_err(|_| anyhow!("the sender panicked"))?;
        let outage = last.context("flows did not return")?.duration_since(start);
        self.manager.settle()?;
        ensure!(self.manager.written().len() as u32 == routes + 1, "a route is missing in the chip");
        Ok((users.as_secs_f64() * 1e3, outage.as_secs_f64() * 1e3))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some((stopper, thread)) = self.chip.take() {
            stopper.stop();
            let _ = thread.join();
        }
    }
}

/// Sends a frame of each flow at a fixed interval until `done` is set.
fn send_flows(socket: UnixDatagram, flows: &[u32], done: Arc<AtomicBool>) -> JoinHandle<()> {
    let frames: Vec<Vec<u8>> = flows.iter().map(|flow| packet(*flow)).collect();
    std::thread::spawn(move || {
        while !done.load(Ordering::Relaxed) {
            for frame in &frames {
                // If the chip does not keep up, the frame is lost, as on a wire.
                let _ = socket.send(frame);
            }
            std::thread::sleep(EVERY);
        }
    })
}

/// Waits until each flow has arrived once. The thread returns the time at which the last one did.
fn receive_flows(socket: UnixDatagram, count: usize, done: Arc<AtomicBool>) -> JoinHandle<Option<Instant>> {
    std::thread::spawn(move || {
        let (mut seen, mut buffer, start) = (BTreeSet::new(), [0; 2048], Instant::now());
        while seen.len() < count && start.elapsed() < LIMIT && !done.load(Ordering::Relaxed) {
            let Ok(length) = socket.recv(&mut buffer) else { continue };
            if let Some(to) = buffer[..length].get(30..34) {
                seen.insert(to.to_vec());
            }
        }
        (seen.len() == count).then(Instant::now)
    })
}

/// Route number `n`: a /24 of 11.0.0.0/8.
fn net(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0000 + (n << 8))
}

/// An IPv4 packet to a host behind route number `n`.
fn packet(n: u32) -> Vec<u8> {
    let mut frame =
        [&mac(1).0[..], &mac(0x1ff).0[..], &[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]]
            .concat();
    frame.extend((u32::from(net(n)) + 1).to_be_bytes());
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn mac(number: u16) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 | u64::from(number))
}
fn port(number: u16) -> Result<PortId> {
    PortId::new(number).context("a port")
}

/// A routed port and its router interface.
fn routed(number: u16) -> Result<[Operation; 2]> {
    let port = port(number)?;
    let name = format!("swp{number}");
    let state = PortState { kind: PortKind::Routed, ..PortState::new(&name, 0) };
    let rif = RifState {
        name,
        vrf: VrfId::DEFAULT,
        attachment: RifAttachment::Port(port),
        mac: mac(number),
        virtual_macs: BTreeSet::new(),
        mtu: 1500,
        ipv4: true,
        ipv6: true,
        urpf_ipv4: Urpf::Off,
        urpf_ipv6: Urpf::Off,
    };
    let id = RifId::new(number).context("an interface")?;
    Ok([Operation::Port(port, Some(Box::new(state))), Operation::Rif(id, Some(Box::new(rif)))])
}

/// The next hop behind a port, and its group.
fn hop(number: u16) -> Result<[Operation; 2]> {
    let adjacency = AdjacencyId::new(number.into()).context("an adjacency")?;
    let rif = RifId::new(number).context("an interface")?;
    let group = GroupId::new(number.into()).context("a group")?;
    let hop = Adjacency { rif, mac: Some(mac(0x100 + number)) };
    Ok([Operation::Adjacency(adjacency, Some(hop)), Operation::Group(group, Some(vec![adjacency]))])
}

fn route(prefix: &str, group: u32) -> Result<Operation> {
    let group = GroupId::new(group).context("a group")?;
    Ok(Operation::Route(VrfId::DEFAULT, prefix.parse()?, Some(RouteTarget::Group(group))))
}
