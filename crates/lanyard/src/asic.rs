//! `lanyard asic`: runs a virtual switch chip as a process of its own.

use clap::Args;
use lanyard_asic::chip::serve::{End, Options, Server, Stopper, Wire, listen};
use lanyard_asic::platform::{Front, Platform};
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_types::PortId;
use nix::sys::signal::{SigSet, Signal};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct AsicArgs {
    /// The platform file, which describes the chip and its front panel
    #[arg(long, value_name = "FILE")]
    platform: PathBuf,
    /// The chip's SDK socket [default: /run/lanyard/asic.sock, or below XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Connect a front-panel port to a netdev of this namespace: swp1=eth0; may be given more than once [default: a port
    /// is connected to the netdev swpN-wire whenever there is one]
    #[arg(long, value_name = "PORT=NETDEV", value_parser = wire)]
    wire: Vec<(String, String)>,
    /// A fault plan: operations that fail, are slow, or end the chip (docs/sdk.md)
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// The salt of the hash tables; the same salt gives the same collisions [default: random]
    #[arg(long, value_name = "NUMBER")]
    salt: Option<u64>,
}

fn wire(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((port, netdev)) if !port.is_empty() && !netdev.is_empty() => Ok((port.into(), netdev.into())),
        _ => Err(format!("{text:?} is not PORT=NETDEV, as in swp1=eth0")),
    }
}

/// Runs the chip until it ends.
///
/// # Errors
/// An error in the platform file or the fault plan, or a socket or netdev that cannot be opened.
pub(crate) fn run(args: &AsicArgs) -> Result<ExitCode, String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let named = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let platform = Platform::parse(&read(&args.platform)?).map_err(|error| named(&args.platform, &error))?;
    let faults = match &args.faults {
        Some(path) => FaultPlan::parse(&read(path)?).map_err(|error| named(path, &error))?,
        None => FaultPlan::default(),
    };
    let front: Vec<Front> = platform.front().chain(platform.parts().map(|(_, part)| part)).collect();
    let mut wires = BTreeMap::new();
    let mut plugs: BTreeMap<PortId, String> = front.iter().map(|port| (port.id, port.wire())).collect();
    for (name, netdev) in &args.wire {
        let port = front.iter().find(|port| port.name == *name);
        let port = port.ok_or_else(|| format!("{name} is no port of platform {}", platform.name))?.id;
        let wire = Wire::netdev(netdev).map_err(|error| error.to_string())?;
        if wires.insert(port, wire).is_some() {
            return Err(format!("{name} is connected twice"));
        }
        plugs.insert(port, netdev.clone());
    }
    let socket = args.socket.clone().unwrap_or_else(default_socket);
    if let Some(directory) = socket.parent() {
        fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
    }
    let listener = listen(&socket).map_err(|error| named(&socket, &error))?;
    let random = RandomState::new();
    let ready = format!(
        "lanyard: chip {} ready: {} ports, {}",
        platform.name,
        platform.ports().count(),
        socket.display()
    );
    let options = Options {
        platform,
        salt: args.salt.unwrap_or_else(|| random.hash_one(0_u8)),
        boot: random.hash_one(1_u8) | 1,
        wires,
        plugs,
        faults,
    };
    let server = Server::new(options, listener).map_err(|error| error.to_string())?;
    let own = inode(&socket);
    stop_on_signals(server.stopper()).map_err(|error| format!("signals: {error}"))?;
    let _ = writeln!(std::io::stderr(), "{ready}");
    let end = server.run();
    // If this chip's socket was removed, another chip may have taken its path.
    if own.is_some() && inode(&socket) == own {
        let _ = fs::remove_file(&socket);
    }
    match end.map_err(|error| format!("the chip: {error}"))? {
        End::Stopped => Ok(ExitCode::SUCCESS),
        End::Died => Err("the chip has ended, as its fault plan demands".into()),
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|found| found.ino())
}

/// SIGTERM and SIGINT stop the chip, so that it removes its socket. SIGHUP ends nothing, because a chip forwards on when the
/// terminal from which it was started is closed. The signals are blocked before other threads exist, and one thread waits for them.
fn stop_on_signals(stopper: Stopper) -> Result<(), String> {
    let mut signals = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
    signals.thread_block().map_err(|error| error.to_string())?;
    let wait = move || {
        while signals.wait() == Ok(Signal::SIGHUP) {}
        stopper.stop();
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map_err(|error| error.to_string())?;
    Ok(())
}

fn default_socket() -> PathBuf {
    let root = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !nix::unistd::geteuid().is_root());
    root.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("lanyard/asic.sock")
}
