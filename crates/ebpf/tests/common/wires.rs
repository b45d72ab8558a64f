//! The counters of frames that the near ends of hosts' wires have sent, and hosts whose frames XDP forwards.

use super::{Guarded, Host, PATIENCE, access_state, arrives, options};
use lanyard_netdev::Netdev;
use lanyard_pipeline::state::{HookChoice, PlaneState};
use lanyard_plane::{Plane, PlaneError};
use std::process::Command;

/// Frames that the near end of a host's wire has sent. A frame delivered directly to the far end is not
/// counted there.
pub fn sent(host: &Host) -> u64 {
    let near = Netdev::open().expect("netlink");
    near.link_by_index(host.port.ifindex).expect("the near end").stats.tx.frames
}

/// Frames that the driver of a host's port has redirected for XDP.
pub fn redirected(host: &Host) -> u64 {
    let output = Command::new("ethtool").args(["-S", &host.port.name]).output().expect("ethtool");
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().filter(|line| line.contains("_xdp_redirect:"));
    counts.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u64>().ok()).sum()
}

/// Two hosts whose frames XDP forwards: they run NAPI and complete their checksums.
pub fn xdp_pair(mtu: &str) -> Option<(Host, Host, Guarded, PlaneState)> {
    let (a, b) = (Host::new(1), Host::new(2));
    for host in [&a, &b] {
        let near = Command::new("ip").args(["link", "set", &host.port.name, "mtu", mtu]).status();
        assert!(near.is_ok_and(|status| status.success()), "an MTU of {mtu}");
        host.run("ip", &["link", "set", "eth0", "mtu", mtu]);
        host.set_feature("rx-gro", true);
        host.set_feature("tx-checksum-ip-generic", false);
    }
    let mut guarded = Guarded::open(options());
    let mut state = access_state(&[(&a, 10), (&b, 10)]);
    for port in state.ports.values_mut() {
        (port.hook, port.mtu) = (HookChoice::Xdp, mtu.parse().expect("a number"));
    }
    match guarded.plane().apply(&state) {
        Err(error @ PlaneError::Unsupported { .. }) => {
            println!("skipped: {error}");
            return None;
        }
        done => done.expect("applied"),
    }
    assert!(arrives(&a.socket(), &b.socket(), "hello", PATIENCE));
    assert!(arrives(&b.socket(), &a.socket(), "hello", PATIENCE));
    // As a daemon does; without one TC forwards after two seconds.
    guarded.plane().poll_events(&mut |_| {});
    Some((a, b, guarded, state))
}
