//! The test bed: a namespace for the sender, one for the switch and one for the receivers, joined by veth
//! pairs.
//!
//! ```text
//!  sender          switch                 sink
//!  [tx0] ========= [p0  device  p1] ===== [rx1]
//!                  [    under   p2] ===== [rx2]  ...
//!                  [    test      ]
//! ```
//!
//! Invariant: nothing here has a name outside the process, so nothing is left behind when the process ends.

use anyhow::{Context, Result, bail, ensure};
use lanyard_tester::os::{Netns, go_first};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The address of the sender in a bed for [`Traffic::Hosts`].
pub const SENDER_IP: &str = "10.255.0.1";
/// The address of the sink in a bed for [`Traffic::Hosts`].
pub const SINK_IP: &str = "10.255.0.2";

/// The most output ports of a bed.
pub const OUTPUTS_MAX: u16 = 60;

/// The kind of traffic that a bed is prepared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Frames of the generator. They leave by XDP, and the kernel drops a frame that XDP sends into a veth
    /// unless the other end runs NAPI. Therefore GRO is switched on for the switch's ports.
    Frames,
    /// As [`Traffic::Frames`], but the switch may also redirect frames by XDP, so GRO is switched on for the sender's device as
    /// well. (The sinks run NAPI because of their receiver's XDP program.)
    XdpFrames,
    /// Two hosts with addresses that use the kernel's stack. Every device stays as the kernel makes it.
    Hosts {
        /// True if segmentation offload and GRO are on at the hosts' devices.
        offload: bool,
    },
}

/// Namespaces and veth pairs, which are up and idle.
pub struct Bed {
    /// The namespace of `tx0`.
    pub sender: Netns,
    /// The namespace of the ports `p0`, `p1`... and of the device under test.
    pub switch: Netns,
    /// The namespace of `rx1`, `rx2`...
    pub sink: Netns,
    /// The number of ports besides `p0`, 1 to [`OUTPUTS_MAX`].
    pub outputs: u16,
    traffic: Traffic,
}

impl Bed {
    /// Makes the namespaces and `1 + outputs` veth pairs, ready for `traffic`.
    ///
    /// # Errors
    /// Without root, `ip` or `ethtool`.
    pub fn new(outputs: u16, traffic: Traffic) -> Result<Self> {
        ensure!((1..=OUTPUTS_MAX).contains(&outputs), "{outputs} output ports: 1-{OUTPUTS_MAX}");
        let bed =
            Self { sender: Netns::new()?, switch: Netns::new()?, sink: Netns::new()?, outputs, traffic };
        bed.join_ports()?;
        match traffic {
            Traffic::Frames | Traffic::XdpFrames => {
                for port in bed.ports() {
                    set_features(&bed.switch, &port, &["gro", "on"])?;
                }
                if traffic == Traffic::XdpFrames {
                    set_features(&bed.sender, "tx0", &["gro", "on"])?;
                }
            }
            Traffic::Hosts { offload } => bed.make_hosts(offload)?,
        }
        Ok(bed)
    }

    fn join_ports(&self) -> Result<()> {
        let mut batch = String::new();
        let pairs = self.ports().into_iter().zip(
            std::iter::once(("tx0".to_owned(), &self.sender))
                .chain(self.receivers().into_iter().map(|name| (name, &self.sink))),
        );
        for (port, (far, netns)) in pairs {
            // Writing to a String cannot fail.
            let _ = writeln!(batch, "link add {port} type veth peer name {far} netns {}", netns.path());
            let _ = writeln!(batch, "link set {port} up");
        }
        self.switch.ip(&batch)?;
        self.sender.ip("link set tx0 up\n")?;
        let up: String = self.receivers().iter().map(|r| format!("link set {r} up\n")).collect();
        self.sink.ip(&up)?;
        Ok(())
    }

    /// Sets the MTU of every device, before a device under test comes up.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn set_mtu(&self, mtu: usize) -> Result<()> {
        let set = |names: &[String]| -> String {
            names.iter().map(|name| format!("link set {name} mtu {mtu}\n")).collect()
        };
        self.switch.ip(&set(&self.ports()))?;
        self.sender.ip(&set(&["tx0".to_owned()]))?;
        self.sink.ip(&set(&self.receivers()))?;
        Ok(())
    }

    fn make_hosts(&self, offload: bool) -> Result<()> {
        for (netns, device, address) in [(&self.sender, "tx0", SENDER_IP), (&self.sink, "rx1", SINK_IP)] {
            netns.ip(&format!("addr add {address}/24 dev {device}\n"))?;
            if !offload {
                set_features(netns, device, &["tso", "off", "gso", "off", "gro", "off"])?;
            }
        }
        Ok(())
    }

    /// The changes to the bed beyond what `ip link` makes, for the report.
    #[must_use]
    pub fn prepared(&self) -> Vec<String> {
        let ports = "GRO (and so NAPI) turned on at the switch's ports";
        let sender = "GRO (and so NAPI) turned on at the sender's device";
        let offloads = "TSO, GSO and GRO turned off at the hosts";
        let texts: &[&str] = match self.traffic {
            Traffic::Frames => &[ports],
            Traffic::XdpFrames => &[ports, sender],
            Traffic::Hosts { offload: true } => &[],
            Traffic::Hosts { offload: false } => &[offloads],
        };
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// `p0` and the output ports, in the switch's namespace.
    #[must_use]
    pub fn ports(&self) -> Vec<String> {
        (0..=self.outputs).map(|n| format!("p{n}")).collect()
    }

    /// The sinks' devices, `rx1`..
    #[must_use]
    pub fn receivers(&self) -> Vec<String> {
        (1..=self.outputs).map(|n| format!("rx{n}")).collect()
    }
}

/// `ethtool -K`: switches features of a device.
///
/// # Errors
/// When `ethtool` is missing or refuses.
pub fn set_features(netns: &Netns, device: &str, features: &[&str]) -> Result<()> {
    let mut args = vec!["-K", device];
    args.extend(features);
    netns.run("ethtool", &args, "").map(drop)
}

/// Makes the kernel poll `device` in NAPI threads, one per queue, pins the threads to `core`, and returns their ids.
///
/// # Errors
/// Before Linux 5.12, without such a core, or for a device without NAPI.
pub fn poll_on(netns: &Netns, device: &str, core: usize) -> Result<Vec<Pid>> {
    let name = format!("napi/{device}-");
    let before = threads_named(&name)?;
    // The files in /sys belong to the namespace that was current when /sys was mounted.
    let script = format!("mount -t sysfs none /sys && echo 1 > /sys/class/net/{device}/threaded");
    netns
        .run("unshare", &["--mount", "sh", "-c", &script], "")
        .context("threaded NAPI (Linux 5.12 or later?)")?;
    let mut cpus = CpuSet::new();
    cpus.set(core)?;
    let new: Vec<Pid> = threads_named(&name)?.difference(&before).copied().collect();
    if new.is_empty() {
        bail!("no NAPI thread for {device}");
    }
    for pid in &new {
        go_first(*pid);
        sched_setaffinity(*pid, &cpus).context("pinning a NAPI thread")?;
    }
    Ok(new)
}

fn threads_named(prefix: &str) -> Result<BTreeSet<Pid>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end between being listed and being read.
        let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.starts_with(prefix) {
            found.insert(Pid::from_raw(pid));
        }
    }
    Ok(found)
}
