//! Views of a switch chip.

use serde::Serialize;

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
