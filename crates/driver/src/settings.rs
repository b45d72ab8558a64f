//! The chip's settings: carried out, kept for the next run, and shown.
//!
//! Invariant: a change takes effect whole, or is refused with everything as before.

use crate::kept;
use crate::partitions;
use crate::plane::AsicPlane;
use crate::policies;
use crate::routes::Feedback;
use crate::splits;
use lanyard_asic::object::TableKind;
use lanyard_asic::platform::{Connector, Platform};
use lanyard_asic::sdk::message::{Answer, PortInfo, Request};
use lanyard_ebpf::CpuPort;
use lanyard_offload::Hardware;
use lanyard_offload::strategy::by_name;
use lanyard_plane::{
    Breakout, ChipPort, ChipSettings, ChipStatus, ChipTable, ControlPath, PlaneError, Strategy,
};
use lanyard_types::PortId;
use std::collections::{BTreeMap, BTreeSet};

/// The number of units that the strategy `prefetch` fetches by default.
const PREFETCH: u32 = 64;

/// A step from some settings to others; a step from `next` to `was` undoes it.
type Step = fn(&mut AsicPlane, was: &ChipSettings, next: &ChipSettings) -> Result<(), PlaneError>;

/// What the chip or the kernel may refuse of a change, in this order.
const STEPS: [Step; 5] = [
    AsicPlane::set_sizes,
    AsicPlane::change_strategy,
    AsicPlane::change_panel,
    |plane, _, next| plane.set_speeds(next),
    AsicPlane::change_thresholds,
];

fn refused(text: String) -> PlaneError {
    PlaneError::Invalid(text)
}

impl AsicPlane {
    /// See [`lanyard_plane::Plane::configure_chip`].
    pub(crate) fn configure(
        &mut self,
        next: &ChipSettings,
        configured: &BTreeSet<String>,
    ) -> Result<(), PlaneError> {
        let was = self.settings.clone();
        if *next == was {
            return Ok(());
        }
        let (policy, kinds) = policies::lower(&self.platform, next).map_err(refused)?;
        partitions::check(&self.platform, next).map_err(refused)?;
        let front = splits::active(&self.platform, next).map_err(refused)?;
        splits::check_configured(&self.front_ports, &front, configured).map_err(refused)?;
        if next.control_path == ControlPath::Kernel {
            // Tried first, so that a kernel that refuses the programs changes nothing.
            CpuPort::load()?;
        }
        for (at, step) in STEPS.iter().enumerate() {
            let Err(error) = step(self, &was, next) else { continue };
            for step in STEPS[..=at].iter().rev() {
                // Errors are ignored, so that the other steps are undone all the same.
                let _ = step(self, next, &was);
            }
            return Err(error);
        }
        if next.sizes != was.sizes && !self.by_software() {
            // Only now: a table that has grown and was filled could not get its size back.
            self.manager.fill();
        }
        let feedback = if next.feedback { Feedback::On } else { Feedback::Off };
        policies::apply(&mut self.manager, policy, &kinds);
        self.routing.set_feedback(&mut self.manager, feedback);
        self.report_moves();
        self.settings = next.clone();
        kept::write(&self.options.run.join(kept::FILE), next);
        Ok(())
    }

    /// Gives the resource manager another strategy, if it changes.
    fn change_strategy(&mut self, was: &ChipSettings, next: &ChipSettings) -> Result<(), PlaneError> {
        if next.strategy == was.strategy { Ok(()) } else { self.set_strategy(next.strategy) }
    }

    /// Rebuilds the front panel if its ports or the control path change.
    fn change_panel(&mut self, was: &ChipSettings, next: &ChipSettings) -> Result<(), PlaneError> {
        let front = splits::active(&self.platform, next).map_err(refused)?;
        let is_same = front.iter().map(|port| &port.name).eq(self.front_ports.iter().map(|port| &port.name));
        if is_same && next.control_path == was.control_path {
            return Ok(());
        }
        self.front_ports = front;
        self.arrange(next.control_path)
    }

    /// Sets the thresholds of alarms.
    fn change_thresholds(&mut self, was: &ChipSettings, next: &ChipSettings) -> Result<(), PlaneError> {
        partitions::set_thresholds(&mut self.manager, was, next).map_err(refused)
    }

    pub(crate) fn set_strategy(&mut self, strategy: Strategy) -> Result<(), PlaneError> {
        let salt = self.manager.hardware().welcome().salt;
        let made = by_name(strategy.name(), &self.platform, salt, units(strategy)).map_err(refused)?;
        self.manager.set_strategy(made).map_err(|error| PlaneError::System {
            what: "changing the resource manager".into(),
            cause: error.to_string(),
        })
    }

    /// Gives tables the sizes that are configured.
    fn set_sizes(&mut self, was: &ChipSettings, next: &ChipSettings) -> Result<(), PlaneError> {
        let (was, next) = (&was.sizes, &next.sizes);
        // While the software plane forwards nothing is set: the sizes are written to a chip when it answers again.
        if was == next || self.by_software() {
            return Ok(());
        }
        let wanted = partitions::wanted(&self.platform, was, next);
        partitions::resize(&mut self.manager, &wanted).map_err(|refusal| refused(refusal.to_string()))
    }

    /// Sets the speeds of the ports: the configured one, otherwise that of the split, or the greatest possible one.
    pub(crate) fn set_speeds(&mut self, next: &ChipSettings) -> Result<(), PlaneError> {
        for port in &self.front_ports.clone() {
            let configured = next.ports.get(&port.name).and_then(|port| port.speed_mbps);
            let speed = configured.unwrap_or(port.speed_mbps);
            if self.speeds.get(&port.id) != Some(&speed) {
                self.ask_number(&Request::Speed(port.id, speed))?;
                self.speeds.insert(port.id, speed);
            }
        }
        Ok(())
    }

    /// See [`lanyard_plane::Plane::chip`].
    pub(crate) fn status(&mut self) -> ChipStatus {
        let infos = match self.ask(&Request::Ports) {
            Ok(Answer::Ports(ports)) => ports.into_iter().map(|port| (port.port, port)).collect(),
            _ => BTreeMap::new(),
        };
        let alarms: BTreeSet<String> = self
            .manager
            .resources()
            .into_iter()
            .filter(|resource| resource.alarm)
            .map(|resource| resource.usage.path)
            .collect();
        ChipStatus {
            platform: self.platform.name.clone(),
            up: !self.by_software(),
            control_path: if self.kernel.is_some() { ControlPath::Kernel } else { ControlPath::Tun },
            strategy: self.settings.strategy,
            confidence: self.manager.strategy().confidence(),
            hidden_routes: self.manager.hidden() as u64,
            diverted_lists: self.manager.diverted().map(|(_, name)| name.to_owned()).collect(),
            tables: tables(&self.platform, &self.settings, &alarms),
            ports: self.ports(&infos),
        }
    }

    fn ports(&self, infos: &BTreeMap<PortId, PortInfo>) -> Vec<ChipPort> {
        let plugs = self.plugs();
        let active: BTreeSet<&str> = self.front_ports.iter().map(|port| port.name.as_str()).collect();
        let parts = self.platform.parts().filter(|(_, part)| active.contains(part.name.as_str()));
        let whole =
            self.platform.ports().zip(self.platform.front()).map(|((number, _), port)| (number, port));
        let mut ports: Vec<ChipPort> = Vec::new();
        for (number, port) in whole.chain(parts) {
            let Some((_, row)) = self.platform.ports().find(|(other, _)| *other == number) else { continue };
            let is_part = port.id.get() != number;
            let settings = self.settings.ports.get(&port.name).copied().unwrap_or_default();
            let absent = (!active.contains(port.name.as_str())).then(|| match settings.breakout {
                Some(split) => format!("split into {split}"),
                None => "taken away by its neighbour's split".to_owned(),
            });
            let info = infos.get(&port.id);
            let splits = row.split.iter().filter(|_| !is_part);
            ports.push(ChipPort {
                connector: match row.connector {
                    Connector::Rj45 => "rj45",
                    Connector::Sfp => "sfp",
                    Connector::Qsfp => "qsfp",
                    Connector::QsfpDd => "qsfpdd",
                },
                speed_mbps: info.map_or(port.speed_mbps, |info| info.speed_mbps),
                speeds_mbps: splits::speeds(&self.platform, &port.name),
                splits: splits
                    .map(|split| Breakout { parts: split.parts, speed_mbps: split.speed })
                    .collect(),
                link_up: info.is_some_and(|info| info.up) && absent.is_none(),
                wire: plugs.get(&port.id).cloned().unwrap_or_default(),
                number: port.id.get(),
                name: port.name,
                settings,
                absent,
            });
        }
        ports
    }

    /// Rebuilds the front panel with the ports of `front_ports` and the control path `path`.
    fn arrange(&mut self, path: ControlPath) -> Result<(), PlaneError> {
        let kernel = match path {
            ControlPath::Tun => None,
            ControlPath::Auto => CpuPort::load().ok(),
            ControlPath::Kernel => Some(CpuPort::load()?),
        };
        self.rebuild_panel(kernel)
    }
}

/// The units that a strategy fetches at a time.
pub(crate) fn units(strategy: Strategy) -> u32 {
    if let Strategy::Prefetch(units) = strategy { units } else { PREFETCH }
}

fn tables(platform: &Platform, settings: &ChipSettings, alarms: &BTreeSet<String>) -> Vec<ChipTable> {
    let mut all = Vec::new();
    for memory in &platform.memory {
        for table in &memory.table {
            let path = format!("{}/{}", memory.name, table.name);
            all.push(ChipTable {
                kind: match table.kind {
                    TableKind::Exact => "exact",
                    TableKind::Lpm => "lpm",
                    TableKind::Tcam => "tcam",
                    TableKind::Index => "index",
                },
                holds: table.holds.iter().map(|(object, width)| (object.name(), width.units())).collect(),
                policy: policies::default_of(table.holds.keys().copied())
                    .map(|default| settings.policies.get(&path).copied().unwrap_or(default)),
                alarm: alarms.contains(&path),
                path,
            });
        }
    }
    all
}
