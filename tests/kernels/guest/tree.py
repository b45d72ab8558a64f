"""Spanning tree between the switch and the kernel's bridge, over two wires that make a loop: STP and RSTP, either of them as the root.

The kernel's bridge is in a namespace of its own, at the far ends of p1 and p2; h3 is at an access port. The bridge speaks STP only
(IEEE 802.1D-1998), which a port in mode `rstp` has to fall back to (IEEE 802.1Q-2018, 13.10.1).
"""
import json
import re
import time

from lib import Run, Switch, arguments, check, kernel_complaints, monitor, out, sh, skip, until, wires

CONFIGURATION = """hostname sw1
vlan 10
spanning-tree mode {}
spanning-tree vlan 1 priority 4096
spanning-tree vlan 1 forward-time 4
spanning-tree vlan 1 max-age 6
interface range p1 - 2
 switchport mode trunk
interface p3
 switchport access vlan 10
 spanning-tree portfast
interface range p1 - 3
 hook {}
"""
ADDRESS = "10.0.0.1"
# More frames than this in two quiet seconds are a storm: hellos are four.
QUIET = 60


class Bridge:
    """The kernel's bridge."""

    def __init__(self):
        sh("ip netns add kb; " + "; ".join(f"ip -n h{number} link set eth0 netns kb name k{number}" for number in (1, 2)))
        self.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")

    @staticmethod
    def run(command):
        return sh(f"ip netns exec kb sh -c '{command}'")

    def make(self, priority):
        self.run("ip link add br0 type bridge vlan_filtering 1 vlan_default_pvid 1 stp_state 1 mcast_snooping 0 "
                 f"forward_delay 400 hello_time 100 max_age 600 priority {priority}; ip link set br0 up")
        for number in (1, 2):
            self.run(f"ip link set k{number} master br0; ip link set k{number} up; bridge vlan add dev k{number} vid 10")
        self.run("bridge vlan add dev br0 vid 10 self; ip link add link br0 name br0.10 type vlan id 10; "
                 f"ip addr add {ADDRESS}/24 dev br0.10; ip link set br0.10 up")

    def remove(self):
        self.run("ip link del br0.10; ip link del br0")

    def states(self):
        return {int(found[1]): found[2] for found in
                re.finditer(r"\d+: k(\d).*?state (\w+) priority", self.run("bridge -d link show").replace("\n", " "))}


def states(switch):
    """The states of p1 and p2."""
    ports = [port for each in switch.show("spanning-tree").get("instances", []) for port in each["ports"]]
    return {int(port["interface"][1:]): port["state"] for port in ports if port["interface"] in ("p1", "p2")}


def open_wires(switch, bridge):
    """The wires that forward at both ends."""
    near, far = states(switch), bridge.states()
    return [number for number in (1, 2) if near.get(number) == "forwarding" == far.get(number)]


def received():
    return sum(int(count) for count in sh("cat /sys/class/net/p[12]/statistics/rx_packets").split())


def outage(host, act):
    """The longest time in seconds without an answer around `act`, measured by ten echo requests a second."""
    flow = host.start(f"ping -n -D -i 0.1 {ADDRESS}")
    time.sleep(1.5)
    act()
    time.sleep(1)
    until(lambda: host.ping(ADDRESS, 2) == 2, 30)
    flow.send_signal(2)
    text = flow.communicate()[0]
    times = [float(found) for found in re.findall(r"^\[([\d.]+)\].*bytes from", text, re.M)]
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    return max(gaps, default=99.0), text.count("DUP")


class Tree(Run):
    """One mode and one root."""

    def __init__(self, hosts, switch, variant, bridge):
        super().__init__(hosts, switch, variant)
        self.host, self.bridge = hosts[3], bridge

    def settled(self, when):
        """One wire forwards and the host is answered; no frame goes round."""
        one = until(lambda: len(open_wires(self.switch, self.bridge)) == 1 and self.host.ping(ADDRESS, 1) == 1, 30)
        self.check(f"one of two wires forwards {when}", one, f"{states(self.switch)} {self.bridge.states()}")
        before = received()
        time.sleep(2)
        self.check(f"no frame goes round {when}", received() - before < QUIET, received() - before)

    def all(self):
        self.settled("after the start")
        wire = (open_wires(self.switch, self.bridge) or [1])[0]
        gap, copies = outage(self.host, lambda: monitor(f"set_link p{wire} off"))
        self.check("the other wire takes over when a cable is pulled", open_wires(self.switch, self.bridge) == [3 - wire] and not copies,
                   f"{states(self.switch)} {self.bridge.states()} {copies} copies")
        out(f"{self.variant}: {gap:.1f} s without an answer when a cable was pulled")
        _, copies = outage(self.host, lambda: monitor(f"set_link p{wire} on"))
        self.check("no frame arrives twice when the cable is put in", not copies, copies)
        self.settled("after the cable was put in")
        self.switch.kill9()
        self.switch.start()
        self.settled("after kill -9 and restart")


def main():
    nic, hook = arguments()[0], arguments()[1].split("+")[0]
    if nic == "virtio-mq":
        # The wires that machine.py makes are bridges of the machine, which consume BPDUs.
        skip("spanning tree", "the wires of virtio-mq carry no BPDUs")
        out("table:", json.dumps({"tree": "-"}))
        return
    hosts = wires(3)
    sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
    for number in range(1, 4):
        sh(f"ip link set p{number} up")
    bridge = Bridge()
    hosts[3].run("ip addr add 10.0.0.3/24 dev eth0")
    failed = []
    for mode in ("rstp", "stp"):
        for root, priority in (("the switch", 32768), ("the bridge", 0)):
            bridge.make(priority)
            switch = Switch(CONFIGURATION.format(mode, hook))
            log = switch.start()
            name = f"{mode}, root {root}, hook {hook}"
            if "ready:" not in log:
                skip(f"spanning tree ({name})", log)
                switch.detach()
                bridge.remove()
                continue
            run = Tree(hosts, switch, name, bridge)
            run.all()
            failed += [f"{mode}, root {root}: {each}" for each in run.failed]
            switch.detach()
            bridge.remove()
            time.sleep(1)
    out("table:", json.dumps({"tree": "; ".join(failed) or "right"}))
    bad = kernel_complaints()
    check("the kernel's log has no warning", not bad, bad)


main()
