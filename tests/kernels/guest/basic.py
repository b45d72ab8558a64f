"""What has to work on every kernel: the programs load, hosts reach each other through VLANs and the router, the daemon dies.

No NIC: the hosts' ends and the ports are veth pairs. A kernel that refuses the programs is asked for the reason, and for the soft plane.
"""
import glob
import re
import time

from lib import LANYARD, Host, Switch, check, differences, kernel, kernel_complaints, mac, out, settings, sh, skip, until

# Kernels of kernel.org from this version on load the programs (crates/ebpf/src/probe.rs).
OLDEST = (5, 18)
SHOWS_TAGS = (6, 8)
CONFIGURATION = """hostname sw1
ip routing
vlan 10,20
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 10
interface p3
 switchport mode trunk
 switchport trunk allowed vlan 20
interface p4
 switchport access vlan 20
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
interface vlan 20
 ip address 10.0.20.254 255.255.255.0
"""
BPDUS = bytes.fromhex("0180c2000000")


def make_hosts():
    """h1, h2: access, VLAN 10. h3: VLAN 20, tagged. h4: access, VLAN 20, with an address of VLAN 10, too."""
    hosts = {}
    for number in range(1, 5):
        sh(f"ip link add p{number} type veth peer name e{number}; ip link set p{number} up")
        hosts[number] = Host(number, f"e{number}")
    for number in (1, 2):
        hosts[number].run(f"ip addr add 10.0.10.{number}/24 dev eth0; ip route add default via 10.0.10.254")
    hosts[3].run("ip link add link eth0 name v20 type vlan id 20; ip link set v20 up; "
                 "ip addr add 10.0.20.3/24 dev v20; ip route add default via 10.0.20.254")
    hosts[4].run("ip addr add 10.0.20.4/24 dev eth0; ip addr add 10.0.10.4/24 dev eth0")
    return hosts


def refused(hosts):
    """The reason, by every way to ask; then the soft plane."""
    line = next((line for line in sh(LANYARD + " version", 300).split("\n") if "ebpf" in line), "")
    named = "not available" in line and "Linux 5.18" in line
    check("`lanyard version` names the reason in one line", named and len(line) < 400, line)
    out("table: refused:", line.split("not available: ")[-1][:300])
    switch = Switch(CONFIGURATION)
    log = switch.start()
    refuses = switch.process.poll() not in (None, 0) and "Linux 5.18" in log
    check("`--plane ebpf` is refused with the reason", refuses, log)
    switch.detach()
    switch = Switch(CONFIGURATION, "auto")
    log = switch.start()
    check("`--plane auto` starts the soft plane", "plane soft" in log, log)
    check("the log names the reason for the soft plane", "%PLANE-4-FALLBACK" in log + switch.cli("show logging"), log)
    check("two hosts in a VLAN reach each other by the soft plane", hosts[1].reaches("10.0.10.2"), switch.log())
    switch.detach()


def loads(switch):
    """Every program of bpf/lanyard.bpf.c is loaded by one of these."""
    text = sh(LANYARD + " version", 300)
    check("`lanyard version` loads the programs", re.search(r"plane ebpf +available", text), text)
    log = switch.start()
    ready = check("the eBPF plane starts", "ready:" in log and "plane ebpf" in log, log)
    out(f"table: ready after {switch.took_s} s")
    if not ready:
        return False
    data = mac(2) + mac(1) + b"\x88\xb5" + bytes(50)
    trace = switch.cli(f"show platform packet-trace interface p1 hex {data.hex()} | json")
    check("the programs of packet-trace load", '"verdict"' in trace, trace)
    why = switch.configure("interface p1", "hook xdp")
    if kernel() >= SHOWS_TAGS:
        check("XDP on a veth port loads", not why and switch.hooks().get("p1") == "xdp", why or switch.hooks())
        check("it is the program that all veths have in common", glob.glob("/run/lanyard/bpf/*/programs/lanyard_xdp_veth"), switch.log())
    else:
        check("XDP on a veth port is refused with the reason", "p1" in why and len(why) < 1500, why)
    switch.configure("interface p1", "no hook")
    return True


def forwards(hosts, switch):
    good = hosts[1].reaches("10.0.10.2")
    check("two hosts in VLAN 10 reach each other", good, switch.cli("show interfaces counters drops"))
    check("a host in VLAN 20 does not reach VLAN 10 but by the router", hosts[4].ping("10.0.10.2", 2, "-I 10.0.10.4") == 0)
    check("a tagged host reaches an untagged one in VLAN 20", hosts[3].reaches("10.0.20.4"))
    check("a host reaches the switch's address", hosts[1].reaches("10.0.10.254"))
    good = hosts[1].reaches("10.0.20.3")
    check("a host in VLAN 10 reaches one in VLAN 20 by the router", good, switch.cli("show ip route", "show ip arp"))
    text = hosts[1].run("ping -n -c 1 -W 2 -t 1 10.0.20.3")
    check("the router answers a packet whose TTL ends", "Time to live exceeded" in text, text)
    check("10 kB datagrams arrive", hosts[1].ping("10.0.20.3", 3, "-s 10000") == 3)
    table = switch.show("mac address-table").get("entries", [])
    learned = {each["interface"] for each in table if each["type"] == "dynamic"}
    check("addresses are learned at four ports", {"p1", "p2", "p3", "p4"} <= learned, learned)


def traps(hosts, switch):
    """BPDUs, short and long: both records of the ring `traps`."""
    switch.configure("spanning-tree mode rstp")
    hosts[1].open()
    for size in (60, 400):
        before = trapped(switch)
        data = BPDUS + mac(1) + (size - 14).to_bytes(2, "big") + b"\x42\x42\x03" + bytes(size - 17)
        hosts[1].socket.send(data)
        more = until(lambda: trapped(switch) > before, 10)
        check(f"a frame of {size} bytes reaches the control plane", more, switch.cli("show platform traps"))
    switch.configure("no spanning-tree mode")


def trapped(switch):
    groups = switch.show("platform traps").get("traps", [])
    return sum(each["trapped"] - each["lost"] for each in groups if each["group"] == "stp")


def survives(hosts, switch):
    """The daemon dies and comes back while packets flow."""
    hosts[1].reaches("10.0.10.2")
    flow = hosts[1].start("ping -n -i 0.1 -c 100000 10.0.10.2")
    time.sleep(1)
    switch.kill9()
    time.sleep(3)
    check("bridged packets arrive after kill -9", hosts[2].ping("10.0.10.1", 5) == 5)
    check("routed packets arrive after kill -9", hosts[1].ping("10.0.20.3", 5) == 5)
    log = switch.start()
    check("the daemon adopts the plane", "ready:" in log and "anew" not in log, log)
    time.sleep(1)
    flow.send_signal(2)
    text = flow.communicate()[0]
    found = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    lost = int(found[1]) - int(found[2]) if found else -1
    # One more frame may be under way when ping ends.
    check("no packet is lost by kill -9 and restart", 0 <= lost <= 1, text[-300:])


def leaves_nothing(switch, before):
    text = switch.detach()
    left = {}
    for number in range(1, 5):
        changed = differences(before[number], settings(f"p{number}"))
        left |= {f"p{number}": changed} if changed else {}
    check("detach gives the ports back as they were", not left, f"{left} {text}")
    check("detach leaves no netdev", "vlan10" not in sh("ip -o link"), sh("ip -br link"))


def main():
    hosts = make_hosts()
    time.sleep(1)
    if kernel() < OLDEST:
        refused(hosts)
    else:
        before = {number: settings(f"p{number}") for number in range(1, 5)}
        switch = Switch(CONFIGURATION)
        if loads(switch):
            forwards(hosts, switch)
            traps(hosts, switch)
            survives(hosts, switch)
            leaves_nothing(switch, before)
        else:
            skip("forwarding", "the eBPF plane has not started")
            switch.detach()
    bad = kernel_complaints()
    check("the kernel's log has no warning", not bad, bad)


main()
