//! `show spanning-tree ...`.

use super::table::enabled;
use crate::config_view::{MstConfiguration, StpSummary};
use crate::view::{SpanningTree, StpInstance, StpPort, StpWatchdog};
use lanyard_stp::{BridgeId, Mode, Role};
use lanyard_types::StpState;
use std::fmt::Write;

const NOTHING: &str = "No spanning tree instance exists.\n";
const RULE: &str = "------------------- ---- --- --------- -------- --------------------------------";

/// IOS's abbreviation for the state of a port in a tree.
fn state_word(port: &StpPort) -> &'static str {
    let view = &port.detail;
    match view.state {
        _ if view.inconsistent.any() => "BKN*",
        StpState::Forwarding => "FWD",
        StpState::Learning => "LRN",
        StpState::Discarding if view.stp_neighbour && matches!(view.role, Role::Root | Role::Designated) => {
            "LIS"
        }
        StpState::Discarding => "BLK",
    }
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Disabled => "Dis",
        Role::Root => "Root",
        Role::Designated => "Desg",
        Role::Alternate => "Altn",
        Role::Backup => "Back",
        Role::Master => "Mstr",
    }
}

/// The link type, edge, the neighbour's protocol, and the guards that block the port.
fn type_words(port: &StpPort, mode: Option<Mode>) -> String {
    let view = &port.detail;
    let mut words = vec![if view.point_to_point { "P2p" } else { "Shr" }];
    if view.edge {
        words.push("Edge");
    }
    match mode {
        Some(Mode::Mst) if view.boundary => {
            words.push(if view.stp_neighbour { "Bound(STP)" } else { "Bound(RSTP)" });
        }
        Some(Mode::Rstp | Mode::RapidPvst) if view.stp_neighbour => words.push("Peer(STP)"),
        _ => {}
    }
    if view.disputed {
        words.push("Dispute");
    }
    words.extend(inconsistencies(port).into_iter().map(|(short, _)| short));
    words.join(" ")
}

/// The guards that block a port, each in IOS's short and long form.
fn inconsistencies(port: &StpPort) -> Vec<(&'static str, &'static str)> {
    let held = port.detail.inconsistent;
    let all = [
        (held.root, ("*ROOT_Inc", "Root Inconsistent")),
        (held.loop_guard, ("*LOOP_Inc", "Loop Inconsistent")),
        (held.pvid, ("*PVID_Inc", "Port VLAN ID Mismatch")),
        (held.port_type, ("*TYPE_Inc", "Port Type Inconsistent")),
        (held.pvst, ("*PVST_Inc", "PVST Sim. Inconsistent")),
        (held.self_loop, ("*SELF_Loop", "Self Looped")),
    ];
    all.into_iter().filter_map(|(on, words)| on.then_some(words)).collect()
}

fn priority_number(port: &StpPort) -> String {
    format!("{}.{}", port.priority, port.detail.port_id.number())
}

fn port_row(out: &mut String, first: &str, port: &StpPort, mode: Option<Mode>) {
    let line = format!(
        "{first:<19} {:<4} {:<3} {:<9} {:<8} {}",
        role_word(port.detail.role),
        state_word(port),
        port.cost,
        priority_number(port),
        type_words(port, mode)
    );
    let _ = writeln!(out, "{}", line.trim_end());
}

fn protocol_word(protocol: &str) -> &str {
    if protocol == "stp" { "ieee" } else { protocol }
}

/// `Hello Time   2 sec  Max Age 20 sec  Forward Delay 15 sec`; the arguments are in milliseconds.
fn times(hello: u64, max_age: u64, forward: u64) -> String {
    let s = |ms: u64| ms / 1000;
    format!(
        "Hello Time  {:>2} sec  Max Age {:>2} sec  Forward Delay {:>2} sec",
        s(hello),
        s(max_age),
        s(forward)
    )
}

fn bridge_block(out: &mut String, title: &str, id: BridgeId, note: &str) {
    let _ = writeln!(out, "  {title:<10} Priority    {}{note}", id.priority());
    let _ = writeln!(out, "             Address     {}", id.address());
}

/// `show spanning-tree`.
pub fn spanning_tree(view: &SpanningTree) -> String {
    if view.instances.is_empty() {
        return NOTHING.into();
    }
    let trees: String = view.instances.iter().map(|instance| tree(instance, view.mode)).collect();
    trees + &view.watchdog.as_ref().map(watchdog).unwrap_or_default()
}

/// The state of the watchdog, and the ports that it blocks when it expires.
fn watchdog(view: &StpWatchdog) -> String {
    let mut out = match view.expires_in_s {
        Some(_) => format!("\nWatchdog: running; without a daemon it blocks {}\n", view.ports.join(", ")),
        None => "\nWatchdog: stopped\n".into(),
    };
    if let Some(last) = &view.last_expiry {
        let _ =
            writeln!(out, "  expired {} time(s) since the daemon was started, last {last}", view.expiries);
    }
    if view.withheld {
        out.push_str("  No BPDU is sent: the plane refuses a port's state (show logging)\n");
    }
    out
}

fn tree(instance: &StpInstance, mode: Option<Mode>) -> String {
    let view = &instance.detail;
    let mut out = format!(
        "\n{}\n  Spanning tree enabled protocol {}\n",
        instance.name,
        protocol_word(instance.protocol)
    );
    bridge_block(&mut out, "Root ID", view.root_id, "");
    match &instance.root_port {
        None => out.push_str("             This bridge is the root\n"),
        Some(port) => {
            let number = view.root_port.map_or(0, lanyard_types::PortId::get);
            let _ = writeln!(out, "             Cost        {}", view.root_cost);
            let _ = writeln!(out, "             Port        {number} ({port})");
        }
    }
    let _ =
        writeln!(out, "             {}\n", times(view.hello_time_ms, view.max_age_ms, view.forward_delay_ms));
    let extension = view.bridge_id.priority() & 0xfff;
    let note = format!("  (priority {} sys-id-ext {extension})", view.bridge_id.priority() & 0xf000);
    bridge_block(&mut out, "Bridge ID", view.bridge_id, &note);
    let [hello, forward, max_age] = view.own_times_ms;
    let _ = writeln!(out, "             {}\n", times(hello, max_age, forward));
    let _ = writeln!(out, "Interface           Role Sts Cost      Prio.Nbr Type\n{RULE}");
    for port in &instance.ports {
        port_row(&mut out, &port.interface, port, mode);
    }
    out
}

/// `show spanning-tree interface I`.
pub fn spanning_tree_interface(view: &SpanningTree) -> String {
    if view.instances.is_empty() {
        return NOTHING.into();
    }
    let mut out = format!("\nVlan                Role Sts Cost      Prio.Nbr Type\n{RULE}\n");
    for instance in &view.instances {
        for port in &instance.ports {
            port_row(&mut out, &instance.name, port, view.mode);
        }
    }
    out
}

/// `show spanning-tree detail`.
pub fn spanning_tree_detail(view: &SpanningTree) -> String {
    if view.instances.is_empty() {
        return NOTHING.into();
    }
    view.instances.iter().map(|instance| tree_detail(instance, view)).collect()
}

fn tree_detail(instance: &StpInstance, all: &SpanningTree) -> String {
    let view = &instance.detail;
    let s = |ms: u64| ms / 1000;
    let [hello, forward, max_age] = view.own_times_ms;
    let (priority, extension) = (view.bridge_id.priority() & 0xf000, view.bridge_id.priority() & 0xfff);
    let mut out = format!(
        "\n {} is executing the {} compatible Spanning Tree protocol\n  \
         Bridge Identifier has priority {priority}, sysid {extension}, address {}\n  \
         Configured hello time {}, max age {}, forward delay {}\n",
        instance.name,
        protocol_word(instance.protocol),
        view.bridge_id.address(),
        s(hello),
        s(max_age),
        s(forward)
    );
    match &instance.root_port {
        None => out.push_str("  We are the root of the spanning tree\n"),
        Some(port) => {
            let number = view.root_port.map_or(0, lanyard_types::PortId::get);
            let (root, address) = (view.root_id.priority(), view.root_id.address());
            let _ = writeln!(out, "  Current root has priority {root}, address {address}");
            let _ =
                writeln!(out, "  Root port is {number} ({port}), cost of root path is {}", view.root_cost);
        }
    }
    let _ = write!(out, "  Number of topology changes {}", view.topology_changes);
    if let Some(ago) = view.last_topology_change_ms {
        let (h, m, sec) = (s(ago) / 3600, s(ago) / 60 % 60, s(ago) % 60);
        let _ = write!(out, " last change occurred {h:02}:{m:02}:{sec:02} ago");
    }
    out.push('\n');
    if view.last_topology_change_port.is_some() {
        // `instance.ports` may be only those that the command selects.
        let name = instance.topology_change_port.as_deref().unwrap_or("a port that no longer exists");
        let _ = writeln!(out, "          from {name}");
    }
    for port in &instance.ports {
        port_detail(&mut out, instance, port, all);
    }
    out
}

fn port_detail(out: &mut String, instance: &StpInstance, port: &StpPort, all: &SpanningTree) {
    let view = &port.detail;
    let _ = writeln!(
        out,
        "\n Port {} ({}) of {} is {} {}\n   Port path cost {}, Port priority {}, Port Identifier {}.",
        view.port,
        port.interface,
        instance.name,
        port.role,
        if view.inconsistent.any() { "broken" } else { port.state },
        port.cost,
        port.priority,
        priority_number(port)
    );
    let _ = writeln!(
        out,
        "   Designated root has priority {}, address {}\n   Designated bridge has priority {}, address {}\n   \
         Designated port id is {}.{}, designated path cost {}",
        view.designated_root.priority(),
        view.designated_root.address(),
        view.designated_bridge.priority(),
        view.designated_bridge.address(),
        view.designated_port.priority(),
        view.designated_port.number(),
        view.designated_cost
    );
    let timer = |ms: Option<u64>| ms.unwrap_or(0).div_ceil(1000);
    let _ = writeln!(
        out,
        "   Timers: message age {}, forward delay {}\n   Number of transitions to forwarding state: {}",
        timer(view.message_age_timer_ms),
        timer(view.forward_delay_timer_ms),
        view.forward_transitions
    );
    for (_, words) in inconsistencies(port) {
        let _ = writeln!(out, "   The port is {words}");
    }
    if view.edge {
        out.push_str("   The port is an edge port\n");
    }
    let by_default = if view.point_to_point { "point-to-point" } else { "shared" };
    let _ = writeln!(out, "   Link type is {by_default}");
    if let Some(state) = all.ports.iter().find(|state| state.interface == port.interface) {
        for (on, line) in [
            (state.summary.portfast, "The port is in the portfast mode"),
            (state.summary.bpdu_guard, "Bpdu guard is enabled"),
            (state.summary.bpdu_filter, "Bpdu filter is enabled"),
            (state.summary.root_guard, "Root guard is enabled on the port"),
            (state.summary.loop_guard, "Loop guard is enabled on the port"),
        ] {
            if on {
                let _ = writeln!(out, "   {line}");
            }
        }
        for (reason, count) in state.summary.counters.rejected_by_name() {
            let _ = writeln!(out, "   Refused BPDUs, {reason}: {count}");
        }
    }
    let _ = writeln!(
        out,
        "   BPDU: sent {}, received {}\n   Topology changes: detected {}, received {}",
        view.bpdus.tx(),
        view.bpdus.rx(),
        view.topology_changes,
        view.bpdus.rx_topology_change
    );
}

/// `show spanning-tree root`.
pub fn spanning_tree_root(view: &SpanningTree) -> String {
    if view.instances.is_empty() {
        return NOTHING.into();
    }
    let mut out = String::from(
        "\n                                        Root    Hello Max Fwd\n\
         Vlan                   Root ID          Cost    Time  Age Dly  Root Port\n\
         ---------------- -------------------- --------- ----- --- ---  ------------\n",
    );
    for instance in &view.instances {
        let tree = &instance.detail;
        let line = format!(
            "{:<16} {:>5} {} {:>9} {:>5} {:>3} {:>3}  {}",
            instance.name,
            tree.root_id.priority(),
            tree.root_id.address(),
            tree.root_cost,
            tree.hello_time_ms / 1000,
            tree.max_age_ms / 1000,
            tree.forward_delay_ms / 1000,
            instance.root_port.as_deref().unwrap_or("")
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// `show spanning-tree blockedports`; the ports of `view` are the blocked ones.
pub fn spanning_tree_blocked(view: &SpanningTree) -> String {
    let mut out = String::from("\nName                 Blocked Interfaces List\n");
    out.push_str("-------------------- ------------------------------------\n");
    let mut count = 0;
    for instance in view.instances.iter().filter(|instance| !instance.ports.is_empty()) {
        let names: Vec<&str> = instance.ports.iter().map(|port| port.interface.as_str()).collect();
        count += names.len();
        let _ = writeln!(out, "{:<20} {}", instance.name, names.join(", "));
    }
    let _ = writeln!(out, "\nNumber of blocked ports (segments) in the system : {count}");
    out
}

/// `show spanning-tree inconsistentports`; the ports of `view` are the inconsistent ones.
pub fn spanning_tree_inconsistent(view: &SpanningTree) -> String {
    let mut out = String::from("\nName                 Interface              Inconsistency\n");
    out.push_str("-------------------- ---------------------- ------------------\n");
    let mut count = 0;
    for instance in &view.instances {
        for port in &instance.ports {
            for (_, words) in inconsistencies(port) {
                count += 1;
                let _ = writeln!(out, "{:<20} {:<22} {words}", instance.name, port.interface);
            }
        }
    }
    let _ = writeln!(out, "\nNumber of inconsistent ports (segments) in the system : {count}");
    out
}

/// `show spanning-tree summary`.
pub fn spanning_tree_summary(view: &StpSummary) -> String {
    let Some(mode) = view.mode else { return NOTHING.into() };
    let root_for = if view.root_for.is_empty() { "none".to_owned() } else { view.root_for.join(", ") };
    let mut out = format!("Switch is in {mode} mode\nRoot bridge for: {root_for}\n");
    for (what, on) in [
        ("Extended system ID", true),
        ("Portfast Default", view.portfast_default),
        ("PortFast BPDU Guard Default", view.bpduguard_default),
        ("Portfast BPDU Filter Default", view.bpdufilter_default),
        ("Loopguard Default", view.loopguard_default),
    ] {
        let _ = writeln!(out, "{what:<39} is {}", enabled(on).to_lowercase());
    }
    let _ = writeln!(out, "{:<39} is {}\n", "Pathcost method used", view.path_cost_method);
    let rule = "---------------------- -------- --------- -------- ---------- ----------\n";
    out.push_str("Name                   Blocking Listening Learning Forwarding STP Active\n");
    out.push_str(rule);
    let mut total = [0; 4];
    let row = |out: &mut String, name: &str, counts: [u64; 4]| {
        let [blocking, learning, forwarding, active] = counts;
        let _ =
            writeln!(out, "{name:<22} {blocking:>8} {:>9} {learning:>8} {forwarding:>10} {active:>10}", 0);
    };
    for tree in &view.instances {
        let counts = [tree.blocking, tree.learning, tree.forwarding, tree.active];
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        row(&mut out, &tree.name, counts);
    }
    out.push_str(rule);
    let count = view.instances.len();
    row(&mut out, &format!("{count} tree{}", if count == 1 { "" } else { "s" }), total);
    out
}

/// `show spanning-tree mst`.
pub fn mst(view: &SpanningTree, mapping: &MstConfiguration) -> String {
    if view.instances.is_empty() {
        return "No mst information available.\n".into();
    }
    let mut out = String::new();
    for instance in &view.instances {
        let tree = &instance.detail;
        let vlans = mapping
            .instances
            .iter()
            .find(|row| row.instance == instance.instance)
            .map_or("none", |row| &row.vlans);
        let _ = writeln!(out, "\n##### {:<6} vlans mapped:   {vlans}", instance.name);
        let (priority, sysid) = (tree.bridge_id.priority(), tree.bridge_id.priority() & 0xfff);
        let base = priority & 0xf000;
        let _ = writeln!(
            out,
            "Bridge        address {}  priority      {priority} ({base} sysid {sysid})",
            tree.bridge_id.address()
        );
        let scope = if instance.instance == 0 { "the CIST" } else { &instance.name };
        match &instance.root_port {
            None => drop(writeln!(out, "Root          this switch for {scope}")),
            Some(port) => {
                let (address, priority) = (tree.root_id.address(), tree.root_id.priority());
                let _ = writeln!(out, "Root          address {address}  priority      {priority}");
                let _ = writeln!(out, "              port    {port:<14}  path cost     {}", tree.root_cost);
            }
        }
        if instance.instance == 0 {
            let [hello, forward, max_age] = tree.own_times_ms.map(|ms| ms / 1000);
            if tree.regional_root_id != tree.root_id {
                let _ = writeln!(
                    out,
                    "Regional Root address {}  priority      {}\n                                      internal cost {:<9} rem hops {}",
                    tree.regional_root_id.address(),
                    tree.regional_root_id.priority(),
                    tree.internal_root_cost,
                    tree.remaining_hops
                );
            }
            let now = [tree.hello_time_ms, tree.forward_delay_ms, tree.max_age_ms].map(|ms| ms / 1000);
            let _ = writeln!(
                out,
                "Operational   hello time {}, forward delay {}, max age {}",
                now[0], now[1], now[2]
            );
            let _ =
                writeln!(out, "Configured    hello time {hello}, forward delay {forward}, max age {max_age}");
        }
        let _ = writeln!(out, "\nInterface           Role Sts Cost      Prio.Nbr Type\n{RULE}");
        for port in &instance.ports {
            port_row(&mut out, &port.interface, port, view.mode);
        }
    }
    out
}

/// `show spanning-tree mst configuration [digest]`.
pub fn mst_configuration(view: &MstConfiguration, digest: bool) -> String {
    let mut out = format!("Name      [{}]\n", view.name);
    let _ = writeln!(out, "Revision  {:<5} Instances configured {}", view.revision, view.instances.len());
    if digest {
        let _ = writeln!(out, "Digest    0x{}", view.digest);
        return out;
    }
    let rule = "-".repeat(69);
    let _ = writeln!(out, "\nInstance  Vlans mapped\n--------  {rule}");
    for row in &view.instances {
        let _ = writeln!(out, "{:<9} {}", row.instance, row.vlans);
    }
    let _ = writeln!(out, "{}", "-".repeat(79));
    out
}
