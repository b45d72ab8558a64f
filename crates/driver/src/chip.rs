//! The chip's process: starts it or joins a running one, and provides the pipeline that replaces a chip that has ended.
//!
//! Invariants: a chip that answers is joined and never started twice. A chip that this driver starts is in a process
//! group of its own and outlives the driver.

use crate::lower::{self, SETUP};
use lanyard_asic::chip::serve::{self, Server, Stopper};
use lanyard_asic::object::{Object, TableKind, Width};
use lanyard_asic::platform::{Buffering, Memory, Platform, Table};
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::sdk::{Client, SdkError};
use lanyard_offload::manager::removal;
use lanyard_types::PortId;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time until a chip that was started must answer.
const START_WITHIN: Duration = Duration::from_secs(10);
/// The interval of attempts during that time.
const POLL: Duration = Duration::from_millis(5);
/// The longest time until a chip that was asked to end has ended.
const END_WITHIN: Duration = Duration::from_secs(5);
/// The longest time that a chip may take for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The paths of a chip, and how it is started.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its SDK socket.
    pub socket: PathBuf,
    /// The file that stores the process id of a chip that a driver has started.
    pub pid_file: PathBuf,
    /// The file to which a chip that a driver starts writes its output.
    pub log: PathBuf,
    /// The program that has the command `asic`; `None` if no chip is to be started.
    pub program: Option<PathBuf>,
    /// The platform file.
    pub platform: PathBuf,
    /// `PORT=NETDEV`, as `lanyard asic --wire` takes them.
    pub wires: Vec<String>,
}

/// Connects to the chip of this platform, and starts one if none answers. Returns also the process that was started.
///
/// # Errors
/// When the chip that answers has another platform, or the one that was started does not answer.
pub(crate) fn join(place: &Place, platform: &Platform) -> Result<(Client, Option<Child>), String> {
    if let Ok(client) = Client::connect(&place.socket, "switch") {
        return checked(client, platform, &place.socket).map(|client| (client, None));
    }
    let Some(program) = &place.program else {
        return Err(format!("{}: no chip answers", place.socket.display()));
    };
    let wrong = |error: io::Error| format!("starting the chip: {}: {error}", program.display());
    let log = fs::OpenOptions::new().create(true).append(true).open(&place.log).map_err(wrong)?;
    let mut command = Command::new(program);
    command.arg("asic").arg("--platform").arg(&place.platform).arg("--socket").arg(&place.socket);
    place.wires.iter().for_each(|wire| _ = command.arg("--wire").arg(wire));
    // In a process group of its own, it does not receive signals that interrupt the driver.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().map_err(wrong)?;
    let deadline = Instant::now() + START_WITHIN;
    loop {
        if let Ok(client) = Client::connect(&place.socket, "switch") {
            let _ = fs::write(&place.pid_file, format!("{}\n", child.id()));
            return checked(client, platform, &place.socket).map(|client| (client, Some(child)));
        }
        let ended = child.try_wait().map_err(wrong)?;
        if ended.is_some() || Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            let printed = fs::read_to_string(&place.log).unwrap_or_default();
            let last = printed.lines().last().unwrap_or("it printed nothing").to_owned();
            return Err(format!("the chip does not answer at {}: {last}", place.socket.display()));
        }
        std::thread::sleep(POLL);
    }
}

fn checked(mut client: Client, platform: &Platform, socket: &Path) -> Result<Client, String> {
    client.set_patience(PATIENCE);
    let found = &client.welcome().platform;
    if *found != platform.name {
        return Err(format!(
            "{}: the chip there is of platform {found}, and the platform file says {}: end that chip, or start with its file",
            socket.display(),
            platform.name
        ));
    }
    Ok(client)
}

/// Ends a chip that a driver has started, and removes its files. One that was started by hand stays.
pub fn end(place: &Place) {
    let pid = fs::read_to_string(&place.pid_file).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(pid) = pid.filter(|pid| is_chip(*pid)) {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        let deadline = Instant::now() + END_WITHIN;
        // A child of this process must be waited for before it disappears; other processes disappear by
        // themselves.
        while is_chip(pid.as_raw()) && Instant::now() < deadline {
            let _ = nix::sys::wait::waitpid(pid, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
            std::thread::sleep(POLL);
        }
        let _ = fs::remove_file(&place.socket);
    }
    let _ = fs::remove_file(&place.pid_file);
}

/// True when the process with this id is a chip: ids are reused.
fn is_chip(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(b"asic".as_slice()))
}

/// The pipeline in this process, connected to the wires of a chip that has ended. It uses the SDK like a chip; its
/// tables are large and its bus takes no time.
#[derive(Debug)]
pub(crate) struct Software {
    pub(crate) socket: PathBuf,
    stopper: Stopper,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    found: Arc<AtomicBool>,
}

/// The interval of checks whether a chip answers again.
const REJOIN: Duration = Duration::from_millis(500);
/// The longest time that a chip may take to answer such a check.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

impl Software {
    /// Starts the pipeline on a thread of its own, with its SDK at `socket`. Another thread calls `found` whenever a chip answers
    /// at the socket `watched`.
    ///
    /// # Errors
    /// When the system has no socket or no thread left.
    pub(crate) fn start(
        platform: &Platform,
        plugs: BTreeMap<PortId, String>,
        socket: &Path,
        watched: PathBuf,
        found: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let _ = fs::remove_file(socket);
        let listener = serve::listen(socket)?;
        let random = RandomState::new();
        let options = serve::Options {
            platform: unlimited(platform),
            salt: random.hash_one(0_u8),
            boot: random.hash_one(1_u8) | 1,
            wires: BTreeMap::new(),
            plugs,
            faults: FaultPlan::default(),
        };
        let server = Server::new(options, listener)?;
        let stopper = server.stopper();
        let run = move || drop(server.run());
        let thread = std::thread::Builder::new().name("lanyard-takeover".into()).spawn(run)?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_found = Arc::new(AtomicBool::new(false));
        let mut software = Self {
            socket: socket.to_owned(),
            stopper,
            threads: vec![thread],
            stop: stop.clone(),
            found: is_found.clone(),
        };
        let watch = move || {
            while !stop.load(Ordering::Acquire) {
                if Client::connect_within(&watched, "probe", ANSWERS_WITHIN).is_ok() {
                    is_found.store(true, Ordering::Release);
                    found();
                }
                std::thread::park_timeout(REJOIN);
            }
        };
        software.threads.push(std::thread::Builder::new().name("lanyard-rejoin".into()).spawn(watch)?);
        Ok(software)
    }

    /// Returns true once after each time that a chip has answered. A chip that hangs still accepts connections, so waiting for
    /// its answer is left to the thread that checks for it.
    pub(crate) fn takes_found(&self) -> bool {
        self.found.swap(false, Ordering::AcqRel)
    }
}

impl Drop for Software {
    fn drop(&mut self) {
        self.stopper.stop();
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

/// Removes everything except the global settings from a chip. A chip that hung for some time still has its old entries, and the
/// switch may have removed some of them since. Ports are removed before the states of trees that block them.
pub(crate) fn empty(client: &mut Client) -> Result<(), SdkError> {
    let of_trees = |operation: &Operation| matches!(operation, Operation::Stp(..) | Operation::Watched(..));
    let removals = client.entries()?.iter().rev().filter_map(removal).collect::<Vec<Operation>>();
    let (trees, others): (Vec<_>, Vec<_>) = removals.into_iter().partition(of_trees);
    for part in [others, trees].into_iter().flat_map(|list| lower::transactions(list, SETUP)) {
        client.commit(&part)?;
    }
    Ok(())
}

/// The platform name of [`Software`].
pub(crate) const SOFTWARE: &str = "software";

/// A platform with the front panel of `platform` and tables as large as this machine allows.
pub(crate) fn unlimited(platform: &Platform) -> Platform {
    let table = |name: &str, kind: TableKind, size: u32| {
        let objects = Object::ALL.into_iter().filter(|object| object.fits(kind));
        // TCAMs hold prefixes too, but each object must have only one table.
        let objects = objects.filter(|object| kind != TableKind::Tcam || !object.fits(TableKind::Lpm));
        let (ways, banks, moves) = if kind == TableKind::Exact { (16, 4, 4) } else { (1, 1, 0) };
        let holds = objects.map(|object| (object, Width::new(1))).collect();
        Table { name: name.into(), kind, size, ways, banks, moves, holds }
    };
    let tables = vec![
        table("addresses", TableKind::Exact, 1 << 18),
        table("routes", TableKind::Lpm, 1 << 21),
        table("rules", TableKind::Tcam, 1 << 17),
        table("objects", TableKind::Index, 1 << 18),
    ];
    let size = tables.iter().map(|table| table.size).sum();
    let memory = vec![Memory { name: "memory".into(), size, granularity: 1, table: tables }];
    let mut software = Platform { name: SOFTWARE.into(), memory, ..platform.clone() };
    (software.bus.write_us, software.bus.query_us, software.bus.bulk) = (0, 0, 4096);
    (software.buffer.at, software.buffer.queue) = (Buffering::Ingress, 4096);
    software
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_faults::Running;
    use lanyard_pipeline::generate;
    use lanyard_pipeline::route::RouteChange;
    use lanyard_pipeline::state::PlaneState;
    use lanyard_plane::changes;

    /// A random state with every kind of entry, as operations.
    fn entries(seed: u64) -> Vec<Operation> {
        let mut state = generate::State::new(seed).without_access_lists();
        // A chip has no private VLANs.
        state.plane.vlans.values_mut().for_each(|vlan| vlan.shares = None);
        let list = lower::operations(changes(&PlaneState::default(), &state.plane));
        let routes = state.routes.iter().filter_map(|change| match change.clone() {
            RouteChange::Adjacency(id, new) => Some(Operation::Adjacency(id, new)),
            RouteChange::Group(id, new) => Some(Operation::Group(id, new)),
            RouteChange::Route(vrf, prefix, new) => Some(Operation::Route(vrf, prefix, new)),
            RouteChange::VrfGone(_) => None,
        });
        let mut rng = generate::Rng::new(seed);
        let groups = (0..20).map(|_| Operation::from(&generate::mdb_change(&mut rng, &state)));
        list.trees.into_iter().chain(list.setup).chain(routes).chain(groups).chain(list.channels).collect()
    }

    #[test]
    fn an_emptied_chip_holds_its_global_settings_only() {
        let platform = Platform::parse(include_str!("../../../platforms/uft-like.toml")).expect("a platform");
        for seed in 1..=8 {
            let directory = tempfile::tempdir().expect("a directory");
            let socket = directory.path().join("asic.sock");
            let chip = Running::start(&platform, socket.clone(), seed);
            let mut client = Client::connect(&socket, "test").expect("a chip");
            let refused =
                entries(seed).into_iter().filter(|entry| client.commit(std::slice::from_ref(entry)).is_err());
            println!("seed {seed}: {} entries do not fit", refused.count());
            let held = client.entries().expect("the entries").len();
            assert!(held > 20, "seed {seed}: {held} entries");
            empty(&mut client).expect("it is emptied");
            let left = client.entries().expect("the entries");
            assert!(left.iter().all(|entry| matches!(entry, Operation::Global(_))), "seed {seed}: {left:?}");
            chip.end();
        }
    }
}
