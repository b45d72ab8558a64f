//! The neighbours of all ports.
//!
//! Invariant: there are at most [`MAX_PER_PORT`] neighbours of a port and [`MAX_NEIGHBOURS`] in all. A neighbour
//! for which there is no room is counted (tooManyNeighbors, IEEE 802.1AB-2016, 9.2.7.7.5) and never replaces a
//! known one.

use crate::cdp::Cdpdu;
use crate::pdu::{Identifier, Lldpdu};
use lanyard_types::{MacAddr, PortId};

/// Most neighbours of a port, of both protocols together.
pub const MAX_PER_PORT: usize = 32;
/// Most neighbours of the switch.
pub const MAX_NEIGHBOURS: usize = 2048;

/// A discovery protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// LLDP.
    Lldp,
    /// CDP.
    Cdp,
}

impl Protocol {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lldp => "lldp",
            Self::Cdp => "cdp",
        }
    }
}

/// The information that a neighbour has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Info {
    /// By LLDP.
    Lldp(Box<Lldpdu>),
    /// By CDP.
    Cdp(Box<Cdpdu>),
}

/// The identity of a neighbour (the MSAP identifier, 8.2).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Lldp(Identifier, Identifier),
    Cdp(String, String),
}

impl Info {
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Lldp(pdu) => Key::Lldp(pdu.chassis_id.clone(), pdu.port_id.clone()),
            Self::Cdp(pdu) => Key::Cdp(pdu.device_id.clone(), pdu.port_id.clone()),
        }
    }
    /// The protocol.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        match self {
            Self::Lldp(_) => Protocol::Lldp,
            Self::Cdp(_) => Protocol::Cdp,
        }
    }
    /// The time to live in seconds.
    #[must_use]
    pub fn ttl_s(&self) -> u16 {
        match self {
            Self::Lldp(pdu) => pdu.ttl_s,
            Self::Cdp(pdu) => pdu.ttl_s.into(),
        }
    }
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The port that receives its frames.
    pub port: PortId,
    /// The source address of its last frame.
    pub source: MacAddr,
    /// The information that it has sent.
    pub info: Info,
    /// When its information ends (rxInfoTTL), in milliseconds.
    pub expires_ms: u64,
}

/// The result of processing a neighbour's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    Changed,
    Same,
    NoRoom,
}

/// The table of neighbours.
#[derive(Debug, Clone, Default)]
pub(crate) struct Neighbours {
    list: Vec<Neighbour>,
}

impl Neighbours {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Neighbour> {
        self.list.iter()
    }

    /// Enters the information of a frame into the table, if there is room.
    pub(crate) fn take(&mut self, now: u64, port: PortId, source: MacAddr, info: Info) -> Taken {
        let expires_ms = now + u64::from(info.ttl_s()) * 1000;
        let key = info.key();
        if let Some(known) = self.list.iter_mut().find(|known| known.port == port && known.info.key() == key)
        {
            let changed = known.info != info;
            *known = Neighbour { port, source, info, expires_ms };
            return if changed { Taken::Changed } else { Taken::Same };
        }
        let at_port = self.list.iter().filter(|known| known.port == port).count();
        if at_port >= MAX_PER_PORT || self.list.len() >= MAX_NEIGHBOURS {
            return Taken::NoRoom;
        }
        self.list.push(Neighbour { port, source, info, expires_ms });
        Taken::New
    }

    /// Removes and returns the neighbours for which `gone` is true.
    pub(crate) fn remove(&mut self, gone: impl FnMut(&mut Neighbour) -> bool) -> Vec<Neighbour> {
        self.list.extract_if(.., gone).collect()
    }

    /// When the first neighbour expires, in milliseconds; `None` if there is none.
    pub(crate) fn next(&self) -> Option<u64> {
        self.list.iter().map(|known| known.expires_ms).min()
    }
}
