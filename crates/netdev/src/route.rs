//! Addresses, routes, neighbours, namespace ids.

use crate::{Address, AddressFlags, Family, Neighbour, Netdev, Result, Route};
use ipnet::IpNet;
use lanyard_types::MacAddr;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

impl Netdev {
    /// Addresses, of one device or of all.
    pub fn addresses(&self, ifindex: Option<u32>) -> Result<Vec<Address>> {
        let _ = ifindex;
        todo!()
    }
    /// Adds an address.
    pub fn add_address(&self, ifindex: u32, net: IpNet, flags: AddressFlags) -> Result<()> {
        let _ = (ifindex, net, flags);
        todo!()
    }
    /// Removes an address.
    pub fn del_address(&self, ifindex: u32, net: IpNet) -> Result<()> {
        let _ = (ifindex, net);
        todo!()
    }
    /// Routes of one table.
    pub fn routes(&self, family: Family, table: u32) -> Result<Vec<Route>> {
        let _ = (family, table);
        todo!()
    }
    /// Adds a route; refused when one with this destination, metric and table exists.
    pub fn add_route(&self, route: &Route) -> Result<()> {
        let _ = route;
        todo!()
    }
    /// Adds a route, or puts it in the place of the one with its destination, metric and table.
    pub fn replace_route(&self, route: &Route) -> Result<()> {
        let _ = route;
        todo!()
    }
    /// Removes a route: destination, table, kind, metric, protocol and next hops must match.
    pub fn del_route(&self, route: &Route) -> Result<()> {
        let _ = route;
        todo!()
    }
    /// The ARP or ND table.
    pub fn neighbours(&self, family: Family) -> Result<Vec<Neighbour>> {
        let _ = family;
        todo!()
    }
    /// Adds or replaces a permanent neighbour.
    pub fn set_neighbour(&self, ifindex: u32, addr: IpAddr, mac: MacAddr) -> Result<()> {
        let _ = (ifindex, addr, mac);
        todo!()
    }
    /// Removes a neighbour.
    pub fn del_neighbour(&self, ifindex: u32, addr: IpAddr) -> Result<()> {
        let _ = (ifindex, addr);
        todo!()
    }
    /// This namespace's ids for the namespaces it has ids for.
    pub fn netns_ids(&self) -> Result<Vec<i32>> {
        todo!()
    }
    /// This namespace's id for `netns`, if it has one.
    pub fn netns_id(&self, netns: BorrowedFd<'_>) -> Result<Option<i32>> {
        let _ = netns;
        todo!()
    }
}
