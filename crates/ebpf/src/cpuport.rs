//! [`CpuPort`]: the CPU port of a switch chip inside the kernel, between the netdev where the chip sends and receives its frames
//! and the interfaces that these frames are for.
//!
//! Read first: `bpf/cpuport.bpf.c`. Invariant: programs and tables stay with the netdevs when this process ends; a later
//! process replaces them without interruption.

use crate::embedded::CPUPORT;
use crate::error::{Doing, Result};
use crate::refusal::Messages;
use lanyard_types::PortId;
use libbpf_rs::{MapCore, MapFlags, MapHandle, TC_INGRESS, TcHookBuilder};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

/// `PIPELINE` of `bpf/cpuport.bpf.c`.
const PIPELINE: u32 = 1 << 11;
/// `BPF_F_INGRESS`: the netdev receives the frame.
const RECEIVES: u32 = 1;

/// The interface of the kernel that belongs to a port of the chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// A port of the front panel: `swpN` receives the frames for it.
    Front {
        /// The ifindex of `swpN`.
        netdev: u32,
        /// The ifindex of the other end of its veth pair, which receives the frames that `swpN` sends.
        far: u32,
    },
    /// A VLAN interface or a subinterface: frames for it are sent out of the end of its veth pair with this ifindex.
    Made(u32),
}

/// The numbers of frames that were passed on, and of frames that were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// From the chip to interfaces.
    pub from_chip: u64,
    /// Dropped frames from the chip: without a valid header, or for a port without an interface.
    pub from_chip_dropped: u64,
    /// From interfaces to the chip.
    pub from_kernel: u64,
    /// Dropped frames from interfaces: without a port of the chip, or sent to other ports by the chip already.
    pub from_kernel_dropped: u64,
}

/// The programs and tables; see the module comment.
#[derive(Debug)]
pub struct CpuPort {
    to_netdev: OwnedFd,
    to_cpu: OwnedFd,
    outlets: MapHandle,
    inlets: MapHandle,
    cpu: MapHandle,
    counted: MapHandle,
    /// The key of each port's entry in `inlets`, so that the entry is removed when the port gets another interface or none.
    ends: BTreeMap<PortId, u32>,
}

impl CpuPort {
    /// Loads the programs; nothing is attached yet.
    ///
    /// # Errors
    /// When the kernel refuses them.
    pub fn load() -> Result<Self> {
        let doing = "loading the programs of the CPU port";
        let mut object = CPUPORT.load(doing)?;
        Ok(Self {
            to_netdev: object.program("cpu_to_netdev")?,
            to_cpu: object.program("netdev_to_cpu")?,
            outlets: object.map("outlets")?,
            inlets: object.map("inlets")?,
            cpu: object.map("cpu")?,
            counted: object.map("counted")?,
            ends: BTreeMap::new(),
        })
    }

    /// Sets the netdev of the CPU port, to which frames of interfaces go. To be called before [`Self::set`].
    ///
    /// # Errors
    /// When the kernel refuses the entry of the map.
    pub fn prepare(&self, ifindex: u32) -> Result<()> {
        let (key, value) = (0_u32.to_ne_bytes(), ifindex.to_ne_bytes());
        self.cpu.update(&key, &value, MapFlags::ANY).doing(|| "preparing the CPU port".into())
    }

    /// Connects a port of the chip to an interface of the kernel; `None` disconnects it.
    ///
    /// # Errors
    /// When a netdev is gone, or the kernel refuses the program there.
    pub fn set(&mut self, port: PortId, behind: Option<Behind>) -> Result<()> {
        let doing = || format!("putting port {port} behind the CPU port");
        let (outlet, inlet) = match behind {
            None => ([0, 0], None),
            Some(Behind::Front { netdev, far }) => ([netdev, RECEIVES], Some((far, u32::from(port.get())))),
            Some(Behind::Made(end)) => ([end, 0], Some((end, u32::from(port.get()) | PIPELINE))),
        };
        if let Some((ifindex, value)) = inlet {
            let (key, value) = (ifindex.to_ne_bytes(), value.to_ne_bytes());
            self.inlets.update(&key, &value, MapFlags::ANY).doing(doing)?;
            attach(&self.to_cpu, ifindex).doing(doing)?;
        }
        self.move_end(port, inlet.map(|(ifindex, _)| ifindex));
        let key = u32::from(port.get()).to_ne_bytes();
        let value: Vec<u8> = outlet.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        self.outlets.update(&key, &value, MapFlags::ANY).doing(doing)
    }

    /// Records the key of a port's entry in `inlets`, and removes its previous entry unless that is another port's by now: the
    /// kernel gives the ifindex of a removed netdev to a new one.
    fn move_end(&mut self, port: PortId, end: Option<u32>) {
        let before = match end {
            Some(end) => self.ends.insert(port, end),
            None => self.ends.remove(&port),
        };
        if let Some(before) = before.filter(|before| self.ends.values().all(|end| end != before)) {
            // The entry is missing if the map was full when it was to be written.
            let _ = self.inlets.delete(&before.to_ne_bytes());
        }
    }

    /// Attaches to the CPU port's netdev the program that passes its frames on to interfaces. To be called after [`Self::set`].
    ///
    /// # Errors
    /// When the netdev is gone, or the kernel refuses the program there.
    pub fn open(&self, ifindex: u32) -> Result<()> {
        attach(&self.to_netdev, ifindex).doing(|| "opening the CPU port".into())
    }

    /// The frames that have passed since the programs were loaded.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let count = |at: u32| {
            let bytes = self.counted.lookup(&at.to_ne_bytes(), MapFlags::ANY).ok().flatten();
            bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        Passed {
            from_chip: count(0),
            from_chip_dropped: count(1),
            from_kernel: count(2),
            from_kernel_dropped: count(3),
        }
    }
}

/// Attaches a program to TC ingress by a filter, which stays with the netdev, in place of that of an earlier process.
fn attach(program: &OwnedFd, ifindex: u32) -> std::result::Result<(), libbpf_rs::Error> {
    let ifindex = i32::try_from(ifindex).unwrap_or(-1);
    let mut builder = TcHookBuilder::new(program.as_fd());
    let mut hook = builder.ifindex(ifindex).replace(true).handle(1).priority(1).hook(TC_INGRESS);
    // The qdisc exists already where an earlier process has made it, and libbpf says so on stderr.
    let _messages = Messages::listen();
    let _ = hook.create();
    hook.attach().map(drop)
}
