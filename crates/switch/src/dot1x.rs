//! Connects 802.1X to the switch: the configuration of the authenticator, and what its decisions mean for the plane.
//!
//! A port that is not open for anybody receives in its VLAN, where the stage `guard` drops what it receives, and is a member of
//! none. A port that is open for some hosts has an entry of the control plane in the FDB for each of them, so that no other port
//! takes their addresses over. Invariant: a port with access control is closed until the authenticator has opened it.

use crate::identity::Identity;
use crate::names::{members, switchports};
use crate::ports::PortIds;
use crate::refused::Refused;
use lanyard_config::dot1x::RadiusServer;
use lanyard_config::{Config, Interface, InterfaceName, Radius, SwitchportMode};
use lanyard_dot1x::{Access, Control, HostMode, Nas, PortConfig, Server};
use lanyard_pipeline::state::{FdbTarget, GlobalState, PlaneState, ReservedAction};
use lanyard_types::{PortId, PortLock, VlanId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

/// The last nibble of the PAE group address, 01:80:C2:00:00:03: the index among the reserved addresses (IEEE 802.1Q-2018,
/// table 8-1).
const PAE: usize = 3;
/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;

/// The ports that the authenticator has opened, by the names of their interfaces. A port that is not named is closed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Each port with the hosts for which it is open.
    pub ports: BTreeMap<String, Access>,
}

/// The ports whose access is controlled.
pub fn controlled(config: &Config) -> impl Iterator<Item = (&str, &Interface)> {
    let on = config.dot1x;
    switchports(config)
        .filter(move |(_, interface)| on && interface.access.control != Control::ForceAuthorized)
}

/// Makes the plane trap EAPOL while ports authenticate hosts.
pub(crate) fn global(config: &Config, global: &mut GlobalState) {
    if controlled(config).any(|(_, it)| it.access.control == Control::Auto && it.access.authenticator) {
        global.reserved[PAE] = ReservedAction::Trap;
    }
}

impl Admitted {
    fn access(&self, name: &str) -> Access {
        self.ports.get(name).cloned().unwrap_or_default()
    }
    /// The configuration in which each controlled port has the lock and the VLAN that the authenticator has decided on.
    pub(crate) fn effective<'c>(&self, config: &'c Config) -> Cow<'c, Config> {
        let names: BTreeSet<String> = controlled(config).map(|(name, _)| name.to_owned()).collect();
        if names.is_empty() {
            return Cow::Borrowed(config);
        }
        let mut own = config.clone();
        for name in names {
            let access = self.access(&name);
            let Some(interface) = own.interfaces.get_mut(&InterfaceName::Netdev(name)) else { continue };
            let port = &mut interface.switchport;
            port.access_vlan = access.vlan.unwrap_or(port.access_vlan);
            port.stages.guard.lock = match (access.open, access.hosts) {
                (false, _) => PortLock::Closed,
                (true, None) => PortLock::Open,
                (true, Some(_)) => PortLock::Hosts,
            };
        }
        Cow::Owned(own)
    }
    /// Gives the plane the addresses of the hosts that ports are open for. A static address of `mac address-table static` takes
    /// precedence.
    pub(crate) fn overlay(&self, config: &Config, ids: &PortIds, state: &mut PlaneState) {
        for (name, _) in controlled(config) {
            let access = self.access(name);
            let port = ids.get(name).and_then(|id| Some((id, state.ports.get(&id)?.pvid?)));
            let (Some((id, vlan)), true) = (port, access.open) else { continue };
            let vlan = state.shared(vlan);
            if state.vlans.contains_key(&vlan) {
                for mac in access.hosts.into_iter().flatten() {
                    state.fdb.entry((vlan, mac)).or_insert(FdbTarget::Static(id));
                }
            }
        }
    }
}

/// The configuration of the authenticator. `state` is the plane state, whose enabled ports have a link; `address` is the address
/// from which requests to servers are sent.
#[must_use]
pub fn lower(
    config: &Config,
    state: &PlaneState,
    ids: &PortIds,
    identity: &Identity,
    address: Option<Ipv4Addr>,
) -> lanyard_dot1x::Config {
    let port = |(name, interface): (&str, &Interface)| {
        let id = ids.get(name)?;
        Some((id, of_port(name, interface, id, state.ports.get(&id)?.enabled)))
    };
    let active = config.vlans.iter().filter(|(vlan, _)| state.vlans.contains_key(vlan));
    lanyard_dot1x::Config {
        ports: controlled(config).filter_map(port).collect(),
        servers: config.radius.servers.iter().filter_map(|(_, it)| server(&config.radius, it)).collect(),
        deadtime_ms: u64::from(config.radius.deadtime_min) * MINUTE_MS,
        vlans: active.map(|(vlan, it)| (*vlan, it.display_name(*vlan))).collect(),
        nas: Nas { identifier: config.hostname.clone(), address, mac: identity.base_mac },
    }
}

fn of_port(name: &str, interface: &Interface, id: PortId, up: bool) -> PortConfig {
    let access = &interface.access;
    let ms = |seconds: u32| u64::from(seconds) * 1000;
    PortConfig {
        name: name.to_owned(),
        number: id.get().into(),
        up,
        control: access.control,
        host_mode: access.host_mode,
        violation: access.violation,
        eap: access.authenticator,
        mab: access.mab,
        mab_first: access.mab_first,
        periodic: access.periodic.then_some(access.reauthenticate),
        quiet_ms: ms(access.quiet_s),
        restart_ms: ms(access.restart_s),
        tx_ms: ms(access.tx_s),
        supplicant_ms: ms(access.supplicant_s),
        max_req: access.max_req,
        max_reauth_req: access.max_reauth_req,
        fail: access.fail,
        no_response: access.no_response,
        server_dead: access.server_dead,
        reinitialize: access.reinitialize,
    }
}

/// The authenticator's settings of a RADIUS server; `None` if the server has no address or no key.
fn server(radius: &Radius, server: &RadiusServer) -> Option<Server> {
    let at = server.address?;
    Some(Server {
        address: SocketAddr::from((at.address, at.auth_port)),
        key: server.key.clone()?.into_bytes(),
        timeout_ms: u64::from(server.timeout_s.unwrap_or(radius.timeout_s)) * 1000,
        retransmit: server.retransmit.unwrap_or(radius.retransmit),
    })
}

/// Checks the ports with access control of `next`.
///
/// # Errors
/// When a port with access control is a port-channel or a member of one, is not an access port, or has port security; when two
/// servers have the same address and port.
pub(crate) fn check(next: &Config) -> Result<(), Refused> {
    // Members are no switch ports, so `controlled` leaves them out, and the authenticator would not close them.
    let members = members(next).map(|(name, _, _, interface)| (name, interface));
    let members = members.filter(|(_, it)| next.dot1x && it.access.control != Control::ForceAuthorized);
    for (name, interface) in controlled(next).chain(members) {
        let port = &interface.switchport;
        let reason = if interface.aggregation.group.is_some() {
            "it is a member of a port-channel: enter `no channel-group`"
        } else if InterfaceName::Netdev(name.to_owned()).channel().is_some() {
            "it is a port-channel"
        } else if port.mode != SwitchportMode::Access {
            "it is no access port: enter `switchport mode access`"
        } else if port.stages.secure {
            "it has port security: enter `no switchport port-security`"
        } else {
            continue;
        };
        return Err(Refused::AccessControl { interface: name.to_owned(), reason });
    }
    let mut addresses = BTreeMap::new();
    for (name, server) in &next.radius.servers {
        let Some(at) = server.address else { continue };
        if let Some(other) = addresses.insert((at.address, at.auth_port), name) {
            let (server, other) = (name.clone(), other.clone());
            return Err(Refused::RadiusTwice { server, other, address: at.address, port: at.auth_port });
        }
    }
    Ok(())
}

/// The configured access VLAN and host mode of a controlled port, for views; `None` for any other port.
#[must_use]
pub fn settings(config: &Config, name: &str) -> Option<(VlanId, HostMode)> {
    let (_, interface) = controlled(config).find(|(held, _)| *held == name)?;
    Some((interface.switchport.access_vlan, interface.access.host_mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::testing::{config as parse, facts, identity};
    use lanyard_types::{MacAddr, VlanSet};

    fn vlan(n: u16) -> VlanId {
        VlanId::new(n).expect("a VLAN")
    }

    /// Two access ports; eth1 authenticates hosts.
    fn config() -> Config {
        let mut config = parse("vlan 10\nvlan 20\neth1: access 10\neth2: access 10");
        config.dot1x = true;
        let key = InterfaceName::Netdev("eth1".into());
        let access = &mut config.interfaces.get_mut(&key).expect("eth1").access;
        (access.control, access.authenticator) = (Control::Auto, true);
        config
    }

    fn compiled(config: &Config, admitted: &Admitted) -> (PlaneState, PortId) {
        let ids = PortIds::default().assign(port_names(config)).expect("few ports");
        let effective = admitted.effective(config);
        let mut state = compile(&effective, &facts("eth1, eth2"), &ids, &identity());
        admitted.overlay(config, &ids, &mut state);
        (state, ids.get("eth1").expect("eth1"))
    }

    #[test]
    fn a_port_is_closed_until_it_is_opened() {
        let mut config = config();
        let (state, eth1) = compiled(&config, &Admitted::default());
        let port = &state.ports[&eth1];
        assert_eq!((port.stages.guard.lock, port.pvid), (PortLock::Closed, Some(vlan(10))));
        assert!(port.untagged.is_empty() && port.tagged.is_empty() && port.private && port.enabled);
        assert_eq!(state.global.reserved[PAE], ReservedAction::Trap);
        let mac = MacAddr([2, 0, 0, 0, 0, 5]);
        let access = Access { vlan: Some(vlan(20)), hosts: Some([mac].into()), open: true };
        let mut admitted = Admitted { ports: [("eth1".into(), access)].into() };
        let (state, eth1) = compiled(&config, &admitted);
        let port = &state.ports[&eth1];
        let twenty: VlanSet = [vlan(20)].into_iter().collect();
        assert_eq!((port.stages.guard.lock, port.pvid), (PortLock::Hosts, Some(vlan(20))));
        assert_eq!((&port.untagged, port.private), (&twenty, false));
        assert_eq!(state.fdb, [((vlan(20), mac), FdbTarget::Static(eth1))].into());
        admitted.ports.get_mut("eth1").expect("eth1").hosts = None;
        let (state, eth1) = compiled(&config, &admitted);
        assert!(state.ports[&eth1].stages.guard.lock == PortLock::Open && state.fdb.is_empty());
        // Without `dot1x system-auth-control` nothing is locked.
        config.dot1x = false;
        let (state, eth1) = compiled(&config, &Admitted::default());
        assert_eq!(state.ports[&eth1].stages.guard.lock, PortLock::Open);
        assert_eq!(state.global.reserved[PAE], ReservedAction::Drop);
    }

    #[test]
    fn access_control_is_refused_at_trunks_secure_ports_and_members() {
        let key = InterfaceName::Netdev("eth1".into());
        let changed = |change: &dyn Fn(&mut Interface)| {
            let mut config = config();
            change(config.interfaces.get_mut(&key).expect("eth1"));
            check(&config).map_err(|error| error.to_string())
        };
        assert_eq!(changed(&|_| ()), Ok(()));
        let trunk = changed(&|it| it.switchport.mode = SwitchportMode::Trunk).expect_err("a trunk");
        assert!(trunk.contains("eth1") && trunk.contains("no access port"), "{trunk}");
        assert!(changed(&|it| it.switchport.stages.secure = true).is_err());
        let channel = lanyard_types::ChannelId::new(1).expect("a port-channel");
        let group = Some((channel, lanyard_lacp::Mode::On));
        let member = changed(&|it| it.aggregation.group = group).expect_err("a member");
        assert!(member.contains("eth1") && member.contains("no channel-group"), "{member}");
        // A member that authenticates nobody is accepted.
        let open = |it: &mut Interface| {
            it.aggregation.group = group;
            it.access.control = Control::ForceAuthorized;
        };
        assert_eq!(changed(&open), Ok(()));
        assert_eq!(changed(&|it| it.access.control = Control::ForceAuthorized), Ok(()));
    }
}
