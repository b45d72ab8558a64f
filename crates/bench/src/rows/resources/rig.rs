//! One measurement: a chip on a thread, a manager on its socket, flows on its wires.

use super::Figures;
use super::network::{EVERY, PREFETCH, beginning, packet, platform, port, routed, wanted, watched};
use anyhow::{Context, Result, anyhow, ensure};
use lanyard_asic::chip::serve::{Options, Server, Stopper, Wire, listen};
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::Request;
use lanyard_asic::sdk::{Client, Operation};
use lanyard_offload::live::Live;
use lanyard_offload::strategy::by_name;
use lanyard_offload::{Hardware, Manager, Policy};
use lanyard_types::VrfId;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest outage that is waited for.
const LIMIT: Duration = Duration::from_secs(300);
/// The number of accesses over which the latency of the bus is averaged.
const ACCESSES: u32 = 200;

/// A chip, its manager, and the far ends of its wires.
pub(super) struct Rig {
    manager: Manager<Live>,
    chip: Option<(Stopper, JoinHandle<()>)>,
    flows: UnixDatagram,
    new: UnixDatagram,
    accesses: (f64, f64),
    _directory: tempfile::TempDir,
}

impl Rig {
    /// A chip with these latencies in microseconds, and a manager with the strategy `method`.
    pub(super) fn up(method: &str, write_us: u32, query_us: u32) -> Result<Self> {
        let platform = platform(write_us, query_us)?;
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
        for number in 1..=3 {
            manager.setup(&routed(number)?)?;
        }
        manager.request(&beginning()?)?;
        manager.settle()?;
        let accesses = accesses(&socket)?;
        let [flows, _, new] = <[UnixDatagram; 3]>::try_from(ends).map_err(|_| anyhow!("three wires"))?;
        Ok(Self { manager, chip: Some((stopper, thread)), flows, new, accesses, _directory: directory })
    }

    /// Measures the cost of `routes` routes.
    pub(super) fn measure(mut self, routes: u32) -> Result<Figures> {
        let watched = watched(routes);
        let done = Arc::new(AtomicBool::new(false));
        let sender = send_flows(self.flows.try_clone()?, &watched, done.clone());
        let requests: Vec<[Operation; 1]> = (0..routes).map(wanted).collect::<Result<_>>()?;
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
        Ok(Figures {
            users_ms: users.as_secs_f64() * 1e3,
            outage_ms: outage.as_secs_f64() * 1e3,
            write_us: self.accesses.0,
            query_us: self.accesses.1,
        })
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

/// Microseconds of one write and one query, each awaited before the next, on a bus that is idle otherwise.
fn accesses(socket: &std::path::Path) -> Result<(f64, f64)> {
    let mut client = Client::connect(socket, "latency")?;
    let mut per = |request: &Request| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..ACCESSES {
            client.ask(request)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(ACCESSES))
    };
    // The removal of a route that is not there is a write, too.
    let absent = Operation::Route(VrfId::DEFAULT, "10.0.0.0/8".parse()?, None);
    Ok((per(&Request::Commit(vec![absent]))?, per(&Request::Usage)?))
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
