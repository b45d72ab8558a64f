//! Configuration texts as a whole: which lines are refused and where, and texts of the maximum size.
#![allow(clippy::unwrap_used)]

use lanyard_cli::apply_text;
use lanyard_config::{Banner, Config, InterfaceName, Role};
use lanyard_types::{VlanId, VlanSet};

/// Applies `text` and compares the refused lines as `line:column: reason`.
fn check(text: &str, refused: &[&str]) -> Config {
    let (config, errors) = apply_text(text, &Config::default());
    let got: Vec<String> = errors.iter().map(|e| format!("{}:{}: {}", e.line, e.column, e.reason)).collect();
    assert_eq!(got, refused, "{text}");
    config
}

#[test]
fn other_lines_apply() {
    let text = "hostname sw1\nvlan 10\n name users\n\tfoo bar\nvlan 4095\n name lost\n mac address-table limit 5\n! comment\n\
                interface eth1\n switchport access vlan 10\n switchport mode both\n  under it\n mtu 9000\n";
    let config = check(
        text,
        &[
            "4:2: invalid input",
            "5:6: VLAN 4095 is not a VLAN: 1 to 4094",
            "6:2: it stands under line 5, which is refused",
            "7:2: it stands under line 5, which is refused",
            "11:18: invalid input: enter one of these in place of both: access, dot1q-tunnel, private-vlan, trunk",
            "12:3: it stands under line 11, which is refused",
        ],
    );
    assert_eq!(config.hostname, "sw1");
    assert_eq!(config.fdb, Config::default().fdb);
    let eth1 = &config.interfaces[&InterfaceName::Netdev("eth1".into())];
    assert_eq!((eth1.role, eth1.mtu), (Role::Switchport, Some(9000)));
}

#[test]
fn a_refused_head_takes_its_lines_along() {
    let config = check(
        "interface eth1\n switchport\nrouter bgp 1\n description not eth1's\nInterface a/b\nmtu 1400\nend\nhostname x\n",
        &[
            "3:1: router is not supported by Lanyard",
            "4:2: it stands under line 3, which is refused",
            "5:11: no netdev stands for a/b: enter platform interface-name NETDEV a/b in global configuration",
            "6:1: it stands under line 5, which is refused",
        ],
    );
    assert_eq!(config.interfaces.len(), 1);
    assert_eq!(config.hostname, "x");
}

#[test]
fn a_refused_line_that_leads_to_no_mode_takes_no_lines_along() {
    let config = check(
        "ipv6 route 2001:db8::1/48 2001:db8::2\nip access-list resequence web 0 5\nvlan filter M vlan-list 5000\n\
         hostname x\n",
        &[
            "1:1: Inconsistent address and mask: 2001:db8::1/48 has bits set beyond its prefix length",
            "2:31: 0 is out of range: 1 to 2147483647",
            "3:25: VLAN 5000 is not a VLAN: 1 to 4094",
        ],
    );
    assert_eq!(config.hostname, "x");
}

#[test]
fn exec_commands_and_broken_lines() {
    check(
        "do show version\nshow version\nvlan 1 2\n",
        &[
            "1:1: an exec command cannot be part of a configuration",
            "2:1: an exec command cannot be part of a configuration",
            "3:8: invalid input: the command ends before 2.",
        ],
    );
    check(&format!("hostname {}\n", "x".repeat(5000)), &["1:1: the line is 5009 bytes long: at most 4096"]);
    check(
        "hostname a\u{7}b\nh\u{e9}\u{e9} x\n",
        &["1:11: the line contains a control character", "2:1: invalid input"],
    );
    check(&"x ".repeat(200), &["1:257: the line has 200 words: at most 128"]);
}

#[test]
fn every_vlan_by_itself_and_every_port() {
    let mut text = String::new();
    for vlan in 1..=4094 {
        text.push_str(&format!("vlan {vlan}\n"));
        if vlan > 1 {
            text.push_str(&format!(" name users-{vlan}\n"));
        }
    }
    for port in 1..=1023 {
        let lines = " switchport mode trunk\n switchport trunk allowed vlan 1-4094\n switchport trunk native vlan 7\n";
        text.push_str(&format!("interface swp{port}\n{lines}"));
    }
    for vlan in 1..=4094 {
        text.push_str(&format!(
            "interface vlan {vlan}\n ip address 10.{}.{}.1 255.255.255.0\n",
            vlan / 256,
            vlan % 256
        ));
    }
    let config = check(&text, &[]);
    let vlans: VlanSet = config.vlans.keys().copied().collect();
    assert_eq!(vlans, VlanSet::all());
    assert_eq!(config.interfaces.len(), 1023 + 4094);
    assert_eq!(config.vlans[&VlanId::new(4094).unwrap()].name.as_deref(), Some("users-4094"));
    assert_eq!(check(&lanyard_cli::text::render(&config), &[]), config);
}

#[test]
fn an_interface_without_its_protection_is_left_shut_down() {
    let shut = "the interface is left shut down, because the line protects the network";
    let config = check(
        "interface eth1\n switchport mode trunk\n access-session port-control auto\n no shutdown\ninterface eth2\n switchport\n \
         spanning-tree guard rot\ninterface eth3\n no snmp trap\n switchport\n",
        &[
            &format!("3:2: access-session is not supported by Lanyard; {shut}"),
            &format!("7:22: invalid input: enter one of these in place of rot: loop, none, root; {shut}"),
            "9:5: snmp is not supported by Lanyard",
        ],
    );
    let down = |name: &str| config.interfaces[&InterfaceName::Netdev(name.into())].shutdown;
    assert_eq!([down("eth1"), down("eth2"), down("eth3")], [true, true, false]);
}

#[test]
fn the_text_of_a_banner_is_no_configuration() {
    let config = check(
        "banner motd ^C\nhostname other\ninterface eth1\n shutdown\n!\n^C\nbanner exec #a b#\nhostname sw1\nbanner login @\nip routing\n",
        &["9:1: the text of banner login has no end: enter its delimiter @ behind it"],
    );
    assert_eq!((config.hostname.as_str(), config.ip_routing), ("sw1", false));
    assert!(config.interfaces.is_empty());
    assert_eq!(config.banners[&Banner::Motd], "\nhostname other\ninterface eth1\n shutdown\n!\n");
    assert_eq!(check(&lanyard_cli::text::render(&config), &[]), config);
}
