//! labs/fabric.clab.yml, from `lanyard lab up` to complete removal.

use crate::frr::missing;
use crate::harness::daemon::LANYARD;
use crate::harness::{Plane, scenarios};
use std::process::{Command, Stdio};

scenarios! {
    a_fabric: ebpf soft;
}

/// The script runs in a mount namespace with a /run and a /var/lib/lanyard of its own, so that everything is removed
/// with it.
const SCRIPT: &str = r#"
set -eu
mount -t tmpfs -o mode=755 lanyard /run
mkdir -p /var/lib/lanyard
mount -t tmpfs lanyard /var/lib/lanyard
lab() { "$LANYARD" lab "$@"; }
fail() { echo "FAILED: $*"; for n in spine1 leaf1 leaf2; do
    lab exec fabric $n -- vtysh -c 'show ip route' -c 'show bgp summary'; lab exec fabric $n -- lanyard cli -c 'show fpm' -c 'show ip route'; done
    lab down fabric; exit 1; }
reaches() { timeout 90 sh -c "until ip netns exec fabric-$1 ping -c 1 -W 1 $2 >/dev/null; do :; done" || fail "$1 does not reach $2"; }
lab up --quiet --plane "$PLANE" "$LABS/fabric.clab.yml"
# Every two hosts of different leaves.
for from in h1 h2; do for to in 172.16.30.3 172.16.40.4; do reaches $from $to; done; done
paths() { lab exec fabric leaf1 -- lanyard cli -c 'show ip route 172.16.30.0/24 | json' | grep -c '"via": "10'; }
timeout 90 sh -c 'until [ "$("$LANYARD" lab exec fabric leaf1 -- lanyard cli -c "show ip route 172.16.30.0/24 | json" | grep -c "\"via\": \"10")" = 2 ]; do :; done' || fail "not over both spines: $(paths)"
[ "$(lab exec fabric leaf1 -- vtysh -c 'show bgp summary' | grep -c '10\.[12]\.1\.0')" = 2 ] || fail "vtysh is elsewhere"
# One spine less, and back.
lab exec fabric leaf1 -- lanyard cli -c 'configure terminal' -c 'interface swp1' -c shutdown
reaches h1 172.16.30.3
[ "$(paths)" = 1 ] || timeout 90 sh -c 'until ! "$LANYARD" lab exec fabric leaf1 -- lanyard cli -c "show ip route" | grep -q 10.1.1.0; do :; done' || fail "still over spine1"
lab exec fabric leaf1 -- lanyard cli -c 'configure terminal' -c 'interface swp1' -c 'no shutdown'
reaches h2 172.16.40.4
lab down --quiet fabric
[ -z "$(ls /run/netns)" ] && [ ! -e /run/lanyard/labs ] && [ ! -e /run/frr ] || { find /run; exit 1; }
"#;

fn a_fabric(plane: Plane) {
    if let Some(reason) = missing() {
        return println!("skipped: {reason}");
    }
    let labs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../labs");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", SCRIPT])
        .envs([("LANYARD", LANYARD), ("LABS", labs), ("PLANE", plane.name())])
        .stdin(Stdio::null())
        .output()
        .expect("unshare runs");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{printed}");
}
