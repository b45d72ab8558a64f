//! Every configuration line of the command tree is accepted with some value in some state of its mode, and the text of the
//! configuration keeps the value.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::picks;
use lanyard_cli::mode::ConfigMode;
use lanyard_cli::{apply_text, generate, text};
use lanyard_config::access::LineRange;
use lanyard_config::{Config, InterfaceName};
use lanyard_types::VlanSet;

/// The objects to which lines refer: access lists, VRFs, a VLAN, a routed port, a tracked object, class maps and policy maps.
const BASE: &str = "ip access-list standard red\nip access-list standard blue-2\nvrf definition red\nvrf definition blue-2\nvrf definition v.3\nvlan 10\ninterface xe7\n no switchport\ntrack 1 interface xe7 line-protocol\nclass-map match-all red\nclass-map match-any blue-2\npolicy-map red\n class red\n  police 1000000\npolicy-map blue-2\n class blue-2\n  set dscp ef\n";

/// Every mode, and the lines that lead to it in states in which it accepts different lines.
fn modes() -> Vec<(ConfigMode, &'static [&'static str])> {
    let interface = ConfigMode::Interface { names: vec![InterfaceName::Netdev("eth0".into())], range: false };
    vec![
        (ConfigMode::Global, &["hostname sw1"]),
        (
            interface,
            &[
                "interface eth0",
                "interface eth0\n switchport",
                "interface eth0\n no switchport",
                "interface eth0\n no switchport\n ip address 10.9.9.9 255.255.255.0\n vrrp 1 ip 10.9.9.8",
                "interface vlan 10",
                "interface port-channel 7",
                "interface xe7.5",
                "interface xe7.5\n encapsulation dot1q 5",
            ],
        ),
        (ConfigMode::Vlan(VlanSet::EMPTY), &["vlan 11", "vlan 11\n private-vlan primary"]),
        (ConfigMode::Mst, &["spanning-tree mst configuration"]),
        (ConfigMode::ClassMap("voice".into()), &["class-map match-any voice"]),
        (ConfigMode::PolicyMap("edge".into()), &["policy-map edge"]),
        (
            ConfigMode::PolicyClass("edge".into(), "red".into()),
            &[
                "policy-map edge\n class red",
                "policy-map edge\n class red\n  police 1000000 8000",
                "policy-map edge\n class class-default\n  shape average 1000000",
            ],
        ),
        (ConfigMode::RadiusServer("R1".into()), &["radius server R1"]),
        (ConfigMode::TacacsServer("T1".into()), &["tacacs server T1"]),
        (ConfigMode::Line(LineRange::Vty(0, 4)), &["line vty 0 4"]),
        (ConfigMode::SshKeys(Some("ann".into())), &["ip ssh pubkey-chain\n username ann"]),
        (ConfigMode::Line(LineRange::Console), &["line console 0", "line vty 3 9"]),
        (ConfigMode::Vrf { name: "red".into(), family: None }, &["vrf definition red"]),
        (
            ConfigMode::ErspanSource(7),
            &[
                "monitor session 7 type erspan-source",
                "monitor session 7 type erspan-source\n filter vlan 20",
            ],
        ),
        (ConfigMode::ErspanSourceDestination(7), &["monitor session 7 type erspan-source\n destination"]),
        (ConfigMode::ErspanDestination(8), &["monitor session 8 type erspan-destination"]),
        (ConfigMode::ErspanDestinationSource(8), &["monitor session 8 type erspan-destination\n source"]),
        (
            ConfigMode::Track(1),
            &["track 1 interface eth0 line-protocol", "track 1 ip route 10.0.0.0/8 reachability"],
        ),
    ]
}

fn survives_its_text(config: &Config, after: &str) {
    let printed = text::render(config);
    let (again, errors) = apply_text(&printed, &Config::default());
    assert_eq!(errors, vec![], "after {after}:\n{printed}");
    assert_eq!(&again, config, "after {after}:\n{printed}");
}

#[test]
fn every_line_survives_its_text() {
    let (base, errors) = apply_text(BASE, &Config::default());
    assert_eq!(errors, vec![]);
    for (mode, leads) in modes() {
        let mut missing: Vec<String> = Vec::new();
        let lines = |seed| generate::every_line(&mode, &mut picks(seed));
        for at in 0..lines(0).len() {
            let mut reasons = Vec::new();
            let mut taken = false;
            for (seed, lead) in (0..400).flat_map(|seed| leads.iter().map(move |lead| (seed, lead))) {
                let line = lines(seed).swap_remove(at);
                let (config, errors) = apply_text(&format!("{lead}\n {line}\n"), &base);
                if !errors.is_empty() {
                    reasons.extend(errors.iter().map(ToString::to_string));
                    continue;
                }
                survives_its_text(&config, &format!("{lead}: {line}"));
                taken = true;
                let (undone, _) = apply_text(&format!("{lead}\n no {line}\n"), &config);
                survives_its_text(&undone, &format!("{lead}: {line}, no {line}"));
                break;
            }
            if !taken {
                missing.push(format!(
                    "{}: {}",
                    lines(0).swap_remove(at),
                    reasons.last().cloned().unwrap_or_default()
                ));
            }
        }
        assert!(missing.is_empty(), "lines of {mode:?} that are never taken:\n{}", missing.join("\n"));
    }
}
