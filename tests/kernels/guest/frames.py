"""Frames through the switch by each hook, and through the kernel's VLAN-aware bridge: which hosts get them, how tagged.

h1, h2: access, VLAN 10. h3: a trunk, native VLAN 1. h4: a trunk, native VLAN 20, allowed 10 and 20. The bridge is the oracle: `?`
accepts any answer, as long as the switch's is the bridge's. `?X` accepts X as well: the emulated vmxnet3 takes service tags for
802.1Q tags while it takes tags out, which it does below the bridge and not below XDP.
"""
import json
import time

from lib import BROADCAST, Switch, arguments, check, differences, kernel_complaints, mac, out, settings, sh, shot, skip, wires

CONFIGURATION = """hostname sw1
vlan 10,20
interface range p1 - 2
 switchport access vlan 10
interface p3
 switchport mode trunk
interface p4
 switchport mode trunk
 switchport trunk native vlan 20
 switchport trunk allowed vlan 10,20
interface range p1 - 4
 hook {}
"""
PRIORITY = 5 << 13
# Name, sending host, destination, number of the source address, tags, size, expected arrivals.
CASES = [
    ("flood from an access port", 1, BROADCAST, 1, (), 60, "h2:u h3:10 h4:10"),
    ("flood in VLAN 10 from a trunk", 3, BROADCAST, 3, (10,), 64, "h1:u h2:u h4:10"),
    ("flood in VLAN 20 stays there", 3, BROADCAST, 3, (20,), 64, "h4:u"),
    ("native VLAN 1 stays there", 3, BROADCAST, 3, (), 60, "-"),
    ("native VLAN 20", 4, BROADCAST, 4, (), 60, "h3:20"),
    ("native VLAN 20, tagged", 4, BROADCAST, 4, (20,), 64, "h3:20"),
    ("VLAN 30, which does not exist", 3, BROADCAST, 3, (30,), 64, "-"),
    ("VLAN 4094", 3, BROADCAST, 3, (4094,), 64, "-"),
    ("VLAN 1, tagged, not allowed", 4, BROADCAST, 4, (1,), 64, "-"),
    ("priority tag at an access port", 1, BROADCAST, 1, ((0x8100, PRIORITY),), 64, "h2:u h3:10p5 h4:10p5"),
    ("priority tag at a trunk", 4, BROADCAST, 4, ((0x8100, PRIORITY),), 64, "h3:20p5"),
    ("priority is kept", 3, BROADCAST, 3, ((0x8100, 6 << 13 | 10),), 64, "h1:u h2:u h4:10p6"),
    ("VLAN 10, tagged, at its access port", 1, BROADCAST, 1, (10,), 64, "?"),
    ("VLAN 20, tagged, at an access port", 1, BROADCAST, 1, (20,), 64, "-"),
    ("two tags", 3, BROADCAST, 3, (10, 99), 68, "h1:99 h2:99 h4:10+99"),
    ("service tag in native VLAN 1", 3, BROADCAST, 3, ((0x88a8, 10),), 64, "-"),
    ("service tag in native VLAN 20", 4, BROADCAST, 4, ((0x88a8, 10),), 64, "?h3:20+88a8.10"),
    ("h2 is learned", 2, BROADCAST, 2, (), 60, "h1:u h3:10 h4:10"),
    ("unicast, access to access", 1, mac(2), 1, (), 60, "h2:u"),
    ("unicast of 1514 bytes, access to access", 2, mac(1), 2, (), 1514, "h1:u"),
    ("unicast of 1514 bytes, access to trunk", 1, mac(3), 1, (), 1514, "h3:10"),
    ("unicast of 1518 bytes, trunk to access", 3, mac(1), 3, (10,), 1518, "h1:u"),
    ("unicast, trunk to access", 3, mac(1), 3, (10,), 64, "h1:u"),
    ("unicast, trunk to native VLAN 20", 3, mac(4), 3, (20,), 64, "h4:u"),
    ("unicast, native VLAN 20 to trunk", 4, mac(3), 4, (), 60, "h3:20"),
    ("unknown unicast", 1, mac(99), 1, (), 60, "h2:u h3:10 h4:10"),
    ("multicast", 3, bytes.fromhex("01005e010203"), 3, (10,), 64, "h1:u h2:u h4:10"),
    ("PAUSE is dropped", 1, bytes.fromhex("0180c2000001"), 1, (), 60, "-"),
    ("LLDP's address", 1, bytes.fromhex("0180c200000e"), 1, (), 60, "?"),
]


def send_all(hosts):
    return {name: shot(hosts, sender, destination, mac(source), tags, size)
            for name, sender, destination, source, tags, size, _ in CASES}


def bridge(hosts):
    """The kernel's bridge, configured alike."""
    sh("ip link add br0 type bridge vlan_filtering 1 vlan_default_pvid 0 stp_state 0 mcast_snooping 0; ip link set br0 up")
    for number in range(1, 5):
        sh(f"ip link set p{number} master br0; ip link set p{number} up")
    for words in ("p1 vid 10 pvid untagged", "p2 vid 10 pvid untagged", "p3 vid 1 pvid untagged", "p3 vid 10", "p3 vid 20",
                  "p4 vid 20 pvid untagged", "p4 vid 10"):
        sh("bridge vlan add dev " + words)
    time.sleep(3)
    answers = send_all(hosts)
    sh("ip link del br0")
    return answers


def tag_offload(hosts, switch, hook):
    """Somebody turns the driver's taking out of tags on below a port, where XDP would take tagged frames for untagged ones."""
    switch.configure("interface p1", "switchport access vlan 1")
    switch.cli("write memory")
    # The expected arrivals: at h1, now in VLAN 1, tagged with 20; at h2, tagged with 10; at h1,
    # untagged.
    wanted = [((20,), 1, "h4:u"), ((10,), 2, "h2:u"), ((), 1, "h1:u")]

    def answers():
        # The trunk learns both addresses, too.
        shot(hosts, 1, BROADCAST, mac(1))
        shot(hosts, 2, BROADCAST, mac(2))
        return [shot(hosts, 3, mac(to), mac(3), tags, 64) for tags, to, _ in wanted]

    def right(when):
        got = answers()
        good = got == [want for *_, want in wanted]
        why = f"{got} instead of {[want for *_, want in wanted]}; {switch.hooks()}; {switch.cli('show logging')[-300:]}"
        return check(f"no frame in a wrong VLAN {when} (hook {hook})", good, why)

    results = [right("as started")]
    sh("ethtool -K p3 rxvlan on")
    time.sleep(2)
    results.append(right("after `ethtool -K rxvlan on`"))
    switch.kill9()
    switch.start()
    results.append(right("after a restart"))
    sh("ethtool -K p3 rxvlan off")
    time.sleep(2)
    results.append(right("after `ethtool -K rxvlan off`"))
    # While no daemon runs, the change is not followed; the lease of the port ends after 2 s.
    switch.kill9()
    sh("ethtool -K p3 rxvlan on")
    time.sleep(3)
    results.append(right("after `ethtool -K rxvlan on` without a daemon"))
    switch.start()
    results.append(right("after the restart that followed"))
    return all(results)


def run_hook(hosts, hook, oracle):
    """The frames by one hook; answers the cell of the table, and the hook in use."""
    before = {number: settings(f"p{number}") for number in range(1, 5)}
    switch = Switch(CONFIGURATION.format(hook))
    log = switch.start()
    used = switch.hooks().get("p1", "-") if "ready:" in log else "-"
    if hook != "auto" and used != hook:
        reason = next((line for line in log.split("\n") if "XDP" in line or "hook" in line), log)
        skip(f"frames, hook {hook}", reason)
        switch.detach()
        return "refused", used
    if not check(f"the switch starts with hook {hook}", "ready:" in log, log):
        switch.detach()
        return "not started", used
    time.sleep(1)
    answers = send_all(hosts)
    wrong, excused = [], []
    for name, *_, want in CASES:
        wanted = [oracle[name], want[1:]] if want.startswith("?") else [want]
        if answers[name] in wanted:
            continue
        line = f"{name}: {answers[name]} instead of {' or '.join(wanted)}, kernel bridge {oracle[name]}"
        # The NIC and its driver change a frame before the switch receives it, and do the same for
        # the kernel's bridge.
        (excused if answers[name] == oracle[name] else wrong).append(line)
    check(f"{len(CASES)} frames by hook {hook} ({used})", not wrong, "; ".join(wrong))
    for line in excused:
        skip(f"a frame by hook {hook}", f"the driver changes it for the kernel's bridge as well: {line}")
    leaks = "" if tag_offload(hosts, switch, hook) else ", leaks with rxvlan on"
    switch.detach()
    time.sleep(1)
    left = {f"p{number}": differences(before[number], settings(f"p{number}")) for number in range(1, 5)}
    left = {name: lines for name, lines in left.items() if lines}
    check(f"detach gives the ports back as they were after hook {hook}", not left, left)
    return f"{len(CASES) - len(wrong) - len(excused)}/{len(CASES)}{leaks}", used


def main():
    hooks = arguments()[1].split("+")
    hosts = wires(4)
    sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
    out("driver:", sh("ethtool -i p1 | head -2"), sh("ls /sys/class/net/p1/queues"))
    for host in hosts.values():
        host.open()
    for number in range(1, 5):
        sh(f"ip link set p{number} up")
    time.sleep(3)
    oracle = bridge(hosts)
    right = sum(1 for name, *_, want in CASES if want == oracle[name] or want.startswith("?"))
    row = {"bridge": f"{right}/{len(CASES)}"}
    for hook in hooks:
        if hook == row.get("taken"):
            # `auto` has taken this hook, so it has been tested.
            row[hook] = row["auto"]
            continue
        row[hook], used = run_hook(hosts, hook, oracle)
        if hook == "auto":
            row["taken"] = used
    out("table:", json.dumps(row))
    bad = kernel_complaints()
    check("the kernel's log has no warning", not bad, bad)


main()
