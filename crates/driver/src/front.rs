//! The netdevs of the front panel: `swpN`, created from the platform file as the kernel's driver of a real chip creates
//! them from firmware.
//!
//! Invariants: a netdev belongs to this driver when its alias says so. An existing netdev with the name of a port that
//! does not becomes that port's wire, and gets its name back when the panel is removed. A port has the platform's MAC
//! address at every start.

use lanyard_asic::platform::{Front, Platform};
use lanyard_netdev::{Link, Netdev, Tap, sysctl};
use lanyard_types::PortId;
use std::collections::BTreeMap;

/// The largest MTU of a port in bytes: a jumbo frame of the CPU port, minus its Ethernet header and two tags.
const MTU: u32 = 1500;

/// A port's netdev.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub(crate) ifindex: u32,
}

/// The netdevs, and the open ends of their TAPs.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) ports: BTreeMap<PortId, Port>,
    mark: String,
}

/// The alias of a netdev that is a port of this instance.
fn mark(instance: &str) -> String {
    format!("lanyard-port:{instance}")
}
/// The alias of a netdev that was found under a port's name.
fn wire_mark(instance: &str) -> String {
    format!("lanyard-wire:{instance}")
}

impl Panel {
    /// Creates the missing netdevs, takes over those of an earlier run, and removes those that are not in the platform.
    /// Returns the panel and the open TAP of each port.
    ///
    /// # Errors
    /// When a netdev cannot be created; the error names the port and the reason.
    pub(crate) fn open(
        netdev: &Netdev,
        platform: &Platform,
        instance: &str,
    ) -> Result<(Self, BTreeMap<PortId, Tap>), String> {
        let mark = mark(instance);
        let found = netdev.links().map_err(|error| error.to_string())?;
        let found: BTreeMap<&str, &Link> = found.iter().map(|link| (link.name.as_str(), link)).collect();
        let front: Vec<Front> = platform.front().collect();
        let is_ours = |link: &&Link| link.alias.as_deref() == Some(mark.as_str());
        let stray =
            found.values().copied().filter(is_ours).filter(|link| !front.iter().any(|p| p.name == link.name));
        for link in stray {
            let _ = netdev.delete(link.ifindex);
        }
        let mut panel = Self { ports: BTreeMap::new(), mark: mark.clone() };
        let mut taps = BTreeMap::new();
        for port in front {
            let there = found.get(port.name.as_str()).copied();
            if let Some(link) = there.filter(|link| !is_ours(link)) {
                make_wire(netdev, link, &port, instance)?;
            }
            let tap = panel.make(netdev, &port).map_err(|why| format!("port {}: {why}", port.name))?;
            taps.insert(port.id, tap);
        }
        Ok((panel, taps))
    }

    fn make(&mut self, netdev: &Netdev, port: &Front) -> Result<Tap, String> {
        let text = |error: lanyard_netdev::Error| error.to_string();
        let tap = Tap::open(&port.name).map_err(|error| format!("making a TAP netdev: {error}"))?;
        let link = netdev.link(&port.name).map_err(text)?;
        let ifindex = link.ifindex;
        if link.alias.as_deref() != Some(self.mark.as_str()) {
            netdev.set_mac(ifindex, port.mac).map_err(text)?;
            netdev.set_mtu(ifindex, MTU).map_err(text)?;
            netdev.set_alias(ifindex, &self.mark).map_err(text)?;
            // A port without configuration must send nothing by itself.
            let _ = sysctl::set_disable_ipv6(&port.name, true);
        }
        // The port is down until its wire reports a link.
        tap.set_carrier(false).map_err(|error| format!("setting the carrier: {error}"))?;
        self.ports.insert(port.id, Port { ifindex });
        Ok(tap)
    }

    /// Removes the netdevs, and gives wires their names back.
    ///
    /// # Errors
    /// The first netdev that could not be removed; the others are removed.
    pub(crate) fn remove(&mut self, netdev: &Netdev, instance: &str) -> Result<(), String> {
        let mut failure = None;
        for port in std::mem::take(&mut self.ports).into_values() {
            if let Err(error) = netdev.delete(port.ifindex)
                && !error.is_gone()
            {
                failure = failure.or_else(|| Some(error.to_string()));
            }
        }
        let wires = netdev.links().unwrap_or_default();
        let wires = wires.iter().filter(|link| link.alias.as_deref() == Some(wire_mark(instance).as_str()));
        for link in wires {
            if let Some(name) = link.name.strip_suffix("-wire") {
                let renamed =
                    netdev.set_up(link.ifindex, false).and_then(|()| netdev.rename(link.ifindex, name));
                let _ = netdev.set_alias(link.ifindex, "");
                failure = failure.or_else(|| renamed.err().map(|error| error.to_string()));
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Renames a netdev that has a port's name, to the name of that port's wire.
fn make_wire(netdev: &Netdev, link: &Link, port: &Front, instance: &str) -> Result<(), String> {
    let wrong = |error: lanyard_netdev::Error| {
        format!(
            "port {}: a netdev of that name is there, and cannot become its wire {}: {error}",
            port.name,
            port.wire()
        )
    };
    netdev.set_up(link.ifindex, false).map_err(wrong)?;
    netdev.rename(link.ifindex, &port.wire()).map_err(wrong)?;
    netdev.set_alias(link.ifindex, &wire_mark(instance)).map_err(wrong)
}
