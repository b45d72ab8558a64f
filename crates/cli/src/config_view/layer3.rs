//! Views of layer 3 that are made from the configuration, or from the configuration and the state of the
//! interfaces.

use super::configured;
use crate::view::{InterfaceKind, InterfaceView, Interfaces, VrfView, Vrfs};
use ipnet::IpNet;
use lanyard_acl::FrameFamily;
use lanyard_config::Config;
use lanyard_config::layer3::{HelperVrf, Layer3};
use lanyard_pipeline::route::Urpf;
use lanyard_types::Family;
use serde::Serialize;
use std::collections::BTreeSet;

/// `show ip interface`, `show ipv6 interface` and their `brief`.
#[derive(Debug, Clone, Serialize)]
pub struct IpInterfaces {
    /// Routed ports, subinterfaces and VLAN interfaces, in natural order.
    pub interfaces: Vec<IpInterface>,
}

/// One layer-3 interface.
#[derive(Debug, Clone, Serialize)]
pub struct IpInterface {
    /// The interface's name.
    pub interface: String,
    /// The netdev's addresses of the family, with their prefix lengths.
    pub addresses: Vec<IpNet>,
    /// `manual` when the address is the configured one, `unset` without an address, `other` when the kernel
    /// has another one.
    pub method: &'static str,
    /// True when it is not `shutdown`.
    pub admin_up: bool,
    /// True when it has carrier.
    pub link_up: bool,
    /// The MTU in bytes.
    pub mtu: u32,
    /// `vrf forwarding`.
    pub vrf: Option<String>,
    /// The DHCP servers to which clients' messages are relayed.
    pub helper_addresses: Vec<String>,
    /// `ip proxy-arp`; it has an effect only with `ip routing`.
    pub proxy_arp: bool,
    /// `ip local-proxy-arp`.
    pub local_proxy_arp: bool,
    /// `ip directed-broadcast`.
    pub directed_broadcast: bool,
    /// `ip redirects`.
    pub redirects: bool,
    /// The list of `ip access-group NAME out`, or of `ipv6 traffic-filter NAME out`.
    pub outbound_access_list: Option<String>,
    /// The list of the same with `in`.
    pub inbound_access_list: Option<String>,
    /// `ip verify unicast source reachable-via` for the family: `rx`, `any` or `none`.
    pub verify_source: &'static str,
}

/// `show ip interface`.
#[must_use]
pub fn ip_interfaces(view: &Interfaces, config: &Config, family: Family) -> IpInterfaces {
    let layer3 =
        view.interfaces.iter().filter(|i| matches!(i.kind, InterfaceKind::Svi | InterfaceKind::Routed));
    IpInterfaces { interfaces: layer3.map(|i| ip_interface(i, config, family)).collect() }
}

fn ip_interface(i: &InterfaceView, config: &Config, family: Family) -> IpInterface {
    let settings = configured(config, i);
    let wanted = |net: &IpNet| match (net, settings) {
        (IpNet::V4(net), Some(c)) => c.ipv4.contains(net),
        (IpNet::V6(net), Some(c)) => c.ipv6.contains(net),
        (_, None) => false,
    };
    let is_family =
        |net: &&IpNet| matches!((net, family), (IpNet::V4(_), Family::V4) | (IpNet::V6(_), Family::V6));
    let addresses: Vec<IpNet> = i.addresses.iter().filter(is_family).copied().collect();
    let method = match addresses.first() {
        None => "unset",
        Some(_) if addresses.iter().any(wanted) => "manual",
        Some(_) => "other",
    };
    let layer3 = settings.map(|settings| settings.layer3.clone()).unwrap_or_default();
    let (urpf, frames) = match family {
        Family::V4 => (layer3.urpf_ipv4, FrameFamily::Ipv4),
        Family::V6 => (layer3.urpf_ipv6, FrameFamily::Ipv6),
    };
    let lists = settings.map(|settings| settings.access_groups.clone()).unwrap_or_default();
    let list = |lists: &[Option<String>; 3]| lists[frames.index()].clone();
    IpInterface {
        interface: i.name.clone(),
        addresses,
        method,
        admin_up: i.admin_up,
        link_up: i.link_up,
        mtu: i.mtu,
        helper_addresses: servers(&layer3, family),
        vrf: layer3.vrf,
        proxy_arp: layer3.proxy_arp,
        local_proxy_arp: layer3.local_proxy_arp,
        directed_broadcast: layer3.directed_broadcast,
        redirects: layer3.redirects,
        outbound_access_list: list(&lists.outbound),
        inbound_access_list: list(&lists.inbound),
        verify_source: match urpf {
            Urpf::Off => "none",
            Urpf::Loose => "any",
            Urpf::Strict => "rx",
        },
    }
}

fn servers(settings: &Layer3, family: Family) -> Vec<String> {
    let helper = |helper: &lanyard_config::layer3::Helper| match &helper.vrf {
        HelperVrf::Own => helper.address.to_string(),
        HelperVrf::Global => format!("{} (global)", helper.address),
        HelperVrf::Named(vrf) => format!("{} (VRF {vrf})", helper.address),
    };
    match family {
        Family::V4 => settings.helpers.iter().map(helper).collect(),
        Family::V6 => settings.relay_destinations.iter().map(|d| d.address.to_string()).collect(),
    }
}

/// `show vrf`. `present` are the VRFs whose namespace exists.
#[must_use]
pub fn vrfs(config: &Config, present: &BTreeSet<String>) -> Vrfs {
    let view = |(name, vrf): (&String, &lanyard_config::layer3::Vrf)| {
        let inside = config.interfaces.iter().filter(|(_, i)| i.layer3.vrf.as_ref() == Some(name));
        let families = [(vrf.ipv4, "ipv4"), (vrf.ipv6, "ipv6")];
        VrfView {
            name: name.clone(),
            rd: vrf.rd.clone(),
            description: vrf.description.clone(),
            protocols: families.into_iter().filter(|(on, _)| *on).map(|(_, family)| family).collect(),
            interfaces: inside.map(|(name, _)| name.to_string()).collect(),
            present: present.contains(name),
        }
    };
    Vrfs { vrfs: config.vrfs.iter().map(view).collect() }
}
