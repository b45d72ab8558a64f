//! The front panel: the path of its frames, splits, speeds; and the messages about the chip.

use crate::bridging::BRIDGE;
use crate::harness::wait_for;
use crate::rig::{Rig, platform};
use serde_json::Value;

/// Two routed ports, at whose addresses the kernel's own stack answers.
const ROUTED: &str = "hostname r1\ninterface swp1\n no switchport\n ip address 10.0.0.254 255.255.255.0\n\
    interface swp2\n no switchport\n ip address 10.0.2.254 255.255.255.0\nip routing\n";

fn path(rig: &Rig) -> Value {
    rig.show("show platform")["chip"]["control_path"].clone()
}

/// The switch's own address answers by either path, and a change of the path keeps it.
#[test]
fn control_frames_take_the_path_that_is_configured() {
    crate::check(|| {
        let mut rig = Rig::new(2, ROUTED);
        for (way, kind) in [("tun", "tun"), ("kernel", "veth"), ("tun", "tun")] {
            rig.configure(&format!("platform control-path {way}")).expect("both paths are there");
            assert_eq!(path(&rig), way);
            let port = rig.net.run(|| lanyard_netdev::Netdev::open().unwrap().link("swp1").unwrap());
            assert_eq!(port.kind.as_deref(), Some(kind));
            assert_eq!(port.mac.to_string(), "0208.0000.0001", "the address is the platform's");
            rig.reaches(1, "10.0.0.254");
        }
        // A restarted daemon finds the path that the previous one used.
        rig.kill_daemon();
        rig.start();
        rig.reaches(1, "10.0.0.254");
    });
}

#[test]
fn in_the_kernel_control_frames_need_no_daemon() {
    crate::check(|| {
        let mut rig = Rig::new(2, &format!("platform control-path kernel\n{ROUTED}"));
        rig.hosts[1]
            .ip("address flush dev eth0\naddress add 10.0.2.1/24 dev eth0\nroute add default via 10.0.2.254");
        rig.hosts[0].ip("route add default via 10.0.0.254");
        rig.reaches(1, "10.0.0.254");
        rig.reaches(1, "10.0.2.1");
        rig.kill_daemon();
        // The neighbour's entry is removed, so ARP and ICMP of the kernel have to work.
        rig.hosts[0].ip("neighbour flush dev eth0");
        rig.reaches(1, "10.0.0.254");
        rig.reaches(1, "10.0.2.1");
        rig.start();
        rig.reaches(1, "10.0.0.254");
    });
}

#[test]
fn tcp_reaches_the_switch_by_both_paths() {
    crate::check(|| {
        let rig = Rig::new(1, ROUTED);
        for way in ["tun", "kernel"] {
            rig.configure(&format!("platform control-path {way}")).expect("both paths are there");
            rig.reaches(1, "10.0.0.254");
            for (server, client) in [(&rig.net, &rig.hosts[0]), (&rig.hosts[0], &rig.net)] {
                let address =
                    if std::ptr::eq(server, &rig.net) { "10.0.0.254:5001" } else { "10.0.0.1:5001" };
                transfer(server, client, address, 3 << 20);
            }
        }
    });
}

/// Sends bytes over TCP, which must arrive as they were sent.
fn transfer(server: &crate::harness::Net, client: &crate::harness::Net, address: &str, bytes: usize) {
    use std::io::{Read, Write};
    let listener = server.run(|| std::net::TcpListener::bind(address)).expect("listening");
    let data: Vec<u8> = (0..bytes).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let received = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut all = Vec::new();
            listener.accept().expect("a connection").0.read_to_end(&mut all).expect("read");
            all
        });
        let mut stream = client.run(|| std::net::TcpStream::connect(address)).expect("connected");
        stream.write_all(&data).expect("written");
        stream.shutdown(std::net::Shutdown::Write).expect("shut down");
        reader.join().expect("the reader")
    });
    assert!(received == data, "{} of {bytes} bytes arrived, or others", received.len());
}

#[test]
fn a_port_is_split_and_whole_again() {
    crate::check(|| {
        let rig = Rig::on(platform("spectrum-like.toml"), 0, "hostname sw1\n");
        let ports = || -> Vec<String> {
            rig.net
                .links()
                .into_iter()
                .filter(|name| name.starts_with("swp") && !name.contains('-'))
                .collect()
        };
        assert_eq!(ports().len(), 32);
        rig.configure("interface swp1\nbreakout 4x25g").expect("allowed");
        let split = ports();
        for name in ["swp1s0", "swp1s1", "swp1s2", "swp1s3"] {
            assert!(split.contains(&name.to_owned()), "{name}: {split:?}");
        }
        assert!(!split.contains(&"swp1".into()) && !split.contains(&"swp2".into()), "{split:?}");
        let panel = rig.show("show platform ports");
        let port = |name: &str| {
            panel["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).cloned().unwrap()
        };
        assert_eq!(
            (&port("swp1s2")["speed_mbps"], &port("swp1")["absent"]),
            (&25_000.into(), &"split into 4x25g".into())
        );
        // A part of a split port is a port like others; while it is configured, the split cannot be undone.
        rig.net.ip("link add swp1s0-wire type veth peer name far");
        rig.net.ip("link set far up");
        rig.configure("interface swp1s0\nswitchport").expect("a port");
        wait_for("its link", || {
            let view = rig.show("show interfaces swp1s0");
            (view["interfaces"][0]["link_up"] == true).then_some(())
        });
        let refused = rig.configure("interface swp1\nno breakout").expect_err("it is configured");
        assert!(refused.contains("swp1s0 is configured"), "{refused}");
        rig.configure("default interface swp1s0").expect("taken");
        rig.configure("interface swp1\nno breakout").expect("nothing is configured");
        assert_eq!(ports().len(), 32);
        rig.configure("interface swp4\nswitchport").expect("a port");
        let refused =
            rig.configure("interface swp3\nbreakout 4x25g").expect_err("its neighbour is configured");
        assert!(refused.contains("swp4 is configured and would be taken away"), "{refused}");
        let refused =
            rig.configure("interface swp2\nbreakout 4x25g").expect_err("the platform does not allow it");
        assert!(refused.contains("swp2 cannot be split into 4x25g: the platform allows 2x50g"), "{refused}");
    });
}

#[test]
fn speeds_are_the_ports_own() {
    crate::check(|| {
        let rig = Rig::new(2, BRIDGE);
        let speed = || rig.show("show interfaces swp1")["interfaces"][0]["speed_mbps"].clone();
        assert_eq!(speed(), 1000);
        rig.configure("interface swp1\nspeed 100\nduplex full\nfec off").expect("allowed");
        assert_eq!(speed(), 100);
        rig.reaches(1, "10.0.0.2");
        let refused = rig.configure("interface swp1\nspeed 40000").expect_err("a copper port");
        assert!(refused.contains("its speeds are 1000, 100, 10"), "{refused}");
        let status = rig.exec(&["show interfaces status"]);
        assert!(status.contains("swp1") && status.contains("100"), "{status}");
        let module = || rig.show("show interfaces transceiver")["interfaces"][0].clone();
        let one = module();
        assert_eq!(
            (&one["module"], &one["wire"], &one["fec"]),
            (&"virtual cable".into(), &"swp1-wire".into(), &"off".into())
        );
        for (line, fec) in [("fec rs", "rs"), ("fec base-r", "base-r"), ("no fec", "auto")] {
            rig.configure(&format!("interface swp1\n{line}")).expect(line);
            assert_eq!(module()["fec"], fec);
        }
        let refused = rig.configure("interface swp1\nfec none").expect_err("there is no such code");
        assert!(refused.contains('%'), "{refused}");
    });
}

#[test]
fn the_resource_manager_is_configured_and_shown() {
    crate::check(|| {
        let rig = Rig::new(1, BRIDGE);
        for words in ["lockstep", "prefetch 16", "credit", "predict-flat", "predict-model", "hybrid"] {
            rig.configure(&format!("platform resource-manager {words}")).expect(words);
            assert_eq!(rig.show("show platform resources")["manager"], words);
        }
        rig.configure("platform policy tcam/routes sync").expect("it holds routes");
        let tables = rig.show("show platform resources");
        let row = |name: &str| {
            tables["tables"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap()
        };
        assert_eq!(row("tcam/routes")["policy"], "sync");
        assert_eq!(
            row("tcam/routes")["shared_with"],
            serde_json::json!(["ipv4_prefix", "ipv6_prefix64", "ipv6_prefix128", "tcam/rules"])
        );
        let refused = rig.configure("platform policy hash/nothing bypass").expect_err("there is none");
        assert!(refused.contains("hash/nothing is no table that holds routes or access lists"), "{refused}");
        let pipeline = rig.show("show platform pipeline");
        let route = pipeline["stages"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["stage"] == "route")
            .cloned()
            .unwrap();
        assert!(route["tables"].to_string().contains("tcam/routes (tcam)"), "{route}");
    });
}
