//! Port security against hosts that attack: floods of addresses, the address of another port's station; sticky addresses,
//! err-disable, restarts.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};

scenarios! {
    addresses_up_to_the_maximum: ebpf soft;
    a_flood_of_addresses: ebpf soft;
    an_address_of_another_port: ebpf soft;
    sticky_addresses: ebpf soft;
    a_violation_shuts_the_port_down: ebpf soft;
    a_restart_keeps_secure_addresses: ebpf;
}

const THREE: &str = "interface range p1 - 3\n switchport\n";

/// A switch with three access ports; these lines are those of p1, which has port security.
fn bed(plane: Plane, lines: &str) -> Bed {
    let bed = Bed::new(plane, 3, THREE);
    bed.configure(&format!("interface p1\nswitchport port-security\n{lines}"));
    bed
}

fn broadcast(host: u16) -> Frame {
    frame(BROADCAST, mac(host))
}

/// Waits until the secure addresses of all ports are these, as `LAST OCTET KIND`.
fn secure(bed: &Bed, want: &[&str]) {
    let shown = || {
        let view = bed.show("show port-security address");
        let text = |address: &serde_json::Value| {
            let (mac, kind) = (address["mac"].as_str().unwrap(), address["type"].as_str().unwrap());
            format!("{} {kind}", u32::from_str_radix(&mac[15..], 16).unwrap())
        };
        view["addresses"].as_array().unwrap().iter().map(text).collect::<Vec<_>>()
    };
    wait_for("the secure addresses", || (shown() == want).then_some(()));
}

fn addresses_up_to_the_maximum(plane: Plane) {
    let bed = bed(
        plane,
        "switchport port-security maximum 2\nswitchport port-security violation restrict\n\
         switchport port-security mac-address 0200.0000.0063",
    );
    bed.expect_at(1, &broadcast(1), &[2, 3]);
    secure(&bed, &["1 dynamic", "99 configured"]);
    bed.expect_drop(1, &broadcast(2), "port_security");
    bed.expect_at(1, &broadcast(1), &[2, 3]);
    bed.expect_at(1, &broadcast(99), &[2, 3]);
    bed.expect_at(2, &frame(mac(1), mac(5)), &[1]);
    bed.expect_at(1, &frame(mac(5), mac(1)), &[2]);
    let shown = bed.show("show port-security interface p1");
    assert_eq!((&shown["violations"], &shown["status"]), (&1.into(), &"secure-up".into()), "{shown}");
    wait_for("the message", || {
        bed.exec(&["show logging"]).contains("%PORT_SECURITY-2-PSECURE_VIOLATION").then_some(())
    });
    bed.configure("interface p1\nno switchport port-security");
    bed.expect_at(1, &broadcast(2), &[2, 3]);
}

/// The attacker sends from thousands of addresses, as `macof` does; a station behind the same port continues.
fn a_flood_of_addresses(plane: Plane) {
    let bed = bed(plane, "switchport port-security maximum 3\nswitchport port-security violation restrict");
    bed.expect_at(1, &broadcast(1), &[2, 3]);
    secure(&bed, &["1 dynamic"]);
    let (before, flood) = (bed.drops(1, "port_security"), 5_000);
    for host in 1_000..1_000 + flood {
        bed.host(1).send(&broadcast(host));
    }
    wait_for("the end of the flood", || {
        (bed.drops(1, "port_security") - before + 2 >= u64::from(flood)).then_some(())
    });
    bed.host(2).drain();
    bed.host(3).drain();
    let shown = bed.show("show mac address-table interface p1");
    assert_eq!(shown["total"], 3, "{shown}");
    bed.expect_at(1, &broadcast(1), &[2, 3]);
    bed.expect_at(2, &frame(mac(1), mac(2)), &[1]);
    let log = bed.exec(&["show logging"]);
    let lines = log.matches("PSECURE_VIOLATION").count();
    assert!((1..=3).contains(&lines), "{lines} lines:\n{log}");
}

fn an_address_of_another_port(plane: Plane) {
    let bed = bed(plane, "switchport port-security violation protect");
    bed.configure(
        "interface p2\nswitchport port-security\nswitchport port-security maximum 5\n\
         switchport port-security violation protect",
    );
    bed.expect_at(1, &broadcast(1), &[2, 3]);
    secure(&bed, &["1 dynamic"]);
    // Another secure port refuses the address, and an ordinary one does not take it over.
    bed.expect_drop(2, &broadcast(1), "port_security");
    bed.expect_at(3, &broadcast(1), &[1, 2]);
    bed.expect_at(3, &frame(mac(1), mac(3)), &[1]);
    assert_eq!(bed.show("show port-security interface p2")["violations"], 0);
}

fn sticky_addresses(plane: Plane) {
    let bed =
        bed(plane, "switchport port-security mac-address sticky\nswitchport port-security violation protect");
    bed.expect_at(1, &broadcast(7), &[2, 3]);
    secure(&bed, &["7 sticky"]);
    let running = bed.exec(&["show running-config interface p1"]);
    assert!(running.contains("switchport port-security mac-address sticky 0200.0000.0007"), "{running}");
    assert_eq!(bed.entry(mac(7), 1), Some(("p1".into(), "sticky".into())));
    bed.expect_drop(1, &broadcast(8), "port_security");
    bed.exec(&["clear port-security sticky interface p1"]);
    secure(&bed, &[]);
    bed.expect_at(1, &broadcast(8), &[2, 3]);
    secure(&bed, &["8 sticky"]);
}

fn a_violation_shuts_the_port_down(plane: Plane) {
    let bed = bed(plane, "");
    bed.expect_at(1, &broadcast(1), &[2, 3]);
    bed.host(1).send(&broadcast(2));
    let status = || bed.show("show port-security interface p1")["status"].clone();
    wait_for("err-disable", || (status() == "secure-shutdown").then_some(()));
    let shown = bed.show("show errdisable recovery");
    assert_eq!(shown["interfaces"][0]["cause"], "psecure-violation", "{shown}");
    bed.host(2).drain();
    bed.expect_at(2, &broadcast(5), &[3]);
    bed.configure("interface p1\nshutdown\nno shutdown");
    wait_for("the port to come up", || (status() == "secure-up").then_some(()));
    bed.expect_at(1, &broadcast(2), &[2, 3]);
    secure(&bed, &["2 dynamic"]);
}

fn a_restart_keeps_secure_addresses(plane: Plane) {
    let bed = bed(plane, "switchport port-security violation protect");
    bed.expect_at(1, &broadcast(1), &[2, 3]);
    secure(&bed, &["1 dynamic"]);
    bed.exec(&["copy running-config startup-config"]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    for host in 2..10 {
        bed.host(1).send(&broadcast(host));
    }
    bed.start();
    secure(&bed, &["1 dynamic"]);
    bed.expect_drop(1, &broadcast(3), "port_security");
    bed.expect_at(1, &broadcast(1), &[2, 3]);
}
