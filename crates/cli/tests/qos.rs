//! Class maps, policy maps and service policies: the refused lines and the reasons; a refused line changes nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Fake, session};
use lanyard_cli::{Outcome, apply_text, text};
use lanyard_config::{Config, qos_errors};
use std::fmt::Write;

/// The first lines of every case.
const BASE: &str = "\
class-map match-all A
 match dscp ef
class-map match-any B
class-map C
policy-map PLAIN
 class A
  set dscp af11
policy-map POLICED
 class A
  police 1m 8000 exceed-action drop
policy-map QUEUES
 class A
  bandwidth percent 60
policy-map PARENT
 class class-default
  shape average 10m
  service-policy QUEUES
interface eth0
 switchport
 service-policy input POLICED
 service-policy output QUEUES
interface eth1
 no switchport
interface port-channel 1
interface eth2
 channel-group 1 mode on
interface vlan 10
interface eth1.5
 encapsulation dot1q 5
";

fn base() -> Config {
    let (config, errors) = apply_text(BASE, &Config::default());
    assert_eq!(errors, vec![]);
    assert_eq!(qos_errors(&config), Vec::<String>::new());
    config
}

/// The reason for which the last of `lines` is refused. Panics if another line is refused.
fn refusal(lines: &str) -> String {
    let (mut before, mut errors) = (base(), Vec::new());
    let mut so_far = String::new();
    for line in lines.lines() {
        assert_eq!(errors, vec![], "in {lines}");
        let _ = writeln!(so_far, "{line}");
        let (config, refused) = apply_text(&so_far, &base());
        // A refused `channel-group` leaves the port shut down, because the line protects the network.
        if !refused.is_empty() && !line.contains("channel-group") {
            assert_eq!(
                text::render(&config),
                text::render(&before),
                "a refused line has changed something: {lines}"
            );
        }
        (before, errors) = (config, refused);
    }
    let [error] = errors.as_slice() else { panic!("{lines}: {errors:?}") };
    error.reason.clone()
}

#[test]
fn every_refusal_names_its_reason() {
    for (lines, reason) in [
        ("class-map class-default", "class-default is the class of all frames"),
        ("class-map system-cpp-police-data", "is a name of control-plane policing"),
        ("policy-map system-cpp-policy", "is a name of control-plane policing"),
        ("class-map -x", "-x is not a name"),
        ("no class-map A", "class map A is in use by policy map"),
        ("no class-map NONE", "class map NONE not configured"),
        ("class-map C\n match dscp 64", "64 is not a DSCP: 0 to 63"),
        ("class-map C\n match dscp af", "af is not a DSCP"),
        ("class-map C\n match precedence 8", "8 is not a precedence: 0 to 7"),
        ("class-map C\n match cos 8", "8 is out of range: 0 to 7"),
        ("class-map C\n match vlan 4095", "VLAN 4095 is not a VLAN"),
        ("class-map C\n match protocol http", "http is not a protocol that a class map matches"),
        ("class-map C\n match access-group name 9999", "9999 is not the number of a list"),
        ("class-map C\n no match any", "the class map has no such line"),
        ("class-map C\n match input-interface eth0", "match input-interface is not supported"),
        ("class-map type inspect X", "class-map type inspect is not supported"),
        (
            "no policy-map POLICED",
            "policy map POLICED is in use: enter no service-policy input at interface eth0 first",
        ),
        (
            "interface eth0\n no service-policy output\nno policy-map QUEUES",
            "policy map PARENT has it as service-policy",
        ),
        ("no policy-map NONE", "policy map NONE not configured"),
        ("policy-map P\n class NONE", "class map NONE not configured"),
        ("policy-map P\n no class A", "the policy map has no class A"),
        ("policy-map P\n class A\n  random-detect", "random-detect is not supported"),
        ("policy-map P\n class A\n  fair-queue", "fair-queue is not supported"),
        ("policy-map P\n class A\n  police 7999", "7999 is not a rate in bit/s: 8000 to 100000000000"),
        ("policy-map P\n class A\n  police fast", "fast is not a rate"),
        ("policy-map P\n class A\n  police 1m 999", "999 is out of range: 1000 to 512000000"),
        ("policy-map P\n class A\n  police cir percent 101", "101 is out of range: 1 to 100"),
        ("policy-map P\n class A\n  police cir 2m pir 1m", "pir 1000000 is below cir 2000000 bit/s"),
        ("policy-map P\n class A\n  police cir percent 20 pir percent 10", "pir 10 is below cir 20 percent"),
        (
            "policy-map P\n class A\n  police cir 1m be 9000\n  no violate-action",
            "be needs pir or a violate-action",
        ),
        ("policy-map P\n class A\n  conform-action drop", "the class has no policer for conform-action"),
        ("policy-map P\n class A\n  priority level 3", "3 is out of range: 1 to 2"),
        ("policy-map P\n class A\n  bandwidth 7", "7 is out of range: 8 to 100000000"),
        ("policy-map P\n class A\n  bandwidth remaining ratio 1001", "1001 is out of range: 1 to 1000"),
        ("policy-map P\n class A\n  shape average 1k", "1k is not a rate"),
        ("policy-map P\n class A\n  queue-limit 8193", "queue-limit 8193 packets: 1 to 8192"),
        ("policy-map P\n class A\n  queue-limit 1999 bytes", "queue-limit 1999 bytes: 2000 to 512000000"),
        (
            "policy-map P\n class A\n  priority\n  bandwidth remaining ratio 2",
            "class A cannot have both priority and bandwidth",
        ),
        (
            "policy-map P\n class A\n  bandwidth percent 60\n class B\n  priority percent 41",
            "bandwidth percent and priority percent of all classes would be 101: at most 100",
        ),
        (
            "policy-map P\n class A\n  bandwidth remaining percent 60\n class B\n  bandwidth remaining percent 41",
            "bandwidth remaining percent of all classes would be 101",
        ),
        (
            "policy-map P\n class A\n  bandwidth percent 10\n class B\n  bandwidth 1000",
            "class B has bandwidth in kbit/s and class A has bandwidth percent",
        ),
        (
            "policy-map P\n class A\n  bandwidth percent 10\n class B\n  bandwidth remaining percent 10",
            "class B has bandwidth remaining percent and class A has bandwidth percent",
        ),
        (
            "policy-map P\n class A\n  bandwidth percent 10\n class B\n  priority",
            "which may take all of the port",
        ),
        ("policy-map P\n class A\n  service-policy QUEUES", "class A cannot have a service policy"),
        ("policy-map P\n class class-default\n  service-policy QUEUES", "class-default needs shape average"),
        (
            "policy-map P\n class class-default\n  shape average 1m\n class A\n class class-default\n  service-policy QUEUES",
            "has no class but class-default: remove class A",
        ),
        ("policy-map PARENT\n class A", "has no class but class-default: remove class A"),
        ("policy-map PARENT\n class class-default\n  no shape average", "class-default needs shape average"),
        (
            "policy-map P\n class class-default\n  shape average 1m\n  service-policy NONE",
            "policy map NONE not configured",
        ),
        (
            "policy-map P\n class class-default\n  shape average 1m\n  service-policy PLAIN",
            "neither queues nor polices",
        ),
        (
            "policy-map P\n class class-default\n  shape average 1m\n  service-policy PARENT",
            "a child has no child",
        ),
        (
            "policy-map P\n class class-default\n  shape average 1m\n  service-policy P",
            "a child has no child",
        ),
        (
            "policy-map QUEUES\n class class-default\n  shape average 1m\n  service-policy POLICED",
            "has no class but class-default: remove class A",
        ),
        ("policy-map QUEUES\n class A\n  no bandwidth", "it is the child of policy map PARENT"),
        (
            "policy-map POLICED\n class A\n  priority",
            "queueing is not supported in the input direction: class A",
        ),
        ("interface eth1\n service-policy input NONE", "policy map NONE not configured"),
        ("interface eth1\n service-policy input QUEUES", "class A of policy map QUEUES has bandwidth"),
        (
            "interface eth1\n service-policy input PARENT",
            "class class-default of policy map PARENT has shape",
        ),
        ("interface eth0\n service-policy input PLAIN", "policy map POLICED is already attached at eth0"),
        ("interface eth1\n no service-policy output QUEUES", "eth1 has no service-policy output QUEUES"),
        ("interface eth2\n service-policy input POLICED", "eth2 is a member of port-channel 1"),
        ("interface eth2\n mls qos trust dscp", "eth2 is a member of port-channel 1"),
        ("interface eth0\n channel-group 1 mode on", "eth0 has a service policy or mls qos trust"),
        ("interface vlan 10\n service-policy input POLICED", "Vlan10 is a VLAN interface"),
        ("interface vlan 10\n mls qos trust cos", "Vlan10 is a VLAN interface"),
        ("interface eth1.5\n service-policy output QUEUES", "eth1.5 is a subinterface"),
        ("interface eth3\n service-policy output QUEUES", "eth3 is not a port of the switch"),
        ("interface eth0\n mls qos trust device cisco-phone", "mls qos trust device is not supported"),
        ("mls qos map cos-dscp 0 8 16 24 32 40 48 64", "64 is out of range: 0 to 63"),
        ("mls qos map policed-dscp 46 to 0", "mls qos map policed-dscp is not supported"),
    ] {
        let refused = refusal(lines);
        assert!(refused.contains(reason), "{lines}\n refused: {refused}\n wanted: {reason}");
    }
}

#[test]
fn the_tables_are_finite() {
    let mut lines = String::new();
    for n in 0..256 {
        let _ = write!(lines, "class-map K{n}\npolicy-map Q{n}\n");
    }
    lines.push_str("policy-map Q0\n");
    for n in 0..40 {
        let _ = writeln!(lines, " class K{n}");
    }
    lines.push_str("class-map match-any K0\n");
    for n in 0..40 {
        let _ = writeln!(lines, " match vlan {}", n + 1);
    }
    lines.push_str("class-map MORE\npolicy-map MORE\n");
    let (config, errors) = apply_text(&lines, &Config::default());
    let qos = &config.qos;
    assert_eq!((qos.classes.len(), qos.policies.len()), (256, 256));
    assert_eq!(qos.policies["Q0"].classes.len(), 31, "class-default is the 32nd");
    assert_eq!(qos.classes["K0"].criteria.len(), 32);
    for reason in [
        "the policy map would have 33 classes: at most 32",
        "the class map has 32 match lines already",
        "there are 256 class maps already",
        "there are 256 policy maps already",
    ] {
        assert!(errors.iter().any(|error| error.reason.contains(reason)), "{reason}");
    }
}

#[test]
fn forms_of_a_policer() {
    for (line, printed) in [
        ("police 1m", "police cir 1000000 conform-action transmit exceed-action drop"),
        (
            "pol 8000000 8000 exc drop",
            "police cir 8000000 bc 8000 conform-action transmit exceed-action drop",
        ),
        ("police rate 64k bc 2000", "police cir 64000 bc 2000 conform-action transmit exceed-action drop"),
        (
            "police 1m 8000 exceed-action set-dscp-transmit af12",
            "police cir 1000000 bc 8000 conform-action transmit exceed-action set-dscp-transmit af12",
        ),
        (
            "police cir percent 10 bc 9000 pir percent 20 be 9500 conform-action set-prec-transmit critical \
             exceed-action set-cos-transmit 1 violate-action drop",
            "police cir percent 10 bc 9000 pir percent 20 be 9500 conform-action set-prec-transmit 5 exceed-action \
             set-cos-transmit 1 violate-action drop",
        ),
        (
            "police cir 1g be 9000",
            "police cir 1000000000 be 9000 conform-action transmit exceed-action drop violate-action drop",
        ),
        (
            "police cir 1m\n   conform-action set-dscp-transmit ef\n   exceed-action transmit\n   violate-action drop",
            "police cir 1000000 conform-action set-dscp-transmit ef exceed-action transmit violate-action drop",
        ),
    ] {
        let (config, errors) =
            apply_text(&format!("policy-map P\n class A\n  {line}\n  set cos 3\n"), &base());
        assert_eq!(errors, vec![], "{line}");
        let text = text::render(&config);
        assert!(text.contains(&format!("\n  {printed}\n")), "{line}:\n{text}");
        assert!(
            text.contains("policy-map P\n class A\n  set cos 3\n"),
            "the policer's mode ends by itself: {text}"
        );
    }
}

#[test]
fn the_section_of_a_refused_class_is_refused_with_it_and_the_next_class_is_not() {
    for indented in [true, false] {
        let lines = "policy-map P\n class A\n  set dscp ef\n class NONE\n  set dscp af11\n  police 1m\n class B\n  set cos 2\n";
        let lines: String = if indented {
            lines.into()
        } else {
            lines.lines().map(|line| format!("{}\n", line.trim())).collect()
        };
        let (config, errors) = apply_text(&lines, &base());
        let refused: Vec<_> = errors.iter().map(|error| error.line).collect();
        assert_eq!(refused, [4, 5, 6]);
        let text = text::render(&config);
        assert!(text.contains("policy-map P\n class A\n  set dscp ef\n class B\n  set cos 2\n"), "{text}");
    }
}

#[test]
fn a_configuration_session_repeats_the_lines_of_a_class() {
    let (mut fake, mut session) = (Fake::new(&["eth0"]), session());
    fake.config = base();
    let lines = [
        "configure session work",
        "policy-map P",
        "class A",
        "police 1m",
        "exceed-action transmit",
        "exit",
        "set cos 1",
        "class class-default",
        "set dscp default",
        "commit",
    ];
    for line in lines {
        let outcome = session.execute(line, &mut fake);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{line}: {outcome:?}");
    }
    let text = text::render(&fake.config);
    let wanted = "policy-map P\n class A\n  set cos 1\n  police cir 1000000 conform-action transmit exceed-action transmit\n class \
                  class-default\n  set dscp default\n";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_port_that_leaves_the_switch_loses_its_policies() {
    let (config, errors) = apply_text("interface eth0\n default switchport\n", &base());
    assert_eq!(errors, vec![]);
    assert_eq!(qos_errors(&config), Vec::<String>::new());
    assert!(!text::render(&config).contains("service-policy input"));
}
