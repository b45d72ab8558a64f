//! The data about the plane: its limits, tables and trap groups, and those of a switch chip.

use serde::Serialize;

/// `show platform`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Platform {
    /// The active plane: `ebpf`, `soft` or `asic`.
    pub plane: String,
    /// True when the plane continues to forward without the daemon.
    pub survives_daemon: bool,
    /// The maximum number of ports.
    pub max_ports: u64,
    /// The maximum number of FDB entries.
    pub max_mac_addresses: u64,
    /// The chip, for the plane `asic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chip: Option<ChipState>,
    /// The limits of the plane on this machine, with their reasons.
    pub notes: Vec<String>,
}

/// The state of a switch chip.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ChipState {
    /// The platform's name.
    pub platform: String,
    /// The forwarder: `chip`, or `software` while no chip answers.
    pub forwards: &'static str,
    /// The path of frames between the CPU port and interfaces: `tun` or `kernel`.
    pub control_path: &'static str,
    /// The resource manager's strategy.
    pub manager: String,
    /// The probability that the strategy's next decision is right, 0 to 1.
    pub confidence: f64,
    /// The number of hidden routes, whose packets the software forwards.
    pub hidden_routes: u64,
    /// The diverted access lists: the chip has no room for them, and the software applies them.
    pub diverted_lists: Vec<String>,
}

/// `show platform resources`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resources {
    /// The finite tables.
    pub tables: Vec<Resource>,
    /// The strategy of the resource manager, which determines whether a change fits before it is accepted; `none` where the plane
    /// needs no resource manager.
    pub manager: String,
}

/// One finite table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// The number of entries it can hold.
    pub size: u64,
    /// The number of entries it holds.
    pub used: u64,
    /// The largest number of entries it has held.
    pub high_water: u64,
    /// The number of refused entries.
    pub refused: u64,
    /// Its memory in bytes.
    pub bytes: u64,
    /// The other tables in the same memory.
    pub shared_with: Vec<String>,
    /// The memory that an entry of each kind takes, in units of the chip; `entry` for a table that counts entries.
    pub unit: String,
    /// The policy for routes or access lists for which the table has no room; `None` for tables that are not in a chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<&'static str>,
    /// True while the table is nearly full: by default from 90 % on, until its use falls below 80 %.
    pub alarm: bool,
}

/// `show platform traps`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Traps {
    /// The trap groups.
    pub traps: Vec<Trap>,
    /// The numbers of frames trapped within the rates, by reason.
    pub reasons: Vec<TrapReason>,
}

/// A trap reason.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TrapReason {
    /// `TrapReason::name()`.
    pub reason: &'static str,
    /// The trap group that polices it.
    pub group: &'static str,
    /// The number of frames.
    pub frames: u64,
}

/// One trap group.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Trap {
    /// `TrapGroup::name()`.
    pub group: &'static str,
    /// Sustained rate in frames per second.
    pub rate_pps: u32,
    /// Bucket depth in frames.
    pub burst: u32,
    /// The rate of the group that one port may use, in frames per second.
    pub port_rate_pps: u32,
    /// Bucket depth of a port, in frames.
    pub port_burst: u32,
    /// Frames that reached the control plane.
    pub trapped: u64,
    /// Frames above the rate of their port or of the group.
    pub policed: u64,
    /// Frames within the rates that were lost on the way because a queue was full.
    pub lost: u64,
}

/// `show platform ports`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FrontPanel {
    /// The platform's name.
    pub platform: String,
    /// The ports.
    pub ports: Vec<FrontPort>,
}

/// One port of the front panel.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FrontPort {
    /// Its netdev.
    pub name: String,
    /// Its number in the chip.
    pub number: u16,
    /// The connector.
    pub connector: &'static str,
    /// Its speed in Mbit/s.
    pub speed_mbps: u32,
    /// The speeds that the port supports, in Mbit/s.
    pub speeds_mbps: Vec<u32>,
    /// True when its speed is negotiated, false when it is configured.
    pub autoneg: bool,
    /// `full` or `half`.
    pub duplex: &'static str,
    /// The forward error correction that is configured.
    pub fec: &'static str,
    /// The splits that the port supports.
    pub splits: Vec<String>,
    /// True while its wire has a link.
    pub link_up: bool,
    /// The netdev that it is connected to.
    pub wire: String,
    /// Why the port has no netdev; `null` when it has one.
    pub absent: Option<String>,
}

/// `show interfaces transceiver`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Transceivers {
    /// The transceivers of the ports that have a netdev.
    pub interfaces: Vec<Transceiver>,
}

/// The transceiver of one port.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Transceiver {
    /// The interface.
    pub interface: String,
    /// The connector.
    pub connector: &'static str,
    /// The module in the connector: `virtual cable`, or `not present` while the port has no link.
    pub module: &'static str,
    /// The netdev at the cable's other end; `None` without a cable.
    pub wire: Option<String>,
    /// The speed in Mbit/s.
    pub speed_mbps: u32,
    /// The forward error correction.
    pub fec: &'static str,
}

impl Transceivers {
    /// The transceivers of a front panel.
    #[must_use]
    pub fn of(panel: &FrontPanel) -> Self {
        let one = |port: &FrontPort| Transceiver {
            interface: port.name.clone(),
            connector: port.connector,
            module: if port.link_up { "virtual cable" } else { "not present" },
            wire: port.link_up.then(|| port.wire.clone()),
            speed_mbps: port.speed_mbps,
            fec: port.fec,
        };
        Self { interfaces: panel.ports.iter().filter(|port| port.absent.is_none()).map(one).collect() }
    }
}

/// `show platform pipeline`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pipeline {
    /// The stages, in order.
    pub stages: Vec<PipelineStage>,
}

/// One stage.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PipelineStage {
    /// Its name.
    pub stage: &'static str,
    /// The fields that it matches on.
    pub matches: &'static str,
    /// The tables that it uses, by their names in `show platform resources`.
    pub tables: Vec<String>,
}
