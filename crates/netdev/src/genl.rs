//! Generic netlink with attributes as numbers and bytes, for the families `ethtool` and `netdev`,
//! because no crate encodes their setters.
//!
//! Read the kernel's networking/generic_netlink_howto first. Invariant: a nested attribute carries
//! NLA_F_NESTED, which these families require.

use crate::decode::attributes;
use crate::socket::{Channel, Refusal};
use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, parse_string, parse_u16, parse_u32};
use netlink_packet_generic::constants::{
    CTRL_ATTR_FAMILY_ID, CTRL_ATTR_MCAST_GROUPS, CTRL_ATTR_MCAST_GRP_ID, CTRL_ATTR_MCAST_GRP_NAME,
    GENL_HDRLEN,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

/// A request of any family.
#[derive(Debug, Clone)]
struct Raw {
    header: GenlHeader,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Raw {
    fn family_name() -> &'static str {
        // The id is resolved by name before the message is made.
        ""
    }
    fn command(&self) -> u8 {
        self.header.cmd
    }
    fn version(&self) -> u8 {
        self.header.version
    }
}

impl Emitable for Raw {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }
    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

/// An attribute with a binary value.
pub(crate) fn attribute(kind: u16, value: impl Into<Vec<u8>>) -> DefaultNla {
    DefaultNla::new(kind, value.into())
}

/// An attribute with a text value.
pub(crate) fn text(kind: u16, value: &str) -> DefaultNla {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    DefaultNla::new(kind, bytes)
}

/// A nested attribute.
pub(crate) fn nest(kind: u16, inner: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; inner.buffer_len()];
    inner.emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}

/// A generic netlink socket and the family numbers resolved so far.
#[derive(Debug)]
pub(crate) struct Generic {
    channel: Channel,
    families: HashMap<&'static str, u16>,
}

impl Generic {
    pub fn open() -> io::Result<Self> {
        let channel = Channel::open(netlink_sys::protocols::NETLINK_GENERIC)?;
        Ok(Self { channel, families: HashMap::new() })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    fn family(&mut self, name: &'static str) -> Result<u16, Refusal> {
        if let Some(id) = self.families.get(name) {
            return Ok(*id);
        }
        let nlas = vec![GenlCtrlAttrs::FamilyName(name.to_owned())];
        let request = GenlMessage::from_payload(GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas });
        let mut id = None;
        let outcome = self.channel.request(0, request, |_, payload| {
            id = attributes(payload, GENL_HDRLEN)
                .find(|nla| nla.kind() == CTRL_ATTR_FAMILY_ID)
                .and_then(|nla| parse_u16(nla.value()).ok());
        });
        match (outcome, id) {
            (Ok(()), Some(id)) => {
                self.families.insert(name, id);
                Ok(id)
            }
            (Err(refusal), _) if refusal.source.raw_os_error() != Some(libc::ENOENT) => Err(refusal),
            _ => Err(Refusal {
                source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
                extended: Some(format!("this kernel has no {name} netlink")),
            }),
        }
    }

    /// The number of a family and that of one of its multicast groups.
    pub fn group(&mut self, family: &'static str, group: &str) -> Result<(u16, u32), Refusal> {
        let id = self.family(family)?;
        let nlas = vec![GenlCtrlAttrs::FamilyName(family.to_owned())];
        let request = GenlMessage::from_payload(GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas });
        let mut found = None;
        self.channel.request(0, request, |_, payload| {
            let lists = attributes(payload, GENL_HDRLEN).filter(|nla| nla.kind() == CTRL_ATTR_MCAST_GROUPS);
            for list in lists {
                for entry in attributes(list.value(), 0) {
                    let of = |kind| attributes(entry.value(), 0).find(|nla| nla.kind() == kind);
                    let name = of(CTRL_ATTR_MCAST_GRP_NAME).and_then(|nla| parse_string(nla.value()).ok());
                    if name.as_deref() == Some(group) {
                        found = of(CTRL_ATTR_MCAST_GRP_ID).and_then(|nla| parse_u32(nla.value()).ok());
                    }
                }
            }
        })?;
        found.map(|group| (id, group)).ok_or_else(|| Refusal {
            source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            extended: Some(format!("{family} netlink has no group {group}")),
        })
    }

    /// Sends one command and hands the attributes of each answer to `each`, as bytes.
    pub fn request(
        &mut self,
        family: &'static str,
        cmd: u8,
        attributes: Vec<DefaultNla>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        let id = self.family(family)?;
        let header = GenlHeader { cmd, version: 1 };
        let message = GenlMessage::new(header, Raw { header, attributes }, id);
        self.channel.request(0, message, |kind, payload| {
            if kind == id {
                each(payload.get(GENL_HDRLEN..).unwrap_or_default());
            }
        })
    }
}
