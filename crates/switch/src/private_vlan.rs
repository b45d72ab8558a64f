//! Private VLANs (RFC 5517): what `private-vlan ...` means for the plane.
//!
//! A host port receives in its secondary VLAN and sends what is in the primary one; a promiscuous port, and the VLAN interface,
//! receives in the primary VLAN and sends what is in the secondary ones that it maps. So isolation is membership: an isolated
//! port is no member of its own VLAN. All VLANs of a domain share the addresses of the FDB, the members of groups, and the
//! spanning tree of the primary VLAN.
//!
//! Invariants: a port whose VLANs do not fit together is in no VLAN, and so is an access port of a private VLAN. A trunk carries
//! a secondary VLAN only together with its primary one, whose spanning tree decides for both.

use crate::membership::Membership;
use crate::refused::Refused;
use lanyard_config::{Config, InterfaceName, PrivateKind, Switchport, SwitchportMode};
use lanyard_pipeline::state::{PlaneState, PortState, Shares, Tpid};
use lanyard_types::{VlanId, VlanSet};
use std::collections::BTreeMap;

/// Returns the membership of a port under the private VLANs of `config`; `plain` is the membership that its other settings mean.
/// Also returns true for a host or promiscuous port whose VLANs fit together.
pub(crate) fn membership(config: &Config, words: &Switchport, plain: Membership) -> (Membership, bool) {
    let kind = |vlan: VlanId| config.vlans.get(&vlan).and_then(|vlan| vlan.private);
    let none = Membership { tpid: plain.tpid, pvid: None, tagged: VlanSet::EMPTY, untagged: VlanSet::EMPTY };
    let receives = |vlan: VlanId, untagged: VlanSet| {
        (Membership { tpid: Tpid::Dot1q, pvid: Some(vlan), tagged: VlanSet::EMPTY, untagged }, true)
    };
    match words.mode {
        SwitchportMode::PrivateHost => match words.private.host {
            Some((primary, secondary)) if config.primary_of(secondary) == Some(primary) => {
                let community = kind(secondary) == Some(PrivateKind::Community);
                let own = Some(secondary).filter(|_| community);
                receives(secondary, own.into_iter().chain([primary]).collect())
            }
            _ => (none, false),
        },
        SwitchportMode::PrivatePromiscuous => match &words.private.mapping {
            Some((primary, list)) if kind(*primary) == Some(PrivateKind::Primary) => {
                receives(*primary, config.secondaries(*primary, list).iter().chain([*primary]).collect())
            }
            _ => (none, false),
        },
        SwitchportMode::Access | SwitchportMode::Tunnel
            if [Some(words.access_vlan), words.voice_vlan()]
                .into_iter()
                .flatten()
                .any(|vlan| kind(vlan).is_some()) =>
        {
            (none, false)
        }
        SwitchportMode::Access | SwitchportMode::Tunnel => (plain, false),
        SwitchportMode::Trunk => (with_primaries(config, plain), false),
    }
}

/// Removes from a trunk the secondary VLANs whose primary VLAN it does not carry.
fn with_primaries(config: &Config, trunk: Membership) -> Membership {
    let carried = trunk.tagged.union(&trunk.untagged);
    let alone = config.vlans.keys().filter(|vlan| {
        carried.contains(**vlan)
            && config.primary_of(**vlan).is_some_and(|primary| !carried.contains(primary))
    });
    let alone: VlanSet = alone.copied().collect();
    Membership {
        pvid: trunk.pvid.filter(|vlan| !alone.contains(*vlan)),
        tagged: trunk.tagged.difference(&alone),
        untagged: trunk.untagged.difference(&alone),
        ..trunk
    }
}

/// The secondary VLANs of which the VLAN interface of `vlan` is a member; `None` if `vlan` is no primary VLAN or has no
/// interface.
fn mapped(config: &Config, vlan: VlanId) -> Option<VlanSet> {
    let primary = config.vlans.get(&vlan)?.private == Some(PrivateKind::Primary);
    let list = &config.interfaces.get(&InterfaceName::Vlan(vlan))?.private_mapping;
    primary.then(|| config.secondaries(vlan, list))
}

/// Makes the pipeline end of a primary VLAN's interface a promiscuous port.
pub(crate) fn interface(config: &Config, vlan: VlanId, port: &mut PortState) {
    if let Some(secondaries) = mapped(config, vlan) {
        port.private = true;
        port.untagged = port.untagged.union(&secondaries);
    }
}

/// Lets secondary VLANs share the tables of their primary VLANs. A secondary VLAN is active only if its primary VLAN is.
pub(crate) fn overlay(config: &Config, state: &mut PlaneState) {
    let pairs: BTreeMap<VlanId, VlanId> =
        config.vlans.keys().filter_map(|vlan| Some((*vlan, config.primary_of(*vlan)?))).collect();
    for (secondary, primary) in pairs {
        if !state.vlans.contains_key(&primary) {
            state.vlans.remove(&secondary);
            continue;
        }
        let routed = mapped(config, primary).is_some_and(|list| list.contains(secondary));
        if let Some(vlan) = state.vlans.get_mut(&secondary) {
            vlan.shares = Some(Shares { primary, routed });
        }
    }
}

/// Checks the private VLANs of `next`.
///
/// # Errors
/// When a secondary VLAN belongs to two primary VLANs, a primary VLAN has two isolated ones, or a secondary VLAN has an interface
/// or static addresses of its own.
pub(crate) fn check(next: &Config) -> Result<(), Refused> {
    let primaries = next.vlans.iter().filter(|(_, vlan)| vlan.private == Some(PrivateKind::Primary));
    let mut seen: BTreeMap<VlanId, VlanId> = BTreeMap::new();
    for (primary, settings) in primaries {
        let mut isolated = None;
        for secondary in settings.associated.iter() {
            if let Some(first) = seen.insert(secondary, *primary) {
                return Err(Refused::PrivateTwice { secondary, first, second: *primary });
            }
            if next.vlans.get(&secondary).and_then(|vlan| vlan.private) == Some(PrivateKind::Isolated)
                && let Some(first) = isolated.replace(secondary)
            {
                return Err(Refused::PrivateIsolated { primary: *primary, first, second: secondary });
            }
        }
    }
    for name in next.interfaces.keys() {
        if let InterfaceName::Vlan(vlan) = name
            && let Some(primary) = next.primary_of(*vlan)
        {
            return Err(Refused::PrivateInterface { vlan: *vlan, primary });
        }
    }
    for (vlan, mac) in next.fdb.statics.keys() {
        if let Some(primary) = next.primary_of(*vlan) {
            return Err(Refused::PrivateStatic { mac: *mac, vlan: *vlan, primary });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private_trees::follow_trees;
    use crate::testing::config;
    use lanyard_pipeline::state::VlanState;

    fn vlan(n: u16) -> VlanId {
        VlanId::new(n).expect("a VLAN")
    }

    /// Primary 100 with isolated 101 and community 102, and 103, an isolated VLAN that no primary one names.
    fn domain(ports: &str) -> Config {
        let mut config = config(&format!("vlan 100\nvlan 101\nvlan 102\nvlan 103\nvlan 10\n{ports}"));
        for (id, kind) in
            [(101, PrivateKind::Isolated), (102, PrivateKind::Community), (103, PrivateKind::Isolated)]
        {
            config.vlans.get_mut(&vlan(id)).expect("a VLAN").private = Some(kind);
        }
        let primary = config.vlans.get_mut(&vlan(100)).expect("a VLAN");
        (primary.private, primary.associated) =
            (Some(PrivateKind::Primary), "101-102".parse().expect("a list"));
        config
    }

    /// `PVID tagged untagged`, and whether the port is private.
    fn shown(config: &Config, words: &Switchport) -> String {
        let (made, private) = membership(config, words, crate::membership::membership(words, false));
        let pvid = made.pvid.map_or("-".into(), |vlan| vlan.to_string());
        format!("{pvid} [{}] [{}]{}", made.tagged, made.untagged, if private { " private" } else { "" })
    }

    #[test]
    fn a_private_port_is_a_member_of_the_vlans_it_transmits() {
        let config = domain("");
        let host = |primary: u16, secondary: u16| {
            let mut words = Switchport { mode: SwitchportMode::PrivateHost, ..Switchport::default() };
            words.private.host = Some((vlan(primary), vlan(secondary)));
            shown(&config, &words)
        };
        assert_eq!(host(100, 101), "101 [] [100] private", "an isolated port does not hear its own VLAN");
        assert_eq!(host(100, 102), "102 [] [100,102] private");
        assert_eq!(host(100, 103), "- [] []", "103 is not associated");
        assert_eq!(host(10, 101), "- [] []");
        let mut words = Switchport { mode: SwitchportMode::PrivatePromiscuous, ..Switchport::default() };
        assert_eq!(shown(&config, &words), "- [] []");
        words.private.mapping = Some((vlan(100), "101-103".parse().expect("a list")));
        assert_eq!(shown(&config, &words), "100 [] [100-102] private");
        for (access, want) in [(100, "- [] []"), (101, "- [] []"), (103, "- [] []"), (10, "10 [] [10]")] {
            let words = Switchport { access_vlan: vlan(access), ..Switchport::default() };
            assert_eq!(shown(&config, &words), want);
        }
    }

    #[test]
    fn a_trunk_carries_a_secondary_vlan_with_its_primary_one() {
        let config = domain("");
        for (allowed, want) in [
            ("10,100-102", "- [10,100-102] []"),
            ("10,101-103", "- [10,103] []"),
            ("1,100,102", "1 [100,102] [1]"),
        ] {
            let words = Switchport {
                mode: SwitchportMode::Trunk,
                allowed_vlans: allowed.parse().expect("a list"),
                ..Switchport::default()
            };
            assert_eq!(shown(&config, &words), want, "{allowed}");
        }
    }

    #[test]
    fn secondary_vlans_follow_the_primary_one() {
        let mut config = domain("vlan100:");
        let mapping = "101,103".parse().expect("a list");
        config.interfaces.get_mut(&InterfaceName::Vlan(vlan(100))).expect("vlan100").private_mapping =
            mapping;
        let vlans = [10, 100, 101, 102, 103].map(|id| (vlan(id), VlanState::default())).into();
        let mut state = PlaneState { vlans, ..PlaneState::default() };
        overlay(&config, &mut state);
        let shares = |state: &PlaneState, id: u16| state.vlans.get(&vlan(id)).and_then(|vlan| vlan.shares);
        assert_eq!(shares(&state, 101), Some(Shares { primary: vlan(100), routed: true }));
        assert_eq!(shares(&state, 102), Some(Shares { primary: vlan(100), routed: false }));
        assert_eq!([10, 100, 103].map(|id| shares(&state, id)), [None; 3]);
        state.vlans.get_mut(&vlan(100)).expect("a VLAN").instance =
            lanyard_types::InstanceId::new(3).expect("3");
        follow_trees(&mut state);
        assert_eq!([101, 102, 103].map(|id| state.vlans[&vlan(id)].instance.get()), [3, 3, 0]);
        state.vlans.remove(&vlan(100));
        overlay(&config, &mut state);
        assert!(
            [101, 102].iter().all(|id| !state.vlans.contains_key(&vlan(*id))),
            "their primary VLAN is gone"
        );
    }

    #[test]
    fn invalid_private_vlans_are_refused() {
        let refused = |change: &dyn Fn(&mut Config)| {
            let mut config = domain("");
            change(&mut config);
            check(&config).map_or_else(|reason| reason.to_string(), |()| String::new())
        };
        assert_eq!(refused(&|_| {}), "");
        let again = refused(&|config| {
            let other = config.vlans.get_mut(&vlan(10)).expect("a VLAN");
            (other.private, other.associated) = (Some(PrivateKind::Primary), "101".parse().expect("a list"));
        });
        assert_eq!(
            again,
            "VLAN 101 is associated with primary VLAN 10 already: remove it there before VLAN 100 takes it \
             (private-vlan association remove 101)"
        );
        let two = refused(&|config| {
            config.vlans.get_mut(&vlan(100)).expect("a VLAN").associated.insert(vlan(103));
        });
        assert!(two.starts_with("primary VLAN 100 has the isolated VLAN 101 already"), "{two}");
        let interface = refused(&|config| {
            config.interfaces.insert(InterfaceName::Vlan(vlan(101)), lanyard_config::Interface::default());
        });
        assert!(
            interface.starts_with("VLAN 101 is a secondary private VLAN and has no interface"),
            "{interface}"
        );
        let address = refused(&|config| {
            let key = (vlan(102), lanyard_types::MacAddr([2, 0, 0, 0, 0, 1]));
            config.fdb.statics.insert(key, lanyard_config::StaticTarget::Drop);
        });
        assert!(address.contains("enter it with vlan 100"), "{address}");
    }
}
