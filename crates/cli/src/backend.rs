//! The interface between the command line and the switch: one trait for each topic, which the daemon implements
//! where it has the topic's data, and [`Backend`], which combines them.
//!
//! Invariant: every call is synchronous and returns without waiting for anything outside the switch. A command that
//! changes the configuration clones [`Configuration::running`], edits the clone and passes it to
//! [`Configuration::commit`], which puts it into force everywhere, or refuses it and changes nothing.

pub use crate::refusal::Refusal;
use crate::sessions::ConfigSessions;
use crate::view;
use crate::window::Window;
use ipnet::IpNet;
use lanyard_config::{Config, InterfaceName};
use lanyard_lldp::Protocol;
use lanyard_types::{Family, MacAddr, VlanId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Selects FDB entries for `show` and `clear mac address-table`; every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MacFilter {
    /// Only this kind: `dynamic`, `static`, `sticky` or `self`.
    pub kind: Option<&'static str>,
    /// Only this address.
    pub mac: Option<MacAddr>,
    /// Only entries at this interface.
    pub interface: Option<InterfaceName>,
    /// Only this VLAN.
    pub vlan: Option<VlanId>,
}

/// Selects routes for `show ip route`; every field that is set must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteQuery {
    /// The family.
    pub family: Family,
    /// `vrf V`; `None` is the switch's own table.
    pub vrf: Option<String>,
    /// Only the longest match of this address.
    pub address: Option<IpAddr>,
    /// Only this prefix.
    pub prefix: Option<IpNet>,
    /// Only this protocol: `connected` (with `local`), `static`, `bgp`...
    pub protocol: Option<&'static str>,
}

impl RouteQuery {
    /// All routes of a table.
    #[must_use]
    pub const fn all(family: Family, vrf: Option<String>) -> Self {
        Self { family, vrf, address: None, prefix: None, protocol: None }
    }
    /// The routes among `routes` that match.
    #[must_use]
    pub fn narrow(&self, mut routes: Vec<view::Route>) -> view::Routes {
        let is = |route: &view::Route, protocol: &str| match protocol {
            "connected" => ["connected", "local"].contains(&route.protocol.as_str()),
            other => route.protocol == other,
        };
        if let Some(protocol) = self.protocol {
            routes.retain(|route| is(route, protocol));
        }
        if let Some(prefix) = self.prefix {
            routes.retain(|route| route.prefix == prefix);
        }
        if let Some(address) = self.address {
            routes.retain(|route| route.prefix.contains(&address));
            let longest = routes.iter().map(|route| route.prefix.prefix_len()).max();
            routes.retain(|route| Some(route.prefix.prefix_len()) == longest);
        }
        view::Routes { total: routes.len() as u64, routes }
    }
}

/// The largest file that `copy` and `configure replace` read or write, in bytes; the backend refuses larger
/// ones.
pub const MAX_CONFIG_BYTES: usize = 16 << 20;

/// The running configuration, and its replacement by another one.
pub trait Configuration {
    /// The running configuration.
    fn running(&self) -> &Config;
    /// Puts `candidate` into force as the running configuration.
    ///
    /// # Errors
    /// The reason, when any part of it cannot take effect; nothing has changed then.
    fn commit(&mut self, candidate: Config) -> Result<(), Refusal>;
    /// Like [`Configuration::commit`], but restores the present configuration after `minutes` (1..=1440) unless
    /// [`Configuration::confirm`] is called before. A second call within that time only moves the deadline; the
    /// configuration to restore remains that of the first call.
    ///
    /// # Errors
    /// As for `commit`.
    fn commit_confirmed(&mut self, candidate: Config, minutes: u32) -> Result<(), Refusal>;
    /// Confirms the last [`Configuration::commit_confirmed`]; false when none is waiting.
    fn confirm(&mut self) -> bool;
    /// Seconds until the running configuration is rolled back; `None` when no confirmation is awaited.
    fn rollback_in_s(&self) -> Option<u64>;
    /// The configuration sessions: one store for all sessions of the switch.
    fn config_sessions(&mut self) -> &mut ConfigSessions;
}

/// When a scheduled reload takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadTime {
    /// After this number of minutes, 1..=[`MAX_RELOAD_MINUTES`].
    InMinutes(u32),
    /// When the clock next shows this time of day, within the next 24 hours.
    At {
        /// 0..=23.
        hour: u8,
        /// 0..=59.
        minute: u8,
    },
}

/// The longest time until a scheduled reload, 24 days as in IOS.
pub const MAX_RELOAD_MINUTES: u32 = 24 * 24 * 60;

/// Safe changes: checkpoints of the configuration, its lock, and the return to the startup-config.
pub trait SafeChange {
    /// `show archive`.
    ///
    /// # Errors
    /// When the archive's directory cannot be read.
    fn archive(&mut self) -> Result<view::Archive, Refusal>;
    /// Saves the running configuration as a checkpoint for `user`, unless the latest one is equal. Returns the number of the
    /// latest checkpoint.
    ///
    /// # Errors
    /// When the file cannot be written, or the configuration awaits confirmation.
    fn save_checkpoint(&mut self, user: &str) -> Result<u32, Refusal>;
    /// The configuration text of a checkpoint.
    ///
    /// # Errors
    /// When there is none of this number, or it cannot be read.
    fn checkpoint(&mut self, number: u32) -> Result<String, Refusal>;
    /// Allows changes of the configuration to the session of the running command alone, until it unlocks or ends.
    ///
    /// # Errors
    /// When another session has the lock.
    fn lock_configuration(&mut self) -> Result<(), Refusal>;
    /// Ends the lock if the session of the running command has it.
    fn unlock_configuration(&mut self);
    /// Ends the lock of any session; false when there is none.
    fn clear_configuration_lock(&mut self) -> bool;
    /// `show configuration lock`.
    fn configuration_lock(&self) -> view::ConfigurationLock;
    /// Makes the startup-config the running configuration, as at a start; lines that are refused are left out and logged.
    /// Returns their number.
    ///
    /// # Errors
    /// When there is no startup-config, or it cannot be read; nothing has changed then.
    fn reload(&mut self, user: &str) -> Result<usize, Refusal>;
    /// Schedules a reload, in place of an earlier one.
    ///
    /// # Errors
    /// When there is no startup-config.
    fn schedule_reload(&mut self, at: ReloadTime, user: &str, reason: Option<String>) -> Result<(), Refusal>;
    /// Cancels the scheduled reload; false when there is none.
    fn cancel_reload(&mut self) -> bool;
    /// `show reload`.
    fn scheduled_reload(&self) -> view::ScheduledReload;
}

/// The startup-config and other files of configuration text.
pub trait Files {
    /// The text of the startup-config; empty when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    fn load_startup(&mut self) -> Result<String, Refusal>;
    /// Replaces the startup-config atomically and durably; an empty text erases it. The previous content stays beside it in a
    /// file whose name ends in `.previous`.
    ///
    /// # Errors
    /// When it cannot be written; the old one remains.
    fn save_startup(&mut self, text: &str) -> Result<(), Refusal>;
    /// Reads a file of configuration text on the switch's machine.
    ///
    /// # Errors
    /// When it cannot be read, is not UTF-8, or is longer than [`MAX_CONFIG_BYTES`].
    fn read_file(&mut self, path: &str) -> Result<String, Refusal>;
    /// Writes a file of configuration text, atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_file(&mut self, path: &str, text: &str) -> Result<(), Refusal>;
}

/// The MAC address table.
pub trait Fdb {
    /// Offers the entries in one part of the table to the window, in any order. The first part begins at 0; returns where
    /// the next part begins, `None` after the last. A part takes the switch about a millisecond.
    fn mac_part(&mut self, filter: &MacFilter, from: u32, window: &mut Window) -> Option<u32>;
    /// The maximum number of dynamic entries.
    fn mac_capacity(&self) -> u64;
    /// `show mac address-table count`, of `vlan` or of all.
    fn mac_count(&mut self, vlan: Option<VlanId>) -> view::MacCount;
    /// Removes the dynamic entries that match; returns their number.
    fn clear_mac_table(&mut self, filter: &MacFilter) -> u64;
}

/// The switch's interfaces and their counters.
pub trait Interfaces {
    /// The netdevs of the namespace that may stand after `interface`, for completion: without loopback and
    /// without those that Lanyard made.
    fn netdev_names(&self) -> Vec<String>;
    /// Why a netdev that exists is not among [`Interfaces::netdev_names`], as the end of a sentence that begins with its
    /// name; `None` for others.
    fn netdev_refusal(&self, name: &str) -> Option<&'static str>;
    /// `show interfaces`: the switch's ports, routed ports and VLAN interfaces, or just `only`; natural order.
    /// An interface that is configured and has no netdev is listed as not present.
    fn interfaces(&mut self, only: Option<&InterfaceName>) -> view::Interfaces;
    /// `show interfaces counters drops`.
    fn drops(&mut self, only: Option<&InterfaceName>) -> view::Drops;
    /// The ports that the switch has shut down by itself, in natural order.
    fn err_disabled(&mut self) -> Vec<view::ErrDisabledPort>;
    /// Clears the counters of one interface, or of all.
    ///
    /// # Errors
    /// When the interface is not a port of the switch.
    fn clear_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal>;
}

/// Selects the secure addresses that `clear port-security` removes: those of the kinds whose field is true, limited to the
/// interface and to the address if they are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecureFilter {
    /// Learned addresses that are not sticky.
    pub dynamic: bool,
    /// Sticky addresses.
    pub sticky: bool,
    /// Configured addresses.
    pub configured: bool,
    /// Only addresses of this interface.
    pub interface: Option<InterfaceName>,
    /// This address only.
    pub mac: Option<MacAddr>,
}

/// Port security.
pub trait PortSecurity {
    /// `show port-security`: the ports with port security, in natural order, and their secure addresses.
    fn port_security(&mut self) -> view::PortSecurityView;
    /// Removes secure addresses.
    fn clear_port_security(&mut self, filter: &SecureFilter);
}

/// Selects the leases that `clear ip dhcp snooping binding` ends; every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnoopedFilter {
    /// Only leases at this port.
    pub interface: Option<InterfaceName>,
    /// Only leases in this VLAN.
    pub vlan: Option<lanyard_types::VlanId>,
    /// Only the lease of this address.
    pub address: Option<std::net::Ipv4Addr>,
}

/// Selects the sessions that `clear authentication sessions` ends; every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthenticationFilter {
    /// Only sessions at this port.
    pub interface: Option<InterfaceName>,
    /// Only sessions of this host.
    pub mac: Option<MacAddr>,
}

/// Access control of ports.
pub trait AccessControl {
    /// `show dot1x`, `show authentication sessions`, `show mab`, `show aaa servers`.
    fn access_control(&mut self) -> view::AccessControl;
    /// `clear authentication sessions`.
    ///
    /// # Errors
    /// When the interface is no port.
    fn clear_authentications(&mut self, filter: &AuthenticationFilter) -> Result<(), Refusal>;
}

/// Servers that verify logins.
pub trait LoginServers {
    /// `show tacacs`.
    fn tacacs(&mut self) -> view::TacacsServers;
}

/// First-hop security.
pub trait Guard {
    /// `show ip dhcp snooping ...`, `show ip arp inspection ...`, `show ip source binding`, `show ip verify source`.
    fn guard(&mut self) -> view::Guard;
    /// `clear ip dhcp snooping binding`: ends leases.
    fn clear_snooped(&mut self, filter: &SnoopedFilter);
    /// `clear ip dhcp snooping statistics`.
    fn clear_snooped_statistics(&mut self);
    /// `show ipv6 nd inspection`, `show ipv6 neighbors binding`.
    fn nd_inspection(&mut self) -> view::NdInspection;
    /// `clear ipv6 neighbors binding`: ends the learned bindings that match the interface and the VLAN of `filter`; its address
    /// is ignored.
    fn clear_neighbor_bindings(&mut self, filter: &SnoopedFilter);
    /// `clear ipv6 nd inspection statistics`.
    fn clear_nd_statistics(&mut self);
}

/// ARP and IPv6 neighbour tables.
pub trait Neighbors {
    /// `show arp`, `show ipv6 neighbors`: the kernel's tables; `vrf` is `None` for the switch's own.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn neighbors(&mut self, family: Family, vrf: Option<&str>) -> Result<view::Neighbors, Refusal>;
    /// `clear arp-cache`, `clear ipv6 neighbors`: removes learned entries, of one address or all; returns their
    /// number.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn clear_neighbors(
        &mut self,
        family: Family,
        vrf: Option<&str>,
        only: Option<IpAddr>,
    ) -> Result<u64, Refusal>;
}

/// Routing tables: the kernel's and the plane's.
pub trait Routes {
    /// `show ip route`, `show ipv6 route`: the kernel's tables.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn routes(&mut self, query: &RouteQuery) -> Result<view::Routes, Refusal>;
    /// `show ip cef`, `show ipv6 cef`: the entries of the plane; with an address, its longest match.
    ///
    /// # Errors
    /// When the plane does not route.
    fn cef(&mut self, family: Family, vrf: Option<&str>, only: Option<IpAddr>) -> Result<view::Cef, Refusal>;
    /// `show ip cef summary`: how the plane follows a routing table.
    ///
    /// # Errors
    /// When the plane does not route.
    fn cef_summary(&mut self, vrf: Option<&str>) -> Result<view::CefSummary, Refusal>;
    /// `show ip cef exact-route`: the next hop that the plane chooses for a flow.
    ///
    /// # Errors
    /// When the plane does not route.
    fn cef_exact(&mut self, vrf: Option<&str>, flow: &view::Flow) -> Result<view::CefExact, Refusal>;
    /// The VRFs whose namespace exists.
    fn vrfs_present(&mut self) -> BTreeSet<String>;
}

/// The spanning trees.
pub trait SpanningTree {
    /// `show spanning-tree`: every tree; empty while spanning tree is off.
    fn spanning_tree(&mut self) -> view::SpanningTree;
    /// The priority with which `root primary` makes this switch the root of a tree: 24576, or a lower one that is
    /// better than the present root's; `None` when no priority is.
    fn root_primary_priority(&self, tree: view::TreeKey) -> Option<u16>;
    /// `clear spanning-tree detected-protocols`, for one port or all.
    ///
    /// # Errors
    /// When the interface is not a port in spanning tree.
    fn clear_detected_protocols(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal>;
    /// `clear spanning-tree counters`, for one port or all.
    ///
    /// # Errors
    /// When the interface is not a port in spanning tree.
    fn clear_spanning_tree_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal>;
}

/// Neighbour discovery by LLDP and CDP.
pub trait Discovery {
    /// `show lldp neighbors`, `show cdp neighbors`: at one interface, or at all.
    fn neighbours_of(
        &mut self,
        protocol: Protocol,
        only: Option<&InterfaceName>,
    ) -> view::DiscoveryNeighbours;
    /// `show lldp`, `show cdp`: settings, states of ports, statistics.
    fn discovery(&mut self, protocol: Protocol) -> view::DiscoveryState;
    /// `clear lldp table`, `clear cdp table`.
    fn clear_discovery_table(&mut self, protocol: Protocol);
    /// `clear lldp counters`, `clear cdp counters`.
    fn clear_discovery_counters(&mut self, protocol: Protocol);
}

/// Multicast snooping.
pub trait Multicast {
    /// `show ip igmp snooping ...`, `show ipv6 mld snooping ...`.
    fn snooping(&mut self, family: Family) -> view::Snooping;
    /// `clear ip igmp snooping membership`, `clear ipv6 mld snooping membership`.
    fn clear_snooping(&mut self, family: Family);
}

/// The counters of access lists.
pub trait AccessLists {
    /// How often each rule of a list has decided, by sequence number, at all places where the list is bound.
    fn access_list_matches(&mut self, name: &str) -> BTreeMap<u32, u64>;
    /// `clear access-list counters`: of one list, or of all.
    fn clear_access_list_matches(&mut self, only: Option<&str>);
    /// The present minute of local time, which determines the active time ranges.
    fn minute(&self) -> lanyard_acl::time::Minute;
}

/// Quality of service.
pub trait QualityOfService {
    /// `show policy-map interface`: the policies in force, with their counters.
    fn service_policies(&mut self) -> view::ServicePolicies;
    /// `clear counters`: sets the counters of the policies of one interface, or of all, to 0.
    fn clear_service_policies(&mut self, interface: Option<&str>);
}

/// Link aggregation.
pub trait Aggregation {
    /// `show etherchannel`, `show lacp`: every port-channel.
    fn channels(&mut self) -> view::Channels;
    /// `clear lacp counters`.
    fn clear_lacp_counters(&mut self);
}

/// Object tracking, virtual routers, DHCP relays, and the FPM server.
pub trait Services {
    /// `show track`.
    fn tracks(&mut self) -> view::Tracks;
    /// `show vrrp`.
    fn vrrp(&mut self) -> view::Vrrps;
    /// `show ip dhcp relay`, `show ipv6 dhcp relay`.
    fn dhcp_relay(&mut self, family: Family) -> view::Relay;
    /// `show fpm ...`.
    fn fpm(&mut self) -> view::Fpm;
    /// `show monitor`: the sending side of an ERSPAN session.
    fn erspan(&mut self, session: u16) -> view::ErspanState;
    /// `show monitor`: the receiving side of an ERSPAN session.
    fn erspan_received(&mut self, session: u16) -> view::ErspanReceived;
    /// `show sflow`.
    fn sflow(&mut self) -> view::SflowView;
}

/// The forwarding plane: capabilities, tables, traps, and the trace of a frame.
pub trait Platform {
    /// `show platform`.
    fn platform(&mut self) -> view::Platform;
    /// `show platform resources`.
    fn resources(&mut self) -> view::Resources;
    /// `show platform pipeline`.
    fn pipeline(&mut self) -> view::Pipeline;
    /// `show platform ports`, `show interfaces transceiver`.
    ///
    /// # Errors
    /// When the plane has no front panel.
    fn front_panel(&mut self) -> Result<view::FrontPanel, Refusal>;
    /// `show platform traps`.
    fn traps(&mut self) -> view::Traps;
    /// `show platform packet-trace`: runs `frame` through the live tables as if `interface` had received it.
    ///
    /// # Errors
    /// When the interface is not a port, or the plane cannot trace.
    fn packet_trace(&mut self, interface: &InterfaceName, frame: &[u8])
    -> Result<view::PacketTrace, Refusal>;
}

/// The switch as a system: version, users, log and clock.
pub trait System {
    /// `show version`.
    fn version(&mut self) -> view::Version;
    /// `show users`.
    fn users(&mut self) -> view::Users;
    /// `show logging`.
    fn logging(&mut self) -> view::Logging;
    /// `show logging persistent`; `None` while it is not configured.
    fn logging_persistent(&mut self) -> Option<view::PersistentLog>;
    /// `clear logging`.
    fn clear_logging(&mut self);
    /// Adds a message to the log, such as `("SYS", 5, "CONFIG_I", "Configured from vty 0 by root")`.
    fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str);
    /// `show clock`.
    fn clock(&self) -> view::Clock;
    /// `show processes`.
    fn processes(&mut self) -> view::Processes;
    /// `show inventory`.
    fn inventory(&mut self) -> view::Inventory;
}

/// A command that a session has entered, for the audit log.
#[derive(Debug, Clone, Copy)]
pub struct Entered<'a> {
    /// The user.
    pub user: &'a str,
    /// The terminal line, such as `vty 0`.
    pub line: &'a str,
    /// The host that the user comes from: an address, or `local`.
    pub host: &'a str,
    /// The command, without secrets.
    pub command: &'a str,
}

/// Users and their commands.
pub trait Access {
    /// Hashes every secret of a configuration that is in plain text.
    ///
    /// # Errors
    /// When the system gives no random numbers for the salt.
    fn hash_secrets(&mut self, config: &mut Config) -> Result<(), Refusal>;
    /// Adds a command to the audit log.
    fn audit(&mut self, entered: Entered<'_>);
    /// `clear line`: ends the session on a terminal line, such as `vty 3`; false when there is none.
    fn clear_line(&mut self, name: &str) -> bool;
    /// `show archive log config`.
    fn audit_log(&mut self) -> view::AuditLog;
}

/// All topics of the switch; every type that implements them is a backend.
pub trait Backend:
    Configuration
    + SafeChange
    + Files
    + Fdb
    + Interfaces
    + PortSecurity
    + Guard
    + AccessControl
    + LoginServers
    + Neighbors
    + Routes
    + SpanningTree
    + Discovery
    + Multicast
    + AccessLists
    + QualityOfService
    + Aggregation
    + Services
    + Platform
    + System
    + Access
{
}

impl<
    T: Configuration
        + SafeChange
        + Files
        + Fdb
        + Interfaces
        + PortSecurity
        + Guard
        + AccessControl
        + LoginServers
        + Neighbors
        + Routes
        + SpanningTree
        + Discovery
        + Multicast
        + AccessLists
        + QualityOfService
        + Aggregation
        + Services
        + Platform
        + System
        + Access,
> Backend for T
{
}
