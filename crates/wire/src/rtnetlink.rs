//! Routing netlink's routes and next-hop objects: checked views of the messages that the kernel and routing daemons
//! send.
//!
//! Read first: rtnetlink(7), linux/rtnetlink.h, linux/nexthop.h. Numbers are in the host's byte order, addresses in
//! network byte order. A complete listing may have a million routes, so a view borrows its message and allocates
//! nothing.
//!
//! Invariant: bytes are checked once, when a view is made; every kind of error has a name ([`Malformed`]), and no
//! accessor can panic. Attributes that are not needed are skipped, whatever they contain.

mod writer;

pub use writer::Writer;

use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RTM_NEWROUTE.
pub const NEW_ROUTE: u16 = 24;
/// RTM_DELROUTE.
pub const DEL_ROUTE: u16 = 25;
/// RTM_NEWNEXTHOP.
pub const NEW_NEXTHOP: u16 = 104;
/// RTM_DELNEXTHOP.
pub const DEL_NEXTHOP: u16 = 105;
/// NLM_F_REQUEST.
pub const FLAG_REQUEST: u16 = 1;
/// NLM_F_REPLACE.
pub const FLAG_REPLACE: u16 = 0x100;
/// NLM_F_APPEND.
pub const FLAG_APPEND: u16 = 0x800;
/// AF_INET.
pub const INET: u8 = 2;
/// AF_INET6.
pub const INET6: u8 = 10;
/// Bytes of a message's header, `nlmsghdr`.
pub const HEADER_LEN: usize = 16;

/// RTM_F_CLONED: a cached exception of a route, not a route.
pub const ROUTE_CLONED: u32 = 0x200;
/// RTM_F_OFFLOAD: the forwarding plane has the route.
pub const ROUTE_OFFLOAD: u32 = 0x4000;
/// RTM_F_TRAP: the forwarding plane sends the route's packets up to the kernel.
pub const ROUTE_TRAP: u32 = 0x8000;
/// RTM_F_OFFLOAD_FAILED: the forwarding plane has refused the route.
pub const ROUTE_OFFLOAD_FAILED: u32 = 0x2000_0000;

/// `rtm_type`: a unicast route.
pub const UNICAST: u8 = 1;
/// `rtm_type`: an address of this host.
pub const LOCAL: u8 = 2;
/// `rtm_type`: a broadcast address of this host.
pub const BROADCAST: u8 = 3;
/// `rtm_type`: an anycast address of this host.
pub const ANYCAST: u8 = 4;
/// `rtm_type`: multicast.
pub const MULTICAST: u8 = 5;
/// `rtm_type`: packets are dropped silently.
pub const BLACKHOLE: u8 = 6;
/// `rtm_type`: packets are dropped and answered with ICMP (host unreachable).
pub const UNREACHABLE: u8 = 7;
/// `rtm_type`: packets are dropped and answered with ICMP (administratively prohibited).
pub const PROHIBIT: u8 = 8;

/// RTNH_F_DEAD: the kernel has taken the next hop out of use.
pub const HOP_DEAD: u8 = 1;
/// RTNH_F_ONLINK: the gateway is on the link even if no address of the interface covers it.
pub const HOP_ONLINK: u8 = 4;
/// RTNH_F_LINKDOWN: the device has no carrier.
pub const HOP_LINKDOWN: u8 = 16;

/// Bytes of an attribute's header: length and type.
const ATTRIBUTE_HEADER: usize = 4;
const ROUTE_HEADER: usize = 12;
const NEXTHOP_HEADER: usize = 8;
const HOP_HEADER: usize = 8;
const MEMBER_LEN: usize = 8;
/// The bits of an attribute's type without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const TYPE_MASK: u16 = 0x3fff;

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Malformed {
    /// A message's header is cut off, or its length field is invalid.
    Header = 0,
    /// The message ends within the header of its family (`rtmsg`, `nhmsg`).
    Short = 1,
    /// An attribute's length field is invalid.
    Attribute = 2,
    /// An attribute that is read has a value of the wrong size.
    Value = 3,
    /// The route is neither IPv4 nor IPv6.
    Family = 4,
    /// The prefix is longer than its family's addresses.
    Prefix = 5,
    /// The list of next hops cannot be read, or is empty.
    Hops = 6,
    /// The next-hop object has no identifier, or identifier 0.
    NoId = 7,
}

impl Malformed {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Header,
        Self::Short,
        Self::Attribute,
        Self::Value,
        Self::Family,
        Self::Prefix,
        Self::Hops,
        Self::NoId,
    ];
    /// The name of the counter for this error.
    #[must_use]
    pub const fn counter(self) -> &'static str {
        match self {
            Self::Header => "malformed_header",
            Self::Short => "malformed_short",
            Self::Attribute => "malformed_attribute",
            Self::Value => "malformed_value",
            Self::Family => "malformed_family",
            Self::Prefix => "malformed_prefix",
            Self::Hops => "malformed_hops",
            Self::NoId => "malformed_no_id",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "a netlink header that is cut off or has an invalid length",
            Self::Short => "a netlink message that ends within its family's header",
            Self::Attribute => "a netlink attribute with an invalid length",
            Self::Value => "a netlink attribute of the wrong size",
            Self::Family => "a route that is neither IPv4 nor IPv6",
            Self::Prefix => "a prefix longer than an address",
            Self::Hops => "a list of next hops that cannot be read",
            Self::NoId => "a next-hop object without an identifier",
        })
    }
}

impl std::error::Error for Malformed {}

/// One message of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The message type, RTM_*.
    pub kind: u16,
    /// The flags, NLM_F_*.
    pub flags: u16,
    /// The bytes behind the header.
    pub body: &'a [u8],
}

/// Iterates over the messages of a buffer, and ends after the first error.
#[must_use]
pub fn messages(buffer: &[u8]) -> Messages<'_> {
    Messages { rest: buffer }
}

/// The iterator that [`messages`] returns.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = self.message();
        if message.is_none() {
            self.rest = &[];
        }
        Some(message.ok_or(Malformed::Header))
    }
}

impl<'a> Messages<'a> {
    fn message(&mut self) -> Option<Message<'a>> {
        let length = u32_at(self.rest, 0)? as usize;
        let body = self.rest.get(HEADER_LEN..length)?;
        let message = Message { kind: u16_at(self.rest, 4)?, flags: u16_at(self.rest, 6)?, body };
        self.rest = after(self.rest, length);
        Some(message)
    }
}

/// A next hop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The gateway; `None` on a connected network. It may be IPv6 for an IPv4 route (RFC 5549).
    pub via: Option<IpAddr>,
    /// The interface's index; 0 when the message does not name an interface.
    pub ifindex: u32,
    /// The next hop's share of the traffic, relative to the others: 1..=256 in a route, 1..=65536 in a group.
    pub weight: u32,
    /// RTNH_F_* flags (the `HOP_*` constants).
    pub flags: u8,
}

/// RTM_NEWROUTE or RTM_DELROUTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'a> {
    /// The destination prefix; its host bits are zero.
    pub dest: IpNet,
    /// True when the route applies to some source addresses only (`from`).
    pub source_specific: bool,
    /// The type of service that the route applies to; 0 is any.
    pub tos: u8,
    /// The number of the routing table.
    pub table: u32,
    /// RTPROT_*.
    pub protocol: u8,
    /// RT_SCOPE_*.
    pub scope: u8,
    /// RTN_*: [`UNICAST`], [`BLACKHOLE`]...
    pub kind: u8,
    /// RTM_F_* and, for a route with one next hop, the RTNH_F_* flags of that next hop.
    pub flags: u32,
    /// The metric; 0 is none.
    pub metric: u32,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// The identifier of the next-hop object that the route refers to, if it refers to one.
    pub nexthop_id: Option<u32>,
    /// True when a next hop encapsulates packets (a tunnel, MPLS).
    pub encapsulates: bool,
    /// True when the route has an MTU of its own (`mtu`).
    pub limits_mtu: bool,
    single: Option<Hop>,
    many: &'a [u8],
}

impl<'a> Route<'a> {
    /// A unicast route without a next hop, for [`Writer::route`].
    #[must_use]
    pub fn to(dest: IpNet) -> Self {
        Self {
            dest: dest.trunc(),
            source_specific: false,
            tos: 0,
            table: 0,
            protocol: 0,
            scope: 0,
            kind: UNICAST,
            flags: 0,
            metric: 0,
            source: None,
            nexthop_id: None,
            encapsulates: false,
            limits_mtu: false,
            single: None,
            many: &[],
        }
    }
    /// Reads the message behind its header.
    ///
    /// # Errors
    /// [`Malformed`] names what is wrong with the message.
    pub fn new(body: &'a [u8]) -> Result<Self, Malformed> {
        let &[family, dest_len, source_len, tos, table, protocol, scope, kind, ref rest @ ..] = body else {
            return Err(Malformed::Short);
        };
        let flags = u32_at(rest, 0).ok_or(Malformed::Short)?;
        let mut dest = unspecified(family)?;
        let whole = IpNet::new(dest, dest_len).map_err(|_| Malformed::Prefix)?;
        let source_specific = source_len != 0;
        let table = table.into();
        let mut route = Self { source_specific, tos, table, protocol, scope, kind, flags, ..Self::to(whole) };
        let mut single = Hop { weight: 1, flags: flags as u8, ..Hop::default() };
        for attribute in attributes(body, ROUTE_HEADER) {
            let (attribute, value) = attribute?;
            match attribute {
                number_of::RTA_DST => dest = address(family, value)?,
                number_of::RTA_TABLE => route.table = number(value)?,
                number_of::RTA_PRIORITY => route.metric = number(value)?,
                number_of::RTA_NH_ID => route.nexthop_id = Some(number(value)?),
                number_of::RTA_PREFSRC => route.source = Some(address(family, value)?),
                number_of::RTA_METRICS => {
                    route.limits_mtu |=
                        attributes(value, 0).flatten().any(|(kind, _)| kind == number_of::RTAX_MTU);
                }
                number_of::RTA_MULTIPATH => route.many = many(family, value, &mut route.encapsulates)?,
                _ => hop_attribute(family, attribute, value, &mut single, &mut route.encapsulates)?,
            }
        }
        route.dest = IpNet::new(dest, dest_len).map_err(|_| Malformed::Prefix)?.trunc();
        route.single = (single.via.is_some() || single.ifindex != 0).then_some(single);
        Ok(route)
    }
    /// The next hops that the route itself lists: none when it refers to a next-hop object, or has no next
    /// hop.
    pub fn hops(&self) -> impl Iterator<Item = Hop> + use<'a> {
        let family = if self.dest.addr().is_ipv4() { INET } else { INET6 };
        // A route with a list of next hops has no single next hop besides it (rtnetlink(7)).
        let single = self.single.filter(|_| self.many.is_empty());
        // `new` has read the list once, so no error is left.
        let many = Hops { family, rest: self.many }.filter_map(|hop| hop.ok().map(|(hop, _)| hop));
        single.into_iter().chain(many)
    }
}

/// RTM_NEWNEXTHOP or RTM_DELNEXTHOP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHopObject<'a> {
    /// The object's identifier, never 0.
    pub id: u32,
    /// RTPROT_*.
    pub protocol: u8,
    /// The object's action. A deletion is identified by `id` alone; its action is not read.
    pub action: NextHopAction<'a>,
}

/// The action of a next-hop object for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHopAction<'a> {
    /// Sends the packet to this next hop.
    Hop(Hop),
    /// Sends the packet to one member of a group.
    Group(Members<'a>),
    /// Drops the packet.
    Blackhole,
    /// Any other action: an encapsulation, an FDB entry of a bridge, or none.
    Other,
}

/// The members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members<'a> {
    /// `resilient`: a flow keeps its member as long as the member is usable.
    pub resilient: bool,
    /// The number of buckets of a resilient group; 0 when the message does not state it.
    pub buckets: u16,
    list: &'a [u8],
}

impl<'a> Members<'a> {
    /// The identifier of each member and its weight, 1..=65536.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        self.list.chunks_exact(MEMBER_LEN).map(|member| {
            // The second byte of the weight is its high byte, in any byte order of the host
            // (linux/nexthop.h).
            let weight = u32::from(member[4]) | u32::from(member[5]) << 8;
            (u32_at(member, 0).unwrap_or(0), weight + 1)
        })
    }
}

impl<'a> NextHopObject<'a> {
    /// Reads the message behind its header.
    ///
    /// # Errors
    /// [`Malformed`] names what is wrong with the message.
    pub fn new(body: &'a [u8]) -> Result<Self, Malformed> {
        if body.len() < NEXTHOP_HEADER {
            return Err(Malformed::Short);
        }
        let (family, protocol, flags) = (body[0], body[2], body[4]);
        let (mut id, mut other, mut blackhole) = (0, false, false);
        let mut hop = Hop { weight: 1, flags, ..Hop::default() };
        let mut group: Option<&[u8]> = None;
        let (mut resilient, mut buckets) = (false, 0);
        for attribute in attributes(body, NEXTHOP_HEADER) {
            let (attribute, value) = attribute?;
            match attribute {
                number_of::NHA_ID => id = number(value)?,
                number_of::NHA_GROUP => group = Some(value),
                number_of::NHA_GROUP_TYPE => resilient = u16_of(value)? == 1,
                number_of::NHA_BLACKHOLE => blackhole = true,
                number_of::NHA_OIF => hop.ifindex = number(value)?,
                number_of::NHA_GATEWAY => hop.via = Some(address(family, value)?),
                number_of::NHA_ENCAP | number_of::NHA_FDB => other = true,
                number_of::NHA_RES_GROUP => buckets = resilient_buckets(value)?,
                _ => {}
            }
        }
        let action = match group {
            _ if id == 0 => return Err(Malformed::NoId),
            Some(list) if list.is_empty() || list.len() % MEMBER_LEN != 0 => return Err(Malformed::Hops),
            Some(list) if !other => NextHopAction::Group(Members { resilient, buckets, list }),
            _ if other => NextHopAction::Other,
            _ if blackhole => NextHopAction::Blackhole,
            _ if hop.via.is_some() || hop.ifindex != 0 => NextHopAction::Hop(hop),
            _ => NextHopAction::Other,
        };
        Ok(Self { id, protocol, action })
    }
}

/// Attribute numbers of linux/rtnetlink.h and linux/nexthop.h.
#[allow(missing_docs)]
mod number_of {
    pub(super) const RTA_DST: u16 = 1;
    pub(super) const RTA_OIF: u16 = 4;
    pub(super) const RTA_GATEWAY: u16 = 5;
    pub(super) const RTA_PRIORITY: u16 = 6;
    pub(super) const RTA_PREFSRC: u16 = 7;
    pub(super) const RTA_METRICS: u16 = 8;
    pub(super) const RTA_MULTIPATH: u16 = 9;
    pub(super) const RTA_TABLE: u16 = 15;
    pub(super) const RTA_VIA: u16 = 18;
    pub(super) const RTA_ENCAP: u16 = 22;
    pub(super) const RTA_NH_ID: u16 = 30;
    pub(super) const RTAX_MTU: u16 = 2;
    pub(super) const NHA_ID: u16 = 1;
    pub(super) const NHA_GROUP: u16 = 2;
    pub(super) const NHA_GROUP_TYPE: u16 = 3;
    pub(super) const NHA_BLACKHOLE: u16 = 4;
    pub(super) const NHA_OIF: u16 = 5;
    pub(super) const NHA_GATEWAY: u16 = 6;
    pub(super) const NHA_ENCAP: u16 = 8;
    pub(super) const NHA_FDB: u16 = 11;
    pub(super) const NHA_RES_GROUP: u16 = 12;
    pub(super) const NHA_RES_GROUP_BUCKETS: u16 = 1;
}

/// The attributes behind a header of `header` bytes. A rest that is shorter than an attribute's header is
/// padding.
fn attributes(body: &[u8], header: usize) -> Attributes<'_> {
    Attributes { rest: body.get(header..).unwrap_or_default() }
}

struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.rest, 0)?);
        let kind = u16_at(self.rest, 2)?;
        let Some(value) = self.rest.get(ATTRIBUTE_HEADER..length) else {
            self.rest = &[];
            return Some(Err(Malformed::Attribute));
        };
        self.rest = after(self.rest, length);
        Some(Ok((kind & TYPE_MASK, value)))
    }
}

/// Iterates over the next hops of RTA_MULTIPATH, each with a flag that is true when it encapsulates.
struct Hops<'a> {
    family: u8,
    rest: &'a [u8],
}

impl Iterator for Hops<'_> {
    type Item = Result<(Hop, bool), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let hop = self.hop();
        if hop.is_err() {
            self.rest = &[];
        }
        Some(hop)
    }
}

impl Hops<'_> {
    fn hop(&mut self) -> Result<(Hop, bool), Malformed> {
        let length = usize::from(u16_at(self.rest, 0).ok_or(Malformed::Hops)?);
        let body = self.rest.get(..length).filter(|body| body.len() >= HOP_HEADER).ok_or(Malformed::Hops)?;
        let ifindex = u32_at(body, 4).ok_or(Malformed::Hops)?;
        let mut hop = Hop { via: None, ifindex, weight: u32::from(body[3]) + 1, flags: body[2] };
        let mut encapsulates = false;
        for attribute in attributes(body, HOP_HEADER) {
            let (attribute, value) = attribute?;
            hop_attribute(self.family, attribute, value, &mut hop, &mut encapsulates)?;
        }
        self.rest = after(self.rest, length);
        Ok((hop, encapsulates))
    }
}

fn many<'a>(family: u8, list: &'a [u8], encapsulates: &mut bool) -> Result<&'a [u8], Malformed> {
    if list.is_empty() {
        return Err(Malformed::Hops);
    }
    for hop in (Hops { family, rest: list }) {
        *encapsulates |= hop?.1;
    }
    Ok(list)
}

fn hop_attribute(
    family: u8,
    attribute: u16,
    value: &[u8],
    hop: &mut Hop,
    encapsulates: &mut bool,
) -> Result<(), Malformed> {
    match attribute {
        number_of::RTA_OIF => hop.ifindex = number(value)?,
        number_of::RTA_GATEWAY => hop.via = Some(address(family, value)?),
        number_of::RTA_VIA => {
            let family = u16_at(value, 0).and_then(|family| u8::try_from(family).ok());
            hop.via = Some(address(family.ok_or(Malformed::Family)?, &value[2..])?);
        }
        number_of::RTA_ENCAP => *encapsulates = true,
        _ => {}
    }
    Ok(())
}

fn resilient_buckets(value: &[u8]) -> Result<u16, Malformed> {
    for attribute in attributes(value, 0) {
        if let (number_of::NHA_RES_GROUP_BUCKETS, value) = attribute? {
            return u16_of(value);
        }
    }
    Ok(0)
}

fn unspecified(family: u8) -> Result<IpAddr, Malformed> {
    match family {
        INET => Ok(Ipv4Addr::UNSPECIFIED.into()),
        INET6 => Ok(Ipv6Addr::UNSPECIFIED.into()),
        _ => Err(Malformed::Family),
    }
}

fn address(family: u8, value: &[u8]) -> Result<IpAddr, Malformed> {
    match family {
        INET => <[u8; 4]>::try_from(value).map(IpAddr::from).map_err(|_| Malformed::Value),
        INET6 => <[u8; 16]>::try_from(value).map(IpAddr::from).map_err(|_| Malformed::Value),
        _ => Err(Malformed::Family),
    }
}

fn number(value: &[u8]) -> Result<u32, Malformed> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| Malformed::Value)
}

fn u16_of(value: &[u8]) -> Result<u16, Malformed> {
    value.try_into().map(u16::from_ne_bytes).map_err(|_| Malformed::Value)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The bytes behind an attribute of `length` bytes and its padding.
fn after(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(length.next_multiple_of(4)..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
