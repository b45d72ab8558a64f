//! Settings and properties of drivers: speed, duplex, offloads, driver name, XDP features.
//!
//! Read the kernel's networking/ethtool-netlink and netlink/specs/netdev.yaml first. Invariant: a
//! property that a driver does not have is `None`, neither an error nor a guess.

use crate::decode::attributes;
use crate::error::Error;
use crate::genl::{attribute, nest, text};
use crate::socket::Refusal;
use crate::{Netdev, Result, ioctl};
use netlink_packet_core::{DefaultNla, parse_string, parse_u8, parse_u32, parse_u64};
use std::collections::HashSet;
use std::io;

/// The duplex mode of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplex {
    /// Frames go in one direction at a time.
    Half,
    /// Frames go in both directions at once.
    Full,
}

impl std::fmt::Display for Duplex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(if *self == Self::Full { "full" } else { "half" })
    }
}

/// A device's link settings; a virtual device has only a few of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Speed in Mbit/s, when known.
    pub speed_mbps: Option<u32>,
    /// Duplex, when known.
    pub duplex: Option<Duplex>,
    /// Whether autonegotiation is on.
    pub autoneg: bool,
    /// The connector: `tp`, `fibre`, `da`, `none`, `other`...
    pub port: Option<String>,
}

/// An offload of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name: `rx-gro`, `rx-vlan-hw-parse`, `tx-checksum-ip-generic`...
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether it can be changed.
    pub changeable: bool,
}

/// The XDP support of a driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpAbility {
    /// The features of the driver.
    pub features: XdpFeatures,
    /// True when a program can ask the driver for a VLAN tag that is out of band
    /// (`bpf_xdp_metadata_rx_vlan_tag`).
    pub reports_vlan_tag: bool,
}

/// NETDEV_A_DEV_XDP_FEATURES, a bit mask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    /// Runs XDP programs: ABORTED, DROP, PASS, TX.
    pub const BASIC: Self = Self(1);
    /// The driver redirects received frames.
    pub const REDIRECT: Self = Self(2);
    /// The driver transmits frames that are redirected to it (`ndo_xdp_xmit`), so it may be an egress of an
    /// XDP plane.
    pub const NDO_XMIT: Self = Self(4);
    /// AF_XDP zero copy.
    pub const XSK_ZEROCOPY: Self = Self(8);
    /// Hardware offload.
    pub const HW_OFFLOAD: Self = Self(16);
    /// The driver receives multi-buffer frames.
    pub const RX_SG: Self = Self(32);
    /// The driver transmits redirected multi-buffer frames.
    pub const NDO_XMIT_SG: Self = Self(64);

    /// True when this set contains every feature of `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The family's name and commands, linux/ethtool_netlink.h.
pub(crate) const ETHTOOL: &str = "ethtool";
const LINKINFO_GET: u8 = 2;
const LINKMODES_GET: u8 = 4;
const LINKMODES_SET: u8 = 5;
pub(crate) const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
/// ETHTOOL_A_HEADER_DEV_INDEX and _NAME, and the header itself, attribute 1 of every command.
pub(crate) const HEADER: u16 = 1;
pub(crate) const HEADER_DEV_INDEX: u16 = 1;
const HEADER_DEV_NAME: u16 = 2;
const LINKINFO_PORT: u16 = 2;
const LINKMODES_AUTONEG: u16 = 2;
const LINKMODES_SPEED: u16 = 5;
const LINKMODES_DUPLEX: u16 = 6;
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;
const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
/// The netdev family, linux/netdev.h.
pub(crate) const NETDEV: &str = "netdev";
const NETDEV_DEV_GET: u8 = 1;
pub(crate) const NETDEV_IFINDEX: u16 = 1;
const NETDEV_XDP_FEATURES: u16 = 3;
/// NETDEV_A_DEV_XDP_RX_METADATA_FEATURES, and its bit for the VLAN tag (enum netdev_xdp_rx_metadata).
const NETDEV_RX_METADATA: u16 = 5;
const RX_METADATA_VLAN_TAG: u64 = 4;

fn header(name: &str) -> DefaultNla {
    nest(HEADER, &[text(HEADER_DEV_NAME, name)])
}

/// The name and value of each bit that a bitset lists. In a bitset without a mask, listed bits are
/// set.
fn bits(bitset: &[u8]) -> Vec<(String, bool)> {
    let no_mask = attributes(bitset, 0).any(|nla| nla.kind() == BITSET_NOMASK);
    let mut bits = Vec::new();
    for list in attributes(bitset, 0).filter(|nla| nla.kind() == BITSET_BITS) {
        for bit in attributes(list.value(), 0).filter(|nla| nla.kind() == BITS_BIT) {
            let (mut name, mut value) = (None, no_mask);
            for nla in attributes(bit.value(), 0) {
                match nla.kind() {
                    BIT_NAME => name = parse_string(nla.value()).ok(),
                    BIT_VALUE => value = true,
                    _ => {}
                }
            }
            bits.extend(name.map(|name| (name, value)));
        }
    }
    bits
}

/// The name of a connector, PORT_* of linux/ethtool.h.
fn port_name(port: u8) -> &'static str {
    match port {
        0 => "tp",
        1 => "aui",
        2 => "mii",
        3 => "fibre",
        4 => "bnc",
        5 => "da",
        0xef => "none",
        _ => "other",
    }
}

/// True if the driver has no such settings.
fn unsupported(refusal: &Refusal) -> bool {
    refusal.source.raw_os_error() == Some(libc::EOPNOTSUPP)
}

impl Netdev {
    fn ethtool(&self, cmd: u8, attributes: Vec<DefaultNla>, each: impl FnMut(&[u8])) -> Result<(), Refusal> {
        self.generic.borrow_mut().request(ETHTOOL, cmd, attributes, each)
    }

    /// Reads speed, duplex, autonegotiation and connector; values that the driver does not report are `None`.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such device.
    pub fn settings(&self, name: &str) -> Result<Settings> {
        let mut settings = Settings::default();
        let modes = self.ethtool(LINKMODES_GET, vec![header(name)], |answer| {
            for nla in attributes(answer, 0) {
                let value = nla.value();
                match nla.kind() {
                    LINKMODES_AUTONEG => settings.autoneg = parse_u8(value).is_ok_and(|on| on == 1),
                    // SPEED_UNKNOWN has all bits set; some drivers report 0 instead.
                    LINKMODES_SPEED => {
                        settings.speed_mbps = parse_u32(value).ok().filter(|s| *s != 0 && *s != u32::MAX);
                    }
                    LINKMODES_DUPLEX => {
                        settings.duplex = match parse_u8(value) {
                            Ok(0) => Some(Duplex::Half),
                            Ok(1) => Some(Duplex::Full),
                            _ => None,
                        };
                    }
                    _ => {}
                }
            }
        });
        let info = self.ethtool(LINKINFO_GET, vec![header(name)], |answer| {
            let port = attributes(answer, 0).find(|nla| nla.kind() == LINKINFO_PORT);
            settings.port =
                port.and_then(|nla| parse_u8(nla.value()).ok()).map(|port| port_name(port).to_owned());
        });
        for outcome in [modes, info] {
            match outcome {
                Err(refusal) if !unsupported(&refusal) => {
                    return Err(Error::refused(format!("reading the link settings of {name}"), refusal));
                }
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Fixes speed (Mbit/s) and duplex, and turns autonegotiation off.
    ///
    /// # Errors
    /// The driver's refusal; [`Error::is_unsupported`] for one whose speed cannot be set.
    pub fn set_speed(&self, name: &str, speed_mbps: u32, duplex: Duplex) -> Result<()> {
        let wanted = vec![
            header(name),
            attribute(LINKMODES_AUTONEG, [0]),
            attribute(LINKMODES_SPEED, speed_mbps.to_ne_bytes()),
            attribute(LINKMODES_DUPLEX, [u8::from(duplex == Duplex::Full)]),
        ];
        self.ethtool(LINKMODES_SET, wanted, |_| {}).map_err(|mut refusal| {
            if unsupported(&refusal) && refusal.extended.is_none() {
                refusal.extended = Some("its driver has no speeds to choose from: enter speed auto".into());
            }
            Error::refused(format!("setting {name} to {speed_mbps} Mbit/s, {duplex} duplex"), refusal)
        })
    }

    /// Turns autonegotiation on.
    ///
    /// # Errors
    /// The driver's refusal; [`Error::is_unsupported`] if it cannot negotiate.
    pub fn set_autoneg(&self, name: &str) -> Result<()> {
        self.ethtool(LINKMODES_SET, vec![header(name), attribute(LINKMODES_AUTONEG, [1])], |_| {})
            .map_err(|refusal| Error::refused(format!("turning on autonegotiation of {name}"), refusal))
    }

    /// Every offload that the kernel knows, with its state on this device.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such device.
    pub fn features(&self, name: &str) -> Result<Vec<Feature>> {
        let (mut hardware, mut active, mut fixed) = (Vec::new(), HashSet::new(), HashSet::new());
        let set =
            |bitset: &[u8]| bits(bitset).into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
        let outcome = self.ethtool(FEATURES_GET, vec![header(name)], |answer| {
            for nla in attributes(answer, 0) {
                match nla.kind() {
                    FEATURES_HW => hardware = bits(nla.value()),
                    FEATURES_ACTIVE => active = set(nla.value()),
                    FEATURES_NOCHANGE => fixed = set(nla.value()),
                    _ => {}
                }
            }
        });
        outcome.map_err(|refusal| Error::refused(format!("reading the offloads of {name}"), refusal))?;
        let feature = |(name, changeable): (String, bool)| {
            let (on, changeable) = (active.contains(&name), changeable && !fixed.contains(&name));
            Feature { name, on, changeable }
        };
        Ok(hardware.into_iter().map(feature).collect())
    }

    /// True when the offload `feature` is on; `None` when the kernel does not know the name.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such device.
    pub fn feature(&self, name: &str, feature: &str) -> Result<Option<bool>> {
        Ok(self.features(name)?.into_iter().find(|f| f.name == feature).map(|f| f.on))
    }

    /// Switches offloads, which are given by the kernel's names.
    ///
    /// # Errors
    /// A name that the kernel does not know, or the driver's refusal. The error names the offloads that did
    /// not change; the others have changed.
    pub fn set_features(&self, name: &str, wanted: &[(&str, bool)]) -> Result<()> {
        let doing = || {
            let list: Vec<_> =
                wanted.iter().map(|(f, on)| format!("{f} {}", if *on { "on" } else { "off" })).collect();
            format!("setting {} of {name}", list.join(", "))
        };
        let list: Vec<_> = wanted
            .iter()
            .map(|(feature, on)| {
                let mut bit = vec![text(BIT_NAME, feature)];
                bit.extend(on.then(|| attribute(BIT_VALUE, [])));
                nest(BITS_BIT, &bit)
            })
            .collect();
        let request = vec![header(name), nest(FEATURES_WANTED, &[nest(BITSET_BITS, &list)])];
        self.ethtool(FEATURES_SET, request, |_| {}).map_err(|refusal| Error::refused(doing(), refusal))?;
        // The kernel accepts the request even if the driver does not follow it.
        let now = self.features(name)?;
        let missed: Vec<_> = wanted
            .iter()
            .filter(|(feature, on)| now.iter().any(|f| f.name == *feature && f.on != *on))
            .map(|(feature, _)| *feature)
            .collect();
        if missed.is_empty() {
            return Ok(());
        }
        let reason = format!("the driver does not change {}", missed.join(", "));
        Err(Error::new(doing(), io::Error::new(io::ErrorKind::Unsupported, reason)))
    }

    /// The driver's name: `veth`, `tun`, `virtio_net`...
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such device, [`Error::is_unsupported`] for a driver without a name.
    pub fn driver(&self, name: &str) -> Result<String> {
        ioctl::driver(self.generic.borrow().fd(), name)
            .map_err(|e| Error::new(format!("asking for the driver of {name}"), e))
    }

    /// True if the device is up and has a link, as its driver reports at this moment. Events come later: the kernel combines the
    /// changes of one second (`linkwatch`).
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such device, [`Error::is_unsupported`] for a driver that does not report links.
    pub fn has_link(&self, name: &str) -> Result<bool> {
        ioctl::has_link(self.generic.borrow().fd(), name)
            .map_err(|e| Error::new(format!("asking for the link of {name}"), e))
    }

    /// The XDP features of a device ([`Netdev::xdp_ability`]). A device is an egress of an XDP plane only with
    /// [`XdpFeatures::NDO_XMIT`]: a veth has it while its peer has GRO on or an XDP program.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such device, [`Error::is_unsupported`] before Linux 6.3.
    pub fn xdp_features(&self, ifindex: u32) -> Result<XdpFeatures> {
        self.xdp_ability(ifindex).map(|ability| ability.features)
    }

    /// The driver's XDP support.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such device, [`Error::is_unsupported`] before Linux 6.3.
    pub fn xdp_ability(&self, ifindex: u32) -> Result<XdpAbility> {
        let mut ability = XdpAbility::default();
        let request = vec![attribute(NETDEV_IFINDEX, ifindex.to_ne_bytes())];
        let outcome = self.generic.borrow_mut().request(NETDEV, NETDEV_DEV_GET, request, |answer| {
            let mask = |kind| {
                let nla = attributes(answer, 0).find(|nla| nla.kind() == kind);
                nla.and_then(|nla| parse_u64(nla.value()).ok()).unwrap_or(0)
            };
            ability.features = XdpFeatures(mask(NETDEV_XDP_FEATURES));
            ability.reports_vlan_tag = mask(NETDEV_RX_METADATA) & RX_METADATA_VLAN_TAG != 0;
        });
        outcome.map(|()| ability).map_err(|refusal| {
            Error::refused(format!("reading the XDP features of {}", self.label(ifindex)), refusal)
        })
    }
}
