//! The netdevs of the front panel: `swpN`, made from the platform as the kernel's driver of a real chip makes them from
//! firmware; and the netdev of the CPU port.
//!
//! With the control path `tun` a port is a TAP netdev. With `kernel` it is one end of a veth pair, whose far end `swpN-cpu`
//! belongs to the programs of the CPU port; a third pair is the CPU port itself. Both kinds stay, with their addresses, when this
//! process ends.
//!
//! Invariants: a netdev belongs to this driver when its alias says so. An existing netdev with the name of a port that
//! does not becomes that port's wire, and gets its name back when the panel is removed. A port has the platform's MAC
//! address at every start.

use lanyard_asic::platform::Front;
use lanyard_netdev::{Link, Netdev, Tap, Veth, sysctl};
use lanyard_types::PortId;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// MTU of a port in bytes until it is configured.
const MTU: u32 = 1500;
/// MTU of the netdevs between the chip and the ports, large enough for every frame that a port accepts.
const INNER_MTU: u32 = 10_000;

/// A port's netdev.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    /// The index of `swpN`.
    pub(crate) ifindex: u32,
    /// The index of the far end of its veth pair; `None` for a TAP netdev.
    pub(crate) far: Option<u32>,
}

/// The netdevs of the front panel and of the CPU port.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) ports: BTreeMap<PortId, Port>,
    /// The veth pair of the CPU port, with the control path `kernel`: the index of the kernel's end, and the name of the chip's
    /// end.
    pub(crate) cpu: Option<(u32, String)>,
    instance: String,
}

/// The alias of a netdev that is a port of this instance.
fn mark(instance: &str) -> String {
    format!("lanyard-port:{instance}")
}
/// The alias of a netdev that was found under a port's name.
fn wire_mark(instance: &str) -> String {
    format!("lanyard-wire:{instance}")
}
/// The name of the far end of a port's veth pair.
fn far_end(name: &str) -> String {
    format!("{name}-cpu")
}
/// The name of the netdev of the CPU port. It depends on the instance, because several instances may share a namespace.
fn cpu_name(instance: &str) -> String {
    let mut hasher = DefaultHasher::new();
    instance.hash(&mut hasher);
    format!("lycpu{:06x}", hasher.finish() & 0xff_ffff)
}

fn text(error: lanyard_netdev::Error) -> String {
    error.to_string()
}

impl Panel {
    /// Makes the netdevs that are missing, takes over those of an earlier run, and removes those that `front` does not have.
    /// Returns the panel and, without `in_kernel`, the open end of each port's TAP.
    ///
    /// # Errors
    /// When a netdev cannot be created; the error names the port and the reason.
    pub(crate) fn open(
        netdev: &Netdev,
        front: &[Front],
        instance: &str,
        in_kernel: bool,
    ) -> Result<(Self, BTreeMap<PortId, Tap>), String> {
        let mut panel = Self { ports: BTreeMap::new(), cpu: None, instance: instance.to_owned() };
        let taps = panel.arrange(netdev, front, in_kernel)?;
        Ok((panel, taps))
    }

    /// As [`Panel::open`], for an existing panel: ports that stay as they are keep their netdevs.
    ///
    /// # Errors
    /// See [`Panel::open`].
    pub(crate) fn arrange(
        &mut self,
        netdev: &Netdev,
        front: &[Front],
        in_kernel: bool,
    ) -> Result<BTreeMap<PortId, Tap>, String> {
        let mark = mark(&self.instance);
        let kind = if in_kernel { "veth" } else { "tun" };
        let links = netdev.links().map_err(text)?;
        let is_ours = |link: &&Link| link.alias.as_deref() == Some(mark.as_str());
        for link in links.iter().filter(is_ours) {
            let listed = front.iter().any(|port| port.name == link.name || far_end(&port.name) == link.name);
            let is_cpu = link.name.starts_with(&cpu_name(&self.instance));
            if link.kind.as_deref() != Some(kind) || !(listed || is_cpu) {
                // An error is ignored: a pair may have been deleted already with its other end.
                let _ = netdev.delete(link.ifindex);
            }
        }
        let mut taps = BTreeMap::new();
        let mut ports = BTreeMap::new();
        self.cpu = in_kernel.then(|| self.make_cpu(netdev)).transpose()?;
        for port in front {
            let wrong = |why: String| format!("port {}: {why}", port.name);
            if let Some(link) = netdev.link(&port.name).ok().filter(|link| !is_ours(&link)) {
                make_wire(netdev, &link, port, &self.instance)?;
            }
            if in_kernel {
                ports.insert(port.id, self.make_pair(netdev, port).map_err(wrong)?);
            } else if let Some(known) = self.ports.get(&port.id).filter(|known| known.far.is_none())
                && netdev.link_by_index(known.ifindex).is_ok()
            {
                // Its TAP is open already.
                ports.insert(port.id, *known);
            } else {
                let (made, tap) = self.make_tap(netdev, port).map_err(wrong)?;
                ports.insert(port.id, made);
                taps.insert(port.id, tap);
            }
        }
        self.ports = ports;
        Ok(taps)
    }

    fn make_tap(&self, netdev: &Netdev, port: &Front) -> Result<(Port, Tap), String> {
        let tap = Tap::open(&port.name).map_err(|error| format!("making a TAP netdev: {error}"))?;
        let link = netdev.link(&port.name).map_err(text)?;
        self.dress(netdev, &link, Some(port))?;
        // The carrier follows the link of the port's wire, which is not known yet.
        tap.set_carrier(false).map_err(|error| format!("setting the carrier: {error}"))?;
        Ok((Port { ifindex: link.ifindex, far: None }, tap))
    }

    fn make_pair(&self, netdev: &Netdev, port: &Front) -> Result<Port, String> {
        let far = far_end(&port.name);
        if netdev.link(&port.name).is_err() || netdev.link(&far).is_err() {
            let pair = Veth { name: &port.name, peer: &far, ..Veth::default() };
            netdev.create_veth(&pair).map_err(text)?;
        }
        let (near, far) = (netdev.link(&port.name).map_err(text)?, netdev.link(&far).map_err(text)?);
        self.dress(netdev, &far, None)?;
        self.dress(netdev, &near, Some(port))?;
        Ok(Port { ifindex: near.ifindex, far: Some(far.ifindex) })
    }

    /// Marks a new netdev, and gives it its address and MTU; `port` is `None` for the far end of a pair and for the CPU port.
    fn dress(&self, netdev: &Netdev, link: &Link, port: Option<&Front>) -> Result<(), String> {
        let mark = mark(&self.instance);
        if link.alias.as_deref() == Some(mark.as_str()) {
            return Ok(());
        }
        if let Some(port) = port {
            netdev.set_mac(link.ifindex, port.mac).map_err(text)?;
        }
        netdev.set_mtu(link.ifindex, if port.is_some() { MTU } else { INNER_MTU }).map_err(text)?;
        // With IPv6 the kernel would send neighbour discovery at ports that are not configured, and at the far ends of pairs.
        let _ = sysctl::set_disable_ipv6(&link.name, true);
        netdev.set_alias(link.ifindex, &mark).map_err(text)
    }

    fn make_cpu(&self, netdev: &Netdev) -> Result<(u32, String), String> {
        let name = cpu_name(&self.instance);
        let far = format!("{name}-c");
        if netdev.link(&name).is_err() || netdev.link(&far).is_err() {
            netdev.create_veth(&Veth { name: &name, peer: &far, ..Veth::default() }).map_err(text)?;
        }
        let (near, end) = (netdev.link(&name).map_err(text)?, netdev.link(&far).map_err(text)?);
        for link in [&near, &end] {
            self.dress(netdev, link, None)?;
            netdev.set_up(link.ifindex, true).map_err(text)?;
        }
        Ok((near.ifindex, far))
    }

    /// Removes the netdevs, and gives wires their names back.
    ///
    /// # Errors
    /// The error of the first netdev that could not be removed; the others are removed.
    pub(crate) fn remove(&mut self, netdev: &Netdev) -> Result<(), String> {
        let mut failure = None;
        let ports = std::mem::take(&mut self.ports).into_values().map(|port| port.ifindex);
        let cpu = self.cpu.take().map(|(ifindex, _)| ifindex);
        for ifindex in ports.chain(cpu) {
            if let Err(error) = netdev.delete(ifindex)
                && !error.is_gone()
            {
                failure = failure.or_else(|| Some(error.to_string()));
            }
        }
        let wires = netdev.links().unwrap_or_default();
        let mark = wire_mark(&self.instance);
        for link in wires.iter().filter(|link| link.alias.as_deref() == Some(mark.as_str())) {
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
