//! The hooks of nftables, XFRM and legacy iptables.

use super::*;
use lanyard_netdev::{FilterWatch, Hook, HookPoint};
use std::collections::BTreeSet;

/// Runs a command in this namespace.
fn sh(command: &str) {
    let output = std::process::Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The owners of these hooks, with the families they see.
fn owners(hooks: &BTreeSet<Hook>) -> Vec<String> {
    let families = |hook: &Hook| match (hook.ipv4, hook.ipv6) {
        (true, true) => "both",
        (true, false) => "4",
        _ => "6",
    };
    let mut list: Vec<String> =
        hooks.iter().map(|hook| format!("{}: {}", families(hook), hook.owner)).collect();
    list.sort();
    list
}

/// Runs a command; returns the hooks that the kernel announces and those that it lists afterwards.
fn announced(watch: &mut FilterWatch, command: &str) -> (Vec<String>, Vec<String>) {
    sh(command);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut new = BTreeSet::new();
    while !watch.events(&mut new) {
        assert!(Instant::now() < deadline, "nothing is announced of {command}");
        std::thread::sleep(Duration::from_millis(2));
    }
    (owners(&new), owners(&watch.list().unwrap()))
}

#[test]
fn packet_filter_hooks_of_nftables() {
    if std::process::Command::new("nft").arg("--version").output().is_err() {
        println!("skipped: no nft");
        return;
    }
    in_namespace(|netdev| {
        pair(netdev);
        let mut watch = FilterWatch::open().unwrap();
        assert_eq!(watch.list().unwrap(), BTreeSet::new());
        let none: Vec<String> = Vec::new();
        // Forwarded packets do not pass hooks for packets to the switch itself, for frames that a kernel bridge
        // forwards, or for ARP.
        let aside =
            "nft add table inet a; nft 'add chain inet a input { type filter hook input priority 0; }'
            nft add table bridge b; nft 'add chain bridge b f { type filter hook forward priority 0; }'
            nft add table arp c; nft 'add chain arp c i { type filter hook input priority 0; }'
            nft add chain inet a regular";
        assert_eq!(announced(&mut watch, aside).1, none);
        let forward = "nft 'add chain inet a forward { type filter hook forward priority 0; }'";
        let chain = vec!["both: nftables chain inet a forward".to_owned()];
        assert_eq!(announced(&mut watch, forward), (chain.clone(), chain));
        // A chain of a dormant table is not registered at a hook.
        assert_eq!(announced(&mut watch, "nft 'add table inet a { flags dormant; }'").1, none);
        assert_eq!(announced(&mut watch, "nft delete table inet a").1, none);
        let nat = "nft add table ip n; nft 'add chain ip n post { type nat hook postrouting priority 100; }'
            nft add table ip6 n; nft 'add chain ip6 n pre { type filter hook prerouting priority 0; }'";
        let (_, listed) = announced(&mut watch, nat);
        assert_eq!(listed, ["4: nftables chain ip n post", "6: nftables chain ip6 n pre"]);
        sh("nft flush ruleset; nft add table netdev d");
        let ingress = "nft 'add chain netdev d in { type filter hook ingress device p0 priority 0; }'";
        announced(&mut watch, ingress);
        let hooks = watch.list().unwrap();
        assert_eq!(hooks.first().unwrap().point, HookPoint::Ingress(vec!["p0".into()]));
    });
}

#[test]
fn packet_filter_hooks_of_xfrm() {
    in_namespace(|_| {
        let mut watch = FilterWatch::open().unwrap();
        let add = "ip xfrm policy add src 10.0.0.0/8 dst 11.0.0.0/8 dir out";
        let policy = vec!["4: an IPsec (XFRM) policy".to_owned()];
        assert_eq!(announced(&mut watch, add), (policy.clone(), policy));
        assert_eq!(announced(&mut watch, "ip xfrm policy flush").1, Vec::<String>::new());
        let add = "ip -6 xfrm policy add src fd00::/8 dst fd01::/16 dir fwd";
        assert_eq!(announced(&mut watch, add).1, ["6: an IPsec (XFRM) policy"]);
    });
}

/// The hooks that nothing announces. A listing is incomplete while another program of the machine makes a BPF link.
fn listed(watch: &mut FilterWatch) -> BTreeSet<Hook> {
    let begin = std::time::Instant::now();
    loop {
        match watch.unannounced() {
            Err(error) if error.to_string().contains("not every BPF link") => {
                assert!(begin.elapsed().as_secs() < 60, "{error}");
                std::thread::yield_now();
            }
            listed => return listed.unwrap(),
        }
    }
}

#[test]
fn packet_filter_hooks_of_legacy_iptables() {
    if std::process::Command::new("iptables-legacy").arg("--version").output().is_err() {
        println!("skipped: no iptables-legacy");
        return;
    }
    in_namespace(|_| {
        let mut watch = FilterWatch::open().unwrap();
        let mut check = |command: &str, want: &[&str]| {
            sh(command);
            assert_eq!(owners(&listed(&mut watch)), want, "after {command}");
        };
        check("true", &[]);
        // Listing a table with iptables loads it, with empty chains that accept.
        check("iptables-legacy -S; iptables-legacy -t nat -S", &[]);
        check("iptables-legacy -A INPUT -p udp -j ACCEPT", &[]);
        check("iptables-legacy -P FORWARD DROP", &["4: iptables (legacy) chain filter FORWARD"]);
        check("iptables-legacy -P FORWARD ACCEPT", &[]);
        check(
            "iptables-legacy -t nat -A POSTROUTING -j MASQUERADE; ip6tables-legacy -t raw -A PREROUTING -j DROP",
            &["4: iptables (legacy) chain nat POSTROUTING", "6: ip6tables (legacy) chain raw PREROUTING"],
        );
        check("iptables-legacy -t nat -F; ip6tables-legacy -t raw -F", &[]);
        // The hooks are also visible from outside the namespace.
        check("iptables-legacy -A FORWARD -j DROP", &["4: iptables (legacy) chain filter FORWARD"]);
        let outside = netns::run_in_new(|| listed(&mut watch)).unwrap();
        assert_eq!(owners(&outside), ["4: iptables (legacy) chain filter FORWARD"]);
    });
}
