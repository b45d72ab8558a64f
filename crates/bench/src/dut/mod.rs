//! Devices under test. Each driver brings one up on the ports of a [`Bed`] and takes it down when dropped.

mod kernel;
mod lanyard;
mod ovs;
mod wire;

pub use lanyard::{Executable, Lanyard, PortMode};

use crate::bed::Bed;
use anyhow::Result;

/// A running device under test. Dropping it takes it down.
pub trait Device {
    /// What the device says about itself once it is up, for the report: version, hook in use. May be empty.
    fn detail(&self) -> String {
        String::new()
    }
}

/// Which device under test.
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
    /// Open vSwitch: netdev datapath, AF_XDP ports.
    Ovs,
}

/// How Lanyard is told to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// `hook tc`, `delivery device`.
    Tc,
    /// `hook tc`, `delivery peer`.
    TcPeer,
    /// `hook xdp`.
    Xdp,
    /// Left to Lanyard.
    Auto,
}

impl Kind {
    /// Its name in reports and on the command line.
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
            Self::Ovs => "ovs",
        }
    }

    /// Why this machine cannot run it, or `None`.
    #[must_use]
    pub fn unavailable(self, lanyard: &Executable) -> Option<String> {
        match self {
            Self::Lanyard(_) => lanyard.unavailable(),
            Self::Ovs => ovs::unavailable(),
            _ => None,
        }
    }

    /// Brings it up on every port of `bed`. Receivers are attached before: what XDP may redirect to depends on them.
    ///
    /// # Errors
    /// When it does not come up; what was made of it is gone again.
    pub fn up(self, bed: &Bed, lanyard: &Executable, ports: PortMode) -> Result<Box<dyn Device>> {
        Ok(match self {
            Self::Bridge => Box::new(kernel::Bridge::up(bed)?),
            Self::BareTc => Box::new(wire::Wire::up(bed, wire::Means::Tc)?),
            Self::BareTcPeer => Box::new(wire::Wire::up(bed, wire::Means::TcPeer)?),
            Self::BareXdp => Box::new(wire::Wire::up(bed, wire::Means::Xdp)?),
            Self::Lanyard(hook) => Box::new(Lanyard::up(bed, lanyard, hook, ports)?),
            Self::Ovs => Box::new(ovs::Ovs::up(bed)?),
        })
    }
}
