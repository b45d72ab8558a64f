//! Devices under test. Each driver brings one up on the ports of a [`Bed`] and takes it down when dropped.

mod command;
mod filter;
mod impaired;
mod kernel;
mod lanyard;
mod ovs;
mod router;
mod wire;

pub use command::Commanded;
pub use impaired::{Impaired, Impairment};
pub use lanyard::{Executable, Lanyard, PortMode, Startup, VICTIM};

use crate::bed::Bed;
use anyhow::{Context, Result, bail};
use lanyard_netdev::Netdev;
use lanyard_tester::bpf;
use lanyard_tester::os::Netns;

/// A running device under test. Dropping it takes it down.
pub trait Device {
    /// The device's description of itself for the report: version, hook in use. May be empty.
    fn detail(&self) -> String {
        String::new()
    }

    /// The methods that reset the device; `None` for a device that can only be taken down.
    fn resets(&mut self) -> Option<&mut dyn Resets> {
        None
    }

    /// The MAC address to which a router's hosts send frames at a port, numbered from 0; `None` for a bridge.
    fn router_mac(&self, _port: usize) -> Option<[u8; 6]> {
        None
    }
}

/// A device that can be reset while frames go through it.
pub trait Resets: Send {
    /// Resets the device without an orderly shutdown (RFC 6201). Called from another thread than the one that
    /// brought it up.
    ///
    /// # Errors
    /// When it does not come back.
    fn reset(&mut self) -> Result<()>;

    /// Completes the reset on the thread that created the device.
    ///
    /// # Errors
    /// When it does not come back.
    fn after_reset(&mut self) -> Result<()>;
}

/// The addresses of a router under test at its port `number`: IPv4 with a /16, IPv6 with a /64. Hosts whose
/// numbers begin with `number + 1` are behind that port. The router has an address of the same range, near
/// its end.
#[must_use]
pub fn router_address(number: usize) -> (String, String) {
    (format!("10.{}.255.254", number + 1), format!("2001:2:0:{:x}::fffe", number + 1))
}

fn mac_of(netns: &Netns, device: &str) -> Result<[u8; 6]> {
    let _inside = netns.enter()?;
    let link = Netdev::open().context("netlink")?.link(device).with_context(|| device.to_owned())?;
    Ok(link.mac.0)
}

/// The kinds of devices under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's bridge.
    Bridge,
    /// `bpf_redirect` from TC: the limit of a switch on TC.
    BareTc,
    /// `bpf_redirect_peer` from TC: the limit where the far end is in another namespace.
    BareTcPeer,
    /// A device map in XDP: the limit of a switch on XDP.
    BareXdp,
    /// Lanyard.
    Lanyard(Hook),
    /// The kernel as a router.
    Router,
    /// Lanyard, routing between VLAN interfaces: one for each port.
    LanyardRouter(Hook),
    /// Open vSwitch: netdev datapath, AF_XDP ports.
    Ovs,
}

/// How Lanyard is configured to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// `hook tc`, `delivery device`.
    Tc,
    /// `hook tc`, `delivery peer`.
    TcPeer,
    /// `hook xdp`.
    Xdp,
    /// Lanyard chooses.
    Auto,
    /// The soft plane, which forwards in the daemon's process.
    Soft,
}

impl Kind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::Lanyard(Hook::Auto),
        Self::Lanyard(Hook::Tc),
        Self::Lanyard(Hook::TcPeer),
        Self::Lanyard(Hook::Xdp),
        Self::Lanyard(Hook::Soft),
        Self::Bridge,
        Self::Ovs,
        Self::BareTc,
        Self::BareTcPeer,
        Self::BareXdp,
        Self::LanyardRouter(Hook::Auto),
        Self::LanyardRouter(Hook::Tc),
        Self::LanyardRouter(Hook::Xdp),
        Self::Router,
    ];

    /// The device of this name.
    ///
    /// # Errors
    /// When there is none; the error lists the names.
    pub fn named(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|kind| kind.name() == name) {
            Some(kind) => Ok(kind),
            None => {
                let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
                bail!("no device `{name}`: {}", names.join(", "))
            }
        }
    }

    /// True for devices that route between their ports instead of bridging.
    #[must_use]
    pub const fn routes(self) -> bool {
        matches!(self, Self::Router | Self::LanyardRouter(_))
    }

    /// True for devices that redirect frames from XDP. Receivers and senders can then use XDP as well.
    #[must_use]
    pub const fn in_xdp(self) -> bool {
        matches!(self, Self::BareXdp | Self::Lanyard(Hook::Xdp) | Self::LanyardRouter(Hook::Xdp))
    }

    /// True for devices that forward in threads or programs of their own and not where frames are
    /// received.
    #[must_use]
    pub const fn own_threads(self) -> bool {
        matches!(self, Self::Ovs | Self::Lanyard(Hook::Soft) | Self::LanyardRouter(Hook::Soft))
    }

    /// The device's name in reports and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::BareTc => "bare-tc",
            Self::BareTcPeer => "bare-tc-peer",
            Self::BareXdp => "bare-xdp",
            Self::Lanyard(Hook::Tc) => "lanyard-tc",
            Self::Lanyard(Hook::TcPeer) => "lanyard-tc-peer",
            Self::Lanyard(Hook::Xdp) => "lanyard-xdp",
            Self::Lanyard(Hook::Auto) => "lanyard",
            Self::Lanyard(Hook::Soft) => "lanyard-soft",
            Self::Router => "router",
            Self::LanyardRouter(Hook::Auto) => "lanyard-router",
            Self::LanyardRouter(Hook::Tc) => "lanyard-router-tc",
            Self::LanyardRouter(Hook::TcPeer) => "lanyard-router-tc-peer",
            Self::LanyardRouter(Hook::Xdp) => "lanyard-router-xdp",
            Self::LanyardRouter(Hook::Soft) => "lanyard-router-soft",
            Self::Ovs => "ovs",
        }
    }

    /// The reason why this machine cannot run the device, or `None` if it can.
    #[must_use]
    pub fn unavailable(self, lanyard: &Executable) -> Option<String> {
        let needs_bpf = match self {
            Self::Lanyard(hook) | Self::LanyardRouter(hook) => hook != Hook::Soft,
            Self::Ovs | Self::BareTc | Self::BareTcPeer | Self::BareXdp => true,
            Self::Bridge | Self::Router => false,
        };
        if let Some(why) = bpf::refused().filter(|_| needs_bpf) {
            return Some(why.to_owned());
        }
        match self {
            Self::Lanyard(_) | Self::LanyardRouter(_) => lanyard.unavailable(),
            Self::Ovs => ovs::unavailable(),
            _ => None,
        }
    }

    /// Starts the device on every port of `bed`. Receivers must be attached before, because they
    /// determine what XDP may redirect to.
    ///
    /// # Errors
    /// When the device does not come up; what was created of it has been removed by then.
    pub fn up(self, bed: &Bed, lanyard: &Executable, ports: PortMode) -> Result<Box<dyn Device>> {
        Ok(match self {
            Self::Bridge => Box::new(kernel::Bridge::up(bed, ports)?),
            Self::BareTc => Box::new(wire::Wire::up(bed, wire::Means::Tc)?),
            Self::BareTcPeer => Box::new(wire::Wire::up(bed, wire::Means::TcPeer)?),
            Self::BareXdp => Box::new(wire::Wire::up(bed, wire::Means::Xdp)?),
            Self::Lanyard(hook) => Box::new(Lanyard::up(bed, lanyard, hook, ports)?),
            Self::LanyardRouter(hook) => Box::new(Lanyard::up(bed, lanyard, hook, PortMode::Routed)?),
            Self::Router => Box::new(router::Router::up(bed)?),
            Self::Ovs => Box::new(ovs::Ovs::up(bed)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()).ok(), Some(kind));
        }
        let why = Kind::named("brigde").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains("lanyard-tc-peer, lanyard-xdp"), "{why}");
    }
}
