"""What stands at the other end of a wire, or is a port itself, besides a plain NIC: 802.1Q devices, and a bond of two NICs.

h1 has wires 1 and 2 in an active-backup bond, with an 802.1Q device on the bond. h3 has an 802.1Q device, h4 is untagged.
"""
import json
import time

from lib import Run, Switch, arguments, check, kernel_complaints, monitor, out, sh, skip, tcp, until, wires

# The far ends: ports are the NICs.
FAR = """hostname sw1
vlan 10,20
interface range p1 - 3
 switchport mode trunk
 switchport trunk allowed vlan 10,20
interface p4
 switchport access vlan 10
interface range p1 - 4
 hook {}
"""
# The near ends: a bond of p1 and p2, and an 802.1Q device on p3, are ports.
NEAR = """hostname sw1
vlan 10,20
interface lag1
 switchport mode trunk
 switchport trunk allowed vlan 10,20
interface tag10
 switchport access vlan 10
interface p4
 switchport access vlan 10
"""
BOND = ("ip link add {0} type bond mode active-backup miimon 100; "
        "for each in {1}; do ip link set $each down; ip link set $each master {0}; done; ip link set {0} up")


def set_up(hosts):
    one, two, three, four = (hosts[number] for number in range(1, 5))
    sh("modprobe bonding max_bonds=0")
    sh(f"ip -n {two.namespace} link set eth0 down; ip -n {two.namespace} link set eth0 netns {one.namespace} name eth1")
    one.run(BOND.format("bond0", "eth0 eth1"))
    for host, device, address in ((one, "bond0", 1), (three, "eth0", 3)):
        host.run(f"ip link add link {device} name v10 type vlan id 10; ip addr add 10.0.0.{address}/24 dev v10; ip link set v10 up; "
                 f"ip link add link {device} name v20 type vlan id 20; ip addr add 10.0.20.{address}/24 dev v20; ip link set v20 up")
    four.run("ip addr add 10.0.0.4/24 dev eth0")


class Neighbours(Run):
    """One hook, or the devices as ports."""

    def reach(self, when):
        """Everybody reaches everybody in the VLANs they share."""
        one, _, three, four = (self.hosts[number] for number in range(1, 5))
        self.check(f"an 802.1Q device reaches an untagged host {when}", three.reaches("10.0.0.4"), self.switch.hooks())
        self.check(f"an 802.1Q device on a bond reaches an untagged host {when}", one.reaches("10.0.0.4"), self.switch.hooks())
        self.check(f"an 802.1Q device on a bond reaches one on a NIC {when}", one.reaches("10.0.0.3"), self.switch.hooks())

    def streams(self, when):
        one, _, three, four = (self.hosts[number] for number in range(1, 5))
        self.check(f"TCP from an 802.1Q device on a bond {when}", tcp(one, four, "10.0.0.4") > 1)
        self.check(f"TCP to an 802.1Q device on a bond {when}", tcp(three, one, "10.0.0.1") > 1)

    def fails_over(self):
        """The bond's active wire is pulled: the switch finds its address at the other port."""
        one, four = self.hosts[1], self.hosts[4]
        address = one.run("cat /sys/class/net/bond0/address").strip()
        for wire, other in ((1, 2), (2, 1)):
            one.run(f"ip link set bond0 type bond active_slave eth{wire - 1}")
            until(lambda: four.ping("10.0.0.1", 2) == 2, 20)
            monitor(f"set_link h{wire} off")
            moved = until(lambda: f"eth{other - 1}" in one.run("cat /sys/class/net/bond0/bonding/active_slave"), 20)
            good = moved and four.reaches("10.0.0.1")
            self.check(f"the bond moves from wire {wire} to wire {other}", good, one.run("cat /proc/net/bonding/bond0"))
            at = until(lambda: self.place(address) == f"p{other}", 10)
            self.check(f"the bond's address is known at p{other}", at, self.place(address))
            monitor(f"set_link h{wire} on")
            until(lambda: one.run(f"cat /sys/class/net/eth{wire - 1}/carrier").strip() == "1", 20)
            time.sleep(1)

    def place(self, address):
        table = self.switch.show("mac address-table").get("entries", [])
        found = [each["interface"] for each in table if each["mac"] == address and each["vlan"] == 10]
        return found[0] if found else None


def tried(hosts, hook, configuration, steps):
    """Runs `steps` on a switch; the checks that failed."""
    switch = Switch(configuration)
    log = switch.start()
    used = switch.hooks().get("p4")
    if "ready:" not in log or hook not in ("auto", used):
        skip(f"bond and 802.1Q devices, hook {hook}", next((line for line in log.split("\n") if "XDP" in line), log))
        switch.detach()
        return None
    run = Neighbours(hosts, switch, f"hook {hook}")
    steps(run)
    switch.detach()
    time.sleep(1)
    return run.failed


def at_far_ends(run):
    run.reach("at the other end")
    run.streams("at the other end")
    run.fails_over()


def at_near_ends(run):
    run.reach("at a port that is one, too")
    run.streams("at a port that is one, too")
    for wire in (2, 1):
        # Active-backup bonds do not agree on a wire, so both ends are configured.
        sh(f"ip link set lag1 type bond active_slave p{wire}")
        run.hosts[1].run(f"ip link set bond0 type bond active_slave eth{wire - 1}")
        run.check(f"a port that is a bond forwards by wire {wire}", run.hosts[4].reaches("10.0.0.1"))


def main():
    hooks = arguments()[1].split("+")
    hosts = wires(4)
    sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
    for number in range(1, 5):
        sh(f"ip link set p{number} up")
    set_up(hosts)
    failed = []
    # `auto` takes one of the other hooks, so it needs no test of its own.
    for hook in [hook for hook in hooks if hook != "auto"] or hooks:
        found = tried(hosts, hook, FAR.format(hook), at_far_ends)
        failed += [f"hook {hook}: {each}" for each in found or []]
    sh(BOND.format("lag1", "p1 p2") + "; ip link add link p3 name tag10 type vlan id 10; ip link set p3 up; ip link set tag10 up")
    found = tried(hosts, "auto", NEAR, at_near_ends)
    failed += [f"as ports: {each}" for each in found or []]
    sh("ip link del tag10; ip link del lag1")
    out("table:", json.dumps({"neighbours": "; ".join(failed) or "right"}))
    bad = kernel_complaints()
    check("the kernel's log has no warning", not bad, bad)


main()
