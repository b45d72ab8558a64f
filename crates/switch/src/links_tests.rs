//! Tests of the actions that a change of configuration needs, written as lines of text.

use super::*;
use crate::facts::Knob;
use crate::testing::{config, facts, identity};
use lanyard_types::VlanId;

fn host(host: HostStack) -> String {
    if host == host.silenced() {
        return "silent".into();
    }
    format!(
        "{}{}{}",
        if host.forwarding { "forwards" } else { "host" },
        if host.ipv6_disabled { " no-ipv6" } else { "" },
        if host.lro { " lro" } else { "" }
    )
}

fn show(action: &Action) -> String {
    match action {
        Action::CreatePair(pair) => {
            format!("create {} {} mtu {}", pair.name, pair.mac.unwrap_or_default(), pair.mtu)
        }
        Action::DeletePair(pair) => format!("delete {}", pair.name),
        Action::Link { name, from, to } => {
            let mut words = vec![name.clone()];
            let mut differs = |differs: bool, word: String| {
                if differs {
                    words.push(word)
                }
            };
            differs(from.up != to.up, if to.up { "up".into() } else { "down".into() });
            differs(
                from.promisc != to.promisc,
                if to.promisc { "promisc".into() } else { "-promisc".into() },
            );
            differs(from.mtu != to.mtu, format!("mtu {}", to.mtu));
            differs(from.mac != to.mac, format!("mac {}", to.mac.unwrap_or_default()));
            differs(from.host != to.host, host(to.host));
            words.join(" ")
        }
        Action::Address { name, net, add } => format!("{name} {}{net}", if *add { "+" } else { "-" }),
        Action::Knob { vrf, knob, to, .. } => {
            let of = vrf.as_ref().map_or_else(String::new, |vrf| format!("{vrf} "));
            match knob {
                Knob::Ipv6Forwarding => format!("{of}ipv6-forwarding {to}"),
                knob => format!("{of}{knob:?} {to}"),
            }
        }
        Action::Namespace { vrf, add, .. } => format!("{}netns {vrf}", if *add { "+" } else { "-" }),
        Action::Move { name, from, to } => {
            let of = |vrf: &Option<String>| vrf.clone().unwrap_or_else(|| "own".into());
            format!("{name} {} -> {}", of(from), of(to))
        }
        Action::Speed { name, to: LinkMode::Autonegotiation, .. } => format!("{name} speed auto"),
        Action::Speed { name, to: LinkMode::Fixed { speed_mbps, .. }, .. } => {
            format!("{name} speed {speed_mbps}")
        }
    }
}

fn list(actions: &[Action]) -> String {
    actions.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Plans the step from `old` to `next`. The record was made when the netdevs looked like `found`;
/// they look like `links` now.
fn step(old: &str, found: &str, next: &str, links: &str) -> (String, String) {
    let (old, next) = (config(old), config(next));
    let record = actions(None, &old, &facts(found), &Record::default(), &identity()).record;
    let result = actions(Some(&old), &next, &facts(links), &record, &identity());
    (list(&result.before), list(&result.after))
}

fn first(next: &str, links: &str) -> (String, String) {
    let result = actions(None, &config(next), &facts(links), &Record::default(), &identity());
    (list(&result.before), list(&result.after))
}

#[test]
fn a_port_is_taken() {
    for (next, links, want) in [
        ("eth1: access 1", "eth1", "eth1 promisc silent"),
        ("eth1: access 1", "eth1 down", "eth1 up promisc silent"),
        ("eth1: access 1 mtu 9000", "eth1 down", "eth1 up promisc mtu 9000 silent"),
        ("eth1: access 1 shutdown", "eth1", "eth1 down promisc silent"),
        ("eth1: access 1", "", ""),
        ("eth1: access 1", "eth1 master 3", ""),
        ("eth1: unset", "eth1", ""),
        ("eth1: routed", "eth1 down", "eth1 up host"),
        ("ip-routing\neth1: routed ip 10.0.0.1/24", "eth1", "eth1 forwards, eth1 +10.0.0.1/24"),
        ("eth1: routed mac 0200.0000.00ff", "eth1", "eth1 mac 0200.0000.00ff host"),
        ("ipv6-routing", "", "ipv6-forwarding true"),
        // The addresses of an interface that is not routed are only kept in the configuration.
        ("eth1: access 1 ip 10.0.0.1/24", "eth1 promisc", "eth1 silent"),
    ] {
        assert_eq!(first(next, links), (want.into(), String::new()), "{next} | {links}");
    }
}

/// A netdev is identified by its index: if it is renamed, it is released, or continues as the port with the new name.
#[test]
fn a_netdev_with_another_name() {
    let old = "eth1: access 1 mtu 9000";
    let now = "uplink promisc mtu 9000";
    assert_eq!(
        step(old, "eth1 down", old, now),
        (String::new(), "uplink down -promisc mtu 1500".into()),
        "it is put back as it was found"
    );
    let both = format!("{old}\nuplink: access 1");
    assert_eq!(step(&both, "eth1 down", &both, now), ("uplink mtu 1500 silent".into(), String::new()));
    let record = actions(None, &config(old), &facts("eth1 down"), &Record::default(), &identity()).record;
    let released = release(&facts(now), &record, &identity());
    assert_eq!(list(&released), "uplink down -promisc mtu 1500");
}

#[test]
fn only_changed_settings_of_a_netdev_are_applied() {
    let taken = "eth1 promisc";
    for (old, next, links, want) in [
        // The netdev was shut down by hand, and an unrelated change leaves it down.
        ("eth1: access 1", "eth1: access 2", "eth1 down promisc", ""),
        ("eth1: access 1", "eth1: access 1 shutdown", taken, "eth1 down silent"),
        ("eth1: access 1 shutdown", "eth1: access 1", "eth1 down promisc", "eth1 up silent"),
        // The MTU with which it was found is restored.
        ("eth1: access 1 mtu 9000", "eth1: access 1", "eth1 promisc mtu 9000", "eth1 mtu 1500 silent"),
        (
            "eth1: routed ip 10.0.0.1/24",
            "eth1: routed ip 10.0.0.2/24",
            "eth1",
            "eth1 -10.0.0.1/24, eth1 +10.0.0.2/24",
        ),
        ("eth1: routed ip 10.0.0.1/24", "eth1: access 1", "eth1", "eth1 promisc silent, eth1 -10.0.0.1/24"),
    ] {
        assert_eq!(step(old, "eth1", next, links), (want.into(), String::new()), "{old} -> {next} | {links}");
    }
}

/// The kernel has the addresses in the order in which they were set, and removes those of a subnet with the first of them.
#[test]
fn the_primary_address_is_set_first() {
    for (old, next, want) in [
        (
            "10.0.0.1/24 ip 10.0.1.1/24 ip 10.0.0.2/24",
            "10.0.0.3/24 ip 10.0.1.1/24 ip 10.0.0.2/24",
            "-10.0.0.1/24 -10.0.0.2/24 -10.0.1.1/24 +10.0.0.3/24 +10.0.1.1/24 +10.0.0.2/24",
        ),
        // The others of the subnet go with its first address.
        (
            "10.0.0.1/24 ip 10.0.1.1/24 ip 10.0.1.2/24 ip 10.0.2.1/24",
            "10.0.0.1/24 ip 10.0.1.2/24 ip 10.0.2.1/24",
            "-10.0.1.1/24 -10.0.1.2/24 +10.0.1.2/24",
        ),
        ("10.0.0.1/24 ip 10.0.0.2/24", "10.0.0.2/24", "-10.0.0.1/24 -10.0.0.2/24 +10.0.0.2/24"),
        (
            "10.0.0.1/24 ip 10.0.1.1/24",
            "10.0.1.1/24 ip 10.0.0.1/24",
            "-10.0.0.1/24 -10.0.1.1/24 +10.0.1.1/24 +10.0.0.1/24",
        ),
        // A primary that stays is not interrupted.
        ("10.0.0.1/24 ip 10.0.0.2/24", "10.0.0.1/24", "-10.0.0.2/24"),
        ("10.0.0.1/24 ip 10.0.1.1/24", "10.0.0.1/24 ip 10.0.1.1/24 ip 10.0.2.1/24", "+10.0.2.1/24"),
    ] {
        let line = |nets: &str| format!("eth1: routed ip {nets}");
        let want: Vec<String> = want.split(' ').map(|net| format!("eth1 {net}")).collect();
        let got = step(&line(old), "eth1", &line(next), "eth1");
        assert_eq!(got, (want.join(", "), String::new()), "{old} -> {next}");
    }
}

#[test]
fn ipv6_forwarding_comes_back_as_it_was() {
    for (found, turned_on) in [(false, "ipv6-forwarding true"), (true, "")] {
        let mut facts = facts("");
        facts.ipv6_forwarding = found;
        let on = actions(None, &config("ipv6-routing"), &facts, &Record::default(), &identity());
        assert_eq!(list(&on.before), turned_on);
        facts.ipv6_forwarding = true;
        let again = actions(None, &config("ipv6-routing"), &facts, &on.record, &identity());
        assert_eq!((list(&again.before), &again.record), (String::new(), &on.record));
        let off = actions(None, &config(""), &facts, &on.record, &identity());
        assert_eq!(list(&off.before), if found { "" } else { "ipv6-forwarding false" });
        assert_eq!(off.record, Record::default());
    }
}

#[test]
fn a_port_is_given_back() {
    let back = ("".into(), "eth1 down -promisc mtu 1400".to_owned());
    assert_eq!(step("eth1: access 1", "eth1 down mtu 1400", "", "eth1 promisc"), back);
    // The kernel has switched LRO off when the port began to forward.
    let merging = (String::new(), "eth1 host lro".to_owned());
    assert_eq!(step("ip-routing\neth1: routed", "eth1 lro", "", "eth1"), merging);
    // Another netdev has the name by now and is left alone.
    assert_eq!(step("eth1: access 1", "eth1", "", "eth0, eth1 promisc"), Default::default());
    assert_eq!(step("eth1: access 1", "eth1", "", ""), Default::default());
}

/// A link mode that the switch has set is given back as it was found.
#[test]
fn a_speed_is_given_back() {
    let (taken, fixed) = ("eth1 promisc silent", "eth1: access 1 speed 100");
    assert_eq!(first(fixed, "eth1").0, format!("{taken}, eth1 speed 100"));
    let given_back = |found: &str, next: &str| step(fixed, found, next, "eth1 promisc fixed 100");
    assert_eq!(given_back("eth1", fixed), Default::default(), "nothing has changed");
    assert_eq!(given_back("eth1", "eth1: access 1 speed 1000").0, "eth1 speed 1000");
    assert_eq!(given_back("eth1", "eth1: access 1").0, "eth1 speed auto");
    assert_eq!(given_back("eth1 fixed 10", "eth1: access 1").0, "eth1 speed 10");
    assert_eq!(given_back("eth1", ""), (String::new(), "eth1 -promisc, eth1 speed auto".into()));
    assert_eq!(given_back("eth1 fixed 10", "").1, "eth1 -promisc, eth1 speed 10");
    let renamed = step(fixed, "eth1", fixed, "uplink promisc fixed 100");
    assert_eq!(renamed.1, "uplink -promisc, uplink speed auto");
    let record =
        |found: &str| actions(None, &config(fixed), &facts(found), &Record::default(), &identity()).record;
    let released = release(&facts("eth1 promisc fixed 100"), &record("eth1"), &identity());
    assert_eq!(list(&released), "eth1 -promisc, eth1 speed auto", "detach");
    // After a restart a link that has the configured mode is left alone; any other is set again.
    for (links, want) in [("eth1 promisc fixed 100", ""), ("eth1 promisc", "eth1 speed 100")] {
        let again = actions(None, &config(fixed), &facts(links), &record("eth1"), &identity());
        let speeds = again.before.iter().filter(|action| matches!(action, Action::Speed { .. }));
        assert_eq!(list(&speeds.cloned().collect::<Vec<_>>()), want, "{links}");
        assert_eq!(again.record.originals["eth1"].mode, Some(LinkMode::Autonegotiation));
    }
}

/// A refused change puts the mode back in which the port was found.
#[test]
fn undoing_a_speed_change_restores_the_mode_found_before() {
    for (links, want) in [("eth1", "eth1 speed auto"), ("eth1 fixed 10", "eth1 speed 10")] {
        let before = actions(
            None,
            &config("eth1: access 1 speed 100"),
            &facts(links),
            &Record::default(),
            &identity(),
        );
        let undo: Vec<Action> = before.before.into_iter().rev().map(Action::inverse).take(1).collect();
        assert_eq!(list(&undo), want);
    }
}

#[test]
fn vlan_interface_pairs() {
    let mac = "02aa.bbcc.d00a";
    let made = format!("vlan10 alias lanyard:test mac {mac}, ly10 alias lanyard:test");
    let create = format!("create vlan10 {mac} mtu 1500, vlan10 up host, ly10 silent, vlan10 +10.0.0.1/24");
    assert_eq!(first("vlan10: ip 10.0.0.1/24", ""), (create, String::new()));
    let shut = format!("create vlan10 {mac} mtu 9000, vlan10 host, ly10 silent");
    assert_eq!(first("vlan10: shutdown mtu 9000", ""), (shut, String::new()));
    let routing = format!("create vlan10 {mac} mtu 1500, vlan10 up forwards, ly10 silent");
    assert_eq!(first("ip-routing\nvlan10:", ""), (routing, String::new()));
    // Netdevs as the last run left them: only differences are written.
    assert_eq!(
        first("vlan10: mtu 9000", &made),
        ("vlan10 mtu 9000 host, ly10 mtu 9000 silent".into(), String::new())
    );
    assert_eq!(step("vlan10:", "", "", &made), (String::new(), "delete vlan10".into()));
    assert_eq!(step("vlan10: ip 10.0.0.1/24", "", "", &made), (String::new(), "delete vlan10".into()));
    // Deleted by hand: created again, with its addresses.
    let anew = format!("create vlan10 {mac} mtu 1500, vlan10 up host, ly10 silent, vlan10 +10.0.0.1/24");
    assert_eq!(step("vlan10: ip 10.0.0.1/24", "", "vlan10: ip 10.0.0.1/24", ""), (anew, String::new()));
    // A pair that is not configured any more is deleted at the first start; one without this
    // instance's mark stays.
    assert_eq!(first("", &made), (String::new(), "delete vlan10".into()));
    assert_eq!(first("", "vlan10, ly10, vlan11 alias lanyard:other"), Default::default());
}

#[test]
fn carriers_follow_the_lines() {
    let config = config("vlan10:\nvlan11:\nvlan12:");
    let up = "10,12".parse().expect("a list");
    assert_eq!(list(&carriers(&config, &facts("ly10 down, ly11, ly12"), &up)), "ly10 up, ly11 down");
}

#[test]
fn names_of_vlan_interfaces() {
    for (name, want) in
        [("vlan10", Some(10)), ("ly4094", Some(4094)), ("vlan010", None), ("ly0", None), ("lyra", None)]
    {
        assert_eq!(vlan_of(name).map(VlanId::get), want, "{name}");
    }
}

/// Netdevs that record what was done, and fail at one step.
struct Chaos {
    done: Vec<Action>,
    fail_at: usize,
    step: usize,
}

/// The failure at a step.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {0} is refused")]
struct Refused(usize);

impl Netdevs for Chaos {
    type Error = Refused;
    fn act(&mut self, run: &[Action]) -> Vec<Result<(), Refused>> {
        let mut act = |action: &Action| {
            self.step += 1;
            if self.step == self.fail_at {
                return Err(Refused(self.step));
            }
            let inverse = action.clone().inverse();
            match self.done.iter().rposition(|done| *done == inverse) {
                Some(at) => drop(self.done.remove(at)),
                None => self.done.push(action.clone()),
            }
            Ok(())
        };
        run.iter().map(&mut act).collect()
    }
}

#[test]
fn every_failing_step_is_undone() {
    let text = "ipv6-routing\nvrf red\nvlan10: ip 10.0.0.1/24\nvlan11: vrf red ip 10.0.0.1/24 no-redirects\n\
         eth1: access 1\neth2: routed ipv6 2001:db8::1/64\neth2.7: tag 7 vrf red";
    let actions =
        actions(None, &config(text), &facts("eth1, eth2 down"), &Record::default(), &identity()).before;
    assert!(actions.len() > 8);
    for fail_at in 1..=actions.len() {
        let mut chaos = Chaos { done: Vec::new(), fail_at, step: 0 };
        let error = transact(&mut chaos, &actions).expect_err("refused");
        assert_eq!((error.cause, error.interface), (Refused(fail_at), actions[fail_at - 1].interface()));
        assert_eq!(chaos.done, [], "step {fail_at}");
    }
    let mut chaos = Chaos { done: Vec::new(), fail_at: 0, step: 0 };
    assert_eq!(transact(&mut chaos, &actions), Ok(()));
    assert_eq!(chaos.done, actions);
}

/// The kernel removes IPv6 addresses when the netdev goes down, and keeps IPv4 addresses.
#[test]
fn ipv6_addresses_come_back_with_the_link() {
    let up = "eth1: routed ip 10.1.0.1/24 ipv6 fd01::1/64";
    let down = format!("{up} shutdown");
    assert_eq!(step(&down, "eth1", up, "eth1 down").0, "eth1 up host, eth1 +fd01::1/64");
    assert_eq!(step(up, "eth1", &down, "eth1").0, "eth1 down host");
    assert_eq!(step(up, "eth1", up, "eth1").0, "");
}

/// A VRF is created before its interfaces move into it, and deleted after they have left.
#[test]
fn vrfs() {
    let made = "vlan10 alias lanyard:test mac 02aa.bbcc.d00a in red, ly10 alias lanyard:test";
    let inside = "vrf red\nvlan10: vrf red ip 10.0.0.1/24";
    assert_eq!(
        first(inside, "").0,
        "+netns red, create vlan10 02aa.bbcc.d00a mtu 1500, vlan10 own -> red, vlan10 up host, ly10 silent, \
         vlan10 +10.0.0.1/24"
    );
    let there = |text: &str| {
        let mut facts = facts(text);
        let mark = Some("lanyard:test".to_owned());
        facts.namespaces.insert("red".into(), crate::facts::Namespace { mark, ..Default::default() });
        facts
    };
    let record = actions(None, &config(inside), &facts(""), &Record::default(), &identity()).record;
    assert_eq!(record.homes, [("vlan10".to_owned(), "red".to_owned())].into());
    let next = |text: &str, links: &str| {
        let result = actions(Some(&config(inside)), &config(text), &there(links), &record, &identity());
        (list(&result.before), list(&result.after), result.record)
    };
    assert_eq!((next(inside, made).0, next(inside, made).1), Default::default());
    let (before, after, left) = next("vlan10: ip 10.0.0.9/24", made);
    assert_eq!(before, "vlan10 red -> own, vlan10 up host, ly10 silent, vlan10 +10.0.0.9/24");
    assert_eq!(after, "-netns red");
    assert_eq!((left.homes.len(), left.namespaces.len()), (0, 0));
    let (before, after, _) = next("", made);
    assert_eq!((before.as_str(), after.as_str()), ("", "delete vlan10, -netns red"));
    // A routed port is moved into the VRF, and back in its original state.
    let port = "vrf red\neth1: routed vrf red";
    assert_eq!(first(port, "eth1").0, "+netns red, eth1 own -> red, eth1 up host");
    let record = actions(None, &config(port), &facts("eth1"), &Record::default(), &identity()).record;
    let back = release(&there("eth1 in red"), &record, &identity());
    assert_eq!(list(&back), "eth1 red -> own, eth1 up, -netns red");
    // A namespace that existed before stays, with its sysctls restored.
    let foreign = |redirects: bool| {
        let knobs = [(Knob::Redirects, redirects)].into();
        let mut facts = facts("");
        facts.namespaces.insert("red".into(), crate::facts::Namespace { knobs, ..Default::default() });
        facts
    };
    let off = config("vrf red\nvlan10: vrf red no-redirects");
    let first = actions(None, &off, &foreign(true), &Record::default(), &identity());
    assert!(list(&first.before).ends_with("red Redirects false"), "{}", list(&first.before));
    let back = release(&foreign(false), &first.record, &identity());
    assert_eq!(list(&back), "red Redirects true");
}

#[test]
fn subinterfaces() {
    let text = "eth1: routed\neth1.7: tag 7 ip 10.0.0.1/24";
    assert_eq!(
        first(text, "eth1 mtu 9000").0,
        "create eth1.7 0200.0001.0001 mtu 9000, eth1.7 up host, lyeth1.7 silent, eth1 promisc host, eth1.7 +10.0.0.1/24"
    );
    let made = "eth1, eth1.7 alias lanyard:test, lyeth1.7 alias lanyard:test";
    assert_eq!(step(text, "eth1", "eth1: routed", made), (String::new(), "delete eth1.7".into()));
    // The VLAN filter of a NIC would drop the tags, so the port is promiscuous while it has
    // subinterfaces; its other settings stay.
    let made = "eth1 down promisc mtu 1400, eth1.7 alias lanyard:test, lyeth1.7 alias lanyard:test";
    let gone = ("eth1 -promisc".to_owned(), "delete eth1.7".to_owned());
    assert_eq!(step(text, "eth1", "eth1: routed", made), gone);
    let added = step("eth1: routed", "eth1", text, "eth1 down mtu 1400").0;
    assert!(added.contains("eth1 promisc,") && !added.contains("eth1 up"), "{added}");
    assert_eq!(
        step("eth1: routed", "eth1 promisc", "eth1: routed\neth2: routed", "eth1 promisc, eth2").0,
        "eth2 host"
    );
    let config = config(text);
    for (links, want) in [
        ("eth1, eth1.7, lyeth1.7 down", "lyeth1.7 up"),
        ("eth1 no-carrier, eth1.7, lyeth1.7", "lyeth1.7 down"),
        ("eth1, eth1.7, lyeth1.7", ""),
    ] {
        assert_eq!(list(&carriers(&config, &facts(links), &Default::default())), want, "{links}");
    }
}
