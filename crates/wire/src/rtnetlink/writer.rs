//! Writes messages of routing netlink, with their attributes (linux/netlink.h).

use super::{Hop, INET, INET6, Route, number_of};
use ipnet::IpNet;
use std::net::IpAddr;

/// Appends messages to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Begins a message; `fixed` is the header of its family.
    pub fn begin(out: &'a mut Vec<u8>, kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let start = out.len();
        out.extend([0; 4]);
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend([0; 8]);
        out.extend(fixed);
        Self { out, start }
    }
    /// Begins the message of a route and writes its destination.
    pub fn route(out: &'a mut Vec<u8>, kind: u16, message_flags: u16, route: &Route<'_>) -> Self {
        let family = if route.dest.addr().is_ipv4() { INET } else { INET6 };
        let short_table = u8::try_from(route.table).unwrap_or(0);
        let [a, b, c, d] = route.flags.to_ne_bytes();
        let fixed = [
            family,
            route.dest.prefix_len(),
            0,
            route.tos,
            short_table,
            route.protocol,
            route.scope,
            route.kind,
            a,
            b,
            c,
            d,
        ];
        let mut writer = Self::begin(out, kind, message_flags, &fixed);
        writer.address(number_of::RTA_DST, route.dest.addr());
        if u32::from(short_table) != route.table {
            writer.attribute(number_of::RTA_TABLE, &route.table.to_ne_bytes());
        }
        if route.metric != 0 {
            writer.attribute(number_of::RTA_PRIORITY, &route.metric.to_ne_bytes());
        }
        if let Some(id) = route.nexthop_id {
            writer.attribute(number_of::RTA_NH_ID, &id.to_ne_bytes());
        }
        writer
    }
    /// Adds a route's next hops: a single one as attributes of the route, several as a list.
    pub fn hops(&mut self, dest: IpNet, hops: &[Hop]) {
        match hops {
            [] => {}
            [hop] => {
                self.gateway(dest, hop);
                if hop.ifindex != 0 {
                    self.attribute(number_of::RTA_OIF, &hop.ifindex.to_ne_bytes());
                }
            }
            hops => {
                let list = self.out.len();
                self.attribute(number_of::RTA_MULTIPATH, &[]);
                for hop in hops {
                    let at = self.out.len();
                    let weight = u8::try_from(hop.weight.clamp(1, 256) - 1).unwrap_or(u8::MAX);
                    self.out.extend([0, 0, hop.flags, weight]);
                    self.out.extend(hop.ifindex.to_ne_bytes());
                    self.gateway(dest, hop);
                    self.measure(at);
                }
                self.measure(list);
            }
        }
    }
    /// Adds an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        let at = self.out.len();
        self.out.extend([0; 2]);
        self.out.extend(kind.to_ne_bytes());
        self.out.extend(value);
        self.measure(at);
        let padding = value.len().next_multiple_of(4) - value.len();
        self.out.extend(std::iter::repeat_n(0, padding));
    }
    /// Ends the message by writing its length.
    pub fn end(self) {
        let length = u32::try_from(self.out.len() - self.start).unwrap_or(u32::MAX);
        self.out[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn gateway(&mut self, dest: IpNet, hop: &Hop) {
        match hop.via {
            None => {}
            Some(via) if via.is_ipv4() == dest.addr().is_ipv4() => {
                self.address(number_of::RTA_GATEWAY, via);
            }
            Some(via) => {
                let family = if via.is_ipv4() { INET } else { INET6 };
                let mut value = u16::from(family).to_ne_bytes().to_vec();
                extend_address(&mut value, via);
                self.attribute(number_of::RTA_VIA, &value);
            }
        }
    }
    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }
    /// Writes the length of the attribute or next hop that began at `at` into its first two bytes.
    fn measure(&mut self, at: usize) {
        let length = u16::try_from(self.out.len() - at).unwrap_or(u16::MAX);
        self.out[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

fn extend_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => out.extend(v4.octets()),
        IpAddr::V6(v6) => out.extend(v6.octets()),
    }
}
