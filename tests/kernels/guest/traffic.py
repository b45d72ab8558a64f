"""Traffic and faults with one driver, by each hook: layer 3, TCP, offloads that change, jumbo frames, cables, unplugging, kill -9.

h1, h2: access, VLAN 10. h3: a trunk with 802.1Q devices for 10 and 20. p4: a routed port with the subinterface p4.100; h4 has an 802.1Q
device for it.
"""
import json
import os
import re
import time

from lib import (LANYARD, Run, Switch, arguments, check, differences, kernel_complaints, monitor, out, settings, sh, skip, tcp, until,
                 wires)

CONFIGURATION = """hostname sw1
ip routing
vlan 10,20
interface range p1 - 2
 switchport access vlan 10
interface p3
 switchport mode trunk
interface p4
 no switchport
 ip address 10.4.0.254 255.255.255.0
interface p4.100
 encapsulation dot1q 100
 ip address 10.100.0.254 255.255.255.0
interface vlan 10
 ip address 10.0.0.254 255.255.255.0
interface range p1 - 4
 hook {}
"""


# The offloads that an administrator may switch while the switch runs, in this order.
FEATURES = ("gro off", "gro on", "rxvlan off", "rxvlan on", "tso off", "tso on", "lro on")


def set_up(hosts):
    for number in (1, 2):
        hosts[number].run(f"ip addr add 10.0.0.{number}/24 dev eth0; ip route add default via 10.0.0.254")
    hosts[3].run("ip link add link eth0 name v10 type vlan id 10; ip link add link eth0 name v20 type vlan id 20; "
                 "ip addr add 10.0.0.3/24 dev v10; ip addr add 10.0.0.4/24 dev v20; ip link set v10 up; ip link set v20 up")
    hosts[4].run("ip addr add 10.4.0.1/24 dev eth0; ip link add link eth0 name v100 type vlan id 100; "
                 "ip addr add 10.100.0.1/24 dev v100; ip link set v100 up; ip route add 10.0.0.0/24 via 10.100.0.254")


def jumbo_by_the_bridge(hosts):
    """True when frames of 9,014 bytes pass between p1 and p2 by the kernel's bridge."""
    sh("ip link add br0 type bridge; ip link set br0 up")
    for number in (1, 2):
        sh(f"ip link set p{number} mtu 9000 master br0")
        hosts[number].run("ip link set eth0 mtu 9000")
    passes = until(lambda: hosts[1].ping("10.0.0.2", 2, "-s 8972 -M do") == 2, 20)
    sh("ip link del br0")
    for number in (1, 2):
        sh(f"ip link set p{number} mtu 1500")
        hosts[number].run("ip link set eth0 mtu 1500")
    return passes


class Traffic(Run):
    """One hook. The cell of the table is `right`, or the checks that failed."""

    def layer3(self):
        one, two, three, four = (self.hosts[number] for number in range(1, 5))
        self.check("VLAN 10 between access ports", one.reaches("10.0.0.2"))
        self.check("VLAN 10 between access port and trunk", one.reaches("10.0.0.3"))
        self.check("VLAN 20 does not reach VLAN 10", three.ping("10.0.0.2", 2, "-I v20") == 0)
        self.check("the VLAN interface answers", one.reaches("10.0.0.254"))
        self.check("the routed port answers", four.reaches("10.4.0.254"))
        self.check("the subinterface answers", four.reaches("10.100.0.254"), sh("ethtool -k p4 | grep vlan; ip -d link show p4"))
        self.check("the subinterface routes", four.reaches("10.0.0.2"))
        # Another 802.1Q device on the port registers its VLAN with the NIC, and its removal unregisters it.
        sh("ip link add link p4 name other type vlan id 200; ip link set other up; ip link del other")
        self.check("the subinterface answers after a VLAN was registered and removed", four.reaches("10.100.0.254"))

    def streams(self):
        one, two, three, _ = (self.hosts[number] for number in range(1, 5))
        self.check("TCP between access ports", tcp(one, two, "10.0.0.2") > 1)
        self.check("TCP from access port to trunk", tcp(one, three, "10.0.0.3") > 1)
        self.check("TCP from trunk to access port", tcp(three, one, "10.0.0.1", "-B 10.0.0.3") > 1)

    def toggles(self):
        one, three = self.hosts[1], self.hosts[3]
        for feature in FEATURES:
            sh("; ".join(f"ethtool -K p{number} {feature}" for number in (1, 2, 3)))
            time.sleep(1)
            self.check(f"VLAN 10 after `ethtool -K {feature}`", one.reaches("10.0.0.2") and one.reaches("10.0.0.3"),
                       self.switch.hooks())
            leak = three.ping("10.0.0.2", 2, "-I v20")
            self.check(f"no leak of VLAN 20 after `ethtool -K {feature}`", leak == 0, self.switch.hooks())
        sh("; ".join(f"ethtool -K p{number} lro off" for number in (1, 2, 3)))

    def jumbo(self):
        why = self.switch.configure("interface range p1 - 2", "mtu 9000")
        if why:
            named = "MTU" in why and re.search(r"\d{4}", why)
            self.check("a refused MTU names the limit", named, why)
            self.switch.configure("interface range p1 - 2", "no mtu")
            return
        for number in (1, 2):
            self.hosts[number].run("ip link set eth0 mtu 9000")
        time.sleep(3)
        good = until(lambda: self.hosts[1].ping("10.0.0.2", 2, "-s 8972 -M do") == 2, 15)
        self.check("frames of 9,014 bytes", good, self.switch.hooks())
        for number in (1, 2):
            self.hosts[number].run("ip link set eth0 mtu 1500")
        self.switch.configure("interface range p1 - 2", "no mtu")
        time.sleep(2)
        self.check("frames of 1,514 bytes after `no mtu`", self.hosts[1].reaches("10.0.0.2"))

    def links(self):
        one = self.hosts[1]
        monitor("set_link p2 off")
        down = until(lambda: self.status("p2") == "notconnect", 15)
        monitor("set_link p2 on")
        self.check("a cable is pulled and put in", down and one.reaches("10.0.0.2", 30), self.status("p2"))
        self.switch.configure("interface p2", "shutdown")
        silent = one.ping("10.0.0.2", 2) == 0
        self.switch.configure("interface p2", "no shutdown")
        self.check("shutdown and no shutdown", silent and one.reaches("10.0.0.2", 30), self.status("p2"))

    def status(self, port):
        ports = self.switch.show("interfaces status").get("interfaces", [])
        return next((each["status"] for each in ports if each["interface"] == port), None)

    def restart(self):
        flow = self.hosts[1].start("ping -n -i 0.1 -c 100000 10.0.0.2")
        time.sleep(1)
        self.switch.kill9()
        time.sleep(2)
        log = self.switch.start()
        time.sleep(1)
        flow.send_signal(2)
        text = flow.communicate()[0]
        found = re.search(r"(\d+) packets transmitted, (\d+) received", text)
        lost = int(found[1]) - int(found[2]) if found else -1
        self.check("kill -9 and restart without loss", "ready:" in log and 0 <= lost <= 2, f"{lost} lost; {log[-300:]}")

    def unplug(self, nic):
        monitor("device_del p2")
        gone = until(lambda: not os.path.exists("/sys/class/net/p2"), 15)
        others = self.hosts[1].reaches("10.0.0.3")
        model = {"virtio": "virtio-net-pci", "virtio-mq": "virtio-net-pci"}.get(nic, nic)
        monitor(f"device_add {model},romfile=,id=p2,netdev=b2,mac=02:00:00:00:02:02,bus=r2")
        name = until(lambda: re.search(r"^\d+: ([^:@]+).*02:00:00:00:02:02", sh("ip -o link"), re.M), 20)
        if name:
            sh(f"ip link set {name[1]} down; ip link set {name[1]} name p2")
        back = name and self.hosts[1].reaches("10.0.0.2", 30)
        self.check("a port is unplugged and plugged in", gone and others and back, f"{gone} {others} {back}")


def main():
    nic, hooks = arguments()[0], arguments()[1].split("+")
    hosts = wires(4)
    sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
    set_up(hosts)
    for number in range(1, 5):
        sh(f"ip link set p{number} up")
    # Try twice: the emulated vmxnet3 passes jumbo frames only after the first change of the MTU since its reset.
    large = jumbo_by_the_bridge(hosts) and jumbo_by_the_bridge(hosts)
    cells, auto = {}, None
    for hook in hooks:
        if hook == auto:
            # `auto` has chosen this hook, so it has been tested.
            continue
        # Offloads that merge frames must be off while the switch runs, and must be restored afterwards. A feature that
        # was switched off and on may differ from its first state (`tso on` turns more on than `tso off` has turned
        # off), so switch all of them once before the state is recorded.
        for number in range(1, 5):
            sh("; ".join(f"ethtool -K p{number} {feature}" for feature in FEATURES))
        time.sleep(3)
        before = {number: settings(f"p{number}") for number in range(1, 5)}
        switch = Switch(CONFIGURATION.format(hook))
        log = switch.start()
        used = switch.hooks().get("p1")
        if "ready:" not in log or hook not in ("auto", used):
            reason = next((line for line in log.split("\n") if "XDP" in line or "hook" in line), log)
            skip(f"traffic, hook {hook}", reason)
            switch.detach()
            continue
        auto = used if hook == "auto" else auto
        run = Traffic(hosts, switch, f"hook {hook}")
        run.layer3()
        run.streams()
        run.toggles()
        if large:
            run.jumbo()
        else:
            skip(f"frames of 9,014 bytes (hook {hook})", "they do not pass the kernel's bridge on this driver either")
        run.links()
        run.restart()
        sh(LANYARD + " cli -c 'show logging'")
        if hook == "auto":
            run.unplug(nic)
        switch.detach()
        time.sleep(1)
        numbers = (1, 3, 4) if hook == "auto" else (1, 2, 3, 4)
        changed = {f"p{number}": differences(before[number], settings(f"p{number}")) for number in numbers}
        changed = {name: lines for name, lines in changed.items() if lines}
        run.check("detach gives the ports back as they were", not changed, changed)
        cells[hook] = ", ".join(run.failed) or "right"
    words = [f"{hook}: {text}" for hook, text in cells.items()]
    right = cells and all(text == "right" for text in cells.values())
    out("table:", json.dumps({"traffic": "right" if right else "; ".join(words)}))
    bad = kernel_complaints()
    check("the kernel's log has no warning", not bad, bad)


main()
