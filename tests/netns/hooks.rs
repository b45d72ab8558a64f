//! The kernel's hooks: a port forwarded by XDP, and tags that the kernel keeps out of band.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};

scenarios! {
    xdp_on_veth: ebpf;
    xdp_floods: ebpf;
    xdp_drops_frames_over_the_trap_rate_and_forwards_new_sources: ebpf;
    xdp_and_tc_together: ebpf;
    delivery: ebpf;
    netdev_changes_are_followed: ebpf;
    napi_turned_off_without_a_daemon: ebpf;
    full_size_double_tags: ebpf;
    captures_show_both_directions: ebpf soft;
    tags_out_of_band: ebpf soft;
    the_soft_plane_has_no_hooks: soft;
}

const CONFIG: &str = "\
vlan 10,20
interface range p1 - 2
 switchport access vlan 10
interface p3
 switchport access vlan 20
interface p4
 switchport mode trunk
";

fn hook(bed: &Bed, name: &str) -> String {
    bed.show(&format!("show interfaces {name}"))["interfaces"][0]["hook"].as_str().unwrap_or("-").to_owned()
}

fn forwards(bed: &Bed) {
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f, &[(2, f.clone()), (4, f.vlan(10))]);
    let f = frame(BROADCAST, mac(4));
    bed.expect(4, &f.vlan(10), &[(1, f.clone()), (2, f.clone())]);
    bed.expect(4, &f.vlan(20), &[(3, f.clone())]);
    for _ in 0..3 {
        bed.expect_at(2, &frame(mac(1), mac(2)), &[1]);
        bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
        let f = frame(mac(1), mac(4));
        bed.expect(4, &f.vlan(10), &[(1, f.clone())]);
        let f = frame(mac(4), mac(1));
        bed.expect(1, &f, &[(4, f.vlan(10))]);
    }
    bed.expect_drop(1, &frame(BROADCAST, mac(1)).vlan(20), "tagged_on_access");
    bed.expect_drop(3, &frame(mac(1), mac(3)).vlan(10), "tagged_on_access");
    bed.learned(mac(3), 10, None);
    bed.expect_drop(1, &frame(crate::harness::frame::reserved(1), mac(1)), "pause");
}

fn xdp_on_veth(plane: Plane) {
    let bed = Bed::new(plane, 4, &format!("{CONFIG}interface range p1 - 4\n hook xdp\n"));
    assert_eq!(hook(&bed, "p1"), "xdp");
    forwards(&bed);
    let (one, two) = (bed.host(1), bed.host(2));
    one.address("10.0.0.1/24");
    two.address("10.0.0.2/24");
    bed.chatter.set(true);
    one.reaches("10.0.0.2");
    one.tcp(two, "10.0.0.2", 1 << 20);
    bed.configure("interface range p1 - 4\nhook tc");
    assert_eq!(hook(&bed, "p1"), "tc");
    assert!(bed.netdev.link("p1").unwrap().xdp.is_none());
    forwards(&bed);
}

/// The number of frames that the port's driver has redirected for XDP.
pub fn redirected(bed: &Bed, port: &str) -> u64 {
    driver_count(bed, port, "_xdp_redirect:")
}

/// The number of frames that XDP has dropped at the port.
pub fn dropped_at_xdp(bed: &Bed, port: &str) -> u64 {
    driver_count(bed, port, "_xdp_drops:")
}

/// One of the driver's counters, the sum over its queues.
fn driver_count(bed: &Bed, port: &str, name: &str) -> u64 {
    let output = bed.net.output(std::process::Command::new("ethtool").args(["-S", port]));
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().filter(|line| line.contains(name));
    counts.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u64>().ok()).sum()
}

/// A switch whose hosts take frames from XDP: a veth does while its other end runs NAPI.
pub fn on_xdp(plane: Plane, ports: usize, config: &str) -> Bed {
    let bed = Bed::without_switch(plane, ports, 1500);
    for host in &bed.hosts {
        host.net.output(std::process::Command::new("ethtool").args(["-K", "eth0", "gro", "on"]));
    }
    std::fs::write(bed.config_file(), config).expect("a startup-config");
    bed.start();
    bed
}

/// XDP drops frames over the rate of a trap group, and forwards frames from new sources beyond a limit, without TC. The counters
/// are the same as on TC.
fn xdp_drops_frames_over_the_trap_rate_and_forwards_new_sources(plane: Plane) {
    let config = "spanning-tree mode rstp\ninterface range p1 - 3\n switchport\n spanning-tree portfast\n hook xdp\n\
        interface p3\n mac address-table limit 1\n";
    let bed = on_xdp(plane, 3, config);
    bed.exact.set(false); // the switch sends BPDUs
    // A BPDU without effect on the tree: a better one would make the switch answer.
    let bpdu = super::control_plane::harmless_bpdu(mac(9));
    let stp = |key: &str| super::control_plane::counted(&bed, key, "stp");
    let mut sent = 0;
    wait_for("XDP to drop BPDUs", || {
        for _ in 0..500 {
            bed.host(1).send(&bpdu);
        }
        sent += 500;
        (dropped_at_xdp(&bed, "p1") > 0).then_some(())
    });
    wait_for("all BPDUs", || (stp("trapped") + stp("policed") >= sent).then_some(()));
    assert_eq!(stp("trapped") + stp("policed"), sent);
    assert_eq!(bed.drops(1, "trap_policed"), stp("policed"), "{}", bed.ask("show interfaces counters drops"));
    assert!(stp("trapped") > 0 && dropped_at_xdp(&bed, "p1") <= stp("policed"));
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    bed.expect_at(2, &frame(mac(1), mac(2)), &[1]);
    // New sources beyond the limit: the frames are forwarded by XDP.
    bed.expect_at(3, &frame(mac(1), mac(3)), &[1]);
    let before = redirected(&bed, "p3");
    for new in 0..5 {
        bed.expect_at(3, &frame(mac(1), mac(100 + new)), &[1]);
    }
    assert_eq!(redirected(&bed, "p3") - before, 5, "XDP has forwarded them");
    bed.learned(mac(100), 1, None);
}

/// A flood whose receivers all take frames from XDP does not reach TC: tags, blocked ports and lengths are handled
/// as on TC.
fn xdp_floods(plane: Plane) {
    const GROUP: [u8; 6] = [0x01, 0, 0x5e, 1, 2, 3];
    let config =
        format!("{CONFIG}interface p5\n switchport access vlan 10\ninterface range p1 - 5\n hook xdp\n");
    let bed = on_xdp(plane, 5, &config);
    // Host 4 is behind the trunk.
    let from_1 = |f: &Frame, ports: &[usize]| {
        let form = |port: &usize| (*port, if *port == 4 { f.vlan(10) } else { f.clone() });
        bed.expect(1, f, &ports.iter().map(form).collect::<Vec<_>>());
    };
    let from_4 = |f: &Frame| bed.expect(4, &f.vlan(10), &[1, 2, 5].map(|port| (port, f.clone())));
    // The first frame of a station is learned on TC.
    from_1(&frame(BROADCAST, mac(1)), &[2, 4, 5]);
    from_4(&frame(BROADCAST, mac(4)));
    let before = redirected(&bed, "p1");
    for dst in [BROADCAST, GROUP, mac(99)] {
        from_1(&frame(dst, mac(1)), &[2, 4, 5]);
        from_4(&frame(dst, mac(4)));
    }
    assert_eq!(redirected(&bed, "p1") - before, 3, "XDP has flooded");
    // A priority tag's priority is kept where the frame leaves tagged.
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f.tag(0x8100, 5, 0), &[(2, f.clone()), (4, f.tag(0x8100, 5, 10)), (5, f.clone())]);
    bed.configure("interface p2\nswitchport block unicast\ninterface p5\nswitchport block multicast");
    let before = redirected(&bed, "p1");
    for (dst, ports) in [(mac(99), [4, 5].as_slice()), (GROUP, &[2, 4]), (BROADCAST, &[2, 4, 5])] {
        from_1(&frame(dst, mac(1)), ports);
    }
    assert_eq!(redirected(&bed, "p1") - before, 1, "copies for fewer than half of the ports are made on TC");
    // Cases that XDP passes to TC: a protected port, a port whose MTU may be too small, a port on TC.
    let before = redirected(&bed, "p1");
    bed.configure("interface range p1 - 2\nswitchport protected");
    from_1(&frame(BROADCAST, mac(1)), &[4, 5]);
    bed.configure("interface range p1 - 2\nno switchport protected");
    bed.expect_drop(1, &frame(BROADCAST, mac(1)).vlan(20), "tagged_on_access");
    from_1(&frame(BROADCAST, mac(1)).len(1514), &[2, 4, 5]);
    assert_eq!(redirected(&bed, "p1") - before, 1, "the last one alone");
    bed.configure("interface p2\nmtu 1400");
    from_1(&frame(BROADCAST, mac(1)).len(1450), &[4, 5]);
    bed.configure("interface p2\nno mtu\ninterface p4\nshutdown");
    from_1(&frame(BROADCAST, mac(1)), &[2, 5]);
}

fn xdp_and_tc_together(plane: Plane) {
    let bed = Bed::new(plane, 4, &format!("{CONFIG}interface p1\n hook xdp\ninterface p4\n hook tc\n"));
    assert_eq!((hook(&bed, "p1").as_str(), hook(&bed, "p4").as_str()), ("xdp", "tc"));
    forwards(&bed);
}

/// With both deliveries, to the peer and through the device, the host sees the same.
fn delivery(plane: Plane) {
    let bed = Bed::new(plane, 4, CONFIG);
    for how in ["peer", "device", "auto"] {
        bed.configure(&format!("interface range p1 - 4\ndelivery {how}"));
        forwards(&bed);
        bed.exec(&["clear mac address-table dynamic"]);
    }
}

/// Changes by hosts and administrators after the start change how a port is forwarded, within a second.
fn netdev_changes_are_followed(plane: Plane) {
    let bed = Bed::new(plane, 4, &format!("{CONFIG}interface range p1 - 2\n hook xdp\n"));
    let printed = |command: &str, text: &str| {
        let began = std::time::Instant::now();
        crate::harness::wait_for(text, || bed.exec(&[command]).contains(text).then_some(()));
        println!("{text}: after {:?}", began.elapsed());
    };
    let run = |net: &crate::harness::Net, program: &str, arguments: &str| {
        let output = net.output(std::process::Command::new(program).args(arguments.split(' ')));
        assert!(
            output.status.success(),
            "{program} {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    forwards(&bed);
    assert_eq!(redirected(&bed, "p1"), 0, "no host runs NAPI");
    for host in [1, 2] {
        run(&bed.host(host).net, "ethtool", "-K eth0 gro on");
    }
    printed("show logging", "Interface p1: takes frames from XDP");
    printed("show logging", "Interface p2: takes frames from XDP");
    forwards(&bed);
    assert!(redirected(&bed, "p1") > 0, "XDP is not used");
    for host in [1, 2] {
        run(&bed.host(host).net, "ethtool", "-K eth0 gro off");
    }
    printed("show logging", "Interface p1: takes no more frames from XDP");
    printed("show logging", "Interface p2: takes no more frames from XDP");
    forwards(&bed);
    printed("show interfaces p3", "handed to the other end directly");
    run(&bed.net, "tc", "qdisc add dev p3 root tbf rate 50mbit burst 100k latency 10ms");
    printed("show interfaces p3", "Frames leave through the device: it has the queueing discipline tbf");
    forwards(&bed);
    run(&bed.net, "tc", "qdisc del dev p3 root");
    printed("show interfaces p3", "handed to the other end directly");
}

/// A host stops taking frames from XDP while no daemon runs: soon it gets its frames by TC. The next daemon uses XDP again.
fn napi_turned_off_without_a_daemon(plane: Plane) {
    let config = "\
vlan 10
interface range p1 - 3
 switchport access vlan 10
 hook xdp
";
    let bed = Bed::without_switch(plane, 3, 1500);
    let gro = |host: usize, value: &str| {
        let mut ethtool = std::process::Command::new("ethtool");
        let output = bed.host(host).net.output(ethtool.args(["-K", "eth0", "gro", value]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    (1..=3).for_each(|host| gro(host, "on"));
    std::fs::write(bed.config_file(), config).expect("a startup-config");
    bed.start();
    for (host, others) in [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])] {
        bed.expect_at(host, &frame(BROADCAST, mac(host as u16)), &others);
    }
    // Sends a frame of host 1, and waits for it at the hosts `to`; true if XDP has redirected it. It needs no daemon.
    let by_xdp = |frame: &Frame, to: &[usize]| {
        let before = redirected(&bed, "p1");
        bed.hosts.iter().for_each(crate::harness::Host::drain);
        bed.host(1).send(frame);
        for host in to {
            let arrives = || (bed.host(*host).next()? == *frame).then_some(());
            crate::harness::wait_for("a frame to arrive", arrives);
        }
        redirected(&bed, "p1") != before
    };
    let (unicast, flood) = (frame(mac(2), mac(1)), frame(BROADCAST, mac(1)));
    assert!(by_xdp(&unicast, &[2]) && by_xdp(&flood, &[2, 3]), "XDP is not used");
    bed.exact.set(false);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    let died = std::time::Instant::now();
    gro(2, "off");
    let mut lost = 0;
    crate::harness::wait_for("a frame at the host that takes none from XDP", || {
        bed.host(2).drain();
        bed.host(1).send(&unicast);
        let arrived = crate::harness::wait_until(std::time::Duration::from_millis(100), || {
            (bed.host(2).next()? == unicast).then_some(())
        });
        lost += i32::from(arrived.is_none());
        arrived
    });
    println!("{lost} frames were lost; the first arrived {:?} after the end of the daemon", died.elapsed());
    for _ in 0..10 {
        assert!(!by_xdp(&unicast, &[2]), "XDP sends to a host that takes nothing");
        assert!(!by_xdp(&flood, &[2, 3]), "XDP floods to a host that takes nothing");
    }
    gro(2, "on");
    bed.start();
    assert!(by_xdp(&unicast, &[2]) && by_xdp(&flood, &[2, 3]), "the new daemon does not use XDP");
}

/// A frame of maximum length with a customer's tag gets the switch's tag as well, at each hook.
fn full_size_double_tags(plane: Plane) {
    let config = "\
vlan 10
interface p1
 switchport access vlan 10
 switchport mode dot1q-tunnel
interface p2
 switchport mode trunk
interface range p1 - 2
 hook xdp
";
    let bed = Bed::without_switch(plane, 2, 1500);
    for host in &bed.hosts {
        host.net.output(std::process::Command::new("ethtool").args(["-K", "eth0", "gro", "on"]));
    }
    std::fs::write(bed.config_file(), config).expect("a startup-config");
    bed.start();
    let f = frame(mac(2), mac(1));
    bed.expect(1, &f, &[(2, f.vlan(10))]);
    let f = frame(mac(1), mac(2));
    bed.expect(2, &f.vlan(10), &[(1, f.clone())]);
    for _ in 0..3 {
        let f = frame(mac(2), mac(1)).len(1514).vlan(33);
        bed.expect(1, &f, &[(2, f.vlan(10))]);
        let f = frame(mac(1), mac(2)).len(1514);
        bed.expect(2, &f.vlan(10), &[(1, f.clone())]);
    }
}

/// A capture contains the frames that a port receives and sends, to a file and live, although delivery is to the peer.
fn captures_show_both_directions(plane: Plane) {
    let bed = Bed::new(plane, 4, CONFIG);
    forwards(&bed);
    let (file, live) = (bed.file("file.pcapng"), bed.file("live.pcapng"));
    let capture = |tail: &str, out: std::process::Stdio| {
        let mut command = std::process::Command::new(crate::harness::daemon::LANYARD);
        command.args(["cli", "--instance", &bed.instance, "-c"]);
        command.arg(format!("monitor capture interface p2{tail}")).stdout(out);
        bed.net.spawn(&mut command)
    };
    let to_live = std::fs::File::create(&live).expect("a file");
    let mut captures = [
        capture(&format!(" file {}", file.display()), std::process::Stdio::null()),
        capture("", to_live.into()),
    ];
    for path in [&file, &live] {
        crate::harness::wait_for("the capture's first blocks", || {
            std::fs::metadata(path).is_ok_and(|file| file.len() > 40).then_some(())
        });
    }
    let (to, from) = (frame(mac(2), mac(1)), frame(mac(1), mac(2)));
    bed.expect_at(1, &to, &[2]);
    bed.expect_at(2, &from, &[1]);
    let holds = |path: &std::path::Path, frame: &Frame| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(frame.0.len()).any(|window| window == frame.0)
    };
    for path in [&file, &live] {
        for frame in [&to, &from] {
            crate::harness::wait_for("the frame in the capture", || holds(path, frame).then_some(()));
        }
    }
    for capture in &mut captures {
        capture.kill().expect("killed");
        capture.wait().expect("ended");
    }
    if plane == Plane::ebpf {
        crate::harness::wait_for("the end of the captures", || {
            bed.exec(&["show interfaces p2"]).contains("handed to the other end directly").then_some(())
        });
    }
    let printed = crate::harness::daemon::cli(&bed.instance, &["monitor capture interface lo"]).unwrap_err();
    assert!(printed.starts_with("% lo is not a port"), "{printed}");
}

/// Another switch tags the frames: its eBPF plane leaves the tag out of band, where an XDP program does not
/// see it.
fn tags_out_of_band(plane: Plane) {
    let far = Bed::new(Plane::ebpf, 4, CONFIG);
    let near = Bed::new(plane, 4, &format!("{CONFIG}interface x1\n switchport mode trunk\n"));
    // The far switch's trunk is connected to the near switch's trunk.
    far.host(4).net.ip(&format!("link set eth0 down\nlink set eth0 name x1 netns {}", near.net.path()));
    far.exact.set(false);
    far.host(4).away.set(true);
    let hooks: &[&str] = if plane == Plane::ebpf { &["tc", "xdp", "auto"] } else { &["auto"] };
    for hook in hooks {
        near.configure(&format!("interface x1\nhook {hook}"));
        crate::harness::wait_for("the trunk to be up", || {
            near.ask("show interfaces x1")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
        });
        crate::harness::wait_for("the trunk to be up", || {
            far.ask("show interfaces p4")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
        });
        for (from, vid, access) in [(1, 10, &[1, 2][..]), (3, 20, &[3][..])] {
            let f = frame(BROADCAST, mac(from));
            near.arrivals();
            far.exchange(from.into(), std::slice::from_ref(&f));
            let mut wanted: Vec<(usize, Frame)> = access.iter().map(|at| (*at, f.clone())).collect();
            wanted.push((4, f.vlan(vid)));
            assert_eq!(arrived(&near, wanted.len()), wanted, "hook {hook}, VLAN {vid}");
            near.learned(mac(from), vid, Some("x1"));
            near.learned(mac(from), 1, None);
            // The answer goes to an address that is known by now.
            let back = frame(mac(from), mac(0x40 + from));
            near.exchange(access[0], std::slice::from_ref(&back));
            assert_eq!(arrived(&far, 1), [(usize::from(from), back)], "hook {hook}, VLAN {vid}");
        }
        near.exec(&["clear mac address-table dynamic"]);
        far.exec(&["clear mac address-table dynamic"]);
    }
}

/// Waits until `count` frames have arrived; returns these and further ones.
fn arrived(bed: &Bed, count: usize) -> Vec<(usize, Frame)> {
    let mut got: Vec<(usize, Frame)> = Vec::new();
    crate::harness::wait_for("frames through both switches", || {
        let lists = bed.arrivals();
        got.extend(
            lists.into_iter().enumerate().flat_map(|(at, list)| list.into_iter().map(move |f| (at + 1, f))),
        );
        (got.len() >= count).then_some(())
    });
    got.sort();
    got
}

fn the_soft_plane_has_no_hooks(plane: Plane) {
    let bed = Bed::new(plane, 4, CONFIG);
    assert_eq!(hook(&bed, "p1"), "soft");
    let printed = bed.try_configure("interface p1\nhook xdp").unwrap_err();
    assert!(printed.starts_with('%') && printed.contains("soft"), "{printed}");
    forwards(&bed);
}
